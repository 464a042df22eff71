# SPDX-License-Identifier: Apache-2.0
"""Several operators with state in one query, of which calls with `carry_over` are some.

What `test_carry_over` says of a vehicle, it says of each; here is what only one of them can.
"""

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait.exceptions import ConfigurationError
from sparkawait.spark import step
from sparkawait.spark.step import StateProcessor
from tests.spark.carried import OFTEN, ROCKS, SLOW, STORE, lookup, of_each_vehicle, with_several
from tests.support.sql_conf import sql_conf

pytestmark = pytest.mark.spark

SLOW_TOO = 5
"""The row whose call to `triple` waits for the gate."""
MESSAGES = "pyspark.sql.streaming.proto.StateMessage_pb2"


def triple(stream):
    calls, gate = stream.calls, str(stream.gate)

    @sa.async_function("tripled bigint")
    async def triple(row):
        calls.add(f"triple {row['id']}")
        while row["id"] == SLOW_TOO and not os.path.exists(gate):  # noqa: ASYNC110, ASYNC240, PTH110
            await asyncio.sleep(0.01)
        return {"tripled": 3 * row["id"]}

    return triple


def tripled(stream, df, **options):
    carry_over = sa.CarryOver(vehicle=OFTEN, emit="at_once", **options)
    return sa.unordered_wait(df, triple(stream), carry_over=carry_over)


def counted_by_function(df):
    """Returns `df` through an ``applyInPandasWithState`` of a user, with rows of a key so far."""

    def count(_key, frames, state):
        rows = state.get[0] if state.exists else 0
        for frame in frames:
            rows += len(frame)
            yield frame.assign(so_far=rows)
        state.update((rows,))

    return df.groupBy("key").applyInPandasWithState(
        count, f"{df._jdf.schema().toDDL()}, so_far bigint", "rows bigint", "append", "NoTimeout"
    )


