# SPDX-License-Identifier: Apache-2.0
"""Where progress is shown: a terminal, a notebook or the log; and what Spark says of it.

Used by the thread that watches the actions of an application.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pyspark.sql import SparkSession

__all__ = [
    "PAUSE_UNSEEN",
    "STOPPED",
    "AskedOfSpark",
    "Log",
    "Notebook",
    "Screen",
    "Spark",
    "Terminal",
    "screen_of",
]

_logger = logging.getLogger("sparkawait")
_VARIABLE = "SPARKAWAIT_PROGRESS"
_SHOWN_BY_SPARK = "spark.ui.showConsoleProgress"
_PAUSE = 0.4
"""Seconds between two looks where people look on. Spark shows its bar half a second after."""
PAUSE_UNSEEN = 2.0
"""The same where nobody does."""
_LOG_SECONDS = 10.0
_EVENTS_MILLISECONDS = 10_000
"""How long it is waited for Spark to note what has begun."""


STOPPED = "by sparkawait's job.stop()"
"""Why a job was cancelled."""


class AskedOfSpark(Protocol):
    """What there is to ask of an application; any question may find that it is gone."""

    def tasks_of(self, stages: set[int]) -> tuple[int, int] | None:
        """Returns how many tasks of some stages have ended, and how many there are."""
        ...

    def has_ended(self, action: str, stages: set[int]) -> bool:
        """Tells whether an action has ended."""
        ...

    def newest(self) -> int:
        """Returns the number of the newest execution of Spark SQL; -1 if there was none."""
        ...

    def cancel(self, stages: set[int], reason: str = STOPPED) -> int:
        """Cancels the jobs that run some of these stages; returns how many there were."""
        ...

    def hide_bar(self) -> None:
        """Has Spark's own bar wait for half a second more."""
        ...

    def says_no(self) -> bool:
        """Tells whether the user wants no progress of Spark either."""
        ...


class Spark:
    """What Spark knows of an application on its driver.

    Args:
        spark: A session of it.
    """

    def __init__(self, spark: SparkSession) -> None:
        """Asks nothing yet."""
        self._session, self._context = weakref.ref(spark), weakref.ref(spark.sparkContext)

    def tasks_of(self, stages: set[int]) -> tuple[int, int] | None:
        """Returns how many tasks of some stages have ended, and how many there are."""
        context: Any = self._context()
        if context is None:
            return None
        tracker = context.statusTracker()
        found = [it for stage in stages if (it := tracker.getStageInfo(stage)) is not None]
        if not found:
            return None
        return sum(it.numCompletedTasks for it in found), sum(it.numTasks for it in found)

    def has_ended(self, action: str, stages: set[int]) -> bool:
        """Tells whether an action has ended."""
        context: Any = self._context()
        session: Any = self._session()
        if context is None or context._jsc is None:  # noqa: SLF001 - it was stopped
            return True
        if action and session is not None:
            execution = session._jsparkSession.sharedState().statusStore().execution(int(action))  # noqa: SLF001
            if execution.isDefined():
                return bool(execution.get().completionTime().isDefined())
        return not stages & set(context.statusTracker().getActiveStageIds())

    def newest(self) -> int:
        """Returns the number of the newest execution of Spark SQL; -1 if there was none."""
        context: Any = self._context()
        session: Any = self._session()
        if context is None or context._jsc is None or session is None:  # noqa: SLF001
            return -1
        context._jsc.sc().listenerBus().waitUntilEmpty(_EVENTS_MILLISECONDS)  # noqa: SLF001
        store = session._jsparkSession.sharedState().statusStore()  # noqa: SLF001
        count = store.executionsCount()
        return store.executionsList(count - 1, 1).head().executionId() if count else -1

    def cancel(self, stages: set[int], reason: str = STOPPED) -> int:
        """Cancels the jobs that run some of these stages; returns how many there were."""
        context: Any = self._context()
        if context is None:
            return 0
        tracker, count = context.statusTracker(), 0
        for job_id in tracker.getActiveJobsIds():
            info = tracker.getJobInfo(job_id)
            if info is not None and stages & set(info.stageIds):
                context._jsc.sc().cancelJob(job_id, reason)  # noqa: SLF001
                count += 1
        return count

    def hide_bar(self) -> None:
        """Has Spark's own bar wait for half a second more."""
        context: Any = self._context()
        if context is not None and context._jsc is not None:  # noqa: SLF001
            bar = context._jsc.sc().progressBar()  # noqa: SLF001
            if bar.isDefined():
                bar.get().finishAll()

    def says_no(self) -> bool:
        """Tells whether the user wants no progress of Spark either."""
        context: Any = self._context()
        return context is not None and context.getConf().get(_SHOWN_BY_SPARK) == "false"


