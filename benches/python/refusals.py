# SPDX-License-Identifier: Apache-2.0
"""A service that answers 429 above 2 000 requests a second: what is used of that, what is refused?

A server on the loopback interface that answers after 5 ms, from a bucket of 2 000 tokens a second,
and says ``Retry-After: 1`` where it has none. No Spark; `sa.http` with 100 calls at a time, which
would be 20 000 requests a second, and retries. Compared are a task that knows nothing, one with
``RateLimit("2000/s")`` and one with ``rate_limit="adaptive"``.

Counted is what the server sees from second 2 on: the bucket is full at first. Goals: with
`RateLimit` at least 0.99 of the limit is answered, and at most 1 % of the requests are refused;
with `"adaptive"` at most 5 % are.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import pyarrow as pa
from figures import Figure, Settings

import sparkawait as sa
from sparkawait.testing import LookupServer

LIMIT = 2_000
KEYS = 1_000
ROWS_PER_BATCH = 500
FIRST = 2.0
"""Seconds that are left out."""
RETRY = sa.retry.exponential_backoff(1_000, "50ms", "1s")
VARIANTS: dict[str, dict[str, Any]] = {
    "nothing known": {},
    "RateLimit": {"rate_limit": sa.RateLimit(f"{LIMIT}/s")},
    "adaptive": {"rate_limit": "adaptive"},
}


def run(seconds: float, **given: Any) -> tuple[float, float]:
    """Returns the answers a second, and the share of the requests that were refused."""
    tables = {"t": {str(i): {"v": i} for i in range(KEYS)}}
    with LookupServer(tables, latency="5ms", rate_limit=LIMIT) as server:
        function = sa.http.get(
            f"{server.url}/t/{{id}}", "v bigint", client=sa.http.Client(proxy=False)
        )
        batch = pa.record_batch({"id": [i % KEYS for i in range(ROWS_PER_BATCH)]})
        began = perf_counter()
        first: tuple[float, dict[str, int]] | None = None

        def endless() -> Any:
            nonlocal first
            while (now := perf_counter() - began) < FIRST + seconds:
                if now >= FIRST and first is None:
                    first = now, dict(server.stats())
                yield batch

        options: dict[str, Any] = {"retry": RETRY, "max_concurrency": 100, "capacity": 200}
        for _ in sa.arrow.unordered_wait(endless(), function, timeout="60s", **options, **given):
            pass
        then, last = perf_counter() - began, server.stats()
    assert first is not None  # noqa: S101 - the input lasts longer than that
    since, before = first
    requests = last["requests"] - before["requests"]
    refused = last["rejected"] - before["rejected"]
    return (requests - refused) / (then - since), refused / max(requests, 1)


def figures(settings: Settings) -> list[Figure]:
    """Runs each variant once: the first seconds are what warms up."""
    seconds = 3.0 if settings.quick else 15.0
    samples = {name: [run(seconds, **given)] for name, given in VARIANTS.items()}
    used = {"RateLimit": 0.99}
    most = {"RateLimit": 1.0, "adaptive": 5.0}
    found: list[Figure] = []
    for name, seen in samples.items():
        rates = [rate for rate, _ in seen]
        found.append(
            Figure(
                f"429 above {LIMIT:,}/s, {name}",
                "answers/s",
                rates,
                "limit",
                [float(LIMIT)],
                goal=used.get(name),
            )
        )
        refused = [100 * share for _, share in seen]
        found.append(
            Figure(
                f"429 above {LIMIT:,}/s, {name}, refused",
                "%",
                refused,
                "",
                [],
                goal=most.get(name),
                of_ratio=False,
                at_most=True,
            )
        )
    return found
