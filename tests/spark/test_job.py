# SPDX-License-Identifier: Apache-2.0
"""The owner of an application's calls: numbers that are those of the service, and an end."""

import asyncio
import itertools
import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import sparkawait as sa
from sparkawait._plan.resolve import resolve
from sparkawait.spark import owner as owners
from sparkawait.spark import progress, tally
from sparkawait.spark.progress import Actions, short, summary
from sparkawait.spark.schemas import PlaceOfSession
from sparkawait.spark.screens import Notebook, Terminal
from sparkawait.spark.session import Session
from tests.meta.repository import ROOT
from tests.spark.calls import CallLog
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(150)]


def calls_so_far(spark, function) -> int:
    """Calls of a function in tasks that have failed, or not."""
    counts = sa.job(spark).metrics["functions"].get(function.name)
    return 0 if counts is None else counts["attempts"] + counts["failed_tasks"]["attempts"]


def test_all_calls_of_an_application_are_counted_by_function(spark, calls):
    @sa.async_function("a long")
    async def asks_3(row):
        calls.add("3")
        return {"a": row.id * 3}

    @sa.async_function("b long")
    async def asks_7(row):
        calls.add("7")
        if row.id % 7 == 5:
            raise ConnectionError("no")
        return {"b": row.id * 7}

    before = sa.job(spark).metrics["attempts"]
    rows = spark.range(37, numPartitions=3)
    chained = sa.ordered_wait(sa.ordered_wait(rows, asks_3), asks_7, chain=True, on_error="drop")
    assert chained.count() == 32
    assert rows.select(sa.async_udf(asks_3)("id")).count() == 37
    rows.select(sa.async_udf(asks_3)("id").alias("v")).where("v > 0").collect()

    metrics = sa.job(spark).metrics
    assert metrics["functions"][asks_7.name]["failed"] == 5
    assert calls_so_far(spark, asks_3) == calls.counts()["3"]
    assert calls_so_far(spark, asks_7) == calls.counts()["7"] == 37
    assert metrics["attempts"] - before == calls.counts().total()


def test_calls_of_a_task_that_is_killed_are_counted(spark, calls, tmp_path):
    """Spark keeps nothing of a task whose process was killed, and runs it again."""
    reported, killed = tmp_path / "reported", tmp_path / "killed"

    @sa.async_function("v long")
    async def dies(row):
        calls.add(row.id)
        if row.id == 23 and not killed.exists():
            await asyncio.to_thread(wait_until, reported.exists)
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"v": row.id}

    out = sa.ordered_wait(spark.range(37, numPartitions=1), dies)
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(out.count)
        try:
            # Reports come each second: all calls are in one of them.
            wait_until(lambda: calls_so_far(spark, dies) == 37)
        finally:
            reported.touch()
        assert counting.result() == 37

    wait_until(lambda: not sa.job(spark).progress)
    assert calls.counts().total() == 2 * 37
    wait_until(lambda: calls_so_far(spark, dies) == 2 * 37)
    failed = sa.job(spark).metrics["functions"][dies.name]["failed_tasks"]
    assert failed["attempts"] == 37


def endless_function(calls: CallLog):
    @sa.async_function("v long", timeout=None)
    async def ask_for_ever(row):
        calls.add(row.id)
        await asyncio.Event().wait()

    return ask_for_ever


def test_stop_ends_the_jobs_that_call_and_no_other(spark, calls):
    @sa.async_function("w long")
    async def waits_elsewhere(row):
        return {"w": row.id}

    job, rows = sa.job(spark), spark.range(13, numPartitions=2)
    assert job.stop() == 0
    endless = endless_function(calls)
    out = sa.unordered_wait(rows, endless, capacity=3)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: out.write.format("noop").mode("overwrite").save())
        # All calls of both tasks: what is begun between the stop and its arrival is none of them.
        wait_until(lambda: calls.counts().total() == 6)
        [runs] = job.progress
        assert (runs.function, runs.tasks, runs.rows) == (endless.name, 2, 0)
        assert f"{endless.name}: tasks 0/2, 0 rows" in repr(job)
        assert job.stop() == 1
        with pytest.raises(Exception, match=r"cancelled by sparkawait's job\.stop\(\)"):
            writing.result()
    begun = calls.counts().total()

    wait_until(lambda: not job.progress)
    assert repr(job) == "sparkawait: no calls now"
    assert calls.counts().total() == begun
    assert job.stop() == 0
    assert sa.unordered_wait(rows, waits_elsewhere).count() == 13
    wait_until(lambda: calls_so_far(spark, endless) == begun)


