# SPDX-License-Identifier: Apache-2.0
"""What Spark's Arrow functions and the Python of Spark's workers must have, asked on the driver.

To be used on the driver, from any thread.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.spark.metrics import is_connect
from sparkawait.spark.shipping import is_shipped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["check_workers", "require_packages"]

_PROGRAM = "import sys; print('%d.%d' % sys.version_info[:2]); import sparkawait"
_PATIENCE_SECONDS = 60
_MAY_BRING_PACKAGES = (
    "spark.submit.pyFiles",
    "spark.files",
    "spark.archives",
    "spark.executorEnv.PYTHONPATH",
)


@functools.cache
def require_packages() -> None:
    """Checks that the driver has what Spark's Arrow functions need.

    Raises:
        ConfigurationError: If pandas or pyarrow is missing or too old for this PySpark.
    """
    try:
        with warnings.catch_warnings():  # Spark warns of new versions again, when it uses them
            warnings.simplefilter("ignore")
            require_minimum_pandas_version()
            require_minimum_pyarrow_version()
    except ImportError as error:
        msg = (
            f"Spark's Arrow functions lack a package: {error};"
            " run `pip install 'sparkawait[spark]'`, on the executors too"
        )
        raise ConfigurationError(msg, ErrorKind.MODULE_MISSING) from error


def check_workers(df: DataFrame) -> None:
    """Checks that the workers' Python has sparkawait, where it is a Python of this machine.

    That is so for a local master. Elsewhere tasks say so themselves.

    Raises:
        ConfigurationError: If it has another version than the driver's Python, or no sparkawait.
    """
    if is_connect(df):
        return
    context: Any = df.sparkSession.sparkContext
    if not context.master.startswith("local"):
        return
    python = shutil.which(str(context.pythonExec))
    is_own = python is not None and os.path.abspath(python) == os.path.abspath(sys.executable)  # noqa: PTH100 - a link of a virtual environment is not its target
    if python is None or is_own or context._python_includes:  # noqa: SLF001
        return
    # The session has those of the context, whose `getConf` copies all, in 600 messages to the JVM.
    if any(df.sparkSession.conf.get(name, None) for name in _MAY_BRING_PACKAGES):
        return
    problem = _problem_of(python, needs_package=not is_shipped(df.sparkSession))
    if problem is not None:
        msg = (
            f"Spark's Python workers would run {python}, {problem}; the driver runs"
            f" {sys.executable}. Set PYSPARK_PYTHON (spark.pyspark.python for spark-submit) to it"
            ' before the session starts: os.environ["PYSPARK_PYTHON"] = sys.executable; or send'
            " sparkawait along with sparkawait.ship(spark)"
        )
        raise ConfigurationError(msg, ErrorKind.WORKERS_UNFIT)


@functools.cache
def _problem_of(python: str, *, needs_package: bool) -> str | None:
    """Asks a Python, once."""
    try:
        answer = subprocess.run(  # noqa: S603 - what Spark will run
            [python, "-c", _PROGRAM],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    version = answer.stdout.strip()
    if version and version != own:
        return f"which is Python {version} and not {own}"
    if answer.returncode and needs_package:
        last = (answer.stderr.strip().splitlines() or ["it failed"])[-1]
        return f"which cannot import sparkawait ({last})"
    return None
