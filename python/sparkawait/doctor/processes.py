# SPDX-License-Identifier: Apache-2.0
"""What a process told of itself, as findings; those of workers beside the driver's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkawait.doctor.report import Report, Status

__all__ = ["add_process", "compare_packages"]

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
    python = f"{told['implementation']} {told['python']}, {told['executable']}"
    report.add(place, "Python", python)
    report.add(place, "platform", told["platform"])
    installed = [f"{name} {version}" for name, version in told["packages"].items() if version]
    report.add(place, "packages", ", ".join(installed) or "none of those that matter")
    for name, (subject, works, hint) in _ABILITIES.items():
        if told[name] is None:
            report.add(place, subject, works)
        else:
            report.add(place, subject, f"{told[name]}; {hint}", Status.PROBLEM)
    _add_files(report, place, told["open_files"])
    _add_memory(report, place, told["memory_mb"])
    names = ", ".join(told["variables"]) or "none of those that matter"
    report.add(place, "environment", f"set are {names} (values are left out)")


def _add_files(report: Report, place: str, limit: int) -> None:
    if 0 <= limit < _FEW_FILES:
        text = f"at most {limit}, and each connection is one; raise it with `ulimit -n`"
        report.add(place, "open files", text, Status.WARNING)
    else:
        report.add(place, "open files", f"at most {limit}" if limit >= 0 else "not limited")


def _add_memory(report: Report, place: str, memory: Mapping[str, int | None]) -> None:
    text = f"{memory['machine']} MB in the machine"
    if memory["container"] is not None:
        text += f", {memory['container']} MB for the container"
    bound = memory["address_space"]
    if bound is None:
        report.add(place, "memory", text)
        return
    text += f", {bound} MB of address space (spark.executor.pyspark.memory)"
    if bound < _LITTLE_MEMORY_MB:
        text += f"; less than {_LITTLE_MEMORY_MB} MB is little: see docs/memory.md"
        report.add(place, "memory", text, Status.WARNING)
    else:
        report.add(place, "memory", text)


def compare_packages(report: Report, driver: Mapping[str, Any], worker: Mapping[str, Any]) -> bool:
    """Adds how a worker's packages differ from the driver's; tells whether tasks can run."""
    place, own, there = "executors", driver["sparkawait"], worker["sparkawait"]
    if "error" in there:
        text = (
            f"cannot be imported ({there['error']}); send it along with"
            " sparkawait.ship(spark), which `sparkawait doctor --ship` tries, or install it"
            " there"
        )
        report.add(place, "sparkawait", text, Status.PROBLEM)
        return False
    if there["version"] != own["version"]:
        text = (
            f"{there['version']}, and the driver has {own['version']}; install the same version"
            " on both"
        )
        report.add(place, "sparkawait", text, Status.PROBLEM)
        return False
    report.add(place, "sparkawait", there["version"])
    for name in ("pyarrow", "pyspark"):
        here, remote = driver["packages"][name], worker["packages"][name]
        if here and remote and here != remote:
            text = f"{remote}, and the driver has {here}; that is mostly harmless"
            report.add(place, name, text, Status.WARNING)
    return True
