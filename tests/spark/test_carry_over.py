# SPDX-License-Identifier: Apache-2.0
"""Rows of a stream that outlive their micro-batch: each comes out once, whatever is lost.

What a call waits for is a file that a test makes, and what has happened is counted: by micro-batch
at the sink, by row where the calls are made.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait._worker.step import LEAST, StepEnd, _ipc
from sparkawait.exceptions import ConfigurationError
from sparkawait.spark import carry
from sparkawait.spark.reports import NO_REPORTS
from sparkawait.spark.step import PROGRESS, Step, shard_keys
from tests.spark.calls import Once
from tests.spark.carried import SLOW, STORE, lookup, of_each_emit, of_each_vehicle
from tests.support.scripted_server import Answer, ScriptedServer
from tests.support.sql_conf import sql_conf
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


@of_each_emit
def test_a_slow_call_does_not_hold_its_micro_batch_and_is_made_once(stream, emit):
    stream.put(range(10))
    stream.start(stream.carried(emit=emit))

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
    assert max(it["redone_total"] for it in numbers) == 0
    assert {tuple(it) for it in numbers} == {PROGRESS}
    assert all(it["accounts"] for it in numbers)


@of_each_vehicle
def test_no_row_in_flight_ends_while_a_service_is_down(stream):
    rows, down = 4, 37

    def answer(target: str, before: int) -> Answer:
        if before < down:
            return 503, {}, b""
        return 200, {}, b'{"doubled": %d}' % (2 * int(target[1:]))

    with ScriptedServer(answer) as server:
        out = sa.unordered_wait(
            stream.source,
            sa.http.get(server.url + "/{id}", "doubled bigint"),
            retry=sa.retry.fixed_delay(3, "3ms", budget=None),
            circuit_breaker=sa.CircuitBreaker(initial="7ms", maximum="31ms"),
            carry_over=sa.CarryOver(vehicle=stream.vehicle),
            info="call",
        )
        stream.put(range(rows))
        stream.start(out)
        stream.until_out(range(rows))
        stream.stop()

    assert sorted(stream.rows) == [*range(rows)]
    of_row = Counter(int(it[1:]) for it in server.targets)
    assert {id_: told.attempts for id_, told in stream.told.items()} == of_row
    assert down < len(server.targets) <= down + 2 * rows


@of_each_vehicle
def test_a_query_goes_on_where_it_was_stopped_and_calls_nothing_again(stream):
    for first in (0, 10, 20):
        stream.put(range(first, first + 10))
        stream.start(stream.carried())
        stream.until_out(set(range(first + 10)) - {SLOW})
        stream.stop()

    stream.gate.touch()
    stream.put(range(30, 43))
    stream.start(stream.carried())
    stream.until_out(range(43))

    assert sorted(stream.rows) == list(range(43))
    assert [stream.calls_of(id_) for id_ in range(43)] == [1] * 43


@of_each_vehicle
def test_a_query_that_is_stopped_within_a_micro_batch_calls_nothing_again(stream, tmp_path):
    """It is the first one of its shard, so no state tells of its task."""
    step_has_ended, is_stopped = tmp_path / "ended", tmp_path / "stopped"

    def hold(batches):
        for batch in batches:
            step_has_ended.touch()
            wait_until(is_stopped.exists, patience=60)
            yield batch

    def stopped():
        return stream.carried().mapInArrow(hold, stream.carried().schema)

    stream.put(range(10))
    stream.start(stopped())
    stream.until(step_has_ended.exists)
    stopping = threading.Thread(target=stream.stop)
    stopping.start()
    wait_until(lambda: not stream.query.isActive, patience=60)
    is_stopped.touch()
    stopping.join()

    stream.start(stopped())
    stream.until_out(set(range(10)) - {SLOW})
    stream.gate.touch()
    stream.until_out(range(10))
    assert sorted(stream.rows) == list(range(10))
    assert [stream.calls_of(id_) for id_ in range(10)] == [1] * 10


@of_each_vehicle
def test_a_query_that_calls_otherwise_calls_again_what_was_in_flight(stream):
    stream.put(range(10))
    stream.start(stream.carried())
    stream.until_out(set(range(10)) - {SLOW})
    stream.stop()

    stream.gate.touch()
    stream.put(range(10, 23))
    # The calls of the run before are those of another function, or are made in another way.
    stream.start(stream.carried(capacity=97))
    stream.until_out(range(23))

    assert sorted(stream.rows) == list(range(23))
    assert [stream.calls_of(id_) for id_ in range(23)] == [1 + (id_ == SLOW) for id_ in range(23)]


@of_each_vehicle
def test_a_process_that_is_killed_costs_calls_and_no_row(stream):
    def kill():
        stream.between = None
        (line,) = (it for it in stream.calls.counts() if it.startswith(f"pid {SLOW} "))
        os.kill(int(line.split()[-1]), signal.SIGKILL)

    # A worker that is killed while a task uses it takes the others of that task with it.
    stream.between = kill
    stream.put(range(10))
    stream.start(stream.carried())
    stream.until_out(set(range(10)) - {SLOW})
    stream.until(lambda: stream.calls_of(SLOW) == 2)
    stream.gate.touch()
    stream.put(range(10, 20))
    stream.until_out(range(20))

    assert sorted(stream.rows) == list(range(20))
    # Spark 3.5 may give a task the dead worker, and ends the others of that task with it, the one
    # that has called again among them.
    most = 3 if pyspark.__version__.startswith("3.") else 2
    assert all(stream.calls_of(id_) == 1 for id_ in range(20) if id_ != SLOW)
    assert 2 <= stream.calls_of(SLOW) <= most
    if not pyspark.__version__.startswith("3."):
        stream.until(lambda: stream.numbers()[-1]["redone_total"] == stream.calls_of(SLOW) - 1)
        assert sum(it["redone"] for it in stream.numbers()) == stream.calls_of(SLOW) - 1
        assert all(it["accounts"] for it in stream.numbers())


def test_a_task_that_fails_behind_its_step_loses_and_doubles_nothing(stream, tmp_path):
    once = Once(tmp_path / "failed")

    def fail_once(batches):
        for batch in batches:
            if 12 in batch.column("id").to_pylist() and once.take():
                message = "the task fails"
                raise RuntimeError(message)
            yield batch

    stream.put(range(10))
    out = stream.carried()
    stream.start(out.mapInArrow(fail_once, out.schema))
    stream.until_out(set(range(10)) - {SLOW})

    stream.put(range(10, 20))
    stream.until_out(set(range(20)) - {SLOW})
    stream.gate.touch()
    stream.until_out(range(20))

    assert not once.take()
    assert sorted(stream.rows) == list(range(20))


@of_each_emit
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
    out = stream.carried(emit=emit)
    stream.start(out.mapInArrow(fail_once, out.schema))
    stream.until_out(set(range(10)) - {SLOW})
    stream.gate.touch()
    stream.until_out(range(10))

    assert not once.take()
    assert sorted(stream.rows) == list(range(10))
    assert [stream.calls_of(id_) for id_ in range(10)] == [1] * 10


def test_a_batch_whose_sink_has_failed_is_run_again(stream):
    """What `test_carry_over_driver` does to whole drivers, on each Spark."""
    stream.put(range(10))
    stream.start(stream.carried())
    stream.until_out(set(range(10)) - {SLOW})
    stream.sink_fails = True
    wait_until(lambda: stream.query.exception() is not None, patience=60)

    stream.sink_fails = False
    stream.gate.touch()
    stream.put(range(10, 20))
    # What was in flight is completed in the batch that is run again.
    stream.start(stream.carried(linger="60s"))
    stream.until_out(range(20))

    assert sorted(stream.rows) == list(range(20))
    assert sum(count > 1 for count in stream.executed.values()) == 1


@pytest.mark.newest_spark
def test_without_batches_of_no_data_a_query_goes_on_when_rows_come(spark, stream):
    with sql_conf(spark, {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}):
        stream.put(range(10))
        stream.start(stream.carried(emit="at_once"), availableNow=True)
        stream.query.awaitTermination()
        assert SLOW not in stream.rows

        stream.gate.touch()
        stream.put(range(10, 12))
        stream.start(stream.carried(emit="at_once", linger="60s"))
        with pytest.raises(ConfigurationError, match="enabled is false; set it to true"):
            sa.drain(stream.query)
        assert stream.query.isActive
        stream.until_out(range(12))

    assert sorted(stream.rows) == list(range(12))


@pytest.mark.newest_spark
def test_a_destination_that_stands_still_holds_no_row_of_the_others(stream):
    still = {id_ for id_ in range(90) if id_ % 3 == 1}
    function = lookup(stream.calls, stream.gate, frozenset(still))
    out = sa.unordered_wait(stream.source, function, channel="key", capacity=4, carry_over=True)
    stream.put(range(30))
    stream.start(out)
    stream.until_out(set(range(30)) - still)
    stream.put(range(30, 60))
    stream.put(range(60, 90))
    stream.until_out(set(range(90)) - still)
    assert still.isdisjoint(stream.rows)

    stream.gate.touch()
    stream.until_out(range(90))

    assert sorted(stream.rows) == list(range(90))
    assert [stream.calls_of(id_) for id_ in range(90)] == [1] * 90


def test_rows_of_a_key_keep_their_order_over_micro_batches(stream):
    stream.put(range(6, 12))
    function = lookup(stream.calls, stream.gate)
    carry_over = sa.CarryOver(emit="at_once")
    # As our own column is called, which goes to the shards beside those of the rows.
    source = stream.source.withColumn("__sparkawait_hash", F.lit("of the user"))
    out = sa.key_ordered_wait(source, function, key="key", carry_over=carry_over)
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
    doubled = stream.carried()
    stream.start(sa.unordered_wait(doubled, triple, chain=True).where("tripled = 3 * id"))

    stream.until_out(set(range(10)) - {SLOW})
    stream.gate.touch()
    stream.until_out(range(10))

    counts = stream.calls.counts()
    assert [counts[f"triple {id_}"] for id_ in range(10)] == [1] * 10


@of_each_vehicle
@pytest.mark.newest_spark
def test_draining_ends_a_busy_query_with_nothing_in_flight(stream):
    stream.put(range(10))
    stream.start(stream.carried())
    stream.until_out(set(range(10)) - {SLOW})
    assert not sa.drain(stream.query, timeout="1ms")
    assert not stream.query.isActive

    for first in range(10, 220, 7):
        stream.put(range(first, first + 7))
    stream.start(stream.carried())
    stream.until_out(range(10, 13))
    stream.gate.touch()
    assert sa.drain(stream.query)

    count = len(stream.rows)
    assert not stream.query.isActive
    assert sorted(stream.rows) == list(range(count))
    assert count < 220
    found = [stream.calls_of(id_) for id_ in range(220)]
    # A query that is stopped within a micro-batch loses the worker that carries it out.
    assert found.pop(SLOW) in (1, 2)
    assert found == [1] * (count - 1) + [0] * (220 - count)
    # Nothing that binds the query to its columns is left.
    other = stream.source.withColumn("key", F.col("key").cast("string"))
    carry_over = sa.CarryOver(vehicle=stream.vehicle)
    stream.start(sa.unordered_wait(other, lookup(stream.calls, stream.gate), carry_over=carry_over))
    stream.until_out(range(count + 7))


@pytest.mark.newest_spark
def test_a_query_that_reads_all_that_is_there_ends_when_all_rows_have_left(stream):
    def open_gate():
        stream.between = None
        stream.gate.touch()

    stream.between = open_gate
    for first in (0, 10, 20):
        stream.put(range(first, first + 10))
    stream.start(stream.carried(), availableNow=True)
    assert stream.query.awaitTermination(90)

    assert sorted(stream.rows) == list(range(30))
    assert [stream.calls_of(id_) for id_ in range(30)] == [1] * 30


POISON = 14


def poisoned(stream):
    """Doubles each row but one."""
    double = lookup(stream.calls, stream.gate)

    @sa.async_function("doubled bigint")
    async def double_most(row):
        if row["id"] == POISON:
            stream_calls.add("poison")
            message = "the service does not like it"
            raise ValueError(message)
        return await double(row)

    stream_calls = stream.calls
    return double_most


@of_each_vehicle
@pytest.mark.parametrize(
    "mode", ["key_ordered", pytest.param("unordered", marks=pytest.mark.nightly)]
)
def test_a_query_that_a_row_has_failed_goes_on_and_captures_the_error(stream, mode):
    """Rows that are completed by then have no column for it, and no call is made for them again."""
    for ids in (range(10), range(10, 13), [POISON], [13, 15]):
        stream.put(ids)

    def out(**options):
        carry_over = sa.CarryOver(vehicle=stream.vehicle, name_rows_by=("key", "id"))
        options |= {"timeout": None} | ({"key": "key"} if mode == "key_ordered" else {})
        call = sa.unordered_wait if mode == "unordered" else sa.key_ordered_wait
        return call(stream.source, poisoned(stream), carry_over=carry_over, **options)

    stream.start(out())
    with pytest.raises(StreamingQueryException, match="the service does not like it") as raised:
        stream.query.awaitTermination()
    assert f"(key={POISON % 3}, id={POISON}) after 1 attempt" in str(raised.value)
    assert "\nin micro-batch " in str(raised.value)
    # 10 waits for the slow row, which has its key.
    held = {11, 12} if mode == "key_ordered" else {10, 11, 12}
    assert held.isdisjoint(stream.rows)
    assert all(stream.calls_of(id_) == 1 for id_ in held)

    stream.failing = frozenset({POISON})
    stream.start(out(on_error="capture", info="call"))
    stream.until_out({*range(10), *held} - {SLOW})
    stream.gate.touch()
    stream.until_out(range(16))

    assert sorted(stream.rows) == list(range(16))
    assert all(stream.calls_of(id_) == 1 for id_ in held)
    assert [stream.told[id_] for id_ in sorted(held)] == [None] * len(held)
    assert stream.told[POISON].attempts == 1


class LosesOutputs(Step):
    """A step that loses a bundle of rows on its way to Spark."""

    def rows(self, end):
        told = super().rows(end)
        return told[told["rows"].isna() | (told.index > 0)]


@pytest.mark.newest_spark
def test_rows_that_spark_does_not_get_are_not_accounted_for(stream, monkeypatch):
    monkeypatch.setattr(carry, "Step", LosesOutputs)
    stream.gate.touch()
    stream.put(range(13))
    stream.start(stream.carried(emit="at_once", linger="60s"))
    stream.until(lambda: any(not it["accounts"] for it in stream.numbers()))

    assert len(stream.rows) < 13


class StepOver(Step):
    """A step that finds another state than it has left."""

    changed = None

    def run(self, key, state, frames):
        if state is not None:
            version, payload = state
            state = type(self).changed(version, bytes(payload))
        return super().run(key, state, frames)


class CutOff(StepOver):
    @staticmethod
    def changed(version, payload):
        return version, payload[:-1]


class OfANewerVersion(StepOver):
    @staticmethod
    def changed(version, payload):
        return version + 1, payload


@pytest.mark.newest_spark
def test_a_query_that_cannot_read_its_state_says_so_and_loses_nothing(stream, monkeypatch):
    stream.put(range(10))
    stream.start(stream.carried())
    stream.until_out(set(range(10)) - {SLOW})
    stream.stop()
    stream.put(range(10, 20))

    function = lookup(stream.calls, stream.gate)
    other = stream.source.withColumn("key", F.col("key").cast("string"))
    stream.start(sa.unordered_wait(other, function, carry_over=True))
    with pytest.raises(StreamingQueryException, match="carried over by another form of the query"):
        stream.query.awaitTermination()
    for step, message in [
        (CutOff, "is damaged or cut off"),
        (OfANewerVersion, "has version 2, this sparkawait reads 1"),
    ]:
        with monkeypatch.context() as patched:
            patched.setattr(carry, "Step", step)
            stream.start(stream.carried())
        with pytest.raises(StreamingQueryException, match=message):
            stream.query.awaitTermination()

    stream.gate.touch()
    stream.start(stream.carried(capacity=2))
    stream.until_out(range(20))

    assert sorted(stream.rows) == list(range(20))


@pytest.mark.newest_spark
def test_metrics_count_rows_of_all_micro_batches(spark, stream):
    metrics = sa.Metrics()
    stream.gate.touch()
    stream.put(range(10))
    function = lookup(stream.calls, stream.gate)
    out = sa.unordered_wait(stream.source, function, carry_over=sa.CarryOver(), metrics=metrics)
    stream.start(out)
    stream.put(range(10, 20))
    stream.until_out(range(20))

    found = metrics.snapshot()
    assert (found["admitted"], found["emitted"], found["attempts"]) == (20, 20, 20)


@pytest.mark.parametrize("outputs", [[], [_ipc(pa.record_batch({"id": [3, 4]}))]])
def test_what_a_step_puts_out_is_joined_without_a_warning(outputs):
    """PySpark puts an empty frame behind it, for each shard and micro-batch."""
    step = object.__new__(Step)
    step._chain, step._reports = SimpleNamespace(plans=()), NO_REPORTS
    frame = step.rows(StepEnd(outputs, b"state", waits=True, carried=7))
    empty = pd.DataFrame(dict.fromkeys(frame.columns), index=[])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        joined = pd.concat([frame, empty], ignore_index=True)
    assert joined["payload"].tolist() == [*outputs, None]
    assert joined["rows"].tolist() == [*(2 for _ in outputs), None]
    assert joined["carried"].tolist() == [*(None for _ in outputs), 7]


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


def test_calls_behind_one_another_are_carried_over_as_a_chain_or_refused(spark, stream):
    @sa.async_function("tripled bigint")
    async def triple(row):
        return {"tripled": 3 * row["id"]}

    def count(key, frames, state):
        yield from frames

    first = stream.carried()
    first.createOrReplaceTempView("carried")
    others = stream.source.select("id").union(first.where("id > 3").select("id"))
    own = stream.source.groupBy("key").applyInPandasWithState(
        count, "id bigint", "rows bigint", "append", "NoTimeout"
    )
    for before, name in [
        (first, "double"),
        (others, "double"),
        (spark.table("carried"), "double"),
        (own, "count"),
    ]:
        message = f"triple` comes behind `.*{name}`, .* chain=True"
        if not pyspark.__version__.startswith("3."):
            message += f'.*vehicle="transform_with_state"\\) and set {STORE} to .*RocksDB'
        with pytest.raises(ConfigurationError, match=message):
            sa.unordered_wait(before, triple, carry_over=sa.CarryOver())
        assert "tripled" in sa.unordered_wait(before, triple).columns
    again = sa.unordered_wait(first, triple, chain=True, carry_over=True)
    assert "tripled" in again.columns


def test_a_chain_says_once_how_it_is_carried_over(stream):
    out = stream.carried()
    function = sa.async_function("other int")(lambda row: 1)
    with pytest.raises(ConfigurationError, match="first call of a chain sets"):
        sa.unordered_wait(
            out,
            function,
            chain=True,
            carry_over=sa.CarryOver(linger="1s"),
        )


@pytest.fixture(scope="module")
def elsewhere(request, tmp_path_factory):
    """What came of streams on sessions that differ from that of the other tests."""
    moves = test_a_shard_that_moves_to_another_executor_finds_its_calls.__name__
    parts = ["moving"] if any(it.name == moves for it in request.session.items) else []
    folder = tmp_path_factory.mktemp("elsewhere")
    out = folder / "results.json"
    program = subprocess.run(
        [sys.executable, "-m", "tests.spark.carry_over_program", folder, out, *parts],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert program.returncode == 0, program.stderr[-5000:]
    return json.loads(out.read_text())


@pytest.mark.nightly  # it is the shards' own addresses that find them, in one process or many
@pytest.mark.newest_spark
@pytest.mark.timeout(600)
def test_a_shard_that_moves_to_another_executor_finds_its_calls(elsewhere):
    found = elsewhere["moving"]
    assert found["moved"]
    assert found["rows"] == list(range(20))
    assert found["calls"] == [1] * 20


@pytest.mark.nightly  # a Spark of its own, for 44 s; a worker that is killed is tried above
@pytest.mark.newest_spark
@pytest.mark.timeout(600)
def test_a_row_is_called_again_three_times_at_most(elsewhere):
    found = elsewhere["without reuse"]
    assert found["meanwhile"] == [id_ for id_ in range(10) if id_ != SLOW]
    assert found["rows"] == list(range(20))
    assert found["calls"] == [1 + 3 * (id_ == SLOW) for id_ in range(20)]
    # Each micro-batch has waited for the call, and the row was in the one before.
    assert len(found["ages"]) >= 2
    assert all(age >= LEAST * (n + 2) for n, age in enumerate(found["ages"]))


@pytest.mark.nightly  # in the same Spark; queries are drained above
@pytest.mark.newest_spark
@pytest.mark.timeout(600)
def test_a_driver_that_is_told_to_end_drains_its_query(elsewhere):
    found = elsewhere["without reuse"]["signalled"]
    assert found == {"rows": list(range(10)), "answers": [True]}
