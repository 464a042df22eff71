# SPDX-License-Identifier: Apache-2.0
"""A port without an operator behind it, and a runner on it, driven on a loop of the test."""

from __future__ import annotations

import asyncio
import os

import pytest

from sparkawait._plan.resolve import resolve_unpickled
from sparkawait._worker.life_cycle import runner_class
from sparkawait._worker.runner import Parts
from sparkawait.functions import FunctionContext


class FakeRow(dict):
    """An attempt at a row as `_core.Row` is one: a mapping, hashed by identity."""

    def __init__(self, number, cells, attempt=1):
        super().__init__(cells)
        self.id, self.attempt = number, attempt
        self.__sparkawait_attempt__ = number << 8 | attempt

    __hash__ = object.__hash__


def again(row, attempt):
    """Makes another attempt at a row."""
    other = FakeRow(row.id, row, attempt)
    other.__dict__ = {**row.__dict__, **other.__dict__}
    return other


class FakePort:
    """Hands out what the test puts in, and records what the runner answers.

    Rows of a part come back in the next turn, as where nothing limits calls.
    """

    gives_back = True
    """Whether rows of parts come back at once; else the test sends them."""

    def __init__(self):
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        self._waiting = []
        self._attempts = {}
        self.parts = []
        self.begun = []
        """The rows of each call that has begun."""
        self.left_out = []
        """Rows that came back without a call."""
        self.results = {}
        self.retries = {}
        self.failures = {}
        self.pauses = {}
        self.groups = []
        self.closed = False
        self.has_ended = False
        """Whether the task has ended, of which the loop does not know yet."""

    def fileno(self):
        return self._read

    def send(self, calls=(), cancelled=(), timed_out=()):
        self._attempts.update((row.id, row.__sparkawait_attempt__) for row in calls)
        attempts = [self._attempts[number] for number in cancelled]
        for waiting, _, _ in self._waiting:
            for row in [it for it in waiting if it.__sparkawait_attempt__ in attempts]:
                waiting.remove(row)
                attempts.remove(row.__sparkawait_attempt__)
        self._waiting.append((list(calls), attempts, list(timed_out)))
        os.write(self._write, b"x")

    def close(self):
        self.closed = True
        os.write(self._write, b"x")

    def dispose(self):
        os.close(self._read)
        os.close(self._write)

    def take(self):
        os.read(self._read, 1)
        if self.closed:
            return None
        calls, cancelled, timed_out = self._waiting.pop(0)
        if calls and cancelled:  # They begin a turn later, when the cancelled ones have learnt it.
            self._waiting.insert(0, (calls, [], []))
            os.write(self._write, b"x")
            calls = []
        return calls, cancelled, timed_out

    def started(self, rows):
        """Is told when calls begin; says whether the task may still count them."""
        self.begun.append([row.id for row in rows])
        return not self.has_ended

    def try_complete(self, columns, rows, results):
        return False  # so that all results come as batches

    def complete(self, rows, results, counts, retry):
        self.groups.append([row.id for row in rows])
        values = results.to_pylist()
        for index, row in enumerate(rows):
            count = 1 if counts is None else counts[index]
            self.results[row.id], values = values[:count], values[count:]
            self.retries[row.id] = retry[index] if retry is not None else None
        assert values == []

    def fail(self, row, error, kind, wishes, called):
        assert row.id not in self.failures
        retry, delay, pause = wishes
        if not called:
            self.left_out.append(row.id)
        self.failures[row.id] = (error, kind, retry, delay)
        if pause is not None:
            self.pauses[row.id] = pause

    def divide(self, rows, error, called):
        self.parts.append([row.id for row in rows])
        if not called:
            self.left_out += self.parts[-1]
        if self.gives_back:
            self.send([again(row, row.attempt + called) for row in rows])


class Session:
    """A function, its port and its runner, on a loop that runs only when told to."""

    def __init__(self, loop, function, **options):
        options.setdefault("timeout", None if "retry" not in options else "60s")
        self.plan = resolve_unpickled("unordered", function, input_schema=None, **options)
        self.loop = loop
        self.port = FakePort()
        self.context = FunctionContext(0, "test")
        parts = Parts(self.plan, self.port, self.loop, self.context)
        self.runner = runner_class(self.plan)(parts)
        self.open_error = self.loop.run_until_complete(self.runner.open())

    def run(self, *rows, turns=30, **sent):
        """Sends rows and turns the loop until what does not wait is done."""
        if rows or sent:
            self.port.send(rows, **sent)
        self.turn(turns)
        return self.port

    def turn(self, turns=30):
        async def turn():
            for _ in range(turns):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turn())

    def close(self):
        return self.loop.run_until_complete(self.runner.close(1.0))

    def dispose(self):
        self.close()
        self.loop.close()
        self.port.dispose()


@pytest.fixture(params=["asyncio", "uvloop"])
def session(request):
    """Makes sessions that end with the test, on either loop."""
    library = pytest.importorskip(request.param)
    sessions = []

    def make(function, **options):
        sessions.append(Session(library.new_event_loop(), function, **options))
        return sessions[-1]

    yield make
    for one in sessions:
        one.dispose()


@pytest.fixture
def rows():
    """Makes rows with ids from 0 and a cell ``x``."""
    return lambda count, first=0: [FakeRow(i, {"x": i}) for i in range(first, first + count)]


@pytest.fixture
def attempts():
    """Makes attempts with a number at those of some rows that are at the given places."""
    return lambda number, rows, places: [again(rows[it], number) for it in places]
