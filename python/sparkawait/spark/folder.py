# SPDX-License-Identifier: Apache-2.0
"""A folder of Parquet files that several runs add to: what they have written and found failed.

To be called on the driver, from any thread.
"""

from __future__ import annotations

import functools
import importlib
import logging
import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.types import StructType

from sparkawait._checks import refuse
from sparkawait._values.results import unlike
from sparkawait.exceptions import AsyncFunctionError, ErrorKind
from sparkawait.spark.interrupts import wait_for
from sparkawait.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["OWN", "Folder", "column_of", "observation_of", "tell", "without"]

_logger = logging.getLogger("sparkawait")
OWN = "_sparkawait"
"""How a column beside those of the rows begins. Their names may be any: see `unlike`."""


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
        return self.spark.read.schema(self.schema).parquet(self.path)

    def check(self) -> bool:
        """Tells whether there is something; rows must have the columns of `schema`."""
        try:
            # Twice, because Spark looks in a single folder for what a stream has left there, and
            # logs a stack trace if there is no such folder.
            read = functools.partial(self.spark.read.parquet, self.path, self.path)
            found = wait_for(self.spark, read).schema
        except AnalysisException as error:
            if "PATH_NOT_FOUND" in str(error):
                return False
            if "UNABLE_TO_INFER_SCHEMA" in str(error):  # no file yet
                return True
            raise
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

    def keys_done(self, again: str | None) -> DataFrame:
        """Returns the keys of the rows that are not called for."""
        rows = self.rows()
        return rows if again is None else rows.where(~self._has_failed())

    def add(self, rows: DataFrame) -> int | None:
        """Writes `rows`, and returns how many of them have failed, if that can be told."""
        observation = None if self.error is None else observation_of(rows)
        if observation is not None:
            failed = F.coalesce(F.sum(self._has_failed().cast("long")), F.lit(0))
            rows = rows.observe(observation, failed.alias("failed"))
        # A key with several results stays in one file.
        writer = rows.write.mode("append").option("maxRecordsPerFile", 0)
        wait_for(self.spark, lambda: writer.parquet(self.path))
        return None if observation is None else observation.get["failed"]

    def tell_of_failures(self) -> None:
        """Says how many rows have failed in earlier runs, and are not called for."""
        failed = 0
        if self.error is not None:
            failed = wait_for(self.spark, self.rows().where(self._has_failed()).count)
        if failed:
            tell(
                f"{failed} row{'s' * (failed != 1)} at `path` failed in earlier runs, and are done;"
                " again='failed' calls for them again"
            )

    def fail(self, what: str) -> NoReturn:
        """Ends a run whose further calls would fail, too.

        Raises:
            AsyncFunctionError: Always.
        """
        assert self.error is not None  # noqa: S101 - they were counted by it
        error = column_of(self.error)
        failed = self.rows().where(error.isNotNull()).select(error.alias("error"))
        one = wait_for(self.spark, failed.first)
        last = {} if one is None else one["error"].asDict()
        msg = (
            f"{what}, and no further one is called for; one of them: {last.get('message')}. They"
            " are written, and done: run again with again='failed' once the cause is mended, or as"
            " it was for the rows behind them. An `on_error` with `stop_after` or `stop_ratio`"
            " judges in place of this"
        )
        kind = last.get("kind") or ErrorKind.USER_FUNCTION_FAILED
        raise AsyncFunctionError(msg, kind, status=last.get("status"))

    def write_none(self) -> None:
        """Writes no rows, which ends what a run has left that was killed.

        Tasks that it had committed lie below ``_temporary``, and the next job that writes there
        puts them beside its own files. That must not be the one that calls for the same rows.
        """
        none = self.spark.createDataFrame([], self.schema)
        wait_for(self.spark, lambda: none.write.mode("append").parquet(self.path))

    def latest(self) -> DataFrame:
        """Returns a reader of all rows, without failures that a later run has called for again."""
        rows = self.rows()
        if self.error is None or wait_for(self.spark, rows.where(self._has_failed()).isEmpty):
            return rows
        own = unlike(OWN, rows.columns)
        keys = [column_of(name) for name in self.names]
        failures = F.sum(self._has_failed().cast("long"))
        is_replaced = (failures > 0) & (F.count(F.lit(1)) > 1)
        replaced = rows.groupBy(*keys).agg(is_replaced.alias(own)).where(F.col(own))
        if wait_for(self.spark, replaced.isEmpty):
            return rows
        newest = Window.partitionBy(*keys).orderBy(F.col("_metadata.file_modification_time").desc())
        failed = rows.where(self._has_failed()).withColumn(own, F.row_number().over(newest))
        good = rows.where(~self._has_failed())
        last = failed.where(F.col(own) == 1).drop(own)
        return good.union(without(last, good, self.names))

    def _has_failed(self) -> Column:
        assert self.error is not None  # noqa: S101 - asked where failures are captured
        return column_of(self.error).isNotNull()


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
