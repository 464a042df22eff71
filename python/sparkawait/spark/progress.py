# SPDX-License-Identifier: Apache-2.0
"""What runs now, and what it came to: a line while an action runs, and one when it has ended.

```text
  terminal    a line in place of Spark's bar, and the summary
  notebook    one display, which ends as the summary
  otherwise   the log: a line each ten seconds, and the summary, at level INFO
```

Reports of tasks say what calls do; Spark is asked how many tasks there are, and whether an action
has ended. A thread looks after both as long as something runs. Micro-batches of streams have their
query's progress instead.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkawait._worker.metrics import TaskMetrics, merge, of_one_task
from sparkawait.spark.interrupts import is_cancelled
from sparkawait.spark.reports import Report
from sparkawait.spark.screens import PAUSE_UNSEEN, STOPPED, AskedOfSpark, Screen, screen_of

__all__ = ["Actions", "Progress"]

_logger = logging.getLogger("sparkawait")
_PAUSE_AT_THE_END = 0.05
"""When all tasks have reported their end, and Spark is about to."""
_WINDOW = 5.0
"""Rates are those of so many seconds."""
_STUCK_SECONDS = 300.0
_KILL_SECONDS = 5.0
"""A task that is killed has two seconds, and its worker some more where cores are few."""
_GONE_SECONDS = 60.0
"""Tasks say something each second: of these nobody will hear, if Spark does not tell either."""
_MOST_KINDS = 3
_MOST_WARNINGS = 50
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Progress:
    """What the calls of one action do.

    Attributes:
        function: The function, or those of a chain with ``>`` between them.
        tasks_done: How many tasks have ended.
        tasks: How many there are; 0 if Spark does not say.
        rows: Rows that have left the calls, with a result, without one, or as failed; each counts
            once.
        rows_per_second: The same of the last five seconds.
        attempts: Calls that have begun.
        in_flight: Calls in flight.
        waiting: Rows that the tasks hold.
        failed: Rows that have failed for good.
        oldest: How long the oldest row has been in its task, in seconds.
        held: The share of the last five seconds in which a limit, a pause or a circuit breaker held
            rows, from 0 to 1.
        permits: What has been taken of each limit, by its name.
        seconds: Since the first task began.
    """

    function: str
    tasks_done: int
    tasks: int
    rows: int
    rows_per_second: float
    attempts: int
    in_flight: int
    waiting: int
    failed: int
    oldest: float
    held: float
    permits: Mapping[str, float]
    seconds: float

    def __str__(self) -> str:
        """Says so in one line."""
        of_all = f"/{self.tasks}" if self.tasks else ""
        parts = [
            f"tasks {self.tasks_done}{of_all}",
            f"{short(self.rows)} rows",
            f"{short(self.rows_per_second)}/s",
            f"{short(self.in_flight)} in flight",
        ]
        if self.held >= 0.01 and self.permits:  # noqa: PLR2004 - per cent
            names = ", ".join(f'"{name}"' for name in self.permits)
            parts.append(f"waits for {names} {self.held:.0%}")
        parts.append(f"{short(self.failed)} failed")
        parts += [
            f"{short(taken)} {name}"
            for name, taken in self.permits.items()
            if taken != self.attempts
        ]
        return f"{self.function}: {', '.join(parts)}"


def short(number: float) -> str:
    """Returns a number as people say it: 480, 12.3k, 41k, 1.20M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit * 0.9995:
            scaled = number / (1e3 if unit == "k" else limit)
            digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2  # noqa: PLR2004
            return f"{scaled:.{digits}f}{unit}"
    return f"{number:.1f}" if 0 < number < 10 and number != int(number) else f"{number:.0f}"  # noqa: PLR2004


class _Share:
    """The rows of a function in an action that have failed, and all that have ended."""

    def __init__(self) -> None:
        self._ended = (0, 0)
        self._running: dict[str, tuple[int, int]] = {}

    def take(self, task: str, counts: TaskMetrics, end: str | None) -> None:
        ended = sum(counts.get(name, 0) for name in ("emitted", "dropped", "failed"))
        self._running[task] = counts.get("failed", 0), ended
        # What a task that has failed was given comes again.
        if end is not None and end != "failed":
            self._ended = self._sum([self._ended, self._running[task]])
        if end is not None:
            del self._running[task]

    def of_all(self) -> tuple[int, int]:
        return self._sum([self._ended, *self._running.values()])

    @staticmethod
    def _sum(all_of: list[tuple[int, int]]) -> tuple[int, int]:
        return sum(failed for failed, _ in all_of), sum(ended for _, ended in all_of)


