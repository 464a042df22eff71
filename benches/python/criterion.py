# SPDX-License-Identifier: Apache-2.0
"""What did the Rust benches measure last? Reads what Criterion left in ``target/criterion``.

Measures nothing itself: `make bench` runs ``cargo bench`` before it. Goals: 40 ns an element in a
queue (put, complete in random order, emit), and 5 million rows a second in a whole task; a record
with one channel at most 1.03 of one without, with a thousand 1.15.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from figures import Figure, Settings

__all__ = ["figures"]

_RESULTS = Path(__file__).parents[2] / "target" / "criterion"


def figures(_settings: Settings) -> list[Figure]:
    """Returns a figure for each result that is there."""
    queues = [
        Figure(
            f"core, {mode} queue, {in_flight:,} in flight",
            "ns an element",
            [seconds * 1e9 for seconds in samples],
            "",
            [],
            goal=40.0,
            of_ratio=False,
            at_most=True,
        )
        for mode in ("ordered", "unordered")
        for in_flight in (1_000, 10_000)
        if (samples := _seconds_an_element(f"queue/{mode}/{in_flight}"))
    ]
    copy = [1 / seconds for seconds in _seconds_an_element("task/baseline-copy")]
    tasks = [
        Figure(
            f"operator over Arrow batches in Rust, {mode}",
            "rows/s",
            [1 / seconds for seconds in samples],
            "a copy of the batches",
            copy,
            goal=5e6,
            of_ratio=False,
        )
        for mode in ("ordered", "unordered")
        if (samples := _seconds_an_element(f"task/{mode}"))
    ]
    return queues + tasks + _channels()


def _channels() -> list[Figure]:
    """Returns what channels cost a record in the operator, beside none."""
    return [
        Figure(
            f"core, {mode} operator with {channels:,} channels",
            "ns a record",
            [seconds * 1e9 for seconds in samples],
            "none",
            [seconds * 1e9 for seconds in _seconds_an_element(f"channels/{mode}/0")],
            goal=goal,
            at_most=True,
        )
        for mode in ("ordered", "unordered")
        for channels, goal in ((1, 1.03), (1_000, 1.15))
        if (samples := _seconds_an_element(f"channels/{mode}/{channels}"))
    ]


def _seconds_an_element(name: str) -> list[float]:
    latest = _RESULTS / name / "new"
    if not (latest / "sample.json").exists():
        return []
    sample: dict[str, Any] = json.loads((latest / "sample.json").read_text())
    benchmark: dict[str, Any] = json.loads((latest / "benchmark.json").read_text())
    elements = benchmark["throughput"]["Elements"]
    runs = zip(sample["times"], sample["iters"], strict=True)
    return [nanos / iterations / elements / 1e9 for nanos, iterations in runs]
