# SPDX-License-Identifier: Apache-2.0
"""The owner of the calls of a Spark Connect session, whose tasks do not reach this process.

```text
  tasks --PUBLISH--> a Redis --SUBSCRIBE--> RemoteOwner     live, with `server=`
  tasks --log lines--> Spark --python_worker_logs()--^      when tasks have ended, without
```

Used from any thread; what a Redis brings comes from a thread of its own.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO
from uuid import uuid4

from sparkawait._checks import warn_once
from sparkawait._worker.metrics import TaskMetrics
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.rate_limit import check_server
from sparkawait.spark.progress import Actions
from sparkawait.spark.reports import LOGGER, Report, Reports, connected, in_errors, read
from sparkawait.spark.screens import STOPPED, Spark
from sparkawait.spark.tally import Tally

__all__ = ["RemoteOwner", "remote_owner", "remote_owner_of"]

_logger = logging.getLogger("sparkawait")
_LOGGING = "spark.sql.pyspark.worker.logging.enabled"
_MARK = "remote"
_PATIENCE = 5.0
_PAUSE = 1.0
"""Seconds until a Redis that has gone is asked again."""
_STALE = 2.0
"""Seconds after which logs are read again for who looks at limits."""
_LENGTH = re.compile(rb"[$*:](-?\d+)\r\n")

_OWNERS: weakref.WeakKeyDictionary[Any, RemoteOwner] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def remote_owner_of(session: Any) -> RemoteOwner | None:
    """Returns the owner of a session's calls, if somebody has asked for it."""
    return _OWNERS.get(session)


def remote_owner(session: Any, server: str | None) -> RemoteOwner:
    """Returns the owner of the calls of a session, which the first one who asks makes.

    Args:
        session: The session, of Spark Connect.
        server: The Redis where its tasks report, if there is one.

    Raises:
        ConfigurationError: If that does not answer or is something else, or tasks report elsewhere.
    """
    if server is not None:
        check_server(server, " of `job`")
    with _LOCK:
        found = _OWNERS.get(session)
        if found is None:
            found = _OWNERS[session] = RemoteOwner(session)
        if server is not None and found.reports.address is None:
            found.listen(server)
        if server is not None and found.reports.address != server:
            msg = "`server` of `job` is another one than before: a session has one"
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
        return found


class FarSpark(Spark):
    """What a client of Spark Connect knows of its tasks: only how to end all actions."""

    def __init__(self, session: Any) -> None:
        """Asks nothing."""
        self._remote = weakref.ref(session)

    def tasks_of(self, stages: set[int]) -> tuple[int, int] | None:  # noqa: ARG002
        """Returns nothing."""
        return None

    def has_ended(self, action: str, stages: set[int]) -> bool:
        """Does not know."""
        raise LookupError(action, stages)

    def newest(self) -> int:
        """Returns that it knows of none."""
        return -1

    def cancel(self, stages: set[int], reason: str = STOPPED) -> int:  # noqa: ARG002
        """Interrupts all actions of the session; returns how many there were."""
        session = self._remote()
        return 0 if session is None else len(session.interruptAll())

    def hide_bar(self) -> None:
        """Leaves the bar of the client, which it draws itself."""

    def says_no(self) -> bool:
        """Does not."""
        return False


class RemoteOwner(Tally):
    """Takes the reports of the tasks of a session.

    Args:
        session: The session, of Spark Connect.
    """

    def __init__(self, session: Any) -> None:
        """Listens nowhere yet."""
        super().__init__()
        self._session = weakref.ref(session)
        take, lost = weakref.WeakMethod(self.take), weakref.WeakMethod(self.lose)

        def taken(report: Report) -> None:
            # It says no more, and has not told all.
            to_owner, lose = take(), lost()
            if to_owner is not None and lose is not None:
                lose()
                to_owner(report)

        self.actions = Actions(FarSpark(session), taken, is_on_one_host=False)
        self.reports = Reports(None, None, mark=_MARK)
        self._begun: set[str] = set()
        self._lost = False
        self._reading = threading.Lock()
        self._read = -_STALE

    def listen(self, server: str) -> None:
        """Has the tasks of calls that are written from now on report at a Redis.

        Raises:
            ConfigurationError: If it does not answer.
        """
        channel = f"sparkawait:reports:{uuid4().hex}"
        lines = _Subscription(server, channel)
        self.reports = Reports(None, server, mark=_MARK, channel=channel)
        # Its thread waits for what may never come.
        weakref.finalize(self, lines.close)
        threading.Thread(
            target=_read_on,
            args=(weakref.ref(self), lines),
            name="sparkawait-reports",
            daemon=True,
        ).start()

    def take(self, report: Report) -> bool:
        """Takes a report; returns whether it is of a task that had not ended."""
        with self._taking:
            # Nobody here can end one job of the session.
            is_new = super().take({**report, "bounds": {}})
            if is_new:
                (self._begun.discard if report["end"] else self._begun.add)(report["task"])
            return is_new

    def lose(self) -> None:
        """Learns that reports may have been lost."""
        self._lost = True

    def sums(self) -> TaskMetrics:
        """Returns the sums; ``at_least``: there may have been more calls."""
        self._read_logs()
        sums = super().sums()
        # A worker that is killed leaves no log.
        is_logged = self.reports.address is None
        return {**sums, "at_least": is_logged or self._lost or bool(self._begun)}

    def catch_up(self) -> None:
        """Takes what tasks have logged, unless that was looked at just now: it is a query."""
        if time.monotonic() - self._read > _STALE:
            self._read_logs()

    def _read_logs(self) -> None:
        session: Any = self._session()
        if session is None:
            return
        with self._reading:
            try:
                reports = list(in_errors(_logged(session), _MARK))
            except Exception as error:  # noqa: BLE001 - it has ended, say; what is known stays
                _logger.warning("what workers have logged cannot be read: %s", type(error).__name__)
                return
            finally:
                self._read = time.monotonic()
            for report in reports:
                self.take(report)
        if self.reports.address is None and not _keeps_logs(session):
            warn_once(
                "the calls of this session are not counted: give `job` a Redis as `server=`%s",
                f", or set {_LOGGING} to true" if _can_keep_logs(session) else "",
            )


