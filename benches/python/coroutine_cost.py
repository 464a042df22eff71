# SPDX-License-Identifier: Apache-2.0
"""What does a row of a Python function cost, beside asyncio alone and the usual recipes?

``coroutine_cost.py [CALLS ...]`` prints CPU seconds a million rows, of a whole process without
Spark, for functions that return at once and that sleep for 1-20 ms. Each is a process of its own,
in turn; a tenth of its rows goes first and is not counted.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median

import pyarrow as pa
import uvloop

from sparkawait import arrow

ROUNDS = 3
SECONDS_ASLEEP = 4
ROWS_AT_ONCE = 500_000
BATCH = 10_000
_RANDOM = random.Random(1)
_DELAYS = [_RANDOM.uniform(0.001, 0.020) for _ in range(1 << 14)]
_SCHEMA = pa.schema({"result": pa.int64(), "began": pa.int64()})


async def at_once(row: int) -> tuple[int, int]:
    """Returns a result, and when the call began."""
    return 3 * row + 1, time.monotonic_ns()


async def asleep(row: int) -> tuple[int, int]:
    """Does the same after 1-20 ms."""
    began = time.monotonic_ns()
    await asyncio.sleep(_DELAYS[row % len(_DELAYS)])
    return 3 * row + 1, began


FUNCTIONS = {"at once": at_once, "1-20 ms": asleep}


class Run:
    """One way to call a function for many rows; `calls` are in flight."""

    def __init__(self, calls: int, work: str) -> None:
        self.calls = calls
        self.call = FUNCTIONS[work]

    def sparkawait(self, rows: int) -> int:
        """`unordered_wait`, all options as they are but for the capacity."""

        async def function(row: Mapping[str, int]) -> dict[str, int]:
            result, began = await self.call(row["id"])
            return {"result": result, "began": began}

        out = arrow.unordered_wait(
            _batches(rows), function, schema=_SCHEMA, max_concurrency=self.calls, timeout="60s"
        )
        return sum(batch.num_rows for batch in out)

    def bare(self, rows: int) -> int:
        """Tasks that call again and again on uvloop and keep no result: the floor."""
        ids = iter(range(rows))

        async def work() -> int:
            done = 0
            for row in ids:
                await self.call(row)
                done += 1
            return done

        async def all_of() -> int:
            return sum(await asyncio.gather(*(work() for _ in range(self.calls))))

        return uvloop.new_event_loop().run_until_complete(all_of())

    def gather(self, rows: int) -> int:
        """The recipe: `asyncio.gather` for each batch, a semaphore."""

        async def one(semaphore: asyncio.Semaphore, row: int) -> tuple[int, int]:
            async with semaphore:
                return await self.call(row)

        async def all_of(ids: list[int]) -> list[tuple[int, int]]:
            semaphore = asyncio.Semaphore(self.calls)
            return await asyncio.gather(*(one(semaphore, row) for row in ids))

        loop = asyncio.new_event_loop()
        return sum(
            _output(loop.run_until_complete(all_of(batch.column("id").to_pylist())))
            for batch in _batches(rows)
        )

    def window(self, rows: int) -> int:
        """The recipe: a sliding window by hand, a task for each row."""
        loop, done, emitted = asyncio.new_event_loop(), [], 0
        progress, in_flight = asyncio.Event(), 0

        async def one(row: int) -> None:
            nonlocal in_flight
            done.append(await self.call(row))
            in_flight -= 1
            progress.set()

        def wait_for(most: int) -> None:
            while in_flight > most:
                progress.clear()
                loop.run_until_complete(progress.wait())

        for batch in _batches(rows):
            for row in batch.column("id").to_pylist():
                wait_for(self.calls - 1)
                in_flight += 1
                loop.create_task(one(row))
                if len(done) >= 1_000:  # noqa: PLR2004
                    emitted += _output(done)
                    done.clear()
        wait_for(0)
        return emitted + _output(done)


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, BATCH):
        yield pa.record_batch({"id": range(start, min(start + BATCH, rows))})


def _output(done: list[tuple[int, int]]) -> int:
    columns = zip(*done, strict=True) if done else ((), ())
    arrays = [pa.array(column, pa.int64()) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA).num_rows


def measure(kind: str, calls: int, work: str) -> None:
    """Prints the CPU seconds a million rows of one way, in this process."""
    rows = ROWS_AT_ONCE if work == "at once" else min(60 * calls, 60_000) * SECONDS_ASLEEP
    run: Callable[[int], int] = getattr(Run(calls, work), kind)
    run(rows // 10)
    before = time.process_time()
    if run(rows) != rows:
        sys.exit(f"error: {kind} lost rows")
    print((time.process_time() - before) / rows * 1e6)


def main() -> None:
    """Prints a line for each number of calls and each function."""
    kinds = ["sparkawait", "bare", "gather", "window"]
    for calls in [int(argument) for argument in sys.argv[1:]] or [100, 1_000, 10_000]:
        for work in FUNCTIONS:
            spent: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(ROUNDS):
                for kind in kinds:
                    command = [sys.executable, __file__, "measure", kind, str(calls), work]
                    output = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
                    spent[kind].append(float(output.stdout))
            cells = [
                f"{kind} {median(all_of):.1f} ({min(all_of):.1f}..{max(all_of):.1f})"
                for kind, all_of in spent.items()
            ]
            print(f"{calls:>6} calls, {work}: {', '.join(cells)} CPU s a million rows", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main()
