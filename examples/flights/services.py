# SPDX-License-Identifier: Apache-2.0
# asyncpg has no types, and PyArrow's stubs leave much of its types open:
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What is asked: an embedded `LookupServer`, a service that runs elsewhere, or a store."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import NormalDist
from typing import Any, cast
from urllib.error import HTTPError, URLError
from urllib.request import urlopen
from uuid import uuid4

import pyarrow as pa

import sparkawait as sa
from sparkawait._flights.data import Dataset
from sparkawait._flights.job import http_lookups, postgres_lookups, redis_lookups
from sparkawait._flights.settings import DemoError, Settings
from sparkawait.exceptions import how_to_install
from sparkawait.functions import NativeFunction
from sparkawait.secrets import Secret
from sparkawait.testing import LookupServer
from sparkawait.testing.services import Latency

_CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Service:
    """Where the lookups go.

    Attributes:
        name: What it is called.
        lookups: The weather and the aircraft of a flight, natively.
        url: Address of an HTTP service, without a slash at the end; else ``None``.
        mean_latency: Mean time of a call in seconds, if it is known beforehand.
        mean_latency_of_two: Mean time of two calls that are made at once.
    """

    name: str
    lookups: Sequence[NativeFunction]
    url: str | None = None
    mean_latency: float | None = None
    mean_latency_of_two: float | None = None

    def stats(self) -> dict[str, int] | None:
        """Returns the service's counters, or ``None`` if it is no `LookupServer`."""
        if self.url is None:
            return None
        try:
            with _open(f"{self.url}/-/stats") as response:
                counters: object = json.load(response)
        except (OSError, ValueError):
            return None
        is_ours = isinstance(counters, dict) and "requests" in counters
        return cast("dict[str, int]", counters) if is_ours else None


@contextmanager
def serve(settings: Settings, dataset: Dataset) -> Generator[Service]:
    """Yields the HTTP service that the settings name; one of our own lives as long as the body.

    Raises:
        DemoError: If a service elsewhere cannot be reached.
    """
    if settings.url is not None:
        _check_reachable(settings.url)
        url = settings.url.rstrip("/")
        yield Service(url, http_lookups(url), url)
        return
    latency = settings.distribution
    tables = dataset.served()
    with LookupServer(tables, latency=latency, error_rate=settings.error_rate) as server:
        means = mean_of_one(latency), mean_of_two(latency)
        yield Service(server.url, http_lookups(server.url), server.url, *means)


def mean_of_one(latency: Latency) -> float:
    """Returns the mean time of a call in seconds.

    Args:
        latency: A log-normal distribution.
    """
    if latency.kind != "log_normal":
        raise ValueError(latency)
    usual = latency.first * math.exp(latency.second**2 / 2)
    return usual * (1 + latency.stragglers * (latency.straggler_factor - 1))


def mean_of_two(latency: Latency) -> float:
    """Returns the mean time of two calls that are made at once, in seconds.

    It is the mean of the later of two draws. Whether a draw is a straggler's makes three cases; in
    each, the larger of two log-normal variables has a mean in closed form.

    Args:
        latency: A log-normal distribution.
    """
    if latency.kind != "log_normal":
        raise ValueError(latency)
    usual = latency.first * math.exp(latency.second**2 / 2)
    late, share = usual * latency.straggler_factor, latency.stragglers
    return (
        (1 - share) ** 2 * _mean_of_larger(usual, usual, latency.second)
        + 2 * share * (1 - share) * _mean_of_larger(usual, late, latency.second)
        + share**2 * _mean_of_larger(late, late, latency.second)
    )


def _mean_of_larger(first: float, second: float, sigma: float) -> float:
    """Returns it for two log-normal variables with these means and one `sigma`."""
    if not sigma:
        return max(first, second)
    spread = sigma * math.sqrt(2)
    distance = math.log(first / second) / spread
    below = NormalDist().cdf
    return first * below(distance + spread / 2) + second * below(spread / 2 - distance)


def _check_reachable(url: str) -> None:
    try:
        _open(url).close()
    except HTTPError:
        pass  # an answer all the same
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise DemoError(f"`{url}` cannot be reached: {reason}") from error


