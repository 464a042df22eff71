# SPDX-License-Identifier: Apache-2.0
"""Lookups over HTTP, in Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import sparkawait as sa
from tests.support.nginx import Nginx
from tests.support.scripted_server import ScriptedServer

pytestmark = pytest.mark.spark

ROWS = 600
TOKEN = "not-for-plans"  # noqa: S105 - of a server of the tests

SERVER = f"""
location /customers/ {{ try_files $uri =404; }}
location /closed/ {{
    if ($http_authorization != "Bearer {TOKEN}") {{ return 401; }}
    return 200 '{{"name": "Ann"}}';
}}
"""


@pytest.fixture(scope="module")
def nginx(tmp_path_factory) -> Iterator[Nginx]:
    with Nginx(tmp_path_factory.mktemp("nginx"), SERVER) as server:
        folder = server.files / "customers"
        folder.mkdir()
        for i in range(0, ROWS, 2):
            customer = {"name": f"c{i}", "address": {"city": f"city {i}", "zips": [i, i + 1]}}
            (folder / str(i)).write_text(json.dumps(customer))
        (folder / "13").write_text(json.dumps({"name": "c13", "address": "no struct"}))
        yield server


def customers(nginx, schema="name string", **options):
    return sa.http.get(
        nginx.url + "/customers/{id}", schema, client=sa.http.Client(proxy=False), **options
    )


def test_each_row_of_each_partition_gets_its_document(spark, nginx):
    frame = spark.range(ROWS).where("id != 13").repartition(2)
    schema = "name string, address struct<city:string,zips:array<bigint>>"

    rows = sa.unordered_wait(frame, customers(nginx, schema), capacity=50).collect()

    assert sorted(row.id for row in rows) == [i for i in range(ROWS) if i != 13]
    for row in rows:
        if row.id % 2:
            assert (row.name, row.address) == (None, None)
        else:
            assert (row.name, row.address.city) == (f"c{row.id}", f"city {row.id}")
            assert row.address.zips == [row.id, row.id + 1]


def test_a_miss_and_a_null_key_drop_the_row_with_inner(spark, nginx):
    frame = spark.range(0, 10, numPartitions=1).selectExpr("id as n", "nullif(id, 4) as id")
    for how, expected in [("left", list(range(10))), ("inner", [0, 2, 6, 8])]:
        rows = sa.ordered_wait(frame, customers(nginx, how=how)).collect()
        assert [row.n for row in rows] == expected
        assert [row.name for row in rows if row.name] == ["c0", "c2", "c6", "c8"]


def test_a_column_of_structs_is_posted_as_json(spark, tmp_path):
    # Where nginx passes a request on, it has read the body.
    lines = """location = /echo { return 200 '{"sent": $http_x_body}'; }
        location / {
            proxy_pass http://127.0.0.1:$server_port/echo;
            proxy_set_header X-Body $request_body;
        }"""
    with Nginx(tmp_path, lines) as server:
        frame = spark.range(1).selectExpr("named_struct('name', 'Ann', 'age', 7) as who")
        schema = "sent struct<name:string,age:bigint>"
        function = sa.http.post(
            server.url, schema, json="{who}", client=sa.http.Client(proxy=False)
        )
        (row,) = sa.ordered_wait(frame, function).collect()
    assert (row.sent.name, row.sent.age) == ("Ann", 7)


def test_a_preview_makes_one_call_in_an_executor_and_shows_what_comes_of_it(spark, nginx, capsys):
    before = len(nginx.requests)
    frame = spark.range(6, 20, numPartitions=3).selectExpr("id", "id as `a.b`", "now() as at")
    look_up = customers(nginx, "name string, town string", paths={"town": "$.address.town"})
    sa.http.preview(frame, look_up)

    lines = capsys.readouterr().out.splitlines()
    assert len(nginx.requests) == before + 1
    assert lines[0] == "http.get for id=6"
    assert lines[1].startswith("answered 200 OK, ")
    assert lines[-2:] == [
        "  name: string = 'c6'",
        (
            "  town: string = None, because there is nothing at `$.address.town`:"
            " `$.address` has `city`, `zips`"
        ),
    ]
    with pytest.raises(sa.ConfigurationError, match="no row to make a call for"):
        sa.http.preview(frame.where("id < 0"), look_up)
    with pytest.raises(sa.ConfigurationError, match="must not be a streaming DataFrame"):
        sa.http.preview(spark.readStream.format("rate").load(), look_up)


def test_a_secret_is_resolved_in_the_executor_and_shown_nowhere(spark, nginx, tmp_path, capfd):
    (tmp_path / "token").write_text(TOKEN)
    token = sa.secret(file=str(tmp_path / "token"), prefix="Bearer ")
    function = sa.http.get(
        nginx.url + "/closed/{id}",
        "name string",
        headers={"Authorization": token},
        client=sa.http.Client(proxy=False),
    )
    frame = sa.unordered_wait(spark.range(2), function)

    assert [row.name for row in frame.collect()] == ["Ann", "Ann"]
    frame.explain("extended")
    shown = capfd.readouterr().out
    assert "Parsed Logical Plan" in shown
    assert TOKEN not in shown + repr(function)


def test_a_failing_row_is_an_error_column_by_choice(spark, nginx):
    frame = spark.range(12, 15, numPartitions=1)

    schema = "name string, address struct<city:string>"
    rows = sa.ordered_wait(frame, customers(nginx, schema), on_error="capture").collect()

    assert [(row.id, row.name) for row in rows] == [(12, "c12"), (13, None), (14, "c14")]
    assert [row.id for row in rows if row.error] == [13]
    assert "`address`" in rows[1].error.message


def test_a_failing_row_fails_the_task(spark, nginx):
    function = customers(nginx, "address struct<city:string>")
    with pytest.raises(Exception, match=r"http\.get.*failed for row 1 of partition 0"):
        sa.ordered_wait(spark.range(12, 15, numPartitions=1), function).collect()


def test_rows_go_together_in_frames_and_in_columns(spark):
    def reply(request, _before):
        ids = json.loads(request.body)["ids"]
        found = [{"index": index, "v": 2 * one} for index, one in enumerate(ids)]
        return 200, {}, json.dumps({"data": found[::-1]}).encode()

    server: ScriptedServer
    with ScriptedServer(lambda _target, before: reply(server.requests[before], before)) as server:
        doubled = sa.http.post(
            f"{server.url}/doubled",
            "v bigint",
            json={"ids": sa.http.each("{id}")},
            rows="data",
            items=sa.http.items(id="index"),
            batch=sa.Batch(max_rows=50),
            client=sa.http.Client(proxy=False),
        )
        frame = spark.range(200, numPartitions=2)
        waited = sa.unordered_wait(frame, doubled).collect()
        column = frame.select("id", sa.async_udf(doubled)("id").alias("found")).collect()
        sizes = [len(json.loads(request.body)["ids"]) for request in server.requests]
    assert sorted((row.id, row.v) for row in waited) == [(i, 2 * i) for i in range(200)]
    assert sorted((row.id, row.found) for row in column) == [(i, 2 * i) for i in range(200)]
    assert (sum(sizes), max(sizes)) == (400, 50)
    assert len(sizes) <= 16
