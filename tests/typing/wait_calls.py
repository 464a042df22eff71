# SPDX-License-Identifier: Apache-2.0
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""Calls that a type checker accepts, and calls that it refuses: `make lint-python` reads this.

Nothing runs it. A call with a wrong type is marked; the mark is an error where none is found.
"""

from datetime import timedelta

import pyarrow as pa
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import StructType

import sparkawait as sa


@sa.async_function("name string")
async def declared(row: sa.typing.Row) -> dict[str, str]:
    """Returns a name."""
    return {"name": row["id"]}


@sa.async_function
async def annotated(row: sa.typing.Row) -> int:
    """Returns a number."""
    return int(row["id"])


class Lookup(sa.AsyncFunction):
    """A function with a life cycle."""

    schema = "name string"

    async def async_invoke(self, row: sa.typing.Row) -> list[dict[str, str]]:
        """Returns names."""
        return [{"name": row["id"]}]


async def bare(row: sa.typing.Row) -> dict[str, str]:
    """Has its schema from the call."""
    return {"name": row["id"]}


def fallback(row: sa.typing.Row) -> dict[str, str]:
    """Stands in for a result."""
    return {"name": f"unknown {row['id']}"}


@sa.async_function("name string", threads=7)
def plain(row: sa.typing.Row) -> dict[str, str]:
    """Blocks."""
    return {"name": row["id"]}


class Blocks(sa.AsyncFunction):
    """A function with a life cycle that blocks."""

    schema = "name string"
    threads = 13

    def async_invoke(self, row: sa.typing.Row) -> list[dict[str, str]]:
        """Returns names."""
        return [{"name": row["id"]}]


def accepted(df: DataFrame, batch: pa.RecordBatch) -> None:
    """Every option with each of its types."""
    usual = sa.WaitOptions(timeout="5s", on_error="null")
    sa.ordered_wait(df, declared)
    sa.ordered_wait(df, plain, max_concurrency=7)
    sa.ordered_wait(df, Blocks())
    sa.ordered_wait(df, [fallback, plain, declared, plain.with_options(timeout="1s")])
    sa.ordered_wait(df, fallback, schema="name string")
    sa.async_udf("string")(fallback)
    sa.ordered_wait(df, sa.async_function(fallback, threads=3), schema="name string")
    sa.ordered_wait(df, annotated, options=usual, timeout=timedelta(seconds=1))
    sa.ordered_wait(
        df,
        Lookup(),
        timeout=1.5,
        attempt_timeout="1s",
        max_wait="30s",
        tuning=sa.Tuning(buffer_timeout=None),
    )
    sa.ordered_wait(df, bare, schema="name string", on_timeout=fallback)
    sa.ordered_wait(df, bare, schema=pa.schema({"name": pa.string()}), on_timeout={"name": "?"})
    sa.ordered_wait(
        df, bare, schema=StructType(), cache=sa.Cache(key="id"), tuning=sa.Tuning(warm_up=False)
    )
    sa.unordered_wait(df, sa.http.get("https://example.com/{id}", "name string"), capacity=1000)
    sa.unordered_wait(df, declared, channel=sa.Channel(functions.lower("tenant")))
    sa.unordered_wait(
        df,
        declared,
        channel=["tenant", "region"],
        tuning=sa.Tuning(max_bytes="1 MB"),
    )
    sa.key_ordered_wait(df, declared, key=["id", "tenant"], retry=sa.retry.fixed_delay(3, "1s"))
    sa.key_ordered_wait(df, declared, key=["id", functions.lower("tenant")])
    sa.ordered_wait(df, declared, cache=sa.Cache(key=functions.lower("tenant")))
    event_time = sa.WatermarkStrategy.for_bounded_out_of_orderness(functions.col("at"), "1s")
    sa.unordered_wait(df, declared, watermark=event_time)
    sa.async_udf(declared, timeout="1s", cache=sa.Cache(key="id"), columns=["id"])
    sa.arrow.ordered_wait([batch], declared, tuning=sa.Tuning(max_rows=10))
    sa.unordered_wait(df, declared, retry=3, hedge=True, cache="10min", channel=sa.Channel(count=3))
    sa.unordered_wait(df, declared, retry=sa.retry.exponential_backoff(), hedge="p95", cache=True)
    sa.unordered_wait(df, declared, rate_limit=["100/s", "adaptive"], carry_over=True)
    sa.unordered_wait(df, declared, rate_limit=["100/s", sa.RateLimit("9/min", cost="tokens")])
    breaker = sa.CircuitBreaker(after_failures=7, initial="2s", maximum="1 min", when_open="fail")
    sa.unordered_wait(df, declared, circuit_breaker=breaker, carry_over=sa.CarryOver())
    sa.unordered_wait(df, declared.with_options(circuit_breaker=True, retry=2, hedge="300ms"))
    sa.async_function("name string", batch=64)
    sa.http.post("https://example.com", "name string", batch=64)
    sa.http.get("https://h", "x int", client=sa.http.Client(max_reply_bytes="1 MB"))
    chat = sa.llm.chat("{text}", "mood string", model="m", also=["usage"], tpm=(9_000, 900))
    sa.unordered_wait(df, chat.with_options(on_error="capture"), rate_limit="9/s")
    sa.unordered_wait(df, sa.llm.embed("{text}", model="m", dimensions=64))
    sa.llm.estimate(df, chat, ask=20)
    sa.redis.get("redis://h", "{id}", schema="name string", max_reply_bytes="1 MB")
    sa.Cache(max_rows=None, max_bytes="64 MB")
    sa.Batch(max_bytes="64 KB")
    sa.arrow.key_ordered_wait([batch], declared, key="id", on_error=sa.OnError(column="why"))
    sa.arrow.unordered_wait([batch], declared, metrics=sa.Metrics())
    sa.unordered_wait(df, declared, metrics=sa.Metrics())
    seconds: float | None = usual.timeout
    assert seconds


def refused(df: DataFrame, batch: pa.RecordBatch) -> None:
    """A wrong type, word or name of an option."""
    sa.ordered_wait(df, "declared")  # pyright: ignore[reportArgumentType]
    sa.async_function("name string", threads="7")  # pyright: ignore[reportCallIssue, reportArgumentType]
    sa.ordered_wait(df, declared, timeout=b"5s")  # pyright: ignore[reportArgumentType]
    sa.ordered_wait(df, declared, on_error="ignore")  # pyright: ignore[reportArgumentType]
    sa.ordered_wait(df, declared, capasity=5)  # pyright: ignore[reportCallIssue]
    sa.ordered_wait(df, declared, key="id")  # pyright: ignore[reportCallIssue]
    sa.ordered_wait(df, declared, options={"timeout": 1})  # pyright: ignore[reportArgumentType]
    sa.unordered_wait(df, declared, max_concurrency="many")  # pyright: ignore[reportArgumentType]
    sa.unordered_wait(df, declared, retry="3")  # pyright: ignore[reportArgumentType]
    sa.unordered_wait(df, declared, hedge=0.3)  # pyright: ignore[reportArgumentType]
    sa.unordered_wait(df, declared, circuit_breaker=5.5)  # pyright: ignore[reportArgumentType]
    sa.unordered_wait(df, declared, adaptive_rate=True)  # pyright: ignore[reportCallIssue]
    sa.unordered_wait(df, declared, rate_limit=[5])  # pyright: ignore[reportArgumentType]
    sa.async_function("name string", batch="64")  # pyright: ignore[reportCallIssue, reportArgumentType]
    sa.unordered_wait(df, declared, channel=5)  # pyright: ignore[reportArgumentType]
    sa.unordered_wait(df, declared, schema=5)  # pyright: ignore[reportArgumentType]
    sa.key_ordered_wait(df, declared, key=5)  # pyright: ignore[reportArgumentType]
    sa.key_ordered_wait(df, declared)  # pyright: ignore[reportCallIssue]
    sa.async_udf(declared, carry_over=True)  # pyright: ignore[reportCallIssue]
    sa.arrow.ordered_wait([batch], declared, tuning="no")  # pyright: ignore[reportArgumentType]
    sa.arrow.ordered_wait([batch], declared, metrics={})  # pyright: ignore[reportArgumentType]
    sa.Metrics("local[2]")  # pyright: ignore[reportCallIssue]
    sa.WaitOptions(cache={})  # pyright: ignore[reportArgumentType]
