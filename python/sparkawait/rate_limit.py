# SPDX-License-Identifier: Apache-2.0
"""Limits in calls, or in what they cost, per time, for the option ``rate_limit=``.

Checked on the driver, where the wait function is called; what travels are plain numbers.
"""

from __future__ import annotations

import functools
import math
import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, TypeAlias, cast

from sparkawait._callables import check_plain
from sparkawait._checks import (
    ColumnLike,
    ObjectOf,
    choice,
    flag,
    integer,
    is_expression,
    number,
    parse_duration,
    refuse,
    shown,
    text,
)
from sparkawait._option import Option, with_known_names
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.secrets import Secret

__all__ = [
    "ALONE",
    "MAX_LIMITS",
    "RATE_LIMIT",
    "Budget",
    "Cost",
    "Counts",
    "Lengths",
    "Limit",
    "Limits",
    "Per",
    "PerJob",
    "RateLimit",
    "RateLimits",
    "ResultCost",
    "Scope",
    "Sharing",
    "Terms",
    "check_server",
    "checked_limits",
    "revealed_server",
]

ResultCost: TypeAlias = str | Mapping[str, float]
"""The column of the results with what a call has cost, or weights of several."""

Scope = Literal["task", "host", "job"]
Counts = Literal["requests", "tokens", "other"]
Per = Literal["row", "request"]

MAX_LIMITS = 6
"""The most limits of one call, as `_core.Task` takes them."""
_MOST = 2**53
_OF, _KIND = " of RateLimit", ErrorKind.RATE_LIMIT_INVALID
_OF_BUDGET, _OF_CALLS = " of Budget", " of PerJob"
_RATE = re.compile(r"\s*(?P<permits>[\d_]+)\s*/\s*(?P<period>[\w.µμ]+(?:\s*[a-zA-Zµμ]+)?)\s*")
_SERVER = re.compile(r"(?:redis|rediss|valkey|valkeys)://[^/\s]|(?:redis\+unix|unix)://.*/")
_NANOS = 1_000_000_000
_USUAL = "usual"
_CONTROLS = frozenset({"Cc", "Zl", "Zp"})


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
    cost_lengths: tuple[list[str], float, float] | None
    result_cost: list[tuple[list[str], float]] | None
    per_channel: bool
    counts: Counts
    per_request: bool
    is_shared: bool
    parts: int
    held_parts: int
    executor: str
    kind: str = "rate"
    server: str | Secret | None = None
    tasks: int | None = None
    begins_empty: bool = False
    waits_for_server: bool = False
    scale: int = 1

    def __repr__(self) -> str:
        """Shows it without the secret of its server."""
        return f"Terms({self.name!r})"

    def revealed(self) -> Terms:
        """Returns it with the address of its server, which is looked up here if it is a secret.

        Raises:
            ConfigurationError: If there is no such secret, or it is not an address.
        """
        if not isinstance(self.server, Secret):
            return self
        return self._replace(server=revealed_server(self.server))


def revealed_server(server: Secret) -> str:
    """Returns the address of a server that is a secret, which is looked up on this machine.

    Raises:
        ConfigurationError: If there is no such secret, or it is not an address.
    """
    address = server.reveal()
    check_server(address, f" ({server!r})")
    return address


@dataclass(frozen=True)
class Lengths:
    """A cost that follows from the bytes that columns have as texts; no Python runs for a row.

    Attributes:
        columns: The columns.
        weight: What a byte costs.
        constant: What all rows cost.
    """

    columns: tuple[str, ...]
    weight: float
    constant: float = 0.0

    @property
    def terms(self) -> tuple[list[str], float, float]:
        """The same as a task takes it."""
        return list(self.columns), self.weight, self.constant


