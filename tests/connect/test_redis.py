# SPDX-License-Identifier: Apache-2.0
"""Lookups in a real Redis server: what each function returns."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import redis
from tests.support.redis_server import RedisServer

ROWS = 3000


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        running.load(
            [
                *(["SET", f"n:{i}", str(i * 10)] for i in range(0, ROWS, 2)),
                ["SET", "price:a", "12.50"],
                [
                    "SET",
                    "doc:1",
                    '{"name": "x", "tags": ["p", "q"], "lines": [{"n": 1}, {"n": 2}]}',
                ],
                ["SET", "doc:2", '{"name": 5'],
                ["HSET", "customer:1", "name", "Ann", "tier", "gold"],
                ["HSET", "customer:2", "name", "Bob"],
                ["HSET", "counts", "a", "1", "b", "2"],
                ["RPUSH", "list:1", "1", "2", "3"],
                ["ZADD", "board", "1.5", "ann"],
                ["SET", "text", "no number"],
            ]
        )
        yield running


def lookup(function, rows, wait=sa.arrow.ordered_wait, **options):
    batch = pa.RecordBatch.from_pylist(rows)
    return [row for out in wait([batch], function, **options) for row in out.to_pylist()]


@pytest.mark.parametrize("wait", [sa.arrow.ordered_wait, sa.arrow.unordered_wait])
def test_each_row_gets_the_value_of_its_key_or_null(server, wait):
    rows = [{"id": i} for i in range(ROWS)]
    found = lookup(
        redis.get(server.url, "n:{id}", schema="n bigint"), rows, wait, max_concurrency=700
    )
    found.sort(key=lambda row: row["id"])
    assert found == [{"id": i, "n": None if i % 2 else i * 10} for i in range(ROWS)]


def test_an_inner_lookup_drops_misses_and_null_keys(server):
    function = redis.get(server.url, "n:{id}", schema="n bigint", how="inner")
    assert lookup(function, [{"id": 1}, {"id": 2}, {"id": None}]) == [{"id": 2, "n": 20}]


def test_a_null_key_is_never_sent(server):
    before = server.cli("info", "commandstats").partition("cmdstat_strlen:calls=")[2].split(",")[0]
    function = redis.command(server.url, "STRLEN", "n:{id}", schema="n bigint")
    assert lookup(function, [{"id": None}, {"id": 2}]) == [
        {"id": None, "n": None},
        {"id": 2, "n": 2},
    ]
    after = server.cli("info", "commandstats").partition("cmdstat_strlen:calls=")[2].split(",")[0]
    assert int(after) - int(before or 0) == 1


def test_a_value_has_the_type_of_the_schema(server):
    function = redis.get(server.url, "price:{sku}", schema="price decimal(10,2)")
    assert lookup(function, [{"sku": "a"}]) == [{"sku": "a", "price": Decimal("12.50")}]


def test_mget_returns_a_column_for_each_key(server):
    function = redis.mget(server.url, ["n:{id}", "price:a"], schema="n bigint, price string")
    assert lookup(function, [{"id": 2}]) == [{"id": 2, "n": 20, "price": "12.50"}]
    by_name = redis.mget(server.url, {"b": "n:{id}", "a": "none:{id}"}, schema="a string, b bigint")
    assert lookup(by_name, [{"id": 2}, {"id": 1}]) == [
        {"id": 2, "a": None, "b": 20},
        {"id": 1, "a": None, "b": None},
    ]


def test_a_null_key_of_mget_is_null_alone(server):
    rows = [{"x": 2, "y": 4}, {"x": None, "y": 4}, {"x": 2, "y": None}, {"x": None, "y": None},
            {"x": None, "y": 1}, {"x": 1, "y": 1}]  # fmt: skip
    schema = "a bigint, b bigint, c string"
    for how in ("left", "inner"):
        function = redis.mget(server.url, ["n:{x}", "n:{y}", "none"], schema=schema, how=how)
        found = [
            {**row, "a": row["x"] and n(row["x"]), "b": row["y"] and n(row["y"]), "c": None}
            for row in rows
        ]
        expected = [row for row in found if how == "left" or row["a"] or row["b"]]
        assert lookup(function, rows) == expected


def n(i):
    return None if i % 2 else i * 10


def test_hash_returns_the_fields_of_the_schema(server):
    function = redis.hash(server.url, "customer:{id}", schema="name string, level string",
                          fields={"level": "tier"}, how="inner")  # fmt: skip
    assert lookup(function, [{"id": 1}, {"id": 2}, {"id": 3}]) == [
        {"id": 1, "name": "Ann", "level": "gold"},
        {"id": 2, "name": "Bob", "level": None},
    ]


def test_all_fields_of_a_hash_are_a_map(server):
    function = redis.hash(
        server.url, "customer:{id}", schema="c map<string,string>", fields="all", how="inner"
    )
    assert lookup(function, [{"id": 1}, {"id": 2}, {"id": 3}, {"id": None}]) == [
        {"id": 1, "c": [("name", "Ann"), ("tier", "gold")]},
        {"id": 2, "c": [("name", "Bob")]},
    ]
    left = redis.hash(server.url, "{key}", schema="c map<string,bigint>", fields="all")
    keys = [{"key": "none"}, {"key": "counts"}, {"key": "customer:1"}, {"key": "board"}]
    missed, found, misfit, wrong = lookup(left, keys, on_error="capture")
    assert (missed["c"], missed["error"]) == (None, None)
    assert found["c"] == [("a", 1), ("b", 2)]
    assert "`value` should be `bigint`" in misfit["error"]["message"]
    assert "WRONGTYPE" in wrong["error"]["message"]
    assert (wrong["error"]["kind"], wrong["error"]["status"]) == ("request-refused", None)


@pytest.mark.parametrize(
    ("schema", "fields", "message"),
    [
        ("c map<string,string>", "some", "must be 'all'"),
        ("c string", "all", "a map such as"),
        ("c map<string,string>, d string", "all", "one column"),
    ],
)
def test_all_fields_need_one_map(schema, fields, message):
    with pytest.raises(sa.ConfigurationError, match=message):
        redis.hash("redis://localhost", "c", schema=schema, fields=fields)


def test_the_names_of_a_map_are_text_or_bytes(server):
    with pytest.raises(sa.ConfigurationError, match="column `c` must be a map from string"):
        redis.hash(server.url, "c", schema="c map<int,string>", fields="all")


def test_json_returns_the_members_of_a_document(server):
    function = redis.json(server.url, "doc:{id}", schema="name string, tags array<string>")
    assert lookup(function, [{"id": 7}, {"id": 1}]) == [
        {"id": 7, "name": None, "tags": None},
        {"id": 1, "name": "x", "tags": ["p", "q"]},
    ]
    lines = redis.json(server.url, "doc:{id}", schema="n bigint", rows="lines")
    assert lookup(lines, [{"id": 1}]) == [{"id": 1, "n": 1}, {"id": 1, "n": 2}]


def test_a_document_of_another_shape_fails_its_row_alone(server):
    function = redis.json(server.url, "doc:{id}", schema="name string")
    good, bad = lookup(function, [{"id": 1}, {"id": 2}], on_error="capture")
    assert (good["name"], good["error"], bad["error"]["attempts"]) == ("x", None, 1)


def test_any_read_command_may_be_sent(server):
    score = redis.command(server.url, "zscore", "board", "{who}", schema="score double")
    assert lookup(score, [{"who": "ann"}, {"who": "bob"}]) == [
        {"who": "ann", "score": 1.5},
        {"who": "bob", "score": None},
    ]
    items = redis.command(
        server.url, "LRANGE", "list:{id}", "0", "-1", schema="n int", explode=True
    )
    assert lookup(items, [{"id": 1}, {"id": 2}]) == [
        *({"id": 1, "n": n} for n in (1, 2, 3)),
        {"id": 2, "n": None},
    ]


def test_an_array_of_many_reads_is_whole(server):
    expected = [str(n) for n in range(200_000)]
    server.load([["RPUSH", "huge", *expected]])
    items = redis.command(server.url, "LRANGE", "huge", "0", "-1", schema="n bigint", explode=True)
    assert [row["n"] for row in lookup(items, [{"id": 1}])] == list(range(200_000))


def test_a_command_that_writes_needs_leave(server):
    with pytest.raises(sa.ConfigurationError, match="writes=True"):
        redis.command(server.url, "INCR", "counter", schema="n bigint")
    count = redis.command(server.url, "INCR", "counter:{id}", schema="n bigint", writes=True)
    assert [row["n"] for row in lookup(count, [{"id": 1}] * 3)] == [1, 2, 3]


def test_the_wrong_type_fails_its_row_alone_and_is_not_retried(server):
    function = redis.get(server.url, "{key}", schema="v string")
    retry = sa.retry.fixed_delay(3, "1ms")
    rows = lookup(function, [{"key": "board"}, {"key": "n:2"}], on_error="capture", retry=retry)
    assert rows[0]["error"]["attempts"] == 1
    assert "WRONGTYPE" in rows[0]["error"]["message"]
    assert rows[1]["v"] == "20"


def test_text_that_is_no_number_fails_its_row_without_being_quoted(server):
    function = redis.get(server.url, "{key}", schema="v bigint")
    with pytest.raises(sa.AsyncFunctionError, match="`v` should be `bigint`") as raised:
        lookup(function, [{"key": "text"}])
    assert "no number" not in str(raised.value)


def test_a_miss_is_tried_again_by_choice(server):
    function = redis.get(server.url, "late:{id}", schema="v bigint")
    retry = sa.retry.fixed_delay(2, "1ms").if_miss()
    before = server.cli("info", "stats").partition("keyspace_misses:")[2].split("\r")[0]
    assert lookup(function, [{"id": 1}], retry=retry) == [{"id": 1, "v": None}]
    after = server.cli("info", "stats").partition("keyspace_misses:")[2].split("\r")[0]
    assert int(after) - int(before) == 3
