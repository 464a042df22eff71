# SPDX-License-Identifier: Apache-2.0
"""A standalone Spark cluster of real processes: a master and workers, out of pip's PySpark."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sysconfig
from contextlib import AbstractContextManager
from pathlib import Path

import pyspark
from typing_extensions import Self

from benches.compare.tree import below
from tests.support.network import Network
from tests.support.servers import LOOPBACK
from tests.support.waiting import wait_until

__all__ = ["SparkCluster", "bare_packages", "python_workers"]

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_DAEMON = "pyspark.daemon"
_KEPT = ("PATH", "JAVA_HOME", "JDK_JAVA_OPTIONS")
_ADDRESS = re.compile(r"Starting Spark master at (spark://\S+)")
START_SECONDS = 120.0
"""JVMs that have not started by then never will."""

_REGISTERED = "Successfully registered with master"


def bare_packages(folder: Path) -> Path:
    """Makes a folder for ``PYTHONPATH`` that has pyarrow, what pyarrow needs, and nothing else."""
    packages = Path(sysconfig.get_path("purelib"))
    folder.mkdir()
    for name in ("pyarrow", "pyarrow.libs", "numpy", "numpy.libs"):
        if (packages / name).exists():
            (folder / name).symlink_to(packages / name)
    return folder


class SparkCluster:
    """A master and workers, as a context manager.

    Args:
        folder: For logs and what executors write.
        workers: How many.
        home: Of the Spark that runs; by default the one of this Python.
        network: Whose first host has the master, and is for the driver, and whose others have a
            worker each; by default all are on the loopback interface.
        cores: Of each worker.
        private: A folder that is another one, and empty, on the host of the last worker.

    Attributes:
        address: Of the master.
        host: Where the master is and a driver has to be, an address.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        home: Path | None = None,
        network: Network | None = None,
        cores: int = 1,
        *,
        private: Path | None = None,
    ) -> None:
        self.address = ""
        self._cores = str(cores)
        # A host of its own for each worker: there are copies of a task on different hosts only.
        self._hosts = [LOOPBACK, *(f"127.0.0.{number + 2}" for number in range(workers))]
        if network is not None:
            self._hosts = network.addresses
        self.host = self._hosts[0]
        self._network = network
        self._home = home or Path(pyspark.__file__).parent
        self._folder = folder
        self._count, self._private = workers, private
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []

    def __enter__(self) -> Self:
        try:
            self._start(0, _MASTER, "--port", "0")
            wait_until(lambda: _ADDRESS.search(self._log(0)) is not None, START_SECONDS)
            self.address = _ADDRESS.findall(self._log(0))[0]
            for number in range(self._count):
                self._start_worker(number)
            self._wait_for_workers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def join(self) -> None:
        """Starts another worker, on a host that has none."""
        self._count += 1
        self._start_worker(self._count - 1)
        self._wait_for_workers()

    def _start_worker(self, number: int) -> None:
        where = str(self._folder / f"work{number}")
        options = ("--cores", self._cores, "--memory", "1g", "--work-dir", where)
        self._start(number + 1, _WORKER, *options, self.address)

    def _wait_for_workers(self) -> None:
        numbers = range(1, self._count + 1)
        wait_until(lambda: all(_REGISTERED in self._log(it) for it in numbers), START_SECONDS)

    def __exit__(self, *_: object) -> None:
        """Ends the workers, their executors and the master."""
        for process in reversed(self._processes):
            for pid in sorted(below(process.pid), reverse=True):
                _kill(pid)
            process.wait()

    def inside(self, host: int = 0) -> AbstractContextManager[None]:
        """Puts the calling thread where the driver has to be, or on another of the hosts."""
        return contextlib.nullcontext() if self._network is None else self._network.inside(host)

    def processes(self) -> list[int]:
        """Returns the process ids of the master and the workers, which have started the others."""
        return [process.pid for process in self._processes]

    def executors(self) -> list[int]:
        """Returns the process ids of the executors that run."""
        return self._running(_EXECUTOR)

    def python_workers(self) -> list[int]:
        """Returns the process ids of the executors' Python workers, which a daemon has forked."""
        return [pid for executor in self.executors() for pid in python_workers(executor)]

    def logs(self) -> str:
        """Returns what all processes have written, for a test that failed."""
        written = [*self._logs, *self._folder.glob("work*/app-*/*/stderr")]
        return "\n".join(f"== {path}\n{path.read_text()[-3000:]}" for path in written)

    def _start(self, host: int, role: str, *arguments: str) -> None:
        log = self._folder / f"{len(self._processes)}.log"
        self._logs.append(log)
        command = ["bash", str(self._home / "bin" / "spark-class"), role, "--webui-port", "0"]
        command += ["--host", self._hosts[host]]
        if self._private is not None and host == self._count:
            mount = 'mount -t tmpfs none "$0" && exec "$@"'
            command = ["unshare", "--mount", "bash", "-c", mount, str(self._private), *command]
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        local = LOOPBACK if self._network is None else self._hosts[host]
        with log.open("wb") as written, self.inside(host):
            process = subprocess.Popen(
                [*command, *arguments],
                stdout=written,
                stderr=subprocess.STDOUT,
                env={**kept, "SPARK_HOME": str(self._home), "SPARK_LOCAL_IP": local},
                cwd=self._folder,
            )
        self._processes.append(process)

    def _log(self, number: int) -> str:
        return self._logs[number].read_text(errors="replace")

    def _running(self, word: str) -> list[int]:
        found = (pid for process in self._processes for pid in below(process.pid))
        return [pid for pid in found if word in _command_of(pid)]


def python_workers(parent: int) -> list[int]:
    """Returns the process ids of the Python workers below a process, which a daemon has forked."""
    named = [pid for pid in below(parent) if _DAEMON in _command_of(pid)]
    workers = [pid for daemon in named for pid in below(daemon) if pid != daemon]
    return list(dict.fromkeys(workers))


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:  # it has ended
        return ""


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
