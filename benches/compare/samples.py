# SPDX-License-Identifier: Apache-2.0
"""Samples of several rounds, and how they compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Spread", "ratios", "spread", "unrest"]


@dataclass(frozen=True)
class Spread:
    """What is told of samples."""

    median: float
    min: float
    max: float

    def to_json(self) -> dict[str, float]:
        """Returns it as a value for `json`."""
        return {"median": self.median, "min": self.min, "max": self.max}


def spread(samples: Sequence[float]) -> Spread:
    """Returns the median, the smallest and the largest of at least one sample."""
    return Spread(median(samples), min(samples), max(samples))


def unrest(samples: Sequence[float]) -> float:
    """Returns how far samples are apart, as a share of their median.

    Of five and more the smallest and the largest do not count: one hiccup is no unrest.
    """
    kept = sorted(samples)
    if len(kept) >= 5:  # noqa: PLR2004 - three are left
        kept = kept[1:-1]
    return (kept[-1] - kept[0]) / median(kept)


def ratios(subject: Mapping[int, float], baseline: Mapping[int, float]) -> list[float]:
    """Divides subject by baseline, round by round; rounds that one of them lacks are left out.

    A machine that slows down slows both of a pair.
    """
    shared = sorted(set(subject) & set(baseline))
    return [subject[number] / baseline[number] for number in shared]
