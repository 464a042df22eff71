# SPDX-License-Identifier: Apache-2.0
"""What `info=` tells of the calls of each row adds up to what was called, in Spark."""

from collections import Counter

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from tests.spark.carried import SLOW, of_each_vehicle
from tests.support.counted_answers import Answers, status_of
from tests.support.scripted_server import ScriptedServer

pytestmark = pytest.mark.spark

ROWS, TASKS = 331, 3
CLIENT = sa.http.Client(proxy=False)
CALL = (
    "struct<attempts:int,seconds:double,waited:double,cached:boolean,hedged:boolean,status:int,"
    "cost:double>"
)


def again(retries):
    return sa.retry.fixed_delay(retries, "1ms", budget=None)


@pytest.fixture
def answers():
    return Answers()


@pytest.fixture
def get(answers):
    with ScriptedServer(answers) as server:
        yield sa.http.get(server.url + "/{id}", "v bigint", client=CLIENT)


def numbers(spark):
    return spark.range(ROWS, numPartitions=TASKS).withColumn("key", F.col("id") % 13)


def wait(mode, df, function, **given):
    key = {"key": "key"} if mode == "key_ordered" else {}
    return getattr(sa, f"{mode}_wait")(df, function, **key, **given)


@pytest.mark.parametrize(
    "mode", [pytest.param("ordered", marks=pytest.mark.nightly), "unordered", "key_ordered"]
)
def test_attempts_statuses_and_costs_are_those_of_the_server(spark, answers, get, mode):
    out = wait(
        mode,
        numbers(spark),
        get,
        info="call",
        retry=again(2),
        on_error="capture",
        channel=sa.Channel("key", count=13),
        max_concurrency=29,
        capacity=103,
        rate_limit=[sa.RateLimit("9007/s", cost=F.col("id") % 4, name="tokens"), "9001/s"],
        tuning=sa.Tuning(max_rows=61),
    )

    assert out.columns == ["id", "key", "v", "error", "call"]
    assert out.schema["call"].dataType.simpleString() == CALL
    rows = out.collect()
    assert sorted(row.id for row in rows) == list(range(ROWS))
    for row in rows:
        told = row.call
        assert (row.error, row.v) == (None, None if row.id % 5 == 4 else 2 * row.id)
        assert (told.attempts, told.status) == (answers.calls[row.id], status_of(row.id))
        assert told.cost == told.attempts * (row.id % 4)
        assert (told.cached, told.hedged) == (False, False)
        # A task that hears of a call's begin and its end at one moment knows of no time between.
        assert told.seconds >= 0 <= told.waited
    assert sum(row.call.attempts for row in rows) == sum(answers.calls.values())


def test_rows_of_a_key_that_is_cached_are_told_from_those_that_were_called(spark, answers, get):
    df = numbers(spark).select((F.col("id") % 17).alias("id"))
    out = sa.unordered_wait(df, get, info="call", retry=again(2), cache=True)

    rows = out.collect()
    assert Counter(row.id for row in rows) == Counter(i % 17 for i in range(ROWS))
    assert sum(row.call.attempts for row in rows) == sum(answers.calls.values())
    assert all(row.call.attempts > 0 or row.call.cached for row in rows)
    assert all(row.call.status == status_of(row.id) for row in rows if not row.call.cached)


def test_calls_of_a_chain_and_side_by_side_have_columns_of_their_own(spark, calls, answers, get):
    @sa.async_function("doubled long", batch=sa.Batch(max_rows=11, linger="1ms"))
    async def double(rows):
        for row in rows:
            calls.add(row.id)
        return [{"doubled": 2 * row.id} for row in rows]

    functions = [
        get.with_options(info="get", retry=again(2), on_error=sa.OnError(column="why")),
        double.with_options(info="doubling"),
    ]
    beside = sa.unordered_wait(numbers(spark), functions)

    @sa.async_function("tripled long")
    async def triple(row):
        calls.add(row.id)
        return 3 * row.id

    out = sa.ordered_wait(beside, triple, info="last", chain=True).select("tripled", "last")
    rows = beside.collect()

    assert beside.columns == ["id", "key", "v", "why", "get", "doubled", "doubling"]
    assert {row.id: row.get.attempts for row in rows} == dict(answers.calls)
    assert {row.doubling.attempts for row in rows} == {1}
    assert sorted(row.id for row in rows) == list(range(ROWS))
    rows = out.collect()
    assert sorted(row.tripled for row in rows) == [3 * i for i in range(ROWS)]
    assert {row.last.attempts for row in rows} == {1}
    assert calls.counts() == {str(i): 3 for i in range(ROWS)}