def test_stop_leaves_streams_alone(spark, calls, tmp_path):
    rows = spark.readStream.format("rate").option("rowsPerSecond", 13).load()

    @sa.async_function("v long")
    async def of_a_stream(row):
        calls.add(row.value)
        return {"v": row.value}

    stream = sa.unordered_wait(rows, of_a_stream).writeStream.format("noop")
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(lambda: calls.counts().total() > 0)
        assert sa.job(spark).progress == []
        assert sa.job(spark).stop() == 0
        done = calls.counts().total()
        wait_until(lambda: calls.counts().total() > done)
        assert query.exception() is None
    finally:
        query.stop()


def test_sessions_of_an_application_have_one_owner(spark):
    assert owners._owner_of(spark.newSession()) is owners._owner_of(spark)


def test_reports_are_counted_one_after_the_other(spark, monkeypatch):
    """What a task said before its end would count twice if it came to its action after that."""
    owner, seen = owners.Owner(spark), []
    take = owner.actions.take
    monkeypatch.setattr(
        owner.actions, "take", lambda it: seen.append(owner._taking._is_owned()) or take(it)
    )
    owner.take(report(emitted=90, attempts=90))
    owner.take(report(end="succeeded", emitted=100, attempts=100))
    owner.take(report(emitted=97, attempts=97))

    assert seen == [True, True]


@sa.async_function("v long")
async def _at_once(row):
    return {"v": row.id}


# -- what is shown


class SparkOfTest:
    """Spark, as the watcher asks it."""

    def __init__(self):
        self.tasks, self.ended, self.hidden = (3, 8), set(), 0

    def tasks_of(self, stages):
        return self.tasks

    def has_ended(self, action, stages):
        return action in self.ended

    def hide_bar(self):
        self.hidden += 1


NUMBERS = itertools.count(1)


def report(task="a", end=None, action="7", bounds=(), **totals):
    base = dict.fromkeys(("emitted", "dropped", "failed", "attempts", "in_flight"), 0)
    counts = {**base, "tasks": 1, **totals}
    return {
        "task": task,
        "number": next(NUMBERS),
        "stage": 4,
        "partition": 0,
        "attempt": 0,
        "action": action,
        "query": "",
        "batch": "",
        "tags": [],
        "warnings": [],
        "end": end,
        "calls": [("look_up", None, counts)],
        "bounds": dict(bounds),
        "totals": counts,
        "rows": sum(counts[it] for it in ("emitted", "dropped", "failed")),
    }


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

    monkeypatch.setattr(progress.time, "monotonic", lambda: Clock.now)
    return Clock


@pytest.fixture
def actions():
    """Actions that nobody watches, of a Spark that says what the test has it say."""
    lost = []
    found = Actions(SparkOfTest(), lost.append, is_on_one_host=False)
    found.lost, found._is_watched = lost, True
    return found


def test_a_line_says_what_runs_and_what_it_waits_for(actions, clock):
    limits = {"tokens": {"permits": 36_000, "parts": 1}}
    actions.take(report(emitted=10_400, attempts=10_400, in_flight=40, rate_limits=limits))
    assert actions.progress()[0].rows_per_second == 0
    clock.now += 4
    limits = {"tokens": {"permits": 41_000, "parts": 1}}
    actions.take(
        report(emitted=12_320, failed=3, attempts=12_417, in_flight=97, held=2.44)
        | {
            "totals": report(
                emitted=12_320,
                failed=3,
                attempts=12_417,
                in_flight=97,
                held=2.44,
                rate_limits=limits,
            )["totals"]
        }
    )

    [found] = actions.progress()
    assert str(found) == (
        'look_up: tasks 3/8, 12.3k rows, 481/s, 97 in flight, waits for "tokens" 61%, 3 failed,'
        " 41.0k tokens"
    )


@pytest.mark.parametrize(
    ("number", "said"),
    [
        *[(0, "0"), (7, "7"), (3.25, "3.2"), (480.4, "480"), (9_990, "9990"), (12_345, "12.3k")],
        *[(99_960, "100k"), (412_700, "413k"), (999_600, "1.00M"), (1_204_000, "1.20M")],
        (3.7e9, "3.70G"),
    ],
)
def test_numbers_are_as_people_say_them(number, said):
    assert short(number) == said


