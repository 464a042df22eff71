# SPDX-License-Identifier: Apache-2.0
"""Failures, timeouts and retries, as a job sees them."""

import asyncio
import sys
import traceback

import pytest

import sparkawait as sa
from sparkawait import retry
from sparkawait.exceptions import ErrorKind, ResultError
from sparkawait.spark.shipment import told_to_spark

pytestmark = pytest.mark.spark


@sa.async_function("doubled bigint")
async def fail_on_three(row):
    if row["id"] == 3:
        message = "three is not served"
        raise LookupError(message)
    return {"doubled": 2 * row["id"]}


@sa.async_function("doubled bigint")
async def hang_on_three(row):
    if row["id"] == 3:
        await asyncio.Event().wait()
    return {"doubled": 2 * row["id"]}


@pytest.fixture
def numbers(spark):
    return spark.range(6, numPartitions=2)


def test_fail_fails_the_job_with_the_users_exception(numbers):
    with pytest.raises(Exception, match="three is not served") as info:
        sa.ordered_wait(numbers, fail_on_three).collect()
    assert "`fail_on_three` failed for row 0 of partition 1 after 1 attempt" in str(info.value)


def test_the_users_traceback_reaches_the_driver(numbers):
    with pytest.raises(Exception, match="AsyncFunctionError") as info:
        sa.ordered_wait(numbers, fail_on_three).collect()
    assert "in fail_on_three\n    raise LookupError(message)" in str(info.value)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tracebacks have no notes there")
def test_the_exception_of_a_job_names_where_its_kind_is_explained(numbers):
    with pytest.raises(Exception, match=r"see docs/errors\.md#user-function-failed"):
        sa.ordered_wait(numbers, fail_on_three).collect()


def test_null_leaves_the_returned_columns_null(numbers):
    rows = sa.ordered_wait(numbers, fail_on_three, on_error="null").collect()

    assert [row.doubled for row in rows] == [0, 2, 4, None, 8, 10]


def test_drop_drops_the_row(numbers):
    rows = sa.ordered_wait(numbers, fail_on_three, on_error="drop").collect()

    assert [row.id for row in rows] == [0, 1, 2, 4, 5]


def test_capture_tells_what_happened(numbers):
    rows = sa.ordered_wait(
        numbers, fail_on_three, on_error="capture", retry=retry.fixed_delay(2, 0)
    ).collect()

    assert [row.error is None for row in rows] == [True, True, True, False, True, True]
    assert rows[3].doubled is None
    assert rows[3].error.attempts == 3
    assert rows[3].error.kind == "retries-exhausted"
    assert "three is not served" in rows[3].error.message


def test_capture_adds_a_column_behind_all_others(numbers):
    out = sa.unordered_wait(numbers, fail_on_three, on_error="capture")

    assert out.columns[-2:] == ["doubled", "error"]
    assert out.where("error is not null").count() == 1


def test_null_relaxes_columns_that_were_declared_as_not_null(spark):
    @sa.async_function("answer bigint not null")
    async def fail(row):
        raise OSError

    out = sa.ordered_wait(spark.range(3), fail, on_error="null")

    assert out.schema["answer"].nullable
    assert [row.answer for row in out.collect()] == [None, None, None]


def test_a_timeout_fails_the_job(numbers):
    with pytest.raises(Exception, match="ElementTimeoutError"):
        sa.ordered_wait(numbers, hang_on_three, timeout="50ms").collect()


def test_a_timeout_has_a_kind_of_its_own(numbers):
    out = sa.ordered_wait(numbers, hang_on_three, timeout="50ms", on_error="capture")

    # Where a worker begins late, others run out of time, too.
    failed = {row.id: row.error.kind for row in out.where("error is not null").collect()}
    assert 3 in failed
    assert set(failed.values()) == {"element-timed-out"}


