# SPDX-License-Identifier: Apache-2.0
"""A Spark of the demo's own, which leaves the terminal to the demo."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from sparkawait.demo.errors import DemoError

__all__ = ["spark_session"]

_STDERR = 2


@contextmanager
def spark_session(master: str, log: Path) -> Generator[SparkSession]:
    """Yields a session that ends with the body.

    Args:
        master: A local master, such as ``local[4]``.
        log: File for all that Spark has to say.

    Raises:
        DemoError: If there is no Java, or Spark does not start.
    """
    _check_java()
    # PySpark warns of pandas 3, of which nothing here makes use.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    # The JVM keeps the standard error that it is started with.
    with _stderr_to(log):
        try:
            spark = _start(master)
        except (PySparkRuntimeError, OSError) as error:
            raise DemoError(f"Spark did not start: {_last_line(log) or error}") from error
    try:
        yield spark
    finally:
        spark.stop()


def _start(master: str) -> SparkSession:
    # Workers must run the Python of the demo, not the `python3` that is first on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master(master)
        .appName("sparkawait demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else "java"
    if shutil.which(java) is None:
        where = f"JAVA_HOME, `{home}`, has none" if home else "none is on PATH"
        raise DemoError(f"Spark needs Java 17 or later, and {where}; install one or set JAVA_HOME")


@contextmanager
def _stderr_to(path: Path) -> Generator[None]:
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    with path.open("ab") as file:
        os.dup2(file.fileno(), _STDERR)
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
