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
    """A row as `_core.Row` is one: a mapping with an id, hashed by identity."""

    def __init__(self, number, cells):
        super().__init__(cells)
        self.id = self.__sparkawait_attempt__ = number

    __hash__ = object.__hash__


class FakePort:
    """Hands out what the test puts in, and records what the runner answers."""

    def __init__(self):
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        self._waiting = []
        self.results = {}
        self.retries = {}
        self.failures = {}
        self.pauses = {}
        self.groups = []
        self.closed = False

    def fileno(self):
        return self._read

    def send(self, calls=(), cancelled=(), timed_out=()):
        self._waiting.append((list(calls), list(cancelled), list(timed_out)))
        os.write(self._write, b"x")

    def close(self):
        self.closed = True
        os.write(self._write, b"x")

    def dispose(self):
        os.close(self._read)
        os.close(self._write)

    def take(self):
        os.read(self._read, 1)
        return None if self.closed else self._waiting.pop(0)

    def started(self, rows):
        """Is told when calls begin, which no test here looks at."""

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

    def fail(self, row, error, kind, *wishes):
        assert row.id not in self.failures
        retry, delay, pause = wishes
        self.failures[row.id] = (error, kind, retry, delay)
        if pause is not None:
            self.pauses[row.id] = pause


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
