# SPDX-License-Identifier: Apache-2.0
"""Calls of `async_invoke`: how rows are started, finished, cancelled and closed."""

import asyncio
import contextvars
from decimal import Decimal

import pytest

from sparkawait import AsyncFunction, RetryAfter, retry
from sparkawait._worker.runner import ROWS_PER_TURN
from sparkawait.exceptions import ErrorKind, ResultError
from sparkawait.functions import async_function

VARIABLE = contextvars.ContextVar("variable", default="unset")


@async_function("y bigint")
async def double(row):
    return {"y": 2 * row["x"]}


def waiting():
    """A function that waits for its row's gate, and the gates by row."""
    gates = {}

    @async_function("y bigint")
    async def wait(row):
        gates[row["x"]] = asyncio.get_running_loop().create_future()
        return {"y": await gates[row["x"]]}

    return wait, gates


def test_a_function_that_returns_at_once_answers_all_rows_in_one_group(session, rows):
    port = session(double).run(*rows(100))

    assert port.results == {i: [{"y": 2 * i}] for i in range(100)}
    assert port.groups == [list(range(100))]


def test_functions_that_wait_all_start_in_few_turns_of_the_loop(session, rows):
    function, gates = waiting()
    session(function).run(*rows(1000), turns=5)
    assert len(gates) == 1000


def test_rows_that_finish_together_are_answered_in_one_group(session, rows):
    function, gates = waiting()
    one = session(function)
    one.run(*rows(3))
    for gate in gates.values():
        gate.set_result(1)

    assert one.run().groups == [[0, 1, 2]]


def test_a_mixture_of_waiting_and_not_waiting_calls_loses_no_row(session, rows):
    @async_function("y bigint")
    async def mixed(row):
        for _ in range(row["x"] % 4):
            await asyncio.sleep(0)
        return {"y": row["x"]}

    one = session(mixed)
    for first in range(0, 2000, 500):
        one.run(*rows(500, first), turns=2)

    assert one.run(turns=200).results == {i: [{"y": i}] for i in range(2000)}


def test_a_function_that_never_waits_gives_the_loop_a_turn_now_and_then(session, rows):
    seen = []

    @async_function("y bigint")
    async def count(row):
        seen.append(row["x"])
        return {"y": 0}

    one = session(count)
    one.run(*rows(ROWS_PER_TURN))  # shows that it never waits
    port = one.run(*rows(20 * ROWS_PER_TURN, first=ROWS_PER_TURN), turns=100)
    assert seen == list(range(21 * ROWS_PER_TURN))
    assert len(port.groups) > 2


def test_a_list_gives_as_many_rows_as_it_has(session, rows):
    @async_function("y bigint")
    async def repeat(row):
        return [{"y": row["x"]}] * row["x"]

    port = session(repeat).run(*rows(3))
    assert port.results == {0: [], 1: [{"y": 1}], 2: [{"y": 2}] * 2}


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (None, ErrorKind.RESULT_IS_NONE),
        ("text", ErrorKind.RESULT_NOT_A_LIST),
        (7, ErrorKind.RESULT_NOT_A_LIST),
        (["y"], ErrorKind.RESULT_NOT_A_LIST),
        ({"z": 1}, ErrorKind.RESULT_SCHEMA_MISMATCH),
        ({"y": "text"}, ErrorKind.RESULT_SCHEMA_MISMATCH),
        ([{"y": 1}, {"y": object()}], ErrorKind.RESULT_SCHEMA_MISMATCH),
    ],
    ids=["none", "string", "number", "list-of-strings", "missing-column", "wrong-type", "second"],
)
def test_a_result_that_is_no_row_fails_its_row_alone(session, rows, result, kind):
    @async_function("y bigint, w bigint")
    async def sometimes(row):
        return result if row["x"] == 1 else {"y": row["x"], "w": 3, "extra": 1}

    port = session(sometimes).run(*rows(3))

    assert port.results == {0: [{"y": 0, "w": 3}], 2: [{"y": 2, "w": 3}]}
    error, found, wants_retry, _ = port.failures[1]
    assert isinstance(error, ResultError)
    assert (found, wants_retry) == (kind.value, False)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
        SystemExit(1),
        GeneratorExit(),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_the_function_raises_is_the_failure_of_its_row(session, rows, error):
    @async_function("y bigint")
    async def fail(row):
        if row["x"] == 1:
            raise error
        return {"y": row["x"]}

    port = session(fail).run(*rows(4))

    assert port.failures == {1: (error, "user-function-failed", False, None)}
    assert sorted(port.results) == [0, 2, 3]


def test_a_failure_keeps_the_users_traceback(session, rows):
    @async_function("y bigint")
    async def fail(row):
        raise ValueError

    error = session(fail).run(*rows(1)).failures[0][0]
    names = []
    traceback = error.__traceback__
    while traceback:
        names.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    assert names[-1] == "fail"


# -- retries


def failing_with(error):
    @async_function("y bigint")
    async def fail(row):
        raise error

    return fail


