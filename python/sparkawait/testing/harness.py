# SPDX-License-Identifier: Apache-2.0
"""Drives the real operator by hand: one thread, a manual clock, no function."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from sparkawait import _core
from sparkawait._checks import choice, integer, optional_duration, refuse, shown
from sparkawait._core import HarnessSnapshot
from sparkawait.exceptions import (
    AsyncFunctionError,
    AsyncIOError,
    ElementTimeoutError,
    ErrorKind,
    OperatorStateError,
    ResultError,
)
from sparkawait.retry import RETRY, AsyncRetryStrategy, pause_after


def _check_callable(**given: object) -> None:
    for name, value in given.items():
        if value is not None and not callable(value):
            refuse(f"`{name}` must be callable, got {shown(value)}")


_NANOS = 1_000_000_000
_TIMEOUT_ATTEMPT = 0xFFFFFFFF
"""The attempt number of calls that ask what a timeout emits."""

Output = tuple[Literal["record"], Any, Any] | tuple[Literal["watermark"], int]


@dataclass(eq=False)
class Invocation:
    """One attempt that the operator started.

    Attributes:
        value: The element.
        attempt: From 1.
        timestamp: The element's timestamp.
        active: Whether its outcome is still awaited: false once completed or cancelled.
        cancelled: Whether the operator gave it up.
        entry: The operator's number of the element.
    """

    value: Any
    attempt: int
    timestamp: int | None
    active: bool = True
    cancelled: bool = False
    entry: int = field(default=0, repr=False)


@dataclass
class _Element:
    value: Any
    timestamp: int | None


class OperatorTestHarness:
    """The operator of one task under a manual clock.

    What a function would do is said with `complete` and `fail`; like replies from another thread
    they are mail, which takes effect with the next `run`. Time stands still until `set_time` or
    `advance`. At the end of input each record in back-off gets one immediate last attempt, as in
    Flink.

    Args:
        mode: ``"ordered"``, ``"unordered"`` or ``"key_ordered"``.
        capacity: Elements admitted and not yet emitted.
        max_concurrency: Calls in flight; `capacity` if ``None``.
        timeout: Seconds for an element and all its attempts, from the first one on; ``None`` for no
            bound.
        attempt_timeout: Seconds for one attempt.
        max_wait: Seconds for which an element waits in line once nothing has been answered for
            `timeout`; `timeout` if ``None``.
        retry: A strategy of `sparkawait.retry`, or a number of retries. Needs `timeout`.
        key: Gives the key of a value, in key-ordered mode. A value whose key is ``None`` waits for
            no other.
        on_timeout: Gives the results of a value whose time has passed, or that waited too long;
            without it, the value fails.

    Attributes:
        invocations: Every attempt started so far, in order.
        output: ``("record", result, timestamp)`` and ``("watermark", timestamp)``, in order.
        failure: The exception that failed the task, or ``None``.

    Raises:
        ConfigurationError: If an option is wrong.

    Examples:
        >>> harness = OperatorTestHarness(mode="ordered", capacity=2, timeout=5)
        >>> harness.process_element("a", timestamp=1)
        True
        >>> harness.complete(harness.invocations[0], ["A"])
        >>> harness.run()
        >>> harness.output
        [('record', 'A', 1)]
    """

    def __init__(
        self,
        *,
        mode: str = "ordered",
        capacity: int = 100,
        max_concurrency: int | None = None,
        timeout: float | None = None,
        attempt_timeout: float | None = None,
        max_wait: float | None = None,
        retry: AsyncRetryStrategy | int | None = None,
        key: Callable[[Any], Hashable] | None = None,
        on_timeout: Callable[[Any], list[Any]] | None = None,
    ) -> None:
        """Holds nothing yet."""
        choice(mode, "mode", "ordered", "unordered", "key_ordered")
        if mode == "key_ordered" and key is None:
            refuse("mode `key_ordered` needs `key`, a callable that gives the key of a value")
        _check_callable(key=key, on_timeout=on_timeout)
        integer(capacity, "capacity", 1, kind=ErrorKind.CAPACITY_NOT_POSITIVE)
        if max_concurrency is not None:
            kind = ErrorKind.MAX_CONCURRENCY_OUT_OF_RANGE
            integer(max_concurrency, "max_concurrency", 1, capacity, kind=kind)
        self._retry = None if retry is None else RETRY.check(retry, "retry")
        timeout = optional_duration(timeout, "timeout")
        attempt_timeout = optional_duration(attempt_timeout, "attempt_timeout")
        if attempt_timeout is not None and timeout is not None and attempt_timeout > timeout:
            refuse(
                f"`attempt_timeout` must not be above `timeout`, got {attempt_timeout}",
                ErrorKind.ATTEMPT_TIMEOUT_TOO_LONG,
            )
        if self._retry is not None and timeout is None:
            refuse("`retry` needs a `timeout`, got None", ErrorKind.RETRY_NEEDS_TIMEOUT)
        self._settings: dict[str, Any] = {
            "mode": mode,
            "capacity": capacity,
            "max_concurrency": capacity if max_concurrency is None else max_concurrency,
            "timeout": timeout,
            "attempt_timeout": attempt_timeout,
            "max_wait": optional_duration(max_wait, "max_wait"),
            "retry": self._retry,
            "asks_on_timeout": on_timeout is not None,
        }
        self._key = key
        self._on_timeout = on_timeout
        self._keys: dict[Hashable, int] = {}
        # Values, results and exceptions; the operator knows them by their place here.
        # The first stands for nothing.
        self._objects: list[Any] = [None]
        self._entries: dict[tuple[int, int], Invocation] = {}
        self._now = 0
        self._input_ended = False
        self.invocations: list[Invocation] = []
        self.output: list[Output] = []
        self.failure: BaseException | None = None
        self._core = _core.Harness(self._settings)

    @classmethod
    def restore(cls, snapshot: HarnessSnapshot, **options: Any) -> OperatorTestHarness:
        """Makes a harness that holds what was held when `snapshot` was taken.

        Elements without an outcome are called again, under the number of the attempt that was
        running; what was completed is emitted without a call. The clock starts at zero, and each
        element has the time left that it had.

        Args:
            snapshot: What `snapshot` returned.
            options: As for the constructor; they may differ from the first harness.

        Raises:
            ConfigurationError: If an option is wrong.
        """
        harness = cls(**options)
        harness._objects = list(snapshot.objects)
        harness._core = _core.Harness.restore(snapshot, harness._settings, harness._key_of)
        harness.run()
        return harness

    def snapshot(self) -> HarnessSnapshot:
        """Returns all that was admitted and not emitted, for `restore`; nothing changes."""
        return self._core.snapshot(tuple(self._objects))

    def process_element(self, value: Any, timestamp: int | None = None) -> bool:
        """Admits `value`; returns false, and takes nothing, while the queue is full.

        Raises:
            OperatorStateError: If the input has ended.
        """
        if self._input_ended:
            msg = "the input has ended; put elements before end_input()"
            raise OperatorStateError(msg, ErrorKind.OPERATOR_CLOSED)
        token = self._keep(_Element(value, timestamp))
        taken = self._core.process_element(token, timestamp, self._key_of(token))
        self._look()
        return taken

    def process_watermark(self, timestamp: int) -> None:
        """Puts a watermark behind the elements admitted so far."""
        self._core.process_watermark(timestamp)
        self._look()

    def complete(self, invocation: Invocation, results: list[Any]) -> None:
        """Lets `invocation` return `results`, at the next `run`. An old invocation is ignored."""
        if self._is_awaited(invocation):
            self._finish(invocation.entry, invocation.attempt, results)

    def fail(self, invocation: Invocation, exception: BaseException) -> None:
        """Lets `invocation` raise `exception`, at the next `run`. An old invocation is ignored."""
        if self._is_awaited(invocation):
            self._fail(invocation.entry, invocation.attempt, exception)

    def run(self) -> None:
        """Runs the mailbox until it is idle."""
        self._core.run()
        while self._look():
            self._core.run()

    def set_time(self, seconds: float) -> None:
        """Moves the clock; what comes due on the way takes effect in its order.

        Raises:
            ValueError: If `seconds` lies before the current time.
        """
        target = round(seconds * _NANOS)
        if target < self._now:
            msg = f"the clock is at {self._now / _NANOS} s and does not go back to {seconds} s"
            raise ValueError(msg)
        self.run()
        while (due := self._core.next_timer()) is not None and due <= target:
            self._now = max(self._now, due)
            self._core.set_now(self._now)
            self.run()
        self._now = target
        self._core.set_now(target)
        self.run()

    def advance(self, seconds: float) -> None:
        """Moves the clock by `seconds`."""
        self.set_time(self._now / _NANOS + seconds)

    def end_input(self) -> None:
        """Tells that no element will follow. Does not wait: see `finished`."""
        if not self._input_ended:
            self._input_ended = True
            self._core.end_input()
            self._look()

    def close(self) -> None:
        """Cancels all calls in flight; later outcomes are ignored."""
        self._core.close()
        self._look()

    @property
    def finished(self) -> bool:
        """Whether the input has ended and everything was emitted, or the task has failed."""
        return self._core.finished

    @property
    def in_flight(self) -> int:
        """Calls whose outcome is awaited."""
        return self._core.in_flight

    @property
    def queue_size(self) -> int:
        """Elements admitted and not emitted."""
        return self._core.queue_size

    @property
    def active_timers(self) -> int:
        """Timeouts armed and retries that wait for their time."""
        return self._core.active_timers

    @property
    def pending_retries(self) -> int:
        """Elements in back-off."""
        return self._core.pending_retries

    # -- outcomes

    def _is_awaited(self, invocation: Invocation) -> bool:
        return self._entries.get((invocation.entry, invocation.attempt)) is invocation

    def _finish(self, entry: int, attempt: int, results: Any) -> None:
        if not isinstance(results, list):
            self._fail(entry, attempt, _result_error(results))
            return
        retry = False
        if self._retry is not None and attempt != _TIMEOUT_ATTEMPT:
            try:
                retry = self._retry.retries_result(cast("list[Any]", results))
            except BaseException as raised:  # noqa: BLE001 - the failure of the element
                self._core.fail(entry, attempt, self._keep(raised), False, None, None)  # noqa: FBT003
                return
        self._core.complete(entry, attempt, self._keep(results), retry)

    def _fail(self, entry: int, attempt: int, error: BaseException) -> None:
        retry, delay, pause = False, None, pause_after(error)
        if self._retry is not None and attempt != _TIMEOUT_ATTEMPT:
            try:
                retry = self._retry.retries_exception(error)
            except BaseException as raised:  # noqa: BLE001 - replaces the failure
                error = raised
            if retry:
                delay = self._retry.delay_after(error)
        self._core.fail(entry, attempt, self._keep(error), retry, delay, pause)

    # -- what the operator did

    def _look(self) -> bool:
        """Takes note of what happened; returns whether that made new mail."""
        answered = False
        for name, entry, attempt, token, timestamp in self._core.take_events():
            if name == "invoke":
                self._on_invoke(entry, attempt, self._objects[token])
            elif name == "cancel":
                self._entries[entry, attempt].cancelled = True
            elif name == "record":
                for result in self._objects[token]:
                    self.output.append(("record", result, timestamp))
            elif name == "watermark":
                self.output.append(("watermark", timestamp))  # pyright: ignore[reportArgumentType]
            elif name == "ask":
                self._answer_timeout(entry, attempt, self._objects[token].value)
                answered = True
            else:
                self.failure = self._failure(name, attempt, token)
        for key, invocation in list(self._entries.items()):
            invocation.active = self._core.awaits(*key)
            if not invocation.active:
                del self._entries[key]
        return answered

    def _on_invoke(self, entry: int, attempt: int, element: _Element) -> None:
        invocation = Invocation(element.value, attempt, element.timestamp, entry=entry)
        self._entries[entry, attempt] = invocation
        self.invocations.append(invocation)

    def _answer_timeout(self, entry: int, attempt: int, value: Any) -> None:
        assert self._on_timeout is not None  # noqa: S101 - else nobody is asked
        try:
            results = self._on_timeout(value)
        except BaseException as error:  # noqa: BLE001 - the failure of the element
            self._fail(entry, attempt, error)
        else:
            self._finish(entry, attempt, results)

    def _failure(self, name: str, attempts: int, token: int) -> BaseException:
        times = f"{attempts} attempt{'' if attempts == 1 else 's'}"
        cause = self._objects[token]
        if name in {"timed out", "unavailable"}:
            msg, kind = f"the element timed out after {times}", ErrorKind.ELEMENT_TIMED_OUT
            if name == "unavailable":
                msg = f"the element waited for too long after {times}: nothing was answered"
                kind = ErrorKind.DESTINATION_UNAVAILABLE
            error = ElementTimeoutError(msg, kind, attempts=attempts)
        elif name == "refused":
            msg = f"the element was refused after {times}: its destination is paused"
            error = AsyncFunctionError(msg, ErrorKind.DESTINATION_PAUSED, attempts=attempts)
        elif isinstance(cause, AsyncIOError):
            return cause
        else:
            exhausted = name == "exhausted"
            kind = ErrorKind.RETRIES_EXHAUSTED if exhausted else ErrorKind.USER_FUNCTION_FAILED
            msg = f"the function failed after {times}: `{type(cause).__name__}`"
            error = AsyncFunctionError(msg, kind, attempts=attempts)
        error.__cause__ = cause
        return error

    # -- objects and their places

    def _keep(self, value: Any) -> int:
        self._objects.append(value)
        return len(self._objects) - 1

    def _key_of(self, token: int) -> int | None:
        if self._key is None:
            return None
        key = self._key(self._objects[token].value)
        return None if key is None else self._keys.setdefault(key, len(self._keys))


def _result_error(results: object) -> ResultError:
    name = type(results).__name__
    if results is None:
        msg = "the function must return a list of results, got None; return [] for no result"
        return ResultError(msg, ErrorKind.RESULT_IS_NONE)
    msg = f"the function must return a list of results, got `{name}`; return [result] for one"
    return ResultError(msg, ErrorKind.RESULT_NOT_A_LIST)
