# SPDX-License-Identifier: Apache-2.0
"""What a number was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["commit", "cpu_time", "describe"]

_PACKAGES = ("sparkawait", "pyspark", "pyarrow", "uvloop")


def describe() -> dict[str, str]:
    """Returns names and versions of what takes part."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)  # noqa: S607
    return {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "java": (java.stderr.splitlines() or ["none"])[0],
        **{package: _version(package) for package in _PACKAGES},
    }


def commit() -> str:
    """Returns what is measured; ``-dirty`` behind it if files differ from the commit."""
    command = ["git", "describe", "--always", "--dirty", "--match", "v*"]
    said = subprocess.run(  # noqa: S603
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "unknown"


def cpu_time() -> tuple[int, int]:
    """Returns what the host took from this machine, and all time of its cores, in ticks.

    Both are 0 where the system does not tell.
    """
    try:
        fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
    except OSError:
        return 0, 0
    ticks = [int(field) for field in fields]
    return ticks[7], sum(ticks)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "from the source tree" if package == "sparkawait" else "not installed"
