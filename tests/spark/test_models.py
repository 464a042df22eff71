# SPDX-License-Identifier: Apache-2.0
"""Classes as schemas of native functions, in Spark's workers."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

import sparkawait as sa
from tests.support.scripted_server import ScriptedServer

pytestmark = pytest.mark.spark

ROWS = 331


@dataclass
class Address:
    city: str


@dataclass
class Customer:
    name: str
    address: Address | None


@dataclass
class Checked:
    name: str
    tier: int = 3

    def __post_init__(self) -> None:
        if self.tier > 7:
            message = "no such tier"
            raise ValueError(message)


def document(target: str) -> tuple[int, dict[str, str], bytes]:
    """Every third one is missing; tiers go from 0 to 12, or are left out."""
    number = int(target.rsplit("/", 1)[-1])
    tier = {"tier": number % 13} if number % 5 else {}
    address = {"city": f"city {number}"} if number % 2 else None
    body = {"name": f"c{number}", "address": address, **tier}
    return (404, {}, b"") if number % 3 == 0 else (200, {}, json.dumps(body).encode())


@pytest.fixture(scope="module")
def service():
    with ScriptedServer(lambda target, _: document(target)) as running:
        yield running


def get(service, schema):
    return sa.http.get(service.url + "/{id}", schema, client=sa.http.Client(proxy=False))


def test_a_class_is_the_schema_that_spark_sees(spark, service):
    out = sa.unordered_wait(spark.range(ROWS, numPartitions=3), get(service, Customer))
    assert out.schema.simpleString() == "struct<id:bigint,name:string,address:struct<city:string>>"
    rows = sorted(out.collect())
    assert [row.id for row in rows] == list(range(ROWS))
    for row in rows:
        expected = json.loads(document(f"/{row.id}")[2] or b'{"name": null, "address": null}')
        assert row.name == expected["name"]
        assert (row.address and row.address.asDict()) == expected["address"]


def wanted(number):
    tier = number % 13 if number % 5 else 3
    return None if number % 3 == 0 or tier > 7 else (f"c{number}", tier)


@pytest.mark.parametrize("wait", [sa.ordered_wait, sa.unordered_wait])
def test_rules_are_kept_in_the_workers(spark, service, wait):
    metrics = sa.Metrics()
    frame = spark.range(ROWS, numPartitions=3)
    rows = wait(frame, get(service, Checked), on_error="capture", metrics=metrics).collect()

    found = {row.id: row.name and (row.name, row.tier) for row in rows}
    assert found == {number: wanted(number) for number in range(ROWS)}
    refused = [row.id for row in rows if row.error is not None]
    assert sorted(refused) == [it for it in range(ROWS) if it % 3 and wanted(it) is None]
    assert metrics.snapshot()["function.refused"] == len(refused)


@pytest.mark.parametrize("on_error", ["null", "capture"])
def test_rules_are_kept_in_a_column(spark, service, on_error):
    column = get(service, Checked).with_options(on_error=on_error)("id")
    rows = spark.range(ROWS, numPartitions=2).select("id", column.alias("c")).collect()
    for row in rows:
        cell = row.c and (row.c.name, row.c.tier)
        if on_error == "null" or row.id % 3 == 0:
            assert cell == wanted(row.id) or (on_error, cell) == ("capture", (None, None))
        else:
            assert cell == (wanted(row.id) or (None, None))
            assert (row.c.error is None) is (wanted(row.id) is not None)
    assert [row.id for row in rows] == list(range(ROWS))


def test_a_row_that_is_refused_fails_the_job_and_says_why(spark, service):
    out = sa.ordered_wait(spark.range(ROWS, numPartitions=1), get(service, Checked))
    with pytest.raises(Exception, match="`Checked` refuses: ValueError: no such tier"):
        out.collect()


def model_made_by_a_function():
    """It is pickled with its code, as one of a notebook is."""
    pydantic = pytest.importorskip("pydantic")

    class Rated(pydantic.BaseModel):
        who: str = pydantic.Field(alias="name", min_length=3)
        tier: int = pydantic.Field(default=3, le=7)

    return Rated


def test_a_model_of_pydantic_travels_with_its_rules(spark, service):
    frame = spark.range(ROWS, numPartitions=2)
    function = get(service, model_made_by_a_function())
    rows = sa.unordered_wait(frame, function, on_error="null").collect()
    expected = {it: wanted(it) if it > 9 else None for it in range(ROWS)}
    assert {row.id: row.who and (row.who, row.tier) for row in rows} == expected
