# SPDX-License-Identifier: Apache-2.0
"""`Metrics` without Spark: what calls of this process count, added up in one object."""

import asyncio
import gc
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._worker import metrics as task_metrics
from sparkawait._worker.metrics import COUNTERS, GAUGES, SumsOfTasks
from sparkawait.arrow import task
from tests.meta.repository import ROOT
from tests.support.scripted_server import ScriptedServer
from tests.support.waiting import wait_until

NO_TASKS = {"tasks": 0, **dict.fromkeys(COUNTERS, 0), "call_latency": [], "percentiles": {}}
NOTHING = {**NO_TASKS, "failed_tasks": NO_TASKS}
SMALL = sa.Tuning(max_rows=7, buffer_timeout=None)


@sa.async_function("square long")
async def square(row):
    await asyncio.sleep(0)
    return {"square": row["id"] ** 2}


@sa.async_function("cube long")
async def cube(row):
    return {"cube": row["id"] ** 3}


@sa.async_function("square long")
async def fails_at_7(row):
    if row["id"] == 7:
        raise ValueError("seven")
    return {"square": row["id"] ** 2}


def numbers(rows: int = 13) -> pa.Table:
    return pa.table({"id": pa.array(range(rows), pa.int64())})


def read(out: sa.arrow.Batches) -> pa.Table:
    return out.to_table()


def read_asynchronously(out: sa.arrow.Batches) -> pa.Table:
    async def all_of_it():
        return [batch async for batch in out]

    return pa.Table.from_batches(asyncio.run(all_of_it()))


READERS = [pytest.param(read, marks=pytest.mark.nightly), read_asynchronously]


def test_what_every_task_counts_is_there_before_the_first_one_has_ended():
    metrics, before = sa.Metrics(), sa.Metrics().snapshot()
    read(sa.arrow.ordered_wait(numbers(), square, metrics=metrics))
    counts = metrics.snapshot()

    assert before == NOTHING
    assert list(counts) == list(before)
    out = sa.arrow.ordered_wait(numbers(), square)
    read(out)
    assert {*out.metrics} == {*COUNTERS, *GAUGES, "call_latency"} - {
        "in_flight_limit",
        "active_channels",
    }


