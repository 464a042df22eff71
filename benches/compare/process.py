# SPDX-License-Identifier: Apache-2.0
"""Runs a peer as a whole process, watches it, and checks what it says it put out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benches.compare.calls import value_of
from benches.compare.environment import FOLDER, ROOT, python_of
from benches.compare.peer import Job, Outcome, Peer
from benches.compare.server import serving
from benches.compare.tree import TreeSampler, below, cpu_between, kill_below
from benches.compare.workloads import KEYS
from benches.python import machine

__all__ = ["Failure", "Measured", "complaints", "run"]

_LINES_OF_OUTPUT = 3
_LONGEST_LINE = 300
_NOTE = "see docs/errors.md#"
"""What Python prints below an error that says where it is explained."""
_TRACEBACK = "Traceback (most recent call last):"
_JAVA_FRAME = re.compile(r"at .*\(.*\)|\.\.\. \d+ more")


class Failure(Exception):  # noqa: N818 - a result like another
    """A run that gave no valid result; the message says why."""


@dataclass(frozen=True)
class Measured:
    """One run of a peer: what it reports, and what was seen from outside.

    Attributes:
        outcome: What it reports.
        startup_seconds: From the start of the process to the first row of the measured pass.
        seconds: From the first row's admission to the last row's emission.
        cpu_seconds: CPU time of the process and all below it in these seconds.
        peak_megabytes: Most memory that they had together, start-up included.
        requests: Counters of the HTTP server, which also counts the warm-up.
        load: Processes that ran or wanted to run in the minute before, on average.
        steal: Share of the machine's time that its host gave to others meanwhile.
    """

    outcome: Outcome
    startup_seconds: float
    seconds: float
    cpu_seconds: float
    peak_megabytes: float
    requests: dict[str, int]
    load: float = 0.0
    steal: float = 0.0

    @property
    def rows_per_second(self) -> float:
        """Rows of the measured pass by its seconds."""
        return self.outcome.rows / self.seconds

    @property
    def cpu_seconds_per_million_rows(self) -> float:
        """CPU time by rows."""
        return self.cpu_seconds / self.outcome.rows * 1e6


def complaints(job: Job, outcome: Outcome) -> list[str]:
    """Returns what is wrong with an output; nothing if it is proven."""
    found = []
    if outcome.rows != job.rows:
        found.append(f"{outcome.rows} rows came out of {job.rows}")
    if outcome.id_sum != job.rows * (job.rows - 1) // 2:
        found.append(f"their ids sum up to {outcome.id_sum}")
    if outcome.misplaced:
        found.append(f"{outcome.misplaced} rows are not in their place")
    service = job.workload.service
    if service is None or not service.stall_rate:
        expected, missing = _result_sum(job), _missing(job)
        if outcome.result_sum != expected:
            found.append(f"their results sum up to {outcome.result_sum} instead of {expected}")
        if outcome.missing != missing:
            instead = f" instead of {missing}" if missing else ""
            found.append(f"{outcome.missing} rows have no result{instead}")
    if outcome.first_ns >= outcome.last_ns:
        found.append("it ended before it began")
    return found


def _result_sum(job: Job) -> int:
    service = job.workload.service
    if service is None:
        return 3 * job.rows * (job.rows - 1) // 2 + job.rows
    return sum(value_of(row % KEYS) for row in range(job.rows) if service.answers(row))


def _missing(job: Job) -> int:
    service = job.workload.service
    return 0 if service is None else sum(not service.answers(row) for row in range(job.rows))


def run(peer: Peer, job: Job, limit_seconds: float) -> Measured:
    """Runs a peer once.

    Raises:
        Failure: If it ends without a report, takes too long or puts out something wrong.
    """
    load, before = os.getloadavg()[0], machine.cpu_time()
    with serving(job.workload) as (url, counters):
        job = Job(job.workload, job.rows, job.warm_up_rows, url)
        started = time.monotonic_ns()
        outcome, sampler = _report(peer, job, limit_seconds)
    stolen, passed = (end - start for start, end in zip(before, machine.cpu_time(), strict=True))
    wrong = complaints(job, outcome)
    if wrong:
        raise Failure("; ".join(wrong))
    return Measured(
        outcome,
        startup_seconds=(outcome.first_ns - started) / 1e9,
        seconds=(outcome.last_ns - outcome.first_ns) / 1e9,
        cpu_seconds=cpu_between(sampler.samples, outcome.first_ns, outcome.last_ns),
        peak_megabytes=sampler.peak_megabytes,
        requests=counters,
        load=load,
        steal=stolen / passed if passed else 0.0,
    )


def _report(peer: Peer, job: Job, limit_seconds: float) -> tuple[Outcome, TreeSampler]:
    log = FOLDER / "logs" / f"{peer.name}-{job.workload.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [str(python_of(peer.environment)), "-m", "benches.compare.child", peer.name]
    spared = set(below(os.getpid()))
    with tempfile.TemporaryDirectory(prefix="compare-") as scratch:
        # A file, as a pipe would stay open for as long as something that the peer has left behind.
        printed = Path(scratch, "report.json")
        with log.open("w") as errors, printed.open("w") as output:
            process = subprocess.Popen(  # noqa: S603 - the peer's own Python
                [*command, json.dumps(job.to_json())],
                cwd=scratch,  # where no package is, as what is there can be imported
                env=_environment(peer, scratch),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
        sampler = _watch(process, limit_seconds, spared)
        report = printed.read_text()
    try:
        values = json.loads(report)
    except ValueError as error:
        lines = _last_lines(log.read_text(errors="replace"))
        raise Failure(f"status {process.returncode}: {'; '.join(lines)}") from error
    seen = values["seen"]
    # The keys of an object are texts.
    cpu_seconds = {int(pid): cpu for pid, cpu in seen["cpu_seconds"].items()}
    sampler.add(seen["ns"], cpu_seconds, seen["megabytes"])
    return Outcome(**values["outcome"]), sampler


def _last_lines(log: str) -> list[str]:
    """Returns the end of a log: the error alone below a traceback; without the project's folder."""
    lines = [line.strip().replace(str(ROOT), ".")[:_LONGEST_LINE] for line in log.splitlines()]
    lines = [line for line in lines if not line.startswith(_NOTE)]
    kept = 1 if _TRACEBACK in lines else _LINES_OF_OUTPUT
    return [line for line in lines if line and not _JAVA_FRAME.fullmatch(line)][-kept:]


