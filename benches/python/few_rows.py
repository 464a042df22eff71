# SPDX-License-Identifier: Apache-2.0
"""How many calls does a `limit(10)` make, of one task with 100 calls at a time?

Counted by the server that is called, which answers after 20 ms, 50 ms or 2 s, in a Spark that has
run such a query before. Goals: at most 110, 60 and 26 calls.
"""

from __future__ import annotations

from figures import Figure, Settings
from pyspark.sql import SparkSession
from session import local_spark

import sparkawait as sa
from sparkawait.testing import LookupServer

GOALS = {"20ms": 110.0, "50ms": 60.0, "2s": 26.0}
ROWS = 100_000


def _calls(spark: SparkSession, latency: str) -> float:
    with LookupServer({"t": {"k": {"value": 1}}}, latency=latency) as server:
        function = sa.http.get(
            server.url + "/t/k",
            "value bigint",
            max_requests=100,
            client=sa.http.Client(proxy=False),
        )
        frame = spark.range(ROWS, numPartitions=1)
        sa.unordered_wait(frame, function, max_concurrency=100).limit(10).collect()
        return float(server.stats()["requests"])


def figures(settings: Settings) -> list[Figure]:
    """Measures the three latencies; the goal is a number that is not to be passed."""
    with local_spark() as spark:
        _calls(spark, "20ms")
        return [
            Figure(
                f"limit(10), calls of {latency}",
                "calls",
                [_calls(spark, latency) for _ in range(settings.rounds)],
                "goal",
                [most],
                goal=most,
                of_ratio=False,
                at_most=True,
            )
            for latency, most in GOALS.items()
        ]
