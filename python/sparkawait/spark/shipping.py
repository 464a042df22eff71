# SPDX-License-Identifier: Apache-2.0
"""Sends the running sparkawait to the executors of a session.

```text
  driver: wheel --> zip --> Spark's archives        executor: unpacked into sparkawait-VERSION/
                                                              found by the envelope's opener
```

Spark copies an archive to each executor and unpacks it there. The envelope that a call travels in
(`sparkawait.spark.shipment`) looks for that folder before it imports sparkawait. To be used on the
driver.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

import sparkawait
from sparkawait import _probe
from sparkawait._checks import warn_once
from sparkawait.exceptions import ConfigurationError, ErrorKind, how_to_install
from sparkawait.spark.session import is_connect
from sparkawait.spark.shipment import folder_name, probe_by_value
from sparkawait.spark.wheel import Platform, Wheel

_shipped: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""The digest of what was sent, by the context of a classic session, or by a session of Connect."""


def ship(spark: SparkSession, *, wheel: str | os.PathLike[str] | None = None) -> None:
    """Makes sparkawait available on all executors of a session; nothing is installed there.

    The executors' Python needs pyarrow, as Spark's Arrow functions do, and nothing else. Call it
    once, before the first query that waits; to call it again does nothing. What is shipped goes
    before what an executor has installed. It takes about a second: one executor is asked what it
    runs on.

    Args:
        spark: A session, classic or of Spark Connect.
        wheel: The path of a wheel of the same version, for executors that run on something else
            than the driver, or where the driver's sparkawait was not installed from a wheel. By
            default the one that the driver has installed.

    Raises:
        ConfigurationError: If there is no wheel, it has another version than the running
            sparkawait, it does not fit what the executors run on, or another one was shipped to
            the session before.

    Examples:
        >>> spark = SparkSession.builder.remote("sc://cluster").getOrCreate()  # doctest: +SKIP
        >>> sparkawait.ship(spark)  # doctest: +SKIP
    """
    found = Wheel.installed() if wheel is None else Wheel.read(_path(wheel))
    if found.version != sparkawait.__version__:
        msg = (
            f"the wheel {found.source} has sparkawait {found.version}, the driver"
            f" {sparkawait.__version__}; ship the same version"
        )
        raise ConfigurationError(msg, ErrorKind.VERSION_MISMATCH)
    known = _shipped.get(_owner(spark))
    # It is packed while an executor is asked.
    with ThreadPoolExecutor(1) as beside:
        packing = beside.submit(_pack, found)
        if known is None:
            _refuse_misfit(found, _platform_of_executors(spark))
        packed, digest = packing.result()
    if known == digest:
        return
    if known is not None:
        msg = (
            "another wheel was shipped to this session, and executors may have loaded it;"
            " start a new session"
        )
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    # The name of the file has its contents in it: Spark knows the files of a session by name.
    archive = packed.rename(packed.with_name(f"{folder_name(found.version)}-{digest}.zip"))
    _add(spark, f"{archive}#{folder_name(found.version)}")
    _shipped[_owner(spark)] = digest


