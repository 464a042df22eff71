# SPDX-License-Identifier: Apache-2.0
"""Limits in time over DataFrames: of tasks, of the workers of a host, of all cores of a job."""

import asyncio
import re
import socket
import time
import urllib.error
import urllib.request
from contextlib import ExitStack

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait._checks import warn_once
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.exceptions import ErrorKind
from sparkawait.spark.schemas import PlaceOfSession
from sparkawait.spark.session import Session
from tests.support.scripted_server import ScriptedServer
from tests.support.servers import LOOPBACK, free_port
from tests.support.windows import MOST, Windows

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]


@sa.async_function("seen bigint")
async def see(row):
    return {"seen": row["id"]}


@sa.async_function("again bigint")
async def see_again(row):
    return {"again": row["seen"]}


@sa.async_function("rows int", batch=sa.Batch(max_rows=8))
async def see_many(rows):
    return [{"rows": len(rows)} for _ in rows]


class Asking(sa.AsyncFunction):
    """Asks a service in a thread, and hands on the headers of its reply."""

    def __init__(self, url, name):
        self.schema, self.url, self.column = f"{name} int", url, name

    def open(self, context):
        self.context = context

    async def async_invoke(self, row):
        response = await asyncio.to_thread(self.ask)
        self.context.read_limits(row, response.headers)
        if response.status != 200:
            raise ConnectionError
        return {self.column: 1}

    def ask(self):
        try:
            return urllib.request.urlopen(self.url, timeout=20)  # noqa: S310 - of a test
        except urllib.error.HTTPError as error:
            return error


def test_what_services_say_is_left_lowers_limits_wherever_they_are_called(spark):
    options = {
        # It comes back too slowly to be counted on.
        "rate_limit": sa.RateLimit("20/s", 100_000),
        "max_concurrency": 1,
        "timeout": "60s",
        "retry": sa.retry.fixed_delay(50, "20ms"),
    }
    names = ["first", "chained", "beside", "others", "udf"]
    with ExitStack() as stack:
        servers = [stack.enter_context(ScriptedServer(Windows("", 1).answer)) for _ in names]
        asking = [Asking(it.url, name) for it, name in zip(servers, names, strict=True)]
        df = sa.unordered_wait(spark.range(MOST + 2, numPartitions=1), asking[0], **options)
        df = sa.ordered_wait(df, asking[1], chain=True, **options)
        df = sa.unordered_wait(df, asking[2:4], **options)
        rows = df.withColumn("udf", sa.async_udf(asking[4], **options)("id")).collect()
        asked = {name: len(it.requests) for it, name in zip(servers, names, strict=True)}
    assert len(rows) == MOST + 2
    assert asked == dict.fromkeys(names, MOST + 2)


@pytest.mark.parametrize(
    "mode",
    ["ordered_wait", pytest.param("unordered_wait", marks=pytest.mark.nightly), "key_ordered_wait"],
)
@pytest.mark.parametrize("channel", [None, "id"])
def test_workers_keep_a_limit(spark, mode, channel):
    metrics = sa.Metrics()
    key = {"key": "id"} if mode == "key_ordered_wait" else {}
    limits = [
        sa.RateLimit("300/s", scope="host", name="together"),
        sa.RateLimit("600/s", scope="job", name="job"),
        sa.RateLimit("400/s", name="task", cost=2),
    ]
    rows = spark.range(100, numPartitions=2)

    out = getattr(sa, mode)(
        rows, see, rate_limit=limits, channel=channel, timeout="5s", metrics=metrics, **key
    )

    assert sorted(row.seen for row in out.collect()) == list(range(100))
    totals = metrics.snapshot()
    assert totals["rate_limits"] == {
        "together": {"permits": 100, "parts": 1},
        # One host keeps it whole.
        "job": {"permits": 100, "parts": 1},
        "task": {"permits": 200, "parts": 1},
    }


@sa.async_function("at double")
async def at(row):
    return {"at": time.monotonic()}


def test_a_task_that_begins_brings_no_permits_of_the_job(spark):
    limit = sa.RateLimit("25/s", burst=4, scope="job")
    rows = spark.range(60, numPartitions=30)

    start = time.monotonic()
    times = [row.at for row in sa.unordered_wait(rows, at, rate_limit=limit).collect()]

    assert max(times) - start >= (60 - 4) / 25