@pytest.mark.parametrize(
    ("if_exception", "wanted"),
    [(None, True), (OSError, True), (KeyError, False), ((KeyError, OSError), True)],
    ids=["none", "class", "other-class", "classes"],
)
def test_the_exception_predicate_asks_for_a_retry(session, rows, if_exception, wanted):
    strategy = retry.fixed_delay(2, "1s", if_exception=if_exception)
    port = session(failing_with(OSError()), retry=strategy).run(*rows(1))
    assert port.failures[0][2] is wanted


def test_retry_after_asks_for_a_retry_with_its_delay_whatever_the_predicate_says(session, rows):
    strategy = retry.fixed_delay(2, "1s", if_exception=KeyError)
    port = session(failing_with(RetryAfter("3s")), retry=strategy).run(*rows(1))
    assert port.failures[0][2:] == (True, 3.0)


def test_a_predicate_that_raises_is_the_final_failure_of_the_row(session, rows):
    def broken(error):
        raise LookupError from error

    strategy = retry.fixed_delay(2, "1s", if_exception=broken)
    port = session(failing_with(OSError()), retry=strategy).run(*rows(1))
    error, _, wanted, _ = port.failures[0]
    assert isinstance(error, LookupError)
    assert wanted is False


def test_the_result_predicate_is_asked_about_each_row(session, rows):
    @async_function("y bigint")
    async def odd_is_empty(row):
        return [] if row["x"] % 2 else {"y": row["x"]}

    strategy = retry.fixed_delay(2, "1s", if_result=retry.if_empty)
    port = session(odd_is_empty, retry=strategy).run(*rows(3))
    assert port.retries == {0: False, 1: True, 2: False}


def test_a_miss_is_tried_again_where_the_strategy_says_so(session, rows):
    @async_function("y bigint")
    async def odd_is_empty(row):
        return [] if row["x"] % 2 else {"y": row["x"]}

    port = session(odd_is_empty, retry=retry.fixed_delay(2, "1s").if_miss()).run(*rows(3))
    assert port.retries == {0: False, 1: True, 2: False}


def test_a_result_predicate_that_raises_fails_its_row_alone(session, rows):
    def broken(results):
        if results[0]["y"] == 2:
            raise LookupError
        return False

    strategy = retry.fixed_delay(2, "1s", if_result=broken)
    port = session(double, retry=strategy).run(*rows(3))
    assert sorted(port.results) == [0, 2]
    assert isinstance(port.failures[1][0], LookupError)


# -- cancellation


def test_a_cancelled_call_is_not_reported(session, rows):
    function, gates = waiting()
    one = session(function)
    one.run(*rows(3))

    one.run(cancelled=[1])
    assert gates[1].cancelled()
    gates[0].set_result(5)
    gates[2].set_result(6)
    port = one.run()

    assert port.results == {0: [{"y": 5}], 2: [{"y": 6}]}
    assert port.failures == {}


def test_a_call_that_has_not_started_is_not_started_when_cancelled(session, rows):
    started = []

    @async_function("y bigint")
    async def note(row):
        started.append(row["x"])
        return {"y": 0}

    one = session(note)
    one.port.send(rows(3))
    one.port.send(cancelled=[1])
    one.runner._on_readable()
    one.runner._on_readable()
    one.run()
    assert started == [0, 2]


def test_a_row_after_a_cancelled_one_is_not_cancelled_too(session, rows):
    function, gates = waiting()
    one = session(function)
    one.run(*rows(1))
    one.run(*rows(2, first=1), cancelled=[0])
    for gate in (gates[1], gates[2]):
        gate.set_result(1)
    assert sorted(one.run().results) == [1, 2]


def test_a_call_that_swallows_its_cancellation_is_not_reported(session, rows):
    @async_function("y bigint")
    async def stubborn(row):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {"y": 1}

    one = session(stubborn)
    one.run(*rows(1))
    port = one.run(cancelled=[0])
    assert (port.results, port.failures) == ({}, {})


# -- timeouts


def test_a_timed_out_row_gets_the_results_of_timeout(session, rows):
    class Fallback(AsyncFunction):
        schema = "y bigint"

        async def async_invoke(self, row):
            await asyncio.Event().wait()

        def on_timeout(self, row):
            return {"y": -1}

    port = session(Fallback()).run(timed_out=rows(1))
    assert port.results == {0: [{"y": -1}]}


@pytest.mark.parametrize(
    ("on_timeout", "expected"),
    [
        ({"y": 9}, [{"y": 9}]),
        ([], []),
        (lambda row: {"y": row["x"]}, [{"y": 0}]),
        (lambda row: [{"y": 1}, {"y": 2}], [{"y": 1}, {"y": 2}]),
    ],
    ids=["mapping", "empty", "callable", "callable-list"],
)
def test_on_timeout_gives_the_results_of_a_timed_out_row(session, rows, on_timeout, expected):
    port = session(double, timeout="1s", on_timeout=on_timeout).run(timed_out=rows(1))
    assert port.results == {0: expected}


