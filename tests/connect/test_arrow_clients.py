# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/guides/arrow-clients.md, beside what the client finds in the whole table."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest

import sparkawait as sa
from tests.meta.repository import ROOT
from tests.support.onnx_model import logistic_regression
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until

PAGE = (ROOT / "docs" / "guides" / "arrow-clients.md").read_text(encoding="utf-8")
ROWS, KEYS = 5003, 331
NUMBERS = range(ROWS)

COMBINED = {
    "in order": (sa.arrow.ordered_wait, {"max_concurrency": 3}),
    "in any order": (
        sa.arrow.unordered_wait,
        {"rate_limit": "90009/s", "on_error": "capture", "attempt_timeout": "23s"},
    ),
    "by key": (sa.arrow.key_ordered_wait, {"key": "n", "retry": 2}),
}


def example(client: str, needs: str, addresses: dict[str, str]) -> dict[str, Any]:
    """Returns what an example of the page defines, with other addresses."""
    pytest.importorskip(needs)
    [block] = re.findall(rf"^```python client {client}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for address, other in addresses.items():
        assert block.count(f'"{address}"') >= 1, f"the page has no {address}"
        block = block.replace(f'"{address}"', repr(other))
    found: dict[str, Any] = {"__name__": "example"}
    exec(block, found)  # noqa: S102 - our own
    return found


def rows_of(out: sa.arrow.Batches, *columns: str) -> list[tuple[Any, ...]]:
    """Returns the rows by their numbers; none failed."""
    table = out.to_table()
    if "error" in table.column_names:
        assert table["error"].null_count == table.num_rows, table["error"].drop_null()[:1]
    assert table.num_rows == ROWS
    values = [table[name].to_pylist() for name in ("n", *columns)]
    return sorted(zip(*values, strict=True))


def keyed(name: str, keys: list[Any]) -> list[pa.RecordBatch]:
    """Returns rows with these keys, in batches that no call has the length of."""
    return pa.table({"n": NUMBERS, name: keys}).to_batches(max_chunksize=613)


# Keys come more than once, are not there, and are null.
IDS = [None if n % 13 == 5 else (n * 7919) % (KEYS + 70) for n in NUMBERS]


@pytest.fixture(scope="module")
def customers() -> Iterator[PostgresServer]:
    with PostgresServer() as postgres:
        postgres.run(
            "create table customers (id int primary key, name text, tier int);"
            " create table orders (n int, id int)"
        )
        rows = [(i, f"customer {i}", i % 7) for i in range(KEYS)]
        with psycopg.connect(postgres.dsn) as connection, connection.cursor() as cursor:
            cursor.executemany("insert into customers values (%s, %s, %s)", rows)
            cursor.executemany("insert into orders values (%s, %s)", enumerate(IDS))
        yield postgres


@pytest.fixture
def customer(customers, monkeypatch) -> type[sa.AsyncFunction]:
    monkeypatch.setenv("PG_DSN", customers.dsn)
    return example("adbc", "adbc_driver_postgresql", {})["Customer"]


def joined(customers: PostgresServer) -> list[tuple[Any, ...]]:
    with psycopg.connect(customers.dsn) as connection:
        return connection.execute(
            "select n, name, tier from orders left join customers using (id) order by n"
        ).fetchall()


@pytest.mark.parametrize(("wait", "options"), COMBINED.values(), ids=COMBINED)
def test_adbc_finds_what_a_join_of_the_server_finds(customers, customer, wait, options):
    found = rows_of(wait(keyed("id", IDS), customer(), **options), "name", "tier")

    assert found == joined(customers)
    assert sum(name is None for _, name, _ in found) > ROWS // 13


# Of the calls, whose connections have had a query.
CONNECTIONS = "from pg_stat_activity where query like '%ordinality%' and pid <> pg_backend_pid()"


def test_adbc_has_no_more_connections_than_threads_and_closes_them(customers, customer):
    counts = []

    def connections():
        return int(customers.run(f"select count(*) {CONNECTIONS}"))

    class Watched(customer):
        def close(self):
            counts.append(connections())
            super().close()

    # The server notices by itself that a client has gone.
    wait_until(lambda: not connections())
    sa.arrow.unordered_wait(keyed("id", IDS), Watched()).to_table()
    assert 1 <= counts[0] <= customer.threads
    wait_until(lambda: not connections())


def test_adbc_makes_another_connection_after_the_server_has_closed_one(customers, customer):
    from adbc_driver_postgresql import dbapi

    called = threading.Event()

    class Watched(customer):
        def async_invoke_batch(self, rows):
            found = super().async_invoke_batch(rows)
            called.set()
            return found

    def interrupted():
        first, *rest = keyed("id", IDS)
        yield first
        assert called.wait(20)
        customers.run(f"select pg_terminate_backend(pid) {CONNECTIONS}")
        yield from rest

    retry = sa.retry.fixed_delay(7, "1ms", if_exception=dbapi.OperationalError, budget=None)
    out = sa.arrow.ordered_wait(interrupted(), Watched(), retry=retry)
    assert rows_of(out, "name", "tier") == joined(customers)


@pytest.mark.parametrize(("wait", "options"), COMBINED.values(), ids=COMBINED)
def test_duckdb_finds_what_its_own_join_finds(tmp_path: Path, wait, options):
    path = str(tmp_path / "prices.duckdb")
    function = example("duckdb", "duckdb", {"prices.duckdb": path})["Price"]
    import duckdb

    skus = [None if key is None else f"sku {key}" for key in IDS]
    with duckdb.connect(path) as database:
        database.execute(
            f"create table prices as select 'sku ' || i sku, i / 8 price from range({KEYS}) t(i)"  # noqa: S608
        )
        orders = pa.table({"n": NUMBERS, "sku": skus})
        whole = database.sql(
            "select n, price from orders left join prices using (sku) order by n"
        ).fetchall()
        assert orders.num_rows == len(whole)

    assert rows_of(wait(keyed("sku", skus), function(), **options), "price") == whole
    assert sum(price is not None for _, price in whole) > ROWS // 2


@pytest.mark.parametrize(("wait", "options"), COMBINED.values(), ids=COMBINED)
def test_lance_takes_the_rows_that_are_in_the_whole_table(tmp_path: Path, wait, options):
    path = str(tmp_path / "documents.lance")
    function = example("lance", "lance", {"s3://bucket/documents.lance": path})["Document"]
    import lance

    titles = [None if i % 17 == 3 else f"title {i}" for i in range(KEYS)]
    table = pa.table({"title": titles, "length": range(KEYS), "body": ["x" * 97] * KEYS})
    lance.write_dataset(table, path, max_rows_per_file=61)
    wanted = [(n * 7919) % KEYS for n in NUMBERS]

    found = rows_of(wait(keyed("row", wanted), function(), **options), "title", "length")

    whole = lance.dataset(path).to_table()
    assert found == [
        (n, whole["title"][row].as_py(), whole["length"][row].as_py())
        for n, row in enumerate(wanted)
    ]


WEIGHTS, BIAS = [0.03125, -0.5], 0.75


@pytest.mark.parametrize(("wait", "options"), COMBINED.values(), ids=COMBINED)
def test_a_model_says_of_each_row_what_it_says_of_all_at_once(tmp_path: Path, wait, options):
    path = tmp_path / "churn.onnx"
    path.write_bytes(logistic_regression("features", "churn", WEIGHTS, BIAS))
    names = example("model", "onnxruntime", {"churn.onnx": str(path)})
    ages = np.array([(n * 7919) % 97 for n in NUMBERS], dtype=np.int32)
    visits = np.array([n % 13 for n in NUMBERS], dtype=np.float64)
    rows = pa.table({"n": NUMBERS, "age": ages, "visits": visits}).to_batches(max_chunksize=613)

    found = rows_of(wait(rows, names["Churn"](), **options), "churn")

    features = np.column_stack([ages, visits]).astype(np.float32)
    (whole,) = asyncio.run(names["load"]()).run(["churn"], {"features": features})
    by_hand = 1 / (1 + np.exp(-(features @ np.array(WEIGHTS) + BIAS)))
    assert [n for n, _ in found] == list(NUMBERS)
    for expected, tolerance in ((whole[:, 0], 1e-6), (by_hand, 1e-5)):
        np.testing.assert_allclose([churn for _, churn in found], expected, rtol=tolerance)
