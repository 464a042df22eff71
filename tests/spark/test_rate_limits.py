# SPDX-License-Identifier: Apache-2.0
"""Limits in time over DataFrames: of tasks, of the workers of a host, of all cores of a job."""

import pytest

import sparkawait as sa
from sparkawait.exceptions import ErrorKind
from sparkawait.spark import placement

pytestmark = pytest.mark.spark


@sa.async_function("seen bigint")
async def see(row):
    return {"seen": row["id"]}


@pytest.mark.parametrize("mode", ["ordered_wait", "unordered_wait", "key_ordered_wait"])
@pytest.mark.parametrize("channel", [None, "id"])
def test_workers_keep_a_limit(spark, mode, channel):
    metrics = sa.spark.Metrics(spark)
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
        "job": {"permits": 100, "parts": placement.cores_of(spark)},
        "task": {"permits": 200, "parts": 1},
    }


def test_a_column_function_keeps_a_limit(spark):
    limits = [sa.RateLimit("500/s", scope="host"), sa.RateLimit("900/s", scope="job")]
    double = sa.async_udf(see, rate_limit=limits)
    found = spark.range(20).select(double("id").alias("seen")).collect()
    assert sorted(row.seen for row in found) == list(range(20))


class Session:
    """A session of which nothing is known but its configuration."""

    def __init__(self, **conf):
        self.conf = {name.replace("_", "."): value for name, value in conf.items()}


@pytest.mark.parametrize(
    ("conf", "cores"),
    [
        ({"spark_master": "local"}, 1),
        ({"spark_master": "local[3]"}, 3),
        ({"spark_master": "local[3, 4]"}, 12),
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
    assert placement.cores_of(Session(**conf)) == cores


@pytest.mark.parametrize(
    "conf", [{"spark_master": "yarn"}, {"spark_master": "yarn", "spark_executor_cores": "4"}]
)
def test_cores_that_nobody_knows_are_asked_for(conf):
    with pytest.raises(sa.ConfigurationError, match=r"spark\.cores\.max") as caught:
        placement.cores_of(Session(**conf))
    assert caught.value.kind == ErrorKind.RATE_LIMIT_INVALID
