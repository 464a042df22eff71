# SPDX-License-Identifier: Apache-2.0
"""What the program of the driver says of a function that workers import holds in them."""

from collections import Counter

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from tests.support import looked_up
from tests.support.looked_up import noted_calls

# Which functions are pickled by name is the same on each Spark.
pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

ROWS = 13
OPTIONS = {
    "attempt_timeout": "1500ms",
    "retry": sa.retry.fixed_delay(3, 0),
    "on_error": "null",
    "timeout": "60s",
}


@pytest.fixture
def called(tmp_path):
    path = tmp_path / "calls"
    path.touch()
    return path


@pytest.fixture
def rows(spark, called):
    return spark.range(ROWS, numPartitions=2).withColumn("log", F.lit(str(called)))


WAYS = {
    "wait": lambda rows, function: sa.unordered_wait(rows, function, **OPTIONS),
    "column": lambda rows, function: rows.select(sa.async_udf(function, **OPTIONS)("id", "log")),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_function_that_says_not_twice_is_called_once(spark, rows, called, monkeypatch, way):
    monkeypatch.setattr(looked_up.Lookup, "idempotent", False)
    monkeypatch.setattr(looked_up.lookup, "idempotent", False)

    for function in (looked_up.Lookup(), looked_up.lookup):
        called.write_text("")
        assert len(way(rows, function).collect()) == ROWS
        assert Counter(row for row, _ in noted_calls(called)) == dict.fromkeys(range(ROWS), 1)


def test_rows_are_collected_as_the_program_says(spark, rows, called, monkeypatch):
    monkeypatch.setattr(looked_up.Lookup, "batch", sa.Batch(max_rows=7, linger="1s"))

    out = sa.unordered_wait(rows.coalesce(1), looked_up.Lookup())

    assert sorted(row.rows for row in out.collect()) == [6] * 6 + [7] * 7
    assert sorted(size for _, size in noted_calls(called)) == [6, 7]