@pytest.mark.parametrize(
    "fallback", [{"doubled": -1}, lambda row: {"doubled": -1}], ids=["value", "callable"]
)
def test_a_fallback_replaces_the_result_of_a_row_that_timed_out(numbers, fallback):
    rows = sa.ordered_wait(numbers, hang_on_three, timeout="50ms", on_timeout=fallback).collect()

    assert [row.id for row in rows] == list(range(6))
    assert rows[3].doubled == -1
    assert all(row.doubled in {2 * row.id, -1} for row in rows)


def test_an_attempt_that_timed_out_is_tried_again(numbers, once):
    @sa.async_function("doubled bigint")
    async def hang_once(row):
        if row["id"] == 3 and once.take():
            await asyncio.Event().wait()
        return {"doubled": 2 * row["id"]}

    rows = sa.ordered_wait(
        numbers, hang_once, attempt_timeout="50ms", retry=retry.fixed_delay(1000, 0)
    ).collect()

    assert [row.doubled for row in rows] == [0, 2, 4, 6, 8, 10]


def test_rows_are_tried_again_until_they_succeed(numbers, calls):
    @sa.async_function("attempts bigint")
    async def succeed_at_third(row):
        calls.add(row["id"])
        if calls.counts()[str(row["id"])] < 3:
            raise ConnectionError
        return {"attempts": calls.counts()[str(row["id"])]}

    rows = sa.ordered_wait(
        numbers, succeed_at_third, retry=retry.fixed_delay(5, "1ms", if_exception=OSError)
    ).collect()

    assert [row.attempts for row in rows] == [3] * 6


def test_retry_after_sets_the_delay(numbers, once):
    @sa.async_function("doubled bigint")
    async def throttled_once(row):
        if row["id"] == 3 and once.take():
            raise sa.RetryAfter(0.001)
        return {"doubled": 2 * row["id"]}

    # The strategy's own delay would let the row time out.
    rows = sa.ordered_wait(
        numbers, throttled_once, timeout="20s", retry=retry.fixed_delay(1, "1h")
    ).collect()

    assert [row.doubled for row in rows] == [0, 2, 4, 6, 8, 10]


def test_results_can_be_tried_again(numbers, once):
    @sa.async_function("doubled bigint")
    async def empty_once(row):
        return [] if row["id"] == 3 and once.take() else {"doubled": 2 * row["id"]}

    rows = sa.ordered_wait(
        numbers, empty_once, retry=retry.fixed_delay(1, 0, if_result=retry.if_empty)
    ).collect()

    assert [row.doubled for row in rows] == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (None, "result-is-none"),
        ("text", "result-not-a-list"),
        ({"doubled": "text"}, "result-schema-mismatch"),
        ({"other": 1}, "result-schema-mismatch"),
    ],
    ids=["none", "text", "wrong type", "wrong column"],
)
def test_a_result_that_does_not_fit_is_a_failure_of_the_row(spark, result, kind):
    @sa.async_function("doubled bigint, tripled bigint")
    async def answer(row):
        return result

    row = sa.ordered_wait(spark.range(1), answer, on_error="capture").first()

    assert row.error.kind == kind


def test_what_open_raises_fails_the_job(spark):
    class CannotOpen(sa.AsyncFunction):
        schema = "answer bigint"

        async def open(self, context):
            message = "no route to host"
            raise OSError(message)

        async def async_invoke(self, row):
            return {"answer": 1}

    with pytest.raises(Exception, match="no route to host"):
        sa.ordered_wait(spark.range(1), CannotOpen()).collect()


def said(error):
    with pytest.raises(ResultError), told_to_spark():
        raise error
    return "".join(traceback.format_exception_only(error))


def test_an_error_of_a_result_is_said_once(monkeypatch):
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", "1")
    error = ResultError("`f` failed: no column `a`", ErrorKind.RESULT_SCHEMA_MISMATCH)
    error.__cause__ = ResultError("no column `a`", ErrorKind.RESULT_SCHEMA_MISMATCH)
    assert said(error).count("no column `a`") == 1

    error.__cause__ = LookupError("the user's")
    assert "LookupError: the user's" in said(error)
