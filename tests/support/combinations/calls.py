# SPDX-License-Identifier: Apache-2.0
"""Functions that do what a script says, and note what they were called for, when, and beside what.

Used on the event loop thread and on the threads of a server.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

import sparkawait as sa
from tests.support.combinations.drawing import Case, Part
from tests.support.scripted_server import Answer

__all__ = ["Call", "Calls", "Deed", "ident_of"]

Deed = Literal["results", "raises", "refuses", "asks", "hangs"]
State = Literal["running", "answered", "failed", "cancelled"]


@dataclass(eq=False)
class Call:
    """A row in a call of a function.

    Attributes:
        ident: Names the row among those of its function.
        number: How many calls the row has had with this one.
        row: The cells of it that options look at.
        deed: What the call does with it.
        results: What it returns, where it returns.
        state: What became of it.
    """

    ident: str
    number: int
    row: Mapping[str, Any]
    deed: Deed
    results: list[str]
    millis: float
    turns: int
    blocks: bool
    message: str
    state: State = "running"
    error: Deed | None = None
    """What the exception was that ended it: its own, or that of a row beside it."""
    began: int = 0
    ended: int | None = None
    """Its places among the beginnings and ends of all calls of its function."""

    @property
    def status(self) -> int:
        """The status of one that fails over HTTP: it was refused, or nobody knows."""
        return 503 if self.number % 3 else 500


class Calls:
    """The calls of one function of a case.

    Attributes:
        of: All calls of each row, in order.
        broken: What was not as promised while calls ran.
        starts: When rows were called for, and what they cost of each limit.
    """

    def __init__(self, case: Case, part: Part) -> None:
        """Has none."""
        self.case, self.part = case, part
        self.of: dict[str, list[Call]] = defaultdict(list)
        self.broken: list[str] = []
        self.starts: list[tuple[float, Mapping[str, Any]]] = []
        self.has_ended = False
        self.over = threading.Event()
        """Set when nobody waits for anything any more."""
        self.began_at = time.monotonic()
        self.running: set[Call] = set()
        self.groups = 0
        """Calls of many rows that run."""
        self.places = itertools.count()
        self._lock = threading.Lock()
        # Calls that are given up end when they notice it: on a server and in a thread never.
        self.is_exact_beside = part.kind != "http" or not part.has_limits_in_time
        self.are_cancelled = self.is_exact_beside and not (
            part.is_plain and part.has_limits_in_time
        )

    def begin(self, rows: list[Mapping[str, Any]]) -> list[Call]:
        """Notes a call for these rows."""
        with self._lock:
            if self.has_ended and self.is_exact_beside:
                self.broken.append(f"a call began after the end, for {len(rows)} rows")
            calls, place = [self._call(row) for row in rows], next(self.places)
            for call in calls:
                call.began = place
            self.running.update(calls)
            self.groups += 1
            self.starts += [(time.monotonic(), row) for row in rows]
            if len({call.ident for call in calls}) < len(calls):
                self.broken.append("a row is twice in a call")
            self._look(calls)
            return calls

    def end(self, calls: list[Call], state: State) -> None:
        """Notes what became of them."""
        deeds = [call.deed for call in calls if call.deed != "results"]
        with self._lock:
            place = next(self.places)
            for call in calls:
                call.state, call.ended = state, place
                call.error = deeds[0] if state == "failed" else None
                self.running.discard(call)
            self.groups -= 1

    def _call(self, row: Mapping[str, Any]) -> Call:
        script, ident = self.part.script, ident_of(row, self.part.number, self.case.shape)
        number = len(self.of[ident]) + 1
        chance = random.Random(f"{self.case.seed} {self.part.number} {ident} {number}")  # noqa: S311
        shares = (script.raises, script.refuses, script.asks, script.hangs)
        deeds: tuple[Deed, ...] = ("raises", "refuses", "asks", "hangs", "results")
        deed = chance.choices(deeds, (*shares, max(1 - sum(shares), 0.1)))[0]
        if row["id"] >= len(self.case.rows) - self.case.tail:
            deed = "results"
        count = 0 if chance.random() < script.misses else chance.randint(1, script.most)
        filling = "x" * chance.randint(0, script.size)
        named = f"{self.part.number}:{ident}:{number}"
        results = [f"{named}:{index}:{filling}" for index in range(count)]
        millis = chance.random() * script.millis if chance.random() < script.waits else 0
        if script.slow is not None:
            millis = script.millis if row["k"] == script.slow else 0
        turns, message = chance.choice((0, 0, 1, 3)), f"{named}: {filling}"
        blocks = chance.random() < script.blocks
        call = Call(ident, number, row, deed, results, millis, turns, blocks, message)
        self.of[ident].append(call)
        return call

    def _look(self, calls: list[Call]) -> None:
        """Looks at what runs beside what, now that these calls have begun."""
        if not self.is_exact_beside:
            return
        part, most = self.part, self.part.options["max_concurrency"]
        most = most.max if isinstance(most, sa.Adaptive) else most
        running = len(self.running) if part.batch is None else self.groups
        if running > most:
            self.broken.append(f"{running} calls at a time of {most}")
        # A call of many goes on for the others when one of its rows was given up.
        is_of_one = self.are_cancelled and (part.batch is None or part.batch.max_rows == 1)
        if is_of_one or not part.has_limits_in_time:
            for call in calls:
                self.broken += self._beside(call, [it for it in self.running if it is not call])

    def _beside(self, call: Call, others: list[Call]) -> Iterator[str]:
        """Yields what must not run beside a call, and does."""
        options = self.part.options
        hedges, channel = int("hedge" in options), options.get("channel")
        of_key = [it for it in others if it.row["k"] == call.row["k"]]
        other_rows = {it.ident for it in of_key} - {call.ident}
        if self.case.mode == "key_ordered" and call.row["k"] is not None and other_rows:
            yield f"{len(other_rows) + 1} rows of a key at a time"
        if "cache" in options and len(of_key) > hedges:
            yield f"{len(of_key) + 1} calls of a key of the cache at a time"
        of_row = sum(it.ident == call.ident for it in others)
        if of_row > hedges:
            yield f"{of_row + 1} calls of a row at a time"
        if isinstance(channel, sa.Channel) and self.part.batch is None:
            of_channel = 1 + sum(it.row["c"] == call.row["c"] for it in others)
            if of_channel > channel.max_per_channel:
                yield f"{of_channel} calls of a channel of {channel.max_per_channel}"

    @property
    def is_repeatable(self) -> bool:
        """Whether a call may be made again that may have been carried out."""
        if self.part.retry is None or self.part.retry.only_refused:
            return False
        if self.part.kind != "http":
            return self.part.idempotent is not False
        return bool(self.part.idempotent)

    # --- functions

    def function(self, url: str) -> Any:
        """Makes the function."""
        schema = f"y{self.part.number} string"
        if self.part.kind == "http":
            return self._http(url, schema)
        declared = {"idempotent": self.part.idempotent}
        if self.part.is_plain:
            return self._plain(schema, declared)
        if self.part.batch is not None and self.part.batch.arrow:

            @sa.async_function(schema, batch=self.part.batch, **declared)
            async def of_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
                return self._columns(await self._answer(batch.to_pylist()))

            return of_columns

        if self.part.kind == "batch":

            @sa.async_function(schema, batch=self.part.batch, **declared)
            async def of_many(rows: list[sa.typing.Row]) -> list[Any]:
                return await self._answer([dict(row) for row in rows])

            return of_many

        @sa.async_function(schema, **declared)
        async def of_one(row: sa.typing.Row) -> Any:
            return (await self._answer([dict(row)]))[0]

        return of_one

    def _plain(self, schema: str, declared: Mapping[str, Any]) -> Any:
        if self.part.batch is not None and self.part.batch.arrow:

            @sa.async_function(schema, batch=self.part.batch, **declared)
            def of_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
                return self._columns(self._answer_in_thread(batch.to_pylist()))

            return of_columns

        if self.part.kind == "batch":

            @sa.async_function(schema, batch=self.part.batch, **declared)
            def of_many(rows: list[sa.typing.Row]) -> list[Any]:
                return self._answer_in_thread([dict(row) for row in rows])

            return of_many

        @sa.async_function(schema, **declared)
        def of_one(row: sa.typing.Row) -> Any:
            return self._answer_in_thread([dict(row)])[0]

        return of_one

    def _answer_in_thread(self, rows: list[Mapping[str, Any]]) -> list[Any]:
        calls, state = self.begin(rows), "failed"
        try:
            millis = max(12 * call.blocks + call.millis for call in calls)
            time.sleep(millis / 1000)
            if any(call.deed == "hangs" for call in calls):
                # Longer than any limit in time, but nobody ends it.
                self.over.wait(0.15)
                raise TimeoutError(calls[0].message)
            for call in calls:
                self._raise(call)
            state = "answered"
            return self._results(calls)
        finally:
            self.end(calls, state)

    def _results(self, calls: list[Call]) -> list[Any]:
        column = f"y{self.part.number}"
        return [[{column: it} for it in call.results] for call in calls]

    def _columns(self, results: list[Any]) -> pa.RecordBatch:
        column = f"y{self.part.number}"
        found = pa.array([one[column] for (one,) in results], pa.string())
        return pa.RecordBatch.from_arrays([found], [column])

    async def _answer(self, rows: list[Mapping[str, Any]]) -> list[Any]:
        calls, state = self.begin(rows), "cancelled"
        try:
            for call in calls:
                for _ in range(call.turns):
                    await asyncio.sleep(0)
            if any(call.blocks for call in calls):
                time.sleep(0.012)  # noqa: ASYNC251 - as code does that blocks
            if any(call.deed == "hangs" for call in calls):
                await asyncio.Event().wait()
            millis = max(call.millis for call in calls)
            if millis:
                await asyncio.sleep(millis / 1000)
            state = "failed"
            for call in calls:
                self._raise(call)
            state = "answered"
            return self._results(calls)
        finally:
            self.end(calls, state)

    def _raise(self, call: Call) -> None:
        if call.deed == "raises":
            raise ConnectionError(call.message)
        if call.deed == "refuses":
            raise LookupError(call.message)
        if call.deed == "asks":
            raise sa.RetryAfter(0.001 * call.turns, call.message)

    def _http(self, url: str, schema: str) -> Any:
        address = f"{url}/{self.part.number}/{{id}}"
        given = {
            "how": "inner",
            "client": sa.http.Client(proxy=False),
            "max_requests": 61,
            "missing": 404,
        }
        if self.part.idempotent:
            return sa.http.get(address, schema, **given)
        return sa.http.post(address, schema, json={"x": "{id}"}, **given)

    def serve(self, target: str) -> Answer:
        """Answers a request, on a thread of the server."""
        row = self.case.rows[int(target.rpartition("/")[2])]
        calls = self.begin([row])
        (call,) = calls
        if call.deed == "hangs":
            self.over.wait(20)
            self.end(calls, "cancelled")
            return None
        time.sleep(call.millis / 1000)
        answer: Answer = (404, {}, b"")
        if call.deed == "raises":
            answer = call.status, {}, call.message.encode()
        elif call.deed == "refuses":
            answer = 400, {}, call.message.encode()
        elif call.deed == "asks":
            answer = 429, {"Retry-After": "0"}, b""
        elif call.results:
            document = {f"y{self.part.number}": call.results[0]}
            answer = 200, {}, json.dumps(document).encode()
        self.end(calls, "answered" if call.deed == "results" else "failed")
        return answer


def ident_of(row: Mapping[str, Any], number: int, shape: str) -> str:
    """Names a row among those of function `number`."""
    if number == 0 or shape == "beside":
        return str(row["id"])
    place = (row["y0"] or "none").split(":")
    return f"{row['id']}#{place[3] if len(place) > 1 else place[0]}"
