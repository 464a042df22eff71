# SPDX-License-Identifier: Apache-2.0
"""The owner of the calls of a Spark Connect session, whose tasks do not reach this process.

```text
  tasks --PUBLISH--> a Redis --SUBSCRIBE--> RemoteOwner     live, with `server=`
  tasks --log lines--> Spark --python_worker_logs()--^      when tasks have ended, without
```

Used from any thread; what a Redis brings comes from a thread of its own.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from sparkawait._checks import warn_once
from sparkawait._worker.metrics import TaskMetrics
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.rate_limit import check_server
from sparkawait.secrets import Secret
from sparkawait.spark.messages import Subscription
from sparkawait.spark.reports import LOGGER, Report, Reports, in_errors
from sparkawait.spark.screens import STOPPED
from sparkawait.spark.tally import Tally

__all__ = ["RemoteOwner", "remote_owner", "remote_owner_of"]

_logger = logging.getLogger("sparkawait")
_LOGGING = "spark.sql.pyspark.worker.logging.enabled"
_MARK = "remote"
_STALE = 2.0
"""Seconds after which logs are read again for who looks at limits."""

_OWNERS: weakref.WeakKeyDictionary[Any, RemoteOwner] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def remote_owner_of(session: Any) -> RemoteOwner | None:
    """Returns the owner of a session's calls, if somebody has asked for it."""
    return _OWNERS.get(session)


def remote_owner(session: Any, server: str | Secret | None) -> RemoteOwner:
    """Returns the owner of the calls of a session, which the first one who asks makes.

    Args:
        session: The session, of Spark Connect.
        server: The Redis where its tasks report, if there is one.

    Raises:
        ConfigurationError: If that does not answer or is something else, or tasks report elsewhere.
    """
    if server is not None and not isinstance(server, Secret):
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


class FarSpark:
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
        super().__init__(FarSpark(session), is_on_one_host=False)
        self._session = weakref.ref(session)
        self.reports = Reports(None, None, mark=_MARK)
        self._lost = False
        self._reading = threading.Lock()
        self._read = -_STALE

    def listen(self, server: str | Secret) -> None:
        """Has the tasks of calls that are written from now on report at a Redis.

        Raises:
            ConfigurationError: If it does not answer.
        """
        channel = f"sparkawait:reports:{uuid4().hex}"
        messages = Subscription(server, channel)
        self.reports = Reports(None, server, mark=_MARK, channel=channel)
        # Its thread waits for what may never come.
        weakref.finalize(self, messages.close)
        self.listen_to(messages, self._hear)

    def _hear(self, text: str | None) -> None:
        """Takes a message, or nothing where some may have been lost."""
        if text is None:
            self._lost = True
        else:
            self.take_text(text)

    def take(self, report: Report) -> bool:
        """Takes a report; returns whether it says something new of a task that had not ended."""
        # Nobody here can end one job of the session.
        return super().take({**report, "bounds": {}})

    def lose(self, report: Report) -> None:
        """Takes the last report of a task, which has not told all."""
        self._lost = True
        super().lose(report)

    def sums(self) -> TaskMetrics:
        """Returns the sums; ``at_least``: there may have been more calls."""
        self._read_logs()
        sums = super().sums()
        # A worker that is killed leaves no log.
        is_logged = self.reports.address is None
        return {**sums, "at_least": is_logged or self._lost or bool(self._running)}

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