@dataclass
class _Calls:
    """The tasks of one chain of calls in an action.

    Attributes:
        function: What it calls.
        functions: The names in it.
        stages: The stages that its tasks belong to.
        running: The last report of each task that runs.
        ended: The sums over those that have ended.
        ended_rows: The rows that have left them.
        failed_tasks: How many of them have failed.
        samples: When so many rows had left, and for how long limits had held rows.
        progressed: When a row left last, or a call began.
        held: The tasks in which a limit held rows between their last two reports.
        shares: How many rows of each function have failed for which that may be too many, from how
            many on, and above which share.
        is_split: Whether it was told that a limit is split into more parts than there are tasks.
    """

    function: str
    functions: set[str] = field(default_factory=set[str])
    stages: set[int] = field(default_factory=set[int])
    running: dict[str, Report] = field(default_factory=dict[str, Report])
    ended: TaskMetrics = field(default_factory=dict[str, Any])
    ended_rows: int = 0
    failed_tasks: int = 0
    samples: deque[tuple[float, int, float]] = field(
        default_factory=deque[tuple[float, int, float]]
    )
    progressed: float = 0.0
    held: set[str] = field(default_factory=set[str])
    shares: dict[tuple[str, int, float], _Share] = field(
        default_factory=dict[tuple[str, int, float], _Share]
    )
    is_split: bool = False
    is_stuck: bool = False

    def take(self, report: Report, now: float) -> None:
        task, end = report["task"], report["end"]
        before = self.running.get(task)
        then = 0.0 if before is None else before["totals"].get("held", 0.0)
        (self.held.add if report["totals"].get("held", 0.0) > then else self.held.discard)(task)
        if before is None or before["rows"] != report["rows"]:
            self.progressed, self.is_stuck = now, False
        self.stages.add(report["stage"])
        for name, _, counts in report["calls"]:
            for each, of in counts.get("operators", {name: counts}).items():
                self.functions.add(each)
                if each in report["bounds"]:
                    bound = (each, *report["bounds"][each])
                    self.shares.setdefault(bound, _Share()).take(task, of, end)
        if end is None:
            self.running[task] = report
            return
        self.running.pop(task, None)
        self.held.discard(task)
        self.ended = merge(self.ended, of_one_task(report["totals"]))
        self.ended_rows += report["rows"]
        self.failed_tasks += end == "failed"

    def sums(self) -> TaskMetrics:
        sums = self.ended
        for report in list(self.running.values()):
            sums = merge(sums, of_one_task(report["totals"]))
        return sums

    def rows(self) -> int:
        return self.ended_rows + sum(it["rows"] for it in list(self.running.values()))

    def level(self, name: str) -> float:
        return sum(it["totals"].get(name, 0) for it in self.running.values())

    def progress(self, now: float, begun: float, tasks: tuple[int, int] | None) -> Progress:
        sums = self.sums()
        rows, held = self.rows(), float(sums.get("held", 0.0))
        self.samples.append((now, rows, held))
        while self.samples[0][0] < now - _WINDOW and len(self.samples) > 2:  # noqa: PLR2004
            self.samples.popleft()
        since, rows_then, held_then = self.samples[0]
        seconds = now - since if len(self.samples) > 1 else now - begun
        rows_then, held_then = (rows_then, held_then) if len(self.samples) > 1 else (0, 0.0)
        limits = sums.get("rate_limits", {})
        known_done = sums.get("tasks", 0) - self.failed_tasks - len(self.running)
        done, count = tasks or (known_done, 0)
        ages = [it["totals"].get("oldest_age", 0.0) for it in self.running.values()]
        of_tasks = max(len(self.running), 1)
        return Progress(
            function=self.function,
            tasks_done=done,
            tasks=count,
            rows=rows,
            rows_per_second=(rows - rows_then) / seconds if seconds > 0 else 0.0,
            attempts=sums.get("attempts", 0),
            in_flight=int(self.level("in_flight")),
            waiting=int(self.level("queue_size")),
            failed=sums.get("failed", 0),
            oldest=max(ages, default=0.0),
            held=min(max(held - held_then, 0.0) / (seconds * of_tasks), 1.0) if seconds > 0 else 0,
            permits={name: limit["permits"] for name, limit in limits.items()},
            seconds=now - begun,
        )


