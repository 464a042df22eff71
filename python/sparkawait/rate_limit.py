# SPDX-License-Identifier: Apache-2.0
"""Limits in calls, or in what they cost, per time, for the option ``rate_limit=``.

Checked on the driver, where the wait function is called; what travels are plain numbers.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, cast

from sparkawait._callables import check_plain
from sparkawait._checks import (
    ColumnLike,
    ObjectOf,
    choice,
    flag,
    integer,
    is_expression,
    parse_duration,
    refuse,
    shown,
    text,
)
from sparkawait._option import Option, with_known_names
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = [
    "MAX_LIMITS",
    "RATE_LIMIT",
    "Cost",
    "Counts",
    "Limits",
    "Per",
    "RateLimit",
    "RateLimits",
    "Scope",
    "Terms",
    "checked_limits",
]

Cost: TypeAlias = int | ColumnLike | Callable[[Any], float]
"""What a row costs: a number, a column, ``"usual"``, or a function of the row."""

Scope = Literal["task", "host", "job"]
Counts = Literal["requests", "tokens", "other"]
Per = Literal["row", "request"]

MAX_LIMITS = 6
"""The most limits of one call, as `_core.Task` takes them."""
_MOST = 2**53
_OF, _KIND = " of RateLimit", ErrorKind.RATE_LIMIT_INVALID
_RATE = re.compile(r"\s*(?P<permits>[\d_]+)\s*/\s*(?P<period>[\w.µμ]+(?:\s*[a-zA-Zµμ]+)?)\s*")
_NANOS = 1_000_000_000
_USUAL = "usual"


class Terms(NamedTuple):
    """What a `RateLimit` comes to for one call, as `_core.Task` takes it."""

    label: str
    name: str
    permits: int
    period_nanos: int
    burst: int
    cost: int
    usual: bool
    cost_column: str | None
    cost_function: Callable[[Any], float] | None
    result_cost: list[str] | None
    per_channel: bool
    counts: Counts
    per_request: bool
    is_shared: bool
    parts: int
    held_parts: int
    executor: str


@with_known_names
@dataclass(frozen=True)
class RateLimit:
    """A limit of calls per time, or of what they cost.

    Every attempt takes permits first, retries included. A row that waits for its first permit does
    not age, so a job that is slower than its limit fails no row. Rows get permits in their order,
    and channels in turn.

    Args:
        rate: Permits per time: ``"100/s"``, ``"10/min"``, ``"5000/h"``, ``"20/500ms"``.
        burst: Permits that may be taken at once after a pause; by default one second's, at least 1.
            In any time ``t``, at most ``burst + rate * t`` are taken.
        cost: Permits of one attempt, rounded up: an int from 0; a numeric column, by name or (over
            DataFrames) as an expression; or a plain function of the row, called for each row in the
            worker's Python. A row fails and is not called if its cost is null, negative, not a
            number, or above what one call may take: an hour's permits, the permits of the rate or
            ten bursts, whichever is most. A cost above `burst` waits for the whole burst.
            ``"usual"``: what 19 of 20 calls have cost at most, of the last 256 of the task whose
            cost is known (`result_cost`, ``context.settle``). Before 30 are known, each takes the
            whole burst.
        result_cost: The result column with the real cost of the call, or a field in one
            (``"usage.total"``). `cost` is then the estimate that is taken before the call.
            Afterwards the difference comes back, or is taken from later calls, up to what one call
            may take. The first row of a call counts. Without a valid value, and if the call fails,
            `cost` stands.
        scope: Who shares the limit. ``"task"``, the default: each task has the full rate; the
            driver warns what that makes for the job, unless you set ``"task"`` yourself.
            ``"host"``: the Python workers of a Spark application on a host share it; without Spark,
            all processes of this user with the same limit. ``"job"``: the tasks of a function stay
            below it together, on all hosts. Each process has the part of one core and leaves the
            rest of it to the next process; what idle cores do not use is lost. The burst of a part
            is at least 1. On one host, with a master ``local[n]``, nothing is split: the limit is
            exact. Without Spark, the outputs of this process with the same limit share it.
        per_channel: Whether each channel (``channel=``) has a limit of its own, instead of all
            having one together.
        name: Its name in metrics; by default the rate, and with ``scope="host"`` also the function.
            With ``"host"``, limits of the same name are one, over functions too, and must have the
            same rate and burst; with ``"job"`` and without Spark, those of another rate are others.
        counts: Which limit of the service it stands for, where replies tell what is left of that
            (``x-ratelimit-remaining-tokens`` and the like): ``"requests"``, ``"tokens"``, or
            ``"other"``, which no reply lowers. Replies only ever lower the limit. By default
            ``"requests"`` if every call costs 1 or requests pay (`per`), else ``"tokens"``.
        per: What pays where one call is made for many rows (`sparkawait.Batch`): ``"row"``, each of
            them, or ``"request"``, the call. Then the rows of a request wait for its permit before
            they are admitted, and `cost` is an int.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> import pyarrow as pa
        >>> import sparkawait as sa
        >>> @sa.async_function("greeting string")
        ... async def greet(row):
        ...     return {"greeting": f"hello {row['name']}"}
        >>> rows = [pa.record_batch({"name": ["a", "b"]})]
        >>> limit = sa.RateLimit("100/s", scope="job")
        >>> out = sa.arrow.ordered_wait(rows, greet, rate_limit=limit)
        >>> out.to_table()["greeting"].to_pylist()
        ['hello a', 'hello b']
    """

    rate: str
    burst: int | None = None
    cost: Cost = 1
    scope: Scope | None = None
    per_channel: bool = False
    name: str | None = None
    result_cost: str | None = None
    counts: Counts | None = None
    per: Per = "row"

    def __post_init__(self) -> None:
        """Checks the values."""
        permits, _ = _parse_rate(self.rate)
        _check_count("rate", permits, 1)
        if self.burst is not None:
            _check_count("burst", self.burst, 1)
        _check_cost(self.cost)
        self._check_most()
        if self.scope is not None:
            choice(self.scope, "scope", "task", "host", "job", of=_OF, kind=_KIND)
        flag(self.per_channel, "per_channel", of=_OF, kind=_KIND)
        if self.name is not None:
            text(self.name, "name", "a name that is not empty", of=_OF, kind=_KIND)
        if self.result_cost is not None:
            rule = "the name of a column of the results"
            text(self.result_cost, "result_cost", rule, of=_OF, kind=_KIND)
        if self.counts is not None:
            choice(self.counts, "counts", "requests", "tokens", "other", of=_OF, kind=_KIND)
        choice(self.per, "per", "row", "request", of=_OF, kind=_KIND)
        if self.per == "request" and self.is_settled:
            _refuse("`per='request'` of RateLimit needs an int as its `cost`, and no `result_cost`")

    def _check_most(self) -> None:
        """Checks that a call costs no more than one may, as the core does for costs of rows."""
        permits, nanos = _parse_rate(self.rate)
        burst = self.burst or _burst_of(permits, nanos)
        most = max(permits * 3600 * _NANOS // nanos, permits, 10 * burst)
        if isinstance(self.cost, int) and self.cost > most:
            _refuse(
                f"`cost` of RateLimit must not be above {most}, which is what comes in an hour, the"
                f" permits of the rate or ten bursts, whichever is most; got {self.cost}"
            )

    @property
    def label(self) -> str:
        """What it is called in metrics."""
        return self.name or self.rate.strip()

    def times(self, count: int) -> str:
        """Returns the rate of so many limits like this one, as a text."""
        permits, _ = _parse_rate(self.rate)
        return f"{permits * count}/{self.rate.partition('/')[2].strip()}"

    @property
    def is_settled(self) -> bool:
        """Whether what a row is charged is a guess at what its call costs."""
        return self.result_cost is not None or not isinstance(self.cost, int)

    @property
    def is_usual(self) -> bool:
        """Whether a row is charged what calls have cost of late."""
        return isinstance(self.cost, str) and self.cost == _USUAL

    @property
    def counts_calls(self) -> bool:
        """Whether all calls cost the same, and that is one each."""
        return self.per == "request" or not (self.is_settled or self.cost != 1)

    def with_cost(self, column: str) -> RateLimit:
        """Returns the same limit with its cost in a column of this name."""
        return replace(self, cost=column)

    def terms(
        self, function_name: str, application: str, cores: int, executor_cores: int | None = None
    ) -> Terms:
        """Returns the numbers for the calls of one task, for the process that makes them.

        Args:
            function_name: What is called.
            application: Names the Spark application; empty without Spark.
            cores: How many tasks of the job may run at once.
            executor_cores: How many of them an executor may run; `None`: nobody has said so, and it
                is taken to be as many as its host has cores.
        """
        permits, nanos = _parse_rate(self.rate)
        burst = self.burst or _burst_of(permits, nanos)
        name = self.name or f"{function_name} {self.rate} {burst}"
        is_of_job = self.scope == "job"
        if not application:
            # Nobody keeps programs of a user that have nothing to do with one another apart.
            name = f"{name} {permits}/{nanos} {burst}"
            if is_of_job:
                name = f"{name}, of {this_process()}"
        elif is_of_job:
            name = f"{function_name} {name} {permits}/{nanos} {burst}, of the job"
        parts, cost = cores if self.scope == "job" else 1, self.cost
        burst = max(burst // parts, 1)
        if self.is_usual:
            cost = burst
        held_parts = min(parts, executor_cores or os.cpu_count() or 1)
        return Terms(
            label=self.label,
            name=name,
            permits=permits,
            period_nanos=nanos * parts,
            burst=burst,
            cost=cost if isinstance(cost, int) else 1,
            usual=self.is_usual,
            cost_column=cost if isinstance(cost, str) else None,
            cost_function=None if isinstance(cost, (int, str)) else cast("Any", cost),
            result_cost=None,
            per_channel=self.per_channel,
            counts=self.counts or ("requests" if self.counts_calls else "tokens"),
            per_request=False,
            is_shared=self.scope == "host" or is_of_job,
            parts=parts,
            held_parts=held_parts,
            # Several of them may be on a host, each with folders of its own.
            executor=os.environ.get("SPARK_LOCAL_DIRS", ""),
        )


def sharers(application: str, limits: Sequence[RateLimit]) -> str:
    """Returns what names the page of memory that limits are shared in.

    Without Spark that is one for all processes of a user. Limits of this process alone have a page
    of its own, which is removed when nobody has opened it for a week.
    """
    scopes = {limit.scope for limit in limits}
    return this_process() if not application and "host" not in scopes else application


def this_process() -> str:
    """Returns a text that no other process has, a forked child included."""
    return _process_of(os.getpid())


@functools.cache
def _process_of(number: int) -> str:
    return f"process {number} {os.urandom(8).hex()}"


RateLimits: TypeAlias = RateLimit | str | Sequence[RateLimit | str]
"""One limit, or several that all hold. A text is the rate of one, or ``"adaptive"``: the rate that
the service bears, found from what it refuses."""


@dataclass(frozen=True)
class Limits:
    """What ``rate_limit=`` comes to, for one call.

    Attributes:
        known: The limits whose rate was given.
        is_adaptive: Whether the rate of each channel also follows what its destination refuses.
    """

    known: tuple[RateLimit, ...] = ()
    is_adaptive: bool = False


_ADAPTIVE = "adaptive"
_RULE = (
    "a sparkawait.RateLimit, a text such as '100/s' for its `rate`, 'adaptive', or a list of them"
)
_the_limit = ObjectOf(RateLimit, _RULE, _KIND, {str: RateLimit})


def checked_limits(value: object, name: str) -> Limits:
    """Returns what was given in one form.

    Raises:
        ConfigurationError: If it is neither a limit nor a list of some that can be told apart.
    """
    if value is None:
        return Limits()
    several = cast("Sequence[object]", value if isinstance(value, (list, tuple)) else [value])
    rates = [it for it in several if not _is_adaptive(it)]
    words = len(several) - len(rates)
    if words > 1:
        _refuse(
            f"`{name}` has 'adaptive' {words} times; each channel finds one rate, so give it once"
        )
    limits = [_the_limit(limit, name) for limit in rates]
    checked = tuple(limit for limit in limits if limit is not None)
    if not several or len(checked) < len(limits):
        _refuse(f"`{name}` must be {_RULE}, got {shown(several)}")
    if len(checked) > MAX_LIMITS:
        _refuse(f"`{name}` must not have more than {MAX_LIMITS} limits, got {len(checked)}")
    labels = [limit.label for limit in checked]
    for label in labels:
        if labels.count(label) > 1:
            _refuse(f"`{name}` has two limits called {shown(label)}; give one another `name`")
    return Limits(checked, is_adaptive=words == 1)


def _is_adaptive(value: object) -> bool:
    return isinstance(value, str) and value == _ADAPTIVE


def _parse_rate(rate: object) -> tuple[int, int]:
    """Returns permits, and the nanoseconds in which they come."""
    if isinstance(rate, str) and rate.strip().lower() == _ADAPTIVE:
        _refuse(
            f"`rate` of RateLimit is not a rate: {shown(rate)}; 'adaptive' stands by itself, as in"
            " rate_limit='adaptive' or rate_limit=['97/s', 'adaptive'], and has no `burst`, `cost`"
            " or `scope`: each task, or each channel of it, finds its own rate"
        )
    example = "write permits per time, as in '100/s' or '10/min'"
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if match is None:
        _refuse(f"`rate` of RateLimit is not a rate: {shown(rate)}; {example}")
    period = match["period"]
    period = period if period[0].isdigit() else f"1{period}"
    try:
        seconds = parse_duration(period, "rate")
    except ConfigurationError:
        _refuse(f"`rate` of RateLimit is not a rate: {shown(rate)}; {example}")
    nanos = round(seconds * _NANOS)
    if not 1 <= nanos <= _MOST:
        _refuse(f"`rate` of RateLimit must be for a time up to 100 days, got {shown(rate)}")
    return int(match["permits"].replace("_", "") or 0), nanos


def _burst_of(permits: int, nanos: int) -> int:
    """Returns the permits of a second, at least 1."""
    return max(permits * _NANOS // nanos, 1)


def _check_count(name: str, value: object, least: int) -> None:
    integer(value, name, least, _MOST, of=_OF, kind=_KIND)


def _check_cost(cost: object) -> None:
    if isinstance(cost, int):
        _check_count("cost", cost, 0)
    elif is_expression(cost) or (isinstance(cost, str) and cost):
        pass
    elif not callable(cost):
        _refuse(
            "`cost` of RateLimit must be an int, a column of numbers, or a function of the row,"
            f" got {shown(cost)}"
        )
    else:
        check_plain(cost, "`cost` of RateLimit", _KIND)


def _refuse(message: str) -> NoReturn:
    refuse(message, _KIND)


RATE_LIMIT = Option(
    'calls, or what they cost, per time: `"100/s"`, `sa.RateLimit("100/s", burst=, cost=,'
    " scope=, per_channel=, name=, result_cost=, counts=, per=)`, or a list of them. With"
    ' `"adaptive"`, alone or in the list, the calls per time of each channel follow what its'
    " destination refuses: a 429, a 503, or a raised `sa.RetryAfter`. Without `channel` the task"
    " has one rate",
    checked_limits,
    type="RateLimits | None",
)
