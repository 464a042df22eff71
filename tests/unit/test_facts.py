# SPDX-License-Identifier: Apache-2.0
"""What a function says of itself holds however it is wrapped, and wherever it is called."""

import asyncio
import functools
import itertools
import threading
from collections import Counter

import cloudpickle
import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._plan.called import Facts, facts_of, to_function
from sparkawait._plan.plan import Chain
from sparkawait._plan.resolve import resolve_unpickled
from tests.support import looked_up
from tests.support.looked_up import noted_calls

SAID = {"batch": sa.Batch(max_rows=7), "idempotent": False, "blocked_loop_timeout": "13s"}
KNOWN = Facts("y int", sa.Batch(max_rows=7), False, blocked_loop_timeout=13.0)
CALLED_ONCE = {"attempt_timeout": "1500ms", "retry": sa.retry.fixed_delay(3, 0)}


def by_hand(function):
    """A decorator as users write them."""

    @functools.wraps(function)
    async def called(rows, **given):
        return await function(rows, **given)

    return called


WRAPPERS = {
    "declared again": sa.async_function,
    "declared with columns": sa.async_function(KNOWN.schema),
    "partial": lambda function: functools.partial(function, added=3),
    "by hand": by_hand,
}


NESTINGS = [names for depth in range(4) for names in itertools.product(WRAPPERS, repeat=depth)]


@pytest.mark.parametrize("names", NESTINGS, ids=" of ".join)
def test_facts_are_those_of_what_is_wrapped_in_any_nesting(names):
    @sa.async_function(KNOWN.schema, **SAID)
    async def ask(rows, added=0):
        return [row.id + added for row in rows]

    function = ask
    for name in names:
        function = WRAPPERS[name](function)
    made, facts = to_function(function)

    assert facts == KNOWN
    rows = pa.table({"id": list(range(31))})
    out = sa.arrow.ordered_wait(rows, function, timeout="5s", max_concurrency=3).to_table()
    added = 3 * ("partial" in names)
    assert out.to_pylist() == [{"id": i, "y": i + added} for i in range(31)]
    # As a worker has it, in which nothing else is known.
    assert facts_of(cloudpickle.loads(cloudpickle.dumps(made))) == KNOWN


def test_what_is_said_last_wins():
    @sa.async_function("y int", **SAID)
    async def ask(rows):
        return [1] * len(rows)

    again = sa.async_function("z string", batch=3, idempotent=True)(functools.partial(ask))

    assert facts_of(again) == Facts("z string", sa.Batch(max_rows=3), True, None, 13.0)


@pytest.mark.parametrize("is_partial", [False, True], ids=["itself", "a partial"])
def test_threads_of_a_declared_function_keep_what_it_declares(is_partial):
    @sa.async_function("y int", batch=7, idempotent=False)
    def ask(rows):
        return [1] * len(rows)

    made = sa.async_function(functools.partial(ask) if is_partial else ask, threads=4)

    assert facts_of(made) == Facts("y int", sa.Batch(max_rows=7), False, threads=4)
    assert facts_of(ask).threads == 64


def test_a_call_that_may_do_harm_twice_is_made_once_by_threads_too():
    calls, gate = Counter(), threading.Event()

    @sa.async_function("y int", idempotent=False)
    def pay(row):
        calls[row.id] += 1
        gate.wait(20)

    rows = pa.table({"id": list(range(13))})
    try:
        out = sa.arrow.unordered_wait(
            rows,
            sa.async_function(pay, threads=13),
            on_error="null",
            tuning=sa.Tuning(warm_up=False),
            **CALLED_ONCE,
        ).to_table()
    finally:
        gate.set()

    assert sorted(out.to_pylist(), key=str) == sorted(
        ({"id": i, "y": None} for i in range(13)), key=str
    )
    assert calls == dict.fromkeys(range(13), 1)


def as_in_a_worker(monkeypatch, function, attribute, value, **options):
    """Returns the plan of a function, sent when the driver had set an attribute of its class.

    A worker that imports its module does not have what was set.
    """
    monkeypatch.setattr(function, attribute, value)
    called = function() if isinstance(function, type) else function
    plan = resolve_unpickled("unordered", called, input_schema=None, **options)
    sent = cloudpickle.dumps(plan)
    monkeypatch.undo()
    return cloudpickle.loads(sent)


def noted_in(tmp_path, count):
    path = tmp_path / "calls"
    path.touch()
    return path, pa.record_batch({"id": list(range(count)), "log": [str(path)] * count})


@pytest.mark.parametrize(
    "function", [looked_up.Lookup, looked_up.lookup], ids=["class", "declared"]
)
@pytest.mark.parametrize(("idempotent", "count"), [(False, 1), (None, 2), (True, 2)])
def test_a_worker_calls_as_often_as_the_driver_has_said(
    monkeypatch, tmp_path, function, idempotent, count
):
    path, rows = noted_in(tmp_path, 13)
    options = {**CALLED_ONCE, "on_error": "null"}
    plan = as_in_a_worker(monkeypatch, function, "idempotent", idempotent, **options)

    out = list(sa.arrow.run(Chain.of(plan), iter([rows])))

    assert sum(batch.num_rows for batch in out) == 13
    assert Counter(id for id, _ in noted_calls(path)) == dict.fromkeys(range(13), count)  # noqa: A001


def test_a_worker_collects_rows_as_the_driver_has_said(monkeypatch, tmp_path):
    path, rows = noted_in(tmp_path, 31)
    plan = as_in_a_worker(monkeypatch, looked_up.Lookup, "batch", 10)

    out = pa.Table.from_batches(list(sa.arrow.run(Chain.of(plan), iter([rows]))))

    assert sorted(out["rows"].to_pylist()) == [1, *[10] * 30]
    assert sorted(size for _, size in noted_calls(path)) == [1, 10, 10, 10]


def test_a_partial_of_a_declared_function_is_called_with_what_is_bound():
    @sa.async_function("y int")
    async def add(row, amount=0):
        await asyncio.sleep(0)
        return row.id + amount

    out = sa.arrow.ordered_wait(
        pa.table({"id": list(range(13))}), functools.partial(add, amount=30)
    )
    assert out.to_table()["y"].to_pylist() == list(range(30, 43))


@pytest.mark.parametrize(
    ("fact", "value", "words"),
    [
        ("batch", "7", r"`Lookup\.batch` must be a sparkawait.Batch"),
        ("idempotent", "no", r"`Lookup\.idempotent` must be a bool"),
        ("threads", 0, r"`Lookup\.threads` must be an int of at least 1"),
        ("setup_timeout", 0, r"`Lookup\.setup_timeout` must be positive"),
        ("blocked_loop_timeout", "soon", r"`Lookup\.blocked_loop_timeout` is not a duration"),
    ],
)
def test_what_a_class_says_is_checked_on_the_driver(monkeypatch, fact, value, words):
    monkeypatch.setattr(looked_up.Lookup, fact, value)
    with pytest.raises(sa.ConfigurationError, match=words):
        to_function(looked_up.Lookup())
