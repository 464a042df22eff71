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
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sparkawait
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.spark.drivers_python import run_drivers_python
from sparkawait.spark.metrics import is_connect
from sparkawait.spark.shipment import by_value, folder_name
from sparkawait.spark.wheel import Platform, Wheel

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["is_shipped", "ship"]

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
    [row] = spark.range(1, numPartitions=1).mapInArrow(by_value(_describe), "told string").collect()
    told = json.loads(row["told"])
    return Platform(
        told["system"],
        told["machine"],
        told["library"],
        (told["version"][0], told["version"][1]),
        (told["python"][0], told["python"][1]),
    )


def _describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Describes what this Python runs on; pickled by value, so it imports what it needs."""
    import json
    import os
    import platform
    import sys

    import pyarrow as pa

    system = platform.system()
    library, version = "", "0.0"
    if system == "Darwin":
        version = platform.mac_ver()[0]
    else:
        try:
            name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
            library = "glibc" if name == "glibc" else ""
        except (ValueError, OSError):
            # Not glibc; musl does not tell its version, and 1.2 is what all supported images have.
            library, version = "musl", "1.2"
    numbers = [*(int(part) for part in version.split(".") if part.isdigit()), 0, 0]
    told = json.dumps(
        {
            "system": system,
            "machine": platform.machine(),
            "library": library,
            "version": numbers[:2],
            "python": list(sys.version_info[:2]),
        }
    )
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"told": [told]})
