# SPDX-License-Identifier: Apache-2.0
"""Streams on Spark sessions of their own; writes what came of them, as JSON.

``python -m tests.spark.carry_over_program FOLDER OUT``, a session after the other:

* two executors, and no waiting for the one that has the state of a shard, so that a shard moves
  when its executor is busy;
* workers that end with each task, and are killed while they hold a call; there, the driver is told
  to end, too.
"""

import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

import sparkawait as sa
from tests.spark.calls import CallLog
from tests.spark.carried import SLOW, Stream
from tests.support.waiting import wait_until


def session(master: str, **settings: str) -> SparkSession:
    builder = SparkSession.builder.master(master)
    fixed = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.daemon.module": "tests.support.warm_daemon",
    }
    for name, value in (fixed | settings).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def stream_in(spark: SparkSession, folder: Path) -> Stream:
    folder.mkdir()
    return Stream(spark, folder, CallLog(folder / "calls"))


def ended(stream: Stream) -> dict[str, Any]:
    """Returns what a stream of 20 rows has come to."""
    stream.stop()
    return {"rows": sorted(stream.rows), "calls": [stream.calls_of(id_) for id_ in range(20)]}


def moving(folder: Path) -> dict[str, Any]:
    """A shard whose executor gets busy while one of its calls is in flight."""
    spark = session(
        "local-cluster[2,1,1024]",
        **{"spark.locality.wait": "0", "spark.executor.memory": "512m"},
    )
    stream = stream_in(spark, folder)
    places, busy, free = (CallLog(folder / name) for name in ("places", "busy", "free"))
    places.add("shard executor")

    def note(batches):
        places.add(f"{TaskContext.get().partitionId()} {Path.cwd()}")
        yield from batches

    stream.put(range(10))
    out = stream.carried()
    stream.start(out.mapInArrow(note, out.schema))
    stream.until_out(set(range(10)) - {SLOW})
    (holder,) = (it.split()[1] for it in stream.calls.counts() if it.startswith("folder "))

    def keep_busy(_):
        if str(Path.cwd()) == holder:
            busy.add("yes")
            wait_until((folder / "free").exists, patience=120)
            yield True

    def until_busy() -> None:
        while not spark.sparkContext.parallelize([0], 1).mapPartitions(keep_busy).collect():
            pass

    blocker = threading.Thread(target=until_busy, daemon=True)
    blocker.start()
    stream.until((folder / "busy").exists)
    stream.put(range(10, 20))
    stream.until_out(set(range(20)) - {SLOW})
    stream.gate.touch()
    stream.until_out(range(20))
    free.add("yes")
    blocker.join()
    shards = [line.split()[0] for line in places.counts()]
    found = ended(stream)
    spark.stop()
    # Spark leaves it where it is installed.
    shutil.rmtree(Path(holder).parent, ignore_errors=True)
    return {**found, "moved": any(shards.count(shard) == 2 for shard in ("0", "1"))}


def without_reuse(folder: Path) -> dict[str, Any]:
    """A call in flight whose worker is killed between two micro-batches."""
    spark = session("local[2]", **{"spark.python.worker.reuse": "false"})
    stream = stream_in(spark, folder)
    stream.put(range(10))
    stream.start(stream.carried())
    stream.until_out(set(range(10)) - {SLOW})
    for redone in range(3):
        # What carries out no task any more goes on with the call, until it is killed.
        stream.until(lambda redone=redone: sum(it["redone"] for it in stream.numbers()) == redone)
        *_, pid = (it.split()[-1] for it in stream.calls.counts() if it.startswith(f"pid {SLOW} "))
        os.kill(int(pid), signal.SIGKILL)
        stream.until(lambda redone=redone: stream.calls_of(SLOW) == redone + 2)
    # Its micro-batch waits for it now.
    meanwhile = sorted(stream.rows)
    ages = [it["oldest"] for it in stream.numbers() if it["redone"]]
    stream.gate.touch()
    stream.put(range(10, 20))
    stream.until_out(range(20))
    found = ended(stream)
    found |= {"meanwhile": meanwhile, "ages": ages}
    return {**found, "signalled": signalled(spark, folder / "signalled")}


def signalled(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """A driver that drains its query when it is told to end, while it waits for the query."""
    stream = stream_in(spark, folder)
    answers: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: answers.append(sa.drain(stream.query, timeout="60s")))

    def end() -> None:
        stream.between = None
        os.kill(os.getpid(), signal.SIGTERM)
        stream.gate.touch()

    stream.between = end
    stream.put(range(10))
    stream.start(stream.carried())
    stream.query.awaitTermination()
    spark.stop()
    return {"rows": sorted(stream.rows), "answers": answers}


def main(folder: str, out: str, *further: str) -> None:
    results = {"moving": moving(Path(folder, "moving"))} if further else {}
    results["without reuse"] = without_reuse(Path(folder, "without-reuse"))
    Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
