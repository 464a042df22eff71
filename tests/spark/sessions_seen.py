# SPDX-License-Identifier: Apache-2.0
"""Reads times in several sessions and threads.

Over Connect it is a part of the program that does everything there, because classic sessions and
those of Connect do not mix in a process. No zone is the one that a session of tests starts with.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

import sparkawait as sa
from sparkawait.testing import LookupServer
from tests.support.sql_conf import ZONE, sql_conf

OF_TYPE = "spark.sql.timestampType"
FIRST, SECOND, LATER = "America/St_Johns", "Asia/Kathmandu", "Australia/Adelaide"
TEXT = "2024-07-01 12:00:00"
"""In each zone another instant."""
COLUMNS = "at timestamp_ltz, wall timestamp_ntz"
SHOWN = ["cast(at as string)", "unix_timestamp(at)", "cast(wall as string)"]
ROWS = 13

Seen = dict[str, list[Any]]


@sa.async_function(COLUMNS)
async def of_python(row):
    # What the function was given is part of what it returns.
    (given,) = (row[name] for name in row if name in ("at", "given"))
    seconds = given.astimezone(timezone.utc).timestamp()
    return {
        "at": datetime.fromtimestamp(seconds, timezone.utc),
        "wall": given.replace(tzinfo=None),
    }


@sa.async_function("at timestamp, wall timestamp_ntz")
async def of_word(row):
    return {"at": None, "wall": None}


@sa.async_function("same bigint")
async def same(row):
    return {"same": row.id}


class Kinds:
    """One text as a time, by Spark's own cast and by each kind of function."""

    def __init__(self, url: str) -> None:
        self.get = sa.http.get(url + "/t/{id}", COLUMNS, client=sa.http.Client(proxy=False))
        # As at the top of a module, for every session that is there or comes.
        self.python_column = sa.async_udf(of_python, columns=["at"])
        self.native_column = sa.async_udf(self.get)

    def seen(self, spark: SparkSession) -> Seen:
        """Returns what `spark` shows of each kind."""
        ids = spark.range(ROWS, numPartitions=3)
        times = ids.selectExpr("id", f"cast('{TEXT}' as timestamp_ltz) as at")
        found = {
            "cast": times.selectExpr("at", f"cast('{TEXT}' as timestamp_ntz) as wall"),
            "python column": times.select(self.python_column("at").alias("r")).select("r.*"),
            "native column": ids.select(self.native_column("id").alias("r")).select("r.*"),
            "python wait": sa.unordered_wait(times.withColumnRenamed("at", "given"), of_python),
            "native wait": sa.unordered_wait(ids, self.get),
        }
        return shown(found)

    def seen_in_sql(self, spark: SparkSession) -> Seen:
        """Returns what functions show that were registered before the session had its zone."""
        spark.udf.register("python_at", self.python_column)
        spark.udf.register("native_at", self.native_column)
        with sql_conf(spark, {ZONE: LATER}):
            called = {
                "python column": f"python_at(cast('{TEXT}' as timestamp_ltz))",
                "native column": "native_at(id)",
            }
            # Pandas, which has the arguments in SQL before Spark 4.1, does not tell the types of
            # times apart, so that these are refused.
            if pyspark.__version__ < "4.1":
                del called["python column"]
            found = {
                kind: spark.sql(f"select r.* from (select {call} as r from range({ROWS}))")  # noqa: S608 - our own texts
                for kind, call in called.items()
            }
            found["cast"] = spark.range(ROWS).selectExpr(
                f"cast('{TEXT}' as timestamp_ltz) as at", f"cast('{TEXT}' as timestamp_ntz) as wall"
            )
            return shown(found)


def shown(found: dict[str, DataFrame]) -> Seen:
    """Returns the rows of each kind, by one query for all."""
    every = (df.selectExpr(f"'{kind}' as kind", *SHOWN) for kind, df in found.items())
    seen: Seen = {}
    for kind, *row in functools.reduce(DataFrame.unionAll, every).collect():
        seen.setdefault(kind, []).append(row)
    return seen


def in_thread(call: Callable[[], Any], wrap: Callable[[Any], Any] = lambda target: target) -> Any:
    done: Future[Any] = Future()

    def target() -> None:
        try:
            done.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            done.set_exception(error)

    threading.Thread(target=wrap(target)).start()
    return done.result()


def in_pool(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def in_heir(spark: SparkSession, call: Callable[[], Any]) -> Any:
    """Calls in a thread that has the local properties of this one."""
    of_session = pyspark.inheritable_thread_target
    takes_it = is_of_connect(spark) or pyspark.__version__ >= "4"
    return in_thread(call, of_session(spark) if takes_it else of_session)


def is_of_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def word_in_thread(spark: SparkSession) -> list[str]:
    """Returns the types that the word ``timestamp`` stands for, in the main thread and another."""
    called = sa.async_udf(of_word)

    def of_column() -> str:
        return spark.range(1).select(called("id").alias("r")).schema["r"].dataType.simpleString()

    with sql_conf(spark, {OF_TYPE: "TIMESTAMP_NTZ"}):
        return [of_column(), in_thread(of_column), in_pool(of_column)]


def limited_in_thread(spark: SparkSession) -> list[Any]:
    limit = sa.RateLimit("997/s", scope="job", name="of the job")
    numbers = spark.range(ROWS, numPartitions=3)

    def run() -> list[int]:
        called = sa.async_udf(same, rate_limit=limit)
        return [row[0] for row in numbers.select(called("id")).collect()]

    try:
        return in_thread(run)
    except sa.ConfigurationError as error:
        return [str(error)]


def another(spark: SparkSession) -> SparkSession:
    if is_of_connect(spark):
        return SparkSession.builder.remote("sc://localhost").create()
    return spark.newSession()


def results(spark: SparkSession) -> dict[str, Any]:
    with LookupServer({"t": {str(id): {"at": TEXT, "wall": TEXT} for id in range(ROWS)}}) as server:  # noqa: A001
        kinds = Kinds(server.url)
        with sql_conf(spark, {ZONE: FIRST}):
            return seen_everywhere(spark, kinds)


def seen_everywhere(spark: SparkSession, kinds: Kinds) -> dict[str, Any]:
    found: dict[str, Any] = {
        "main": kinds.seen(spark),
        "thread": in_thread(lambda: kinds.seen(spark)),
        "pool": in_pool(lambda: kinds.seen(spark)),
        "sql": kinds.seen_in_sql(spark),
        "sql in a thread": in_thread(lambda: kinds.seen_in_sql(spark)),
        "word": word_in_thread(spark),
        "limited": limited_in_thread(spark),
    }
    if not (is_of_connect(spark) and pyspark.__version__ < "4"):
        found["heir"] = in_heir(spark, lambda: kinds.seen(spark))
    second = another(spark)
    second.conf.set(ZONE, SECOND)
    found["second"] = kinds.seen(second)
    found["second in a thread"] = in_thread(lambda: kinds.seen(second))
    found["first again"] = kinds.seen(spark)
    return found
