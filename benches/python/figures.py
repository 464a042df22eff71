# SPDX-License-Identifier: Apache-2.0
"""What a bench measures: rates, their baseline, and how both are taken and compared.

Subject and baseline alternate, so that a machine that slows down slows both, and ratios are taken
pair by pair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

__all__ = ["Bench", "Figure", "Settings", "alternate", "rate"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Settings:
    """How thorough a run is."""

    quick: bool = False

    @property
    def rounds(self) -> int:
        """Measured pairs, after one that is dropped."""
        return 1 if self.quick else 5

    def rows(self, full: int) -> int:
        """Returns how many rows to use where a full run uses `full`."""
        return max(10_000, full // 20) if self.quick else full


@dataclass(frozen=True)
class Figure:
    """One line of the report: what was measured, beside what, and what it should be."""

    name: str
    unit: str
    samples: list[float]
    """The subject, one sample a round."""
    baseline_name: str
    baseline: list[float]
    """The baseline of each round, or one number that is the same for all."""
    goal: float | None
    """`None`: it is shown for comparison only."""
    of_ratio: bool = True
    """Whether the goal is for the ratio to the baseline, or for the samples themselves."""
    at_most: bool = False
    """Whether less is better."""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ratios(self) -> list[float]:
        """The subject by its baseline, pair by pair."""
        baseline = self.baseline
        if len(baseline) == 1:
            baseline = baseline * len(self.samples)
        return [mine / other for mine, other in zip(self.samples, baseline, strict=False)]

    @property
    def is_reached(self) -> bool | None:
        """Whether the median is as it should be; `None` without a goal."""
        if self.goal is None:
            return None
        value = median(self.ratios if self.of_ratio else self.samples)
        return value <= self.goal if self.at_most else value >= self.goal

    def line(self) -> str:
        """Returns the figure as a line for people."""
        text = f"{self.name}: {_spread(self.samples)} {self.unit}"
        if self.baseline:
            text += f"; {self.baseline_name} {_spread(self.baseline)}"
            text += f"; ratio {_spread(self.ratios)}"
        if self.goal is None:
            return text
        limit = "at most" if self.at_most else "at least"
        what = " x" if self.of_ratio else f" {self.unit}"
        verdict = "reached" if self.is_reached else "MISSED"
        return f"{text}; to reach: {limit} {_number(self.goal)}{what}: {verdict}"

    def to_json(self) -> dict[str, Any]:
        """Returns the figure as a value for `json`."""
        return {**asdict(self), "ratios": self.ratios, "is_reached": self.is_reached}


Bench = Callable[[Settings], list[Figure]]
"""What each bench file offers under the name `figures`."""


def rate(rows: int, work: Callable[[], object]) -> float:
    """Returns the rows per second of `work`, which handles `rows`."""
    start = perf_counter()
    work()
    return rows / (perf_counter() - start)


def alternate(rounds: int, *subjects: Callable[[], _T]) -> list[list[_T]]:
    """Calls the subjects in turn, A B A B, and returns the samples of each.

    The first round warms up and is dropped.
    """
    samples: list[list[_T]] = [[] for _ in subjects]
    for number in range(rounds + 1):
        for subject, taken in zip(subjects, samples, strict=True):
            value = subject()
            if number > 0:
                taken.append(value)
    return samples


def _spread(samples: list[float]) -> str:
    middle = _number(median(samples))
    if len(samples) == 1:
        return middle
    return f"{middle} ({_number(min(samples))}..{_number(max(samples))})"


def _number(value: float) -> str:
    if abs(value) >= 1000:  # noqa: PLR2004 - where thousands begin
        return f"{value:,.0f}"
    return f"{value:.3g}"
