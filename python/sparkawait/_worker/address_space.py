# SPDX-License-Identifier: Apache-2.0
"""What a bound on the address space of the process asks for, as Spark sets it in its workers.

``spark.executor.pyspark.memory`` bounds what is mapped, not what is used (RLIMIT_AS). Allocators
that map much more than they use, so that they need to ask less often, are told not to, and what
cannot be had is said with the name of the setting. The first module to be imported,
it loads the libraries that all others need. Spark sets the bound in each worker after the fork.
State, by process: whether its allocators were told, and the address space reserved for errors.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib
import mmap
import os
import resource
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from sparkawait.exceptions import AsyncIOError, ErrorKind, add_note

_ARENA_MAX = -8
"""M_ARENA_MAX of glibc's mallopt: each thread maps 64 MB for itself otherwise."""
_STACK_BYTES = 256 * 1024
"""Enough for a thread that runs a loop of our own, instead of the 8 MB that are usual."""
_USUAL_STACK_BYTES = 8 << 20
"""What a thread has where the system names no number."""
_THREAD_BYTES = 2 << 20
"""What a thread may map before it has told that it runs, besides its stack."""
_RESERVE_BYTES = 4 << 20
"""What an error needs to be made, formatted with its lines of source, and sent."""
_ROOM_BYTES = 16 << 20
"""Where less than this is left, whatever fails may fail for it."""
_LIBRARY_BYTES = 128 << 20
"""More than the largest library that is loaded maps."""
_told: set[int] = set()
_reserves: dict[int, mmap.mmap] = {}


def bound_mb() -> int | None:
    """Returns the megabytes that the process may map; ``None`` if there is no bound."""
    bound, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if bound == resource.RLIM_INFINITY else bound >> 20


def fit() -> None:
    """Has the allocators of this process map little, if its address space is bounded.

    Call it before you import PyArrow, and again before its first array in a worker that was forked
    with it. Does nothing without a bound.

    Raises:
        MemoryError: If so little is left that not even the error could be told later.
    """
    if bound_mb() is None:
        return
    # The pools that PyArrow prefers map up to a gigabyte with the first array.
    if "pyarrow" not in sys.modules:
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if os.getpid() not in _reserves:
        reserve = _mapping(_RESERVE_BYTES)
        if reserve is None:
            raise MemoryError(_lack_of("a function cannot begin"))
        _reserves[os.getpid()] = reserve
    if os.getpid() in _told:
        return
    _told.add(os.getpid())
    # Other C libraries than glibc have no arenas.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
    if "pyarrow" in sys.modules:
        pyarrow = sys.modules["pyarrow"]
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())


def load(*names: str) -> None:
    """Imports modules.

    Raises:
        MemoryError: If one of them does not fit into a bounded address space; names the setting
            that bounds it. Otherwise whatever the import raised.
    """
    fit()
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            raise
        except Exception as error:
            if bound_mb() is None or _has_room(_LIBRARY_BYTES) or not _is_of_exhaustion(error):
                raise
            raise MemoryError(_lack_of(f"`{name}` cannot be loaded")) from error
    if bound_mb() is not None and not _has_room(_ROOM_BYTES):
        raise MemoryError(_lack_of("a function cannot begin"))


@contextmanager
def fitted() -> Generator[None, None, None]:
    """Does what `fit` does, and has errors of the body say what bounds the address space.

    Whatever is imported late may be what does not fit, such as pandas, by PyArrow's first array.
    What was reserved is given back with the first error: Spark 3.5 to 4.3 wait for ever for a
    worker that has no memory left to write its error down.

    Raises:
        MemoryError: With the name of the setting, where memory is exhausted, instead of what
            libraries raise. Other errors have it in a note.
    """
    if bound_mb() is None:
        yield
        return
    fit()
    try:
        yield
    except Exception as error:
        is_little = not _has_room(_ROOM_BYTES)
        _give_back()
        if isinstance(error, MemoryError) or (is_little and _is_of_exhaustion(error)):
            raise MemoryError(_lack_of("the task lacks memory")) from error
        if is_little and getattr(error, "kind", None) != ErrorKind.THREAD_NOT_STARTED:
            add_note(error, _lack_of("little memory is left, which may be why"))
        raise