def summary(
    function: str, rows: int, sums: Mapping[str, Any], seconds: float, failed_tasks: int
) -> str:
    """Returns what the calls of an action came to, in one line."""
    calls = sums.get("attempts", 0)
    took = f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"  # noqa: PLR2004
    parts = [f"{rows:,} rows in {took}", f"{calls:,} calls"]
    for name, says in (("retries", "retries"), ("hedged", "second calls")):
        if sums.get(name):
            parts.append(f"{sums[name]:,} of them {says}")
    if sums.get("cache_hits"):
        parts.append(f"{sums['cache_hits']:,} rows from the cache")
    if sums.get("dropped"):
        parts.append(f"{sums['dropped']:,} without a result")
    parts.append(f"{sums.get('failed', 0):,} failed{_kinds(sums)}")
    parts += _refused(sums)
    for name, limit in sums.get("rate_limits", {}).items():
        if limit["permits"] != calls:
            taken = limit["permits"]
            parts.append(
                f"{taken:,.2f} {name}" if isinstance(taken, float) else f"{taken:,} {name}"
            )
    if sums.get("held"):
        share = min(sums["held"] / (seconds * max(sums.get("tasks", 1), 1)), 1.0) if seconds else 0
        names = ", ".join(f'"{name}"' for name in sums.get("rate_limits", {})) or "a limit"
        if share >= 0.01:  # noqa: PLR2004 - per cent
            parts.append(f"{names} held rows for {share:.0%} of the time")
    if failed_tasks:
        plural = "s" if failed_tasks > 1 else ""
        parts.append(f"{failed_tasks} task{plural} called in vain")
    return f"sparkawait: {function}: {', '.join(parts)}"


def _refused(sums: Mapping[str, Any]) -> list[str]:
    """Returns what rules have refused where rows leave; the calls have not failed."""
    parts: list[str] = []
    count, again = (int(sums.get(f"function.{it}", 0)) for it in ("refused", "repairs"))
    if count:
        of = "function.refused."
        kinds = {it.removeprefix(of): int(sums[it]) for it in sums if it.startswith(of)}
        parts.append(f"{count:,} refused{_kinds({'failures': kinds})}")
    return [*parts, f"{again:,} asked for once more"] if again else parts


def _kinds(sums: Mapping[str, Any]) -> str:
    kinds = sorted(sums.get("failures", {}).items(), key=lambda it: -it[1])
    if not kinds:
        return ""
    shown = [f"{count:,} {kind}" for kind, count in kinds[:_MOST_KINDS]]
    others = sum(count for _, count in kinds[_MOST_KINDS:])
    return f" ({', '.join([*shown, *([f'{others:,} others'] if others else [])])})"


class _Action:
    """An action of Spark in which calls are made."""

    def __init__(self, execution: str, now: float) -> None:
        self.execution, self.begun = execution, now
        self.calls: dict[str, _Calls] = {}
        self.last = now
        self.ended: float | None = None
        self.tags: list[str] = []
        self._warned: set[str] = set()

    def take(self, report: Report, now: float) -> None:
        self.last, self.tags = now, report["tags"]
        function = " > ".join(name for name, _, _ in report["calls"])
        self.calls.setdefault(function, _Calls(function)).take(report, now)

    def new_warnings(self, report: Report) -> list[str]:
        """Returns what no task has warned of before, whatever numbers are in it."""
        found: list[str] = []
        for text in report["warnings"]:
            alike = _NUMBER.sub("0", text)
            if alike not in self._warned and len(self._warned) < _MOST_WARNINGS:
                self._warned.add(alike)
                found.append(text)
        return found

    @property
    def stages(self) -> set[int]:
        return {stage for calls in self.calls.values() for stage in calls.stages}

    @property
    def running(self) -> list[Report]:
        return [it for calls in self.calls.values() for it in list(calls.running.values())]


