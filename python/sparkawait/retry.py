# SPDX-License-Identifier: Apache-2.0
"""Which failures are tried again, how often, and after how long.

A strategy is an immutable value: the delay is computed from the attempt number, so that rows which
are retried at the same time do not influence one another. Any thread may use it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from sparkawait import _core
from sparkawait._callables import check_call
from sparkawait._checks import (
    Duration,
    ObjectOf,
    choice,
    flag,
    integer,
    number,
    parse_duration,
    refuse,
    shown,
)
from sparkawait._option import Option, with_known_names
from sparkawait.exceptions import ErrorKind, ResultError, leaves

__all__ = [
    "AsyncRetryStrategy",
    "Budget",
    "RetryAfter",
    "exponential_backoff",
    "fixed_delay",
    "if_empty",
]

# -- how many retries calls earn, for ``budget=`` of the strategies of `sparkawait.retry`

_KIND = ErrorKind.RETRY_INVALID
_MOST = 1000


@with_known_names
@dataclass(frozen=True)
class Budget:
    """Makes the retries of each channel a share of its calls, so that an outage gets no storm.

    All strategies have one, with these defaults, unless they are made with ``budget=None``.

    Each first attempt earns a part of a retry, for ten seconds; besides, some come by time. A retry
    for which there is none waits in its back-off, bounded by the row's ``timeout``. A destination
    that fails everything so sees ``1 + ratio`` times the calls of one that does not, whatever
    ``retry=`` allows a row. A retry that is answered gives back what it cost: once the destination
    is well, rows that have waited come as fast as it answers.

    What costs a retry are failures of the destination: it is overloaded, cannot be reached or does
    not answer within ``attempt_timeout``; of a Python function, an exception that ``retry=`` tries
    again. A row that was told when to come again (``Retry-After``, `RetryAfter`), and one that is
    tried again for what it returned (``if_result``, ``if_miss``), costs none.

    Without ``channel=`` the task has one budget. It is of a task: tasks that run at once have one
    each.

    Args:
        ratio: Retries that a first attempt earns, from 0 to 1000.
        min_per_second: Retries a second that need no call to earn them, an int from 0. 10 as in
            Finagle's ``RetryBudget``, so that a task of few rows does not wait for them. With 0,
            rows that wait for a retry when the input has ended time out.

    Raises:
        ConfigurationError: If a value is wrong, or both are 0.

    Examples:
        >>> import sparkawait as sa
        >>> retry = sa.retry.exponential_backoff(5, budget=sa.retry.Budget(0.1, min_per_second=1))
    """

    ratio: float = 0.2
    min_per_second: int = 10

    def __post_init__(self) -> None:
        """Checks the values."""
        number(self.ratio, "ratio", 0, _MOST, of=" of Budget", kind=_KIND)
        least = integer(self.min_per_second, "min_per_second", 0, of=" of Budget", kind=_KIND)
        if self.ratio == 0 and least == 0:
            msg = "Budget has neither `ratio` nor `min_per_second`: no row is tried again"
            refuse(msg, _KIND)


_the_budget = ObjectOf(
    Budget,
    "a sparkawait.retry.Budget, a number for its `ratio`, or None",
    _KIND,
    dict.fromkeys((int, float), Budget),
)

ResultPredicate = Callable[[list[Any]], bool]
ExceptionPredicate = (
    Callable[[BaseException], bool] | type[BaseException] | tuple[type[BaseException], ...]
)
_BUDGET = Budget()


class RetryAfter(Exception):  # noqa: N818 - reads as an instruction: `raise RetryAfter("5s")`
    """Raise it in an async function to have the call tried again after `delay`.

    It asks for a retry whatever `if_exception` says, and without `retry=`, and replaces the delay
    that the strategy would have taken. The number of retries, 3 without `retry=`, and the row's
    `timeout` still hold. With ``retry=0`` it is a failure like any other.

    With ``channel=True`` no other row of its channel (``channel=``; without it, of the task) is
    called before `delay` has passed, or an hour: the service has too much to do for anybody. An
    exception of an HTTP client with a status of 429, 403 or 503 and a delay does the same, without
    being wrapped.

    Args:
        delay: A duration (str with unit, timedelta, seconds) or the value of an HTTP
            ``Retry-After`` header: whole seconds or a date.
        message: What the service said, for the error that is raised when no retry is left.
        channel: Whether the whole channel waits, and not this row alone.

    Attributes:
        delay: Seconds to wait.
        channel: Whether the whole channel waits.
    """

    def __init__(
        self, delay: Duration, message: str | None = None, *, channel: bool = False
    ) -> None:
        """Takes the delay, in any form, a message, and who waits."""
        self.delay = _header_delay(delay)
        self.channel = flag(channel, "channel", of=" of RetryAfter", kind=_KIND)
        super().__init__(message or f"retry after {self.delay:g} s")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles by constructor arguments; attributes and notes travel beside them."""
        return type(self), (self.delay, str(self)), self.__dict__.copy()


