# SPDX-License-Identifier: Apache-2.0
"""The demo with its lookups in Redis and in PostgreSQL, small and fast."""

from __future__ import annotations

import contextlib
import io

import pytest
from rich.console import Console

from sparkawait._flights.data import compare_files, load, plain_join
from sparkawait._flights.job import enrich
from sparkawait._flights.program import Runner, introduction, open_service, run_all
from sparkawait._flights.settings import Settings
from tests.support.postgres_server import PASSWORD, PostgresServer
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark]

STORES = ["redis", "postgres"]


@contextlib.contextmanager
def redis_settings():
    """Settings, and a function that counts what the demo has left in the server."""
    with RedisServer(
        "--requirepass", PASSWORD, cli=["-a", PASSWORD, "--no-auth-warning"]
    ) as server:
        server.cli("set", "weather:of-others", "sunny")
        url = server.url.replace("://", f"://:{PASSWORD}@")
        yield (
            Settings(sample=400, max_concurrency=20, redis=url),
            lambda: int(server.cli("dbsize")) - 1,
        )


@contextlib.contextmanager
def postgres_settings():
    with PostgresServer() as server:
        server.run("create table weather (id int)")
        tables = "select count(*) - 1 from pg_tables where tablename in ('weather', 'aircraft')"
        yield (
            Settings(sample=400, max_concurrency=20, postgres=server.dsn),
            lambda: int(server.run(tables)),
        )


SETTINGS = {"redis": redis_settings, "postgres": postgres_settings}


@pytest.mark.nightly  # what `make demo` shows over HTTP is tried for each change
@pytest.mark.parametrize("store", STORES)
def test_output_is_equal_to_the_plain_join_and_the_tables_go_again(spark, tmp_path, capfd, store):
    dataset = load().first(2000)
    with SETTINGS[store]() as (settings, left):
        with open_service(settings, dataset, tmp_path) as service:
            assert left() > 0
            runner = Runner(
                spark, service, Console(file=io.StringIO()), 2, tmp_path, tmp_path / "out"
            )
            runs = run_all(settings, dataset, runner)
            enriched = enrich(
                spark.read.parquet(str(tmp_path / "ordered")), "ordered", service.lookups, 9
            )
            enriched.explain("extended")
            shown = capfd.readouterr().out + introduction(settings, service, dataset, 2)
        assert left() == 0

    assert [(run.name, run.rows) for run in runs] == [("unordered", 2000), ("ordered", 400)]
    for run in runs:
        expected = plain_join(dataset.first(run.rows))
        verdict = compare_files(
            expected, tmp_path / "out" / run.name, in_order=run.name == "ordered"
        )
        assert verdict.is_right, verdict
        assert sum(count for _, count in run.latencies) >= run.rows
    assert "Parsed Logical Plan" in shown
    assert PASSWORD not in shown + repr((settings, service))
