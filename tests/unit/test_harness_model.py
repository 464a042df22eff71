# SPDX-License-Identifier: Apache-2.0
"""The operator does what a naive model does, for any sequence of events.

Hypothesis prints the events of a failing run and how to repeat it.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparkawait import retry
from sparkawait.testing import OperatorTestHarness
from tests.support.operator_model import OperatorModel

DELAY = 3
TIMEOUT = 12
MAX_RETRIES = 2
KINDS = ["one", "one", "one", "one", "two", "none", "none", "error"]


def key_of(value: int) -> int | None:
    """Returns one of two keys, or none."""
    return value % 3 or None


def segments(output: list[Any]) -> list[Any]:
    """Returns the output with the records between two watermarks sorted."""
    parts: list[list[Any]] = [[]]
    for element in output:
        if element[0] == "watermark":
            parts += [[element], []]
        else:
            parts[-1].append(element)
    return [sorted(part, key=repr) for part in parts]


class OperatorMachine(RuleBasedStateMachine):
    """Tells a harness and a model the same, and compares them after each event."""

    @initialize(
        mode=st.sampled_from(["ordered", "unordered", "key_ordered"]),
        capacity=st.integers(1, 6),
        permits=st.integers(1, 6),
        timeout=st.sampled_from([None, TIMEOUT, TIMEOUT]),
        retries=st.booleans(),
        has_fallback=st.sampled_from([True, True, False]),
    )
    def open(
        self,
        *,
        mode: str,
        capacity: int,
        permits: int,
        timeout: int | None,
        retries: bool,
        has_fallback: bool,
    ) -> None:
        """Starts with an empty operator and its snapshot."""
        retries = retries and timeout is not None
        self.model = OperatorModel(
            mode=mode,
            capacity=capacity,
            max_concurrency=min(permits, capacity),
            timeout=timeout,
            max_retries=MAX_RETRIES if retries else 0,
            delay=DELAY,
            has_fallback=has_fallback,
        )
        self.harness = OperatorTestHarness(**self.options())
        self.values = 0
        self.is_order_exact = True
        self.emitted: list[Any] = []
        self.taken: list[int] = []
        self.answered_with_nothing: set[int] = set()
        self.take_snapshot()

    def options(self) -> dict[str, Any]:
        """Returns the options of the model for the harness."""
        model = self.model
        strategy = retry.fixed_delay(
            MAX_RETRIES, DELAY, if_result=retry.if_empty, if_exception=Exception
        )
        return {
            "mode": model.mode,
            "capacity": model.capacity,
            "max_concurrency": model.max_concurrency,
            "timeout": model.timeout,
            # What waits for a silent destination has tests of its own.
            "max_wait": 10**6,
            "retry": strategy if model.max_retries else None,
            "key": key_of if model.mode == "key_ordered" else None,
            "on_timeout": (lambda value: [("late", value)]) if model.has_fallback else None,
        }

    @property
    def is_open(self) -> bool:
        """Whether input may come."""
        return not self.model.failed and not self.model.input_ended

    @precondition(lambda self: self.is_open)
    @rule(count=st.integers(1, 3))
    def put(self, count: int) -> None:
        """Puts records; a full queue refuses them."""
        for _ in range(count):
            self.values += 1
            taken = self.harness.process_element(self.values, timestamp=self.values)
            assert taken == self.model.put(self.values, key_of(self.values))
            if taken:
                self.taken.append(self.values)

    @precondition(lambda self: self.is_open)
    @rule()
    def put_watermark(self) -> None:
        """Puts a watermark."""
        self.harness.process_watermark(self.values)
        self.model.put_watermark(self.values)
        self.run()

    @precondition(lambda self: self.harness.invocations)
    @rule(
        data=st.data(),
        kind=st.sampled_from(["one", "one", "two", "none", "error"]),
        now=st.booleans(),
    )
    def reply(self, data: st.DataObject, kind: str, now: bool) -> None:
        """Lets any call return, also one that did so before or was cancelled."""
        active = [call for call in self.harness.invocations if call.active]
        call = data.draw(st.sampled_from(active or self.harness.invocations), label="call")
        results = [(call.value, number) for number in range({"one": 1, "two": 2}.get(kind, 0))]
        if kind == "none":
            self.answered_with_nothing.add(call.value)
        if kind == "error":
            self.harness.fail(call, RuntimeError("Expected"))
        else:
            self.harness.complete(call, results)
        outcome = None if kind == "error" else results
        self.model.mail.append((call.value, call.attempt, outcome))
        if now:
            self.run()

    @precondition(lambda self: self.harness.invocations)
    @rule(data=st.data())
    def reply_late(self, data: st.DataObject) -> None:
        """Lets a call return that nobody may wait for any more."""
        call = data.draw(st.sampled_from(self.harness.invocations), label="call")
        self.harness.complete(call, [(call.value, 0)])
        self.model.mail.append((call.value, call.attempt, [(call.value, 0)]))

    @rule()
    def run(self) -> None:
        """Runs the mailbox."""
        self.harness.run()
        self.model.run()

    @rule(seconds=st.integers(1, 5))
    def advance(self, seconds: int) -> None:
        """Lets time pass."""
        for _ in range(seconds):
            self.run()
            active = {call.value for call in self.harness.invocations if call.active}
            self.model.running = active
            self.harness.advance(1)
            self.model.tick()

    @precondition(lambda self: not self.model.failed)
    @rule()
    def take_snapshot(self) -> None:
        """Takes a snapshot and remembers what was emitted before it."""
        self.run()
        if not self.model.failed:
            self.snapshot = self.harness.snapshot()
            before = self.emitted + self.harness.output
            self.saved = (copy.deepcopy(self.model), before, list(self.taken))

    @precondition(lambda self: not self.model.failed)
    @rule(capacity=st.integers(1, 6))
    def move(self, capacity: int) -> None:
        """Goes on in another operator, from a snapshot of this one."""
        self.take_snapshot()
        self.restore(capacity)

    @precondition(lambda self: self.model.failed)
    @rule(capacity=st.integers(1, 6))
    def restore(self, capacity: int) -> None:
        """Goes back to the last snapshot."""
        model, self.emitted, taken = self.saved
        self.taken = list(taken)
        self.is_order_exact = model.mode == "ordered" or capacity >= model.capacity
        self.model = model.restored(capacity)
        self.harness = OperatorTestHarness.restore(self.snapshot, **self.options())

    @precondition(lambda self: self.is_open and self.values > 10)
    @rule()
    def end_input(self) -> None:
        """Ends the input."""
        self.run()
        if not self.model.failed:
            self.harness.end_input()
            self.model.end_input()
            self.run()

    @invariant()
    def output_is_that_of_the_model(self) -> None:
        """Order, watermarks, and each outcome exactly once."""
        if self.model.mail:
            return
        assert (self.harness.failure is not None) == self.model.failed
        assert self.harness.finished == (self.model.is_finished or self.model.failed)
        if self.is_order_exact:
            assert self.harness.output == self.model.output
        else:
            assert segments(self.harness.output) == segments(self.model.output)

    @invariant()
    def the_bounds_hold(self) -> None:
        """Capacity, permits, and one call at a time per key."""
        calls = [call for call in self.harness.invocations if call.active]
        assert len(calls) <= self.model.max_concurrency
        if self.model.mode == "key_ordered":
            keys = Counter(key_of(call.value) for call in calls if key_of(call.value))
            assert all(count == 1 for count in keys.values())
        if not self.model.failed:
            assert self.harness.queue_size <= self.model.capacity

    @invariant()
    def the_calls_are_those_of_the_model(self) -> None:
        """As many as permits allow, of records that may run, each attempt once."""
        made = Counter((call.value, call.attempt) for call in self.harness.invocations)
        assert all(count == 1 for count in made.values())
        if self.model.mail or self.model.failed:
            return
        model = self.model
        calls = {call.value: call.attempt for call in self.harness.invocations if call.active}
        runnable = {record.value: record.attempt for record in model.runnable}
        assert calls.items() <= runnable.items()
        assert len(calls) == min(len(runnable), model.max_concurrency)
        assert self.harness.in_flight == len(calls)
        assert self.harness.queue_size == len(model.records)
        backing_off = [record for record in model.pending if record.back_off is not None]
        assert self.harness.pending_retries == len(backing_off)

    def teardown(self) -> None:
        """Brings the run to its end: every record that was taken had exactly one outcome."""
        self.run()
        if not self.model.failed and not self.model.input_ended:
            self.end_input_and_answer()
        if self.model.failed or not self.model.is_finished:
            return
        output = self.emitted + self.harness.output
        seen = Counter(element[2] for element in output if element[0] == "record")
        assert set(seen) <= set(self.taken) <= set(seen) | self.answered_with_nothing
        distinct = {repr(element) for element in output if element[0] == "record"}
        assert len(distinct) == sum(seen.values())

    def end_input_and_answer(self) -> None:
        """Ends the input and answers every call with one result."""
        self.harness.end_input()
        self.model.end_input()
        self.run()
        while calls := [call for call in self.harness.invocations if call.active]:
            for call in calls:
                self.harness.complete(call, [(call.value, 0)])
                self.model.mail.append((call.value, call.attempt, [(call.value, 0)]))
            self.run()
        self.output_is_that_of_the_model()
        assert self.harness.finished


OperatorMachine.TestCase.settings = settings(
    max_examples=200, stateful_step_count=60, deadline=None
)
TestOperator = pytest.mark.timeout(300)(OperatorMachine.TestCase)  # time to shrink a failure
