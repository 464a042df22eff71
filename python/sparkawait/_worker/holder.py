# SPDX-License-Identifier: Apache-2.0
"""The tasks of this process that outlive the micro-batches of a stream.

```text
  step of batch N       step of batch N + 1       step of batch N + 2, in another process
        |                     |                             |
        | keep                | begin                       | socket
        v                     v                             v
     tasks of the process, by their ids       (each drives itself, in Rust)
        |
        +--> closed, if no step has come for `hold` seconds, or twice the time between two
```

What a task holds is in the state of the stream, too: to lose it costs calls, never rows. To be used
from any thread; a thread of its own closes what nobody uses.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import ExitStack

import pyarrow as pa

from sparkawait._core import Carried, DetachedTask, PartEnd, listen_for_steps
from sparkawait._plan.plan import Chain
from sparkawait._values.cells import learn_zones
from sparkawait._worker import address_space
from sparkawait._worker.address_space import collecting_less_often
from sparkawait._worker.life_cycle import Functions
from sparkawait._worker.too_many import TooMany
from sparkawait.exceptions import AsyncIOError

_logger = logging.getLogger("sparkawait")
_LOOK_SECONDS = 1.0
"""How often it is looked for tasks that nobody takes."""
_LEAST_HOLD_SECONDS = 60.0
"""Spark ends Python workers that were idle for so long."""


class HeldTask:
    """A task with its functions, which are open as long as it is.

    Attributes:
        id: Names it among all tasks of all processes.
        name: The functions' names, for logs.

    Args:
        chain: The calls.
        schema: The columns of the input.
        saved: The state of an earlier task, to go on with what that held.
        partition: Number of the partition.
        owner: The shard that it is of, in a run of the query: another one may have other functions.
        gap: How long ago the state was written that it goes on with, in seconds.
    """

    def __init__(
        self,
        chain: Chain,
        schema: pa.Schema,
        saved: Carried | None,
        *,
        partition: int,
        owner: str,
        gap: float = 0.0,
    ) -> None:
        """Opens the functions and starts the task."""
        self.name = chain.name
        self._chain = chain
        self._carried = 0
        timeouts = [plan.options.timeout or 0.0 for plan in chain.plans]
        self._hold = max(_LEAST_HOLD_SECONDS, *timeouts)
        learn_zones(chain.zones)
        arguments = chain.task_arguments(schema, partition, are_wanted=True)
        self._task = DetachedTask(**arguments, saved=saved)
        self._functions = Functions(chain, self._task, partition)
        self._stack = ExitStack()
        self._stack.enter_context(collecting_less_often(self._functions.python_calls))
        try:
            self._functions.open()
            self.id = self._task.start(owner, gap)
        except BaseException:
            self.close()
            raise

    def begin(self, owner: str, part: int) -> bool | None:
        """Begins the part behind `part` others of a shard of a query.

        The last part may be begun again, by a step that is carried out once more: the task then
        gets the same rows and gives the same answer, without a further call.

        Returns:
            Whether it has begun; ``None``: others go on with the task. Otherwise it was given up:
            it is another shard's, or somebody has gone on with it whose micro-batch did not count.
        """
        return self._task.begin(owner, part)

    def post(self, step: str, address: str, token: bytes) -> None:
        """Tells the processes of the host that a step has made the task, until it is closed.

        Args:
            step: Names the step.
            address: Where this process listens.
            token: What it wants to be told there.

        Raises:
            OSError: If it cannot be told.
        """
        self._task.post(step, address, token)

    def put(self, rows: bytes) -> bool:
        """Hands rows over as Arrow IPC; returns false once the task has failed.

        Raises:
            ConnectionError: If the part was begun before, with other rows.
        """
        return self._task.put(rows)

    def end_part(self, linger: float | None) -> PartEnd:
        """Waits for the rows of the part, no longer than `linger` seconds once all are admitted.

        Raises:
            AsyncIOError: If the task fails, or failed before.
            ConnectionError: If the part was begun before, with other rows.
        """
        try:
            end = self._task.end_part(linger)
        except AsyncIOError as error:
            TooMany(self._chain, "this shard").tell(self._task.too_many(), error)
            raise
        self._carried = end.carried
        return end

    def leave(self) -> None:
        """Leaves the part that was begun to a step that begins it again."""
        self._task.leave()

    def retire(self) -> bool:
        """Ends the task if no micro-batch has come for long; returns whether it is of no use."""
        if not self._task.retire(self._hold):
            return False
        if self._carried:
            _logger.warning(
                "%s: no micro-batch has come for %g s; the calls of up to %d rows end. The rows are"
                " in the state of the query, which calls for them again when it goes on",
                self.name,
                self._hold,
                self._carried,
            )
        return True

    def close(self) -> None:
        """Cancels all calls and closes the functions. Idempotent."""
        self._task.close()
        try:
            error = self._functions.close(finished=False)
        finally:
            self._stack.close()
        if error is not None:
            _logger.warning("after the task had ended: %s", error, exc_info=error.__cause__)


class _Holder:
    """All tasks of a process."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._lock = threading.Lock()
        self._tasks: dict[bytes, HeldTask] = {}
        self._thread: threading.Thread | None = None
        self._address: tuple[str, bytes] | None = None

    @property
    def address(self) -> tuple[str, bytes]:
        """Where other processes find the tasks, and what they have to say there."""
        with self._lock:
            if self._address is None:
                try:
                    self._address = listen_for_steps()
                except OSError as error:
                    _logger.warning(
                        "rows in flight cannot be asked for by other processes of this host (%s):"
                        " they are called again where a micro-batch runs in another one",
                        error,
                    )
                    self._address = "", bytes(16)
            return self._address

    def begin(self, id_: bytes, owner: str, part: int) -> HeldTask | None:
        """Returns a task that has worked off `part` parts, if it is here, with the next one begun.

        A task that is here and is not what the state says is closed.
        """
        with self._lock:
            task = self._tasks.get(id_)
        if task is None:
            return None
        has_begun = task.begin(owner, part)
        if has_begun is False:
            self.drop(task)
        return task if has_begun else None

    def keep(self, task: HeldTask) -> None:
        """Keeps a task for the next micro-batches."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(
                    target=self._retire_tasks, name="sparkawait-holder", daemon=True
                )
                try:
                    self._thread = address_space.start(thread)
                except AsyncIOError:
                    task.close()
                    raise
            self._tasks[task.id] = task

    def post(self, task: HeldTask, step: str) -> None:
        """Tells the processes of the host that a step has made a task."""
        address, token = self.address
        if not address:
            return
        try:
            task.post(step, address, token)
        except OSError as error:
            _logger.info("a step that is carried out again will call again: %s", error)

    def drop(self, task: HeldTask) -> None:
        """Closes a task."""
        with self._lock:
            self._tasks.pop(task.id, None)
        task.close()

    def outlive_their_use(self) -> None:
        """Waits until no task is here: steps of other processes may go on with them."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _retire_tasks(self) -> None:
        wake = threading.Event()
        while not wake.wait(_LOOK_SECONDS):
            with self._lock:
                tasks = list(self._tasks.values())
                if not tasks:
                    self._thread = None
                    return
            for task in tasks:
                if task.retire():
                    self.drop(task)


_holder = _Holder()


def holder() -> _Holder:
    """Returns the tasks of this process; a forked child has none of its parent's."""
    global _holder  # noqa: PLW0603 - one per process
    if _holder.process_id != os.getpid():
        _holder = _Holder()
    return _holder
