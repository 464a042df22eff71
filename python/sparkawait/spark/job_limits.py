# SPDX-License-Identifier: Apache-2.0
"""The limits of a job, as its owner sees them and changes them while it runs.

```text
  plans of calls --known()--> Limits --looks, sets--> where tasks ask for them: the page of the
                                                      host, the driver's server, or a Redis
```

On the driver, from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn

from sparkawait._checks import shown
from sparkawait._plan.plan import Plan, limits_of
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.rate_limit import Budget, Limit, RateLimit, Sharing, Terms, sharers
from sparkawait.spark.limit_server import limit_now

__all__ = ["Counts", "JobLimit", "JobLimits"]

_MOST = 1_000
"""Limits that are remembered: who makes ever new ones sees the first."""


class Counts(NamedTuple):
    """What the tasks of a function have told.

    Attributes:
        permits: What was taken of its limits, by their labels.
        in_flight: Calls in flight.
        waiting: Its tasks in which limits hold rows.
    """

    permits: Mapping[str, float]
    in_flight: int
    waiting: int


@dataclass(frozen=True)
class JobLimit:
    """A limit of the job, as it is now.

    Attributes:
        name: Its name; of one without, its function and what it was at first.
        limit: What it is: ``"300/min"``, ``"20 in all"``, ``"500 calls"``.
        used: What this job's calls have taken, or what they have cost where that is known.
        in_flight: Calls in flight of the functions that have it.
        waiting: Their tasks in which rows wait for a limit.
        functions: Those functions.
    """

    name: str
    limit: str
    used: float
    in_flight: int
    waiting: int
    functions: tuple[str, ...]

    def __str__(self) -> str:
        """Says so in one line."""
        return (
            f"{self.name}: {self.limit}, {self.used:,.15g} used, {self.in_flight:,} in flight,"
            f" {self.waiting:,} tasks waiting"
        )


class _Known(NamedTuple):
    """A limit as plans of calls have it.

    Attributes:
        limit: What the user wrote.
        terms: Where tasks ask for it.
        sharing: Who has it together.
        application: Names the page of the host.
        labels: What it is called in the metrics of each function.
    """

    limit: Limit
    terms: Terms
    sharing: Sharing
    application: str
    labels: dict[str, str]


class JobLimits(Mapping[str, JobLimit]):
    """The limits of the calls that an application has made, by name.

    ``print(job.limits)`` shows them, a line each. A limit without a name is known by its function
    and what it was at first: ``"ask 500/min"``.
    """

    def __init__(self, counts: Callable[[], Mapping[str, Counts]]) -> None:
        """Knows none.

        Args:
            counts: Returns what tasks have told, by function.
        """
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._set: dict[str, Limit] = {}
        self._counts = counts

    def know(self, plan: Plan) -> None:
        """Learns the limits of a function that is called.

        Raises:
            ConfigurationError: If one has the name of another kind of limit.
        """
        limits = limits_of(plan.options)
        for limit in limits:
            terms = limit.terms(plan.function_name, plan.sharing)
            name = limit.name or f"{plan.function_name} {limit.label}"
            self._check_kind(name, limit, terms)
            application = sharers(plan.sharing.application, limits)
            with self._lock:
                known = self._known.get(name)
                if known is None or known.terms.name != terms.name:
                    if len(self._known) >= _MOST:
                        return
                    known = _Known(limit, terms, plan.sharing, application, {})
                    self._known[name] = known
                    self._set.pop(name, None)
                known.labels[plan.function_name] = limit.label

    def _check_kind(self, name: str, limit: Limit, terms: Terms) -> None:
        with self._lock:
            known = self._known.get(name)
        if known is None or known.terms.kind == terms.kind:
            return
        if known.terms.is_shared and terms.is_shared:
            kinds = [type(it).__name__ for it in (known.limit, limit)]
            _refuse(
                f"the limit {name!r} is a {kinds[0]} of `{next(iter(known.labels))}`, and cannot be"
                f" a {kinds[1]} too; give one another `name`"
            )

    def set(self, name: str, value: str | float, *, burst: int | None = None) -> None:
        """Changes a limit while the job runs. All tasks follow within half a second.

        A rate keeps what it has saved, up to the new burst, and forgets what calls took before.
        Calls in flight go on. A task that runs never has more of them than its `sparkawait.PerJob`
        had when it began. The change holds as long as the application, or the Redis that keeps
        the limit.

        Args:
            name: Which, as `job.limits` shows it.
            value: A rate such as ``"300/min"``; the total of a `sparkawait.Budget`; or the calls of
                a `sparkawait.PerJob`.
            burst: That of a rate; by default one second's permits, at least 1.

        Raises:
            ConfigurationError: If there is no such limit, if it is one of each task or channel, or
                split, or the value is wrong.
        """
        with self._lock:
            known = self._known.get(name)
            function = "" if known is None else next(iter(known.labels))
            names = ", ".join(map(repr, self._known)) or "none"
        if known is None:
            _refuse(f"no call of this application has a limit {shown(name)}; there are: {names}")
        anew = _changed(known.limit, value, burst)
        terms = known.terms
        if not terms.is_shared and terms.server is None:
            _refuse(f"{name!r} is a limit of each task; only limits of the job can be changed")
        if terms.per_channel or terms.parts > 1:
            what = "each channel has it for itself" if terms.per_channel else "it is split"
            _refuse(f"{name!r} cannot be changed while tasks run: {what}")
        _ask(known, anew.terms(function, known.sharing))
        with self._lock:
            self._set[name] = anew

    def __getitem__(self, name: str) -> JobLimit:
        """Returns a limit as it is now."""
        with self._lock:
            known, limit = self._known[name], self._set.get(name)
            # Another thread may call another function with it.
            labels = dict(known.labels)
        counts = self._counts()
        of = {function: counts.get(function) for function in labels}
        told = [(it, labels[function]) for function, it in of.items() if it is not None]
        return JobLimit(
            name,
            _now(known, limit or known.limit, next(iter(labels))),
            sum(it.permits.get(label, 0) for it, label in told),
            sum(it.in_flight for it, _ in told),
            sum(it.waiting for it, _ in told),
            tuple(labels),
        )

    def __iter__(self) -> Iterator[str]:
        """Yields their names."""
        with self._lock:
            return iter(list(self._known))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._known)

    def __repr__(self) -> str:
        """Shows each in a line."""
        return "\n".join(map(str, self.values())) if self._known else "sparkawait: no limits"


def _changed(limit: Limit, value: str | float, burst: int | None) -> Limit:
    """Returns a limit with another amount, checked as any is."""
    if isinstance(limit, RateLimit):
        return replace(limit, rate=value, burst=burst)  # pyright: ignore[reportArgumentType]
    if burst is not None:
        _refuse(f"`burst` is of a rate, which {shown(limit)} is not")
    if isinstance(limit, Budget):
        return replace(limit, total=value)  # pyright: ignore[reportArgumentType]
    return replace(limit, calls=value)  # pyright: ignore[reportArgumentType]


def _said(limit: Limit) -> str:
    if isinstance(limit, RateLimit):
        return limit.rate.strip()
    return f"{limit.total:,.15g} in all" if isinstance(limit, Budget) else f"{limit.calls:,} calls"


def _now(known: _Known, limit: Limit, function: str) -> str:
    """Returns what a limit is now; other jobs may have changed it where a Redis keeps it."""
    said = _said(limit)
    if known.limit.server is None:
        return said
    try:
        found = _ask(known, None)
    except ConfigurationError:
        return said
    terms = limit.terms(function, known.sharing)
    if found is None or (found[0] == terms.permits and found[1] in {0, terms.period_nanos}):
        return said
    permits, nanos, _ = found
    if isinstance(limit, RateLimit):
        return f"{permits}/{nanos / 1e9:g}s"
    return _said(_changed(limit, permits / terms.scale if terms.scale > 1 else permits, None))


def _ask(known: _Known, anew: Terms | None) -> tuple[int, int, int] | None:
    """Asks where the limit is kept what it is now, after it was made `anew`."""
    return limit_now(known.application, known.terms.revealed(), anew)


def _refuse(message: str) -> NoReturn:
    raise ConfigurationError(message, ErrorKind.RATE_LIMIT_INVALID)
