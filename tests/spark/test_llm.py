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


def own(row):
    return row.answer == ModelServer.hash_of(f"Rate {row.review}")


@pytest.fixture
def stream(spark, tmp_path):
    """Reads 26 reviews in four files, one a micro-batch."""
    rows = spark.range(26).selectExpr("concat('review ', id) as review")
    rows.repartition(4).write.json(str(tmp_path / "in"))
    events = spark.readStream.schema("review string").option("maxFilesPerTrigger", 1)
    return events.json(str(tmp_path / "in"))


def finish(writer, tmp_path):
    told = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = told.trigger(availableNow=True).start()
    query.awaitTermination()


@pytest.mark.parametrize("wait", [sa.ordered_wait, sa.unordered_wait])
def test_a_stream_asks_for_each_row_once(spark, server, stream, tmp_path, wait):
    ask = chat(server, "answer string not null", repair=1, rpm=6_000, max_tokens=90)
    name = f"rated_{wait.__name__}"
    rated = wait(stream, ask, on_error="capture")
    finish(rated.writeStream.format("memory").queryName(name), tmp_path)
    rows = spark.table(name).collect()
    assert len(rows) == 26
    assert all(row.error is None and own(row) for row in rows)
    assert server.stats()["answered"] == 26


def test_each_micro_batch_may_ask_with_a_journal(server, stream, tmp_path):
    ask = chat(server, "answer string not null", price={"input": 1.0, "output": 4.0})
    kept, found = str(tmp_path / "journal"), []

    def rate(batch, _number):
        for _ in range(2):  # a second action, as of a micro-batch that is carried out again
            rated = sa.unordered_wait(batch, ask, on_error="capture", journal=kept)
            rows = rated.collect()
        found.extend(rows)

    finish(stream.writeStream.foreachBatch(rate), tmp_path)
    assert len(found) == 26
    assert all(map(own, found))
    assert server.stats()["answered"] == 26


def test_sql_asks_by_a_registered_function(spark, server):
    spark.udf.register("rate", chat(server, "answer string not null, n int"))
    spark.udf.register("vector", embed(server))
    spark.range(7).selectExpr("concat('review ', id) as review").createOrReplaceTempView("reviews")
    rows = spark.sql(
        "select review, rated.*, embedding from"
        " (select review, rate(review) as rated, vector(review) as embedding from reviews)"
    ).collect()
    assert len(rows) == 7
    assert all(map(own, rows))
    assert all(first_of(row.embedding) == ModelServer.hash_of(row.review) for row in rows)


def embed(server, **options):
    client = sa.http.Client(proxy=False)
    named = {"model": "e", "base_url": server.base_url, "client": client}
    return sa.llm.embed("{review}", **named, **options)


def first_of(vector):
    return "".join(f"{round(it * 65536):04x}" for it in vector[:4])


def test_a_journal_asks_failures_again_and_nothing_else(reviews, server, tmp_path):
    ask = chat(server, "answer string not null, n int", repair=1, price={"input": 1, "output": 1})
    told = {"on_error": "capture", "journal": str(tmp_path / "chat")}
    first = sa.unordered_wait(reviews, ask, **told).collect()
    failed = sum(row.error is not None for row in first)
    calls = server.stats()["answered"]
    assert failed == 2 * 7
    second = sa.unordered_wait(reviews.repartition(2), ask, **told).collect()
    assert sorted(row.id for row in second) == list(range(ROWS))
    assert all(own(row) for row in second if row.error is None)
    # Refused rows, and second questions of those that were invalid twice.
    assert server.stats()["answered"] == calls + failed

    told, texts = {"journal": str(tmp_path / "embed")}, set()
    for _ in range(2):
        rows = sa.unordered_wait(reviews, embed(server, max_rows=13), **told).collect()
        assert all(first_of(row.embedding) == ModelServer.hash_of(row.review) for row in rows)
        assert len(rows) == ROWS
        texts.add(server.stats()["texts"])
    assert len(texts) == 1


def test_a_budget_is_that_of_all_tasks_and_of_what_is_asked_again(reviews, server):
    price = {"input": 100.0, "output": 1_000.0}
    told = {"price": price, "budget": 3.0, "max_tokens": 91, "repair": 1}
    ask = chat(server, "answer string not null, n int", **told)
    rows = sa.unordered_wait(reviews, ask, on_error="capture").collect()
    stats = server.stats()
    paid = (stats["input_tokens"] * 100 + stats["output_tokens"] * 1_000) / 1e6
    assert sorted(row.id for row in rows) == list(range(ROWS))
    assert "budget-spent" in {row.error.kind for row in rows if row.error}
    assert 2.5 < paid <= 3.0
    assert sum(row.cost or 0 for row in rows) == pytest.approx(paid)


def test_a_chat_is_a_column_of_a_stream(spark, server, stream, tmp_path):
    ask = chat(server, "answer string not null, n int", rpm=6_000)
    rated = stream.select("review", ask("review").alias("rated"))
    finish(rated.writeStream.format("memory").queryName("rated_column"), tmp_path)
    rows = spark.table("rated_column").selectExpr("review", "rated.*").collect()
    assert len(rows) == 26
    assert all(map(own, rows))
    assert server.stats()["answered"] == 26