@pytest.mark.parametrize("raised", [OSError(), KeyboardInterrupt(), None], ids=repr)
def test_a_failure_in_the_timeout_handler_is_final(session, rows, raised):
    def handler(row):
        if raised is not None:
            raise raised
        return {}

    strategy = retry.fixed_delay(2, "1s", if_exception=BaseException)
    one = session(double, retry=strategy, on_timeout=handler)
    error, _, wanted, _ = one.run(timed_out=rows(1)).failures[0]
    assert wanted is False
    assert error is raised or isinstance(error, ResultError)


# -- contexts


def test_context_variables_of_one_row_are_not_seen_by_the_next(session, rows):
    @async_function("y string")
    async def leak(row):
        seen = VARIABLE.get()
        VARIABLE.set(f"row {row['x']}")
        return {"y": seen}

    port = session(leak).run(*rows(5))
    assert port.results == {i: [{"y": "unset"}] for i in range(5)}


def test_context_variables_of_open_are_seen_by_every_row(session, rows):
    class Opened(AsyncFunction):
        schema = "y string"

        async def open(self, context):
            VARIABLE.set("from open")

        async def async_invoke(self, row):
            return {"y": VARIABLE.get()}

    port = session(Opened()).run(*rows(2))
    assert port.results == {0: [{"y": "from open"}], 1: [{"y": "from open"}]}


def test_context_variables_of_on_timeout_are_not_seen_by_other_rows(session, rows):
    class Opened(AsyncFunction):
        schema = "y string"

        async def open(self, context):
            VARIABLE.set("from open")

        async def async_invoke(self, row):
            return {"y": VARIABLE.get()}

        def on_timeout(self, row):
            seen = VARIABLE.get()
            VARIABLE.set("from on_timeout")
            return {"y": seen}

    one = session(Opened())
    one.run(timed_out=rows(2))
    port = one.run(*rows(3, 13))
    assert port.results == {i: [{"y": "from open"}] for i in (0, 1, 13, 14, 15)}


# -- the life cycle


class Recorded(AsyncFunction):
    schema = "y bigint"

    def __init__(self, error=None):
        self.events = []
        self.error = error

    async def open(self, context):
        self.events.append(("open", context.partition))
        if self.error:
            raise self.error

    async def async_invoke(self, row):
        self.events.append("call")
        return {"y": 1}

    def close(self):
        self.events.append("close")


def test_open_comes_before_the_calls_and_close_once_after_them(session, rows):
    function = Recorded()
    one = session(function)
    one.run(*rows(1))
    assert one.close() is None
    assert one.close() is None
    assert function.events == [("open", 0), "call", "close"]


@pytest.mark.parametrize("error", [OSError("no"), SystemExit(3)], ids=repr)
def test_an_open_that_fails_is_reported_and_no_row_is_called(session, rows, error):
    function = Recorded(error)
    one = session(function)
    one.run(*rows(1))
    one.close()
    assert one.open_error is error
    assert function.events == [("open", 0), "close"]


def test_an_error_in_close_is_returned(session):
    class Broken(Recorded):
        async def close(self):
            raise OSError

    assert isinstance(session(Broken()).close(), OSError)


def test_calls_in_flight_are_cancelled_before_the_function_is_closed(session, rows):
    events = []

    class Waits(AsyncFunction):
        schema = "y bigint"

        async def async_invoke(self, row):
            try:
                await asyncio.Event().wait()
            finally:
                events.append("cancelled")

        async def close(self):
            events.append("closed")

    one = session(Waits())
    one.run(*rows(2))
    one.close()
    assert events == ["cancelled", "cancelled", "closed"]
    assert one.port.failures == {}


def test_a_closed_port_cancels_the_calls(session, rows):
    function, gates = waiting()
    one = session(function)
    one.run(*rows(1))
    one.port.close()
    one.run()
    assert gates[0].cancelled()


def test_workers_are_used_again(session, rows):
    @async_function("y bigint")
    async def task_name(row):
        await asyncio.sleep(0)
        return {"y": id(asyncio.current_task())}

    one = session(task_name)
    for first in range(0, 40, 4):
        one.run(*rows(4, first))
    assert len({results[0]["y"] for results in one.port.results.values()}) == 4


def test_a_call_runs_in_a_task_that_may_bound_its_own_time(session, rows):
    @async_function("y bigint")
    async def bounded(row):
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0)
        except asyncio.TimeoutError:
            return {"y": 1}

    assert session(bounded).run(*rows(2)).results == {0: [{"y": 1}], 1: [{"y": 1}]}


def test_an_internal_failure_of_building_columns_fails_the_rows_instead_of_hanging(session, rows):
    one = session(double)

    def broken(*_):
        raise LookupError

    one.port.complete = broken
    port = one.run(*rows(2))
    assert {kind for _, kind, _, _ in port.failures.values()} == {"internal"}


def test_decimals_maps_and_structs_are_built(session, rows):
    @async_function("d decimal(10,2), m map<string,int>, s struct<a: array<map<string,int>>>")
    async def nested(row):
        return {"d": Decimal("1.50"), "m": {"k": 1}, "s": {"a": [{"z": 2}]}}

    results = session(nested).run(*rows(1)).results[0]
    assert results == [{"d": Decimal("1.50"), "m": [("k", 1)], "s": {"a": [[("z", 2)]]}}]
