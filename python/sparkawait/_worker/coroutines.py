# SPDX-License-Identifier: Apache-2.0
"""Calls of `async_invoke`, one coroutine per row.

Rows are worked off by *workers*: asyncio tasks that call the function for one row after another.
A call that never suspends so costs no task, no future and no turn of the loop; one that does still
runs in a real task, which is what timeouts, task groups and client libraries need.
Runs on the event loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Iterable
from contextvars import copy_context
from math import ceil
from time import monotonic
from types import coroutine

from sparkawait._core import Row
from sparkawait._worker.runner import Parts, Runner

ROWS_PER_TURN = 256
"""Rows that a worker finishes before it gives the loop a turn. Fewer cost throughput, more make
finished rows wait."""
WORKERS_PER_TURN = 4
"""Workers that take so many rows and run in one turn of the loop."""
SECONDS_PER_TURN = 0.005
"""The same in time, for functions that compute; looked at every 16 rows."""


class CoroutineRunner(Runner):
    """Calls `async_invoke` for every row.

    ```text
      pending rows --> worker (suspended in row 3)
                       worker (suspended in row 7)
           pump: as long as rows are pending, each turn of the loop wakes or makes
                 as many workers as the rows are expected to need
    ```

    Invariant: while rows are pending, the pump is scheduled.
    """

    def __init__(self, parts: Parts) -> None:
        """Starts without workers."""
        super().__init__(parts)
        self.pending: deque[Row] = deque()
        """Rows whose call has not started, oldest first."""
        self.workers: set[Worker] = set()
        """All workers, parked ones included."""
        self.parked: list[Worker] = []
        """Workers that wait for rows."""
        self.busy = 0
        """Workers that found a row since the pump ran last."""
        self._pumping = False
        self._offered = 0
        """Rows that were pending after the pump ran last, and those that came since."""
        self._rows_per_worker = 16.0
        """Rows that a worker took before it suspended, as seen last; a guess at first, which makes
        few workers in vain for a function that never suspends."""

    def _start(self, calls: list[Row]) -> None:
        self.pending.extend(calls)
        if self._pumping:
            self._offered += len(calls)
        else:
            self._pumping = True
            self._wake()

    def _pump(self) -> None:
        if self.busy:
            taken = self._offered - len(self.pending)
            self._rows_per_worker = max(1.0, taken / self.busy)
        if self.pending:
            self._wake()
        else:
            self._pumping = False

    def _wake(self) -> None:
        self.busy = 0
        self._offered = len(self.pending)
        # Only calls that all suspend have to start in the same turn; others would fill it.
        suspends = self._rows_per_worker < 2  # noqa: PLR2004 - more than every other call
        rows = self._offered if suspends else min(self._offered, WORKERS_PER_TURN * ROWS_PER_TURN)
        for _ in range(ceil(rows / self._rows_per_worker)):
            if self.parked:
                self.parked.pop().wake()
            else:
                self.workers.add(Worker(self))
        # Behind the first steps of these workers, in the same turn.
        self.loop.call_soon(self._pump, context=self.context)

    def _cancel(self, ids: set[int]) -> None:
        for worker in list(self.workers):
            if worker.row is not None and worker.row.__sparkawait_attempt__ in ids:
                worker.cancel()
        kept = [row for row in self.pending if row.__sparkawait_attempt__ not in ids]
        self.pending.clear()
        self.pending.extend(kept)

    def _stop(self) -> Iterable[asyncio.Task[None]]:
        self.pending.clear()
        for worker in self.workers:
            worker.cancel()
        return [worker.task for worker in self.workers]


class Worker:
    """A task that calls the function for one pending row after another, and parks when none is.

    A worker whose call was cancelled, or changed context variables, is not used again: a cancelled
    task stays marked, and the next row must not see another row's variables.
    """

    __slots__ = ("_cancelled", "_parked", "_runner", "row", "task")

    def __init__(self, runner: CoroutineRunner) -> None:
        """Starts the task, in the context of the caller."""
        self._runner = runner
        self._cancelled = False
        self._parked: asyncio.Future[None] | None = None
        self.row: Row | None = None
        """The row that is being called for; ``None`` between two."""
        # Named, because the default name is formatted again for every task.
        self.task = asyncio.Task(self._run(), loop=runner.loop, name="sparkawait-worker")

    def wake(self) -> None:
        """Ends the wait of a parked worker."""
        if self._parked is not None and not self._parked.done():
            self._parked.set_result(None)

    def cancel(self) -> None:
        """Cancels the call; its outcome is no longer wanted."""
        self._cancelled = True
        self.task.cancel()

    async def _run(self) -> None:  # noqa: C901, PLR0912 - one frame per call in flight, not two
        """Calls the function for every pending row it can get, until it must not go on."""
        # Locals, as this is the loop that every row goes through.
        runner = self._runner
        # Read by the watchdog.
        function_name = runner.function_name  # noqa: F841  # pyright: ignore[reportUnusedVariable]
        pending, invoke, replies = runner.pending, runner.invoke, runner.replies
        rows, results, context = replies.rows, replies.results, runner.context
        try:
            while True:
                if pending:
                    runner.busy += 1
                count, turn_ends = 0, monotonic() + SECONDS_PER_TURN
                while pending:
                    self.row = row = pending.popleft()
                    try:
                        result = await invoke(row)
                    except BaseException as error:  # noqa: BLE001 - it is the outcome of the row
                        self.row = None
                        if self._cancelled:
                            return
                        replies.fail(row, error)
                        if isinstance(error, GeneratorExit):
                            return
                    else:
                        self.row = None
                        if self._cancelled:
                            return
                        if not rows:
                            replies.schedule()
                        rows.append(row)
                        results.append(result)
                    # Cheap: unchanged contexts share their contents, which compare by identity.
                    if copy_context() != context:
                        return
                    count += 1
                    if not count & 15 and (count >= ROWS_PER_TURN or monotonic() > turn_ends):
                        await _turn()
                        count, turn_ends = 0, monotonic() + SECONDS_PER_TURN
                row = result = None  # not kept alive by a parked worker
                self._parked = runner.loop.create_future()
                runner.parked.append(self)
                await self._parked
                self._parked = None
        except asyncio.CancelledError:
            pass  # between two rows, when the task was closed
        finally:
            runner.workers.discard(self)


CoroutineRunner.entries = CoroutineRunner.entries_with(Worker._run.__code__)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


@coroutine
def _turn() -> Generator[None, None, None]:
    """Lets the loop run everything else that is ready."""
    yield