Cost: TypeAlias = int | ColumnLike | Callable[[Any], float] | Lengths
"""What a row costs: a number, a column, ``"usual"``, or a function of the row."""


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
            whole burst, or `first_cost`.
        result_cost: The result column with the real cost of the call, or a field in one
            (``"usage.total"``); or several, each with its weight, which are added up:
            ``{"usage.input": 1, "usage.output": 5}``. `cost` is then the estimate that is taken
            before the call. Afterwards the difference comes back, or is taken from later calls, up
            to what one call may take. The first row of a call counts. Where it is null, negative or
            not a number, and if the call fails, `cost` stands; the log tells of the last two once a
            task.
        scope: Who shares the limit. ``"job"``: all tasks of the application stay below it together,
            on all hosts. On a cluster they ask a small server in the driver's process for permits;
            it listens at ``spark.sparkawait.port``, by default any free port, of
            ``spark.driver.host``. The limit begins without what it could have saved, unless you
            give `burst`. With Spark Connect and without `server`, it is split: each process has the
            part of one core, and what idle cores do not use is lost. Without Spark, the outputs of
            this process with the same limit share it. ``"host"``: the Python workers of a Spark
            application on a host share it; without Spark, all processes of this user with the same
            limit. ``"task"``: each task has the full rate. By default ``"job"``, but ``"task"``
            where tasks cannot ask the driver (Spark Connect, a closed port), with a warning of what
            that makes for the job; with `per_channel`; and without Spark.
        per_channel: Whether each channel (``channel=``) has a limit of its own, instead of all
            having one together.
        server: A Redis that keeps the limit of the job, ``"redis://host:6379"`` or ``"rediss://.."``,
            for several jobs, for Spark Connect, and where executors do not reach the driver. Needs
            `name` and ``scope="job"``, which it means by itself. A password in it travels with the
            plan; with ``server=sa.secret("LIMITS_URL")`` workers look the address up.
        name: Its name in metrics; by default the rate, and with ``scope="host"`` also the function.
            Limits of the same name are one, over functions too, and must have the same rate and
            burst; without Spark, and where a limit is split, those of another rate are others.
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
    result_cost: ResultCost | None = None
    counts: Counts | None = None
    per: Per = "row"
    server: str | Secret | None = field(default=None, repr=False)
    first_cost: int | None = None

    scale: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Checks the values."""
        if self.first_cost is not None:
            _check_count("first_cost", self.first_cost, 1)
        permits, _ = _parse_rate(self.rate)
        _check_count("rate", permits, 1)
        if self.burst is not None:
            _check_count("burst", self.burst, 1)
        _check_cost(self.cost)
        self._check_most()
        if self.scope is not None:
            choice(self.scope, "scope", "task", "host", "job", of=_OF, kind=_KIND)
        flag(self.per_channel, "per_channel", of=_OF, kind=_KIND)
        _check_home(self.name, self.server, _OF)
        if self.server is not None and self.scope not in {None, "job"}:
            _refuse(f"`server` of RateLimit keeps limits of scope 'job', not {shown(self.scope)}")
        _check_result_cost(self.result_cost, _OF)
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

    @property
    def is_of_job(self) -> bool:
        """Whether all tasks of a job share it."""
        return self.scope == "job" or self.server is not None

    def terms(self, function_name: str, sharing: Sharing) -> Terms:
        """Returns the numbers for the calls of one task, for the process that makes them.

        Args:
            function_name: What is called.
            sharing: Who shares limits of a host and of the job.
        """
        permits, nanos = _parse_rate(self.rate)
        burst = self.burst or _burst_of(permits, nanos)
        is_meant = self.scope is None and not self.per_channel and sharing.is_usual
        is_of_job = self.is_of_job or is_meant
        server = (self.server or sharing.server) if is_of_job else None
        is_split = is_of_job and server is None
        parts = sharing.cores or 1 if is_split else 1
        name = self.name or f"{function_name} {self.rate} {burst}"
        if server is not None:
            pass
        elif not sharing.application:
            # Nobody keeps programs of a user that have nothing to do with one another apart.
            name = f"{name} {permits}/{nanos} {burst}"
            if is_of_job:
                name = f"{name}, of {this_process()}"
        elif parts > 1:
            name = f"{function_name} {name} {permits}/{nanos} {burst}, of the job"
        elif is_of_job:
            name = f"{name}, of the job"
        cost = self.cost
        burst = max(burst // parts, 1)
        if self.is_usual:
            cost = min(self.first_cost or burst, burst)
        held_parts = min(parts, sharing.executor_cores or os.cpu_count() or 1)
        return Terms(
            label=self.label,
            name=name,
            permits=permits,
            period_nanos=nanos * parts,
            burst=burst,
            cost=cost if isinstance(cost, int) else 1,
            usual=self.is_usual,
            cost_column=cost if isinstance(cost, str) else None,
            cost_function=None if isinstance(cost, (int, str, Lengths)) else cast("Any", cost),
            cost_lengths=cost.terms if isinstance(cost, Lengths) else None,
            result_cost=None,
            per_channel=self.per_channel,
            counts=self.counts or ("requests" if self.counts_calls else "tokens"),
            per_request=False,
            is_shared=self.scope == "host" or is_of_job,
            parts=parts,
            held_parts=held_parts,
            # Several of them may be on a host, each with folders of its own.
            executor=os.environ.get("SPARK_LOCAL_DIRS", ""),
            server=server,
            tasks=sharing.cores if server is not None else None,
            begins_empty=self.burst is None,
            waits_for_server=not is_meant,
        )


_SCALE = 1_000_000
"""Permits of a budget are millionths: costs are often parts of one, and permits are whole."""


@with_known_names
@dataclass(frozen=True)
class Budget:
    """A limit of what all calls of a job cost together, for ``rate_limit=``.

    A call reserves `cost` before it starts, and is settled when it is known what it cost. So the
    job never spends more, as long as no call costs more than it reserved. When less is left than a
    call reserves, and no call in flight could give some back, the row fails with kind
    ``budget-spent``, and so do later ones that cost as much. What a worker had reserved when it was
    killed counts as spent, since nobody knows.

    Args:
        total: What may be spent, in any unit: ``20.0`` for dollars.
        cost: What a call reserves: a number, a numeric column, or a plain function of the row.
        result_cost: The result column with the real cost of the call, or a field in one
            (``"usage.cost"``). Where it is null, negative or not a number, and if the call fails,
            `cost` stands; the log tells of the last two once a task.
        name: Its name in metrics, by default ``"budget"``. Budgets of the same name are one, over
            functions too, and must have the same total.
        server: A Redis that keeps it, as that of `RateLimit`: for several jobs, and for Spark
            Connect. Needs `name`. It is kept for 30 days after its last use.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> import sparkawait as sa
        >>> options = sa.WaitOptions(rate_limit=["500/min", sa.Budget(20.0, cost=0.15)])
    """

    total: float
    cost: float | ColumnLike | Callable[[Any], float] | Lengths = 1
    result_cost: ResultCost | None = None
    name: str | None = None
    server: str | Secret | None = field(default=None, repr=False)

    scope: ClassVar[Scope] = "job"
    per: ClassVar[Per] = "row"
    is_of_job: ClassVar[bool] = True
    is_usual: ClassVar[bool] = False
    scale: ClassVar[int] = _SCALE

    def __post_init__(self) -> None:
        """Checks the values."""
        number(self.total, "total", 1 / _SCALE, _MOST // _SCALE, of=_OF_BUDGET, kind=_KIND)
        if isinstance(self.cost, (int, float)):
            number(self.cost, "cost", 0, _MOST // _SCALE, of=_OF_BUDGET, kind=_KIND)
        else:
            _check_cost(self.cost, _OF_BUDGET)
        _check_home(self.name, self.server, _OF_BUDGET)
        _check_result_cost(self.result_cost, _OF_BUDGET)

    @property
    def label(self) -> str:
        """What it is called in metrics."""
        return self.name or "budget"

    @property
    def is_settled(self) -> bool:
        """Whether what a row is charged is a guess at what its call costs."""
        return self.result_cost is not None or not isinstance(self.cost, (int, float))

    def with_cost(self, column: str) -> Budget:
        """Returns the same budget with its cost in a column of this name."""
        return replace(self, cost=column)

    def terms(self, function_name: str, sharing: Sharing) -> Terms:
        """Returns the numbers, as `RateLimit.terms` does."""
        cost = self.cost
        is_fixed = isinstance(cost, (int, float))
        return _terms_of_stock(
            self,
            sharing,
            kind="budget",
            name=self.name or f"{function_name} budget of {self.total}",
            # A float of 8.2 may be a little less than that, which must not cost a permit.
            permits=round(self.total * _SCALE),
            cost=math.ceil(round(cost * _SCALE, 3)) if is_fixed else 1,
            cost_column=cost if isinstance(cost, str) else None,
            cost_function=None if is_fixed or isinstance(cost, (str, Lengths)) else cost,
            cost_lengths=cost.terms if isinstance(cost, Lengths) else None,
            scale=_SCALE,
        )


@with_known_names
@dataclass(frozen=True)
class PerJob:
    """Calls in flight of all tasks of a job together, for ``max_concurrency=``.

    Each task may have as many, and tasks that want more than there are share them. Of a batched
    function requests count. Calls of a worker that says nothing for 30 s do not count any more.

    Args:
        calls: How many.
        name: Its name in metrics, by default ``"calls"``. Limits of the same name are one, over
            functions too, and must have the same number.
        server: A Redis that keeps it, as that of `RateLimit`: for several jobs, and for Spark
            Connect. Needs `name`.

    Raises:
        ConfigurationError: If a value is wrong.

    Examples:
        >>> import sparkawait as sa
        >>> options = sa.WaitOptions(max_concurrency=sa.PerJob(500))
    """

    calls: int
    name: str | None = None
    server: str | Secret | None = field(default=None, repr=False)

    scope: ClassVar[Scope] = "job"
    per: ClassVar[Per] = "request"
    is_of_job: ClassVar[bool] = True
    is_usual: ClassVar[bool] = False
    is_settled: ClassVar[bool] = False
    cost: ClassVar[int] = 1
    result_cost: ClassVar[None] = None
    scale: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Checks the values."""
        integer(self.calls, "calls", 1, 2**31 - 1, of=_OF_CALLS, kind=_KIND)
        _check_home(self.name, self.server, _OF_CALLS)

    @property
    def label(self) -> str:
        """What it is called in metrics."""
        return self.name or "calls"

    def terms(self, function_name: str, sharing: Sharing) -> Terms:
        """Returns the numbers, as `RateLimit.terms` does."""
        name = self.name or f"{function_name}, {self.calls} calls"
        return _terms_of_stock(self, sharing, kind="calls", name=name, permits=self.calls)


