# SPDX-License-Identifier: Apache-2.0
"""What tells builds of one version apart, so that an executor notices that the driver has another.

Used on the driver and in workers, once each.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

__all__ = ["fingerprint"]


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