@sa.async_function("seen bigint")
async def see_at_last(row):
    if row["id"] not in lost:
        lost.add(row["id"])
        if row["id"] % 3 == 0:
            raise sa.RetryAfter("20ms", channel=True)
        raise ConnectionError
    return {"seen": row["id"]}


lost = set()


def test_workers_keep_circuit_breakers_budgets_and_rates(spark):
    out = sa.unordered_wait(
        spark.range(60, numPartitions=1),
        see_at_last,
        retry=sa.retry.fixed_delay(100, "1ms", budget=sa.retry.Budget(ratio=0.5)),
        circuit_breaker=sa.CircuitBreaker(initial="20ms", maximum="50ms"),
        rate_limit=["90009/s", "adaptive"],
        channel=F.col("id") % 2,
    )
    assert sorted(row.seen for row in out.collect()) == list(range(60))


def test_a_column_function_keeps_a_limit(spark):
    limits = [sa.RateLimit("500/s", scope="host"), "900/s"]
    double = sa.async_udf(see, rate_limit=limits, retry=3, circuit_breaker=True)
    found = spark.range(20).select(double("id").alias("seen")).collect()
    assert sorted(row.seen for row in found) == list(range(20))


def test_a_row_pays_what_a_column_an_expression_or_a_function_says(spark):
    metrics = sa.Metrics()
    limits = [
        sa.RateLimit("9000/s", 900, "id", name="column"),
        sa.RateLimit("9000/s", 900, F.length("name") / 4, name="expression"),
        sa.RateLimit("9000/s", 900, lambda row: 3 * row.id, name="function"),
        sa.RateLimit("9000/s", 900, F.lit(50), name="settled", result_cost="seen"),
    ]
    rows = spark.range(20, numPartitions=2).withColumn("name", F.lit("a" * 9))

    out = sa.unordered_wait(rows, see, rate_limit=limits, metrics=metrics)

    assert sorted(row.seen for row in out.collect()) == list(range(20))
    assert out.columns == ["id", "name", "seen"]
    permits = {name: it["permits"] for name, it in metrics.snapshot()["rate_limits"].items()}
    assert permits == {"column": 190, "expression": 60, "function": 570, "settled": 190}


def test_a_request_for_many_rows_pays_once(spark):
    metrics = sa.Metrics()
    limit = sa.RateLimit("900/s", cost=3, per="request")
    out = sa.unordered_wait(
        spark.range(40, numPartitions=2), see_many, rate_limit=limit, metrics=metrics
    )
    requests = round(sum(1 / row.rows for row in out.collect()))
    assert requests < 40
    assert metrics.snapshot()["rate_limits"]["900/s"]["permits"] == 3 * requests


def test_a_later_call_of_a_chain_pays_what_an_expression_says(spark):
    metrics = sa.Metrics()
    limit = sa.RateLimit("9000/s", 900, F.col("id") + 1)

    first = sa.unordered_wait(spark.range(10), see, rate_limit=sa.RateLimit("900/s"))
    out = sa.ordered_wait(first, see_again, chain=True, rate_limit=limit, metrics=metrics)

    assert sorted(row.again for row in out.collect()) == list(range(10))
    assert metrics.snapshot()["rate_limits"]["9000/s"]["permits"] == 55


def test_an_expression_that_is_no_number_is_refused(spark):
    with pytest.raises(sa.ConfigurationError, match="`cost` is a string, not a number") as caught:
        sa.ordered_wait(spark.range(1), see, rate_limit=sa.RateLimit("1/s", cost=F.lit("7")))
    assert caught.value.kind == ErrorKind.RATE_LIMIT_INVALID


class Configured:
    """A session of Spark of which nothing is known but its configuration."""

    def __init__(self, **conf):
        self.conf = {name.replace("_", "."): value for name, value in conf.items()}


def session(**conf):
    return Session(Configured(**conf))


@pytest.mark.parametrize(
    ("conf", "cores"),
    [
        ({"spark_master": "local"}, 1),
        ({"spark_master": "local[3]"}, 3),
        ({"spark_master": "local[3, 4]"}, 3),
        ({"spark_master": "local-cluster[2,4,1024]"}, 8),
        ({"spark_master": "local[8]", "spark_task_cpus": "2"}, 4),
        ({"spark_master": "spark://a:7077", "spark_cores_max": "20"}, 20),
        (
            {
                "spark_master": "yarn",
                "spark_executor_cores": "4",
                "spark_executor_instances": "5",
            },
            20,
        ),
        (
            {
                "spark_master": "k8s://a",
                "spark_executor_cores": "4",
                "spark_executor_instances": "5",
                "spark_dynamicAllocation_enabled": "true",
                "spark_dynamicAllocation_maxExecutors": "10",
            },
            40,
        ),
    ],
)
def test_the_cores_of_a_job_are_those_of_the_configuration(conf, cores):
    assert session(**conf).cores == cores