Limit: TypeAlias = RateLimit | Budget | PerJob
"""What calls take permits of."""


def _terms_of_stock(
    limit: Budget | PerJob,
    sharing: Sharing,
    *,
    kind: str,
    name: str,
    permits: int,
    cost: int = 1,
    cost_column: str | None = None,
    cost_function: Any = None,
    cost_lengths: Any = None,
    scale: int = 1,
) -> Terms:
    server = limit.server or sharing.stocks
    return Terms(
        label=limit.label,
        name=name,
        permits=permits,
        period_nanos=_NANOS,
        burst=1,
        cost=cost,
        usual=False,
        cost_column=cost_column,
        cost_function=cost_function,
        cost_lengths=cost_lengths,
        result_cost=None,
        per_channel=False,
        counts="other",
        per_request=False,
        is_shared=server is not None,
        parts=1,
        held_parts=1,
        executor="",
        kind=kind,
        server=server,
        tasks=None if server is None else sharing.cores,
        waits_for_server=True,
        scale=scale,
    )


class Sharing(NamedTuple):
    """Who shares the limits in time of a task.

    Attributes:
        application: Names the Spark application, for limits that its workers share.
        cores: How many tasks of the job may run at once, if that is known; 1 where all are on one
            host.
        executor_cores: How many of them an executor may run; ``None``: nobody has said so, and it
            is taken to be as many as its host has cores.
        server: Where all tasks of the job ask for its rates, with the secret; ``None``: they do
            not.
        stocks: Where they ask for budgets and calls at a time, which no page of a host has.
        is_usual: Whether limits without a scope are the job's.
    """

    application: str = ""
    cores: int | None = 1
    executor_cores: int | None = None
    server: str | None = None
    stocks: str | None = None
    is_usual: bool = False

    def __repr__(self) -> str:
        """Shows it without the secret."""
        return f"Sharing({self.application!r}, {self.cores}, {self.executor_cores})"


