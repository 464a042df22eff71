# SPDX-License-Identifier: Apache-2.0
"""How well do four processes keep to one limit of their host?

``RateLimit("500/s", burst=50, scope="host")``, four processes that always have rows for 30 s, no
Spark, 50 calls at a time each, against a server on the loopback interface that answers at once and
notes when requests arrive. Goals: permits never above rate and burst; in any second at most 5 %
more requests arrive than that; at least 0.97 of the rate is used.
"""

from __future__ import annotations

import multiprocessing
import os
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from figures import Figure, Settings
from http_server import Answer, serve

import sparkawait as sa
from sparkawait import arrow
from sparkawait._plan.resolve import resolve_unpickled

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

LIMIT = 500
BURST = 50
TASKS = 4


def task(url: str, seconds: float, name: str, ends: Connection) -> None:
    """Calls as often as the limit lets it, and sends how many permits it took."""
    limit = sa.RateLimit(f"{LIMIT}/s", BURST, scope="host", name=name)
    batch = pa.record_batch({"id": range(25)})
    totals: dict[str, Any] = {}
    plan = resolve_unpickled(
        "unordered",
        sa.http.get(f"{url}/{{id}}", "v bigint", client=sa.http.Client(proxy=False)),
        input_schema=None,
        rate_limit=limit,
        max_concurrency=50,
        timeout="60s",
    )
    ends.send("ready")
    ends.recv()
    end = monotonic() + seconds
    rows = iter(lambda: batch if monotonic() < end else None, None)
    for _ in arrow.run(plan, rows, on_metrics=totals.update):
        pass
    ends.send(totals["rate_limits"][name]["permits"])


def figures(settings: Settings) -> list[Figure]:
    """Runs the processes once."""
    seconds = 5.0 if settings.quick else 30.0
    arrivals: list[float] = []

    async def answer(_: str) -> Answer:
        arrivals.append(monotonic())
        return 200, {}, b'{"v": 1}'

    context = multiprocessing.get_context("spawn")
    with serve(answer) as url:
        pipes = [context.Pipe() for _ in range(TASKS)]
        name = f"bench {os.getpid()}"
        processes = [
            context.Process(target=task, args=(url, seconds, name, there)) for _, there in pipes
        ]
        for process in processes:
            process.start()
        for here, _ in pipes:
            here.recv()
        for here, _ in pipes:
            here.send("go")
        began = monotonic()
        permits = sum(here.recv() for here, _ in pipes)
        took = monotonic() - began
        for process in processes:
            process.join()
    arrivals.sort()
    whole = [it for it in arrivals if it < began + seconds]
    used = len(whole) / (LIMIT * seconds)
    bound = LIMIT + BURST
    return [
        _at_most("permits of all processes", "permits", permits, LIMIT * took + BURST),
        _at_most("most arrivals in a second", "requests", most_in_a_second(arrivals), 1.05 * bound),
        Figure(
            f"{LIMIT}/s of a host, {TASKS} processes, used",
            "of the rate",
            [used],
            "",
            [],
            0.97,
            of_ratio=False,
        ),
    ]


def most_in_a_second(arrivals: list[float]) -> int:
    """Returns the most arrivals in any second."""
    most, first = 0, 0
    for last, at in enumerate(arrivals):
        while arrivals[first] <= at - 1:
            first += 1
        most = max(most, last - first + 1)
    return most


def _at_most(name: str, unit: str, found: float, goal: float) -> Figure:
    name = f"{LIMIT}/s of a host, {TASKS} processes, {name}"
    return Figure(name, unit, [found], "", [], goal, of_ratio=False, at_most=True)