def test_a_summary_says_what_it_came_to():
    sums = {
        "tasks": 4,
        "emitted": 33_400,
        "dropped": 9,
        "failed": 13,
        "attempts": 33_425,
        "retries": 13,
        "cache_hits": 70,
        "held": 139.6,
        "rate_limits": {
            "tokens": {"permits": 112_000, "parts": 1},
            "dollars": {"permits": 19.95, "parts": 1},
        },
        "failures": {"a": 1, "element-timed-out": 7, "b 503": 2, "c ValueError": 3},
    }
    assert summary("look_up", 33_422, sums, 69.84, 2) == (
        "sparkawait: look_up: 33,422 rows in 69.8 s, 33,425 calls, 13 of them retries, 70 rows from"
        " the cache, 9 without a result, 13 failed (7 element-timed-out,"
        " 3 c ValueError, 2 b 503, 1 others), 112,000 tokens, 19.95 dollars,"
        ' "tokens", "dollars" held rows'
        " for 50% of the time, 2 tasks called in vain"
    )


class Seen:
    """A screen that remembers."""

    pause = 0.0

    def __init__(self):
        self.lines, self.ends = [], []

    def show(self, lines):
        self.lines.append(list(lines))

    def end(self, line):
        self.ends.append(line)


def test_an_action_ends_with_its_summary_and_lost_tasks_are_told(actions, clock, monkeypatch):
    seen = Seen()
    monkeypatch.setattr(progress, "screen_of", lambda spark: seen)
    actions.take(report("a", emitted=7, attempts=7))
    actions.take(report("b", emitted=6, attempts=11, in_flight=5))
    clock.now += 3
    actions.take(report("a", end="succeeded", emitted=13, attempts=13))
    actions._spark.ended.add("7")
    # What Spark kills tells its last a moment later.
    late = report("b", emitted=6, attempts=11, in_flight=5)
    actions._changed.wait = lambda _: None if actions.lost else actions.take(late)
    seen.show = lambda _: setattr(clock, "now", clock.now + 1)
    actions._watch()

    assert [it["task"] for it in actions.lost] == ["b"]
    assert seen.ends == ["sparkawait: look_up: 19 rows in 9.0 s, 24 calls, 0 failed"]
    assert actions.progress() == []


def test_rows_that_do_not_leave_are_told_once(actions, clock, caplog):
    actions.take(report(attempts=97, in_flight=97, queue_size=113, oldest_age=3.5))
    with caplog.at_level(logging.WARNING, logger="sparkawait"):
        for _ in range(3):
            clock.now += 200
            totals = {"attempts": 97, "in_flight": 97, "queue_size": 113}
            actions.take(report(**totals, oldest_age=clock.now - 96.5))
            actions._warn()

    [told] = caplog.messages
    assert told == (
        "no row of `look_up` has left for 7 minutes: 97 calls are in flight, 113 rows are in the"
        " tasks, the oldest for 404 s; `timeout` and `attempt_timeout` bound calls"
    )


def test_what_workers_warn_of_is_told_once_an_action(actions, caplog):
    """Their logs are on other hosts."""
    alike = [f"partition {n} waits" for n in range(3)]
    for task, said in (("a", alike[:1]), ("a", alike[:1]), ("b", [*alike, "other"])):
        actions.take(report(task) | {"warnings": said})
    actions._is_on_one_host = True
    actions.take(report("c") | {"warnings": ["is on this terminal"]})

    assert caplog.messages == ["a worker: partition 0 waits", "a worker: other"]


def test_a_task_reports_what_its_worker_has_warned_of(spark):
    taken = []

    @sa.async_function("v long")
    async def warns(row):
        logging.getLogger("sparkawait").warning("of row %d", 7)
        return {"v": row.id}

    owner = owners._owner_of(spark)
    actions, take = owner.actions, owner.actions.take
    actions.take = lambda report: (taken.append(report), take(report))
    try:
        sa.ordered_wait(spark.range(1, numPartitions=1), warns).collect()
        sa.ordered_wait(spark.range(1, numPartitions=1), warns).collect()
    finally:
        del actions.take

    ends = [it["warnings"] for it in taken if it["end"]]
    assert ends == [["of row 7"], ["of row 7"]]


