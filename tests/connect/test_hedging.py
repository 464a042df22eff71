# SPDX-License-Identifier: Apache-2.0
"""A second call for a row whose call is slow: the first answer wins, the other is cancelled."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.arrow import run
from tests.support.batches import doubled, inputs, lookup, ok, serve
from tests.support.scripted_server import Answer, ScriptedServer

SOON = sa.Hedge(after="30ms", max_extra=1.0)


def called(function: Any, column: list[Any], **options: Any) -> tuple[list[Any], dict[str, Any]]:
    """Returns the rows, and the metrics of the task."""
    batches = iter([pa.record_batch({"x": column})])
    plan = resolve_unpickled("ordered", function, input_schema=None, **options)
    seen: list[dict[str, Any]] = []
    out = list(run(plan, batches, on_metrics=seen.append))
    return pa.Table.from_batches(out).to_pylist(), seen[-1]


class SlowOnce:
    """Answers the first request of some rows only when the test is over."""

    def __init__(self, *slow: int) -> None:
        self.calls: Counter[str] = Counter()
        self.slow = {f"/{x}" for x in slow}
        self.over = threading.Event()
        self.lock = threading.Lock()

    def __call__(self, target: str, _before: int) -> Answer:
        with self.lock:
            self.calls[target] += 1
            is_first = self.calls[target] == 1
        if is_first and target in self.slow:
            self.over.wait(30)
        return 200, {}, json.dumps({"v": int(target[1:])}).encode()


def test_the_answer_of_the_second_call_is_the_rows():
    answers = SlowOnce(3, 11)
    with ScriptedServer(answers) as server:
        get = sa.http.get(server.url + "/{x}", "v bigint", client=sa.http.Client(proxy=False))
        found, metrics = called(get, list(range(20)), hedge=SOON)
        answers.over.set()

    assert found == [{"x": x, "v": x} for x in range(20)]
    # On a machine that stands still, others may look slow too.
    assert answers.calls["/3"] == answers.calls["/11"] == 2
    assert metrics["hedged"] >= metrics["hedges_won"] >= 2
    assert metrics["attempts"] == 20 + metrics["hedged"]
    # A second call that still waits for its connection is cancelled, too, and was not made.
    assert metrics["retries"] == 0
    assert metrics["cancelled"] >= metrics["hedged"]


def test_a_call_is_not_made_twice_without_being_asked_for():
    answers = SlowOnce(3)
    with ScriptedServer(answers) as server:
        get = sa.http.get(server.url + "/{x}", "v bigint", client=sa.http.Client(proxy=False))
        threading.Timer(0.2, answers.over.set).start()
        _, metrics = called(get, [3])

    assert (metrics["hedged"], answers.calls["/3"]) == (0, 1)


def test_a_python_function_is_called_twice_and_the_slower_call_is_cancelled():
    calls: Counter[int] = Counter()
    cancelled: list[int] = []

    @sa.async_function("v bigint", idempotent=True)
    async def slow_once(row: sa.typing.Row) -> dict[str, int]:
        calls[row.x] += 1
        if calls[row.x] == 1 and row.x % 7 == 0:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(row.x)
                raise
        return {"v": row.x}

    found, metrics = called(slow_once, list(range(20)), hedge=SOON, timeout="30s")

    assert [row["v"] for row in found] == list(range(20))
    assert sorted(cancelled) == [0, 7, 14]
    assert metrics["hedges_won"] >= 3
    assert metrics["attempts"] == 20 + metrics["hedged"]


def test_what_a_second_call_brings_is_kept_and_given_to_those_that_waited():
    answers = SlowOnce(3)
    cache = sa.Cache(max_rows=100)
    with ScriptedServer(answers) as server:
        get = sa.http.get(server.url + "/{x}", "v bigint", client=sa.http.Client(proxy=False))
        found, _ = called(get, [3, 3, 4], hedge=SOON, cache=cache)
        again, metrics = called(get, [3, 4], hedge=SOON, cache=cache)
        answers.over.set()

    assert [row["v"] for row in found] == [3, 3, 4]
    assert [row["v"] for row in again] == [3, 4]
    assert metrics["cache_hits"] == 2
    assert 2 <= answers.calls["/3"] <= 3


def test_the_rows_of_a_slow_request_of_many_go_again():
    over = threading.Event()

    def reply(request: Any, before: int) -> Answer:
        if before == 0:
            over.wait(30)
        return ok(doubled(inputs(request)))

    with serve(reply) as server:
        function = lookup(server, method="PUT", batch=sa.Batch(max_rows=4, linger=0))
        found, metrics = called(function, [1, 2, 3, 4], hedge=SOON)
        over.set()

    assert [row["v"] for row in found] == [2, 4, 6, 8]
    assert metrics["hedges_won"] == 4


@sa.async_function("v bigint")
async def unsafe(row: sa.typing.Row) -> dict[str, int]:
    return {"v": row.x}


class Safe(sa.AsyncFunction):
    schema = "v bigint"
    idempotent = True

    async def async_invoke(self, row: sa.typing.Row) -> dict[str, int]:
        return {"v": row.x}


URL = "https://api.example.com/x"


def test_a_function_of_which_two_calls_may_do_harm_is_not_hedged():
    batches = [pa.record_batch({"x": [1]})]
    for function, way_out in (
        (unsafe, "idempotent=True"),
        (sa.http.post(URL, "v bigint", json={"x": "{x}"}), "`idempotency_key`"),
        (redis_command("SET", writes=True), "give `writes='idempotent'`"),
    ):
        with pytest.raises(sa.ConfigurationError, match="twice for some rows") as raised:
            sa.arrow.ordered_wait(batches, function, hedge=sa.Hedge())
        assert way_out in str(raised.value)


def redis_command(name: str, *, writes: Any = False) -> Any:
    return sa.redis.command("redis://localhost", name, "k", "{x}", schema="v string", writes=writes)


@pytest.mark.parametrize(
    "function",
    [
        Safe(),
        sa.http.get(URL + "/{x}", "v bigint"),
        sa.http.post(URL, "v bigint", json={"x": "{x}"}, idempotency_key=True),
        sa.redis.get("redis://localhost", "k:{x}", schema="v string"),
        redis_command("ZSCORE"),
        sa.async_function("v bigint", idempotent=True)(unsafe.function),
    ],
)
def test_a_function_of_which_two_calls_do_no_harm_is(function: Any):
    assert resolve_unpickled("ordered", function, input_schema=None, hedge=sa.Hedge())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"after": "p5"}, "a percentile from p50"),
        ({"after": "p100"}, "a percentile from p50"),
        ({"after": "p49.9"}, "a percentile from p50"),
        ({"after": "soon"}, "`after` of Hedge is"),
        ({"after": 0}, "`after` of Hedge is"),
        ({"after": None}, "`after` of Hedge is"),
        ({"max_extra": 0}, "`max_extra` of Hedge must be"),
        ({"max_extra": 1.1}, "`max_extra` of Hedge must be"),
        ({"max_extra": True}, "`max_extra` of Hedge must be"),
        ({"max_extra": float("nan")}, "`max_extra` of Hedge must be"),
    ],
)
def test_a_wrong_hedge_is_refused(values: dict[str, Any], message: str):
    with pytest.raises(sa.ConfigurationError, match="Hedge") as raised:
        sa.Hedge(**values)
    assert message in str(raised.value)


def test_a_hedge_says_when_and_how_often():
    assert sa.Hedge().resolve() == (None, 0.95, 0.05)
    assert sa.Hedge(after="p99.5").resolve().share == pytest.approx(0.995)
    assert sa.Hedge(after=timedelta(seconds=2), max_extra=1).resolve() == (2.0, 0.0, 1.0)


def test_what_was_declared_travels_with_a_function():
    pickle = pytest.importorskip("pyspark.cloudpickle")
    function = sa.async_function("v bigint", idempotent=True)(unsafe.function)
    assert pickle.loads(pickle.dumps(function)).idempotent
