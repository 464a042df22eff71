# SPDX-License-Identifier: Apache-2.0
"""Tasks that end early, fail, are killed or run again leave no call behind."""

import asyncio
import os
import signal
import threading

import pytest

import sparkawait as sa

pytestmark = pytest.mark.spark


@pytest.fixture
def hang_after(calls, presence):
    """Answers the first rows, and never the others; present while a call is in flight."""

    def make(answered):
        @sa.async_function("answer bigint")
        async def answer(row):
            if row["id"] < answered:
                return {"answer": row["id"]}
            calls.add("hanging")
            mark = presence.enter()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                calls.add("cancelled")
                raise
            finally:
                presence.leave(mark)

        return answer

    return make


@pytest.mark.parametrize("wait", [sa.ordered_wait, sa.unordered_wait])
def test_limit_cancels_the_calls_in_flight(spark, calls, watch, hang_after, wait):
    numbers = spark.range(10_000, numPartitions=1)

    rows = wait(numbers, hang_after(5), capacity=20, timeout=None).limit(5).collect()

    assert sorted(row.answer for row in rows) == [0, 1, 2, 3, 4]
    hanging = watch.wait_for_nobody()
    assert calls.counts() == {"hanging": hanging, "cancelled": hanging}
    assert hanging <= 20


def test_limit_cancels_calls_after_the_last_row_was_read(spark, calls, watch, hang_after):
    few = spark.range(8, numPartitions=1)

    rows = sa.ordered_wait(few, hang_after(5), timeout=None).limit(5).collect()

    assert [row.answer for row in rows] == [0, 1, 2, 3, 4]
    assert watch.wait_for_nobody() == 3
    assert calls.counts() == {"hanging": 3, "cancelled": 3}


def test_a_cancelled_job_cancels_the_calls_in_flight(spark, watch, hang_after):
    numbers = sa.ordered_wait(spark.range(8, numPartitions=1), hang_after(0), timeout=None)
    failures = []

    def collect():
        try:
            numbers.collect()
        except Exception as error:  # noqa: BLE001 - its type differs between versions of Spark
            failures.append(error)

    job = threading.Thread(target=collect)
    job.start()
    watch.wait_for_one()
    spark.sparkContext.cancelAllJobs()
    job.join()

    assert failures
    watch.wait_for_nobody()


def test_a_failed_row_cancels_the_calls_in_flight(spark, watch, presence):
    class FailWhenOthersHang(sa.AsyncFunction):
        schema = "answer bigint"

        def open(self, context):
            self.others_hang = asyncio.Event()

        async def async_invoke(self, row):
            if row["id"] == 0:
                await self.others_hang.wait()
                message = "the service said no"
                raise OSError(message)
            mark = presence.enter()
            try:
                self.others_hang.set()
                return await asyncio.Event().wait()
            finally:
                presence.leave(mark)

    numbers = spark.range(5, numPartitions=1)

    with pytest.raises(Exception, match="the service said no"):
        sa.ordered_wait(numbers, FailWhenOthersHang(), timeout=None).collect()
    watch.wait_for_nobody()


def test_a_task_that_fails_once_is_run_again_as_a_whole(spark, calls, once):
    @sa.async_function("doubled bigint")
    async def fail_once(row):
        calls.add(row["id"])
        if row["id"] == 50 and once.take():
            message = "the service was restarted"
            raise ConnectionError(message)
        return {"doubled": 2 * row["id"]}

    rows = sa.ordered_wait(spark.range(100, numPartitions=2), fail_once).collect()

    assert [row.doubled for row in rows] == list(range(0, 200, 2))
    counts = calls.counts()
    assert counts["50"] == 2
    assert set(counts.values()) <= {1, 2}


def test_a_worker_killed_in_mid_flight_loses_and_doubles_no_row(spark, once):
    @sa.async_function("doubled bigint")
    async def die_once(row):
        await asyncio.sleep(0.001)
        if row["id"] == 70 and once.take():
            os.kill(os.getpid(), signal.SIGKILL)
        return {"doubled": 2 * row["id"]}

    rows = sa.unordered_wait(spark.range(200, numPartitions=2), die_once).collect()

    assert sorted(row.doubled for row in rows) == list(range(0, 400, 2))


def test_a_function_may_fork(spark):
    @sa.async_function("child bigint")
    async def fork(row):
        if row["id"] % 5:
            return {"child": 0}
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        return {"child": os.waitstatus_to_exitcode(status)}

    rows = sa.ordered_wait(spark.range(20, numPartitions=2), fork).collect()

    assert [row.child for row in rows] == [0 if number % 5 else 7 for number in range(20)]


def test_a_function_may_start_processes(spark):
    @sa.async_function("said string")
    async def echo(row):
        process = await asyncio.create_subprocess_exec(
            "echo", str(row["id"]), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()
        return {"said": out.decode().strip()}

    rows = sa.ordered_wait(spark.range(6, numPartitions=2), echo, max_concurrency=2).collect()

    assert [row.said for row in rows] == [str(number) for number in range(6)]


def test_functions_are_opened_and_closed_once_per_task(spark, calls):
    class Lifecycle(sa.AsyncFunction):
        schema = "partition int"

        async def open(self, context):
            calls.add("open")
            self.partition = context.partition

        async def async_invoke(self, row):
            return {"partition": self.partition}

        async def close(self):
            calls.add("close")

    rows = sa.ordered_wait(spark.range(30, numPartitions=3), Lifecycle()).collect()

    assert [row.partition for row in rows] == [0] * 10 + [1] * 10 + [2] * 10
    assert calls.counts() == {"open": 3, "close": 3}


def test_functions_are_closed_after_limit(spark, calls, watch, presence):
    class Lifecycle(sa.AsyncFunction):
        schema = "answer bigint"

        def open(self, context):
            self.mark = presence.enter()

        async def async_invoke(self, row):
            if row["id"] >= 5:
                await asyncio.Event().wait()
            return {"answer": row["id"]}

        def close(self):
            calls.add("close")
            presence.leave(self.mark)

    numbers = spark.range(1000, numPartitions=1)

    assert len(sa.ordered_wait(numbers, Lifecycle(), timeout=None).limit(5).collect()) == 5
    assert watch.wait_for_nobody() == 1
    assert calls.counts() == {"close": 1}


def test_one_event_loop_serves_the_tasks_of_a_worker(spark):
    @sa.async_function("loop string")
    async def where(row):
        return {"loop": f"{os.getpid()} {id(asyncio.get_running_loop())}"}

    numbers = sa.ordered_wait(spark.range(20, numPartitions=1), where)

    loops = {row.loop for _ in range(3) for row in numbers.collect()}
    assert len(loops) == len({loop.split()[0] for loop in loops})
