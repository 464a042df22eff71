# SPDX-License-Identifier: Apache-2.0
"""Flink's own operator: a job in Java, in `flink`, in a local cluster with one slot.

The jars are those of the ``apache-flink-libraries`` package; compiling the job takes a JDK.

A row that waits for its next attempt when the input ends is tried once more, at once, and fails the
job if that fails (`AsyncWaitOperator.endInput`). So a job whose service limits the rate can end so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from benches.compare.calls import TABLE, servers
from benches.compare.environment import FOLDER, NotInstalledError, python_of
from benches.compare.peer import Job, Outcome, Peer
from benches.compare.workloads import KEYS

SOURCES = Path(__file__).parent / "flink"
CLASSES = FOLDER / "flink-classes"
OLDEST_JAVA = 17


def _program(name: str) -> str | None:
    home = os.environ.get("JAVA_HOME")
    inside = Path(home) / "bin" / name if home else None
    return str(inside) if inside is not None and inside.exists() else shutil.which(name)


def _classpath(libraries: Path) -> str:
    return os.pathsep.join([str(CLASSES), f"{libraries}/*"])


def prepare() -> None:
    """Compiles the job."""
    compiler = _program("javac")
    if compiler is None:
        msg = f"no `javac`: install a JDK of {OLDEST_JAVA} or later"
        raise NotInstalledError(msg)
    python = str(python_of("flink"))
    where = "import pyflink, pathlib; print(pathlib.Path(pyflink.__path__[0], 'lib'))"
    found = subprocess.run([python, "-c", where], capture_output=True, text=True, check=False)  # noqa: S603
    libraries = Path(found.stdout.strip())
    CLASSES.mkdir(parents=True, exist_ok=True)
    sources = [str(path) for path in sorted(SOURCES.glob("*.java"))]
    options = ["-Xlint:all", "-Werror", "-proc:none", "--release", str(OLDEST_JAVA)]
    command = [compiler, *options, "-d", str(CLASSES), "-cp", _classpath(libraries), *sources]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if compiled.returncode != 0:
        msg = f"its job does not compile: {compiled.stderr[-1000:]}"
        raise NotInstalledError(msg)


def _arguments(job: Job) -> dict[str, str]:
    workload = job.workload
    delays = ""
    if workload.delays is not None:
        path = FOLDER / f"delays-{workload.name}.txt"
        micros = (str(round(seconds * 1e6)) for seconds in workload.delays.table())
        path.write_text("\n".join(micros) + "\n")
        delays = str(path)
    service = workload.service
    answering, silent = servers(job.url)
    bound = workload.bound()
    rate = workload.load * bound if workload.load is not None and bound is not None else 0.0
    return {
        "rows": str(job.rows),
        "warm_up_rows": str(job.warm_up_rows),
        "mode": workload.mode,
        "calls": str(workload.calls),
        "timeout_ms": str(round(workload.timeout * 1e3)),
        "watermark_every": str(workload.watermark_every or 0),
        "rate": str(rate),
        "url": f"{answering}/{TABLE}" if answering else "",
        "silent_url": f"{silent}/{TABLE}" if silent else "",
        "destinations": str(service.destinations if service is not None else 1),
        "keys": str(KEYS),
        "delays": delays,
    }


def run(job: Job) -> Outcome:
    """Does the job in a JVM below this process."""
    spec = find_spec("pyflink")
    java = _program("java")
    if spec is None or spec.submodule_search_locations is None or java is None:
        msg = "no jars of Flink, or no `java`"
        raise RuntimeError(msg)
    libraries = Path(spec.submodule_search_locations[0]) / "lib"
    arguments = [f"{name}={value}" for name, value in _arguments(job).items()]
    command = [java, "-cp", _classpath(libraries), "FlinkJob", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    sys.stderr.write(ended.stderr)
    if ended.returncode:
        causes = re.findall(r"^Caused by: (.*)", ended.stderr, re.MULTILINE)
        msg = f"the job failed: {'; '.join(causes[-2:])}"
        raise RuntimeError(msg)
    report = json.loads(ended.stdout.strip().splitlines()[-1])
    capacity = f"{job.workload.calls}"
    settings = {
        "capacity": capacity,
        "timeout": f"{job.workload.timeout:g} s",
        "parallelism": "1",
        "object reuse": "on",
        "buffer timeout": "0",
        "checkpoints": "off",
    }
    if job.workload.service is not None:
        settings["retry"] = "fixed delay, 1000 x 100 ms, on status 429"
    versions = {"flink": version("apache-flink-libraries"), "java": _java_version(java)}
    return Outcome(**report, settings=settings, versions=versions)


def _java_version(java: str) -> str:
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    found = re.search(r'version "([^"]+)"', printed)
    return found.group(1) if found else "unknown"


PEER = Peer(
    name="flink_java",
    title="Flink, Java",
    environment="flink",
    can=frozenset({"ordered", "unordered", "http", "watermarks", "paced input"}),
    rows_per_second=2_500_000,
    start=5.5,
    run=run,
    rates={
        "uniform-10000": 720_000,
        "stragglers-ordered": 860,
        "stragglers-ordered-200mb": 860,
        "watermark-1": 380_000,
        "http": 3_500,
        "http-stall": 3_000,
    },
    prepare=prepare,
)
