# SPDX-License-Identifier: Apache-2.0
"""What a function with a life cycle is told, and what it says beside its results.

Counterpart of Flink's ``RuntimeContext``.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from sparkawait._core import Row

_T = TypeVar("_T")


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
    on_shared: Callable[[Hashable, Callable[[], Any]], Any] | None = field(default=None, repr=False)
    """Keeps what `shared` makes; ``None`` where nothing does, as in a test of yours."""

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @overload
    def shared(self, key: Hashable, factory: Callable[[], Awaitable[_T]]) -> Awaitable[_T]: ...
    @overload
    def shared(self, key: Hashable, factory: Callable[[], _T]) -> _T: ...
    def shared(self, key: Hashable, factory: Callable[[], Any]) -> Any:
        """Returns a client that all tasks of this worker process share, made once by `factory`.

        For clients whose connections are to outlive a task, above all in a stream, where each
        micro-batch has tasks of its own. To be called in `open`. Do not close what it returns: its
        `aclose`, or else its `close`, is called when no task has used it for 60 s, and when the
        process ends; a `close` that is a plain function runs in a thread. A process that was forked
        makes its own.

        Args:
            key: Names the client; all that `factory` depends on belongs to it, such as an address:
                ``("api", url)``. Another `factory` with the same key makes another client.
            factory: Makes the client, on the event loop; a plain function or an ``async def``,
                whose result you await. What it raises, each task that asks gets; the
                next one tries again.

        Returns:
            The client; with an ``async def`` an awaitable of it.

        Raises:
            ConfigurationError: If the key is not hashable, or `factory` is not a function.
            OperatorStateError: In a thread of a plain function.

        Examples:
            >>> class Lookup(AsyncFunction):  # doctest: +SKIP
            ...     async def open(self, context):
            ...         self.client = context.shared("api", lambda: httpx.AsyncClient(base_url=URL))
        """
        return factory() if self.on_shared is None else self.on_shared(key, factory)

    def settle(self, row: Row, cost: float, limit: str | None = None) -> None:
        """Says what the call for `row` has cost of a limit of ``rate_limit=``.

        What was taken before the call is corrected when it ends, also if it raises: what was too
        much comes back, and what was too little is taken. Without limits it does nothing. To be
        called before the call ends, by it.

        Args:
            row: The row that the function was called with.
            cost: What it has cost, from 0; part of a permit counts as one.
            limit: The name of the limit, or its rate if it has none. By default the only one there
                is, or the only one whose `cost` or `result_cost` is of the row.

        Raises:
            ConfigurationError: If it is not a cost, or the limit is unclear.
        """
        if self.on_settle is not None:
            self.on_settle(row, cost, limit)

    def read_limits(self, row: Row, headers: Mapping[str, str]) -> None:
        """Says what the headers of the reply for `row` tell of the limits of the service.

        What is left there (``x-ratelimit-remaining-tokens`` and the like) lowers the limits of
        ``rate_limit=`` that stand for it, see `sparkawait.RateLimit`, from the end of the call on.
        Headers that tell of no limit say nothing, and without limits it does nothing. To be called
        before the call ends, by it.

        Args:
            row: The row that the function was called with; of several, any of them.
            headers: Those of the response, as clients have them: ``response.headers``.

        Raises:
            ConfigurationError: If it is not a row, or these are not headers.
        """
        if self.on_limits is not None:
            self.on_limits(row, headers)

    def add_metric(self, name: str, amount: float = 1) -> None:
        """Adds `amount` to the function's own metric `name`."""
        with self._lock:
            self.metrics[name] = self.metrics.get(name, 0) + amount
