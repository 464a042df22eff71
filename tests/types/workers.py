# SPDX-License-Identifier: Apache-2.0
"""Spark with the time zones of a test: that of the session and that of the Python workers."""

from __future__ import annotations

import importlib.metadata
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support.sql_conf import ZONE, sql_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SESSION_ZONES", "VERSION", "ZONES", "classic_udf", "zones"]

VERSION = cast(
    "tuple[int, int]", tuple(map(int, importlib.metadata.version("pyspark").split(".")[:2]))
)
AT_NIGHT = (pytest.mark.newest_spark, pytest.mark.nightly)
ZONES = [
    ("America/St_Johns", "UTC"),
    pytest.param("UTC", "America/St_Johns", marks=AT_NIGHT),
    pytest.param("Asia/Kolkata", "Asia/Kolkata", marks=AT_NIGHT),
]
"""Of the session, and of the workers: an odd zone for each change, the other pairs at night."""
SESSION_ZONES = [
    "America/New_York",
    pytest.param("UTC", marks=pytest.mark.nightly),
    pytest.param("Asia/Kolkata", marks=pytest.mark.nightly),
]
"""Of the session alone: one with summer time for each change, the others at night."""


@contextmanager
def zones(spark: SparkSession, session: str, worker: str) -> Iterator[None]:
    """Sets both zones; new workers are started for the second."""
    environment = cast("dict[str, Any]", spark.sparkContext.environment)
    mine = os.environ.get("TZ")
    environment["TZ"] = os.environ["TZ"] = worker
    time.tzset()
    try:
        with sql_conf(spark, {ZONE: session}):
            yield
    finally:
        del environment["TZ"], os.environ["TZ"]
        if mine is not None:
            os.environ["TZ"] = mine
        time.tzset()


def classic_udf(function: Any, data_type: Any, *, arrow: bool = False) -> Any:
    """Makes a udf of Spark: by default one whose values are pickled, whatever is the default."""
    from pyspark.sql import functions as F  # noqa: N812 - its customary name

    return F.udf(function, data_type, useArrow=arrow)
