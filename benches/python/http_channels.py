# SPDX-License-Identifier: Apache-2.0
"""One of ten HTTP hosts never answers: what do the nine others notice, and what does it get?

Ten servers on the loopback interface, nine of which answer after 5 ms. No Spark; the input never
pauses and has a tenth of its rows for each host; capacity 1 000, timeout 5 s, all else as it is by
default. So there are 100 calls at a time, ten of each host: at most 20 000 rows a second, of which
as many are the tenth host's in 5 s as may wait by default, 10 000. With less latency that bound
would be what is measured. The tenth host answers like the others in one run and never in the next.
In a third, it never does and there are as many connections as rows are admitted.

Counted is what the servers see: what the nine answered from second 2 to second 8, some of it before
the first rows have run out of time and some after, and the requests that came to the tenth in 12 s.
Goals: the nine at least 0.95 of what it was; the tenth at most three times the calls that one host
may have in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise, repeat
from time import perf_counter, sleep

import pyarrow as pa
from figures import Figure, Settings, alternate

import sparkawait as sa
import sparkawait.arrow
from sparkawait.testing import LookupServer

HOSTS = 10
KEYS = 100
ROWS_PER_BATCH = 1_000
LATENCY = "5ms"
CAPACITY = 1_000
CHANNEL = sa.Channel()
OPTIONS = {"capacity": CAPACITY, "channel": CHANNEL, "timeout": "5s", "on_error": "null"}
FIRST, LAST, END = 2, 8, 12
"""The seconds between which answers are counted, and that until which requests are."""


@dataclass(frozen=True)
class Seen:
    """What the servers saw of a run.

    Attributes:
        answers: Those of the nine others by each full second, from the start on.
        requests: Those to the tenth.
    """

    answers: list[int]
    requests: list[int]

    @property
    def rate(self) -> float:
        """Answers of the nine others a second."""
        return (self.answers[LAST] - self.answers[FIRST]) / (LAST - FIRST)

    @property
    def timeline(self) -> dict[str, list[int]]:
        """What came in each second."""
        counts = {"answers of the nine": self.answers, "requests to the tenth": self.requests}
        return {name: [b - a for a, b in pairwise(seen)] for name, seen in counts.items()}


class Hosts:
    """Ten servers, which end together.

    Args:
        running: Where they are stopped.
    """

    def __init__(self, running: ExitStack) -> None:
        table = {"items": {str(key): {"value": key} for key in range(KEYS)}}
        servers = [LookupServer(table, latency=LATENCY, seed=seed) for seed in range(HOSTS)]
        self._tenth, *self._others = [running.enter_context(server) for server in servers]
        ports = [server.port for server in servers]
        rows = range(ROWS_PER_BATCH)
        columns = {
            "port": [ports[row % HOSTS] for row in rows],
            "key": [row // HOSTS % KEYS for row in rows],
        }
        self._batch = pa.record_batch(columns)

    def run(self, seconds: int, *, answers: bool, function: sa.http.HttpFunction) -> Seen:
        """Calls all hosts for `seconds`.

        Args:
            seconds: How long.
            answers: Whether the tenth does.
            function: What calls them.
        """
        self._tenth.set_faults(stall_rate=0.0 if answers else 1.0)
        with ThreadPoolExecutor(1) as watcher:
            watched = watcher.submit(self._watch, perf_counter(), seconds)
            out = sparkawait.arrow.unordered_wait(repeat(self._batch), function, **OPTIONS)
            # Rows of a host that never answers come out when they run out of time, so the loop
            # looks then at the latest.
            for _ in out:
                if watched.done():
                    break
            out.close()  # type: ignore[attr-defined]
        return watched.result()

    def _watch(self, started: float, seconds: int) -> Seen:
        """Looks at the servers once a second."""
        counts = [self._count()]
        for second in range(1, seconds + 1):
            sleep(max(started + second - perf_counter(), 0))
            counts.append(self._count())
        answers, requests = zip(*counts, strict=True)
        return Seen(_since_start(answers), _since_start(requests))

    def _count(self) -> tuple[int, int]:
        """Returns the answers of the nine others and the requests to the tenth, of all runs."""
        answers = sum(server.stats()["hits"] for server in self._others)
        return answers, self._tenth.stats()["requests"]


def lookup(**options: int) -> sa.http.HttpFunction:
    """Returns the function that calls the host of a row."""
    url = "http://127.0.0.1:{port}/items/{key}"
    return sa.http.get(url, "value bigint", client=sa.http.Client(proxy=False), **options)


def figures(settings: Settings) -> list[Figure]:
    """Measures the nine others beside the same where all ten answer, and the calls to the tenth."""
    by_default, with_more = lookup(), lookup(max_requests=CAPACITY)
    with ExitStack() as running:
        hosts = Hosts(running)
        before, after, more = alternate(
            min(settings.rounds, 3),
            lambda: hosts.run(LAST, answers=True, function=by_default),
            lambda: hosts.run(END, answers=False, function=by_default),
            lambda: hosts.run(END, answers=False, function=with_more),
        )
    runs = {"all answer": before, "one never answers": after, "with more connections": more}
    timelines = {name: [seen.timeline for seen in samples] for name, samples in runs.items()}
    return [
        Figure(
            "HTTP, nine hosts beside one that never answers",
            "answers/s",
            [seen.rate for seen in after],
            "all answer",
            [seen.rate for seen in before],
            goal=0.95,
            details={"timelines": timelines},
        ),
        requests_to_the_tenth(by_default, after),
        requests_to_the_tenth(with_more, more),
    ]


def requests_to_the_tenth(function: sa.http.HttpFunction, samples: list[Seen]) -> Figure:
    """Returns how many requests came to the host that never answers, beside what may come."""
    calls = function.concurrency or CAPACITY
    at_a_time = CHANNEL.resolve(calls, CAPACITY).max_per_channel
    return Figure(
        f"HTTP, {calls:,} connections, calls of the host that never answers in {END} s",
        "requests",
        [float(seen.requests[END]) for seen in samples],
        "",
        [],
        goal=3.0 * at_a_time,
        of_ratio=False,
        at_most=True,
    )


def _since_start(counts: Sequence[int]) -> list[int]:
    return [count - counts[0] for count in counts]
