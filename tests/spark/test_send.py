# SPDX-License-Identifier: Apache-2.0
"""An action that calls for each row, and counts each row once."""

import os

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from tests.support.scripted_server import ScriptedServer

pytestmark = pytest.mark.spark

ROWS, TASKS = 331, 3
FAILED = [i for i in range(ROWS) if i % 7 == 3]


def numbers(spark, rows=ROWS):
    # The last name is that of the column in which counts leave the tasks.
    added = {"a.b": F.concat(F.lit("x"), "id"), "_sparkawait_counts": F.lit(7)}
    return spark.range(rows, numPartitions=TASKS).withColumns(added)


@pytest.fixture
def post(calls):
    async def post(row):
        calls.add(row.id)
        if row.id % 7 == 3:
            raise ConnectionError(f"no {row.id}")
        return object()  # nobody looks at it

    return post


def assert_counts(sent, **others):
    expected = {"rows": ROWS, "failed": len(FAILED), "calls": ROWS, "tasks": TASKS}
    expected |= {"repeated_tasks": 0, "repeated_calls": 0} | others
    assert {name: getattr(sent, name) for name in expected} == expected


def test_each_row_is_called_for_and_what_failed_comes_to_the_driver(spark, calls, post):
    sent = sa.send(numbers(spark), post)

    assert_counts(sent)
    assert sorted((row.id, row["a.b"]) for row in sent.failures) == [(i, f"x{i}") for i in FAILED]
    assert {row.error.kind for row in sent.failures} == {"user-function-failed"}
    assert calls.counts() == {str(i): 1 for i in range(ROWS)}
    assert "no 3" not in repr(sent)
    assert repr(sent).startswith("Sent(rows=331, failed=47, calls=331, tasks=3, repeated_tasks=0")


def test_what_failed_is_written_where_you_say(spark, calls, post, tmp_path):
    path = tmp_path / "failed"
    bounded = sa.OnError(column="why", stop_after=1009)
    sent = sa.send(numbers(spark), post, failed=path, on_error=bounded, max_concurrency=13)

    assert_counts(sent)
    assert sent.failures == []
    written = spark.read.parquet(str(path))
    assert written.columns == ["id", "a.b", "_sparkawait_counts", "why"]
    rows = sorted((row.id, row["a.b"], row.why.attempts) for row in written.collect())
    assert rows == [(i, f"x{i}", 1) for i in FAILED]
    assert calls.counts() == {str(i): 1 for i in range(ROWS)}
    with pytest.raises(Exception, match=r"(?i)already exists"):
        sa.send(numbers(spark), post, failed=path)
    assert sum(calls.counts().values()) == ROWS


@pytest.mark.parametrize("is_written", [False, True])
def test_a_task_that_is_run_again_is_counted_once_and_its_first_calls_apart(
    spark, calls, once, tmp_path, is_written
):
    def post(row):
        calls.add("called")
        if row.id == 200 and once.take():
            raise MemoryError("it is run again")

    path = {"failed": tmp_path / "failed"} if is_written else {}
    first = sa.OnError(stop_after=1)
    sent = sa.send(numbers(spark), post, on_error=first, max_concurrency=1, **path)

    again = calls.counts()["called"] - ROWS
    assert again > 0
    assert_counts(sent, failed=0, repeated_tasks=1, repeated_calls=again)


def test_at_most_a_thousand_failed_rows_come_to_the_driver(spark):
    async def refuse(row):
        raise LookupError("never")

    sent = sa.send(spark.range(5003, numPartitions=TASKS), refuse, retry=0)
    assert (sent.rows, sent.failed, len(sent.failures)) == (5003, 5003, 1000)
    assert len({row.id for row in sent.failures}) == 1000


def test_no_rows_are_no_calls(spark, calls, post, tmp_path):
    for given in ({}, {"failed": str(tmp_path / "failed")}):
        sent = sa.send(numbers(spark, 0), post, **given)
        assert (sent.rows, sent.failed, sent.calls, sent.failures) == (0, 0, 0, [])


async def of_many(rows):
    """Returns nothing."""


async def of_columns(batch):
    return pa.record_batch({"answer": batch["id"]})


def in_a_thread(row) -> list[int]:
    return [1, 2, 3]


FUNCTIONS = {
    "many": sa.async_function(batch=7)(of_many),
    "columns": sa.async_function("answer long", batch=sa.Batch(61, arrow=True))(of_columns),
    "plain": in_a_thread,
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_any_function_sends_each_row(spark, function):
    assert_counts(sa.send(numbers(spark), function, rate_limit="50021/s"), failed=0)


def test_a_native_function_sends_each_row(spark, tmp_path):
    seen = []

    def answer(target, _before):
        seen.append(target)
        return (400, {}, b"never") if int(target[1:]) % 7 == 3 else (201, {}, b'{"n": 1}')

    with ScriptedServer(answer) as server:
        client = sa.http.Client(proxy=False)
        post = sa.http.post(f"{server.url}/{{id}}", "n long", json={"x": "{id}"}, client=client)
        sent = sa.send(numbers(spark), post, failed=os.fspath(tmp_path / "failed"))
    assert_counts(sent)
    assert sorted(seen) == sorted(f"/{i}" for i in range(ROWS))


def test_a_failure_ends_it_if_you_say_so(spark, post):
    with pytest.raises(Exception, match=r"no \d+"):
        sa.send(numbers(spark), post, on_error="fail")


def test_a_wrong_use_calls_nothing(spark, calls, post, events):
    df = numbers(spark)
    for arguments, given, words in (
        ((df, post), {"on_error": "drop"}, "must keep what failed, got 'drop'"),
        ((df, post), {"on_error": sa.OnError("null", stop_after=100)}, "must keep what failed"),
        ((df, post), {"schema": "x long"}, "`schema` is of no use to `send`: what the function"),
        ((df, post), {"on_timeout": 3}, "a row that timed out has failed"),
        ((df, [post, post]), {}, "takes one function"),
        ((df, post), {"failed": ""}, "`failed` must be"),
        ((df, post), {"timeout": 0}, "`timeout` must be"),
        ((df, "post"), {}, "`function` must be"),
        ((events, post), {}, "for each micro-batch in a `foreachBatch`"),
        (([1], post), {}, "must be a DataFrame of Spark"),
    ):
        with pytest.raises(sa.ConfigurationError, match=words):
            sa.send(*arguments, **given)
    calls.add("none")
    assert calls.counts() == {"none": 1}