def _can_keep_logs(session: Any) -> bool:
    return hasattr(getattr(session, "tvf", None), "python_worker_logs")  # since Spark 4.1


def _keeps_logs(session: Any) -> bool:
    return _can_keep_logs(session) and session.conf.get(_LOGGING, "false") == "true"


def _logged(session: Any) -> Iterator[str]:
    """Yields what workers have logged of their tasks, if the session keeps that."""
    if not _keeps_logs(session):
        return
    logs = session.tvf.python_worker_logs()
    for row in logs.where(logs.logger == LOGGER).select("msg").collect():
        yield row.msg


class _Subscription:
    """The messages of a channel, as long as its Redis is there.

    Args:
        server: Its address.
        channel: The channel.

    Raises:
        ConfigurationError: If it does not answer.
    """

    def __init__(self, server: str, channel: str) -> None:
        self._server, self._channel = server, channel
        self._connection: socket.socket | None = None
        self._is_closed = False
        try:
            self._replies = self._subscribed()
        except OSError as error:
            msg = f"`server` of `job` does not answer: {error}"
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID) from error

    def __iter__(self) -> Iterator[str | None]:
        """Yields messages, and nothing where some may have been lost."""
        replies: BinaryIO | None = self._replies
        while not self._is_closed:
            if replies is not None:
                with contextlib.suppress(OSError), replies:
                    while (words := _words(replies)) is not None:
                        if words[0] == b"message":
                            yield words[2].decode()
            yield None
            time.sleep(_PAUSE)
            replies = None
            with contextlib.suppress(OSError):
                replies = self._subscribed()

    def close(self) -> None:
        """Ends it, also for who waits for a message."""
        self._is_closed = True
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def _subscribed(self) -> BinaryIO:
        connection = connected(self._server, _PATIENCE)
        try:
            name = self._channel.encode()
            connection.sendall(b"*2\r\n$9\r\nSUBSCRIBE\r\n$%d\r\n%s\r\n" % (len(name), name))
            replies = connection.makefile("rb")
            words = _words(replies)
            if words is None or words[0] != b"subscribe":
                msg = "it wants a password, or does not let anybody subscribe"
                raise OSError(msg)  # noqa: TRY301
        except BaseException:
            connection.close()
            raise
        connection.settimeout(None)
        # Else a host that has gone without a word would be waited for.
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._connection = connection
        return replies


def _words(replies: BinaryIO) -> list[bytes] | None:
    """Reads a list of texts; ``None`` at the end, or for anything else."""
    count, words = _length(replies), list[bytes]()
    for _ in range(count):
        length = _length(replies)
        # A number stands for how many channels there are.
        words.append(replies.read(length + 2)[:-2] if length >= 0 else b"")
        if length >= 0 and len(words[-1]) < length:
            return None
    return words or None


def _length(replies: BinaryIO) -> int:
    line = replies.readline(64)
    found = _LENGTH.fullmatch(line)
    return -1 if found is None or line[:1] == b":" else int(found[1])


def _read_on(owner: weakref.ref[RemoteOwner], lines: _Subscription) -> None:
    """Has an owner take the reports that come, as long as it lives."""
    for line in lines:
        found = owner()
        if found is None:
            return
        _take(found.take, found.lose, line)
        del found


def _take(take: Callable[[Report], object], lose: Callable[[], None], line: str | None) -> None:
    if line is None:
        lose()
        return
    try:
        take(read(line))
    except Exception as error:  # noqa: BLE001 - of another version, or nobody's
        _logger.warning("a report was not understood: %s", type(error).__name__)
