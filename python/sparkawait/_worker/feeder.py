# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""The thread that pulls the input ahead of need, so that its transfer overlaps with calls.

How far ahead is bounded by the operator, whose `put` waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from sparkawait._worker import address_space
from sparkawait._worker.mended import Offsets, invalid_column, with_bytes
from sparkawait.exceptions import ConfigurationError, ErrorKind

if TYPE_CHECKING:
    from sparkawait._core import Task


_JOIN_SECONDS = 1.0


class Feeder:
    """Pulls record batches of one schema from an iterator into a task.

    Args:
        batches: The input; used by one thread at a time.
    """

    def __init__(self, batches: Iterator[Any]) -> None:
        """Pulls nothing yet."""
        self._batches = batches
        self._first: pa.RecordBatch | None = None
        self._thread: threading.Thread | None = None
        self._in_iterator = False
        self.has_bytes_for_texts = False
        """Whether a batch has gone to the task with bytes in the place of texts."""

    def pull_first(self) -> pa.RecordBatch | None:
        """Returns the first batch, which tells the schema, or ``None`` for an empty input."""
        for item in self._batches:
            self._first = _to_record_batch(item)
            return self._first
        return None

    def start(self, task: Task) -> None:
        """Starts the thread that feeds `task`, the first batch included."""
        thread = threading.Thread(
            target=self._feed, args=(task,), name="sparkawait-feeder", daemon=True
        )
        self._thread = address_space.start(thread)

    def join(self) -> None:
        """Waits for the thread, unless the user's iterator holds it: then it ends by itself."""
        if self._thread is not None and not self._in_iterator:
            self._thread.join(_JOIN_SECONDS)

    def _feed(self, task: Task) -> None:
        try:
            batch, self._first = cast("pa.RecordBatch", self._first), None
            schema = batch.schema
            offsets = Offsets(schema)
            while self._put(task, offsets.repaired(batch)):
                self._in_iterator = True
                item = next(self._batches, None)
                self._in_iterator = False
                if item is None:
                    task.put_end()
                    return
                batch = _to_record_batch(item)
                _check_schema(batch.schema, schema)
        except BaseException as error:  # noqa: BLE001 - raised again by the task
            self._in_iterator = False
            task.put_failure(error)

    def _put(self, task: Task, batch: pa.RecordBatch) -> bool:
        try:
            return task.put(batch)
        except pa.ArrowException as error:
            came = with_bytes(batch)
            if came is batch:
                raise _not_as_declared(batch) from error
        self.has_bytes_for_texts = True
        try:
            return task.put(came)
        except pa.ArrowException as error:
            raise _not_as_declared(came) from error


def _to_record_batch(item: object) -> pa.RecordBatch:
    if isinstance(item, pa.RecordBatch):
        return item
    if hasattr(item, "__arrow_c_array__"):
        return cast("Callable[[object], pa.RecordBatch]", pa.record_batch)(item)
    msg = f"the input must hold Arrow record batches, got `{type(item).__name__}`"
    raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)


def _not_as_declared(batch: pa.RecordBatch) -> ConfigurationError:
    name = invalid_column(batch)
    msg = (
        f"input column `{name}` has data that is not what its type says; cast it to binary, or"
        " build it anew"
    )
    return ConfigurationError(msg, ErrorKind.INPUT_INVALID)


def _check_schema(found: pa.Schema, expected: pa.Schema) -> None:
    if not found.equals(expected):
        msg = f"the input changed its schema from ({_columns(expected)}) to ({_columns(found)})"
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