def test_a_terminal_has_one_line_in_place_of_sparks_bar(monkeypatch):
    import io

    spark, written = SparkOfTest(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(written, "fileno", lambda: 2, raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((31, 24)))
    terminal = Terminal(spark)
    terminal.show(["look_up: tasks 3/8, 12.3k rows, 480/s", "other: tasks 0/1"])
    terminal.end("sparkawait: done")
    terminal.show([])

    assert written.getvalue() == (
        "\r\033[Klook_up: tasks 3/8, 12.3k rows\r\033[Ksparkawait: done\n"
    )
    assert spark.hidden == 2


def test_an_action_that_had_no_line_has_no_summary_on_the_terminal(monkeypatch, caplog):
    """Python has asked for the next command by then."""
    import io

    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with caplog.at_level(logging.INFO, logger="sparkawait"):
        Terminal(SparkOfTest()).end("sparkawait: done")
    assert (written.getvalue(), caplog.messages) == ("", ["sparkawait: done"])


@pytest.fixture
def hasty_threads():
    """Threads that take turns wherever they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_errors_that_spark_keeps_are_counted_once_and_forgotten_with_it(spark, monkeypatch):
    monkeypatch.setattr(tally, "_MOST_ENDED", 3)
    owner = owners.Owner(spark)
    owner._is_on_one_host = False
    kept = []
    monkeypatch.setattr(owners, "_errors_of_tasks", lambda _: iter(kept))
    mark = owner.reports.mark

    def fail(task):
        told = json.dumps(report(task, end="failed", action="", attempts=7) | {"query": "q"})
        kept.append(f"an error [sparkawait.metrics {mark} {told}]")

    for number in range(13):
        fail(f"t{number}")
        for _ in range(2):
            assert owner.sums()["failed_tasks"]["attempts"] == 7 * (number + 1)
    del kept[:12]
    fail("another")
    assert owner.sums()["failed_tasks"]["attempts"] == 7 * 14
    assert owner._in_errors == {"t12", "another"}


def test_progress_may_be_asked_for_while_reports_come(actions):
    """The watcher ended of a dictionary that changed, and nothing was shown any more."""
    for number in range(211):
        actions.take(report(f"running {number}", attempts=3, in_flight=1))

    def take_many():
        for number in range(401):
            actions.take(report(f"{number}", attempts=7, in_flight=1))
            actions.take(report(f"{number}", end="succeeded", attempts=7))

    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(take_many)
        while not taking.done():
            [found] = actions.progress()
            assert 211 <= found.in_flight <= 212
        taking.result()
    [found] = actions.progress()
    assert (found.in_flight, found.attempts) == (211, 211 * 3 + 401 * 7)


def test_a_notebook_has_one_display_for_an_action():
    shown = []

    class Handle:
        def update(self, data, *, raw):
            shown.append(("update", data["text/plain"], raw))

    def display(data, *, raw, display_id):
        shown.append(("new", data["text/plain"], raw and display_id))
        return Handle()

    notebook = Notebook(display)
    notebook.show([])
    notebook.show(["one"])
    notebook.show(["one", "two"])
    notebook.end("done")
    notebook.show(["three"])

    assert shown == [
        *[("new", "one", True), ("update", "one\ntwo", True), ("update", "done", True)],
        ("new", "three", True),
    ]


PROGRAM = """
import asyncio, sys
from pyspark.sql import SparkSession
import sparkawait as sa

@sa.async_function("half double")
async def half(row):
    await asyncio.sleep(0.007)
    return {"half": row.id / 2}

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(10).count()
out = sa.unordered_wait(spark.range(13_000, numPartitions=5), half, max_concurrency=7)
out.write.format("noop").mode("overwrite").save()
spark.stop()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("said", [None, "0"])
def test_in_a_terminal(tmp_path, said):
    """Spark shows its own bar there, in the same line."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    main, terminal = pty.openpty()
    environment = dict(os.environ)
    environment.pop("SPARKAWAIT_PROGRESS", None)
    if said is not None:
        environment["SPARKAWAIT_PROGRESS"] = said
    running = subprocess.Popen(
        [sys.executable, str(program)], cwd=ROOT, stderr=terminal, env=environment
    )
    os.close(terminal)
    written = bytearray()

    def read():
        try:
            while piece := os.read(main, 4096):
                written.extend(piece)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    assert running.wait(120) == 0
    reader.join()
    os.close(main)

    text = written.decode()
    if said == "0":
        assert "half: tasks" not in text
        assert "[Stage" in text
    else:
        assert "half: tasks 2/5, " in text
        assert "sparkawait: half: 13,000 rows in " in text
        assert "13,000 calls, 0 failed" in text
        assert "[Stage 2:" not in text.partition("half: tasks")[2]


def test_a_limit_is_shown_and_changed_while_tasks_run(spark, calls):
    @sa.async_function("v long")
    async def asks_slowly(row):
        calls.add(f"{time.monotonic()}")
        await asyncio.sleep(0.013)
        return {"v": row.id}

    def are_slow(since):
        """Whether seven calls came about as slowly as the lower rate has them."""
        begun = sorted(at for at in map(float, calls.counts().elements()) if at > since)
        return any(
            last - first > 0.9 * 6 / 7 for first, last in zip(begun, begun[6:], strict=False)
        )

    limit, count = sa.RateLimit("1/min", name="slow"), 4_003
    out = sa.unordered_wait(spark.range(count, numPartitions=2), asks_slowly, rate_limit=limit)
    job = sa.job(spark)
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(out.count)
        try:
            wait_until(lambda: job.limits["slow"].waiting)
            waits = str(job.limits["slow"])
            job.limits.set("slow", "331/s")
            # They would take hours.
            wait_until(lambda: calls.counts().total() > 331)
            job.limits.set("slow", "7/s")
            lowered = time.monotonic()
            wait_until(lambda: are_slow(lowered))
            assert calls.counts().total() < count, "there are calls left to be slow"
        finally:
            job.limits.set("slow", "9973/s")
        assert counting.result() == count
    assert re.fullmatch(r"slow: 1/min, [01] used, [01] in flight, [12] tasks waiting", waits)
    wait_until(lambda: not job.progress)
    assert str(job.limits["slow"]) == "slow: 9973/s, 4,003 used, 0 in flight, 0 tasks waiting"
    assert job.limits["slow"].functions == (asks_slowly.name,)
    assert "slow: 9973/s, 4,003 used" in repr(job.limits)


@pytest.mark.parametrize(
    ("limit", "value", "told"),
    [
        (sa.RateLimit("97/s", name="told", scope="task"), "3/s", "limit of each task"),
        (sa.RateLimit("97/s", name="told", scope="job"), "3", "is not a rate: '3'"),
        (sa.Budget(3, name="told"), -1, "`total` of Budget"),
        (sa.RateLimit("97/s", name="other"), "3/s", "has a limit 'told'; there are: "),
    ],
)
def test_a_limit_that_cannot_be_changed_is_refused(spark, limit, value, told):
    owner = owners.Owner(spark)
    place = PlaceOfSession(Session(spark))
    owner.limits.know(
        resolve("ordered", _at_once, input_schema=None, place=place, rate_limit=limit)
    )
    with pytest.raises(sa.ConfigurationError, match=re.escape(told)):
        owner.limits.set("told", value)


def test_too_many_failed_rows_of_all_tasks_end_their_job(actions, clock, caplog):
    """A task of a few rows has not too many, whatever becomes of them."""
    cancelled = []
    actions._spark.cancel = lambda stages, reason: cancelled.append((stages, reason))
    bounds = {"look_up": sa.OnError("null", stop_ratio=0.2).terms_of_job}
    for number in range(40):
        actions.take(report(f"t{number}", "succeeded", bounds=bounds, emitted=5, failed=2))
        actions._look_at(actions._actions["7"])
        # A function of this name that no bound was said for.
        actions.take(report(f"o{number}", "succeeded", "8", emitted=5, failed=20))
        actions._look_at(actions._actions["8"])
        assert not cancelled
    # Of a task that failed the rows come again.
    actions.take(report("gone", "failed", bounds=bounds, failed=67))
    actions._look_at(actions._actions["7"])
    actions.take(report("runs", bounds=bounds, failed=20, emitted=13))
    for _ in range(2):
        actions._look_at(actions._actions["7"])

    told = (
        "100 of 313 rows of `look_up` have failed in all tasks (31.9 %), which is more than"
        " stop_ratio=0.2: mend the cause, or allow more"
    )
    assert cancelled == [({4}, told)]
    assert [it.message for it in caplog.records] == [f"{told}; its job is cancelled"]


def test_fewer_tasks_than_parts_of_a_limit_are_told_once(actions, clock, caplog):
    actions._spark.tasks = 0, 2
    limits = {"100/s": {"permits": 7, "parts": 8}, "whole": {"permits": 7, "parts": 1}}
    for _ in range(2):
        actions.take(report(rate_limits=limits))
        actions._look_at(actions._actions["7"])

    (told,) = [it.message for it in caplog.records]
    assert told.startswith('the limit "100/s" of `look_up` is split into 8 parts')
    assert "the stage has 2 tasks: no more than 25% of it is used; `df.repartition(8)`" in told


@pytest.mark.nightly  # a unit test says when, and another one that jobs of stages are cancelled
def test_a_job_of_small_tasks_ends_when_too_many_of_its_rows_have_failed(spark, calls):
    @sa.async_function("v long")
    async def fails_often(row):
        calls.add(row.id)
        if row.id % 3 == 1:
            raise ValueError
        return {"v": row.id}

    rows = spark.range(7_000, numPartitions=1_000)
    bound = sa.OnError("null", stop_ratio=0.2)
    out = sa.unordered_wait(rows, fails_often, on_error=bound)
    with pytest.raises(Exception, match=r"more than stop_ratio=0.2"):
        out.write.format("noop").mode("overwrite").save()
    assert 300 <= calls.counts().total() < 6_000
