# SPDX-License-Identifier: Apache-2.0
"""Looks at the Python process that it runs in: the driver's, or a worker's that has no sparkawait.

It is pickled with its code, so it uses the standard library only, and returns what JSON has. `ship`
asks an executor what it `runs_on`, the doctor asks for all.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import json
import os
import platform
import resource
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PACKAGES = ("pyspark", "pyspark-client", "pyarrow", "pandas", "numpy", "grpcio", "uvloop")
VARIABLES = ("SPARK", "PYSPARK", "PYTHON", "JAVA", "ARROW", "MALLOC", "LD_", "VIRTUAL_ENV", "CONDA")
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
PATIENCE_SECONDS = 10.0
NO_LIMIT_MB = 1 << 40  # what the first version of control groups says where there is none


def look(shipped: str = "") -> dict[str, object]:
    """Returns what there is to know, with nothing that may be secret.

    Args:
        shipped: The folder, among the files that Spark has sent, that a shipped sparkawait is in.
    """
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "platform": system(),
        "sparkawait": _sparkawait(shipped),
        "packages": {name: version(name) for name in PACKAGES},
        "memory_mb": _memory(),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "temporary_folder": _attempt(_write),
        "sockets": _attempt(_loopback),
        "unix_sockets": _attempt(_unix),
        "fork": _attempt(_fork),
        "event_loop": _attempt(_wake_a_loop),
        "variables": _variables(),
    }


def look_as_json(shipped: str) -> str:
    """Does what `look` does, as a column function."""
    return json.dumps(look(shipped), sort_keys=True)


def _attempt(action: Callable[[], None]) -> str | None:
    """Returns what is wrong, or nothing."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return f"{type(error).__name__}: {error}"
    return None


def runs_on() -> dict[str, Any]:
    """Returns the system, the processor, the C library or nothing, its version, and Python's."""
    name = platform.system()
    library, version = "", platform.mac_ver()[0] if name == "Darwin" else "0.0"
    if name == "Linux":
        try:
            library, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        except (ValueError, OSError):
            # musl does not tell its version, and 1.2 is what all supported images have.
            library, version = "musl", "1.2"
    numbers = [*(int(part) for part in version.split(".") if part.isdigit()), 0, 0]
    return {
        "system": name,
        "machine": platform.machine(),
        "library": library,
        "version": numbers[:2],
        "python": list(sys.version_info[:2]),
    }


def system() -> str:
    """Returns the system, the processor, and the C library or the release."""
    told = runs_on()
    version = ".".join(map(str, told["version"]))
    release = {"musl": "musl", "": version}.get(told["library"], f"{told['library']} {version}")
    return f"{told['system']} {told['machine']} {release}"


def batches_of_what_runs(batches: Iterator[Any]) -> Iterator[Any]:
    """Yields what `runs_on` tells for each batch, as a function of ``mapInArrow``."""
    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"told": [json.dumps(runs_on())]})


def _sparkawait(shipped: str) -> dict[str, str]:
    """Imports it, as a task does."""
    if shipped and "sparkawait" not in sys.modules:
        try:
            from pyspark import SparkFiles

            folder = Path(getattr(SparkFiles, "_root_directory", None) or ".", shipped)
            if folder.is_dir():
                sys.path.insert(0, str(folder))
        except ImportError:
            pass
    try:
        return {"version": importlib.import_module("sparkawait").__version__}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return {"error": f"{type(error).__name__}: {error}"}


def version(name: str) -> str | None:
    """Returns the version of a package, if there is one."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
    # PySpark is found on executors without having been installed there.
    module = sys.modules.get(name)
    return getattr(module, "__version__", None)


def _memory() -> dict[str, int | None]:
    """Returns what the machine has, and what bounds the process."""
    bound = resource.getrlimit(resource.RLIMIT_AS)[0]
    found = {
        "machine": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20,
        "address_space": None if bound == resource.RLIM_INFINITY else bound >> 20,
        "container": None,
    }
    for path in LIMITS:
        try:
            limit = int(Path(path).read_text(encoding="ascii"))
        except (OSError, ValueError):  # there is none, or it is "max"
            continue
        if limit >> 20 < NO_LIMIT_MB:
            found["container"] = limit >> 20
            break
    return found


def _write() -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"sparkawait")
        file.flush()


def _loopback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_SECONDS)
        with socket.create_connection(server.getsockname(), PATIENCE_SECONDS) as client:
            accepted, _ = server.accept()
            with accepted:
                client.sendall(b"sparkawait")
                if not accepted.recv(16):
                    raise ConnectionError("nothing arrived")


def _unix() -> None:
    left, right = socket.socketpair(socket.AF_UNIX)
    with left, right:
        left.sendall(b"sparkawait")
        if not right.recv(16):
            raise ConnectionError("nothing arrived")


def _fork() -> None:
    """Spark forks its workers."""
    if sys.platform != "linux":
        return  # forking beside threads of the system's libraries is not safe elsewhere
    with warnings.catch_warnings():
        # Of threads, which the child has none of.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        raise ChildProcessError(f"the child ended with status {status}")


def _wake_a_loop() -> None:
    """Starts a loop on a thread and wakes it from another, as a task does."""
    loop, woken = asyncio.new_event_loop(), threading.Event()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    loop.call_soon_threadsafe(woken.set)
    if not woken.wait(PATIENCE_SECONDS):
        raise TimeoutError("a thread did not wake the loop")
    loop.call_soon_threadsafe(loop.stop)
    thread.join(PATIENCE_SECONDS)
    loop.close()


def _variables() -> list[str]:
    """Returns names only: values may be secret."""
    return sorted(
        name for name in os.environ if name.startswith(VARIABLES) or name.lower() in PROXIES
    )