@pytest.mark.nightly
@of_each_vehicle
def test_calls_of_a_row_that_crosses_micro_batches_and_a_restart_are_all_told(stream):
    stream.put(range(11))
    stream.start(stream.carried(info="call"))
    stream.until_out(set(range(11)) - {SLOW})
    stream.stop()

    stream.gate.touch()
    stream.put(range(11, 24))
    # A run that would call in another way calls again.
    stream.start(stream.carried(info="call", capacity=97))
    stream.until_out(range(24))

    assert sorted(stream.rows) == list(range(24))
    attempts = {id_: told.attempts for id_, told in stream.told.items()}
    assert attempts == {id_: stream.calls_of(id_) for id_ in range(24)}
    assert attempts[SLOW] == 2


@of_each_vehicle
def test_a_row_that_is_carried_over_tells_of_the_time_that_it_was_held(stream):
    stream.put(range(11))
    stream.start(stream.carried(info="call"))
    stream.until_out(set(range(11)) - {SLOW})
    stream.put(range(11, 24))
    stream.until_out(set(range(24)) - {SLOW})
    stream.gate.touch()
    stream.until_out(range(24))

    assert sorted(stream.rows) == list(range(24))
    assert {told.attempts for told in stream.told.values()} == {1}
    slow, others = stream.told[SLOW], [stream.told[id_] for id_ in range(24) if id_ != SLOW]
    assert slow.seconds > max(told.seconds for told in others)


def test_what_is_sent_split_and_written_once_keeps_it(spark, calls, look_up, tmp_path):
    given = {"info": "call", "retry": again(1), "max_concurrency": 13}
    failed = [i for i in range(ROWS) if i % 7 == 3]

    sent = sa.send(numbers(spark), look_up, **given)
    assert sorted((row.id, row.call.attempts) for row in sent.failures) == [(i, 2) for i in failed]
    assert (sent.calls, sum(calls.counts().values())) == (ROWS + len(failed),) * 2
    path = tmp_path / "failed"
    sa.send(numbers(spark), look_up, failed=path, **given)
    written = spark.read.parquet(str(path))
    assert written.columns == ["id", "key", "error", "call"]
    assert sorted((row.id, row.call.attempts) for row in written.collect()) == [
        (i, 2) for i in failed
    ]

    out = sa.unordered_wait(numbers(spark), look_up, on_error="capture", **given)
    good, bad = sa.split(out, tmp_path / "split")
    assert {row.call.attempts for row in good.collect()} == {1}
    assert {row.call.attempts for row in bad.collect()} == {2}
    done = sa.write_once(
        numbers(spark), look_up, tmp_path / "once", key="id", on_error="null", **given
    )
    told = sorted((row.id, row.call.attempts) for row in done.collect())
    assert told == [(i, 2 if i in failed else 1) for i in range(ROWS)]


def test_a_column_function_has_it_beside_its_result(spark, calls, answers, get):
    @sa.async_udf("doubled long", info="call", retry=again(1), on_error="null")
    async def doubled(id):  # noqa: A002 - the column
        calls.add(id)
        if id % 7 == 3:
            raise ConnectionError
        return {"doubled": 2 * id}

    of_rows = sa.async_udf(get, info="call", retry=again(2))
    df = numbers(spark).select("id", doubled("id").alias("one"), of_rows("id").alias("other"))

    assert df.schema["one"].dataType.simpleString() == f"struct<doubled:bigint,call:{CALL}>"
    rows, counts = df.collect(), calls.counts()
    assert [row.id for row in rows] == list(range(ROWS))
    for row in rows:
        failed = row.id % 7 == 3
        assert row.one.doubled == (None if failed else 2 * row.id)
        assert row.one.call.attempts == counts[str(row.id)] == 1 + failed
        assert row.other.v == (None if row.id % 5 == 4 else 2 * row.id)
        assert row.other.call.attempts == answers.calls[row.id]


@pytest.mark.parametrize("taken", ["id", "ID", "Key", "doubled"])
def test_a_name_that_is_taken_is_refused_at_the_call_as_spark_compares_names(spark, look_up, taken):
    with pytest.raises(sa.ConfigurationError, match="in which `info` tells of calls") as info:
        sa.ordered_wait(numbers(spark), look_up, info=taken)
    assert info.value.kind == sa.exceptions.ErrorKind.COLUMN_CLASH