ALONE = Sharing()


def sharers(application: str, limits: Sequence[Limit]) -> str:
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


RateLimits: TypeAlias = RateLimit | Budget | str | Sequence[RateLimit | Budget | str]
"""One limit, or several that all hold. A text is the rate of one, or ``"adaptive"``: the rate that
the service bears, found from what it refuses."""


@dataclass(frozen=True)
class Limits:
    """What ``rate_limit=`` comes to, for one call.

    Attributes:
        known: The limits whose rate was given.
        is_adaptive: Whether the rate of each channel also follows what its destination refuses.
    """

    known: tuple[RateLimit | Budget, ...] = ()
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
    limits = [it if isinstance(it, Budget) else _the_limit(it, name) for it in rates]
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


def _check_home(name: object, server: object, of: str) -> None:
    """Checks the name of a limit, and where it is kept."""
    if name is not None:
        checked = text(name, "name", "a name that is not empty", of=of, kind=_KIND)
        # A limit is a line of the log, and of `job.limits`.
        if any(unicodedata.category(it) in _CONTROLS for it in checked):
            _refuse(f"`name`{of} must have no line breaks or control characters, got {name!r}")
    if server is None:
        return
    if not isinstance(server, Secret):
        check_server(server, of)
    if name is None:
        _refuse(f"`server`{of} needs a `name`: jobs with the same name share the limit")


