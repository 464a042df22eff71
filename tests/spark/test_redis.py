# SPDX-License-Identifier: Apache-2.0
"""Lookups in Redis, in Spark."""

from __future__ import annotations

import pytest

import sparkawait as sa
from sparkawait import redis
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.spark

ROWS = 1000
PASSWORD = "not-for-plans"  # noqa: S105 - of a server of the tests


def test_each_row_of_each_partition_gets_its_value(spark):
    with RedisServer() as server:
        server.load([["SET", f"n:{i}", str(i * 10)] for i in range(0, ROWS, 2)])
        frame = spark.range(ROWS).repartition(2)
        function = redis.get(server.url, "n:{id}", schema="n bigint")
        rows = sa.unordered_wait(frame, function, capacity=100).collect()
    expected = [(i, None if i % 2 else i * 10) for i in range(ROWS)]
    assert sorted((row.id, row.n) for row in rows) == expected


def test_each_node_of_a_cluster_is_a_channel(spark):
    metrics = sa.Metrics()
    with RedisCluster() as cluster:
        cluster.load({f"n:{i}": i * 10 for i in range(ROWS)})
        function = redis.get(cluster.url, "n:{id}", schema="n bigint", cluster=True)
        rows = sa.unordered_wait(
            spark.range(ROWS).repartition(2),
            function,
            channel=sa.Channel(count=3),
            max_concurrency=sa.Adaptive(),
            metrics=metrics,
        ).collect()
        sizes = {f"127.0.0.1:{node.port}": int(node.cli("dbsize")) for node in cluster.primaries}
    assert sorted((row.id, row.n) for row in rows) == [(i, i * 10) for i in range(ROWS)]
    channels = metrics.snapshot()["channels"]
    assert {name: counts["calls"] for name, counts in channels.items()} == sizes


def test_a_miss_and_a_null_key_drop_the_row_with_inner(spark):
    with RedisServer() as server:
        server.load([["HSET", f"n:{i}", "name", f"n{i}", "size", str(i)] for i in range(0, 10, 2)])
        frame = spark.range(0, 10, numPartitions=1).selectExpr("id", "nullif(id, 4) as key")
        for how, expected in [("left", list(range(10))), ("inner", [0, 2, 6, 8])]:
            schema = "name string, size int"
            function = redis.hash(server.url, "n:{key}", schema=schema, how=how)
            rows = sa.ordered_wait(frame, function).collect()
            assert [row.id for row in rows] == expected
            found = [(row.name, row.size) for row in rows if row.name]
            assert found == [(f"n{i}", i) for i in (0, 2, 6, 8)]


def test_a_secret_is_resolved_in_the_executor_and_shown_nowhere(spark, tmp_path, capfd):
    with RedisServer("--requirepass", PASSWORD, cli=["-a", PASSWORD]) as server:
        server.cli("set", "n:1", '{"of": {"name": "Ann"}}')
        (tmp_path / "url").write_text(server.url.replace("://", f"://:{PASSWORD}@"))
        secret = sa.secret(file=str(tmp_path / "url"))
        function = redis.json(secret, "n:{id}", schema="of struct<name:string>")
        frame = sa.unordered_wait(spark.range(1, 2), function)
        (row,) = frame.collect()
    assert row.of.name == "Ann"
    frame.explain("extended")
    shown = capfd.readouterr().out
    assert "Parsed Logical Plan" in shown
    assert PASSWORD not in shown + repr(function)


def test_a_failing_row_is_an_error_column_or_fails_the_task(spark):
    with RedisServer() as server:
        server.load([["SET", "n:0", "7"], ["RPUSH", "n:1", "7"], ["SET", "n:2", "9"]])
        frame = spark.range(0, 3, numPartitions=1)
        function = redis.get(server.url, "n:{id}", schema="n int")
        rows = sa.ordered_wait(frame, function, on_error="capture").collect()
        with pytest.raises(
            Exception, match=r"redis\.get.*failed for row 1 of partition 0.*WRONGTYPE"
        ):
            sa.ordered_wait(frame, function).collect()
    assert [(row.id, row.n) for row in rows] == [(0, 7), (1, None), (2, 9)]
    assert [row.id for row in rows if row.error] == [1]
    assert "WRONGTYPE" in rows[1].error.message


def test_all_fields_of_a_hash_become_a_map_column(spark):
    with RedisServer() as server:
        server.load([["HSET", "h:1", "a", "1", "b", "2"], ["HSET", "h:2", "c", "3"]])
        function = redis.hash(server.url, "h:{id}", schema="m map<string,int>", fields="all")
        frame = sa.unordered_wait(spark.range(3), function)
        assert frame.schema["m"].dataType.simpleString() == "map<string,int>"
        rows = {row.id: row.m for row in frame.collect()}
    assert rows == {0: None, 1: {"a": 1, "b": 2}, 2: {"c": 3}}


def test_a_provider_travels_to_the_executors_and_is_asked_again_there(spark, tmp_path):
    token, asked = tmp_path / "token", tmp_path / "asked"
    token.write_text("first")

    def provide():
        # In a worker: whatever is asked for there leaves a line.
        with asked.open("a") as lines:
            lines.write("\n")
        return token.read_text()

    with RedisServer(cli=("--user", "admin", "-a", "admin")) as server:
        server.cli("acl", "setuser", "admin", "on", ">admin", "~*", "&*", "+@all", check=False)
        server.cli("config", "set", "requirepass", "first")
        server.load([["SET", f"n:{i}", str(i * 7)] for i in range(97)])
        function = redis.get(
            server.url, "n:{id}", schema="n bigint", password=sa.secret(provider=provide)
        )
        found = []
        for password in ("first", "second"):
            server.cli("config", "set", "requirepass", password)
            server.cli("client", "kill", "user", "default")
            token.write_text(password)
            rows = sa.unordered_wait(spark.range(97).repartition(3), function, retry=9).collect()
            found.append(sorted((row.id, row.n) for row in rows))

    assert found == [[(i, i * 7) for i in range(97)]] * 2
    assert asked.read_text()
