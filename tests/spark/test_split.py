# SPDX-License-Identifier: Apache-2.0
"""Good and failed rows of one call, written once; rows that fail end their task."""

from datetime import datetime, timezone

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa

pytestmark = pytest.mark.spark

ROWS = 331


def looked_up(spark, look_up, **options):
    options.setdefault("on_error", "capture")
    return sa.unordered_wait(spark.range(ROWS, numPartitions=3), look_up, **options)


@pytest.mark.parametrize("column", ["error", "why `it` failed"])
def test_it_writes_once_and_returns_the_good_rows_and_the_failed_ones(
    spark, look_up, calls, tmp_path, column
):
    out = looked_up(spark, look_up, on_error=sa.OnError(column=column))
    good, failed = sa.split(out, tmp_path / "out [1]{a,b}?*", column=column)

    for _ in range(2):
        assert good.columns == ["id", "doubled"]
        rows = sorted(map(tuple, good.collect()))
        assert rows == [(i, 2 * i) for i in range(ROWS) if i % 7 != 3]
        assert sorted(row.id for row in failed.collect()) == list(range(3, ROWS, 7))
    assert {row[column].kind for row in failed.collect()} == {"user-function-failed"}
    assert calls.counts() == {str(i): 1 for i in range(ROWS)}


def test_times_in_text_keep_their_microseconds(spark, tmp_path):
    @sa.async_function("at timestamp, local timestamp_ntz")
    async def note(row):
        # New York was seconds from UTC at that time.
        at = datetime(1881, 3, 7, 11, 13, 17, 331_007, timezone.utc)
        return {"at": at, "local": at.replace(tzinfo=None)}

    out = sa.unordered_wait(spark.range(13), note, on_error="capture")
    wanted = sorted(map(tuple, out.drop("error").collect()))

    good, failed = sa.split(out, tmp_path / "out", format="JSON")

    assert sorted(map(tuple, good.collect())) == wanted
    assert failed.count() == 0


def test_it_goes_on_with_what_is_there_or_refuses(spark, look_up, tmp_path):
    path = str(tmp_path / "out")
    sa.split(looked_up(spark, look_up), path)
    with pytest.raises(Exception, match=r"(?i)already exists"):
        sa.split(looked_up(spark, look_up), path)
    good, failed = sa.split(looked_up(spark, look_up), path, mode="append", format="parquet")
    assert good.count() + failed.count() == 2 * ROWS
    good, failed = sa.split(looked_up(spark, look_up), path, mode="overwrite")
    assert good.count() + failed.count() == ROWS


def test_a_wrong_use_calls_nothing(spark, look_up, calls, events, tmp_path):
    out = looked_up(spark, look_up)
    path = str(tmp_path / "out")
    for arguments, given, words in (
        ((out,), {}, "needs a `path`: it writes the rows there once"),
        ((out, ""), {}, "`path` must be"),
        ((out, path), {"column": "why"}, "has no column `why`; call with on_error='capture'"),
        ((out.drop("error"), path), {}, "has no column `error`"),
        ((out, path), {"mode": "ignore"}, "`mode` must be one of"),
        ((events, path), {}, "for each micro-batch in a `foreachBatch`"),
        (([1], path), {}, "`out` must be a DataFrame of Spark, got `list`"),
    ):
        with pytest.raises(sa.ConfigurationError, match=words):
            sa.split(*arguments, **given)
    calls.add("none")
    assert calls.counts() == {"none": 1}


def test_a_wrong_key_ends_the_job_early_although_failures_are_captured(spark, calls):
    @sa.async_function("doubled long")
    async def refuse(row):
        calls.add("called")
        raise PermissionError("wrong key")

    out = sa.unordered_wait(
        spark.range(50021, numPartitions=1),
        refuse,
        on_error=sa.OnError(stop_after=61),
        max_concurrency=13,
    )
    with pytest.raises(Exception, match="wrong key") as info:
        out.count()

    assert "too many for OnError('capture', stop_after=61)" in str(info.value)
    tries = int(spark.conf.get("spark.task.maxFailures", "1") or 1)
    assert 61 <= calls.counts()["called"] <= (61 + 13) * max(tries, 4)


def test_few_failures_are_captured(spark, look_up):
    out = looked_up(spark, look_up, on_error=sa.OnError(stop_ratio=0.2))
    rows = out.select("id", F.col("error.kind").alias("kind")).collect()
    assert len(rows) == ROWS
    assert sum(row.kind is not None for row in rows) == len(range(3, ROWS, 7))
