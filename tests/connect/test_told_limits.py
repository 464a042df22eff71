# SPDX-License-Identifier: Apache-2.0
"""What good replies say of the limits of their service keeps calls from being refused."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import aiohttp
import httpx
import pyarrow as pa
import pytest
import requests

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.functions import FunctionContext
from tests.support.scripted_server import Answer, ScriptedServer
from tests.support.windows import MOST, Windows

ROWS = MOST + 2


class Client(sa.AsyncFunction):
    """Calls it from Python."""

    schema = "seen int"

    def __init__(self, windows: Windows, *, reads: bool = True) -> None:
        self.requests = 0
        self._windows = windows
        self._reads = reads

    def open(self, context):
        self._context = context

    async def async_invoke(self, row):
        self.requests += 1
        status, headers, _ = self._windows.answer("", 0)
        if self._reads:
            self._context.read_limits(row, {it.title(): headers[it] for it in headers})
        if status == 429:
            raise ConnectionError
        return {"seen": 1}


class ManyClient(Client):
    """Calls it for some rows after one another."""

    batch = sa.Batch(max_rows=1)

    async def async_invoke_batch(self, rows):
        return [await self.async_invoke(row) for row in rows]


async def ask_httpx(url):
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.get(url)
    return response.status_code, response.headers


async def ask_aiohttp(url):
    async with aiohttp.ClientSession() as client, client.get(url) as response:
        return response.status, response.headers


async def ask_requests(url):
    response = await asyncio.to_thread(requests.get, url, timeout=20)
    return response.status_code, response.headers


async def ask_urllib(url):
    def ask():
        try:
            with urllib.request.urlopen(url, timeout=20) as response:  # noqa: S310 - of this test
                return response.status, response.headers
        except urllib.error.HTTPError as error:
            return error.code, error.headers

    return await asyncio.to_thread(ask)


class HttpClient(sa.AsyncFunction):
    """Calls it with the client of somebody else, and hands on its headers as they are."""

    schema = "seen int"

    def __init__(self, url: str, ask: object, *, reads: bool = True) -> None:
        self.url, self.ask, self.reads = url, ask, reads

    def open(self, context):
        self.context = context

    async def async_invoke(self, row):
        status, headers = await self.ask(f"{self.url}/{row['id']}")
        if self.reads:
            self.context.read_limits(row, headers)
        if status == 429:
            raise ConnectionError
        return {"seen": 1}


class ManyHttpClient(HttpClient):
    """Calls it once for some rows, of which it names the last."""

    batch = sa.Batch(max_rows=2, linger="5ms")

    async def async_invoke_batch(self, rows):
        return [await self.async_invoke(rows[-1])] * len(rows)


def run(windows: Windows, limit: sa.RateLimit, **options: object) -> tuple[int, int]:
    """Returns the rows that were answered, and the requests that this took."""
    with ScriptedServer(windows.answer) as server:
        function = sa.http.get(
            f"{server.url}/{{id}}", "seen int", client=sa.http.Client(proxy=False)
        )
        return answered(function, limit, **options), len(server.requests)


def answered(
    function: object, limit: sa.RateLimit, ids: object = range(ROWS), **options: object
) -> int:
    """Returns how many rows were answered."""
    options = {"retry": sa.retry.fixed_delay(50, "20ms"), "timeout": "60s", **options}
    # Replies to calls that overlap may be served in another order than they were made.
    options = {"max_concurrency": 1, **options, "rate_limit": limit}
    plan = resolve_unpickled("unordered", function, input_schema=None, **options)
    out = arrow.run(plan, iter([pa.record_batch({"id": ids})]))
    return sum(part.num_rows for part in out)


@pytest.mark.parametrize(
    ("counted", "cost", "scope", "channels"),
    [
        pytest.param("", 1, "task", {}, marks=pytest.mark.nightly),
        ("", 1, "host", {"channel": "id"}),
        ("", 1, "task", {"channel": sa.Channel("id", count=3)}),
        pytest.param("-tokens", 50, "task", {"channel": "id"}, marks=pytest.mark.nightly),
        pytest.param("-tokens", 50, "host", {}, marks=pytest.mark.nightly),
    ],
)
def test_what_is_left_of_a_limit_lowers_the_one_that_stands_for_it(counted, cost, scope, channels):
    # It comes back too slowly to be counted on.
    limit = sa.RateLimit("20/s", 100_000, cost, scope, name=f"told {counted} {channels}")
    rows, requests = run(Windows(counted, cost), limit, **channels)
    assert (rows, requests) == (ROWS, ROWS)


@pytest.mark.parametrize(
    ("counts", "counted", "cost"),
    [("other", "", 1), ("tokens", "", 1), (None, "-tokens", 1), (None, "", 50)],
)
def test_what_a_limit_does_not_stand_for_says_nothing_of_it(counts, counted, cost):
    limit = sa.RateLimit("100_000/s", burst=100_000, cost=cost, counts=counts)
    rows, requests = run(Windows(counted, cost), limit)
    assert rows == ROWS
    assert requests > ROWS


@pytest.mark.parametrize("client", [Client, ManyClient])
@pytest.mark.parametrize("counted", ["", "-tokens"])
def test_a_function_passes_on_what_its_service_says(client, counted):
    cost = 50 if counted else 1
    function = client(Windows(counted, cost))
    limit = sa.RateLimit("20/s", 100_000, cost)
    assert (answered(function, limit, channel="id"), function.requests) == (ROWS, ROWS)


def test_a_function_that_does_not_is_refused():
    function = Client(Windows("", 1), reads=False)
    assert answered(function, sa.RateLimit("20/s", 100_000)) == ROWS
    assert function.requests > ROWS


@pytest.mark.parametrize("ask", [ask_httpx, ask_aiohttp, ask_requests, ask_urllib])
def test_the_headers_of_clients_are_read_as_they_are(ask):
    with ScriptedServer(Windows("", 1).answer) as server:
        assert answered(HttpClient(server.url, ask), sa.RateLimit("20/s", 100_000)) == ROWS
        assert len(server.requests) == ROWS


@pytest.mark.parametrize("reads", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("kind", "rows_each", "options"),
    [
        (HttpClient, 2, {"cache": sa.Cache(key="id")}),
        (HttpClient, 1, {"timeout": "60s", "attempt_timeout": "30s"}),
        (ManyHttpClient, 2, {"rate_limit": {"per": "request"}, "max_concurrency": 2}),
    ],
)
def test_no_remark_is_lost_on_its_way(kind, rows_each, options, reads):
    options = dict(options)
    limit = sa.RateLimit("20/s", 100_000, **options.pop("rate_limit", {}))
    ids = [it // rows_each if "cache" in options else it for it in range(rows_each * ROWS)]
    with ScriptedServer(Windows("", 1).answer) as server:
        function = kind(server.url, ask_aiohttp, reads=reads)
        assert answered(function, limit, ids, **options) == len(ids)
        assert (len(server.requests) == ROWS) == reads


def test_points_in_time_are_those_of_the_clock_of_the_service():
    windows, late = Windows("", 1), timedelta(hours=1)

    def answer(target: str, before: int) -> Answer:
        status, headers, body = windows.answer(target, before)
        clock = datetime.now(timezone.utc).replace(microsecond=0) - late
        reset = clock + timedelta(seconds=1 + float(headers["x-ratelimit-reset"]))
        told = {"x-ratelimit-reset": reset.isoformat(), "Date": format_datetime(clock, usegmt=True)}
        return status, headers | told, body

    for make in (
        lambda url: sa.http.get(f"{url}/{{id}}", "seen int", client=sa.http.Client(proxy=False)),
        lambda url: HttpClient(url, ask_aiohttp),
    ):
        with ScriptedServer(answer) as server:
            assert answered(make(server.url), sa.RateLimit("20/s", 100_000)) == ROWS
            assert len(server.requests) == ROWS
        windows = Windows("", 1)


@pytest.mark.parametrize(
    ("row", "headers", "message"),
    [
        (lambda _: {}, {}, "`read_limits` takes the row of the call, got `dict`"),
        (lambda row: row, None, "`headers` of `read_limits` must map names .*, got `NoneType`"),
        (lambda row: row, [("a", "b")], "`headers` of `read_limits` must map .*, got `list`"),
    ],
)
def test_what_is_no_header_is_refused(row, headers, message):
    class Wrong(Client):
        async def async_invoke(self, called_with):
            self._context.read_limits(row(called_with), headers)
            return {"seen": 1}

    with pytest.raises(sa.AsyncFunctionError, match=message):
        answered(Wrong(Windows("", 1)), sa.RateLimit("20/s", 100_000), retry=None)


def test_without_limits_headers_say_nothing():
    context = FunctionContext(0, "f")
    context.read_limits(None, None)
    assert context.on_limits is None
