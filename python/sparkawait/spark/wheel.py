# SPDX-License-Identifier: Apache-2.0
"""A wheel of sparkawait: the one that this Python has installed, or a file.

A wheel is a zip, so an executor that unpacks one has the package. Used on the driver.
"""

from __future__ import annotations

import email
import functools
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import sparkawait
from sparkawait.exceptions import ConfigurationError, ErrorKind

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
        package = Path(sparkawait.__file__).parent
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
