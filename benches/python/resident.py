# SPDX-License-Identifier: Apache-2.0
"""The memory of this process that is in use, as Linux tells it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["most_resident_megabytes", "resident_megabytes"]

MEGABYTES_PER_KILOBYTE = 1 / 1024


def resident_megabytes() -> float:
    """Returns what is resident now; 0 on other systems."""
    return _megabytes("VmRSS:")


def most_resident_megabytes() -> float:
    """Returns the most that was resident so far; 0 on other systems."""
    return _megabytes("VmHWM:")


def _megabytes(field: str) -> float:
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith(field):
            return int(line.split()[1]) * MEGABYTES_PER_KILOBYTE
    return 0.0
