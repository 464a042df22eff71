# SPDX-License-Identifier: Apache-2.0
"""A folder of Parquet files that several runs add to: what they have written and found failed.

To be called on the driver, from any thread.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import logging
import operator
import re
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import StructType

from sparkawait._checks import refuse
from sparkawait._values.results import unlike
from sparkawait.exceptions import ErrorKind
from sparkawait.spark.interrupts import wait_for
from sparkawait.spark.session import is_connect

__all__ = [
    "OWN",
    "Failures",
    "Folder",
    "column_of",
    "observation_of",
    "tell",
    "times_of",
    "without",
    "write",
    "written_at",
]

_logger = logging.getLogger("sparkawait")
OWN = "_sparkawait"
"""How a column beside those of the rows begins. Their names may be any: see `unlike`."""
_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""What JSON has of a time. By default that is milliseconds, and minutes of its zone."""
_TAKE_PATTERNS = frozenset({"avro", "csv", "json", "orc", "parquet", "text", "xml"})
"""The formats that are Spark's own. Others, such as Delta, read the path that they are given."""
_BINARY = "binaryFile"
"""The format of a reader that looks into no file."""


class Failures(NamedTuple):
    """Rows of one job that have failed: how many, and the failure of one of them."""

    rows: int
    one: Mapping[str, Any]


@dataclass(frozen=True)
class Folder:
    """What runs have written, as files that are only added to.

    Attributes:
        spark: The session.
        path: The folder.
        schema: The columns of the rows.
        names: The columns of the key.
        error: The column of failures, if rows that failed are written.
    """

    spark: SparkSession
    path: str
    schema: StructType
    names: tuple[str, ...]
    error: str | None

    def rows(self) -> DataFrame:
        """Returns a reader of all rows of all files."""
        return written_at(self.spark, self.path, self.schema)

    def check(self) -> bool:
        """Tells whether there is a file; rows must have the columns of `schema`."""
        found = self._found("parquet", self.path)
        if found is None:
            return False
        there, new = (
            [f"{it.name} {it.dataType.simpleString()}" for it in of] for of in (found, self.schema)
        )
        if there != new:
            refuse(
                "`path` has rows with other columns than this call writes:"
                f" {', '.join(there)} and not {', '.join(new)}; give another path",
                ErrorKind.INPUT_INVALID,
            )
        return True

    def was_left(self) -> bool:
        """Tells whether a run was killed as it wrote, and has left what it had not committed.

        Tasks that it had committed lie there, and the next job that writes to `path` puts them
        beside its own files. That must not be the one that calls for the same rows.
        """
        return self._found(_BINARY, f"{self.path}/_temporary") is not None

    def _found(self, format: str, path: str) -> StructType | None:  # noqa: A002 - as Spark calls it
        """Returns the columns of the files at `path`, if there are any."""
        # No partitions are looked for, which the folders of a job might be taken for.
        reader = self.spark.read.option("recursiveFileLookup", format == _BINARY).format(format)
        # Twice, because Spark looks in a single folder for what a stream has left there, and logs a
        # stack trace if there is no such folder.
        read = functools.partial(reader.load, [_literal(path)] * 2)
        try:
            return wait_for(self.spark, lambda: read().schema)
        except AnalysisException as error:
            if "PATH_NOT_FOUND" in str(error) or "UNABLE_TO_INFER_SCHEMA" in str(error):
                return None
            raise

    def keys_done(self, again: str | None) -> DataFrame:
        """Returns the keys of the rows that are not called for."""
        rows = self.rows()
        return rows if again is None else self._good(rows)

    def add(self, rows: DataFrame) -> Failures | None:
        """Writes `rows`, and returns which of them have failed, if that can be told."""
        observation = None if self.error is None else observation_of(rows)
        if self.error is not None and observation is not None:
            failed = F.coalesce(F.sum(self._has_failed().cast("long")), F.lit(0))
            # Any of them. As a text, because not all clients of Connect take a struct.
            one = F.to_json(F.max(column_of(self.error)))
            rows = rows.observe(observation, failed.alias("failed"), one.alias("one"))
        # A key with several results stays in one file.
        writer = rows.write.mode("append").option("maxRecordsPerFile", 0)
        write(self.spark, lambda: writer.parquet(self.path))
        if observation is None:
            return None
        told = observation.get
        return Failures(told["failed"], json.loads(told["one"] or "{}"))

    def tell_of_failures(self) -> None:
        """Says how many rows have failed in earlier runs, and are not called for."""
        failed = wait_for(self.spark, self.last_failures().count) if self._has_failures() else 0
        if failed:
            tell(
                f"{failed} row{'s' * (failed != 1)} at `path` failed in earlier runs, and are done;"
                " again='failed' calls for them again"
            )

    def write_none(self) -> None:
        """Writes no rows, which ends what a run has left, and makes a table of a new folder."""
        none = self.spark.createDataFrame([], self.schema)
        write(self.spark, lambda: none.write.mode("append").parquet(self.path))

    def latest(self) -> DataFrame:
        """Returns a reader of all rows, without failures that a later run has called for again."""
        rows = self.rows()
        if not self._has_failures():
            return rows
        own = unlike(OWN, rows.columns)
        keys = [column_of(name) for name in self.names]
        failures = F.sum(self._has_failed().cast("long"))
        is_replaced = (failures > 0) & (F.count(F.lit(1)) > 1)
        replaced = rows.groupBy(*keys).agg(is_replaced.alias(own)).where(F.col(own))
        if wait_for(self.spark, replaced.isEmpty):
            return rows
        return self._good(rows).union(self.last_failures())

    def last_failures(self) -> DataFrame:
        """Returns the rows that have no result: of each key its last failure."""
        rows = self.rows()
        own = unlike(OWN, rows.columns)
        keys = [column_of(name) for name in self.names]
        newest = Window.partitionBy(*keys).orderBy(_time_of_file(rows).desc())
        failed = rows.where(self._has_failed()).withColumn(own, F.row_number().over(newest))
        last = failed.where(F.col(own) == 1).drop(own)
        return without(last, self._good(rows), self.names)

    def _good(self, rows: DataFrame) -> DataFrame:
        return rows.where(~self._has_failed())

    def _has_failures(self) -> bool:
        """Tells whether a row has failed in any run, whatever later runs have called for."""
        if self.error is None:
            return False
        return not wait_for(self.spark, self.rows().where(self._has_failed()).isEmpty)

    def _has_failed(self) -> Column:
        assert self.error is not None  # noqa: S101 - asked where failures are captured
        return column_of(self.error).isNotNull()


