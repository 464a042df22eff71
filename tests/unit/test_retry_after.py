# SPDX-License-Identifier: Apache-2.0
"""When a service asks to be called again, as the exceptions of its clients tell."""

import asyncio
import email.message
import http.client
import time
import urllib.error
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from types import SimpleNamespace

import aiohttp
import pyarrow as pa
import pytest
from aiohttp import web
from multidict import CIMultiDict

from sparkawait import RetryAfter, arrow, async_function, retry
from sparkawait._core import header_seconds
from sparkawait.retry import announced_delay, announced_pause, plain_headers


class HTTPStatusError(Exception):
    """As those of httpx, requests and openai."""

    def __init__(self, headers):
        super().__init__("429")
        self.response = SimpleNamespace(headers=headers, status_code=429)


class ClientError(Exception):
    """As that of botocore."""

    def __init__(self, headers):
        super().__init__("throttled")
        self.response = {"ResponseMetadata": {"HTTPHeaders": headers, "HTTPStatusCode": 429}}


class Headers(dict):
    """As those of clients: items in the case that the server sent."""


def of_aiohttp(headers):
    return aiohttp.ClientResponseError(None, (), status=429, headers=headers)


def of_urllib(headers):
    message = email.message.Message()
    for name, value in headers.items():
        message[name] = value
    return urllib.error.HTTPError("http://localhost", 429, "slow down", message, None)


CLIENTS = [HTTPStatusError, ClientError, of_aiohttp, of_urllib]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
@pytest.mark.parametrize(
    ("headers", "delay"),
    [
        ({"Retry-After": "7"}, 7),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0),
        ({"Retry-After-Ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After-Ms": "soon", "Retry-After": "1"}, 1),
        ({"X-RateLimit-Remaining-Tokens": "0", "X-RateLimit-Reset-Tokens": "1m0.5s"}, 60.5),
        ({"X-RateLimit-Remaining-Tokens": "9", "X-RateLimit-Reset-Tokens": "1m0.5s"}, None),
        ({"X-Name": "caf\udce9", "Retry-After": "3"}, 3),
        ({"RateLimit": '"default";r=0;t=30'}, 30),
        ({}, None),
    ],
    ids=repr,
)
def test_the_header_of_a_response_is_found(client, headers, delay):
    assert announced_delay(client(Headers(headers))) == delay


def test_a_date_is_so_many_seconds_from_now():
    date = datetime.now(timezone.utc) + timedelta(hours=1)
    assert header_seconds(format_datetime(date, usegmt=True)) == pytest.approx(3600, abs=60)


def test_a_limit_that_is_used_up_is_no_reason_to_wait_after_another_failure():
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "30"}
    error = HTTPStatusError(headers)
    error.response.status_code = 500
    assert announced_delay(error) is None


@pytest.mark.parametrize("left", ["0", "1"])
def test_who_has_used_up_a_limit_may_be_forbidden_to_call(left):
    error = HTTPStatusError({"X-RateLimit-Remaining": left, "X-RateLimit-Reset": "30"})
    error.response.status_code = 403
    told = None if left == "1" else 30
    assert (announced_delay(error), announced_pause(error)) == (told, told)


@pytest.mark.parametrize("parts", [http.client.HTTPMessage, CIMultiDict])
def test_what_comes_in_parts_is_put_together(parts):
    headers = parts()
    for name, part in (
        ("RateLimit", '"m";r=50;t=30'),
        ("Date", "now"),
        ("ratelimit", '"d";r=0;t=9'),
    ):
        headers.add(name, part) if parts is CIMultiDict else headers.add_header(name, part)
    assert plain_headers(headers) == {"ratelimit": '"m";r=50;t=30, "d";r=0;t=9', "date": "now"}
    assert announced_delay(HTTPStatusError(headers)) == 9


class NoResponseError(Exception):
    response = None


class BrokenError(Exception):
    @property
    def response(self):
        msg = "there is none"
        raise RuntimeError(msg)


@pytest.mark.parametrize(
    "error",
    [ValueError(), NoResponseError(), BrokenError(), of_aiohttp(None), HTTPStatusError(5)],
    ids=repr,
)
def test_what_tells_of_no_header_has_no_delay(error):
    assert announced_delay(error) is None


def test_what_the_function_raises_itself_goes_first():
    strategy = retry.fixed_delay(1, "1s")
    error = RetryAfter("3s")
    error.response = SimpleNamespace(headers={"Retry-After": "9"})
    assert strategy.delay_after(error) == 3
    assert strategy.delay_after(HTTPStatusError({"Retry-After": "9"})) == 9
    assert strategy.delay_after(OSError()) is None


@pytest.mark.parametrize(
    ("status", "pauses"), [(429, True), (503, True), (500, False), (409, False)]
)
def test_a_service_that_has_too_much_to_do_pauses_its_channel(session, rows, status, pauses):
    @async_function("y int")
    async def throttled(row):
        error = HTTPStatusError({"Retry-After": "9"})
        error.response.status_code = status
        raise error

    # Whether or not the row is to be tried again.
    for options in ({}, {"retry": retry.fixed_delay(1, "1s")}):
        port = session(throttled, **options).run(*rows(1))
        assert port.pauses == ({0: 9.0} if pauses else {})


def test_what_the_function_raises_itself_says_whether_the_channel_pauses(session, rows):
    @async_function("y int")
    async def throttled(row):
        error = RetryAfter("3s", channel=row["x"] == 0)
        error.response = SimpleNamespace(headers={"Retry-After": "9"}, status_code=429)
        raise error

    port = session(throttled).run(*rows(2))
    assert port.pauses == {0: 3.0}


def test_no_call_starts_in_the_pause_that_a_function_asks_for():
    starts = []

    @async_function("y int")
    async def once(row):
        starts.append((time.monotonic(), row["x"]))
        if len(starts) == 1:
            raise RetryAfter("300ms", channel=True)
        return {"y": row["x"]}

    batch = pa.record_batch({"x": [*range(50)]})
    strategy = retry.fixed_delay(1, "1ms")
    out = arrow.ordered_wait([batch], once, retry=strategy, max_concurrency=1)
    assert pa.Table.from_batches(out)["y"].to_pylist() == [*range(50)]
    assert [x for _, x in starts[:3]] == [0, 0, 1]
    assert starts[1][0] - starts[0][0] >= 0.3


def test_the_delay_reaches_the_operator_where_a_retry_is_wanted(session, rows):
    @async_function("y int")
    async def throttled(row):
        raise HTTPStatusError({"Retry-After": "9"}) if row["x"] == 0 else ValueError

    strategy = retry.fixed_delay(1, "1s", if_exception=HTTPStatusError)
    port = session(throttled, retry=strategy).run(*rows(2))
    assert [port.failures[i][2:] for i in (0, 1)] == [(True, 9.0), (False, None)]


def test_the_exception_of_a_real_client_is_read():
    async def refuse(request):
        raise web.HTTPTooManyRequests(headers={"Retry-After": "4"})

    async def ask():
        app = web.Application()
        app.router.add_get("/", refuse)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            async with aiohttp.ClientSession() as client:
                port = runner.addresses[0][1]
                async with client.get(f"http://127.0.0.1:{port}/") as response:
                    response.raise_for_status()
        finally:
            await runner.cleanup()

    with pytest.raises(aiohttp.ClientResponseError) as info:
        asyncio.run(ask())
    assert (announced_delay(info.value), announced_pause(info.value)) == (4, 4)
