# SPDX-License-Identifier: Apache-2.0
"""Models that are asked from Spark's workers."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel, Field

import sparkawait as sa
from sparkawait.exceptions import ConfigurationError
from sparkawait.testing import ModelServer

pytestmark = pytest.mark.spark

ROWS = 331


class Rated(BaseModel):
    mood: Literal["good", "bad"]
    stars: int = Field(ge=1, le=5)


@pytest.fixture
def server():
    with ModelServer(tokenizer=len) as running:
        yield running


@pytest.fixture
def reviews(spark):
    fault = "case when id % 50 = 7 then ' [[refusal]]' when id % 50 = 9 then ' [[invalid]]' end"
    text = f"concat('review ', id % 200, coalesce({fault}, ''))"
    return spark.range(ROWS).selectExpr("id", f"{text} as review").repartition(3)


def chat(server, schema=None, **options):
    client = sa.http.Client(proxy=False)
    return sa.llm.chat(
        "Rate {review}", schema, model="m", base_url=server.base_url, client=client, **options
    )


def test_each_row_has_its_own_answer_or_a_failure_and_what_it_cost(reviews, server):
    price = {"input": 1.0, "output": 4.0}
    ask = chat(server, "answer string not null, n int", price=price, also=["usage"], repair=1)
    rated = sa.unordered_wait(reviews, ask, on_error="capture")
    assert rated.columns == ["id", "review", "answer", "n", "usage", "cost", "error"]
    rows = rated.collect()
    assert sorted(row.id for row in rows) == list(range(ROWS))
    for row in rows:
        if row.id % 50 == 7:
            assert row.error.kind == "refusal"
        elif row.id % 50 == 9:
            assert row.error.kind == "result-schema-mismatch"
        else:
            assert row.answer == ModelServer.hash_of(f"Rate {row.review}")
    stats = server.stats()
    paid = (stats["input_tokens"] + 4 * stats["output_tokens"]) / 1e6
    assert sum(row.cost for row in rows) == pytest.approx(paid)


def test_equal_rows_are_asked_for_once_in_the_job(spark, server):
    rows = spark.range(ROWS).selectExpr("id", "concat('review ', id % 199) as review")
    ask = chat(server, Rated, once=True)
    found = sa.unordered_wait(rows.repartition(5), ask).collect()
    assert len({(row.review, row.mood, row.stars) for row in found}) == 199
    assert len(found) == ROWS
    assert set(server.answered().values()) == {1}
    assert server.stats()["answered"] == 199
    with pytest.raises(ConfigurationError, match="out of their order"):
        sa.ordered_wait(rows, ask)


def test_a_chat_is_a_column(spark, server):
    rows = spark.createDataFrame([("a",), (None,), ("b",)], "review string")
    rated = rows.select("review", chat(server, Rated)("review").alias("rated"))
    assert rated.schema["rated"].dataType.simpleString() == "struct<mood:string,stars:bigint>"
    found = rated.collect()
    assert [row.rated is None or row.rated.mood is None for row in found] == [False, True, False]


def test_an_estimate_counts_rows_that_differ_and_pays_for_nothing(spark, server):
    rows = spark.range(ROWS).selectExpr("id", "concat('review ', id % 199) as review")
    ask = chat(server, Rated, once=True, price={"input": 1, "output": 2}, max_tokens=30)
    estimate = sa.llm.estimate(rows, ask)
    assert (estimate.rows, estimate.differing) == (ROWS, 199)
    assert estimate.cost[0] < estimate.cost[1]
    assert server.stats()["requests"] == 0
