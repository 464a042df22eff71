# SPDX-License-Identifier: Apache-2.0
"""Rows are called for and written once, however often a run broke off."""

import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait.spark.actions import _chunks
from sparkawait.spark.folder import _logger, tell
from tests.support.scripted_server import Answer, ScriptedServer
from tests.support.sql_conf import sql_conf

pytestmark = pytest.mark.spark

ROWS = 331
KILLS = int(os.environ.get("WRITE_ONCE_KILLS", "1"))


def numbers(spark, rows=ROWS):
    return spark.range(rows, numPartitions=3)


def tags_of_jobs(spark):
    """The jobs that Spark remembers, each with its tags."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty(60_000)
    jobs = context.statusStore().jobsList(None)
    found = [jobs.apply(number) for number in range(jobs.size())]
    return {job.jobId(): job.jobTags().mkString(",") for job in found}


def ids(df):
    return sorted(row.id for row in df.collect())


def test_a_second_run_calls_nothing_and_more_rows_are_called_for_alone(
    spark, look_up, calls, tmp_path
):
    path, options = tmp_path / "out", {"key": "id", "chunk": 173, "on_error": "capture"}
    files = [0]
    for rows in (ROWS, ROWS, ROWS + 13, 101):
        done = sa.write_once(numbers(spark, rows), look_up, path, **options)
        files.append(len(list(path.glob("*.parquet"))))

        assert done.columns == ["id", "doubled", "error"]
        assert ids(done) == list(range(max(rows, ids(done)[-1] + 1)))
    assert calls.counts() == {str(i): 1 for i in range(ROWS + 13)}
    assert {row.doubled for row in done.where("id = 5 or id = 3").collect()} == {None, 10}
    assert spark.read.parquet(str(path)).count() == ROWS + 13
    assert files[2] == files[1], "a run that had nothing to do has added a file"
    assert files[4] == files[3]


def test_a_path_is_no_pattern(spark, look_up, calls, tmp_path):
    names, options = ("run1", "run[1]", "r{un,an}*1?\\d"), {"key": "id", "on_error": "capture"}
    for name in names:
        done = sa.write_once(numbers(spark, 13), look_up, tmp_path / name, **options)
        assert ids(done) == list(range(13))
    left = tmp_path / names[-1] / "_temporary" / "0"
    left.mkdir(parents=True)
    sa.write_once(numbers(spark, 13), look_up, f"file:{tmp_path}/{names[-1]}", **options)
    assert not left.exists()
    assert calls.counts() == {str(i): len(names) for i in range(13)}


def test_times_of_long_ago_are_written(spark, look_up, calls, tmp_path):
    name = "spark.sql.parquet.datetimeRebaseModeInWrite"
    at, day = "timestamp'1799-12-31 23:59:47.000013'", "date'0001-01-01'"
    rows = spark.range(13).select("id", F.expr(at).alias("at"), F.expr(day).alias("day"))
    # As it is before Spark 4, which then fails once the rows were called for.
    with sql_conf(spark, {name: "EXCEPTION"}):
        for _ in range(2):
            done = sa.write_once(
                rows, look_up, tmp_path / "once", key=["id", "at"], on_error="capture"
            )
            assert done.select("id", "at", "day").exceptAll(rows).isEmpty()
            assert done.count() == 13
        good, bad = sa.split(sa.ordered_wait(rows, look_up, on_error="capture"), tmp_path / "split")
        written = good.union(bad.drop("error")).select("id", "at", "day")
        assert written.exceptAll(rows).isEmpty()
        assert written.count() == 13
        assert spark.conf.get(name) == "EXCEPTION"
    assert calls.counts() == {str(i): 2 for i in range(13)}


def test_runs_of_the_same_rows_at_a_time_compute_them_once_each(spark, look_up, calls, tmp_path):
    @sa.async_function("before long")
    async def earlier(row):
        calls.add("before")
        return {"before": row.id}

    df = sa.unordered_wait(numbers(spark, 31), earlier)
    options = {"key": "id", "chunk": 13, "on_error": "null"}

    class AnotherRun(logging.Handler):
        """Is made behind the first chunk of a run, and ends before its second one."""

        chunks = 0

        def emit(self, record):
            self.chunks += "is written" in record.getMessage()
            if self.chunks == 1:
                sa.write_once(df, look_up, tmp_path / "inner", **options)

    another, level = AnotherRun(), _logger.level
    _logger.addHandler(another)
    _logger.setLevel("INFO")
    try:
        done = sa.write_once(df, look_up, tmp_path / "outer", **options)
    finally:
        _logger.setLevel(level)
        _logger.removeHandler(another)
    assert ids(done) == list(range(31))
    assert another.chunks >= 2 * 3
    assert calls.counts() == {"before": 2 * 31} | {str(i): 2 for i in range(31)}


def test_what_is_lost_of_a_chunk_that_was_half_written_is_called_for_alone(
    spark, look_up, calls, tmp_path
):
    path = tmp_path / "out"
    options = {"key": ["id", "k"], "chunk": 127, "on_error": "null"}
    # A null is a key as any other, and any name is a column's.
    df = numbers(spark).withColumn("k", F.when(F.col("id") % 3 > 0, F.lit("k.1")))
    df = df.withColumns({"_SparkAwait": F.col("id") % 5, "_sparkawait_0": F.col("id") % 11})
    sa.write_once(df, look_up, str(path), **options)
    files = sorted(path.glob("*.parquet"))
    lost = [row.id for file in files[::2] for row in spark.read.parquet(str(file)).collect()]
    for file in files[::2]:
        file.unlink()
    # A task that was committed, of a job that was not.
    left = path / "_temporary" / "0" / "task_20260102030405678_0013_m_000001"
    left.mkdir(parents=True)
    files[1].rename(left / files[1].name)

    before = tags_of_jobs(spark)
    done = sa.write_once(df, look_up, str(path), **options)

    # An interrupt ends all of its jobs, by their tag.
    tags = {job: of for job, of in tags_of_jobs(spark).items() if job not in before}
    assert len(tags) > 3
    assert all("sparkawait-" in of for of in tags.values()), tags
    assert 0 < len(lost) < ROWS
    assert ids(done) == list(range(ROWS))
    assert done.where("_SparkAwait = id % 5 and _sparkawait_0 = id % 11").count() == ROWS
    assert calls.counts() == Counter({str(i): 1 for i in range(ROWS)}) + Counter(map(str, lost))


def test_rows_that_failed_are_called_for_again_if_they_are_dropped(spark, look_up, calls, tmp_path):
    for _ in range(2):
        done = sa.write_once(numbers(spark), look_up, tmp_path / "a", key="id", on_error="drop")
    assert ids(done) == [i for i in range(ROWS) if i % 7 != 3]
    assert calls.counts() == {str(i): 1 + (i % 7 == 3) for i in range(ROWS)}


@pytest.mark.parametrize(
    "on_error",
    [
        pytest.param(sa.OnError(column="why"), marks=pytest.mark.nightly),
        pytest.param("capture", marks=pytest.mark.nightly),
        pytest.param(sa.OnError(stop_after=ROWS), marks=pytest.mark.nightly),
    ],
)
def test_rows_that_failed_are_called_for_again_on_request(spark, calls, tmp_path, on_error):
    healed = tmp_path / "healed"

    @sa.async_function("doubled long", batch=1)
    async def heals(rows):
        calls.add(rows[0].id)
        left = healed.read_text()
        if str(rows[0].id % 7) in left.split():
            raise ConnectionError(left)
        return [[{"doubled": 1}, {"doubled": 2}]]

    options = {"key": ["id", "k"], "chunk": 127, "retry": 0, "on_error": on_error}
    df = numbers(spark).withColumn("k", F.when(F.col("id") % 3 > 0, F.lit("k.1")))
    path = tmp_path / "out"
    error = "why" if on_error == sa.OnError(column="why") else "error"
    called, failed = Counter(map(str, range(ROWS))), {2, 3}
    for left, again in (("2 3", None), ("", None), ("3", "failed"), ("", None)):
        healed.write_text(left)
        done = sa.write_once(df, heals, path, again=again, **options)
        if again:
            called += Counter(str(i) for i in range(ROWS) if i % 7 in failed)
            failed = {3}
        assert calls.counts() == called
        good = [i for i in range(ROWS) if i % 7 not in failed]
        assert ids(done.where(f"{error} is null")) == sorted(good * 2)
        bad = done.where(f"{error} is not null")
        assert ids(bad) == [i for i in range(ROWS) if i % 7 in failed]
        last = "3" if failed == {3} else "2 3"
        assert {row[error].message for row in bad.collect()} == {f"ConnectionError: {last}"}
        assert done.columns == ["id", "k", "doubled", error]


def test_each_chunk_is_told_with_its_rows_and_failures(spark, look_up, tmp_path, caplog):
    with caplog.at_level("INFO", logger="sparkawait"):
        sa.write_once(
            numbers(spark), look_up, tmp_path / "a", key="id", chunk=127, on_error="capture"
        )
        sa.write_once(numbers(spark), look_up, tmp_path / "b", key="id", on_error="null")
    told = [line for line in caplog.messages if line.startswith("write_once: ")]
    pattern = r"write_once: chunk (\d) of 3 is written: (\d+) rows, (\d+) of them failed"
    parts = [re.fullmatch(pattern, line) for line in told[:-1]]
    places, rows, failed = zip(*(map(int, part.groups()) for part in parts), strict=True)
    assert places == (1, 2, 3)
    assert sum(rows) == ROWS
    assert sum(failed) == len([i for i in range(ROWS) if i % 7 == 3])
    assert told[-1] == f"write_once: chunk 1 of 1 is written: {ROWS} rows"


def test_a_wrong_key_ends_the_run_behind_its_chunk_and_the_next_run_tells_of_the_rows(
    spark, calls, tmp_path, caplog
):
    key = tmp_path / "key"

    @sa.async_function("doubled long")
    async def lookup(row):
        if row.id < ROWS:
            calls.add(row.id)
        if key.read_text() != "right":
            raise PermissionError(key.read_text())
        return {"doubled": 2 * row.id}

    path, options = tmp_path / "out", {"key": "id", "chunk": 127, "on_error": "capture"}
    # Spark has a column of this name for each file, too.
    df = numbers(spark, ROWS + 1009).withColumn("_metadata", F.col("id") % 5)
    before, df = df.where(f"id >= {ROWS}").coalesce(1), df.where(f"id < {ROWS}")
    key.write_text("z, an older cause")
    sa.write_once(before, lookup, path, retry=0, **{**options, "chunk": 5003})
    key.write_text("no such key")
    with pytest.raises(sa.AsyncFunctionError) as info:
        sa.write_once(df, lookup, path, retry=0, **options)
    first = sum(calls.counts().values())
    message = str(info.value)
    assert message.startswith(f"all {first} rows of chunk 1 of 3 have failed, and no further one")
    assert "one of them: PermissionError: no such key. They are written" in message
    assert info.value.kind == sa.exceptions.ErrorKind.USER_FUNCTION_FAILED
    assert 20 <= first <= 127

    key.write_text("right")
    with caplog.at_level("INFO", logger="sparkawait"):
        done = sa.write_once(df, lookup, path, retry=0, **options)
        assert f"write_once: {first + 1009} rows at `path` failed in earlier runs" in caplog.text
        assert sum(calls.counts().values()) == ROWS
        assert done.where(f"error is not null and id < {ROWS}").count() == first

        again = sa.write_once(df, lookup, path, again="failed", **options)
        assert ids(again.where("error is null")) == list(range(ROWS))
        assert again.count() == ROWS + 1009
        assert sum(calls.counts().values()) == ROWS + first

        caplog.clear()
        sa.write_once(df, lookup, path, retry=0, **options)
        assert "write_once: 1009 rows at `path` failed in earlier runs, and are" in caplog.text
        assert sum(calls.counts().values()) == ROWS + first


def test_where_no_logging_is_set_up_chunks_are_told_beside_the_bar_of_spark(monkeypatch, capsys):
    monkeypatch.setattr(_logger, "hasHandlers", lambda: False)
    tell("chunk 7 of 15 is written: 13 rows")
    assert capsys.readouterr().err == ("sparkawait.write_once: chunk 7 of 15 is written: 13 rows\n")


@pytest.mark.newest_spark  # 3.5 does not log it where the test reads
def test_a_new_folder_makes_spark_log_no_stack_trace(spark, look_up, tmp_path):
    jvm = spark._jvm
    written = jvm.java.io.StringWriter()
    log4j = jvm.org.apache.logging.log4j
    new, control = tmp_path / "a-new-folder", tmp_path / "the-control"
    appender = log4j.core.appender.WriterAppender.createAppender(
        None, None, written, "told", False, True
    )
    appender.start()
    root = log4j.LogManager.getRootLogger()
    root.addAppender(appender)
    spark.sparkContext.setLogLevel("WARN")
    try:
        sa.write_once(numbers(spark), look_up, new, key="id", on_error="capture")
        with pytest.raises(AnalysisException):
            spark.read.parquet(str(control))
    finally:
        spark.sparkContext.setLogLevel("OFF")
        root.removeAppender(appender)
    assert control.name in written.toString(), "Spark logs it no more, or elsewhere"
    assert new.name not in written.toString()


def test_a_run_that_failed_has_kept_the_chunks_before(spark, calls, tmp_path):
    failing = tmp_path / "failing"
    failing.touch()

    @sa.async_function("doubled long", batch=1)
    async def fail_late(rows):
        calls.add(rows[0].id)
        if sum(calls.counts().values()) > 200 and failing.exists():
            raise ConnectionError("it is gone")
        return [[{"doubled": i} for i in range(2)]]

    options = {"key": "id", "chunk": 61, "retry": 0, "max_concurrency": 5}
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "1")
    try:
        with pytest.raises(Exception, match="it is gone"):
            sa.write_once(numbers(spark), fail_late, tmp_path / "a", **options)
        failing.unlink()
        done = sa.write_once(numbers(spark), fail_late, tmp_path / "a", **options)
    finally:
        spark.conf.unset("spark.sql.files.maxRecordsPerFile")

    assert ids(done) == sorted([*range(ROWS)] * 2)
    assert sum(calls.counts().values()) <= ROWS + 2 * 61  # Spark runs a task twice here


def test_calls_run_in_as_many_tasks_as_before_and_none_has_more_rows_than_a_chunk(
    spark, calls, tmp_path
):
    @sa.async_function("task long")
    async def place(row):
        calls.add("called")
        return {"task": row.p}

    df = numbers(spark).withColumn("p", F.spark_partition_id())
    path = str(tmp_path / "out")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")  # the join shuffles
    try:
        for rows in (101, ROWS):
            sa.write_once(df.where(f"id % {ROWS} < {rows}"), place, path, key="id", chunk=1000)
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    written = spark.read.parquet(path).withColumn("file", F.input_file_name())
    sizes = {row.file: row["count"] for row in written.groupBy("file").count().collect()}
    assert len([size for size in sizes.values() if size]) <= 3 + 3
    assert sum(sizes.values()) == calls.counts()["called"] == ROWS


def test_no_rows_make_a_table_without_rows(spark, look_up, tmp_path):
    path = str(tmp_path / "out")
    for _ in range(2):
        done = sa.write_once(numbers(spark, 0), look_up, path, key="id")
        assert done.count() == 0
    assert spark.read.parquet(path).columns == ["id", "doubled"]


@pytest.mark.parametrize("most", [1, 7, 61, 5003])
def test_chunks_have_each_bucket_once_and_at_most_as_many_rows_as_asked_for(most):
    chance = random.Random(most)  # noqa: S311 - no secret
    counts = [(bucket, chance.randint(1, 13)) for bucket in range(0, 997, 3)]
    chunks = list(_chunks(counts, most))
    of_chunks = [[it for it in counts if first <= it[0] <= last] for first, last, _ in chunks]

    assert [it for of_one in of_chunks for it in of_one] == counts
    assert [sum(rows for _, rows in of_one) for of_one in of_chunks] == [it[2] for it in chunks]
    for of_one in of_chunks:
        assert len(of_one) == 1 or sum(rows for _, rows in of_one) <= most


def test_a_wrong_use_calls_nothing(spark, look_up, calls, events, tmp_path):
    sa.write_once(numbers(spark, 2), look_up, tmp_path / "there", key="id")
    twice, new = numbers(spark).withColumn("k", F.col("id") % 13), str(tmp_path / "new")
    for df, path, options, words in (
        (twice, new, {"key": "k"}, "13 of its values are in 331 rows of the input"),
        (twice, tmp_path / "there", {"key": "id"}, "`path` has rows with other columns"),
        (twice, new, {"key": "K"}, "`K`, which the input does not have; did you mean `k`?"),
        (twice, new, {"key": "id", "again": "failed"}, "got on_error='fail'; set"),
        (twice, new, {"key": "id", "again": "failed", "on_error": "drop"}, "got on_error='drop'"),
        (twice, new, {"key": "id", "again": "failed", "on_error": "null"}, "got on_error='null'"),
        (twice, new, {"key": "id", "chain": True}, "unknown option `chain`"),
        (twice, new, {"key": "id", "again": "all"}, "`again` must be one of 'failed'"),
        (twice, new, {"key": F.col("id")}, "`key` is an expression"),
        (twice, new, {"key": "id", "chunk": 0}, "`chunk` must be an int of at least 1"),
        (twice, "", {"key": "id"}, "`path` must be"),
        (twice, new, {"key": "id", "timeout": 0}, "`timeout` must be"),
        (twice.withColumn("m", F.create_map("k", "k")), new, {"key": "m"}, "type map<"),
        (events, new, {"key": "id"}, "is for DataFrames that end"),
    ):
        with pytest.raises(sa.ConfigurationError, match=words):
            sa.write_once(df, look_up, path, **options)
    at = F.struct(F.timestamp_micros("id").alias("at"))
    with (
        sql_conf(spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"}),
        pytest.raises(sa.ConfigurationError, match="TIMESTAMP_MILLIS keeps no microseconds"),
    ):
        sa.write_once(twice.withColumn("t", at), look_up, new, key=["id", "t"])
    assert calls.counts() == {"0": 1, "1": 1}


def test_a_key_that_the_function_makes_is_refused(spark, calls, tmp_path):
    @sa.async_function("id long")
    async def as_it_is_written(row):
        calls.add(row.id)
        return {"id": row.id + 5003}

    with pytest.raises(sa.ConfigurationError, match="`id` is already a column of the input"):
        sa.write_once(numbers(spark), as_it_is_written, tmp_path, key="id")
    assert calls.counts() == {}


@pytest.mark.nightly
def test_columns_may_have_any_names(spark, calls, tmp_path):
    names = ["_0", "_1", "count", "a.b", "_n"]

    @sa.async_function("_f long")
    async def fail_once(row):
        key = "-".join(map(str, row.values()))
        calls.add(key)
        if calls.counts()[key] == 1:
            raise ConnectionError(key)
        return {"_f": 1}

    df = numbers(spark, 13).select(*(F.col("id").alias(name) for name in names))
    options = {"key": names, "on_error": "capture", "retry": 0, "again": "failed"}
    for run in (1, 2, 3):
        done = sa.write_once(df, fail_once, tmp_path / "out", **options)
        assert done.columns == [*names, "_f", "error"]
        rows = sorted(tuple(row)[:-1] for row in done.collect())
        assert rows == [(*[i] * 5, None if run == 1 else 1) for i in range(13)]
    assert set(calls.counts().values()) == {2}


def test_the_input_is_computed_once_a_run(spark, look_up, calls, tmp_path):
    @sa.async_function("before long")
    async def earlier(row):
        calls.add(f"before {row.id}")
        return {"before": row.id}

    for rows in (61, ROWS):
        before = sum(count for key, count in calls.counts().items() if key.startswith("before"))
        df = sa.unordered_wait(numbers(spark, rows), earlier)
        options = {"key": "id", "chunk": 61, "on_error": "capture"}
        done = sa.write_once(df, look_up, tmp_path / "out", **options)
        after = sum(count for key, count in calls.counts().items() if key.startswith("before"))
        assert (ids(done), after - before) == (list(range(rows)), rows)


class Killing:
    """A service that counts its calls, and says when there were so many."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.last, self.reached = 0, threading.Event()
        self.lock = threading.Lock()

    def __call__(self, target: str, _before: int) -> Answer:
        with self.lock:
            self.calls[target] += 1
            if sum(self.calls.values()) == self.last:
                self.reached.set()
        return 200, {}, json.dumps({"name": f"name of {target[1:]}"}).encode()

    def wait_for(self, calls: int, run: subprocess.Popen) -> None:
        """Returns when there were so many, or the run has ended."""
        reached = threading.Event()
        with self.lock:
            self.last, self.reached = calls, reached
        threading.Thread(target=lambda: (run.wait(), reached.set()), daemon=True).start()
        reached.wait()
        assert run.poll() is None, "it ended by itself"