class Screen(Protocol):
    """Where progress is shown."""

    pause: float

    def show(self, lines: Sequence[str]) -> None:
        """Shows what runs."""
        ...

    def end(self, line: str) -> None:
        """Shows what an action came to."""
        ...


class Terminal:
    """The last line of a terminal, in place of Spark's bar."""

    pause = _PAUSE

    def __init__(self, spark: AskedOfSpark) -> None:
        """Has shown nothing."""
        self._spark = spark
        self._is_shown = False
        self._was_shown = False

    def show(self, lines: Sequence[str]) -> None:
        """Shows the first action, and how many others there are."""
        self._spark.hide_bar()
        others = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        text = (lines[0] + others)[: max(width - 1, 20)] if lines else ""
        if text or self._is_shown:
            sys.stderr.write(f"\r\033[K{text}")
            sys.stderr.flush()
        self._is_shown = bool(text)
        self._was_shown = self._was_shown or self._is_shown

    def end(self, line: str) -> None:
        """Writes a line that stays, unless the action was so short that it had none."""
        if not self._was_shown:
            _logger.info("%s", line)
            return
        # Python has asked for the next command behind the line that is overwritten.
        prompt = "" if "IPython" in sys.modules else str(getattr(sys, "ps1", ""))
        sys.stderr.write(f"\r\033[K{line}\n{prompt}")
        sys.stderr.flush()
        self._is_shown = self._was_shown = False


class Notebook:
    """One display of a cell, which is written again and again."""

    pause = _PAUSE

    def __init__(self, display: Callable[..., Any]) -> None:
        """Takes IPython's function."""
        self._display = display
        self._handle: Any = None

    def show(self, lines: Sequence[str]) -> None:
        """Shows all actions."""
        if lines:
            self._write("\n".join(lines))

    def end(self, line: str) -> None:
        """Leaves a line, and begins another display next time."""
        self._write(line)
        self._handle = None

    def _write(self, text: str) -> None:
        data = {"text/plain": text}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


class Log:
    """The log, now and then."""

    def __init__(self, pause: float) -> None:
        """Has written nothing."""
        self.pause = pause
        self._next = 0.0

    def show(self, lines: Sequence[str]) -> None:
        """Writes what runs, each ten seconds."""
        now = time.monotonic()
        if lines and now >= self._next:
            self._next = now + _LOG_SECONDS
            for line in lines:
                _logger.info("%s", line)

    def end(self, line: str) -> None:
        """Writes a line."""
        _logger.info("%s", line.removeprefix("sparkawait: "))


def screen_of(spark: AskedOfSpark) -> Screen:
    """Returns where progress is shown now."""
    said = os.environ.get(_VARIABLE, "")
    log = Log(PAUSE_UNSEEN)
    try:
        is_off = said == "0" or (said != "1" and spark.says_no())
    except Exception:  # noqa: BLE001 - an interrupt closes its connections, or it is gone
        is_off = True
    if is_off:
        return log
    if _kernel() is not None:
        from IPython.display import display  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

        return Notebook(display)
    return Terminal(spark) if sys.stderr is not None and sys.stderr.isatty() else log


def _kernel() -> Any:
    """Returns the kernel of the notebook that this process runs, if it does."""
    module = sys.modules.get("IPython")
    return None if module is None else getattr(module.get_ipython(), "kernel", None)