def write(spark: SparkSession, action: Callable[[], object]) -> None:
    """Writes rows that are paid for, as `wait_for` carries an action out."""
    with _old_times(spark):
        wait_for(spark, action)


_REBASING = tuple(
    f"spark.sql.{form}InWrite"
    for form in ("parquet.datetimeRebaseMode", "parquet.int96RebaseMode", "avro.datetimeRebaseMode")
)
_WRITING: weakref.WeakKeyDictionary[Any, _Writing] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


@dataclass
class _Writing:
    """What runs write in a session at a time, and the settings that are others meanwhile."""

    runs: int
    changed: dict[str, str | None]


@contextlib.contextmanager
def _old_times(spark: SparkSession) -> Generator[None]:
    """Has times before 1900, and dates before 1582, written as they are.

    Spark before 4 fails at the first of them unless a setting says whether its versions before 3
    are to read them, too. Its rows have been called for by then. Who has said it has it so.
    """
    with _LOCK:
        writing = _WRITING.get(spark)
        if writing is None:
            before = {it: spark.conf.get(it, None) for it in _REBASING if _is_refusal(spark, it)}
            for name in before:
                spark.conf.set(name, "CORRECTED")
            writing = _WRITING[spark] = _Writing(0, before)
        writing.runs += 1
    try:
        yield
    finally:
        with _LOCK:
            writing.runs -= 1
            if not writing.runs:
                del _WRITING[spark]
                for name, value in writing.changed.items():
                    if value is None:  # It is the default.
                        spark.conf.unset(name)
                    else:
                        spark.conf.set(name, value)


def _is_refusal(spark: SparkSession, name: str) -> bool:
    """Tells whether a setting refuses, also where that is its default."""
    try:
        # With a default given here, Spark's own would not be seen.
        return spark.conf.get(name) == "EXCEPTION"
    except Exception:  # noqa: BLE001 - this Spark has no such setting, or does not show it
        return False


def times_of(format: str) -> dict[str, str]:  # noqa: A002 - as Spark calls it
    """Returns options that have JSON write times as they are; other texts keep no struct."""
    return _TIMES if format.lower() == "json" else {}


def written_at(
    spark: SparkSession,
    path: str,
    schema: StructType,
    format: str = "parquet",  # noqa: A002 - as Spark calls it
) -> DataFrame:
    """Returns a reader of what was written to `path`, whatever characters that has."""
    there = _literal(path) if format.lower() in _TAKE_PATTERNS else path
    return spark.read.format(format).schema(schema).load(there)


def _literal(path: str) -> str:
    """Returns `path` as readers of Spark take it, for which it is a pattern; for writers it is not.

    What stands before the path, such as the address of a name node, is never one.
    """
    place = re.match(r"[^/]*://[^/]*", path)
    start = place.end() if place else 0
    return path[:start] + re.sub(r"[\\*?\[\]{}]", r"\\\g<0>", path[start:])


def _time_of_file(rows: Any) -> Column:
    """Returns when the file of a row was written; the rows may have a column of Spark's name."""
    name = "_metadata"
    if hasattr(rows, "metadataColumn"):
        about = rows.metadataColumn(name)
    elif is_connect(rows):
        about = F.col(name)
    else:  # Spark 3.5 has it in the JVM alone
        about = Column(rows._jdf.metadataColumn(name))  # noqa: SLF001
    return about["file_modification_time"]


def without(df: DataFrame, done: DataFrame, names: Sequence[str]) -> DataFrame:
    """Returns the rows of `df` whose key is not in `done`."""
    others = [unlike(f"{OWN}_{i}", df.columns) for i in range(len(names))]
    keys = [column_of(name).alias(other) for name, other in zip(names, others, strict=True)]
    same = [column_of(name).eqNullSafe(F.col(it)) for name, it in zip(names, others, strict=True)]
    return df.join(
        done.select(*keys).distinct(), functools.reduce(operator.and_, same), "left_anti"
    )


def observation_of(df: DataFrame) -> Observation | None:
    """Returns what counts while rows are written; clients of Connect have none before Spark 4.0."""
    if not is_connect(df):
        return Observation()
    try:
        module = importlib.import_module("pyspark.sql.connect.observation")
    except ModuleNotFoundError:
        return None
    return module.Observation()


def tell(line: str) -> None:
    """Logs a line; where no logging is set up, people look at the bar of Spark meanwhile."""
    if _logger.hasHandlers():
        _logger.info("write_once: %s", line)
    else:
        print(f"sparkawait.write_once: {line}", file=sys.stderr)  # noqa: T201 - as the bar


def column_of(name: str) -> Column:
    """Returns the column of exactly this name, whatever is in it."""
    return F.col(f"`{name.replace('`', '``')}`")
