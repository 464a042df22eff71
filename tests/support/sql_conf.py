# SPDX-License-Identifier: Apache-2.0
"""Settings of a Spark session, which tests share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONE = "spark.sql.session.timeZone"


@contextmanager
def sql_conf(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Sets `values` for a while, and then what was set before; named as in the tests of Spark."""
    names = cast("Any", spark.conf)
    before: dict[str, str | None] = {name: names.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def all_settings(spark: SparkSession) -> str:
    """Returns what is set in a session of this process, in the order of the names."""
    shown = cast("Any", spark)._jsparkSession.conf().getAll().toString()
    _, _, inner = shown.partition("(")
    return "\n".join(sorted(inner.removesuffix(")").split(", ")))
