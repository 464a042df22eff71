# SPDX-License-Identifier: Apache-2.0
"""What is interrupted on the driver ends its jobs, and with them its calls."""

import asyncio
import contextlib
import inspect
import json
import os
import re
import signal
import socket
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

import sparkawait as sa
from sparkawait.spark import interrupts
from tests.spark.calls import CallLog
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(150)]

ROWS = 37
INTERRUPTS = (KeyboardInterrupt, Py4JNetworkError)
"""What PySpark may raise: Py4J closes connections at an interrupt, sometimes one that it needs."""


@contextlib.contextmanager
def interrupt_when(
    has_begun: Callable[[], object], handler: Any = signal.default_int_handler
) -> Iterator[None]:
    """Interrupts what is done inside as a kernel of notebooks does it.

    That puts `handler` in the place of PySpark's; without one, what is there stays.
    """

    def interrupt() -> None:
        has_begun()
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    if handler is not None:
        signal.signal(signal.SIGINT, handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


@dataclass
class Endless:
    """A function that is called and never answers."""

    calls: CallLog

    @cached_property
    def function(self):
        calls = self.calls

        @sa.async_function("v long", timeout=None)
        async def ask(row):
            calls.add(row.id)
            await asyncio.Event().wait()

        return ask

    def is_called(self) -> None:
        """Returns once it was called."""
        wait_until(lambda: bool(self.calls.counts()))


@pytest.fixture
def endless(calls):
    return Endless(calls)


def numbers(spark):
    return spark.range(ROWS, numPartitions=5)


def active_jobs(spark) -> set[int]:
    return set(spark.sparkContext.statusTracker().getActiveJobsIds())


def no_job_is_active(spark) -> bool:
    """False as well where Py4J has closed the connection that asks, behind an interrupt."""
    try:
        return not active_jobs(spark)
    except Py4JNetworkError:
        return False


def has_tags(spark) -> bool:
    return bool(list(spark.sparkContext.getJobTags()))


@pytest.mark.parametrize("action", ["write_once", "send", "split"])
def test_an_action_of_ours_ends_its_jobs(spark, tmp_path, endless, action):
    rows, ask, out = numbers(spark), endless.function, str(tmp_path / "out")
    act = {
        "write_once": lambda: sa.write_once(rows, ask, out, key="id"),
        "send": lambda: sa.send(rows, ask),
        "split": lambda: sa.split(sa.unordered_wait(rows, ask, on_error="capture"), out),
    }[action]

    with pytest.raises(KeyboardInterrupt), interrupt_when(endless.is_called):
        act()

    wait_until(lambda: no_job_is_active(spark))
    # The answer to what was interrupted is not taken for the answer to something else.
    assert spark.range(13).count() == 13
    assert not has_tags(spark)


def test_preview_ends_its_job(spark):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/{{id}}"
        look_up = sa.http.get(url, "v long", client=sa.http.Client(proxy=False))

        with pytest.raises(KeyboardInterrupt), interrupt_when(server.accept):
            sa.http.preview(numbers(spark), look_up)

        wait_until(lambda: no_job_is_active(spark))


def test_an_action_has_the_tags_of_its_thread_and_leaves_it_none(spark, look_up):
    seen = []
    spark.sparkContext.addJobTag("mine")
    try:
        interrupts.wait_for(spark, lambda: seen.extend(spark.sparkContext.getJobTags()))
    finally:
        spark.sparkContext.removeJobTag("mine")

    assert "mine" in seen
    assert len(seen) == 2
    assert sa.send(numbers(spark), look_up).rows == ROWS
    assert not has_tags(spark)


def test_what_an_action_raises_is_raised(spark):
    with pytest.raises(ZeroDivisionError):
        interrupts.wait_for(spark, lambda: 1 // 0)


class Shell:
    """What IPython tells of its cells."""

    def __init__(self) -> None:
        self.hooks = {"pre_run_cell": [], "post_run_cell": []}
        self.events = SimpleNamespace(register=lambda name, hook: self.hooks[name].append(hook))
        self.last_error: BaseException | None = None

    def run(self, cell: Callable[[], object]) -> None:
        """Runs a cell."""
        self.last_error = None
        for hook in self.hooks["pre_run_cell"]:
            hook(SimpleNamespace())
        try:
            cell()
        except INTERRUPTS as error:
            # As IPython does, it keeps the frames through which the error has passed.
            self.last_error = error
        for hook in self.hooks["post_run_cell"]:
            hook(SimpleNamespace(error_in_exec=self.last_error))


@pytest.fixture
def shell(monkeypatch):
    shell = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(interrupts, "_CELLS", interrupts._Cells())
    monkeypatch.setattr(interrupts, "_WATCHED", set())
    return shell


def test_a_cell_that_is_interrupted_ends_its_jobs_and_no_others(
    spark, tmp_path, endless, shell, capsys
):
    free = tmp_path / "free"

    @sa.async_function("v long", timeout=None)
    def wait(row):
        wait_until(free.exists, patience=120)
        return {"v": row.id}

    source = tmp_path / "in"
    source.mkdir()
    (source / "rows").write_text("\n".join(json.dumps({"id": id_}) for id_ in range(7)))
    stream = spark.readStream.schema("id long").json(str(source))
    queries, outs, counted = [], [], []

    def jobs_are(count: int) -> None:
        wait_until(lambda: len(active_jobs(spark)) == count)

    def start() -> None:
        """Starts a query whose job has the tags of this thread. No command waits for its end."""
        out = sa.unordered_wait(stream, wait)
        queries.append(out.writeStream.format("noop").start())
        jobs_are(len(queries))

    def cell() -> None:
        start()
        with interrupt_when(lambda: jobs_are(3)):
            outs[0].write.parquet(str(tmp_path / "out"))

    try:
        shell.run(start)
        shell.run(lambda: outs.append(sa.unordered_wait(numbers(spark), endless.function)))
        shell.run(cell)

        assert isinstance(shell.last_error, INTERRUPTS)
        assert capsys.readouterr().err.endswith("sparkawait: cancelled 1 job of this cell\n")
        jobs_are(2)
        shell.run(free.touch)
        for query in queries:
            query.processAllAvailable()
            assert sum(it["numInputRows"] for it in query.recentProgress) == 7
        shell.run(lambda: counted.append(spark.range(13).count()))
        assert counted == [13]
        assert not has_tags(spark)
    finally:
        free.touch()
        for query in queries:
            query.stop()


def test_a_job_that_begins_long_after_its_cell_was_interrupted_ends_too(
    spark, tmp_path, endless, shell, monkeypatch
):
    """As one does that lists files for long: there is no job yet when it is looked for."""
    outs = []
    shell.run(lambda: outs.append(sa.unordered_wait(numbers(spark), endless.function)))

    def cell() -> None:
        monkeypatch.setattr(interrupts, "_asked", lambda _: 0)
        with interrupt_when(lambda: wait_until(lambda: len(active_jobs(spark)) == 1)):
            outs[0].write.parquet(str(tmp_path / "out"))

    shell.run(cell)

    assert isinstance(shell.last_error, INTERRUPTS)
    wait_until(lambda: no_job_is_active(spark))


@pytest.fixture
def handler_of_pyspark(spark):
    """PySpark's own handler of Ctrl-C; returns it."""
    before = signal.getsignal(signal.SIGINT)
    # It is made within the function that makes a context, and no other way leads to it.
    source = textwrap.dedent(inspect.getsource(SparkContext._do_init))
    handler = re.search(r"( +)def signal_handler\(.*?\n\n", source, re.DOTALL)
    names = {"self": spark.sparkContext, **vars(inspect.getmodule(SparkContext))}
    exec(textwrap.dedent(handler[0]), names)  # noqa: S102
    signal.signal(signal.SIGINT, names["signal_handler"])
    yield names["signal_handler"]
    signal.signal(signal.SIGINT, before)


def test_a_cell_of_ipython_that_is_interrupted_where_pyspark_handles_it_ends_its_jobs(
    spark, tmp_path, endless, shell, handler_of_pyspark
):
    outs = []
    shell.run(lambda: outs.append(sa.unordered_wait(numbers(spark), endless.function)))
    assert signal.getsignal(signal.SIGINT) is not handler_of_pyspark

    def cell() -> None:
        with interrupt_when(endless.is_called, handler=None):
            outs[0].write.parquet(str(tmp_path / "out"))

    shell.run(cell)

    assert isinstance(shell.last_error, INTERRUPTS)
    wait_until(lambda: no_job_is_active(spark))
    shell.run(lambda: outs.append(spark.range(13).count()))
    assert outs[1] == 13


@pytest.fixture
def script(handler_of_pyspark, monkeypatch):
    """No shell of IPython; returns the handler of Ctrl-C that is there before the first call."""
    monkeypatch.setattr(interrupts, "_CELLS", interrupts._Cells())
    return handler_of_pyspark


@pytest.mark.parametrize("action", ["write", "collect"])
def test_ctrl_c_in_a_script_ends_its_jobs_and_no_streaming_query(
    spark, tmp_path, endless, script, action
):
    out = sa.unordered_wait(numbers(spark), endless.function)
    assert signal.getsignal(signal.SIGINT) is not script
    source = tmp_path / "in"
    source.mkdir()
    (source / "rows").write_text('{"id": 3}')
    stream = spark.readStream.schema("id long").json(str(source))
    query = stream.writeStream.format("noop").start()
    try:
        with pytest.raises(INTERRUPTS), interrupt_when(endless.is_called, handler=None):
            out.collect() if action == "collect" else out.write.parquet(str(tmp_path / "out"))

        wait_until(lambda: no_job_is_active(spark))
        assert spark.range(13).count() == 13
        assert not has_tags(spark)
        query.processAllAvailable()
        assert sum(it["numInputRows"] for it in query.recentProgress) == 1
    finally:
        query.stop()


def test_a_handler_of_ones_own_stays(spark, look_up):
    def mine(*_: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGINT, mine)
    try:
        sa.unordered_wait(numbers(spark), look_up)
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_cell_that_fails_or_ends_cancels_nothing(spark, look_up, shell, capsys):
    came = []
    shell.run(lambda: came.append(sa.unordered_wait(numbers(spark), look_up, on_error="capture")))
    shell.run(lambda: came.append(came[0].count()))

    assert came[1] == ROWS
    assert not has_tags(spark)
    assert "cancelled" not in capsys.readouterr().err


def test_stop_ends_a_job_that_waits_for_its_first_task_and_none_that_begins_later(
    spark, endless, tmp_path
):
    @sa.async_function("v long")
    async def asks_later(row):
        return {"v": row.id}

    free, cores = tmp_path / "free", spark.sparkContext.defaultParallelism
    blocks = spark.range(cores, numPartitions=cores).mapInArrow(
        until_there_is(str(free), PATIENCE), "id long"
    )
    job = sa.job(spark)
    out = sa.unordered_wait(spark.range(13, numPartitions=2), endless.function, capacity=3)
    tracker = spark.sparkContext.statusTracker()
    with ThreadPoolExecutor(2) as pool:
        blocked = pool.submit(blocks.count)
        wait_until(lambda: len(tracker.getActiveJobsIds()) == 1)
        writing = pool.submit(lambda: out.write.format("noop").mode("overwrite").save())
        wait_until(lambda: len(tracker.getActiveJobsIds()) == 2)
        assert job.stop() == 0
        free.touch()
        assert blocked.result() == cores
        with pytest.raises(Exception, match=r"cancelled by sparkawait's job\.stop\(\)"):
            writing.result()
    wait_until(lambda: not job.progress)
    assert endless.calls.counts().total() <= 6
    assert sa.unordered_wait(spark.range(13), asks_later).count() == 13


PATIENCE = 120.0


def until_there_is(path, seconds):
    """Returns a function that waits for a file, and hands all rows on."""

    def wait(batches):
        end = time.monotonic() + seconds
        while not os.path.exists(path) and time.monotonic() < end:  # noqa: PTH110
            time.sleep(0.05)
        yield from batches

    return wait
