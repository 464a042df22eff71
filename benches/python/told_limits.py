# SPDX-License-Identifier: Apache-2.0
"""Requests and tokens per time of an account that somebody else uses half of: what is refused?

A server on the loopback interface with a bucket of 200 requests a second and one of 20 000 tokens,
each full after 5 s. It says in its headers what is left of them, as OpenAI's does, and answers
after 20-80 ms. A second client takes half of what the scarcer one has. No Spark; `sa.http` with 50
calls at a time and both limits, for 25 s. Compared is the same without the headers.

Counted is what the server sees from second 5 on. Goals: at most 1 % of the requests are refused,
and at least 0.9 of the tokens are used.
"""

from __future__ import annotations

import asyncio
import random
from time import monotonic

import pyarrow as pa
from figures import Figure, Settings
from http_server import Answer, serve

import sparkawait as sa
import sparkawait.arrow

REQUESTS = 200
TOKENS = 20_000
WHOLE = 5.0
"""Seconds in which a bucket is filled."""
TOKENS_OF_CALL = (50, 350)
FIRST = 5.0
RETRY = sa.retry.exponential_backoff(1_000, "50ms", "1s")
LIMITS = [
    sa.RateLimit(f"{REQUESTS}/s", burst=REQUESTS // 10, name="requests"),
    sa.RateLimit(f"{TOKENS}/s", burst=TOKENS // 10, cost="tokens", name="tokens"),
]


class Bucket:
    """What is left of a limit."""

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self.left = self.whole = per_second * WHOLE
        self.used = 0.0
        self._since = monotonic()

    def look(self) -> None:
        """Fills it up to now."""
        now = monotonic()
        self.left = min(self.whole, self.left + (now - self._since) * self.per_second)
        self._since = now

    def take(self, cost: float) -> None:
        """Takes what is there."""
        self.left -= cost
        self.used += cost

    def headers(self, name: str) -> dict[str, str]:
        """Returns what is told of it."""
        reset = (self.whole - self.left) / self.per_second
        return {
            f"x-ratelimit-limit-{name}": str(int(self.whole)),
            f"x-ratelimit-remaining-{name}": str(int(self.left)),
            f"x-ratelimit-reset-{name}": f"{reset * 1000:.0f}ms",
        }


class Account:
    """The limits of an account, whose second client takes half."""

    def __init__(self, tells: bool) -> None:  # noqa: FBT001 - of two variants
        self.tells = tells
        self.requests, self.tokens = Bucket(REQUESTS), Bucket(TOKENS)
        self.calls = self.refused = 0
        self.other: asyncio.Task[None] | None = None

    def take(self, tokens: int) -> bool:
        """Takes what a call costs, if that is there."""
        self.requests.look()
        self.tokens.look()
        is_there = self.requests.left >= 1 and self.tokens.left >= tokens
        if is_there:
            self.requests.take(1)
            self.tokens.take(tokens)
        return is_there

    async def answer(self, path: str) -> Answer:
        """Answers a request, which names its tokens."""
        if self.other is None:
            self.other = asyncio.get_running_loop().create_task(self.use())
        self.calls += 1
        is_there = self.take(int(path.rsplit("/", 1)[1]))
        headers = {**self.requests.headers("requests"), **self.tokens.headers("tokens")}
        headers = headers if self.tells else {}
        if not is_there:
            self.refused += 1
            return 429, {**headers, "retry-after-ms": "100"}, b"{}"
        await asyncio.sleep(random.uniform(0.02, 0.08))
        return 200, headers, b'{"v": 1}'

    async def use(self) -> None:
        """Calls as the second client."""
        mean = sum(TOKENS_OF_CALL) / 2 / (TOKENS / 2)
        due = monotonic()
        while True:
            due += random.expovariate(1 / mean)
            await asyncio.sleep(max(0.0, due - monotonic()))
            self.take(random.randint(*TOKENS_OF_CALL))


def run(seconds: float, *, tells: bool) -> tuple[float, float]:
    """Returns the part of the tokens that was used, and the percentage that was refused."""
    account = Account(tells)
    with serve(account.answer) as url:
        function = sa.http.get(f"{url}/{{tokens}}", "v bigint", client=sa.http.Client(proxy=False))
        batch = pa.record_batch({"tokens": [random.randint(*TOKENS_OF_CALL) for _ in range(50)]})
        began, first = monotonic(), None
        rows = iter(lambda: batch if monotonic() < began + FIRST + seconds else None, None)
        options = {"retry": RETRY, "rate_limit": LIMITS, "max_concurrency": 50}
        for _ in sparkawait.arrow.unordered_wait(rows, function, timeout="60s", **options):
            if first is None and monotonic() >= began + FIRST:
                left = account.tokens.left
                first = monotonic(), account.calls, account.refused, account.tokens.used, left
        then = monotonic()
    assert first is not None  # noqa: S101 - the input lasts longer than that
    since, calls, refused, used, left = first
    had = left + (then - since) * TOKENS
    refused, calls = account.refused - refused, account.calls - calls
    return (account.tokens.used - used) / had, 100 * refused / max(calls, 1)


def figures(settings: Settings) -> list[Figure]:
    """Runs it with the headers and without."""
    seconds = 5.0 if settings.quick else 20.0
    found: list[Figure] = []
    for tells in (True, False):
        used, refused = run(seconds, tells=tells)
        name = f"limits that are shared, {'told' if tells else 'not told'} what is left"
        goals = (1.0, 0.9) if tells else (None, None)
        found += [
            Figure(f"{name}, refused", "%", [refused], "", [], goals[0], False, True),  # noqa: FBT003
            Figure(f"{name}, tokens used", "of them", [used], "", [], goals[1], of_ratio=False),
        ]
    return found
