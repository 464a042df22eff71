# SPDX-License-Identifier: Apache-2.0
"""What a function raises in a task group is heard as if it had been raised without one."""

import sys
import traceback
from types import SimpleNamespace

import anyio
import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import RetryAfter, arrow, retry
from sparkawait.exceptions import ErrorKind, leaves, spokesman

if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup, ExceptionGroup


class TooManyRequestsError(Exception):
    """As the clients of HTTP raise it."""

    def __init__(self, seconds):
        super().__init__("slow down")
        self.response = SimpleNamespace(status_code=429, headers={"Retry-After": str(seconds)})


def group(*members):
    return ExceptionGroup("unhandled errors in a TaskGroup", members)


def raising(*errors):
    """A function that raises `errors` in the task groups of an SDK, one in the other."""

    async def fail(error):
        raise error

    async def function(row):
        async with anyio.create_task_group() as outer:

            async def run_all():
                async with anyio.create_task_group() as inner:
                    for error in errors:
                        inner.start_soon(fail, error)

            outer.start_soon(run_all)

    return sa.async_function("y int")(function)


def captured(function, **options):
    batch = pa.record_batch({"x": range(3)})
    out = arrow.ordered_wait([batch], function, on_error="capture", **options)
    return out.to_table()["error"].to_pylist()


def test_the_message_is_that_of_the_only_member():
    errors = captured(raising(ConnectionError("no route")), retry=0)
    assert [it["message"] for it in errors] == ["ConnectionError: no route"] * 3


def test_the_message_names_the_first_two_of_several_kinds():
    error = group(ValueError("one"), group(KeyError("two")), OSError("three"))

    async def function(row):
        raise error

    told = captured(sa.async_function("y int")(function), retry=0)[0]["message"]
    assert "unhandled errors in a TaskGroup: ValueError: one; KeyError: 'two'" in told
    assert "three" not in told


def test_members_of_one_class_speak_by_the_first():
    first = ValueError("one")
    assert spokesman(group(first, group(ValueError("two")))) is first


def test_another_group_keeps_its_members_and_its_traceback():
    with pytest.raises(ExceptionGroup) as info:
        raise group(ValueError("one"), KeyError("two")) from OSError("why")
    error = info.value

    told = spokesman(error)

    assert told.exceptions == error.exceptions
    assert told.__traceback__ is error.__traceback__
    assert told.__cause__ is error.__cause__


def test_what_is_no_group_speaks_for_itself():
    error = ValueError("one")
    error.exceptions = [KeyError("two")]
    assert spokesman(error) is error
    assert leaves(error) == (error,)


def test_the_error_of_a_task_shows_where_the_member_was_raised():
    batch = pa.record_batch({"x": [7]})
    with pytest.raises(sa.AsyncIOError) as info:
        arrow.ordered_wait([batch], raising(ConnectionError("no route")), retry=0).to_table()
    raised = traceback.extract_tb(info.value.__cause__.__traceback__)[-1]
    assert (raised.name, raised.line) == ("fail", "raise error")


@pytest.mark.parametrize("error", [RetryAfter("3s"), TooManyRequestsError(3)])
def test_the_delay_of_a_member_is_heard(session, rows, error):
    failing = raising(ValueError("first"), error)
    port = session(failing, retry=retry.fixed_delay(2, "7s")).run(*rows(1), turns=60)
    assert port.failures[0][2:] == (True, 3.0)


def test_retry_after_is_heard_without_retry(session, rows):
    port = session(raising(RetryAfter("3s"))).run(*rows(1), turns=60)
    assert port.failures[0][2:] == (True, 3.0)


@pytest.mark.parametrize("error", [RetryAfter("3s", channel=True), TooManyRequestsError(3)])
def test_the_pause_of_a_member_is_heard(session, rows, error):
    port = session(raising(error)).run(*rows(1), turns=60)
    assert port.pauses == {0: 3.0}


def test_the_status_of_a_member_is_told():
    assert captured(raising(TooManyRequestsError(0)), retry=0)[0]["status"] == 429


@pytest.mark.parametrize(
    ("predicate", "is_tried"),
    [
        (ValueError, True),
        (ExceptionGroup, True),
        ((KeyError, ValueError), True),
        (lambda error: str(error) == "one", True),
        (KeyError, False),
        (lambda error: isinstance(error, BaseExceptionGroup), False),
    ],
)
def test_predicates_are_asked_about_the_members(predicate, is_tried):
    strategy = retry.fixed_delay(1, 0, if_exception=predicate)
    assert strategy.retries_exception(group(OSError(), group(ValueError("one")))) is is_tried


def test_without_predicates_a_group_is_tried_again_unless_its_members_are_final():
    strategy = retry.fixed_delay(1, 0)
    mistake = sa.exceptions.ResultError("no row", ErrorKind.RESULT_IS_NONE)
    assert strategy.retries_exception(group(ValueError()))
    assert not strategy.retries_exception(group(mistake))
    assert not strategy.retries_exception(BaseExceptionGroup("", [KeyboardInterrupt()]))


def test_a_batch_is_not_split_for_a_member_that_asks_to_wait(session, rows):
    calls = []

    class Throttled(sa.AsyncFunction):
        schema = "y int"
        batch = sa.Batch(max_rows=4, split_on_error=True)

        async def async_invoke_batch(self, rows):
            calls.append(len(rows))
            raise group(RetryAfter("3s"))

    session(Throttled()).run(*rows(4), turns=60)
    assert calls == [4]


def test_open_says_why_it_failed():
    class CannotOpen(sa.AsyncFunction):
        schema = "y int"

        async def open(self, context):
            raise group(OSError("no route to host"))

        async def async_invoke(self, row):
            return {"y": 1}

    with pytest.raises(sa.AsyncIOError, match="open` failed: OSError: no route to host"):
        arrow.ordered_wait([pa.record_batch({"x": [1]})], CannotOpen()).to_table()
