# SPDX-License-Identifier: Apache-2.0
"""The function that Python peers call for every row, as a coroutine and as a blocking function.

A simulated call gives ``3 * id + 1``; a call over HTTP gives what the server has for the row's key.
With each result comes the time at which its call began.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from benches.compare.workloads import KEYS, TABLE_SIZE, Service, by_name

if TYPE_CHECKING:
    import aiohttp
    import requests

__all__ = [
    "TABLE",
    "Call",
    "address_of",
    "blocking_call",
    "coroutine_call",
    "is_too_many",
    "servers",
    "session",
    "value_of",
]

Call = tuple[int | None, int]
"""A result, and when its call began in nanoseconds."""

TABLE = "prices"
"""The table of the HTTP server."""

TOO_MANY = 429
_MASK = TABLE_SIZE - 1

_sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()


def value_of(key: int) -> int:
    """Returns what the server has for a key."""
    return 7 * key + 3


def is_too_many(status: int) -> bool:
    """Tells whether the server asked to come back later."""
    return status == TOO_MANY


def servers(url: str) -> tuple[str, str]:
    """Returns the addresses of the server that answers and of the one that does not.

    Args:
        url: As of `Job`.
    """
    answering, _, silent = url.partition(" ")
    return answering, silent


def address_of(service: Service, url: str) -> Callable[[int], str]:
    """Returns where the row of an id is looked up; `url` is as of `Job`."""
    answering, silent = servers(url)

    def address(row: int) -> str:
        return f"{answering if service.answers(row) else silent}/{TABLE}/{row % KEYS}"

    return address


@lru_cache(maxsize=4)
def coroutine_call(workload: str, url: str) -> Callable[[int], Awaitable[Call]]:
    """Returns the function as a coroutine, made once per process."""
    work = by_name(workload)
    if work.service is not None:
        return _http_call(address_of(work.service, url), work.calls, work.timeout)
    if work.delays is None:
        return _at_once
    table = work.delays.table()

    async def later(row: int) -> Call:
        began = time.monotonic_ns()
        await asyncio.sleep(table[row & _MASK])
        return 3 * row + 1, began

    return later


async def _at_once(row: int) -> Call:
    return 3 * row + 1, time.monotonic_ns()


def session(connections: int) -> aiohttp.ClientSession:
    """Returns the session of the running event loop, as the documentation of aiohttp advises."""
    import aiohttp

    loop = asyncio.get_running_loop()
    if loop not in _sessions:
        connector = aiohttp.TCPConnector(limit=connections)
        _sessions[loop] = aiohttp.ClientSession(connector=connector)
    return _sessions[loop]


def _http_call(
    address: Callable[[int], str], connections: int, timeout: float
) -> Callable[[int], Awaitable[Call]]:
    """A call with a timeout for all attempts, that waits as long as a 429 says and tries again."""

    async def attempts(row: int) -> int:
        while True:
            async with session(connections).get(address(row)) as response:
                if not is_too_many(response.status):
                    return (await response.json())["value"]
                seconds = float(response.headers["Retry-After"])
            await asyncio.sleep(seconds)

    async def call(row: int) -> Call:
        began = time.monotonic_ns()
        try:
            return await asyncio.wait_for(attempts(row), timeout), began
        except (TimeoutError, asyncio.TimeoutError):
            return None, began

    return call


@lru_cache(maxsize=4)
def blocking_call(workload: str, url: str) -> Callable[[int], Call]:
    """Returns the function as one that blocks its thread, made once per process."""
    work = by_name(workload)
    if work.service is not None:
        return _requests_call(address_of(work.service, url), work.calls, work.timeout)
    table = work.delays.table() if work.delays is not None else None

    def call(row: int) -> Call:
        began = time.monotonic_ns()
        if table is not None:
            time.sleep(table[row & _MASK])
        return 3 * row + 1, began

    return call


def _requests_call(
    address: Callable[[int], str], connections: int, timeout: float
) -> Callable[[int], Call]:
    client = _requests_session(connections)

    def call(row: int) -> Call:
        began = time.monotonic_ns()
        while (left := timeout - (time.monotonic_ns() - began) / 1e9) > 0:
            try:
                response = client.get(address(row), timeout=left)
            except OSError:  # also the timeouts of requests
                break
            if not is_too_many(response.status_code):
                return response.json()["value"], began
            time.sleep(float(response.headers["Retry-After"]))
        return None, began

    return call


def _requests_session(connections: int) -> requests.Session:
    import requests
    from requests.adapters import HTTPAdapter

    client: Any = requests.Session()
    client.mount("http://", HTTPAdapter(pool_connections=1, pool_maxsize=connections))
    client.trust_env = False
    return client
