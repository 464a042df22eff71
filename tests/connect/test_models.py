# SPDX-License-Identifier: Apache-2.0
"""Models of pydantic as schemas of lookups in stores."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated

import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.postgres_server import PostgresServer
from tests.support.redis_server import RedisServer
from tests.support.scripted_server import Answer, ScriptedServer

pydantic = pytest.importorskip("pydantic")

ROWS = pa.table({"id": range(7)})
Tier = Annotated[int, pydantic.Field(le=3)]


class Customer(pydantic.BaseModel):
    name: Annotated[str, pydantic.AfterValidator(str.title)] = pydantic.Field(alias="fullName")
    tier: Tier = 1


# Whole, without its tier, with one that is refused, without its name; the others are missing.
STORED = [{"fullName": "ann x", "tier": 3}, {"fullName": "bob"}, {"fullName": "c", "tier": 4}]
WANTED = [("Ann X", 3), ("Bob", 1), (None, None), (None, None), *[(None, None)] * 3]


def rows(function, **options):
    out = (
        sa.arrow.ordered_wait(ROWS, function, on_error="capture", **options).to_table().to_pylist()
    )
    assert len(out) == ROWS.num_rows
    return [(row["name"], row["tier"]) for row in out], [it["error"] for it in out]


@pytest.mark.parametrize("kind", ["hash", "json"])
def test_redis_takes_a_model_by_its_aliases_and_rules(kind):
    documents = [*STORED, {"tier": 2}]
    with RedisServer() as server:
        for number, document in enumerate(documents):
            fields = [str(it) for pair in document.items() for it in pair]
            stored = ["HSET", f"hash:{number}", *fields]
            server.load([stored, ["SET", f"json:{number}", json.dumps(document)]])
        found, errors = rows(getattr(sa.redis, kind)(server.url, f"{kind}:{{id}}", Customer))
    assert found == WANTED
    assert [it is not None for it in errors] == [False, False, True, True, *[False] * 3]
    assert "`Customer` refuses: tier: Input should be less than or equal to 3" in str(errors[2])


class Seen(pydantic.BaseModel):
    name: str
    tier: Tier
    seen: datetime

    @pydantic.field_validator("seen")
    @classmethod
    def is_recent(cls, seen: datetime) -> datetime:
        assert seen.tzinfo is not None
        if seen.year < 2020:
            message = "too old"
            raise ValueError(message)
        return seen.replace(microsecond=0)


def test_postgres_takes_a_model_by_its_rules():
    statement = "select name, tier, seen from seen where id = $1"
    with PostgresServer() as server:
        server.run("create table seen (id bigint, name text, tier int, seen timestamptz)")
        server.run("""
            insert into seen values (0, 'Ann', 3, '2024-02-29 01:00:00.7+01'),
            (1, 'Bob', 3, '2019-12-31'), (2, 'Cid', 4, '2024-02-29'), (4, null, 1, '2024-02-29')
        """)
        function = sa.postgres.lookup(server.dsn, statement, ["id"], Seen)
        out = sa.arrow.ordered_wait(ROWS, function, on_error="capture").to_table().to_pylist()
    assert [row["name"] for row in out] == ["Ann", *[None] * 6]
    assert out[0]["seen"].isoformat() == "2024-02-29T00:00:00+00:00"
    told = [row["error"] and row["error"]["message"] for row in out]
    assert [it is not None for it in told] == [False, True, True, False, True, False, False]
    assert told[1] == "`postgres.lookup` returned what `Seen` refuses: seen: Value error, too old"


def test_a_model_of_one_field_is_the_schema_of_one_value():
    class Price(pydantic.BaseModel):
        price: int = pydantic.Field(gt=0)

    with RedisServer() as server:
        server.load([["SET", f"p:{number}", str(number - 1)] for number in range(5)])
        function = sa.redis.get(server.url, "p:{id}", Price)
        out = sa.arrow.ordered_wait(ROWS, function, on_error="drop").to_table()
    assert out["price"].to_pylist() == [1, 2, 3, None, None]


class Review(pydantic.BaseModel):
    mood: str
    stars: Annotated[int, pydantic.Field(ge=1, le=5)]


class Reply(pydantic.BaseModel):
    review: Review
    model: str | None = None


def test_a_class_inside_of_a_class_reads_what_a_model_wrote_into_a_text():
    contents = [
        '{"mood": "good", "stars": 5}\n',
        '{"mood": "good", "stars": 9}',
        "Sorry, I cannot say.",
        '{"mood": "good"}',
    ]

    def answer(target: str, _before: int) -> Answer:
        message = {"content": contents[int(target[1:])]}
        document = {"model": "m-7", "choices": [{"message": message}]}
        return 200, {}, json.dumps(document).encode()

    with ScriptedServer(answer) as server:
        ask = sa.http.get(
            server.url + "/{id}", Reply, paths={"review": "$.choices[0].message.content"}
        )
        out = sa.arrow.ordered_wait(ROWS.slice(0, 4), ask, on_error="capture").to_table()
    found = out.to_pylist()
    assert [it["review"] for it in found] == [{"mood": "good", "stars": 5}, None, None, None]
    told = [it["error"] and it["error"]["message"] for it in found]
    assert told[0] is None
    assert "`Reply` refuses: review.stars: Input should be less than or equal to 5" in told[1]
    assert told[2].endswith(
        "`review` should be `struct<mood:string,stars:bigint>`, but the document has a text that "
        "is not JSON"
    )
    assert "`review.stars` should be `bigint`, but is declared as not null" in told[3]
    assert not any(it and "cannot say" in it for it in told)
