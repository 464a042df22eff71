# SPDX-License-Identifier: Apache-2.0
"""A query for many rows that fails because of some: those fail, and what finding them costs.

Queries are counted in the server's log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparkawait as sa
from sparkawait import postgres
from tests.support.postgres_server import PostgresServer

# Runs longer than the server lets it for 0 only.
SLOW = """
    select $1::int as found, case when $1 = 0 then pg_sleep(600) is null else false end as slept
"""
DIVIDED = "select 10 / $1 as found"
LIMIT = "500ms"
ROWS = 1000


class Log:
    """What the server has logged since it was looked at."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._seen = len(server.log)

    def count(self, text: str) -> int:
        """Returns how often the text was logged."""
        return self._server.log[self._seen :].count(text)

    @property
    def together(self) -> int:
        """Queries for several rows."""
        return self.count(": select sparkawait_keys.ord")

    @property
    def timeouts(self) -> int:
        """Statements that took too long."""
        return self.count("canceling statement due to statement timeout")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(log_statement="all") as running:
        yield running


def look_up(function: postgres.Lookup, keys: list[int], **options: Any) -> pa.Table:
    batch = pa.RecordBatch.from_pydict({"k": pa.array(keys, pa.int32())})
    options = {
        "on_error": "capture",
        "max_concurrency": ROWS,
        "capacity": ROWS,
        "tuning": sa.Tuning(warm_up=False),
        **options,
    }
    return pa.Table.from_batches(list(sa.arrow.ordered_wait([batch], function, **options)))


def lookup(server: PostgresServer, sql: str, **options: Any) -> postgres.Lookup:
    schema = "found int"
    return postgres.lookup(server.dsn, sql, ["k"], schema=schema, connections=1, **options)


def warm_up(function: postgres.Lookup) -> None:
    """Connects and prepares, so that the limit is one of the query."""
    assert failed(look_up(function, [1, 2])) == []
    assert failed(look_up(function, [1])) == []


def failed(table: pa.Table) -> list[int]:
    errors = table["error"].to_pylist()
    return [row for row, error in enumerate(errors) if error is not None]


@pytest.mark.parametrize("prepare", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("row", [0, 421, 999])
def test_one_row_that_takes_too_long_leaves_the_others(
    server: PostgresServer, row: int, prepare: bool
) -> None:
    function = lookup(server, SLOW, statement_timeout=LIMIT, prepare=prepare)
    keys = [key + 1 for key in range(ROWS)]
    keys[row] = 0
    warm_up(function)
    log = Log(server)

    table = look_up(function, keys, timeout="25s", retry=0)

    assert failed(table) == [row]
    assert "SQLSTATE 57014" in table["error"][row].as_py()["message"]
    found = table["found"].to_pylist()
    assert found[:row] + found[row + 1 :] == keys[:row] + keys[row + 1 :]
    # With the others, and alone.
    assert log.timeouts == 2
    assert log.together <= 5


@pytest.mark.parametrize("row", [0, 421, 999])
def test_one_row_with_bad_data_costs_a_few_queries(server: PostgresServer, row: int) -> None:
    keys = [5] * ROWS
    keys[row] = 0
    log = Log(server)

    table = look_up(lookup(server, DIVIDED), keys)

    assert failed(table) == [row]
    assert "SQLSTATE 22012" in table["error"][row].as_py()["message"]
    assert log.together <= 5
    assert log.count(f"execute s0: {DIVIDED}") <= 2


def test_a_server_that_answers_in_another_order_is_searched_by_halves(
    server: PostgresServer,
) -> None:
    """It hashes the rows and finds nothing before the row at fault."""
    server.run("create table wide as select generate_series(1, 2000) as k; analyze wide")
    sql = "select max(10 / (w.k - 500)) as found from wide as w where w.k = $1"
    log = Log(server)

    table = look_up(lookup(server, sql, how="inner"), list(range(ROWS)))

    # The miss of 0, which finds no row, is one of nulls.
    assert failed(table) == [500]
    assert log.together <= 5 * 11


def test_data_that_is_all_bad_is_given_up_and_asked_for_row_by_row(server: PostgresServer) -> None:
    log = Log(server)

    table = look_up(lookup(server, DIVIDED), [0] * ROWS)

    assert failed(table) == list(range(ROWS))
    messages = {error["message"] for error in table["error"].to_pylist()}
    assert all("SQLSTATE 22012" in message for message in messages)
    assert log.together <= 20
    assert log.count("division by zero") <= ROWS + 20


def test_rows_that_are_all_slow_cost_a_bounded_number_of_timeouts(server: PostgresServer) -> None:
    rows = 64
    function = lookup(server, SLOW, statement_timeout="200ms")
    warm_up(function)
    log = Log(server)

    table = look_up(function, [0] * rows, retry=0)

    assert failed(table) == list(range(rows))
    # Twice the seven rounds that halving 64 rows takes.
    assert log.timeouts == 14
    messages = [error["message"] for error in table["error"].to_pylist()]
    assert all("SQLSTATE 57014" in message for message in messages)
    assert any("too many of them took too long" in message for message in messages)


def test_a_row_that_is_slow_is_tried_again_and_the_others_are_not(server: PostgresServer) -> None:
    function = lookup(server, SLOW, statement_timeout=LIMIT)
    keys = list(range(100))
    retry = sa.retry.fixed_delay(2, "1ms")
    warm_up(function)
    log = Log(server)

    table = look_up(function, keys, retry=retry, timeout="25s")

    assert failed(table) == [0]
    assert table["error"][0].as_py()["attempts"] == 3
    # Twice at first, then alone.
    assert log.timeouts == 4


def test_rows_that_are_slow_only_together_all_have_results(server: PostgresServer) -> None:
    # 1.3 seconds together.
    sql = "select $1::int as found, pg_sleep(0.013) is null as slept"
    function = lookup(server, sql, statement_timeout="1s")
    log = Log(server)

    table = look_up(function, list(range(100)), timeout="25s")

    assert failed(table) == []
    assert table["found"].to_pylist() == list(range(100))
    assert log.timeouts >= 1


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("select ($1::text)::regclass::oid::bigint::int as found", "42P01"),
        ("select pg_terminate_backend(pg_backend_pid())::int as found where $1 = 0", "57P01"),
    ],
)
def test_what_is_no_rows_fault_is_not_searched_for(
    server: PostgresServer, sql: str, code: str
) -> None:
    function = lookup(server, sql)
    log = Log(server)

    batch = pa.RecordBatch.from_pydict({"k": pa.array([0] * 50, pa.int32())})
    if code == "42P01":
        batch = pa.RecordBatch.from_pydict({"k": ["nowhere"] * 50})
    (out,) = sa.arrow.ordered_wait(
        [batch],
        function,
        on_error="capture",
        max_concurrency=ROWS,
        capacity=ROWS,
        tuning=sa.Tuning(buffer_timeout=None, warm_up=False),
        retry=0,
    )

    messages = {error["message"] for error in out.column("error").to_pylist()}
    assert len(messages) == 1
    assert code in messages.pop()
    assert log.together == 1


@settings(max_examples=25)
@given(keys=st.lists(st.sampled_from([0, 1, 2, 5, 10]), min_size=1, max_size=120))
def test_exactly_the_bad_rows_fail(server: PostgresServer, keys: list[int]) -> None:
    table = look_up(lookup(server, DIVIDED), keys)

    assert failed(table) == [row for row, key in enumerate(keys) if key == 0]
    assert table["found"].to_pylist() == [10 // key if key else None for key in keys]
