# SPDX-License-Identifier: Apache-2.0
"""Rows are spread over as many shards as a shuffle of the query has partitions, whatever the
session says where the call is written, where the query starts, and where it goes on.

Three keys over five shards and two partitions: two of the keys meet in one partition.
"""

from types import SimpleNamespace

import pytest
from pyspark.errors import StreamingQueryException

import sparkawait as sa
from sparkawait.exceptions import ConfigurationError
from sparkawait.spark import carry
from sparkawait.spark.step import Shards
from tests.spark.carried import lookup, of_each_vehicle
from tests.support.sql_conf import sql_conf

pytestmark = pytest.mark.spark

PARTITIONS = "spark.sql.shuffle.partitions"
SLOW = frozenset({3, 4, 5})
"""The second row of each key."""


def by_key(stream):
    function = lookup(stream.calls, stream.gate, SLOW)
    carry_over = sa.CarryOver(vehicle=stream.vehicle)
    return sa.key_ordered_wait(
        stream.source, function, key="key", timeout=None, carry_over=carry_over
    )


def check(stream, *, most: int = 1) -> None:
    """Checks that all of twelve rows came out once, in the order of their keys."""
    assert sorted(stream.rows) == list(range(12))
    for key in range(3):
        assert [id_ for id_ in stream.rows if id_ % 3 == key] == list(range(key, 12, 3))
    # Another run goes on with what is in flight; what was lost with a worker is called again.
    assert all(stream.calls_of(id_) == 1 for id_ in set(range(11)) - set(SLOW))
    assert all(1 <= stream.calls_of(id_) <= most for id_ in SLOW)


def test_a_query_keeps_its_shards_whatever_the_session_says_later(spark, stream):
    with sql_conf(spark, {PARTITIONS: "5"}):
        out = by_key(stream)
    stream.put(range(9))
    stream.start(out)
    stream.until_out(range(3))
    stream.stop()

    with sql_conf(spark, {PARTITIONS: "3"}):
        out = by_key(stream)
        stream.put([11])
        stream.start(out)
        stream.until(lambda: any(it["adopted"] for it in stream.numbers()))
        assert stream.calls_of(11) == 0
        stream.gate.touch()
        stream.put([9, 10])
        stream.until_out(range(12))

    check(stream)
    assert stream.calls_of(11) == 1


class Five(Shards):
    """As many shards as nobody has told Spark of: three keys of rows meet in two partitions."""

    def count(self) -> int:
        return 5


class Four(Shards):
    def count(self) -> int:
        return 4


@of_each_vehicle
@pytest.mark.newest_spark
def test_shards_that_meet_in_a_partition_are_told_apart(stream, monkeypatch):
    monkeypatch.setattr(carry, "Shards", Five)
    stream.put(range(9))
    stream.start(by_key(stream))
    stream.until_out(range(3))
    stream.stop()

    with monkeypatch.context() as patched:
        patched.setattr(carry, "Shards", Four)
        stream.put([11])
        stream.start(by_key(stream))
        message = r"are spread over 5 shards, and the query has 4 .*partitions to 5 before"
        with pytest.raises(StreamingQueryException, match=message):
            stream.query.awaitTermination()

    # Two of the shards have no new rows then, in one partition.
    stream.start(by_key(stream))
    stream.until(lambda: any(it["adopted"] or it["redone"] for it in stream.numbers()))
    stream.gate.touch()
    stream.put([9, 10])
    stream.until_out(range(12))

    # A shard without rows in flight may have called for 11 in the micro-batch that was refused.
    # Spark ends the workers of tasks that fail, and the calls in them.
    check(stream, most=2)


@pytest.mark.parametrize("said", ["auto", "", "0"])
def test_a_session_without_a_number_is_told_to_set_one(said):
    session = SimpleNamespace(conf={PARTITIONS: said})
    message = f"shuffle.partitions is '{said}'; set it to the number of cores before the first"
    with pytest.raises(ConfigurationError, match=message):
        Shards.of(session)