@dataclass(frozen=True)
class AsyncRetryStrategy:
    """A retry rule. Make one with `fixed_delay` or `exponential_backoff`.

    Counterpart of Flink's class of this name; differs in that a strategy without predicates retries
    every exception, where Flink's never retries.

    Attributes:
        max_retries: Further attempts after the first.
        initial: Seconds before the second attempt.
        maximum: Longest delay in seconds.
        multiplier: Factor between one delay and the next.
        jitter: ``"full"`` draws each delay between 0 and the computed one, ``"none"`` takes it.
        if_result: Says of the list of a row's results whether to try again.
        if_exception: Says of the exception whether to try again.
        retry_misses: Whether a row is tried again whose call found nothing. See `if_miss`.
        budget: What makes the retries a share of the calls; ``None``: nothing does.
        only_refused: Whether only calls are made again that were not carried out, as without
            ``retry=``.
    """

    max_retries: int
    initial: float
    maximum: float
    multiplier: float
    jitter: Literal["full", "none"]
    if_result: ResultPredicate | None = None
    if_exception: ExceptionPredicate | None = None
    retry_misses: bool = False
    budget: Budget | None = _BUDGET
    only_refused: bool = False

    def if_miss(self) -> AsyncRetryStrategy:
        """Returns this strategy, which also tries a row again whose call found nothing.

        That is a lookup without a match, or a Python function that returned an empty list. After
        the last retry the row is a miss for good, not a failure.

        Examples:
            >>> fixed_delay(3, "100ms").if_miss().retry_misses
            True
        """
        return replace(self, retry_misses=True)

    def can_retry(self, attempt: int) -> bool:
        """Tells whether attempt number `attempt`, counted from 1, may be followed by another."""
        return attempt <= self.max_retries

    def get_backoff_time_millis(self, attempt: int) -> float:
        """Returns the delay after attempt number `attempt`, before jitter, in milliseconds."""
        # In logarithms, because `multiplier ** attempt` overflows where the result is `maximum`.
        exponent = max(attempt - 1, 0)
        if self.initial == 0 or exponent * math.log(self.multiplier) >= math.log(
            max(self.maximum, self.initial) / self.initial
        ):
            seconds = self.maximum if self.initial and exponent else self.initial
        else:
            seconds = self.initial * self.multiplier**exponent
        return min(seconds, self.maximum) * 1000.0

    def retries_exception(self, error: BaseException) -> bool:
        """Tells whether `error` asks for a retry; raises what the user's predicate raises.

        A group asks for one if a member of it does.
        """
        predicate = self.if_exception
        if isinstance(predicate, (type, tuple)) and isinstance(error, predicate):
            return True
        return any(map(self._retries_one, leaves(error)))

    def _retries_one(self, error: BaseException) -> bool:
        if isinstance(error, RetryAfter) or self.only_refused:
            return isinstance(error, RetryAfter)
        predicate = self.if_exception
        if predicate is None:
            # A result of the wrong shape is a mistake in the function: the next would be no better.
            is_mistake = isinstance(error, ResultError)
            return self.if_result is None and isinstance(error, Exception) and not is_mistake
        if isinstance(predicate, (type, tuple)):
            return isinstance(error, predicate)
        return bool(predicate(error))

    def delay_after(self, error: BaseException) -> float | None:
        """Returns the seconds that `error` asks to wait, in place of this strategy's delay.

        That is the delay of a `RetryAfter`, or what the ``Retry-After`` header of the response
        says that the exception of an HTTP client tells of; ``None`` if neither says anything.
        """
        return longest(
            leaf.delay if isinstance(leaf, RetryAfter) else announced_delay(leaf)
            for leaf in leaves(error)
        )

    def retries_result(self, results: list[Any]) -> bool:
        """Tells whether `results` ask for a retry; raises what the user's predicate raises."""
        if self.retry_misses and not results:
            return True
        return self.if_result is not None and bool(self.if_result(results))