def _open(url: str) -> Any:
    return urlopen(url, timeout=_CONNECT_SECONDS)  # noqa: S310 - the user names the address


# -- the tables of the demo in a Redis server: JSON documents under a prefix of their own.
#
# They are removed when the demo ends, and expire after a day if it does not get that far.

_EXPIRES_SECONDS = "86400"
_CALLS = 10_000


@contextmanager
def redis_store(url: Secret, dataset: Dataset) -> Generator[Service]:
    """Yields a server that has the tables as long as the body runs.

    Raises:
        DemoError: If it cannot be written to.
    """
    prefix = f"sparkawait-demo:{uuid4().hex}:"
    documents = _documents(dataset)
    _send(url, documents, "SET", prefix + "{key}", "{document}", "EX", _EXPIRES_SECONDS)
    try:
        yield Service("Redis", redis_lookups(url, prefix))
    finally:
        _send(url, documents, "UNLINK", prefix + "{key}")


def _documents(dataset: Dataset) -> pa.RecordBatch:
    documents = {
        f"{table}:{key}": json.dumps(value)
        for table, values in dataset.served().items()
        for key, value in values.items()
    }
    return pa.record_batch({"key": list(documents), "document": list(documents.values())})


def _send(url: Secret, rows: pa.RecordBatch, *command: str) -> None:
    try:
        function = sa.redis.command(url, *command, schema="reply string", writes=True)
        for _ in sa.arrow.unordered_wait([rows], function, max_concurrency=_CALLS):
            pass
    except sa.AsyncIOError as error:
        raise DemoError(f"the tables cannot be written to Redis: {error}") from error


# -- the tables of the demo in a PostgreSQL database, in a schema of their own.
#
# The schema is dropped when the demo ends. A demo that is killed leaves it:
# ``sparkawait_demo_..``.

_SQL_TYPES = {pa.float64(): "double precision", pa.int64(): "bigint", pa.string(): "text"}
_KEYS = {"weather": ("origin", "time_hour"), "aircraft": ("tailnum",)}


@contextmanager
def postgres_store(url: Secret, dataset: Dataset) -> Generator[Service]:
    """Yields a database that has the tables as long as the body runs.

    Raises:
        DemoError: If it cannot be written to, or asyncpg is not installed.
    """
    if find_spec("asyncpg") is None:
        raise DemoError(f"the package `asyncpg` is missing; {how_to_install('demo')}")
    schema = f"sparkawait_demo_{uuid4().hex}"

    async def load(connection: Any) -> None:
        async with connection.transaction():
            await connection.execute(f"create schema {schema}")
            for name, keys in _KEYS.items():
                await _load_table(connection, schema, name, keys, getattr(dataset, name))

    async def drop(connection: Any) -> None:
        await connection.execute(f"drop schema {schema} cascade")

    _run_sql(url, load)
    try:
        yield Service("PostgreSQL", postgres_lookups(url, schema))
    finally:
        _run_sql(url, drop)


async def _load_table(
    connection: Any, schema: str, name: str, keys: tuple[str, ...], table: pa.Table
) -> None:
    columns = [f"{field.name} {_SQL_TYPES[field.type]}" for field in table.schema]
    primary = f"primary key ({', '.join(keys)})"
    await connection.execute(f"create table {schema}.{name} ({', '.join(columns)}, {primary})")
    records = zip(*(column.to_pylist() for column in table.columns), strict=True)
    await connection.copy_records_to_table(
        name, schema_name=schema, columns=table.column_names, records=records
    )
    await connection.execute(f"analyze {schema}.{name}")


def _run_sql(url: Secret, work: Callable[[Any], Any]) -> None:
    import asyncpg

    async def connected() -> None:
        connection: Any = await asyncpg.connect(url.reveal())
        try:
            await work(connection)
        finally:
            await connection.close()

    try:
        asyncio.run(connected())
    except ValueError:
        # The message may quote parts of the address.
        raise DemoError("the address of PostgreSQL is not one that asyncpg can read") from None
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise DemoError(f"the tables cannot be written to PostgreSQL: {error}") from error
