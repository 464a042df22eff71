# SPDX-License-Identifier: Apache-2.0
"""Rows of a stream that outlive their micro-batch: each comes out once, whatever is lost.

What a call waits for is a file that a test makes, and what has happened is counted: by micro-batch
at the sink, by row where the calls are made.
"""

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait.exceptions import ConfigurationError
from sparkawait.spark.carry import shard_keys
from tests.spark.calls import CallLog, Once
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

SLOW = 7
"""The row whose call waits for the gate."""


def lookup(calls: CallLog, gate: Path):
    """Doubles each row; that of `SLOW` when the gate is open."""
    path = str(gate)

    @sa.async_function("doubled bigint")
    async def double(row):
        calls.add(row["id"])
        calls.add(f"pid {row['id']} {os.getpid()}")
        while row["id"] == SLOW and not os.path.exists(path):  # noqa: ASYNC110, ASYNC240, PTH110
            await asyncio.sleep(0.01)
        return {"doubled": 2 * row["id"]}

    return double


class Stream:
    """A query over files that a test adds, whose sink keeps the rows of each micro-batch."""

    def __init__(self, spark, folder: Path, calls: CallLog) -> None:
        self.spark = spark
        self.folder = folder
        self.calls = calls
        self.gate = folder / "gate"
        self.batches: dict[int, list[int]] = {}
        self.executed: Counter[int] = Counter()
        self.actions = 1
        self.query = None
        self._files = 0
        (folder / "source").mkdir()
        calls.add("none so far")

    def put(self, ids) -> None:
        """Adds a file, which is read in a micro-batch of its own."""
        self._files += 1
        lines = [json.dumps({"id": id_, "key": id_ % 3}) for id_ in ids]
        path = self.folder / f"{self._files}.json"
        path.write_text("\n".join(lines))
        os.utime(path, (self._files, self._files))
        path.rename(self.folder / "source" / path.name)

    @property
    def source(self):
        reader = self.spark.readStream.schema("id bigint, key bigint")
        return reader.option("maxFilesPerTrigger", 1).json(str(self.folder / "source"))

    def start(self, out) -> None:
        """Starts the query, from its checkpoint if it has one."""
        writer = out.writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        self.query = writer.trigger(processingTime="50 milliseconds").start()

    def _keep(self, batch, number: int) -> None:
        actions = [batch.collect() for _ in range(self.actions)]
        rows, *again = ([(row.id, row.doubled) for row in rows] for rows in actions)
        assert all(sorted(other) == sorted(rows) for other in again)
        assert all(doubled == 2 * id_ for id_, doubled in rows)
        self.executed[number] += 1
        # As a sink does that knows a micro-batch by its number.
        self.batches.setdefault(number, [id_ for id_, _ in rows])

    @property
    def rows(self) -> list[int]:
        """What came out, in order."""
        return [id_ for number in sorted(self.batches) for id_ in self.batches[number]]

    def until(self, condition) -> None:
        """Waits for a condition, as long as the query runs."""

        def is_met() -> bool:
            if self.query.exception() is not None:
                raise self.query.exception()
            return condition()

        wait_until(is_met, patience=180)

    def until_out(self, ids) -> None:
        wanted = set(ids)
        self.until(lambda: wanted <= set(self.rows))

    def calls_of(self, id_: int) -> int:
        return self.calls.counts()[str(id_)]

    def numbers(self) -> list[dict]:
        """What the progress of each micro-batch says of rows in flight."""
        # Spark 3.5 has them for batches with new rows only.
        progress = self.query.recentProgress
        found = [it.get("observedMetrics", {}).get("sparkawait") for it in progress]
        rows = (row for row in found if row is not None)
        return [row if isinstance(row, dict) else row.asDict() for row in rows]

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()


@pytest.fixture
def stream(spark, tmp_path, calls):
    stream = Stream(spark, tmp_path, calls)
    yield stream
    stream.stop()


def carried(stream, **options):
    function = lookup(stream.calls, stream.gate)
    return sa.unordered_wait(stream.source, function, carry_over=sa.CarryOver(**options))


@pytest.mark.parametrize("emit", ["next_batch", "at_once"])
def test_a_slow_call_does_not_hold_its_micro_batch_and_is_made_once(stream, emit):
    stream.put(range(10))
    stream.start(carried(stream, emit=emit))

    stream.until_out(set(range(10)) - {SLOW})
    stream.put(range(10, 20))
    stream.until_out(set(range(20)) - {SLOW})
    # What the progress of a micro-batch says comes behind its rows.
    stream.until(lambda: any(it["adopted"] for it in stream.numbers()))
    stream.gate.touch()
    stream.until_out(range(20))

    assert sorted(stream.rows) == list(range(20))
    assert [stream.calls_of(id_) for id_ in range(20)] == [1] * 20
    numbers = stream.numbers()
    assert max(it["carried"] for it in numbers) > 0
    assert max(it["redone"] for it in numbers) == 0