def pause_after(error: BaseException) -> float | None:
    """Returns the seconds for which `error` asks that no row of its channel is called.

    Returns:
        0 if the service has too much to do and does not say for how long, ``None`` if nothing is
        said of it.
    """
    return longest(map(_pause_of_one, leaves(error)))


def _pause_of_one(error: BaseException) -> float | None:
    if isinstance(error, RetryAfter):
        return error.delay if error.channel else None
    return announced_pause(error)


def if_empty(results: list[Any]) -> bool:
    """Retries a row for which the function returned an empty list, for `if_result`."""
    return not results


@with_known_names
def fixed_delay(
    max_retries: int,
    delay: Duration,
    *,
    if_result: ResultPredicate | None = None,
    if_exception: ExceptionPredicate | None = None,
    budget: Budget | float | None = _BUDGET,
) -> AsyncRetryStrategy:
    """Retries up to `max_retries` times, each after the same `delay`.

    With neither predicate every exception is retried. With only `if_result`, exceptions are not.
    An exception that tells of a response with ``Retry-After``, as those of HTTP clients do, is
    retried after the time that it says.

    Args:
        max_retries: Further attempts after the first, at least 1.
        delay: Time between attempts: str with unit, timedelta or seconds.
        if_result: Called with the list of a row's results; true asks for a retry. See `if_empty`.
        if_exception: An exception class, a tuple of classes, or a callable that gets the exception;
            of an exception group each member, and one that asks for a retry is enough.
        budget: What makes retries a share of the calls of their channel, so that an outage gets no
            storm: a `Budget`, or its ``ratio``; one beyond waits in its back-off. ``None``:
            nothing does.

    Raises:
        ConfigurationError: If an argument is wrong.
    """
    seconds = parse_duration(delay, "delay")
    return _checked(
        AsyncRetryStrategy(max_retries, seconds, seconds, 1.0, "none", if_result, if_exception),
        budget,
    )


