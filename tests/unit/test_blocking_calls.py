# SPDX-License-Identifier: Apache-2.0
"""Clients that block, called in threads."""

import asyncio
import contextvars
import re
import subprocess
import sys
import threading
from collections import Counter

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._worker import blocking_calls
from tests.support.waiting import wait_until

CALLS = 97
VARIABLE = contextvars.ContextVar("variable", default="unset")


def table(count: int) -> pa.Table:
    return pa.table({"id": list(range(count))})


def found(out) -> list[dict]:
    return sorted(out.to_table().to_pylist(), key=lambda row: row["id"])


def double(row):
    return {"doubled": 2 * row["id"]}


WAITS = {
    "ordered": sa.arrow.ordered_wait,
    "unordered": sa.arrow.unordered_wait,
    "by key": lambda rows, function, **given: sa.arrow.key_ordered_wait(
        rows, function, key="id", **given
    ),
}
FORMS = {
    "bare": lambda: (double, {"schema": "doubled long"}),
    "declared": lambda: (sa.async_function("doubled long")(double), {}),
    "with threads": lambda: (sa.async_function("doubled long", threads=3)(double), {}),
    "bare with threads": lambda: (sa.async_function(double, threads=5), {"schema": "doubled long"}),
    "declared again": lambda: (sa.async_function("doubled long")(sa.async_function(double)), {}),
    "many rows": lambda: (
        sa.async_function("doubled long", batch=7)(lambda rows: [double(row) for row in rows]),
        {},
    ),
    "a lambda": lambda: (lambda row: 2 * row.id, {"schema": "doubled long"}),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_each_wait_function_takes_a_plain_function(wait, form):
    function, given = form()
    out = wait(table(1009), function, max_concurrency=13, **given)

    assert found(out) == [{"id": i, "doubled": 2 * i} for i in range(1009)]


def test_as_many_threads_of_asyncio_run_at_a_time_as_are_asked_for():
    together = threading.Barrier(CALLS)

    @sa.async_function("doubled long")
    async def wait(row):
        await asyncio.to_thread(together.wait)  # passes once all of them are there
        return double(row)

    out = sa.arrow.unordered_wait(
        table(2 * CALLS), wait, max_concurrency=CALLS, tuning=sa.Tuning(warm_up=False)
    )

    assert found(out) == [{"id": i, "doubled": 2 * i} for i in range(2 * CALLS)]


class Together:
    """A function that notes how many of its calls run, and waits until so many do."""

    def __init__(self, parties: int) -> None:
        self.barrier = threading.Barrier(parties)
        self.running, self.most = 0, 0
        self._lock = threading.Lock()

    def __call__(self, row):
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.barrier.wait(20)
        with self._lock:
            self.running -= 1
        return {"doubled": 2 * row["id"]}


@pytest.mark.parametrize(
    ("threads", "calls", "expected"),
    [(None, None, 64), (None, 13, 13), (None, 200, 64), (97, None, 97), (97, 7, 7), (3, 200, 3)],
)
def test_as_many_calls_run_at_a_time_as_there_are_threads_and_no_more(threads, calls, expected):
    together = Together(expected)
    function = sa.async_function(together, threads=threads)
    given = {} if calls is None else {"max_concurrency": calls}
    rows = 3 * expected

    out = sa.arrow.unordered_wait(
        table(rows), function, schema="doubled long", tuning=sa.Tuning(warm_up=False), **given
    )

    assert found(out) == [{"id": i, "doubled": 2 * i} for i in range(rows)]
    assert together.most == expected


def test_batches_have_a_thread_each():
    together = threading.Barrier(5)

    @sa.async_function("doubled long", batch=sa.Batch(max_rows=7, linger="50s"), threads=5)
    def of_many(rows):
        together.wait(20)
        return [double(row) for row in rows]

    out = sa.arrow.ordered_wait(table(70), of_many, tuning=sa.Tuning(warm_up=False))

    assert found(out) == [{"id": i, "doubled": 2 * i} for i in range(70)]


class Client(sa.AsyncFunction):
    """A class whose function blocks."""

    schema = "opened string, seen string, thread string"
    threads = 1

    def open(self, context):
        VARIABLE.set("of open")
        self.opened_in = threading.current_thread().name
        self.context = context

    def async_invoke(self, row):
        seen = VARIABLE.get()
        VARIABLE.set(f"of row {row['id']}")
        self.context.add_metric("calls")
        return {"opened": self.opened_in, "seen": seen, "thread": threading.current_thread().name}


def test_a_class_is_opened_on_the_loop_and_called_in_threads_that_see_its_variables():
    out = sa.arrow.ordered_wait(table(31), Client())
    rows = found(out)

    assert {row["opened"] for row in rows} == {"sparkawait-loop"}
    assert {row["thread"].rpartition("-")[0] for row in rows} == {"sparkawait-blocking"}
    assert [row["seen"] for row in rows] == ["of open"] * 31
    assert out.metrics["function.calls"] == 31


def raises(row):
    if row["id"] % 3 == 0:
        raise ConnectionError(f"no {row['id']}")
    if row["id"] % 3 == 1:
        raise StopIteration
    return {"doubled": 2 * row["id"]}


def test_what_a_plain_function_raises_is_the_failure_of_its_row():
    out = sa.arrow.unordered_wait(
        table(23), raises, schema="doubled long", on_error="capture", max_concurrency=5
    )
    rows = found(out)

    messages = [row["error"] and row["error"]["message"] for row in rows]
    assert len(rows) == 23
    assert all(f"ConnectionError: no {i}" in messages[i] for i in range(0, 23, 3))
    assert all("`raises` raised StopIteration" in messages[i] for i in range(1, 23, 3))
    assert [row["doubled"] for row in rows][2::3] == [2 * i for i in range(2, 23, 3)]


def test_a_plain_function_is_tried_again():
    counts = Counter()

    def fails_twice(row):
        counts[row["id"]] += 1
        if counts[row["id"]] < 3:
            raise ConnectionError
        return {"doubled": 2 * row["id"]}

    out = sa.arrow.unordered_wait(
        table(29),
        fails_twice,
        schema="doubled long",
        max_concurrency=3,
        retry=sa.retry.fixed_delay(2, 0),
    )
    assert found(out) == [{"id": i, "doubled": 2 * i} for i in range(29)]
    assert set(counts.values()) == {3}


def test_a_plain_function_that_returns_a_coroutine_is_told_of_async_def():
    async def coroutine(row):
        return double(row)

    def hides(row):
        return coroutine(row)

    out = sa.arrow.ordered_wait(table(2), hides, schema="doubled long", on_error="capture")
    for row in found(out):
        assert "returned a coroutine; define it with `async def`" in row["error"]["message"]


# -- calls that do not return


@pytest.fixture
def gate():
    """What calls wait for that hang; opened when the test ends."""
    gate = threading.Event()
    yield gate
    gate.set()


def fed(*batches, after):
    """Yields batches, each but the first when what comes before it has been waited for."""
    first, *others = batches
    yield pa.record_batch({"id": list(first)})
    for rows, wait in zip(others, after, strict=True):
        wait()
        yield pa.record_batch({"id": list(rows)})


def test_a_call_that_timed_out_keeps_its_thread_and_the_others_go_on(gate, caplog, monkeypatch):
    monkeypatch.setattr(blocking_calls, "RETURN_SECONDS", 0.013)

    @sa.async_function("doubled long", threads=3)
    def hangs_once(row):
        if row["id"] == 5:
            gate.wait(20)
        return double(row)

    rows = fed(range(59), [59, 60], after=[lambda: wait_until(lambda: "are held" in caplog.text)])
    out = sa.arrow.unordered_wait(
        rows,
        hangs_once,
        on_error="capture",
        attempt_timeout="613ms",
        tuning=sa.Tuning(warm_up=False),
    )
    left = found(out)

    assert [row["id"] for row in left] == list(range(61))
    # On a machine that stands still, others run out of time, too.
    failed = {row["id"] for row in left if row["error"] is not None}
    assert 5 in failed
    assert all(row["doubled"] == 2 * row["id"] for row in left if row["id"] not in failed)
    assert not {59, 60} <= failed, "the other threads go on"
    assert out.metrics["function.held_threads"] == 1
    assert re.search("[123] of the 3 threads of `", caplog.text)
    assert "did not return, and their threads are left behind: called" in caplog.text


def test_a_thread_that_comes_back_is_used_again(gate, caplog, monkeypatch):
    monkeypatch.setattr(blocking_calls, "RETURN_SECONDS", 0.013)

    @sa.async_function("doubled long", threads=1)
    def hangs_once(row):
        if row["id"] == 0:
            gate.wait(20)
        return double(row)

    def open_gate():
        # Not when `on_timeout` runs: the call may still return before it is cancelled.
        wait_until(lambda: "1 of the 1 threads of `" in caplog.text)
        gate.set()

    rows = fed([0], range(1, 13), after=[open_gate])
    out = sa.arrow.unordered_wait(
        rows, hangs_once, timeout="733ms", on_timeout=lambda row: {"doubled": -1}
    )

    first, *others = found(out)
    assert first == {"id": 0, "doubled": -1}
    assert [row["id"] for row in others] == list(range(1, 13))
    # On a machine that stands still, some run out of time, too.
    assert {row["doubled"] for row in others} & {2 * i for i in range(1, 13)}
    assert out.metrics["function.held_threads"] == 0


def test_a_task_whose_threads_all_hang_fails_with_their_ages(gate, monkeypatch):
    monkeypatch.setattr(blocking_calls, "RETURN_SECONDS", 0.003)
    monkeypatch.setattr(blocking_calls, "HANG_SECONDS", 0.007)

    @sa.async_function("doubled long", threads=2)
    def hangs(row):
        gate.wait(20)

    with pytest.raises(sa.AsyncFunctionError, match=r"all 2 threads of `.*hangs` are held") as info:
        sa.arrow.unordered_wait(
            table(5000), hangs, attempt_timeout="5ms", on_error="null"
        ).to_table()

    assert info.value.kind is sa.exceptions.ErrorKind.THREADS_HUNG
    assert re.search(r"called \d+\.\d", str(info.value))


PROGRAM = """
import asyncio, threading, time
import pyarrow as pa
import sparkawait as sa

{function}

out = sa.arrow.unordered_wait(
    pa.table({{"id": [1, 2, 3]}}), hangs, schema="x long", timeout="7ms", on_error="null"
)
print(out.to_table().num_rows)
"""
HANGS = {
    "a plain function": "def hangs(row): time.sleep(3600)",
    "a thread of asyncio": "async def hangs(row): await asyncio.to_thread(time.sleep, 3600)",
}


@pytest.mark.parametrize("function", HANGS.values(), ids=HANGS)
def test_a_process_ends_although_calls_hang(function):
    program = PROGRAM.format(function=function)
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "3\n"


# -- wrong use


class YieldsRows(sa.AsyncFunction):
    schema = "doubled long"

    def async_invoke(self, row):
        yield {"doubled": 1}


class NoThreads(sa.AsyncFunction):
    schema = "doubled long"
    threads = 0

    def async_invoke(self, row):
        return {"doubled": 1}


async def is_async(row):
    return {"doubled": 1}


class AsyncThreads(sa.AsyncFunction):
    schema, threads = "doubled long", 3

    async def async_invoke(self, row):
        return {"doubled": 1}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: sa.async_function(is_async, threads=3),
            "`is_async` is an `async def`, which is called",
        ),
        (lambda: sa.arrow.ordered_wait([], AsyncThreads()), r"`.*AsyncThreads` is an `async def`"),
        (lambda: sa.async_function(double, threads=0), "`threads` must be an int of at least 1"),
        (lambda: sa.async_function(double, threads="8"), "`threads` must be an int of"),
        (lambda: sa.async_function("doubled lon")(double), "unknown or unsupported type 'lon'"),
        (lambda: sa.async_function(5)(double), "must be a DDL string"),
        (lambda: sa.arrow.ordered_wait([], YieldsRows()), "is a generator; return a list"),
        (lambda: sa.arrow.ordered_wait([], NoThreads()), "`NoThreads.threads` must be"),
        (lambda: sa.arrow.ordered_wait([], double), "`double` has no schema"),
    ],
    ids=range(9),
)
def test_a_wrong_use_is_refused_with_the_way_out(make, words):
    with pytest.raises(sa.ConfigurationError, match=words):
        make()


def test_fewer_threads_than_calls_that_were_asked_for_are_said_once(caplog):
    @sa.async_function("doubled long", threads=7)
    def fewer(row):
        return double(row)

    for _ in range(3):
        sa.arrow.ordered_wait([], fewer, max_concurrency=331)

    (said,) = [it.getMessage() for it in caplog.records]
    assert "`max_concurrency` is 331, but `" in said
    assert "at most 7 threads of a task; say" in said
    assert "sparkawait.async_function(fewer, threads=331)" in said
