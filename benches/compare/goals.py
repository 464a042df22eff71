# SPDX-License-Identifier: Apache-2.0
"""What sparkawait is to reach beside the others, read off ``results.json``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Goal", "goals"]

Document = dict[str, Any]

_PYTHON = "sparkawait_python"
_OPERATOR = "sparkawait_arrow"
_RATE = "rows_per_second"
_MEGABYTES = 200.0


@dataclass(frozen=True)
class Goal:
    """One figure, and what it should be.

    Attributes:
        title: For people.
        value: The median; ``None`` if it was not measured.
        limit: What it is to reach.
        unit: Behind both.
        at_most: Whether less is better.
        beside: The others' figure, for people.
    """

    title: str
    value: float | None
    limit: float
    unit: str = ""
    at_most: bool = False
    beside: str = ""

    @property
    def is_reached(self) -> bool | None:
        """Whether it is as it should be; ``None`` if it was not measured."""
        if self.value is None:
            return None
        return self.value <= self.limit if self.at_most else self.value >= self.limit


def goals(document: Document) -> list[Goal]:
    """Returns all goals."""
    return list(_goals(_Medians(document)))


class _Medians:
    """Looks figures up."""

    def __init__(self, document: Document) -> None:
        self._summaries = {
            (it["peer"], it["workload"]): it["summary"] for it in document["results"]
        }
        self._peers = document["peers"]

    def of(self, peer: str, workload: str, *path: str) -> float | None:
        """Returns the median of a spread in a summary."""
        value = self._summaries.get((peer, workload))
        for key in path:
            value = value.get(key) if value else None
        return value["median"] if value else None

    def ratio_of_rates(self, workload: str, baseline: str) -> float | None:
        """Returns the operator's rows a second at one workload by those at another."""
        one, other = (self.of(_OPERATOR, name, _RATE) for name in (workload, baseline))
        return one / other if one is not None and other is not None else None

    def best_other(self, workload: str) -> tuple[str, float] | None:
        """Returns the fastest peer that calls Python functions and is not ours, and its rate."""
        rates = [
            (self.of(name, workload, _RATE), peer["title"])
            for name, peer in self._peers.items()
            if not peer["is_ours"] and name != "flink_java"
        ]
        known = [(rate, title) for rate, title in rates if rate is not None]
        return (max(known)[1], max(known)[0]) if known else None


def _goals(medians: _Medians) -> Iterator[Goal]:
    for mode in ("unordered", "ordered"):
        value = medians.of(_OPERATOR, f"no-op-{mode}", "ratio_to", "flink_java")
        yield Goal(f"operator, calls that return at once, {mode}, by Flink's", value, 5.0, " x")
    for calls, limit in ((1_000, 0.95), (10_000, 0.6)):
        name = f"uniform-{calls}"
        flink = medians.of("flink_java", name, "share_of_bound")
        yield Goal(
            f"operator, calls of 1-20 ms, {calls} at a time, of the bound",
            medians.of(_OPERATOR, name, "share_of_bound"),
            limit,
            beside=f"Flink {flink:.3f}" if flink is not None else "",
        )
    value = medians.of(_OPERATOR, "uniform-10000", "ratio_to", "flink_java")
    yield Goal("the same, 10000 at a time, by Flink's", value, 2.0, " x")
    value = medians.of(_OPERATOR, "stragglers-ordered", "ratio_to", "flink_java")
    yield Goal("operator, stragglers, ordered, by Flink's", value, 3.0, " x")
    name = "stragglers-ordered-200mb"
    value = medians.of(_OPERATOR, name, "ratio_to", "flink_java")
    yield Goal("the same with results bounded by bytes, by Flink's", value, 3.0, " x")
    peak, flink = (medians.of(peer, name, "peak_megabytes") for peer in (_OPERATOR, "flink_java"))
    beside = f"Flink {flink:.0f} MB" if flink is not None else ""
    title = "and the most memory that it takes"
    yield Goal(title, peak, _MEGABYTES, " MB", at_most=True, beside=beside)
    for name, what in (("no-op-unordered", "at once"), ("uniform-1000", "1-20 ms")):
        ours, best = medians.of(_PYTHON, name, _RATE), medians.best_other(name)
        ratio = ours / best[1] if ours is not None and best is not None else None
        title = f"Python function, {what}, by the fastest other with one"
        yield Goal(title, ratio, 1.0, " x", beside=best[0] if best is not None else "")
    value = medians.of("sparkawait_arrow_python", "half-load", "added_latency_ms", "p99")
    flink = medians.of("flink_java", "half-load", "added_latency_ms", "p99")
    beside = f"Flink {flink:.3g} ms" if flink is not None else ""
    yield Goal("p99 beyond the call at half load", value, 2.0, " ms", at_most=True, beside=beside)
    value = medians.ratio_of_rates("watermark-1", "no-op-unordered")
    yield Goal("operator, a watermark after every row, by none", value, 0.7, " x")
