# SPDX-License-Identifier: Apache-2.0
"""What a function with a life cycle is told, and what it says beside its results.

Counterpart of Flink's ``RuntimeContext``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sparkawait._core import Row

__all__ = ["FunctionContext"]


@dataclass
class FunctionContext:
    """What `AsyncFunction.open` is told about the task.

    Attributes:
        partition: Number of the partition that the task works on.
        task_name: Name of the function and the partition, for logs.
        metrics: Numbers counted by the function; reported with the operator's own when the task
            ends.
    """

    partition: int
    task_name: str
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    on_settle: Callable[[Row, float, str | None], None] | None = field(default=None, repr=False)
    """Takes what `settle` is told; ``None`` where nothing does."""
    on_limits: Callable[[Row, Mapping[str, str]], None] | None = field(default=None, repr=False)
    """Takes what `read_limits` is told; ``None`` where nothing does."""

    def settle(self, row: Row, cost: float, limit: str | None = None) -> None:
        """Says what the call for `row` has cost of a limit of ``rate_limit=``.

        What was taken before the call is corrected when it ends, also if it raises: what was too
        much comes back, and what was too little is taken. Without limits it does nothing. To be
        called on the loop thread, before the call ends.

        Args:
            row: The row that the function was called with.
            cost: What it has cost, from 0; part of a permit counts as one.
            limit: The name of the limit, or its rate if it has none. By default the only one there
                is, or the only one whose `cost` or `result_cost` is of the row.

        Raises:
            ConfigurationError: If the cost is none, or the limit is not told.
        """
        if self.on_settle is not None:
            self.on_settle(row, cost, limit)

    def read_limits(self, row: Row, headers: Mapping[str, str]) -> None:
        """Says what the headers of the reply for `row` tell of the limits of the service.

        What is left there (``x-ratelimit-remaining-tokens`` and the like) lowers the limits of
        ``rate_limit=`` that stand for it, see `sparkawait.RateLimit`, from the end of the call on.
        Headers that tell of no limit say nothing, and without limits it does nothing. To be called
        on the loop thread, before the call ends.

        Args:
            row: The row that the function was called with; of several, any of them.
            headers: Those of the response, as clients have them: ``response.headers``.

        Raises:
            ConfigurationError: If that is no row, or no headers.
        """
        if self.on_limits is not None:
            self.on_limits(row, headers)

    def add_metric(self, name: str, amount: float = 1) -> None:
        """Adds `amount` to the function's own metric `name`. To be called on the loop thread."""
        self.metrics[name] = self.metrics.get(name, 0) + amount