@with_known_names
def exponential_backoff(
    max_retries: int = 3,
    initial: Duration = "100ms",
    maximum: Duration = "10s",
    multiplier: float = 2,
    *,
    jitter: Literal["full", "none"] = "full",
    if_result: ResultPredicate | None = None,
    if_exception: ExceptionPredicate | None = None,
    budget: Budget | float | None = _BUDGET,
) -> AsyncRetryStrategy:
    """Retries up to `max_retries` times, after random delays below a bound that grows.

    The bound of a delay is `initial`, then `multiplier` times as much each time, up to `maximum`;
    ``jitter="none"`` waits for so long.

    An exception that tells of a response with ``Retry-After``, as those of HTTP clients do, is
    retried after the time that it says, whatever `maximum` is.

    100 ms, doubled, with full jitter are what the AWS SDKs do. Their longest delay is 20 s; here it
    is half of that, because a row has 60 s for all its attempts unless ``timeout`` says otherwise.
    They try three times in all; a row of a job may cost the whole job, so it has one attempt more.
    The option ``retry=3`` is this with the other defaults.

    Args:
        max_retries: Further attempts after the first, at least 1.
        initial: Delay before the second attempt: str with unit, timedelta or seconds.
        maximum: Longest delay.
        multiplier: Factor between one delay and the next, at least 1.
        jitter: ``"full"`` draws each delay between 0 and the computed one, so that rows which
            failed together do not come back together; ``"none"`` takes the computed delay.
        if_result: Called with the list of a row's results; true asks for a retry. See `if_empty`.
        if_exception: As of `fixed_delay`.
        budget: As of `fixed_delay`.

    Raises:
        ConfigurationError: If an argument is wrong.
    """
    first = parse_duration(initial, "initial")
    longest = parse_duration(maximum, "maximum")
    if longest < first:
        refuse(
            f"`maximum` must not be below `initial`, got {shown(maximum)} and {shown(initial)}",
            _KIND,
        )
    factor = number(multiplier, "multiplier", 1, kind=_KIND)
    choice(jitter, "jitter", "full", "none", kind=_KIND)
    return _checked(
        AsyncRetryStrategy(max_retries, first, longest, factor, jitter, if_result, if_exception),
        budget,
    )


def _checked(strategy: AsyncRetryStrategy, budget: object) -> AsyncRetryStrategy:
    integer(strategy.max_retries, "max_retries", 1, kind=_KIND)
    if strategy.if_result is not None:
        if not callable(strategy.if_result):
            refuse(f"`if_result` must be callable, got {shown(strategy.if_result)}", _KIND)
        check_call(strategy.if_result, "if_result", "results", kind=_KIND)
    _check_exception_predicate(strategy.if_exception)
    return replace(strategy, budget=_the_budget(budget, "budget"))


def _check_exception_predicate(predicate: object) -> None:
    if isinstance(predicate, (type, tuple)):
        members = cast(
            "tuple[object, ...]", predicate if isinstance(predicate, tuple) else (predicate,)
        )
        for member in members:
            if not (isinstance(member, type) and issubclass(member, BaseException)):
                found = shown(cast("object", member))
                refuse(f"`if_exception` must hold exception classes, got {found}", _KIND)
    elif predicate is not None and not callable(predicate):
        refuse(
            f"`if_exception` must be an exception class or callable, got {shown(predicate)}", _KIND
        )
    elif predicate is not None:
        check_call(predicate, "if_exception", "error", kind=_KIND)


def _header_delay(delay: object) -> float:
    """Reads a duration, or either form of an HTTP ``Retry-After`` header."""
    seconds = _core.header_seconds(encodable(delay)) if isinstance(delay, str) else None
    return parse_duration(delay, "delay") if seconds is None else seconds


ONLY_REFUSED = replace(exponential_backoff(), only_refused=True)
"""What is tried again without ``retry=``."""


def _retries(count: int) -> AsyncRetryStrategy | None:
    return None if count == 0 else exponential_backoff(count)


RETRY = Option(
    "how often, and when, a failed call is made again: `3` means"
    " `sa.retry.exponential_backoff(3)`, `0` never; or a strategy of `sa.retry`. By default"
    " only calls that were not carried out: not sent, refused with 429, 503 and the like, or a"
    " raised `sa.RetryAfter(delay)`; reads of Redis and PostgreSQL also after a lost"
    " connection",
    ObjectOf(
        AsyncRetryStrategy,
        "made by sparkawait.retry, a number of retries, or 0 for none",
        ErrorKind.RETRY_INVALID,
        {int: _retries},
        default=ONLY_REFUSED,
    ),
    type="AsyncRetryStrategy | int | None",
    of_task=True,
    shown="3 times what was not carried out",
)


# -- when a service asks to be called again, as HTTP says it and as the exceptions of clients hold
# it
#
# No client is imported: an exception is asked for what those of openai, httpx, requests, aiohttp,
# urllib and botocore have. Pure functions, for any thread.