def test_percentiles_are_those_of_the_sorted_latencies():
    latencies = [0.007, *[0.013] * 48, *[0.031] * 40, *[0.2] * 9, 1.7, 3.0]
    counted = sorted(Counter(latencies).items())
    found = task_metrics.complete({"call_latency": counted})["percentiles"]
    # As statistics.quantiles has them for inverted distribution functions: the k-th of n.
    at = {name: latencies[-(-share * len(latencies) // 100) - 1] for name, share in NAMED.items()}
    assert found == at == {"p50": 0.031, "p90": 0.2, "p95": 0.2, "p99": 1.7}
    assert task_metrics.complete({})["percentiles"] == {}


NAMED = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


def test_failed_rows_are_counted_by_what_went_wrong():
    @sa.async_function("v long", on_error="null", timeout="3s")
    async def fails(row):
        if row["id"] % 3 == 1:
            raise ValueError("not even the text of an exception may be told")
        if row["id"] % 5 == 2:
            raise KeyError(row["id"])
        return {"v": "no number"} if row["id"] == 6 else {"v": 1}

    metrics = sa.Metrics()
    for rows in (13, 4):
        read(sa.arrow.ordered_wait(numbers(rows), fails, metrics=metrics))

    counts = metrics.snapshot()
    assert counts["failures"] == {
        "user-function-failed ValueError": 4 + 1,
        "user-function-failed KeyError": 2 + 1,
        "result-schema-mismatch": 1,
    }
    assert sum(counts["failures"].values()) == counts["failed"] == 9


# -- beside a service that counts

ROWS, KEYS = 211, 37


def refusing():
    """A service that refuses two calls for some keys, before it answers."""
    asked = Counter()

    def answer(target, before):
        key = int(target.rpartition("/")[2])
        asked[key] += 1
        if key % 5 == 3 and asked[key] <= 2:
            return 503, {}, b""
        return 200, {}, b'{"v": %d}' % (3 * key)

    return ScriptedServer(answer)


WAITS = [sa.arrow.ordered_wait, sa.arrow.unordered_wait]


def looked_up(wait, reader, **given):
    """Returns what two outputs count together, and what the service was asked."""
    metrics = sa.Metrics()
    rows = pa.table({"id": list(range(ROWS)), "k": [n % KEYS for n in range(ROWS)]})
    given["retry"] = sa.retry.fixed_delay(5, "1ms", budget=None)
    with refusing() as service:
        value = sa.http.get(f"{service.url}/v/{{k}}", "v long", client=sa.http.Client(proxy=False))
        for _ in range(2):
            found = reader(wait(rows, value, metrics=metrics, max_concurrency=11, **given))
            assert sorted((row["id"], row["v"]) for row in found.to_pylist()) == [
                (n, 3 * (n % KEYS)) for n in range(ROWS)
            ]
    counts = metrics.snapshot()
    assert counts["tasks"] == 2
    assert counts["admitted"] == counts["emitted"] == 2 * ROWS
    assert (counts["failed"], counts["failed_tasks"]) == (0, NO_TASKS)
    return counts, service.targets


REFUSED = 2 * sum(key % 5 == 3 for key in range(KEYS))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("wait", WAITS)
def test_the_counts_are_those_of_the_service(wait, reader):
    counts, asked = looked_up(wait, reader)

    assert counts["attempts"] == len(asked) == 2 * ROWS + REFUSED
    assert counts["retries"] == REFUSED


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("wait", WAITS)
def test_the_calls_for_a_cache_are_those_of_the_service(wait, reader):
    counts, asked = looked_up(wait, reader, cache=sa.Cache(max_rows=1009))

    assert counts["attempts"] == counts["cache_loads"] == len(asked) == KEYS + REFUSED
    assert counts["cache_hits"] + counts["cache_misses"] >= 2 * ROWS


@pytest.mark.parametrize("reader", READERS)
def test_outputs_that_are_read_side_by_side_lose_no_count(reader):
    metrics = sa.Metrics()
    outs = [
        sa.arrow.unordered_wait(numbers(13 + n), square, metrics=metrics, tuning=SMALL)
        for n in range(7)
    ]
    assert metrics.snapshot() == NOTHING
    with ThreadPoolExecutor(len(outs)) as threads:
        rows = sum(table.num_rows for table in threads.map(reader, outs))

    counts = metrics.snapshot()
    assert rows == sum(range(13, 20))
    assert (counts["tasks"], counts["attempts"], counts["emitted"]) == (7, rows, rows)
    assert sum(calls for _, calls in counts["call_latency"]) == rows
    assert counts["attempts"] == sum(out.metrics["attempts"] for out in outs)
    assert not set(task_metrics.GAUGES) & set(counts)


def test_what_the_function_counts_is_added():
    class Counting(sa.AsyncFunction):
        schema = "y long"

        def open(self, context):
            self.context = context

        async def async_invoke(self, row):
            self.context.add_metric("bytes", 17)
            return {"y": row["id"]}

    metrics = sa.Metrics()
    for rows in (3, 0, 5):
        out = sa.arrow.ordered_wait(numbers(rows), Counting(), metrics=metrics)
        assert out.to_table().num_rows == rows

    counts = metrics.snapshot()
    assert (counts["tasks"], counts["function.bytes"]) == (3, 8 * 17)


# -- an output that is not read to its end


def closed(out):
    first = next(out)
    out.close()
    return first.num_rows


def abandoned(out):
    first = next(out)
    del out
    gc.collect()
    return first.num_rows


def left_asynchronously(out):
    async def one():
        async for batch in out:
            return batch.num_rows
        return 0

    return asyncio.run(one())


def endless():
    while True:
        yield from numbers().to_batches()


@pytest.fixture
def reports_at_the_end(monkeypatch):
    monkeypatch.setattr(task, "METRICS_SECONDS", 3600.0)


@pytest.mark.usefixtures("reports_at_the_end")
@pytest.mark.parametrize("leave", [closed, abandoned, left_asynchronously])
def test_an_output_that_is_left_half_read_counts_what_was_called(leave):
    metrics, called = sa.Metrics(), []

    @sa.async_function("y long")
    async def note(row):
        called.append(row["id"])
        return {"y": row["id"]}

    options = {"tuning": SMALL, "max_concurrency": 3, "metrics": metrics}
    # Nobody else holds it.
    rows = leave(sa.arrow.ordered_wait(endless(), note, **options))
    # Behind an asynchronous iteration, a thread ends the task.
    wait_until(lambda: metrics.snapshot()["tasks"] == 1)

    counts = metrics.snapshot()
    assert rows == 7
    assert counts["attempts"] >= len(called) >= counts["emitted"] >= rows
    assert counts["failed_tasks"] == NO_TASKS


@pytest.fixture
def reports_each_batch(monkeypatch):
    monkeypatch.setattr(task, "METRICS_SECONDS", 0.0)


@pytest.mark.usefixtures("reports_each_batch")
def test_an_output_that_is_still_read_counts_too_and_once():
    metrics = sa.Metrics()
    out = sa.arrow.ordered_wait(numbers(101), square, metrics=metrics, tuning=SMALL)
    assert next(out).num_rows + next(out).num_rows == 14

    half = metrics.snapshot()
    assert half["tasks"] == 1
    assert 101 >= half["attempts"] >= half["emitted"] >= 7
    assert 14 + sum(batch.num_rows for batch in out) == 101
    whole = metrics.snapshot()
    assert (whole["tasks"], whole["attempts"], whole["emitted"]) == (1, 101, 101)


@pytest.mark.usefixtures("reports_each_batch")
def test_a_task_that_fails_is_told_apart_though_it_had_counted_before():
    metrics = sa.Metrics()
    small = sa.Tuning(max_rows=3)
    out = sa.arrow.ordered_wait(numbers(), fails_at_7, metrics=metrics, tuning=small, capacity=1)
    with pytest.raises(sa.AsyncFunctionError, match="failed for row 7"):
        list(out)
    sa.arrow.ordered_wait(numbers(5), square, metrics=metrics).to_table()

    counts = metrics.snapshot()
    failed = counts["failed_tasks"]
    assert (counts["tasks"], counts["attempts"], counts["failed"]) == (1, 5, 0)
    assert (failed["tasks"], failed["failed"]) == (1, 1)
    assert (failed["attempts"], failed["emitted"]) == (8, 7)


# -- several calls


def test_each_call_of_a_chain_counts_for_itself():
    first, second, both = sa.Metrics(), sa.Metrics(), sa.Metrics()
    for one, two in ((first, second), (both, both), (first, None)):
        squares = sa.arrow.unordered_wait(numbers(), square, metrics=one)
        out = sa.arrow.ordered_wait(squares, cube, chain=True, metrics=two)
        assert sorted(out.to_table()["cube"].to_pylist()) == [n**3 for n in range(13)]

    assert (first.snapshot()["tasks"], first.snapshot()["attempts"]) == (2, 26)
    assert (second.snapshot()["tasks"], second.snapshot()["attempts"]) == (1, 13)
    assert set(first.snapshot()["operators"]) == {"square"}
    # Two operators.
    assert (both.snapshot()["tasks"], both.snapshot()["attempts"]) == (2, 26)
    assert {name: it["attempts"] for name, it in both.snapshot()["operators"].items()} == {
        "square": 13,
        "cube": 13,
    }


def test_functions_side_by_side_are_one_call():
    metrics = sa.Metrics()
    sa.arrow.ordered_wait(numbers(), [square, cube], metrics=metrics).to_table()

    counts = metrics.snapshot()
    assert (counts["tasks"], counts["admitted"], counts["attempts"]) == (1, 13, 26)
    assert {counts["operators"][name]["attempts"] for name in ("square", "cube")} == {13}


# -- the sums


def test_tasks_that_nobody_reads_the_counts_of_are_added_up_all_the_same():
    sums = SumsOfTasks()
    for n in range(211):
        sums.report(n, {"tasks": 1, "attempts": 10**6})
        sums.end(n, {"tasks": 1, "attempts": n}, has_failed=n % 13 == 0)
    assert len(sums._ended) <= task_metrics._MOST_UNREAD

    failed = range(0, 211, 13)
    assert sums.read() == (
        {"tasks": 211 - len(failed), "attempts": sum(range(211)) - sum(failed)},
        {"tasks": len(failed), "attempts": sum(failed)},
    )


def test_tasks_that_run_are_counted_once_however_many_they_are():
    sums = SumsOfTasks()
    for counted in (7, 13):
        for n in range(10_013):
            sums.report(n, {"tasks": 1, "attempts": counted})
        assert sums.read() == ({"tasks": 10_013, "attempts": counted * 10_013}, {})


def test_a_task_that_the_collector_ends_while_the_sums_are_read_is_not_lost(monkeypatch):
    monkeypatch.setattr(task_metrics, "_MOST_UNREAD", 0)
    sums = SumsOfTasks()

    class Collected(dict):
        """In the middle of adding it, another task ends on the same thread."""

        def items(self):
            sums.end("another", {"tasks": 1, "attempts": 5}, has_failed=False)
            return super().items()

    sums.report("running", Collected(tasks=1, attempts=3))

    first, _ = sums.read()
    assert first == {"tasks": 1, "attempts": 3}
    sums.end("running", {"tasks": 1, "attempts": 4}, has_failed=False)
    assert sums.read() == ({"tasks": 2, "attempts": 9}, {})


# -- what it is not


@pytest.mark.parametrize("wrong", [print, {}, sa.Metrics])
def test_another_thing_is_refused(wrong):
    with pytest.raises(
        sa.ConfigurationError, match=r"`metrics` must be a sparkawait\.Metrics, got"
    ):
        sa.arrow.ordered_wait(numbers(), square, metrics=wrong)


def test_it_needs_no_spark():
    program = """
import sys
sys.modules["pyspark"] = None
import sparkawait as sa
print(sa.Metrics().snapshot())
"""
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines() == [str(NOTHING)]
