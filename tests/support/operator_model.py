# SPDX-License-Identifier: Apache-2.0
"""What an operator must do, worked out the slow way: lists, no queues and no timers."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Record:
    """A record that was put and has not left."""

    value: int
    key: Hashable | None
    time_left: int | None
    attempt: int = 1
    #: Time until the next attempt, while in back-off.
    back_off: int | None = None
    results: list[Any] | None = None


@dataclass
class Watermark:
    """A watermark that has not left."""

    timestamp: int


@dataclass
class OperatorModel:
    """The state of an operator that was told the same as the harness.

    A fallback answers a late record with ``("late", value)``. Retries are asked for by exceptions
    and by empty results.
    """

    mode: str
    capacity: int
    max_concurrency: int
    timeout: int | None
    max_retries: int
    delay: int
    has_fallback: bool
    #: Admitted and not emitted, in arrival order.
    held: list[Record | Watermark] = field(default_factory=list)
    #: Restored elements that wait for a slot, in arrival order.
    replay: list[Record | Watermark] = field(default_factory=list)
    #: Records of `held` that have results, in completion order.
    completed: list[Record] = field(default_factory=list)
    #: Replies that wait as mail: value, attempt, and results or `None` for an exception.
    mail: list[tuple[int, int, list[Any] | None]] = field(default_factory=list)
    output: list[Any] = field(default_factory=list)
    #: Values that are called, which the model is told: whose turn it is is not its business.
    running: set[int] = field(default_factory=set)
    input_ended: bool = False
    failed: bool = False

    @property
    def records(self) -> list[Record]:
        """The records that hold a slot."""
        return [element for element in self.held if isinstance(element, Record)]

    @property
    def pending(self) -> list[Record]:
        """The records that hold a slot and have no results."""
        return [record for record in self.records if record.results is None]

    @property
    def is_finished(self) -> bool:
        """Whether everything was emitted after the end of input."""
        return self.input_ended and not self.failed and not self.held and not self.replay

    @property
    def runnable(self) -> list[Record]:
        """The records that run or wait for a permit."""
        ready = [record for record in self.pending if record.back_off is None]
        return [record for record in ready if not self._is_blocked(record)]

    def _is_blocked(self, record: Record) -> bool:
        if self.mode != "key_ordered" or record.key is None:
            return False
        first = next(other for other in self.pending if other.key == record.key)
        return first is not record

    def put(self, value: int, key: Hashable | None) -> bool:
        """Admits a record if there is room, and a permit that nobody waits for."""
        if self.replay or len(self.records) == self.capacity:
            return False
        if len(self.runnable) >= self.max_concurrency:
            return False
        self.held.append(Record(value, key, self.timeout))
        return True

    def put_watermark(self, timestamp: int) -> None:
        """Appends a watermark; it replaces one that has no record behind it."""
        line = self.replay or self.held
        if line and isinstance(line[-1], Watermark):
            line.pop()
        line.append(Watermark(timestamp))
        self._settle()

    def run(self) -> None:
        """Takes the mail, oldest first."""
        for value, attempt, results in self.mail:
            self._reply(value, attempt, results)
        self.mail = []

    def _reply(self, value: int, attempt: int, results: list[Any] | None) -> None:
        record = next((record for record in self.pending if record.value == value), None)
        if (
            self.failed
            or record is None
            or record.attempt != attempt
            or record.back_off is not None
        ):
            return
        if not results and attempt <= self.max_retries and not self.input_ended:
            if record.time_left is not None and record.time_left <= self.delay:
                # Nothing could come any more.
                self._time_out(record)
                return
            record.attempt += 1
            record.back_off = self.delay
        elif results is None:
            self.failed = True
        else:
            self._complete(record, results)

    def _complete(self, record: Record, results: list[Any]) -> None:
        record.results = results
        self.completed.append(record)
        self._settle()

    def tick(self) -> None:
        """Lets a second pass; the mail was taken."""
        late = [record for record in self.pending if self._pass_time(record, 1)]
        for record in late:
            self._time_out(record)

    def _time_out(self, record: Record) -> None:
        if self.has_fallback and not self.failed:
            self._complete(record, [("late", record.value)])
        else:
            self.failed = True

    def _pass_time(self, record: Record, seconds: int) -> bool:
        """Takes `seconds` off the times of a record; returns whether its timeout is over.

        The time of one that waits for its turn stands.
        """
        ages = record.back_off is not None or record.value in self.running
        if record.back_off is not None:
            record.back_off = record.back_off - seconds if record.back_off > seconds else None
        if record.time_left is None or not ages:
            return False
        record.time_left -= seconds
        return record.time_left <= 0

    def end_input(self) -> None:
        """Ends every back-off."""
        self.input_ended = True
        for record in self.pending:
            record.back_off = None

    def restored(self, capacity: int) -> OperatorModel:
        """Returns the model of an operator that was restored from a snapshot of this one."""
        model = copy.deepcopy(self)
        model.replay = model.held + model.replay
        model.held, model.completed, model.output = [], [], []
        model.capacity, model.input_ended = capacity, False
        model.max_concurrency = min(capacity, model.max_concurrency)
        model._settle()
        return model

    def _settle(self) -> None:
        """Emits what may leave, and admits restored elements while there is room."""
        self._emit()
        while self.replay:
            head = self.replay[0]
            if isinstance(head, Record) and len(self.records) == self.capacity:
                return
            self._admit(self.replay.pop(0))
            self._emit()

    def _admit(self, element: Record | Watermark) -> None:
        self.held.append(element)
        if isinstance(element, Record):
            if self.input_ended:
                element.back_off = None
            if element.results is not None:
                self.completed.append(element)

    def _emit(self) -> None:
        while (element := self._next_to_leave()) is not None:
            self.held = [other for other in self.held if other is not element]
            if isinstance(element, Watermark):
                self.output.append(("watermark", element.timestamp))
            else:
                self.completed = [other for other in self.completed if other is not element]
                self.output += [("record", it, element.value) for it in element.results or []]

    def _next_to_leave(self) -> Record | Watermark | None:
        """Returns the element that leaves next: a watermark only if it is the oldest of all."""
        if not self.held or isinstance(self.held[0], Watermark):
            return self.held[0] if self.held else None
        epoch: list[Record] = []
        for element in self.held:
            if isinstance(element, Watermark):
                break
            epoch.append(element)
        candidates = epoch[:1] if self.mode == "ordered" else epoch
        return next((it for it in self.completed if any(it is other for other in candidates)), None)