def _watch(process: subprocess.Popen[bytes], limit_seconds: float, spared: set[int]) -> TreeSampler:
    """Waits for the end of a process, and ends what it has left behind: all but those spared."""
    sampler = TreeSampler(process.pid)
    try:
        process.wait(limit_seconds)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"it did not end within {limit_seconds:.0f} s") from error
    finally:
        sampler.stop()
        process.kill()
        process.wait()
        # `adopt_orphans` puts them below this process.
        kill_below(os.getpid(), spared)
    return sampler


def _environment(peer: Peer, scratch: str) -> dict[str, str]:
    """Returns the variables of a process, whose temporary files go with `scratch`."""
    path = [str(ROOT), *([str(ROOT / "python")] if peer.is_ours else [])]
    kept = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    binaries = python_of(peer.environment).parent
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path),
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": str(python_of(peer.environment)),
        "NO_PROXY": "127.0.0.1",
        "TMPDIR": scratch,
        "RAY_TMPDIR": scratch,
        "SPARK_LOCAL_DIRS": scratch,
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch}",
    }


def describe(measured: Measured) -> dict[str, object]:
    """Returns a run as a value for `json`."""
    outcome = asdict(measured.outcome)
    return {
        "rows": outcome["rows"],
        "startup_seconds": measured.startup_seconds,
        "seconds": measured.seconds,
        "rows_per_second": measured.rows_per_second,
        "cpu_seconds_per_million_rows": measured.cpu_seconds_per_million_rows,
        "peak_megabytes": measured.peak_megabytes,
        "latency_ms": outcome["latency_ms"],
        "added_latency_ms": outcome["added_ms"],
        "rows_without_result": outcome["missing"],
        "requests": measured.requests,
        "load_before": measured.load,
        "steal": measured.steal,
    }