def test_a_query_goes_on_where_it_was_stopped(stream):
    stream.put(range(10))
    stream.start(carried(stream))
    stream.until_out(set(range(10)) - {SLOW})
    stream.stop()

    stream.gate.touch()
    stream.put(range(10, 20))
    stream.start(carried(stream))
    stream.until_out(range(20))

    assert sorted(stream.rows) == list(range(20))
    # The calls of another run are not those of this one, whose function may be another.
    assert [stream.calls_of(id_) for id_ in range(20)] == [1 + (id_ == SLOW) for id_ in range(20)]


def test_a_process_that_is_killed_costs_calls_and_no_row(stream):
    stream.put(range(10))
    stream.start(carried(stream))
    stream.until_out(set(range(10)) - {SLOW})

    (line,) = (it for it in stream.calls.counts() if it.startswith(f"pid {SLOW} "))
    os.kill(int(line.split()[-1]), signal.SIGKILL)
    stream.until(lambda: stream.calls_of(SLOW) == 2)
    stream.gate.touch()
    stream.put(range(10, 20))
    stream.until_out(range(20))

    assert sorted(stream.rows) == list(range(20))
    assert max(stream.calls_of(id_) for id_ in range(20)) == 2
    if not pyspark.__version__.startswith("3."):
        stream.until(lambda: any(it["redone"] for it in stream.numbers()))


def test_a_task_that_fails_behind_its_step_loses_and_doubles_nothing(stream, tmp_path):
    once = Once(tmp_path / "failed")

    def fail_once(batches):
        for batch in batches:
            if 12 in batch.column("id").to_pylist() and once.take():
                message = "the task fails"
                raise RuntimeError(message)
            yield batch

    stream.put(range(10))
    out = carried(stream)
    stream.start(out.mapInArrow(fail_once, out.schema))
    stream.until_out(set(range(10)) - {SLOW})

    stream.put(range(10, 20))
    stream.until_out(set(range(20)) - {SLOW})
    stream.gate.touch()
    stream.until_out(range(20))

    assert not once.take()
    assert sorted(stream.rows) == list(range(20))


@pytest.mark.parametrize("emit", ["next_batch", "at_once"])
def test_a_step_that_is_carried_out_again_calls_nothing_again(stream, tmp_path, emit):
    """Be it the first of its shard, whose task no state tells of."""
    once = Once(tmp_path / "failed")

    def fail_once(batches):
        yield from batches
        # All that the step has put out was taken.
        if once.take():
            message = "the task fails"
            raise RuntimeError(message)

    stream.actions = 2
    stream.put(range(10))
    out = carried(stream, emit=emit)
    stream.start(out.mapInArrow(fail_once, out.schema))
    stream.until_out(set(range(10)) - {SLOW})
    stream.gate.touch()
    stream.until_out(range(10))

    assert not once.take()
    assert sorted(stream.rows) == list(range(10))
    assert [stream.calls_of(id_) for id_ in range(10)] == [1] * 10


def test_a_batch_that_is_run_again_emits_the_same_rows(stream):
    """The driver dies after the sink has a batch, and before Spark knows that it has."""
    for part in range(4):
        stream.put(range(10 * part, 10 * part + 10))
    commits = stream.folder / "checkpoint" / "commits"
    for crashes in range(1, 3):
        stream.start(carried(stream))
        stream.until(lambda seen=crashes: len(stream.rows) >= 9 * seen)
        stream.stop()
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    stream.gate.touch()
    stream.start(carried(stream))
    stream.until_out(range(40))

    assert sorted(stream.rows) == list(range(40))
    assert sum(count > 1 for count in stream.executed.values()) > 0


def test_rows_of_a_key_keep_their_order_over_micro_batches(stream):
    stream.put(range(6, 12))
    function = lookup(stream.calls, stream.gate)
    carry_over = sa.CarryOver(emit="at_once")
    out = sa.key_ordered_wait(stream.source, function, key="key", carry_over=carry_over)
    stream.start(out)
    # 7 and 10 are of one key, whose second row waits for the first.
    stream.until_out({6, 8, 9, 11})

    stream.put(range(12, 18))
    stream.until_out({12, 14, 15, 17})
    assert stream.calls_of(10) == stream.calls_of(13) == 0
    stream.gate.touch()
    stream.until_out(range(6, 18))

    assert sorted(stream.rows) == list(range(6, 18))
    assert [id_ for id_ in stream.rows if id_ % 3 == 1] == [7, 10, 13, 16]


@pytest.mark.newest_spark
def test_rows_keep_their_order_by_a_column(stream):
    stream.put(range(10))
    function = lookup(stream.calls, stream.gate)
    carry_over = sa.CarryOver(order_by="key")
    stream.start(sa.ordered_wait(stream.source, function, carry_over=carry_over))
    stream.put(range(10, 20))
    stream.until(lambda: stream.calls_of(19) == 1)
    assert SLOW not in stream.rows

    stream.gate.touch()
    stream.until_out(range(20))

    assert sorted(stream.rows) == list(range(20))
    for key in range(3):
        of_key = [id_ for id_ in stream.rows if id_ % 3 == key]
        assert of_key == sorted(of_key)


