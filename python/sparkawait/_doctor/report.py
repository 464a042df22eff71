# SPDX-License-Identifier: Apache-2.0
"""The report: findings by place, as a text to paste or as JSON. It has no secrets in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

_LONGEST = 700
"""Characters of a message that are kept; Spark's have whole stacks in them."""
_SECRETS = (
    (re.compile(r"://[^/@\s]*@"), "://***@"),
    (
        re.compile(r"(?i)\b([\w.-]*(?:token|password|passwd|secret|key|credential)\w*=)[^;&\s]+"),
        r"\1***",
    ),
    (re.compile(r"(?i)(bearer\s+)\S+"), r"\1***"),
)
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception): .+", re.MULTILINE)
_OF_THE_JVM = re.compile(r"^(?:org|java|py4j|scala)\.")


class Status(str, Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "not checked"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        place: Where: ``"driver"``, ``"executors"`` ..
        subject: What.
        status: How bad it is.
        text: What was found and, if it is bad, what to do.
    """

    place: str
    subject: str
    status: Status
    text: str


@dataclass
class Report:
    """What was found, in order."""

    version: str
    findings: list[Finding] = field(default_factory=list[Finding])

    def add(self, place: str, subject: str, text: str, status: Status = Status.OK) -> None:
        """Adds a finding, without what may be secret in it."""
        self.findings.append(Finding(place, subject, status, _without_secrets(text)))

    def count(self, status: Status) -> int:
        """Returns how many findings are that bad."""
        return sum(finding.status is status for finding in self.findings)

    @property
    def is_well(self) -> bool:
        """Whether nothing is in the way."""
        return not self.count(Status.PROBLEM)

    def __str__(self) -> str:
        """Returns it for people."""
        lines = [f"sparkawait doctor, {self.version}"]
        place = None
        for finding in self.findings:
            if finding.place != place:
                place = finding.place
                lines += ["", place]
            lines.append(f"  {finding.status.value:<11}  {finding.subject}: {finding.text}")
        problems, warnings = self.count(Status.PROBLEM), self.count(Status.WARNING)
        return "\n".join([*lines, "", f"problems: {problems}, warnings: {warnings}"])

    def to_json(self) -> str:
        """Returns it for programs."""
        findings = [asdict(finding) for finding in self.findings]
        content = {"version": self.version, "is_well": self.is_well, "findings": findings}
        return json.dumps(content, indent=2)


def one_line(error: BaseException) -> str:
    """Returns what an exception says, without stacks and without what the JVM adds."""
    text = str(error)
    raised = [found for found in _RAISED.findall(text) if not _OF_THE_JVM.match(found)]
    line = raised[-1] if raised else next(iter(text.strip().splitlines()), "")
    line = line or type(error).__name__
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}.."


def _without_secrets(text: str) -> str:
    for pattern, shown in _SECRETS:
        text = pattern.sub(shown, text)
    return text


# -- what a process told of itself (`sparkawait._probe`); that of workers beside the driver's

_FEW_FILES = 1024
_LITTLE_MEMORY_MB = 1024
_ABILITIES = {
    "temporary_folder": ("temporary folder", "can be written to", "set TMPDIR to one that can be"),
    "sockets": ("sockets", "of the loopback interface work", "is 127.0.0.1 up, and allowed?"),
    "unix_sockets": ("Unix sockets", "work", "does a sandbox forbid them?"),
    "fork": ("fork", "works", "Spark forks its workers; is there memory and a free process id?"),
    "event_loop": ("event loop", "runs on a thread", "may the process start threads?"),
}


def add_process(report: Report, place: str, told: Mapping[str, Any]) -> None:
    """Adds what is known of a process of any kind."""
    report.add(place, "Python", f"{told['implementation']} {told['python']}, {told['executable']}")
    report.add(place, "platform", told["platform"])
    installed = [f"{name} {version}" for name, version in told["packages"].items() if version]
    report.add(place, "packages", ", ".join(installed) or "none of those that matter")
    for name, (subject, works, hint) in _ABILITIES.items():
        if told[name] is None:
            report.add(place, subject, works)
        else:
            report.add(place, subject, f"{told[name]}; {hint}", Status.PROBLEM)
    files, memory = told["open_files"], told["memory_mb"]
    if 0 <= files < _FEW_FILES:
        text = f"at most {files}, and each connection is one; raise it with `ulimit -n`"
        report.add(place, "open files", text, Status.WARNING)
    else:
        report.add(place, "open files", f"at most {files}" if files >= 0 else "not limited")
    text, bound = f"{memory['machine']} MB in the machine", memory["address_space"]
    status = Status.OK
    if memory["container"] is not None:
        text += f", {memory['container']} MB for the container"
    if bound is not None:
        text += f", {bound} MB of address space (spark.executor.pyspark.memory)"
    if bound is not None and bound < _LITTLE_MEMORY_MB:
        text += f"; less than {_LITTLE_MEMORY_MB} MB is little: see docs/memory.md"
        status = Status.WARNING
    report.add(place, "memory", text, status)
    names = ", ".join(told["variables"]) or "none of those that matter"
    report.add(place, "environment", f"set are {names} (values are left out)")


def compare_packages(report: Report, driver: Mapping[str, Any], worker: Mapping[str, Any]) -> bool:
    """Adds how a worker's packages differ from the driver's; tells whether tasks can run."""
    place, own, there = "executors", driver["sparkawait"], worker["sparkawait"]
    text, status = there.get("version"), Status.PROBLEM
    if "error" in there:
        text = (
            f"cannot be imported ({there['error']}); send it along with sparkawait.ship(spark),"
            " which `sparkawait doctor --ship` tries, or install it there"
        )
    elif text != own["version"]:
        text += f", and the driver has {own['version']}; install the same version on both"
    else:
        status = Status.OK
    report.add(place, "sparkawait", text, status)
    for name in ("pyarrow", "pyspark") if status is Status.OK else ():
        here, remote = driver["packages"][name], worker["packages"][name]
        if here and remote and here != remote:
            text = f"{remote}, and the driver has {here}; that is mostly harmless"
            report.add(place, name, text, Status.WARNING)
    return status is Status.OK


# -- the Java that Spark would start on this machine

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
        return add(f"{program} of {where} is not Java ({first}); {needed}", Status.PROBLEM)
    found = f"{full[1]}, of {where}"
    if int(version[1]) < oldest:
        return add(f"{found}; {needed}: set JAVA_HOME to one of them", Status.PROBLEM)
    if int(version[1]) > newest:
        return add(f"{found}; {needed}, a newer one was not tried", Status.WARNING)
    return add(found)