class Actions:
    """The actions of an application in which calls are made.

    Args:
        spark: What is known of the application otherwise.
        lost: Takes the last report of a task that has ended without a word.
        is_on_one_host: Whether the standard error of workers is that of the driver, also in a
            notebook.
    """

    def __init__(
        self, spark: AskedOfSpark, lost: Callable[[Report], None], *, is_on_one_host: bool
    ) -> None:
        """Watches nothing yet."""
        self._is_on_one_host = is_on_one_host
        self._spark = spark
        self._lost = lost
        self._changed = threading.Condition()
        self._actions: dict[str, _Action] = {}
        self._is_watched = False
        self._stopped_until = -1

    def take(self, report: Report) -> None:
        """Takes a report of a task that is not of a stream."""
        key = report["action"] or f"stage {report['stage']}"
        now = time.monotonic()
        with self._changed:
            action = self._actions.get(key)
            if action is None:
                action = self._actions[key] = _Action(report["action"], now)
            action.take(report, now)
            warnings = action.new_warnings(report)
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(
                    target=self._watch, name="sparkawait-progress", daemon=True
                ).start()
            elif not action.running or self._is_stopped(action) is not None:
                self._changed.notify()
        if not self._is_on_one_host:
            for text in warnings:
                _logger.warning("a worker: %s", text)

    def progress(self) -> list[Progress]:
        """Returns what runs now."""
        with self._changed:
            running = [
                (action.begun, calls, set(calls.stages))
                for action in self._actions.values()
                for calls in action.calls.values()
                if calls.running
            ]
        # Spark is asked without the lock, which those hold who take reports.
        tasks = [self._tasks_of(stages) for _, _, stages in running]
        with self._changed:
            now = time.monotonic()
            return [
                calls.progress(now, begun, of_stages)
                for (begun, calls, _), of_stages in zip(running, tasks, strict=True)
            ]

    def levels(self, function: str) -> tuple[int, int]:
        """Returns the calls of a function in flight, and the tasks in which limits hold rows."""
        flying = waiting = 0
        with self._changed:
            for action in self._actions.values():
                for calls in action.calls.values():
                    if function not in calls.functions:
                        continue
                    waiting += len(calls.held)
                    for report in calls.running.values():
                        totals = report["totals"]
                        of = totals.get("operators", {}).get(function, totals)
                        flying += of.get("in_flight", 0)
        return flying, waiting

    def stop(self) -> int:
        """Cancels the jobs that make calls now; those that have begun and make none yet, later."""
        with self._changed:
            stages = {stage for action in self._actions.values() for stage in action.stages}
        count = self._spark.cancel(stages)
        newest = self._spark.newest()
        with self._changed:
            self._stopped_until = newest
        return count

    def _is_stopped(self, action: _Action) -> str | None:
        """Returns why an action is to end that was stopped before Spark ran a task of it."""
        if any(map(is_cancelled, action.tags)):
            return "since nobody waits for it"
        is_older = action.execution.isdigit() and int(action.execution) <= self._stopped_until
        return STOPPED if is_older else None

    def _tasks_of(self, stages: set[int]) -> tuple[int, int] | None:
        try:
            return self._spark.tasks_of(stages)
        except Exception:  # noqa: BLE001 - an interrupt closes its connections, or it is gone
            return None

    def _watch(self) -> None:
        screen = screen_of(self._spark)
        while True:
            with self._changed:
                actions = dict(self._actions)
                if not actions:
                    self._is_watched = False
                    return
            for key, action in actions.items():
                if self._is_over(action):
                    self._end(key, action, screen)
            lines = [str(it) for it in self.progress()]
            with contextlib.suppress(Exception):  # a screen that is gone
                screen.show(lines)
            for action in actions.values():
                self._look_at(action)
            with self._changed:
                self._warn()
                is_at_end = any(not it.running for it in self._actions.values())
                self._changed.wait(
                    min(_PAUSE_AT_THE_END, screen.pause) if is_at_end else screen.pause
                )

    def _look_at(self, action: _Action) -> None:
        """Ends an action in which too many rows have failed, and tells of limits that are split."""
        with self._changed:
            stages, reasons = action.stages, list(self._too_many(action))
            stopped = self._is_stopped(action) if action.running else None
            split = [it for it in action.calls.values() if not it.is_split]
        for reason in reasons:
            _logger.error("%s; its job is cancelled", reason)
        if reasons:
            with contextlib.suppress(Exception):  # Spark is gone
                self._spark.cancel(stages, reasons[0])
        if stopped is not None:
            with contextlib.suppress(Exception):
                self._spark.cancel(stages, stopped)
        for calls in split:
            tasks = self._tasks_of(calls.stages)
            with self._changed:
                text = few_tasks(calls.function, calls.sums(), 0 if tasks is None else tasks[1])
                calls.is_split = text is not None
            if text is not None:
                _logger.warning("%s", text)

    def _too_many(self, action: _Action) -> Iterator[str]:
        for calls in action.calls.values():
            for bound, share in calls.shares.items():
                function, least, ratio = bound
                failed, ended = share.of_all()
                if failed < least or failed <= ratio * ended:
                    continue
                # Once: its tasks end soon, or are on their way.
                calls.shares[bound] = _Share()
                yield (
                    f"{failed:,} of {ended:,} rows of `{function}` have failed in all tasks"
                    f" ({100 * failed / ended:.3g} %), which is more than stop_ratio={ratio:g}:"
                    " mend the cause, or allow more"
                )

    def _is_over(self, action: _Action) -> bool:
        """Tells whether an action has ended, and all of its tasks that will ever say so."""
        if action.ended is None and self._has_ended(action):
            action.ended = time.monotonic()
        if action.ended is None:
            return False
        with self._changed:
            is_told = not action.running
        return is_told or time.monotonic() - action.ended > _KILL_SECONDS

    def _has_ended(self, action: _Action) -> bool:
        with self._changed:
            stages = action.stages
        try:
            return self._spark.has_ended(action.execution, stages)
        except Exception:  # noqa: BLE001 - Spark does not answer, and may be gone
            silent = time.monotonic() - action.last
            return silent > (_GONE_SECONDS if action.running else PAUSE_UNSEEN)

    def _end(self, key: str, action: _Action, screen: Screen) -> None:
        # What has said nothing by now will say nothing more.
        with self._changed:
            running = action.running
        for report in running:
            self._lost(report)
        with self._changed:
            self._actions.pop(key, None)
        seconds = time.monotonic() - action.begun
        for calls in action.calls.values():
            line = summary(calls.function, calls.rows(), calls.sums(), seconds, calls.failed_tasks)
            with contextlib.suppress(Exception):
                screen.end(line)

    def _warn(self) -> None:
        now = time.monotonic()
        for action in self._actions.values():
            for calls in action.calls.values():
                is_stuck = calls.running and now - calls.progressed >= _STUCK_SECONDS
                if not is_stuck or calls.is_stuck:
                    continue
                calls.is_stuck = True
                _logger.warning(
                    "%s", stuck(calls.progress(now, action.begun, None), now - calls.progressed)
                )


def few_tasks(function: str, sums: Mapping[str, Any], tasks: int) -> str | None:
    """Returns the warning about a limit that is split into more parts than there are tasks."""
    for name, limit in sums.get("rate_limits", {}).items():
        if 0 < tasks < limit.get("parts", 1):
            parts = limit["parts"]
            return (
                f'the limit "{name}" of `{function}` is split into {parts} parts, one for each'
                f" core, and the stage has {tasks} tasks: no more than {tasks / parts:.0%} of it is"
                f" used; `df.repartition({parts})` uses all of it"
            )
    return None


def stuck(progress: Progress, seconds: float) -> str:
    """Returns the warning about calls that do not go on."""
    held = [
        f"{progress.waiting:,} rows are in the tasks",
        f"the oldest for {progress.oldest:.0f} s",
    ]
    if progress.in_flight:
        held.insert(0, f"{progress.in_flight:,} calls are in flight")
    elif progress.permits:
        held.insert(0, f"no call is in flight; a limit holds them: {', '.join(progress.permits)}")
    return (
        f"no row of `{progress.function}` has left for {seconds / 60:.0f} minutes:"
        f" {', '.join(held)}; `timeout` and `attempt_timeout` bound calls"
    )
