# SPDX-License-Identifier: Apache-2.0
"""What is sent to the executors, in an envelope that can be opened by any version of sparkawait.

```text
  opener, by value | build, version | Python, pyarrow | contents, pickled
     |                     |                 |            `-- read last, when they can be
     |                     |                 `-- of the driver, for messages
     |                     `-- compared by the sparkawait of the executor
     `-- needs no sparkawait: takes the one that was shipped, or says so where there is none
```

Sealed on the driver, opened on the task thread of an executor.
"""

from __future__ import annotations

import builtins
import os
import pickle
import sys
import traceback
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.pandas.utils import require_minimum_pyarrow_version

from sparkawait import _probe
from sparkawait._core import VERSION
from sparkawait.exceptions import AsyncIOError, ConfigurationError, ErrorKind, ResultError

__all__ = [
    "PACKAGE",
    "VERSION",
    "Shipment",
    "add_to_what_is_said",
    "by_value",
    "fingerprint",
    "folder_name",
    "in_micro_batch",
    "probe_by_value",
    "told_to_spark",
    "unpack",
]

# -- what tells builds of one version apart, so that an executor notices that the driver has
# another.
#
# Used on the driver and in workers, once each.


def fingerprint(package: Path) -> int:
    """Returns a number made of the names and sizes of the Python files below `package`.

    Wheels that were built of the same sources have the same one, whatever they run on. No file is
    read, which takes half a millisecond. It is 0, for a build that cannot be told, where there are
    no such files, as where only compiled ones were installed.
    """
    files = (
        Path(folder, name)
        for folder, _, names in os.walk(package)
        for name in names
        # The demo is behind a link, but where a wheel was installed.
        if name.endswith(".py") and Path(folder).name != "_flights"
    )
    told = sorted(f"{it.relative_to(package).as_posix()} {it.stat().st_size}" for it in files)
    return zlib.crc32("\n".join(told).encode())


PACKAGE = Path(__file__).parents[1]
BUILD = fingerprint(PACKAGE)
"""Of the running sparkawait, as it was when it was loaded; the build and the version come first."""


class Shipment:
    """Base of what executors get: pickles into an envelope, which is checked before it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Seals the class and the attributes."""
        contents = cloudpickle.dumps((type(self), self.__dict__))
        driver = (sys.executable, pa.__version__)
        return _OPENER, (BUILD, VERSION, *driver, contents)


def unpack(build: int, version: str, *sealed: Any) -> object:
    """Opens an envelope. Its name, place and first two arguments stay what they are for ever.

    Raises:
        ConfigurationError: If another version or build of sparkawait has sealed it, pyarrow is
            too old here, or the contents need a module that is not here.
    """
    if version != VERSION:
        msg = (
            f"the driver has sparkawait {version}, this executor {VERSION};"
            " install the same version on both"
        )
        raise ConfigurationError(msg, ErrorKind.VERSION_MISMATCH)
    if build and BUILD and build != BUILD:
        msg = (
            f"the driver and this executor have sparkawait {version}, but from different builds;"
            " install the same wheel on both, and start the driver again if that was done while"
            " it ran"
        )
        raise ConfigurationError(msg, ErrorKind.VERSION_MISMATCH)
    python, arrow, contents = sealed
    _require_pyarrow(python, arrow)
    with told_to_spark():
        cls, attributes = _read(contents)
    opened = object.__new__(cls)
    opened.__dict__.update(attributes)
    return opened


def _require_pyarrow(python: str, version: str) -> None:
    """Checks what the driver has checked of its own pyarrow."""
    try:
        require_minimum_pyarrow_version()
    except ImportError as error:
        unfit = f"whose pyarrow {pa.__version__} is too old for this Spark ({error})"
        remedy = "a newer one"
        # Spark 3.5 asks by distutils, which Python 3.12 has no more.
        if isinstance(error, ModuleNotFoundError):
            unfit = f"which lacks `{error.name}`, needed by this Spark"
            remedy = "'setuptools<81'" if error.name == "distutils" else f"`{error.name}`"
        msg = (
            f"Spark's Python workers run {sys.executable}, {unfit}; the driver runs {python} with"
            f" pyarrow {version}. Install {remedy} there, or name another Python with"
            " PYSPARK_PYTHON, spark.pyspark.python or, for Spark Connect,"
            " spark.sql.execution.pyspark.python"
        )
        raise ConfigurationError(msg, ErrorKind.WORKERS_UNFIT) from error


def _read(contents: bytes) -> tuple[type, dict[str, Any]]:
    try:
        return pickle.loads(contents)  # noqa: S301 - Spark itself sends pickles
    except ModuleNotFoundError as error:
        msg = (
            f"the function needs module `{error.name}`, which {sys.executable} on this executor"
            " does not have; install it there, send it with spark.addArtifact(.., pyfile=True) or"
            " sparkContext.addPyFile(..), or pickle it with the function by"
            " pyspark.cloudpickle.register_pickle_by_value(module)"
        )
        raise ConfigurationError(msg, ErrorKind.MODULE_MISSING) from error