@pytest.mark.parametrize(
    ("conf", "cores"),
    [
        ({"spark_master": "local[3]", "spark_executor_cores": "2"}, 3),
        ({"spark_master": "local-cluster[2,5,1024]"}, 5),
        ({"spark_master": "yarn", "spark_executor_cores": "7", "spark_task_cpus": "2"}, 3),
        ({"spark_master": "spark://a:7077", "spark_cores_max": "20"}, None),
    ],
)
def test_the_cores_of_an_executor_are_those_of_the_configuration(conf, cores):
    assert session(**conf).executor_cores == cores


@pytest.mark.parametrize(
    "conf", [{"spark_master": "yarn"}, {"spark_master": "yarn", "spark_executor_cores": "4"}]
)
def test_cores_that_nobody_knows_are_asked_for(conf):
    with pytest.raises(sa.ConfigurationError, match=r"spark\.cores\.max") as caught:
        placed(sa.RateLimit("97/min", scope="job"), **conf)
    assert caught.value.kind == ErrorKind.RATE_LIMIT_INVALID


def placed(limits, **conf):
    place = PlaceOfSession(session(**{"spark_app_id": "app-7", **conf}))
    return resolve_unpickled("unordered", see, input_schema=None, place=place, rate_limit=limits)


@pytest.mark.parametrize(
    ("conf", "together"),
    [
        (
            {"spark_master": "spark://a:7077", "spark_cores_max": "3"},
            "on 3 cores that is up to 291/min",
        ),
        ({"spark_master": "yarn"}, "as many times that as tasks run at once"),
    ],
)
def test_where_tasks_cannot_ask_the_driver_it_says_what_limits_of_all_tasks_come_to(
    conf, together, caplog
):
    warn_once.cache_clear()
    said = sa.RateLimit("59/min", scope="task", name="said")
    for _ in range(2):
        placed([sa.RateLimit(" 97/min"), said], **conf)

    (line,) = caplog.records
    assert line.getMessage() == (
        'rate_limit="97/min" of `see` is a limit of each task, since tasks cannot ask the driver:'
        f' {together}; say scope="job" to split it, give it a `server` for 97/min in all, or say'
        ' scope="task" if you mean each task'
    )


@pytest.mark.parametrize("scope", ["job", "task"])
def test_who_says_whose_limit_it_is_is_warned_no_more(caplog, scope):
    warn_once.cache_clear()
    placed(sa.RateLimit("97/min", scope=scope), spark_master="yarn", spark_cores_max="3")
    assert not caplog.records


def test_of_a_stream_it_says_that_each_micro_batch_begins_with_a_burst(caplog):
    warn_once.cache_clear()
    place = PlaceOfSession(session(spark_master="yarn"), is_streaming=True)
    resolve_unpickled("unordered", see, input_schema=None, place=place, rate_limit="83/min")

    (line,) = caplog.records
    assert ", and each micro-batch begins with a whole burst; say scope=" in line.getMessage()


@pytest.mark.parametrize("master", ["local", "local[3]"])
def test_on_one_host_a_limit_is_that_of_the_job_and_no_port_opens(master, caplog):
    warn_once.cache_clear()
    plan = placed(sa.RateLimit("97/min"), spark_master=master, spark_driver_host="127.0.0.1")
    assert not caplog.records
    (limit,) = plan._policy_arguments()["rate_limits"]
    assert (limit.is_shared, limit.parts, limit.server) == (True, 1, None)


def of_cluster(limits, **conf):
    """Returns the terms of limits where tasks can ask the driver."""
    driver = {"spark_driver_host": "localhost", "spark_driver_bindAddress": "127.0.0.1"}
    conf = {"spark_master": "spark://a:7077", "spark_cores_max": "13", **driver, **conf}
    return placed(limits, **conf)._policy_arguments()["rate_limits"]


