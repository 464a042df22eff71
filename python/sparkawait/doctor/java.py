# SPDX-License-Identifier: Apache-2.0
"""The Java that Spark would start on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from sparkawait.doctor.report import Report, Status

__all__ = ["look_for_java"]

_VERSION = re.compile(r"^ *java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)
_FULL_VERSION = re.compile(r"^ *java\.version = (\S+)", re.MULTILINE)
_PATIENCE_SECONDS = 60
_TRIED = {"3.5": (8, 21), "4.0": (17, 21), "4.1": (17, 21)}
_TRIED_NEWEST = (17, 25)
"""The oldest and the newest Java that a line of Spark is known to run on."""


def look_for_java(report: Report, spark: str) -> bool:
    """Adds what was found, and tells whether Spark can start.

    Args:
        report: Gets the finding.
        spark: The version of PySpark.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    where = "JAVA_HOME" if home else "PATH"
    oldest, newest = _TRIED.get(".".join(spark.split(".")[:2]), _TRIED_NEWEST)
    needed = f"Spark {spark} needs Java {oldest} to {newest}"

    def add(text: str, status: Status = Status.OK) -> bool:
        report.add("driver", "Java", text, status)
        return status is not Status.PROBLEM

    program = shutil.which(java)
    if program is None:
        lacking = f"JAVA_HOME, {home}, has no bin/java" if home else "none is on PATH"
        return add(f"{lacking}; {needed}: install one, or set JAVA_HOME", Status.PROBLEM)
    try:
        told = subprocess.run(  # noqa: S603 - what Spark would start
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_SECONDS,
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return add(f"{program} of {where} does not run ({error}); {needed}", Status.PROBLEM)
    version, full = _VERSION.search(told), _FULL_VERSION.search(told)
    if version is None or full is None:
        first = (told.strip().splitlines() or ["it says nothing"])[0]
        return add(f"{program} of {where} is no Java ({first}); {needed}", Status.PROBLEM)
    found = f"{full[1]}, of {where}"
    if int(version[1]) < oldest:
        return add(f"{found}; {needed}: set JAVA_HOME to one of them", Status.PROBLEM)
    if int(version[1]) > newest:
        return add(f"{found}; {needed}, a newer one was not tried", Status.WARNING)
    return add(found)