def folder_name(version: str) -> str:
    """Returns what the folder is called that a shipped sparkawait is unpacked into."""
    return f"sparkawait-{version}"


def _open(build: int, version: str, python: str, arrow: str, contents: bytes) -> object:
    """Opens an envelope where there may be no sparkawait at all."""
    import sys
    from pathlib import Path

    from pyspark import SparkFiles

    # Set in a worker before it reads what was sent to it.
    root = getattr(SparkFiles, "_root_directory", None)
    if root and "sparkawait" not in sys.modules:
        name = f"sparkawait-{version}"
        # A worker of a stream over Spark Connect is told of the folder that has one for each
        # session, and not of its own; Spark fetches the files of that one all the same.
        of_sessions = sorted(Path(root).glob(f"*/{name}"), key=lambda it: it.stat().st_mtime)
        found = [it for it in (Path(root, name), *reversed(of_sessions)) if it.is_dir()]
        sys.path[:0] = [str(it.resolve()) for it in found[:1]]
    try:
        from sparkawait.spark.shipment import unpack
    except ImportError as error:
        message = (
            f"Spark's Python workers run {sys.executable}, which cannot import sparkawait"
            f" ({error}); the driver runs {python} and has sparkawait {version}. Send it along with"
            " sparkawait.ship(spark), install it for the workers' Python, or name another"
            " Python with PYSPARK_PYTHON, spark.pyspark.python or, for Spark Connect,"
            " spark.sql.execution.pyspark.python"
        )
        raise ImportError(message) from None
    return unpack(build, version, python, arrow, contents)


def by_value(function: FunctionType) -> FunctionType:
    """Returns a copy that is pickled with its code, as functions of a notebook are.

    The function must import what it needs.
    """
    copy = FunctionType(function.__code__, {"__builtins__": builtins}, function.__name__)
    copy.__module__ = "__main__"
    return copy


@contextmanager
def probe_by_value() -> Generator[None]:
    """Has the functions of `sparkawait._probe` travel with their code while the body runs."""
    # Only what is registered travels with its code, and executors may have no sparkawait.
    pickler: Any = cloudpickle
    pickler.register_pickle_by_value(_probe)
    try:
        yield
    finally:
        pickler.unregister_pickle_by_value(_probe)


_OPENER = by_value(_open)


# -- what an exception says that leaves a task
#
# Spark sends its traceback to the driver as UTF-8. PySpark begins the message before it encodes the
# text, so one that cannot be encoded leaves the query waiting for ever. Called on the task thread.


@contextmanager
def told_to_spark() -> Generator[None, None, None]:
    r"""Has what the body raises say all that Spark's driver can read.

    The exception of the user's function is part of it, also where Spark drops causes. Half a
    character is written as its escape, such as ``\ud83d``.
    """
    try:
        yield
    except AsyncIOError as error:
        _keep_cause(error)
        _make_encodable(error)
        raise
    except Exception as error:
        if _is_encodable(_printed(error)):
            raise
        # Any other class may make its text of whatever it likes.
        raise RuntimeError(_escaped(_printed(error)).rstrip()) from None


@contextmanager
def in_micro_batch(number: int | None) -> Generator[None, None, None]:
    """Has what the body raises say which micro-batch of its query it has failed, if it is known."""
    try:
        yield
    except AsyncIOError as error:
        if number is not None:
            note = f"in micro-batch {number} of the query, or carried over from an earlier one"
            add_to_what_is_said(error, note)
        raise


def add_to_what_is_said(error: Exception, note: str) -> None:
    """Adds to what is printed of `error`, and not as its last line, which people read first."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
        *others, told = error.__notes__
        error.__notes__ = [told, *others]
    else:  # notes would not be printed
        error.args = (f"{error}\n{note}",)


def _keep_cause(error: AsyncIOError) -> None:
    """Writes the user's traceback into `error`, if it would be lost or cannot be encoded."""
    cause = error.__cause__
    if cause is None:
        return
    told = _printed(cause)
    is_encodable = _is_encodable(told)
    if is_encodable and not os.environ.get("SPARK_SIMPLIFIED_TRACEBACK"):
        return
    if not isinstance(cause, ResultError):  # was said, and no line of the user's raised it
        add_to_what_is_said(error, f"caused by the exception of the function:\n{told.rstrip()}")
    if not is_encodable:
        error.__cause__ = None


def _make_encodable(error: AsyncIOError) -> None:
    error.args = tuple(_escaped(it) if isinstance(it, str) else it for it in error.args)
    notes = [_escaped(note) for note in getattr(error, "__notes__", [])]
    error.__notes__ = notes  # pyright: ignore[reportAttributeAccessIssue]
    if not _is_encodable(_printed(error)):
        error.__cause__ = None  # so its context is not printed either


def _printed(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _is_encodable(told: str) -> bool:
    try:
        told.encode()
    except UnicodeEncodeError:
        return False
    return True


def _escaped(told: str) -> str:
    return told.encode("utf-8", "backslashreplace").decode()