def start(thread: threading.Thread, *, runs_foreign_code: bool = True) -> threading.Thread:
    """Starts `thread` and returns it.

    Args:
        thread: One that was not started.
        runs_foreign_code: Whether it needs a stack of the usual size.

    Raises:
        AsyncIOError: If the system refuses it; names the setting that is in the way.
    """
    is_bounded = bound_mb() is not None
    is_small = not runs_foreign_code and is_bounded
    stack = _STACK_BYTES if is_small else _usual_stack_bytes()
    # Python waits until the thread runs, and for ever if it lacks the memory to say so.
    if is_bounded and not _has_room(stack + _THREAD_BYTES):
        raise _not_started(thread)
    # Of the whole process, for the moment of the start only, and in bounded workers only.
    before = threading.stack_size(_STACK_BYTES) if is_small else 0
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise _not_started(thread) from error
    finally:
        if is_small:
            threading.stack_size(before)
    return thread


def _is_of_exhaustion(error: Exception) -> bool:
    """Tells whether memory may be missing: a SystemError is where somebody forgot to say so."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError | ImportError | SystemError)


def _not_started(thread: threading.Thread) -> AsyncIOError:
    message = _lack_of(f"no thread could be started for `{thread.name}`")
    return AsyncIOError(message, ErrorKind.THREAD_NOT_STARTED)


def _usual_stack_bytes() -> int:
    bound, _ = resource.getrlimit(resource.RLIMIT_STACK)
    is_unknown = bound == resource.RLIM_INFINITY
    return threading.stack_size() or (_USUAL_STACK_BYTES if is_unknown else bound)


def _mapping(size: int) -> mmap.mmap | None:
    """Returns so many bytes of address space, which use no memory; ``None`` if there are none."""
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, MemoryError):
        return None


def _has_room(size: int) -> bool:
    mapping = _mapping(size)
    if mapping is None:
        return False
    mapping.close()
    return True


def _give_back() -> None:
    """Frees what was reserved for errors, until the next `fit`."""
    reserve = _reserves.pop(os.getpid(), None)
    if reserve is not None:
        reserve.close()


def _lack_of(what: str) -> str:
    """Says which bound is in the way of `what`, and what raises it, with what was reserved."""
    has = _mapped()
    _give_back()
    bound = bound_mb()
    if bound is None:
        return f"{what}: the system permits no more of them; raise its limit (ulimit -u, or pids)"
    return (
        f"{what}: the address space of this Python worker is bounded to {bound} MB{has};"
        " raise spark.executor.pyspark.memory, which the cores of the executor share:"
        " 400 MB a core let a function begin"
    )


def _mapped() -> str:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, MemoryError):
        return ""
    return f", and {pages * os.sysconf('SC_PAGE_SIZE') >> 20} MB are mapped"


load("pyarrow", "pyarrow.compute", "sparkawait._core")


# -- Python's garbage collector, made to run less often while calls are in flight.
#
# Each call in flight holds about ten objects that the collector traverses. With its default
# threshold it runs after every 700 of them; with 10,000 calls in flight it then takes 40 % of the
# time and finds nothing, since finished calls are freed by their reference counts. Any thread may
# use it.

THRESHOLD = 10_000
"""New objects that make the collector run, at least. Fewer shows at 1,000 calls."""
OBJECTS_PER_CALL = 20
"""The same for each call that may be in flight: twice what one holds, so that calls which end and
start together do not make it run. Garbage then takes about twice the space of the calls. At 10,000
calls a quarter of it makes the collector take 0.6 to 2.3 us a row; half of it is enough there."""
MOST = 1_000_000
"""The most that the threshold is raised to, in objects: some 100 MB of garbage."""


class _Threshold:
    """The threshold of the youngest generation, shared by all tasks of the process.

    Leaves a collector alone that is switched off, runs less often already, or was set by somebody
    else meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._calls = 0
        """Of all users together."""
        self._before = 0
        """What it was before the first user."""
        self._own = 0
        """What it was set to last."""

    @contextmanager
    def raised(self, calls: int) -> Generator[None, None, None]:
        """Raises the threshold of the youngest generation while at least one user is inside.

        Args:
            calls: How many calls of Python functions the user may have in flight.
        """
        with self._lock:
            if self._users == 0:
                self._before = self._own = gc.get_threshold()[0]
            self._users += 1
            self._calls += calls
            self._set(max(self._before, min(MOST, max(THRESHOLD, OBJECTS_PER_CALL * self._calls))))
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._calls -= calls
                if self._users == 0:
                    self._set(self._before)

    def _set(self, wanted: int) -> None:
        youngest, *older = gc.get_threshold()
        if self._before > 0 and youngest == self._own:
            gc.set_threshold(wanted, *older)
            self._own = wanted


collecting_less_often = _Threshold().raised
"""One for the process, as the collector is one."""
