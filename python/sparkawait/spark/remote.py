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
_MOST_SESSIONS = 100
_LENGTH = re.compile(rb"[$*:](-?\d+)\r\n")

_OWNERS: dict[str, RemoteOwner] = {}
_LOCK = threading.Lock()


def remote_owner_of(session: Any) -> RemoteOwner | None:
    """Returns the owner of a session's calls, if somebody has asked for it."""
    return _OWNERS.get(session.session_id)


def remote_owner(session: Any, server: str | None) -> RemoteOwner:
    """Returns the owner of the calls of a session, which the first one makes.

    Args:
        session: The session, of Spark Connect.
        server: The Redis where its tasks report, if there is one.

    Raises:
        ConfigurationError: If that is no address or does not answer, or tasks report elsewhere.
    """
    if server is not None:
        check_server(server, " of `job`")
    with _LOCK:
        found = _OWNERS.get(session.session_id)
        if found is None:
            if len(_OWNERS) >= _MOST_SESSIONS:
                _OWNERS.pop(next(iter(_OWNERS)))
            found = _OWNERS[session.session_id] = RemoteOwner(session, server)
        elif server is not None and found.reports.address != server:
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
        server: The Redis where its tasks report, if there is one.

    Raises:
        ConfigurationError: If that does not answer.
    """

    def __init__(self, session: Any, server: str | None) -> None:
        """Begins to listen."""
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
        channel = f"sparkawait:reports:{uuid4().hex}"
        self.reports = Reports(None, server, mark=_MARK, channel=channel)
        self._begun: set[str] = set()
        self._lost = False
        self._reading = threading.Lock()
        if server is not None:
            lines = _Subscription(server, channel)
            threading.Thread(
                target=_read_on,
                args=(weakref.ref(self), lines),
                name="sparkawait-reports",
                daemon=True,
            ).start()

    def take(self, report: Report) -> None:
        """Takes a report."""
        with self._taking:
            (self._begun.discard if report["end"] else self._begun.add)(report["task"])
            # Nobody here can end one job of the session.
            super().take({**report, "bounds": {}})

    def lose(self) -> None:
        """Learns that reports may have been lost."""
        self._lost = self._lost or bool(self._begun)

    def sums(self) -> TaskMetrics:
        """Returns the sums; ``at_least``: there may have been more calls."""
        sums = super().sums()
        # A worker that is killed leaves no log.
        is_logged = self.reports.address is None
        return {**sums, "at_least": is_logged or self._lost or bool(self._begun)}

    def catch_up(self) -> None:
        """Takes what tasks have logged, where they report to no server."""
        session: Any = self._session()
        if session is None or self.reports.address is not None:
            return
        if session.conf.get(_LOGGING, "false") != "true":
            warn_once(
                "the calls of this session are not counted: give `job` a Redis as `server=`, or set"
                " %s to true",
                _LOGGING,
            )
            return
        with self._reading:
            logs = session.tvf.python_worker_logs()
            rows = logs.where(logs.logger == LOGGER).select("msg").collect()
            for report in in_errors((row.msg for row in rows), _MARK):
                self.take(report)


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
        try:
            self._replies = self._subscribed()
        except OSError as error:
            msg = f"`server` of `job` does not answer: {error}"
            raise ConfigurationError(msg, ErrorKind.OPTION_INVALID) from error

    def __iter__(self) -> Iterator[str | None]:
        """Yields messages, and nothing where some may have been lost."""
        replies: BinaryIO | None = self._replies
        while True:
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

    def _subscribed(self) -> BinaryIO:
        # The file has the connection, and closes it.
        with connected(self._server, _PATIENCE) as connection:
            name = self._channel.encode()
            connection.sendall(b"*2\r\n$9\r\nSUBSCRIBE\r\n$%d\r\n%s\r\n" % (len(name), name))
            replies = connection.makefile("rb")
            words = _words(replies)
            if words is None or words[0] != b"subscribe":
                replies.close()
                msg = "it does not let anybody subscribe"
                raise OSError(msg)
            connection.settimeout(None)
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


def _take(take: Callable[[Report], None], lose: Callable[[], None], line: str | None) -> None:
    if line is None:
        return lose()
    try:
        return take(read(line))
    except Exception as error:  # noqa: BLE001 - of another version, or nobody's
        return _logger.warning("a report was not understood: %s", type(error).__name__)
