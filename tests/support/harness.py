# SPDX-License-Identifier: Apache-2.0
"""Short words for driving an `OperatorTestHarness` by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sparkawait.testing import OperatorTestHarness

Function = Callable[[Any], list[Any]]


def double(value: int) -> list[int]:
    """Answers with one result, twice the value."""
    return [2 * value]


def put(harness: OperatorTestHarness, *values: Any) -> None:
    """Puts values into a queue that has room; the timestamp of an int is itself."""
    for value in values:
        timestamp = value if isinstance(value, int) else None
        assert harness.process_element(value, timestamp=timestamp)


def put_blocking(
    harness: OperatorTestHarness, value: Any, timestamp: int, function: Function
) -> None:
    """Puts a value; while the queue is full, lets the oldest call in flight return."""
    while not harness.process_element(value, timestamp=timestamp):
        oldest = running(harness)[0]
        harness.complete(oldest, function(oldest.value))
        harness.run()


def running(harness: OperatorTestHarness) -> list[Any]:
    """Returns the calls in flight, in the order in which they started."""
    return [invocation for invocation in harness.invocations if invocation.active]


def calls(harness: OperatorTestHarness) -> list[tuple[Any, int]]:
    """Returns value and attempt number of every call so far."""
    return [(invocation.value, invocation.attempt) for invocation in harness.invocations]


def call_of(harness: OperatorTestHarness, value: Any) -> Any:
    """Returns the call in flight for `value`."""
    (call,) = [invocation for invocation in running(harness) if invocation.value == value]
    return call


def complete(harness: OperatorTestHarness, value: Any, *results: Any) -> None:
    """Lets the call in flight for `value` return `results`, and runs the mailbox."""
    harness.complete(call_of(harness, value), list(results))
    harness.run()


def fail(harness: OperatorTestHarness, value: Any, error: BaseException) -> None:
    """Lets the call in flight for `value` raise `error`, and runs the mailbox."""
    harness.fail(call_of(harness, value), error)
    harness.run()


def answer(harness: OperatorTestHarness, function: Function, *, newest_first: bool = False) -> None:
    """Lets calls return, one burst after the other, until none is in flight."""
    while burst := running(harness):
        for call in reversed(burst) if newest_first else burst:
            harness.complete(call, function(call.value))
        harness.run()


def finish(harness: OperatorTestHarness, function: Function) -> None:
    """Ends the input and lets every call return; the harness must come to its end."""
    harness.end_input()
    harness.run()
    answer(harness, function)
    assert harness.finished


def records(harness: OperatorTestHarness) -> list[tuple[Any, int | None]]:
    """Returns the emitted results with their timestamps."""
    return [(element[1], element[2]) for element in harness.output if element[0] == "record"]


def results(harness: OperatorTestHarness) -> list[Any]:
    """Returns the emitted results."""
    return [result for result, _ in records(harness)]


def record(result: Any, timestamp: int | None) -> tuple[str, Any, int | None]:
    """Returns the output element of one result."""
    return ("record", result, timestamp)


def watermark(timestamp: int) -> tuple[str, int]:
    """Returns the output element of a watermark."""
    return ("watermark", timestamp)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an exception and everything it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def assert_failed_with(harness: OperatorTestHarness, expected: BaseException) -> None:
    """Asserts that `expected` failed the task and that nothing is left of the task's work."""
    assert expected in list(causes(harness.failure))
    assert_idle(harness)


def assert_idle(harness: OperatorTestHarness) -> None:
    """Asserts that no call, timer or retry is left."""
    assert not running(harness)
    left = (harness.in_flight, harness.active_timers, harness.pending_retries)
    assert left == (0, 0, 0)
