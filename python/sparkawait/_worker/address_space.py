# SPDX-License-Identifier: Apache-2.0
"""What a bound on the address space of the process asks for, as Spark sets it in its workers.

``spark.executor.pyspark.memory`` bounds what is mapped, not what is used (RLIMIT_AS). Allocators
that map much more than they use, so that they need to ask less often, are told not to, and what
cannot be had is said with the name of the setting. The first module to be imported,
it loads the libraries that all others need.
State: the processes whose allocators were told.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from sparkawait.exceptions import AsyncIOError, ErrorKind

__all__ = ["bound_mb", "fit", "load", "named", "start"]

_ARENA_MAX = -8
"""M_ARENA_MAX of glibc's mallopt: each thread maps 64 MB for itself otherwise."""
_STACK_BYTES = 256 * 1024
"""Enough for a thread that runs a loop of our own, instead of the 8 MB that are usual."""
_fitted: set[int] = set()


def bound_mb() -> int | None:
    """Returns the megabytes that the process may map; ``None`` if there is no bound."""
    bound, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if bound == resource.RLIM_INFINITY else bound >> 20


def fit() -> None:
    """Has the allocators of this process map little, if its address space is bounded.

    To be called before PyArrow is imported, and again before it makes its first array in a worker
    that was forked with it. Does nothing without a bound.
    """
    if bound_mb() is None:
        return
    # The pools that PyArrow prefers map up to a gigabyte with the first array.
    if "pyarrow" not in sys.modules:
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if os.getpid() in _fitted:
        return
    _fitted.add(os.getpid())
    # Other C libraries than glibc have no arenas.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
    if "pyarrow" in sys.modules:
        pyarrow = sys.modules["pyarrow"]
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())


def load(*names: str) -> None:
    """Imports modules.

    Raises:
        ImportError: If one of them does not fit into a bounded address space; names the setting
            that bounds it. Otherwise whatever the import raised.
    """
    fit()
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            raise
        except (ImportError, MemoryError) as error:
            if bound_mb() is None:
                raise
            raise ImportError(_lack_of(f"`{name}` cannot be loaded")) from error


@contextmanager
def named() -> Generator[None, None, None]:
    """Has the error say what bounds the address space, where that is exhausted.

    Whatever is imported late may be what does not fit, such as pandas, by PyArrow's first array.

    Raises:
        MemoryError: With the name of the setting, in the place of one without it.
    """
    try:
        yield
    except MemoryError as error:
        if bound_mb() is None:
            raise
        raise MemoryError(_lack_of("the task lacks memory")) from error


def start(thread: threading.Thread, *, runs_foreign_code: bool = True) -> threading.Thread:
    """Starts `thread` and returns it.

    Args:
        thread: One that was not started.
        runs_foreign_code: Whether it needs a stack of the usual size.

    Raises:
        AsyncIOError: If the system refuses it; names the setting that is in the way.
    """
    is_small = not runs_foreign_code and bound_mb() is not None
    # Of the whole process, but for the moment of the start, and in bounded workers only.
    before = threading.stack_size(_STACK_BYTES) if is_small else 0
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        message = _lack_of(f"no thread could be started for `{thread.name}`")
        raise AsyncIOError(message, ErrorKind.THREAD_NOT_STARTED) from error
    finally:
        if is_small:
            threading.stack_size(before)
    return thread


def _lack_of(what: str) -> str:
    """Says which bound is in the way of `what`, and what raises it."""
    bound = bound_mb()
    if bound is None:
        return f"{what}: the system permits no more of them; raise its limit (ulimit -u, or pids)"
    mapped = _mapped_mb()
    has = "" if mapped is None else f", and {mapped} MB are mapped"
    return (
        f"{what}: the address space of this Python worker is bounded to {bound} MB{has};"
        " raise spark.executor.pyspark.memory, of which each core of the executor has a share:"
        " 400 MB a core let a function begin"
    )


def _mapped_mb() -> int | None:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


load("pyarrow", "pyarrow.compute", "sparkawait._core")