@pytest.mark.newest_spark
def test_a_chain_is_carried_over_as_one(stream):
    @sa.async_function("tripled bigint")
    async def triple(row):
        stream_calls.add(f"triple {row['id']}")
        return {"tripled": 3 * row["id"]}

    stream_calls = stream.calls
    stream.put(range(10))
    doubled = carried(stream)
    stream.start(sa.unordered_wait(doubled, triple, chain=True).where("tripled = 3 * id"))

    stream.until_out(set(range(10)) - {SLOW})
    stream.gate.touch()
    stream.until_out(range(10))

    counts = stream.calls.counts()
    assert [counts[f"triple {id_}"] for id_ in range(10)] == [1] * 10


@pytest.mark.newest_spark
def test_draining_leaves_nothing_in_flight(stream):
    stream.put(range(10))
    stream.start(carried(stream))
    stream.until_out(set(range(10)) - {SLOW})
    stream.stop()

    stream.gate.touch()
    # Spark begins with a micro-batch where the last one had ended when rows come.
    stream.put(range(10, 12))
    stream.start(carried(stream, drain=True))
    stream.until_out(range(12))
    stream.until(lambda: stream.numbers() and stream.numbers()[-1]["carried"] == 0)

    assert sorted(stream.rows) == list(range(12))


@pytest.mark.newest_spark
def test_rows_with_other_columns_are_not_taken_up(stream):
    stream.put(range(10))
    stream.start(carried(stream))
    stream.until_out(set(range(10)) - {SLOW})
    stream.stop()

    function = lookup(stream.calls, stream.gate)
    source = stream.source.withColumn("key", F.col("key").cast("string"))
    stream.put(range(10, 20))
    stream.start(sa.unordered_wait(source, function, carry_over=sa.CarryOver()))

    with pytest.raises(Exception, match="carried over by another form of the query"):
        stream.until_out(range(10))


@pytest.mark.newest_spark
def test_metrics_count_rows_of_all_micro_batches(spark, stream):
    metrics = sa.Metrics(spark)
    stream.gate.touch()
    stream.put(range(10))
    function = lookup(stream.calls, stream.gate)
    out = sa.unordered_wait(stream.source, function, carry_over=sa.CarryOver(), metrics=metrics)
    stream.start(out)
    stream.put(range(10, 20))
    stream.until_out(range(20))

    found = metrics.snapshot()
    assert (found["admitted"], found["emitted"], found["attempts"]) == (20, 20, 20)


def test_each_partition_of_a_shuffle_has_a_key(spark):
    for shards in (1, 2, 3, 8, 50):
        keys = shard_keys(shards)
        index = F.pmod(F.hash(F.col("key")), F.lit(shards))
        df = spark.createDataFrame([(key,) for key in keys], "key int").select(index)
        assert [row[0] for row in df.collect()] == list(range(shards))


@pytest.mark.parametrize(
    ("wait", "arguments", "message"),
    [
        (sa.ordered_wait, {}, "order_by='partition'"),
        (sa.unordered_wait, {"order_by": "key"}, "it keeps no order"),
        (sa.ordered_wait, {"order_by": "nothing"}, "names column `nothing`"),
    ],
)
def test_what_does_not_go_together_is_refused(stream, wait, arguments, message):
    function = lookup(stream.calls, stream.gate)
    with pytest.raises(ConfigurationError, match=message):
        wait(stream.source, function, carry_over=sa.CarryOver(**arguments))


def test_a_batch_query_has_nothing_to_carry_over(spark, stream):
    function = lookup(stream.calls, stream.gate)
    df = spark.range(3)
    with pytest.raises(ConfigurationError, match="is for streaming DataFrames"):
        sa.unordered_wait(df, function, carry_over=sa.CarryOver())


def test_own_watermarks_do_not_go_beyond_a_task(stream):
    function = lookup(stream.calls, stream.gate)
    source = stream.source.withColumn("time", F.current_timestamp())
    watermark = sa.WatermarkStrategy.for_bounded_out_of_orderness("time", "1s")
    with pytest.raises(ConfigurationError, match="withWatermark behind the call"):
        sa.unordered_wait(source, function, watermark=watermark, carry_over=sa.CarryOver())


def test_a_chain_says_once_how_it_is_carried_over(stream):
    out = carried(stream)
    function = lookup(stream.calls, stream.gate)
    with pytest.raises(ConfigurationError, match="is said by its first call"):
        sa.unordered_wait(
            out,
            function,
            chain=True,
            output="replace",
            carry_over=sa.CarryOver(linger="1s"),
        )
