# SPDX-License-Identifier: Apache-2.0
"""What good replies say of the limits of their service keeps calls from being refused."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.options import resolve_unpickled
from sparkawait.function_context import FunctionContext
from tests.support.scripted_server import Answer, ScriptedServer

MOST = 6
ROWS = MOST + 2
WINDOW = 1.0


class Windows:
    """A service that takes a rest after so many requests, or tokens, and says so."""

    def __init__(self, counted: str, cost: int) -> None:
        self._suffix = counted
        self._cost = cost
        self._left = MOST * cost
        self._ends = float("inf")
        self._lock = threading.Lock()

    def answer(self, _: str, __: int) -> Answer:
        with self._lock:
            now = time.monotonic()
            if now >= self._ends:
                self._left, self._ends = MOST * self._cost, float("inf")
            is_refused = self._left < self._cost
            self._left -= 0 if is_refused else self._cost
            if self._left < self._cost:
                self._ends = min(self._ends, now + WINDOW)
            headers = {
                f"x-ratelimit-remaining{self._suffix}": str(self._left),
                f"x-ratelimit-reset{self._suffix}": f"{min(self._ends - now, WINDOW):.6f}",
            }
        return (429, headers, b"{}") if is_refused else (200, headers, b'{"seen": 1}')


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


def run(windows: Windows, limit: sa.RateLimit, **options: object) -> tuple[int, int]:
    """Returns the rows that were answered, and the requests that this took."""
    with ScriptedServer(windows.answer) as server:
        function = sa.http.get(f"{server.url}/{{id}}", "seen int", proxy=False)
        return answered(function, limit, **options), len(server.requests)


def answered(function: object, limit: sa.RateLimit, **options: object) -> int:
    """Returns how many rows were answered."""
    options = {"retry": sa.retry.fixed_delay(50, "20ms"), "timeout": "60s", **options}
    # Replies to calls that overlap may be served in another order than they were made.
    options |= {"max_concurrency": 1, "rate_limit": limit}
    plan = resolve_unpickled("unordered", function, input_schema=None, **options)
    out = arrow.run(plan, iter([pa.record_batch({"id": range(ROWS)})]))
    return sum(part.num_rows for part in out)


@pytest.mark.parametrize(
    ("counted", "cost", "scope", "channels"),
    [
        ("", 1, "task", {}),
        ("", 1, "host", {"channel": "id"}),
        ("", 1, "task", {"channel": "id", "channels": sa.Channels()}),
        ("-tokens", 50, "task", {"channel": "id"}),
        ("-tokens", 50, "host", {}),
    ],
)
def test_what_is_left_of_a_limit_lowers_the_one_that_stands_for_it(counted, cost, scope, channels):
    # It comes back too slowly to be counted on.
    limit = sa.RateLimit("20/s", 100_000, cost, scope, name=f"told {counted} {sorted(channels)}")
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
