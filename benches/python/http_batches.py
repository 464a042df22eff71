# SPDX-License-Identifier: Apache-2.0
"""Embeddings over HTTP: how much faster are 64 rows a request than one?

`LookupServer` on the loopback interface takes an array of keys and answers after 20 ms with an
array of as many lists of 128 numbers. No Spark; 16 requests at a time in both cases. Goal: 5 times
the rows a second, each row with its own numbers.
"""

from __future__ import annotations

from time import perf_counter

import pyarrow as pa
import pyarrow.compute as pc
from figures import Figure, Settings, alternate

import sparkawait as sa
import sparkawait.arrow
from sparkawait.testing import LookupServer

KEYS = 1_000
LENGTH = 128
REQUESTS = 16
ROWS_PER_REQUEST = 64
LATENCY = "20ms"


def figures(settings: Settings) -> list[Figure]:
    """Measures rows a second with requests of one row and of many."""
    # One row a request takes so much longer that fewer rows tell as much.
    few, many = settings.rows(20_000) // 4, settings.rows(200_000)
    table = {str(key): [key + n / LENGTH for n in range(LENGTH)] for key in range(KEYS)}
    with LookupServer({"embeddings": table}, latency=LATENCY) as server:

        def rate(rows: int, rows_per_request: int) -> float:
            embedding = sa.http.post(
                f"{server.url}/embeddings",
                "embedding array<float>",
                json=sa.http.each("{key}"),
                paths={"embedding": "$"},
                batch=sa.Batch(max_rows=rows_per_request),
                max_requests=REQUESTS,
                client=sa.http.Client(proxy=False),
            )
            keys = pa.array([str(row % KEYS) for row in range(rows)])
            batches = pa.record_batch({"key": keys})
            start = perf_counter()
            found = 0
            for out in sa.arrow.unordered_wait([batches], embedding):
                first = pc.list_element(out["embedding"], 0)
                if not first.equals(out["key"].cast(pa.float32())):
                    msg = "a row has the numbers of another one"
                    raise RuntimeError(msg)
                found += out.num_rows
            if found != rows:
                msg = f"{rows} rows came in and {found} out"
                raise RuntimeError(msg)
            return rows / (perf_counter() - start)

        one, together = alternate(
            settings.rounds, lambda: rate(few, 1), lambda: rate(many, ROWS_PER_REQUEST)
        )
    name = f"HTTP embeddings, {ROWS_PER_REQUEST} rows a request, {REQUESTS} requests at a time"
    return [Figure(name, "rows/s", together, "one row a request", one, goal=5.0)]
