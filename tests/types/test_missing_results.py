# SPDX-License-Identifier: Apache-2.0
"""A row without result is null, and never a result whose columns are null."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from tests.support.redis_server import RedisServer
from tests.support.scripted_server import ScriptedServer
from tests.types.workers import classic_udf

pytestmark = pytest.mark.spark

# What a service says of each row: a document, a document of nulls, nothing, and what is no answer.
FOUND, NULLS, MISSING, WRONG = range(4)
IDS = [FOUND, NULLS, MISSING, FOUND, MISSING, NULLS, FOUND]


def answer(path: str) -> tuple[int, dict[str, str], bytes]:
    if path.endswith(f"/{MISSING}"):
        return 404, {}, b""
    bodies = {FOUND: b'{"a": 7, "b": 3}', NULLS: b'{"a": null}', WRONG: b'{"a": "x"}'}
    return 200, {"etag": "e"}, bodies[int(path[-1])]


@pytest.fixture(scope="module")
def service():
    with ScriptedServer(lambda target, _: answer(target)) as running:
        yield running


def rows_of(spark, ids, function, **options):
    df = spark.createDataFrame([(it,) for it in ids], "id int").coalesce(1)
    column = sa.async_udf(function, capacity=3, **options)("id").alias("r")
    found = df.select("id", column)
    assert found.where("r is null").count() == sum(row.r is None for row in found.collect())
    return [None if row.r is None else tuple(row.r) for row in found.collect()]


@pytest.mark.parametrize("how", ["left", "inner"])
def test_a_miss_of_a_service_is_null_and_a_document_of_nulls_is_not(spark, service, how):
    ids = [*IDS, None]
    found = {FOUND: (7, 3), NULLS: (None, None)}
    function = sa.http.get(f"{service.url}/{{id}}", "a int, b int", how=how)
    cached = {"cache": sa.Cache(100)}
    for options in ({}, cached, {"on_error": "null"}):
        assert rows_of(spark, ids, function, **options) == [found.get(it) for it in ids]


def test_a_failure_that_is_null_is_one_of_the_whole_struct(spark, service):
    function = sa.http.get(f"{service.url}/{{id}}", "a int, b int")
    ids = [WRONG, FOUND, NULLS, WRONG]
    wanted = [None, (7, 3), (None, None), None]
    assert rows_of(spark, ids, function, on_error="null") == wanted


def test_a_miss_is_null_beside_a_status(spark, service):
    function = sa.http.get(f"{service.url}/{{id}}", "a int, b int", status="code")
    wanted = {FOUND: (7, 3, 200), NULLS: (None, None, 200)}
    assert rows_of(spark, IDS, function) == [wanted.get(it) for it in IDS]


def test_a_captured_error_stands_in_a_struct(spark, service):
    function = sa.http.get(f"{service.url}/{{id}}", "a int, b int")
    rows = rows_of(spark, [WRONG, MISSING, NULLS], function, on_error="capture")
    assert [row[:2] for row in rows] == [(None, None)] * 3
    assert [row[2] is None for row in rows] == [False, True, True]


def test_a_miss_of_a_store_is_null(spark):
    with RedisServer() as server:
        server.load([["HSET", "k0", "a", "7"], ["HSET", "k1", "z", "1"]])
        function = sa.redis.hash(server.url, "k{id}", schema="a int, b int")
        assert rows_of(spark, [0, 2, None, 0], function) == [(7, None), None, None, (7, None)]


def test_members_may_have_any_name(spark):
    """Those included that sparkawait gives to columns of its own."""
    names = ["sparkawait_found", "sparkawait_found_", "sparkawait_number"]
    schema = ", ".join(f"{name} int" for name in names)

    @sa.async_udf(schema)
    async def answer(sparkawait_number):
        return None if sparkawait_number == 1 else dict.fromkeys(names, sparkawait_number)

    df = spark.range(3).coalesce(1).select(F.col("id").alias("sparkawait_number"))
    udf = classic_udf(lambda it: None if it == 1 else (it,) * 3, f"struct<{schema}>")
    found, oracle = (
        df.select(of("sparkawait_number").alias("r")).collect() for of in (answer, udf)
    )
    assert found == oracle


def test_arguments_of_a_service_may_have_any_name(spark, service):
    function = sa.http.get(f"{service.url}/{{sparkawait_number}}", "sparkawait_found int, a int")
    df = spark.range(2).coalesce(1)
    (first, second) = df.select(sa.async_udf(function)("id").alias("r")).collect()
    assert (tuple(first.r), tuple(second.r)) == ((None, 7), (None, None))
