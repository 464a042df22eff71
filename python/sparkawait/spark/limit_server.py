# SPDX-License-Identifier: Apache-2.0
"""The server of a job's limits, in this process, which is the driver's.

It starts with the first limit of the application that more than one host shares, and ends with the
process or when another application begins. Any thread may ask for it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
import weakref
from typing import TYPE_CHECKING, NamedTuple, NoReturn
from urllib.parse import quote

import pyspark

from sparkawait._checks import warn_once
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.spark.session import is_connect

if TYPE_CHECKING:
    from sparkawait._core import LimitServer
    from sparkawait.rate_limit import Terms
    from sparkawait.spark.session import Session

__all__ = ["RunningServer", "limit_now", "limit_server", "server_here"]

_PORT = "spark.sparkawait.port"
_LONGEST_PARENT = 70
"""Bytes; the path of a socket has at most 104 of them on macOS, and 108 on Linux."""

_lock = threading.Lock()
_running: dict[str, RunningServer] = {}
"""The server of the application, by the name of the application."""


class _Folder:
    """A folder that nobody else can open; it is removed with this, by the process that made it."""

    def __init__(self, path: str) -> None:
        self.path = path
        # A process that was forked off has the same, and may exit first.
        weakref.finalize(self, _remove, path, os.getpid())


class RunningServer(NamedTuple):
    """A server, its address with the secret, and the folder of its socket, if it has one."""

    server: LimitServer
    address: str
    folder: _Folder | None = None


def limit_server(session: Session, *, is_local: bool = False) -> str | None:
    """Returns where the tasks of the application ask for its limits, with the secret.

    ``None``: there is no server, since this is not the driver's process, or no port can be opened.

    Args:
        session: The session of the application.
        is_local: All tasks are on this host, so no port opens.

    Raises:
        ConfigurationError: If the port that was chosen cannot be used, or there is no folder for a
            socket.
    """
    found = server_here(session, is_local=is_local)
    return None if found is None else found.address


def server_here(
    session: Session, *, is_local: bool = False, starts: bool = True
) -> RunningServer | None:
    """Returns the server of the application, as `limit_server` does.

    Args:
        session: The session of the application.
        is_local: All tasks are on this host, so no port opens.
        starts: Whether it is started if it does not run.

    Raises:
        ConfigurationError: If the port that was chosen cannot be used, or there is no folder for a
            socket.
    """
    if not _is_driver_here(session):
        return None
    with _lock:
        found = _running.get(session.application)
        if found is None:
            if not starts:
                return None
            started = _start_here() if is_local else _start(session)
            if started is None:
                return None
            # Those of an application that has ended have nothing to say any more.
            _running.clear()
            found = _running[session.application] = started
        return found


def _is_driver_here(session: Session) -> bool:
    """Tells whether this process is the driver's.

    ``remote("local[n]")`` starts a driver here, and is its client.
    """
    if session.spark is None or not is_connect(session.spark):
        return session.spark is not None
    # Who has no more of PySpark than its client has no such class.
    context = getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)
    return context is not None and context.applicationId == session.application


def limit_now(application: str, terms: Terms, change: Terms | None) -> tuple[int, int, int] | None:
    """Returns what a limit is where tasks ask for it: permits, nanoseconds, burst.

    Args:
        application: Names the page of the host.
        terms: The limit, as tasks have it.
        change: The same with other numbers, to make that of it.

    Raises:
        ConfigurationError: If it is not reached, or is another job's.
    """
    from sparkawait import _core

    return _core.limit_now(application, terms, change)


def _listen(host: str, port: int | None, secret: str) -> LimitServer:
    from sparkawait._core import LimitServer  # not there in a build without Redis

    return LimitServer(host, port, secret)


def _start_here() -> RunningServer:
    folder, secret = _Folder(_new_folder()), secrets.token_hex(32)
    path = f"{folder.path}/limits"
    server = _listen(path, None, secret)
    return RunningServer(server, f"redis+unix://{quote(path)}?pass={secret}", folder)


def _new_folder() -> str:
    """Makes a folder whose path is short enough for one of a socket."""
    reasons: list[str] = []
    for parent in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - the folder is made by mkdtemp
        if len(os.fsencode(parent)) > _LONGEST_PARENT:
            reasons.append(f"`{parent}` is too long")
            continue
        try:
            return tempfile.mkdtemp(prefix="sparkawait-", dir=parent)
        except OSError as error:
            reasons.append(str(error))
    msg = (
        "the limits of the job need a folder for a socket: set TMPDIR to one that can be written,"
        f" with a path of at most {_LONGEST_PARENT} bytes; {'; '.join(reasons)}"
    )
    raise ConfigurationError(msg, ErrorKind.RATE_LIMIT_INVALID)


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _start(session: Session) -> RunningServer | None:
    announced = session.asked("spark.driver.host")
    if announced is None:
        return None
    bound = session.asked("spark.driver.bindAddress") or announced
    said = session.asked(_PORT)
    secret = secrets.token_hex(32)
    try:
        server = _listen(bound.strip("[]"), _checked(said), secret)
    except (OSError, ImportError) as error:
        if said is not None:
            _refuse(f"`{_PORT}` is {said}, and no server can listen there: {error}")
        warn_once(
            "no server for the limits of the job can listen at %s: %s; they are split by the cores"
            " of the executors",
            bound,
            error,
        )
        return None
    host = announced.strip("[]")
    host = f"[{host}]" if ":" in host else host
    return RunningServer(server, f"redis://:{secret}@{host}:{server.port}")


def _checked(port: str | None) -> int:
    most = 65535
    if port is None:
        return 0
    if not port.strip().isdigit() or int(port) > most:
        _refuse(f"`{_PORT}` must be a port, 0 for any that is free, got {port}")
    return int(port)


def _refuse(message: str) -> NoReturn:
    raise ConfigurationError(message, ErrorKind.RATE_LIMIT_INVALID)