def test_on_a_cluster_tasks_ask_the_driver_for_limits_of_the_job():
    limits = [
        "97/min",
        sa.RateLimit("97/s", burst=13, scope="job", name="said"),
        sa.RateLimit("7/s", scope="task"),
        sa.RateLimit("5/s", per_channel=True),
        sa.Budget(20.0, cost=0.15),
    ]
    usual, said, own, channels, budget = of_cluster(limits)
    assert re.fullmatch(r"redis://:[0-9a-f]{64}@localhost:\d+", usual.server)
    assert usual.server == said.server == budget.server
    assert (own.server, channels.server) == (None, None)
    assert (usual.tasks, usual.parts, usual.period_nanos) == (13, 1, 60 * 10**9)
    # A limit of a job begins without what it could have saved, unless a burst is given.
    assert (usual.begins_empty, said.begins_empty) == (True, False)
    assert (usual.waits_for_server, said.waits_for_server) == (False, True)
    assert (budget.kind, budget.permits, budget.cost) == ("budget", 20_000_000, 150_000)
    assert usual.server not in repr(placed("97/min")) + repr(usual)


def test_the_port_of_the_driver_can_be_chosen():
    for port, message in [("x", "must be a port"), ("70000", "must be a port")]:
        with pytest.raises(sa.ConfigurationError, match=message):
            of_cluster("97/min", spark_app_id=f"app-{port}", spark_sparkawait_port=port)
    port = str(free_port())
    refused = pytest.raises(sa.ConfigurationError, match=f"is {port}, and no server can listen")
    with socket.create_server((LOOPBACK, int(port))), refused:
        of_cluster("97/min", spark_app_id="app-taken", spark_sparkawait_port=port)
    (limit,) = of_cluster("97/min", spark_app_id="app-free", spark_sparkawait_port=port)
    assert limit.server.endswith(f":{port}")


def test_budgets_and_calls_of_a_job_without_a_server_are_refused_with_two_ways_out():
    for options in [{"rate_limit": sa.Budget(20.0)}, {"max_concurrency": sa.PerJob(13)}]:
        place = PlaceOfSession(session(spark_master="yarn"))
        with pytest.raises(sa.ConfigurationError, match="`server`, a Redis that the executors"):
            resolve_unpickled("unordered", see, input_schema=None, place=place, **options)
    kept = sa.Budget(20.0, name="dollars", server="redis://cache:6379")
    (limit,) = placed(kept, spark_master="yarn")._policy_arguments()["rate_limits"]
    assert limit.server == "redis://cache:6379"


class ConfiguredFar(Configured):
    """A session of Spark Connect, whose driver is another process."""

    __module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize("master", ["local", "local[3]", "local[*]", "yarn"])
@pytest.mark.parametrize(
    "options",
    [{"rate_limit": sa.Budget(20.0, name="b")}, {"max_concurrency": sa.PerJob(13, name="c")}],
)
def test_over_connect_budgets_and_calls_of_the_job_need_a_server_on_one_host_too(master, options):
    far = Session(ConfiguredFar(spark_app_id="app-7", spark_master=master))
    with pytest.raises(sa.ConfigurationError, match="do not reach with Spark Connect; give it a"):
        resolve_unpickled("unordered", see, input_schema=None, place=PlaceOfSession(far), **options)


def test_a_budget_and_calls_at_a_time_hold_for_all_tasks_on_one_host(spark):
    """No port opens for them: they are asked for by a socket of the machine."""
    metrics = sa.Metrics()
    out = sa.unordered_wait(
        spark.range(60, numPartitions=3),
        see,
        rate_limit=sa.Budget(2.0, cost=0.07),
        max_concurrency=sa.PerJob(5),
        on_error="capture",
        metrics=metrics,
    )
    rows = out.collect()
    assert len(rows) == 60
    assert sum(row.error is None for row in rows) == 28
    assert {row.error.kind for row in rows if row.error} == {"budget-spent"}
    found = metrics.snapshot()["rate_limits"]
    assert (found["budget"]["permits"], found["calls"]["permits"]) == (pytest.approx(28 * 0.07), 28)


@pytest.mark.parametrize(
    ("master", "cores"), [("local[3]", 1), ("local[*]", 1), ("local-cluster[2,3,1024]", 6)]
)
def test_a_limit_of_the_job_is_split_where_there_may_be_several_hosts(master, cores):
    plan = placed(sa.RateLimit("97/min", scope="job"), spark_master=master)
    assert (plan.sharing.cores, plan.sharing.application) == (cores, "app-7")