def check_server(server: object, of: str) -> None:
    """Checks the address of a Redis.

    Raises:
        ConfigurationError: If it is something else.
    """
    if not (isinstance(server, str) and _SERVER.match(server)):
        # It may have a password in it.
        _refuse(f"`server`{of} must be an address like 'redis://host:6379'")


def _check_result_cost(value: object, of: str) -> None:
    is_one = not isinstance(value, Mapping)
    several = [(value, 1)] if is_one else cast("Mapping[object, object]", value).items()
    for column, weight in several:
        if column is not None:
            rule = "the name of a column of the results, or weights by name"
            text(column, "result_cost", rule, of=of, kind=_KIND)
            number(weight, "result_cost", -_MOST, _MOST, of=of, kind=_KIND)


def _check_cost(cost: object, of: str = _OF) -> None:
    if isinstance(cost, int):
        _check_count("cost", cost, 0)
    elif is_expression(cost) or isinstance(cost, Lengths) or (isinstance(cost, str) and cost):
        pass
    elif not callable(cost):
        _refuse(
            f"`cost`{of} must be an int, a column of numbers, or a function of the row,"
            f" got {shown(cost)}"
        )
    else:
        check_plain(cost, f"`cost`{of}", _KIND)


def _refuse(message: str) -> NoReturn:
    refuse(message, _KIND)


RATE_LIMIT = Option(
    'calls, or what they cost, per time: `"100/s"`, `sa.RateLimit("100/s", burst=, cost=,'
    " scope=, per_channel=, name=, result_cost=, counts=, per=, server=)`, or a list of them. With"
    ' `"adaptive"`, alone or in the list, the calls per time of each channel follow what its'
    " destination refuses: a 429, a 503, or a raised `sa.RetryAfter`. Without `channel` the task"
    " has one rate",
    checked_limits,
    type="RateLimits | None",
)