@pytest.mark.newest_spark
@pytest.mark.timeout(200 + 200 * KILLS)
def test_a_run_that_was_killed_pays_for_one_chunk_twice_at_most(spark, tmp_path):
    """``WRITE_ONCE_KILLS=10`` kills it more often."""
    rows, chunk = 1300, 211
    chance = random.Random(f"kills {KILLS}")  # noqa: S311 - no secret
    path, counting, again = tmp_path / "out", Killing(), 0
    with ScriptedServer(counting) as server:
        command = [sys.executable, "-m", "tests.spark.write_once_program"]
        command += [server.url, str(rows), str(chunk), str(path)]
        for _ in range(KILLS):
            before = sum(counting.calls.values())
            run = subprocess.Popen(command, cwd=Path(__file__).parents[2], start_new_session=True)
            counting.wait_for(before + chance.randint(1, (rows - before + again) // 2), run)
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            kept = spark.read.schema("id long, name string").parquet(str(path)).collect()
            assert len({row.id for row in kept}) == len(kept)
            again = sum(counting.calls.values()) - len(kept)
        assert subprocess.run(command, cwd=Path(__file__).parents[2], check=False).returncode == 0

    done = spark.read.parquet(str(path))
    assert sorted(map(tuple, done.collect())) == [(i, f"name of {i}") for i in range(rows)]
    assert len(counting.calls) == rows
    assert sum(counting.calls.values()) <= rows + KILLS * chunk
