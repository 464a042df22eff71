# SPDX-License-Identifier: Apache-2.0
"""Runs the examples of documents, one document after the other in one Spark session.

Reads the code of each document by name as JSON, and writes to the file that is named by the first
argument what became of each: a line of JSON, with a traceback where it failed.

Each document has a `__main__` of its own, and a folder that paths are relative to, in Python and in
Spark. It has to leave behind the session as it found it; its servers are stopped.
"""

from __future__ import annotations

import json
import linecache
import os
import socketserver
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark.sql import SparkSession

from sparkawait.spark import owner
from sparkawait.testing import LookupServer


def run(spark: SparkSession, name: str, code: str, folder: Path) -> None:
    """Runs the code of one document, and checks what it leaves behind.

    Raises:
        BaseException: Whatever the code raises.
    """
    options = options_of(spark)
    enter(spark, folder)
    # The lines of the document in tracebacks.
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    main = sys.modules["__main__"]
    module = sys.modules["__main__"] = ModuleType("__main__")
    try:
        exec(compile(code, name, "exec"), module.__dict__)  # noqa: S102
        left = options_of(spark)
        changed = {key for key, _ in options.items() ^ left.items()}
        assert not changed, f"session options are not as they were: {sorted(changed)}"
        assert not spark.streams.active, "a stream is still running"
    finally:
        sys.modules["__main__"] = main
        stop_servers(vars(module))
        for query in spark.streams.active:
            query.stop()
        forget(spark)
        restore(spark, options)


def options_of(spark: SparkSession) -> dict[str, str]:
    """Returns the options of the session."""
    if not hasattr(spark.conf, "getAll"):  # before Spark 4.0
        return {row.key: row.value for row in spark.sql("SET").collect()}
    return dict(spark.conf.getAll)


def forget(spark: SparkSession) -> None:
    """Takes from the session what a document has named or kept."""
    spark.catalog.clearCache()
    for table in spark.catalog.listTables():
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)
    owner._OWNERS.clear()  # the counts of an application
    for function in spark.sql("SHOW USER FUNCTIONS").collect():
        spark.sql(f"DROP TEMPORARY FUNCTION {function[0]}")


def restore(spark: SparkSession, options: dict[str, str]) -> None:
    """Gives the session the options that it had."""
    left = options_of(spark)
    for key in left.keys() - options.keys():
        spark.conf.unset(key)
    for key, value in options.items():
        if left.get(key) != value:
            spark.conf.set(key, value)


def enter(spark: SparkSession, folder: Path) -> None:
    """Makes `folder` what relative paths are relative to."""
    folder.mkdir()
    os.chdir(folder)
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.get(spark._jsc.hadoopConfiguration())
    files.setWorkingDirectory(hadoop.Path(str(folder)))
    jvm.java.lang.System.setProperty("user.dir", str(folder))  # for checkpoints of streams


def stop_servers(names: dict[str, Any]) -> None:
    """Stops the servers that a document has made."""
    for value in names.values():
        if isinstance(value, LookupServer):
            value.stop()
        elif isinstance(value, socketserver.BaseServer):
            value.shutdown()
            value.server_close()


def main() -> None:
    """Runs all documents, those after one that failed, too."""
    documents: dict[str, str] = json.load(sys.stdin)
    report = Path(sys.argv[1]).resolve()
    start = Path.cwd()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    for number, (name, code) in enumerate(documents.items()):
        failure = None
        try:
            run(spark, name, code, start / str(number))
        except BaseException:  # noqa: BLE001 - `SystemExit` is a failure as well
            failure = traceback.format_exc()
        with report.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"document": name, "failure": failure}) + "\n")
    os.chdir(start)
    spark.stop()


if __name__ == "__main__":
    main()
