# SPDX-License-Identifier: Apache-2.0
"""The report: findings by place, as a text to paste or as JSON. It has no secrets in it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from enum import Enum

__all__ = ["Finding", "Report", "Status", "one_line"]

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
