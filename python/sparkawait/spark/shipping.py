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

import email
import functools
import hashlib
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sparkawait import _probe
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.spark.session import (
    SHIPPED,
    Session,
    is_connect,
    owner_of_files,
    run_drivers_python,
)
from sparkawait.spark.shipment import PACKAGE, VERSION, folder_name, probe_by_value

# -- a wheel of sparkawait: the one that this Python has installed, or a file
#
# A wheel is a zip, so an executor that unpacks one has the package. Used on the driver.


_PACKAGE = "sparkawait"
_EXTENSION = f"{_PACKAGE}/_core"
_LIBRARIES = {"manylinux": "glibc", "musllinux": "musl"}
_TAG = re.compile(
    r"(?P<family>manylinux|musllinux|macosx)_(?P<major>\d+)_(?P<minor>\d+)_(?P<machine>\w+)"
)
_OLD_TAGS = {
    "manylinux1": "manylinux_2_5",
    "manylinux2010": "manylinux_2_12",
    "manylinux2014": "manylinux_2_17",
}


@dataclass(frozen=True)
class Platform:
    """What a Python runs on.

    Attributes:
        system: ``"Linux"`` or ``"Darwin"``, as `platform.system` says.
        machine: ``"x86_64"``, ``"aarch64"``, as `platform.machine` says.
        library: ``"glibc"``, ``"musl"``, or ``""`` where that says nothing.
        version: Of the library, or of macOS.
        python: Its version, as (3, 11).
    """

    system: str
    machine: str
    library: str
    version: tuple[int, int]
    python: tuple[int, int]

    def __str__(self) -> str:
        """Returns it as a sentence names it."""
        version = ".".join(map(str, self.version))
        library = f" with {self.library} {version}" if self.library else f" {version}"
        python = ".".join(map(str, self.python))
        return f"{self.system} on {self.machine}{library}, Python {python}"


@dataclass(frozen=True)
class Wheel:
    """A wheel; only its description was read.

    Attributes:
        version: Of sparkawait.
        tags: What it runs on, such as ``cp310-abi3-manylinux_2_17_x86_64``.
        source: Where it comes from, for messages.
    """

    version: str
    tags: tuple[str, ...]
    source: str
    _files: Callable[[], Iterator[tuple[str, bytes]]]

    @staticmethod
    def installed() -> Wheel:
        """Finds the wheel that the running sparkawait was installed from.

        Raises:
            ConfigurationError: If it was not installed from one, as after ``maturin develop``.
        """
        package = PACKAGE
        for found in metadata.distributions(name=_PACKAGE, path=[str(package.parent)]):
            files = {str(file): Path(str(file.locate())) for file in found.files or ()}
            if any(name.startswith(_EXTENSION) for name in files):
                tags = _tags(found.read_text("WHEEL") or "")
                return Wheel(found.version, tags, str(package), functools.partial(_read, files))
        msg = (
            f"sparkawait of {package} was not installed from a wheel, so there is none to ship;"
            " install one, or name it with wheel='..' (`make wheel` builds one into dist/)"
        )
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)

    @staticmethod
    def read(path: Path) -> Wheel:
        """Reads the description of a wheel.

        Raises:
            ConfigurationError: If the file is not a wheel of sparkawait.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                about = next(name for name in names if name.endswith(".dist-info/WHEEL"))
                tags = _tags(archive.read(about).decode())
                described = archive.read(about.replace("/WHEEL", "/METADATA")).decode()
        except (OSError, StopIteration, KeyError, zipfile.BadZipFile) as error:
            msg = f"`wheel` must be the path of a wheel of sparkawait, got {str(path)!r}: {error}"
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID) from error
        if not any(name.startswith(_EXTENSION) for name in names):
            msg = f"`wheel` must be the path of a wheel of sparkawait, got {str(path)!r}"
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
        version = email.message_from_string(described)["Version"]
        return Wheel(version, tags, str(path), functools.partial(_unpack, path))

    def write_zip(self, path: Path) -> None:
        """Writes what executors unpack: the package, as it is found on ``sys.path``."""
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in sorted(self._files()):
                # Without a time, so that the same package is the same file.
                entry = zipfile.ZipInfo(name)
                entry.compress_type = zipfile.ZIP_DEFLATED
                # Quickly: it goes a short way, once.
                archive.writestr(entry, content, compresslevel=1)

    def misfit(self, platform: Platform) -> str | None:
        """Says why it does not run there; ``None`` if it does."""
        reasons = [_misfit(tag, platform) for tag in self.tags]
        return None if None in reasons or not reasons else str(reasons[0])


def _tags(description: str) -> tuple[str, ...]:
    return tuple(email.message_from_string(description).get_all("Tag") or ())


def _read(files: Mapping[str, Path]) -> Iterator[tuple[str, bytes]]:
    for name, path in files.items():
        if name.startswith(_PACKAGE) and "__pycache__" not in name:
            yield name, path.read_bytes()


def _unpack(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.endswith("/"):
                yield name, archive.read(name)


def _misfit(tag: str, platform: Platform) -> str | None:
    python, abi, place = tag.split("-", 2)
    major, minor = int(python[2:3]), int(python[3:] or 0)
    if abi != "none" and (platform.python < (major, minor) or platform.python[0] != major):
        return f"needs Python {major}.{minor} or newer"
    if place == "any":
        return None
    for old, new in _OLD_TAGS.items():
        place = re.sub(rf"^{old}_", f"{new}_", place)
    found = _TAG.fullmatch(place)
    if found is None:  # linux_x86_64, as built for one machine: nothing is known of its library
        system, _, machine = place.partition("_")
        fits = system == platform.system.lower() and machine == platform.machine
        return None if fits else f"was built for {place}"
    family, least = found["family"], (int(found["major"]), int(found["minor"]))
    needed = f"{_LIBRARIES.get(family, 'macOS')} {least[0]}.{least[1]} or newer"
    is_mac = family == "macosx"
    machines = (platform.machine, *(("universal2",) if is_mac else ()))
    if is_mac != (platform.system == "Darwin") or found["machine"] not in machines:
        return f"was built for {'macOS' if is_mac else 'Linux'} on {found['machine']}"
    if not is_mac and platform.library != _LIBRARIES[family]:
        return f"needs {needed}"
    return None if platform.version >= least else f"needs {needed}"


# -- the archive


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
    if found.version != VERSION:
        msg = (
            f"the wheel {found.source} has sparkawait {found.version}, the driver"
            f" {VERSION}; ship the same version"
        )
        raise ConfigurationError(msg, ErrorKind.VERSION_MISMATCH)
    known = SHIPPED.get(owner_of_files(spark))
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
    SHIPPED[owner_of_files(spark)] = digest


def _pack(wheel: Wheel) -> tuple[Path, str]:
    """Writes the archive and returns its path and the digest of what is in it."""
    packed = Path(_folder().name, "sparkawait.zip")
    wheel.write_zip(packed)
    return packed, hashlib.sha256(packed.read_bytes()).hexdigest()[:16]


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Returns a folder that stays until the process ends: executors fetch files as they start."""
    return tempfile.TemporaryDirectory(prefix="sparkawait-")


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
    run_drivers_python(Session(spark))
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