def passed_by_processor(df):
    """Returns `df` through a ``transformWithStateInPandas`` of a user."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Pass(StatefulProcessor):
        def init(self, handle):
            self.rows = handle.getValueState("rows", "rows bigint")

        def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
            for frame in rows:
                so_far = self.rows.get() or (0,)
                self.rows.update((so_far[0] + len(frame),))
                yield frame

    return df.groupBy("key").transformWithStateInPandas(Pass(), df.schema, "Append", "None")


def run_past_slow_calls(stream, out):
    """Runs a stream of 10 rows, of which two wait for the gate while the others come out."""
    stream.put(range(10))
    stream.start(out)
    stream.until_out(set(range(10)) - {SLOW, SLOW_TOO})
    stream.gate.touch()
    stream.until_out(range(10))


def names_of_numbers(stream):
    return set(stream.query.lastProgress["observedMetrics"])


@with_several
def test_two_calls_of_a_query_keep_their_tasks_apart(stream):
    """They are of one run, with the same micro-batches and shards; their tasks are not."""
    first = stream.carried(emit="at_once")
    between = first.repartition(2)
    run_past_slow_calls(stream, tripled(stream, between).where("tripled = 3 * id"))

    counts = stream.calls.counts()
    assert sorted(stream.rows) == list(range(10))
    assert [counts[str(id_)] for id_ in range(10)] == [1] * 10
    assert [counts[f"triple {id_}"] for id_ in range(10)] == [1] * 10
    (second,) = names_of_numbers(stream) - {"sparkawait"}
    assert second.startswith("sparkawait_triple")


@of_each_vehicle
def test_a_shard_is_one_step_in_however_many_chunks_its_bundles_come(stream):
    with sql_conf(stream.spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}):
        stream.put(range(10))
        stream.start(stream.carried(emit="at_once"))
        stream.until_out(set(range(10)) - {SLOW})
        stream.put(range(10, 20))
        stream.until_out(set(range(20)) - {SLOW})
        stream.gate.touch()
        stream.until_out(range(20))

    assert sorted(stream.rows) == list(range(20))
    assert [stream.calls_of(id_) for id_ in range(20)] == [1] * 20


@with_several
def test_operators_of_the_user_stand_before_and_behind(stream):
    before = counted_by_function(stream.source)
    function = lookup(stream.calls, stream.gate)
    carry_over = sa.CarryOver(vehicle=OFTEN, emit="at_once")
    out = sa.unordered_wait(before, function, carry_over=carry_over)
    run_past_slow_calls(stream, passed_by_processor(out))

    assert sorted(stream.rows) == list(range(10))
    assert [stream.calls_of(id_) for id_ in range(10)] == [1] * 10


@pytest.mark.nightly
@pytest.mark.newest_spark
@with_several
def test_the_one_operator_that_spark_admits_once_may_come_behind(stream):
    run_past_slow_calls(
        stream, counted_by_function(stream.carried(emit="at_once").transform(passed_by_processor))
    )

    assert sorted(stream.rows) == list(range(10))
    assert [stream.calls_of(id_) for id_ in range(10)] == [1] * 10


@pytest.mark.nightly
@with_several
def test_calls_of_two_branches_come_together_in_a_join(stream):
    left = stream.carried(emit="at_once", name="left")
    right = tripled(stream, stream.source.drop("key"), name="right")
    run_past_slow_calls(stream, left.join(right, "id").where("tripled = 3 * id"))

    counts = stream.calls.counts()
    assert sorted(stream.rows) == list(range(10))
    assert [counts[str(id_)] for id_ in range(10)] == [1] * 10
    assert [counts[f"triple {id_}"] for id_ in range(10)] == [1] * 10
    assert names_of_numbers(stream) == {"sparkawait_left", "sparkawait_right"}


@pytest.mark.nightly
@pytest.mark.newest_spark
@with_several
def test_a_stream_is_joined_with_itself(stream):
    carried = stream.carried(emit="at_once")
    run_past_slow_calls(stream, carried.join(carried.select("id", F.lit(1)), "id"))

    assert sorted(stream.rows) == list(range(10))
    # Each side has a step; one that finds what the other has made of the same rows takes it.
    assert {stream.calls_of(id_) for id_ in range(10)} <= {1, 2}


@pytest.mark.nightly
@pytest.mark.newest_spark
@with_several
def test_an_aggregation_stands_between_two_calls(stream):
    def windows(df):
        at = df.withColumn("at", F.timestamp_seconds("id")).withWatermark("at", "0 seconds")
        return at.groupBy("id", "doubled", F.window("at", "1 second")).count()

    stream.put(range(10))
    stream.start(tripled(stream, windows(stream.carried(emit="at_once"))).where("tripled = 3 * id"))
    stream.gate.touch()
    # The last window stays open: nothing later came.
    stream.until_out(range(9))

    assert sorted(stream.rows) == list(range(9))
    assert [stream.calls_of(id_) for id_ in range(10)] == [1] * 10
    assert [stream.calls.counts()[f"triple {id_}"] for id_ in range(9)] == [1] * 9


@with_several
def test_a_name_that_is_taken_is_refused(stream):
    before = stream.carried(name="orders")
    with pytest.raises(ConfigurationError, match=r"`name` of CarryOver is 'orders', as that of"):
        tripled(stream, before, name="orders")


@with_several
def test_calls_behind_one_another_are_named_by_their_functions(stream):
    out = tripled(stream, tripled(stream, stream.carried(emit="at_once")).drop("tripled")).drop(
        "tripled"
    )
    plan = tripled(stream, out)._jdf.queryExecution().analyzed().toString()

    named = f"sparkawait_{triple(stream).name}"
    found = re.findall(r"CollectMetrics ([^,]+),", plan)
    assert sorted(found) == ["sparkawait", named, f"{named}#2", f"{named}#3"]


@of_each_vehicle
def test_what_the_session_lacks_is_refused_where_the_call_is_written(spark, stream):
    def call():
        return tripled(stream, stream.source)

    if pyspark.__version__.startswith("3."):
        with pytest.raises(ConfigurationError, match=r"needs Spark 4.0, .* is of Spark 3\.5"):
            call()
        return
    if stream.vehicle == OFTEN:
        assert "tripled" in call().columns
        return
    with pytest.raises(ConfigurationError) as raised:
        call()
    assert f'spark.conf.set("{STORE}", "{ROCKS}")' in str(raised.value)
    assert "HDFSBackedStateStoreProvider; set it before the first start" in str(raised.value)


@pytest.mark.since_spark(4, 0)
def test_a_driver_without_protobuf_is_refused(stream, monkeypatch):
    step._problem_of_protobuf.cache_clear()
    with monkeypatch.context() as patched:
        stream.spark.conf.set(STORE, ROCKS)
        patched.setitem(sys.modules, MESSAGES, None)
        with pytest.raises(ConfigurationError, match=r"run `pip install --upgrade protobuf`"):
            tripled(stream, stream.source)
    stream.spark.conf.unset(STORE)
    step._problem_of_protobuf.cache_clear()


class Session:
    """Says of itself what `check_vehicle` asks."""

    def __init__(self, version):
        self.version = version
        self.conf = {STORE: ROCKS}


class ConnectSession(Session):
    __module__ = "pyspark.sql.connect.session"


@pytest.mark.since_spark(4, 1)
@pytest.mark.parametrize(
    ("session", "is_refused"),
    [
        (Session("3.5.9"), True),
        (Session("4.0.0-preview"), False),
        (ConnectSession("4.0.5"), True),
        (ConnectSession("4.1.0"), False),
        (ConnectSession("5.0.0-SNAPSHOT"), False),
    ],
)
def test_the_version_is_that_of_the_server(session, is_refused):
    if not is_refused:
        step.check_vehicle(session, OFTEN)
        return
    with pytest.raises(ConfigurationError, match=session.version):
        step.check_vehicle(session, OFTEN)


PYTHON_WITHOUT = """
    import pickle, sys
    for name in {without}:
        sys.modules[name] = None
    try:
        processor = pickle.loads({pickled})
    except ImportError as error:
        print(error)
    else:
        class Handle:
            def getValueState(self, name, types):
                print(name, types.names)
        processor.init(Handle())
"""


@pytest.mark.since_spark(4, 0)
@pytest.mark.parametrize(
    ("without", "said"),
    [
        (["sparkawait"], "shard ['version', 'payload']"),
        ([MESSAGES], "whose protobuf is missing or too old for transformWithStateInPandas"),
    ],
)
def test_a_processor_is_unpickled_where_packages_are_missing(without, said):
    """As on the driver, whose worker carries out ``init`` only, and where executors lack them."""
    pickled = cloudpickle.dumps(StateProcessor("what is not opened yet"))
    program = textwrap.dedent(PYTHON_WITHOUT).format(without=without, pickled=pickled)
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(sys.prefix),
    )
    assert said in result.stdout
