# SPDX-License-Identifier: Apache-2.0
"""Options in combination, with ugly numbers; each seed is a case.

``COMBINATIONS=0..5000 python -m pytest -q tests/properties/test_combinations.py`` tries these
seeds; a failure prints what was drawn, and its seed alone (``COMBINATIONS=4711``) runs it again.

No time is asserted: what a case may come to follows from the calls that its functions saw. The
time limit of a test ends cases that hang.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._plan.plan import Chain
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.exceptions import AsyncFunctionError, ResultError
from tests.support.combinations.calls import Calls
from tests.support.combinations.drawing import Case, draw
from tests.support.combinations.model import breaches
from tests.support.scripted_server import Answer, ScriptedServer
from tests.support.waiting import wait_until

DEFAULT = "0..87"


def seeds() -> Sequence[int]:
    first, dots, last = os.environ.get("COMBINATIONS", DEFAULT).partition("..")
    return range(int(first), int(last)) if dots else [int(first)]


class Served:
    """One server for all cases, each of which has a path of its own."""

    def __init__(self) -> None:
        self.cases: dict[str, Sequence[Calls]] = {}

    def __call__(self, target: str, _before: int) -> Answer:
        _, seed, number, _ = target.split("/")
        return self.cases[seed][int(number)].serve(target)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Served, str]]:
    served = Served()
    with ScriptedServer(served) as server:
        yield served, server.url


class Left:
    """How many rows have left, for whoever waits for that."""

    def __init__(self) -> None:
        self.rows, self._changed = 0, threading.Condition()

    def add(self, rows: int) -> None:
        with self._changed:
            self.rows += rows
            self._changed.notify_all()

    def wait_for(self, rows: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.rows >= rows, 20)


def batches_of(case: Case, left: Left) -> Iterator[pa.RecordBatch]:
    types = {"id": pa.int64(), "k": pa.int64(), "c": pa.int64(), "w": pa.int64()}
    types["t"] = pa.timestamp("us")
    start = 0
    for length in case.lengths:
        rows = case.rows[start : start + length]
        if case.tail and start >= len(case.rows) - case.tail:
            left.wait_for(start)
        yield pa.RecordBatch.from_pylist(rows, pa.schema(list(types.items())))
        start += length
    if case.ends == "input":
        msg = "the input ends badly"
        raise OSError(msg)


def options_of(case: Case, calls: Calls) -> dict[str, Any]:
    options = {**case.common, **calls.part.options}
    if calls.part.on_error == "capture":
        given, column = options["on_error"], f"e{calls.part.number}"
        is_bounded = isinstance(given, sa.OnError)
        options["on_error"] = replace(given if is_bounded else sa.OnError(), column=column)
    return options


def chain_of(case: Case, calls: Sequence[Calls], url: str) -> list[Chain]:
    """Returns the tasks of a case, one after the other."""
    key = {"key": "k"} if case.mode == "key_ordered" else {}
    address = f"{url}/{case.seed}"
    functions = [it.function(address) for it in calls]
    if case.shape == "beside":
        own = []
        for function, it in zip(functions, calls, strict=True):
            options = options_of(case, it)
            own.append(
                function.with_options(**{k: v for k, v in options.items() if k not in case.common})
            )
        plan = resolve_unpickled(case.mode, own, input_schema=None, **key, **case.common)
        return [Chain.of(plan)]
    plans = [
        resolve_unpickled(case.mode, function, input_schema=None, **key, **options_of(case, it))
        for function, it in zip(functions, calls, strict=True)
    ]
    first, *others = plans
    if case.shape == "joined":
        joined = Chain.of(first)
        for plan in others:
            joined = joined.then(plan)
        return [joined]
    return [Chain.of(plan) for plan in plans]


def is_closed(task: Generator[Any, None, None]) -> bool:
    """Closes a task, unless it is just making a batch for one behind it, which has ended."""
    try:
        task.close()
    except ValueError:
        return False
    return True


def run(case: Case, calls: Sequence[Calls], url: str) -> tuple[list[Any], bool, list[dict]]:
    """Returns the output, whether a failure of a row ended it, and the metrics of each task."""
    left = Left()
    source: Iterator[Any] = batches_of(case, left)
    metrics: list[dict[str, Any]] = []
    tasks = []
    for chain in chain_of(case, calls, url):
        metrics.append({})
        source = sa.arrow.run(chain, source, on_metrics=metrics[-1].update)
        tasks.append(source)
    out: list[Any] = []
    has_failed = False
    try:
        for batch in source:
            out.append(batch)
            left.add(batch.num_rows)
            if case.ends == "closed" and len(out) > case.seed % 4:
                break
    except (AsyncFunctionError, ResultError):
        has_failed = True
    except OSError:
        assert case.ends == "input"
    finally:
        for it in calls:
            it.over.set()
        for task in reversed(tasks):
            wait_until(lambda task=task: is_closed(task))
        for it in calls:
            it.has_ended = True
    return out, has_failed, metrics


def of_metrics(case: Case, calls: Sequence[Calls], metrics: list[dict[str, Any]]) -> Iterator[str]:
    """Yields what is wrong in the metrics of tasks that ended well."""
    if case.shape != "one" or case.ends != "well":
        return
    (counts,), (of_function,) = metrics, calls
    if not counts:
        return
    rows = len(case.rows)
    left = counts["emitted"] + counts["dropped"] + counts["failed"]
    if not counts["admitted"] == rows == left:
        yield f"{rows} rows, {counts['admitted']} admitted, {left} left"
    made = sum(map(len, of_function.of.values()))
    part = of_function.part
    if made > counts["attempts"]:
        yield f"{made} calls, {counts['attempts']} attempts"
    is_exact = not (part.has_limits_in_time or "cache" in part.options)
    if is_exact and made != counts["attempts"]:
        yield f"{made} calls are not {counts['attempts']} attempts"


@pytest.mark.parametrize("seed", seeds())
def test_options_together_keep_what_each_of_them_promises(seed: int, served: tuple[Served, str]):
    case = draw(seed)
    handler, url = served
    calls = [Calls(case, part) for part in case.parts]
    handler.cases[str(seed)] = calls
    out, has_failed, metrics = run(case, calls, url)
    broken = breaches(case, calls, out, has_failed=has_failed)
    if not has_failed:
        broken += of_metrics(case, calls, metrics)
    assert not broken, f"{case}\n" + "\n".join(broken[:20])
