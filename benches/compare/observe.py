# SPDX-License-Identifier: Apache-2.0
"""Watches what a peer puts out: proof of the output and latencies. For peers that end in Python."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

from benches.compare.peer import Job, Outcome
from benches.compare.workloads import TABLE_SIZE

if TYPE_CHECKING:
    import numpy as np

__all__ = ["PERCENTILES", "TIMED_ROWS", "Observer", "percentiles"]

TIMED_ROWS = 200_000
"""About as many latencies are taken, evenly over the output."""
PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def percentiles(nanoseconds: Any) -> dict[str, float] | None:
    """Returns percentiles of an array in milliseconds; ``None`` of an empty one."""
    import numpy as np

    if len(nanoseconds) == 0:
        return None
    values = np.quantile(nanoseconds, list(PERCENTILES.values()), method="higher") / 1e6
    return {name: round(float(value), 4) for name, value in zip(PERCENTILES, values, strict=True)}


class Observer:
    """Takes the output of a job, column by column, as it is emitted."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._segment = 1 if job.workload.mode == "ordered" else job.workload.watermark_every
        self._rows = self._id_sum = self._result_sum = self._missing = self._misplaced = 0
        self._every = max(1, job.rows // TIMED_ROWS)
        self._is_started = False
        self._first_ns: int | None = None
        self._last_ns = 0
        self._latencies: list[np.ndarray] = []
        self._added: list[np.ndarray] = []

    def start(self) -> None:
        """Notes that the first row is about to be admitted, so that calls need not tell it."""
        self._is_started = True
        self._first_ns = time.monotonic_ns()

    def emitted(
        self,
        ids: Any,
        results: Any,
        admitted: Any = None,
        missing: int = 0,
        moments: Any = None,
        *,
        delays: bool = True,
    ) -> None:
        """Takes some rows as arrays of integers.

        Args:
            ids: Their ids.
            results: Their results, 0 for those without one.
            admitted: When their calls began, in nanoseconds.
            missing: How many have no result.
            moments: When they were emitted, if that was not just now.
            delays: Whether their calls took what the workload's table says.
        """
        import numpy as np

        self._last_ns = time.monotonic_ns()
        ids = np.asarray(ids)
        if self._segment is not None:
            places = np.arange(self._rows, self._rows + len(ids))
            if self._segment == 1:  # the same, without divisions
                wrong = places != ids
            else:
                wrong = places // self._segment != ids // self._segment
            self._misplaced += int(np.count_nonzero(wrong))
        timed = slice(-self._rows % self._every, None, self._every)
        self._rows += len(ids)
        self._id_sum += int(ids.sum())
        self._result_sum += int(np.sum(results))
        self._missing += missing
        if admitted is not None and len(ids):
            admitted = np.asarray(admitted)
            if not self._is_started:
                first = int(admitted.min())
                self._first_ns = first if self._first_ns is None else min(self._first_ns, first)
            now = self._last_ns if moments is None else np.asarray(moments)[timed]
            latencies = now - admitted[timed]
            self._latencies.append(latencies)
            if delays and self._job.workload.delays is not None:
                self._added.append(latencies - self._delays[ids[timed] % TABLE_SIZE])

    @cached_property
    def _delays(self) -> np.ndarray:
        """The nanoseconds that the workload's table says."""
        import numpy as np

        delays = self._job.workload.delays
        return np.array(delays.table() if delays is not None else ()) * 1e9

    def outcome(self, settings: dict[str, str], versions: dict[str, str]) -> Outcome:
        """Returns the report once the last row is out."""
        import numpy as np

        return Outcome(
            first_ns=self._first_ns or 0,
            last_ns=self._last_ns,
            rows=self._rows,
            id_sum=self._id_sum,
            result_sum=self._result_sum,
            missing=self._missing,
            misplaced=self._misplaced,
            latency_ms=percentiles(np.concatenate(self._latencies)) if self._latencies else None,
            added_ms=percentiles(np.concatenate(self._added)) if self._added else None,
            settings=settings,
            versions=versions,
        )