def _pack(wheel: Wheel) -> tuple[Path, str]:
    """Writes the archive and returns its path and the digest of what is in it."""
    packed = Path(_folder().name, "sparkawait.zip")
    wheel.write_zip(packed)
    return packed, hashlib.sha256(packed.read_bytes()).hexdigest()[:16]


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Returns a folder that stays until the process ends: executors fetch files as they start."""
    return tempfile.TemporaryDirectory(prefix="sparkawait-")


def is_shipped(spark: SparkSession) -> bool:
    """Tells whether `ship` was called for a session, or another one of its application."""
    return _owner(spark) in _shipped


def _owner(spark: SparkSession) -> Any:
    """Returns what the files of a session belong to."""
    return spark if is_connect(spark) else spark.sparkContext


def _path(wheel: object) -> Path:
    if not isinstance(wheel, (str, os.PathLike)):
        msg = f"`wheel` must be a path, got `{type(wheel).__name__}`"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    return Path(wheel).expanduser()  # pyright: ignore[reportUnknownArgumentType]


def _add(spark: SparkSession, archive: str) -> None:
    if is_connect(spark):
        spark.addArtifacts(archive, archive=True)
    else:
        spark.sparkContext.addArchive(archive)


def _refuse_misfit(wheel: Wheel, platform: Platform) -> None:
    misfit = wheel.misfit(platform)
    if misfit is None:
        return
    msg = (
        f"the wheel of {wheel.source} {misfit}, and the executors run {platform};"
        " ship the one for them with wheel='..' (`make wheel TARGET=..` in the source builds it)"
    )
    raise ConfigurationError(msg, ErrorKind.WORKERS_UNFIT)


def _platform_of_executors(spark: SparkSession) -> Platform:
    """Asks an executor what it runs on, which needs no sparkawait there.

    On the way that rows take to a function that waits, so that what Spark has to load for it is
    loaded once.
    """
    run_drivers_python(spark)
    with probe_by_value():
        one = spark.range(1, numPartitions=1)
        try:
            [row] = one.mapInArrow(_probe.batches_of_what_runs, "told string").collect()
        except Exception as error:
            if _NO_PYARROW.search(str(error)) is None:
                raise
            python = "their python3" if is_connect(spark) else f"`{_python_of(spark)}`"
            msg = (
                f"the workers run {python}, which has no pyarrow, and Spark's Arrow functions need"
                " it: install it there; or set PYSPARK_PYTHON on the driver, before the session"
                " starts, to the path of a Python of the workers that has it"
            )
            raise ConfigurationError(msg, ErrorKind.MODULE_MISSING) from error
    told: dict[str, Any] = json.loads(row["told"])
    told["version"], told["python"] = tuple(told["version"]), tuple(told["python"])
    return Platform(**told)


_NO_PYARROW = re.compile(r"No module named 'pyarrow'|PyArrow .{0,40}must be installed")


def _python_of(spark: SparkSession) -> str:
    context: Any = spark.sparkContext
    return str(context.pythonExec)


# -- what Spark's Arrow functions and the Python of Spark's workers must have, asked on the driver

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
            f" {how_to_install('spark')}, on the executors too"
        )
        raise ConfigurationError(msg, ErrorKind.MODULE_MISSING) from error


def check_workers(df: DataFrame) -> None:
    """Checks that the workers' Python has sparkawait, where it is a Python of this machine.

    That is so for a local master. Elsewhere tasks report it.

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


# -- which Python runs the workers of a session on the driver's machine, where nobody has chosen
# one.
#
# To be used on the driver, from any thread.

_UNCHOSEN = "python3"
"""What workers run where nobody said what they should: the first on PATH, with any packages."""
_CHOICE = "PYSPARK_PYTHON"
_CHOICE_OF_SUBMIT = "spark.pyspark.python"
_CHOICE_OF_CONNECT = "spark.sql.execution.pyspark.python"
_SERVER_OF_THIS_PROCESS = "SPARK_LOCAL_REMOTE"
"""Set by PySpark when it has started a server of Spark Connect itself."""


def run_drivers_python(spark: SparkSession | None) -> None:
    """Has workers on this machine run the Python of the driver, where nobody chose theirs.

    So a program runs in an environment that was not activated, as those of notebooks and editors.
    Otherwise Spark takes the first `python3` on PATH, which has other packages.
    """
    if spark is None or not sys.executable or _CHOICE in os.environ:
        return
    found = shutil.which(_UNCHOSEN)
    if is_connect(spark):
        # Asked last: it takes a call to the server.
        if _SERVER_OF_THIS_PROCESS in os.environ and not spark.conf.get(_CHOICE_OF_CONNECT, None):
            spark.conf.set(_CHOICE_OF_CONNECT, sys.executable)
            _tell_of_python(found)
        return
    context: Any = spark.sparkContext
    is_chosen = context.pythonExec != _UNCHOSEN or spark.conf.get(_CHOICE_OF_SUBMIT, None)
    if context.master.startswith("local") and not is_chosen:
        context.pythonExec = sys.executable
        _tell_of_python(found)


def _tell_of_python(found: str | None) -> None:
    """Says once which Python workers run from now on, where they would have run another one."""
    if found is None or os.path.realpath(found) != os.path.realpath(sys.executable):
        warn_once(
            "the workers of this session run %s, as the driver does, and not `%s` (%s), for all"
            " Python functions from now on; set PYSPARK_PYTHON before the session starts to choose",
            sys.executable,
            _UNCHOSEN,
            found or "not found",
        )