_FORBIDDEN = 403
_TOO_MANY_REQUESTS = 429
_SERVICE_UNAVAILABLE = 503
_STATUSES = range(100, 600)


def announced_delay(error: BaseException) -> float | None:
    """Returns the seconds after which the response that `error` tells of wants to be asked again.

    Read are the headers in ``error.response.headers`` and ``error.headers``: ``Retry-After``,
    ``retry-after-ms``, and if the status is 429 or 403 those of limits that are used up. Of a group
    each member is asked, and the longest delay counts.

    Returns:
        ``None`` if it does not say.
    """
    return longest(_announced(leaf)[0] for leaf in leaves(error))


def announced_pause(error: BaseException) -> float | None:
    """Returns the same if no other call may be made until then either.

    With a status of 429 or 503, the service has too much to do for anybody. It is 0 if the service
    does not say for how long. A 403 counts only if it does.
    """
    return longest(map(_pause_said_by, leaves(error)))


def longest(delays: Iterable[float | None]) -> float | None:
    """Returns the longest of `delays`, ``None`` if there is none."""
    return max((delay for delay in delays if delay is not None), default=None)


def _pause_said_by(error: BaseException) -> float | None:
    delay, status = _announced(error)
    if status == _FORBIDDEN:
        return delay
    return (delay or 0.0) if status in (_TOO_MANY_REQUESTS, _SERVICE_UNAVAILABLE) else None


def _announced(error: BaseException) -> tuple[float | None, object]:
    """Returns the delay, and the status of the response."""
    try:
        response = getattr(error, "response", None)
        status = _status_of(error, response)
        for headers in (_headers_of(response), _headers_of(error)):
            delay = None if headers is None else _delay_in(headers, status)
            if delay is not None:
                return delay, status
    except Exception:  # noqa: BLE001 - a strange exception is retried like any other
        return None, None
    return None, status


def answered_status(error: BaseException) -> int | None:
    """Returns the status of the response that `error` tells of; ``None`` if it tells of none.

    Of a group it is that of the first member that tells of one.
    """
    return next((it for it in map(_status_of_one, leaves(error)) if it is not None), None)


def _status_of_one(error: BaseException) -> int | None:
    try:
        status = _status_of(error, getattr(error, "response", None))
        # An exception of urllib has it as `code`, and others have a code of their own there.
        is_one = type(status) is int and status in _STATUSES
    except Exception:  # noqa: BLE001 - a strange exception has no status
        return None
    return cast("int", status) if is_one else None


def encodable(text: str) -> str:
    """Returns a text that UTF-8 can encode, with question marks for what it cannot."""
    return text.encode("utf-8", "replace").decode()


def plain_headers(headers: Any) -> dict[str, str]:
    """Returns headers of any client, by their names in lower case.

    What comes in parts is put together as HTTP says; most clients do so, but aiohttp and urllib.
    """
    plain: dict[str, str] = {}
    for key, value in headers.items():
        name, text = encodable(str(key)).lower(), encodable(str(value))
        plain[name] = f"{plain[name]}, {text}" if name in plain else text
    return plain


def _headers_of(owner: object) -> Any:
    if isinstance(owner, Mapping):  # botocore
        metadata = cast("Mapping[str, Any]", owner).get("ResponseMetadata")
        return metadata and metadata.get("HTTPHeaders")
    return getattr(owner, "headers", None)


def _status_of(error: BaseException, response: object) -> object:
    if isinstance(response, Mapping):  # botocore
        metadata = cast("Mapping[str, Any]", response).get("ResponseMetadata")
        return metadata and metadata.get("HTTPStatusCode")
    # As httpx and requests, aiohttp, and urllib have it.
    owners = ((response, "status_code"), (error, "status"), (error, "code"))
    return next((it for owner, name in owners if (it := getattr(owner, name, None))), None)


def _delay_in(headers: Any, status: object) -> float | None:
    is_refused = status in (_FORBIDDEN, _TOO_MANY_REQUESTS)
    return _core.announced_delay(plain_headers(headers), is_refused)
