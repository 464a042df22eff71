# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownArgumentType=false
"""The job: flights in, flights with weather and aircraft out. All that a user has to write.

What is called for every flight is one lookup for the weather and one for the aircraft: natively
over HTTP, in Redis or in PostgreSQL, or by a coroutine over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import aiohttp
import pyarrow as pa
from pyspark.sql import DataFrame

import sparkawait as sa
from sparkawait._flights.data import AIRCRAFT, WEATHER
from sparkawait._flights.settings import Mode
from sparkawait.functions import AsyncFunction, FunctionContext, NativeFunction, Row
from sparkawait.secrets import Secret

HELD_PER_CALL = {"ordered": 100, "unordered": 2}
"""Rows held for each call in flight. A straggler keeps those behind it from leaving in the ordered
mode; with room to hold them, it does not keep further calls from being made. In a chain, a row
that one lookup has answered needs room until the next one can begin with it."""


def enrich(
    flights: DataFrame,
    mode: Mode,
    lookups: Sequence[AsyncFunction | NativeFunction],
    max_concurrency: int,
    metrics: sa.Metrics | None = None,
    *,
    carry_over: sa.CarryOver | None = None,
) -> DataFrame:
    """Returns `flights` with the weather and the aircraft of each.

    Args:
        flights: The flights.
        mode: Whether rows leave in the order in which they came.
        lookups: What is called for every flight, one after the other, in one Python worker.
        max_concurrency: Calls in flight per task and lookup.
        metrics: Takes the metrics of all tasks.
        carry_over: How rows of a stream outlive their micro-batch, if they do.
    """
    wait = sa.ordered_wait if mode == "ordered" else sa.unordered_wait
    for number, lookup in enumerate(lookups):
        flights = wait(
            flights,
            lookup,
            chain=number > 0,
            max_concurrency=max_concurrency,
            capacity=HELD_PER_CALL[mode] * max_concurrency,
            timeout="10 min",
            attempt_timeout="30s",
            retry=sa.retry.exponential_backoff(5, "50ms", "2s"),
            metrics=metrics,
            carry_over=carry_over if number == 0 else None,
        )
    return flights


_NOT_FOUND = 404


def http_lookups(url: str) -> list[NativeFunction]:
    """Returns the two lookups over HTTP, which need no Python for a row.

    What the service does not know is null.

    Args:
        url: Where the service is.
    """
    return [
        sa.http.get(
            f"{url}/weather/{{origin}}/{{time_hour}}", WEATHER, client=sa.http.Client(proxy=False)
        ),
        sa.http.get(f"{url}/aircraft/{{tailnum}}", AIRCRAFT, client=sa.http.Client(proxy=False)),
    ]


def redis_lookups(url: Secret, prefix: str) -> list[NativeFunction]:
    """Returns the two lookups in Redis, whose values are JSON documents.

    Args:
        url: The server.
        prefix: What the keys begin with.
    """
    return [
        sa.redis.json(url, f"{prefix}weather:{{origin}}/{{time_hour}}", schema=WEATHER),
        sa.redis.json(url, f"{prefix}aircraft:{{tailnum}}", schema=AIRCRAFT),
    ]


def postgres_lookups(url: Secret, schema: str) -> list[NativeFunction]:
    """Returns the two lookups in PostgreSQL, by primary key.

    Args:
        url: The database.
        schema: Where the tables are.
    """
    weather = f"select {', '.join(WEATHER.names)} from {schema}.weather"  # noqa: S608 - our names
    aircraft = f"select {', '.join(AIRCRAFT.names)} from {schema}.aircraft"  # noqa: S608
    return [
        sa.postgres.lookup(
            url,
            f"{weather} where origin = $1 and time_hour = $2",
            args=["origin", "time_hour"],
            schema=WEATHER,
        ),
        sa.postgres.lookup(
            url, f"{aircraft} where tailnum = $1", args=["tailnum"], schema=AIRCRAFT
        ),
    ]


class FlightLookup(sa.AsyncFunction):
    """Looks up the weather and the aircraft of a flight, at the same time, by a coroutine.

    What the service does not know is null. Any other status than 404 fails the call, and it is up
    to the operator to make it again.

    Args:
        url: Where the service is.
    """

    schema = pa.schema([*WEATHER, *AIRCRAFT])

    def __init__(self, url: str) -> None:
        """Connects to nothing: this is the driver."""
        self.url = url

    async def open(self, context: FunctionContext) -> None:
        """Makes the session, without a limit of its own: `max_concurrency` is the limit."""
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def async_invoke(self, row: Row) -> dict[str, Any]:
        """Returns the weather at the origin in the hour of departure, and the aircraft."""
        weather, aircraft = await asyncio.gather(
            self.get("weather", f"{row['origin']}/{row['time_hour']}", WEATHER),
            self.get("aircraft", row["tailnum"], AIRCRAFT),
        )
        return weather | aircraft

    async def get(self, table: str, key: str | None, columns: pa.Schema) -> dict[str, Any]:
        """GETs what `table` has under `key`; an unknown key has nulls in all `columns`."""
        if key is None:
            return dict.fromkeys(columns.names)
        async with self.session.get(f"{self.url}/{table}/{key}") as response:
            if response.status == _NOT_FOUND:
                return dict.fromkeys(columns.names)
            response.raise_for_status()
            return await response.json()

    async def close(self) -> None:
        """Closes the connections."""
        await self.session.close()
