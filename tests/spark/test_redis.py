# SPDX-License-Identifier: Apache-2.0
"""Lookups in Redis, in Spark."""

from __future__ import annotations

import pytest

import sparkawait as sa
from sparkawait import redis
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.spark

ROWS = 1000


def test_each_row_of_each_partition_gets_its_value(spark):
    with RedisServer() as server:
        server.load([["SET", f"n:{i}", str(i * 10)] for i in range(0, ROWS, 2)])
        frame = spark.range(ROWS).repartition(2)
        function = redis.get(server.url, "n:{id}", schema="n bigint")
        rows = sa.unordered_wait(frame, function, capacity=100).collect()
    expected = [(i, None if i % 2 else i * 10) for i in range(ROWS)]
    assert sorted((row.id, row.n) for row in rows) == expected
