# SPDX-License-Identifier: Apache-2.0
"""What may come out of a case, by what its functions were called for.

It follows no clock: a call that was made and what it came to decide what its row may be.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

import sparkawait as sa
from sparkawait.rate_limit import ALONE
from tests.support.combinations.calls import Call, Calls, ident_of
from tests.support.combinations.drawing import LATE, Case, Part

__all__ = ["breaches"]

FAILED = ("user-function-failed", "retries-exhausted")
REFUSED = ("request-refused",)
TIMED_OUT = ("element-timed-out", "destination-unavailable")
NEVER_CALLED = ("destination-paused", "destination-unavailable")


@dataclass(frozen=True)
class End:
    """A way in which a row may end: with results, or as a failure of some kind."""

    results: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    @property
    def is_failure(self) -> bool:
        return bool(self.kinds)


def end_of(part: Part, call: Call) -> End:
    """Returns how a row ends whose last call was this one."""
    if call.state == "answered":
        return End(tuple(call.results))
    is_refused = part.kind == "http" and call.error == "refuses"
    return End(kinds=REFUSED if is_refused else FAILED)


def wants_retry(part: Part, call: Call) -> bool:
    """Whether `retry` asks for another call after this one, however many there were."""
    retry = part.retry
    if retry is None:
        return False
    if call.state == "answered":
        asks = retry.retry_misses or retry.if_result is not None
        return asks and not call.results
    if call.error == "asks":
        return True
    if part.kind == "http":
        is_worth_it = call.status == 503 or (part.idempotent and not retry.only_refused)
        return call.error == "raises" and is_worth_it
    by_exception = call.error == "raises" if retry.if_exception is not None else not retry.if_result
    return by_exception and not retry.only_refused


def is_drop(part: Part, call: Call) -> bool:
    """Whether a call may have been lost on its destination."""
    return call.state != "answered" and (call.state != "failed" or wants_retry(part, call))


def may_be_uncounted(calls: Calls, of_row: Sequence[Call]) -> list[int]:
    """Returns the numbers of the calls of a row that may have taken none of its tries.

    Where a circuit breaker holds rows, a call that is dropped takes no try if the one before it was
    dropped, too, and the destination has answered nothing since then. A retry begins when that drop
    is known, so an answer while it runs is one since then, if the task has heard of it.
    """
    part = calls.part
    # Threads and connections overtake one another, and nobody hears what a call that was given up
    # answers.
    if part.kind == "http" or part.is_plain or part.has_limits_in_time:
        return [it.number for it in of_row[1:]] if part.holds else []
    return [
        second.number
        for _, second in _drops_in_a_row(part, of_row)
        if not any(
            second.began < it.ended < (second.ended or math.inf)
            for it in _all(calls)
            if it.ended is not None
            and (it.state == "answered" or it.error == "refuses")
            and _are_of_one_channel(part, it, second)
        )
    ]


def uncounted(calls: Calls, of_row: Sequence[Call]) -> list[int]:
    """Returns the numbers of those that have taken no try for certain.

    The task may hear of several calls at once, the answers first. So here no call may have been
    answered from the end of the dropped one on, up to the end of all.
    """
    may_be_answers = [it for it in _all(calls) if not is_drop(calls.part, it)]
    since = max((it.ended or 0 for it in may_be_answers), default=-1)
    drops = _drops_in_a_row(calls.part, of_row)
    return [second.number for first, second in drops if (first.ended or -1) > since]


def _drops_in_a_row(part: Part, of_row: Sequence[Call]) -> list[tuple[Call, Call]]:
    if not part.holds:
        return []
    return [
        (first, second)
        for first, second in pairwise(of_row)
        if is_drop(part, first) and is_drop(part, second)
    ]


def _all(calls: Calls) -> list[Call]:
    return [it for of_row in calls.of.values() for it in of_row]


def _are_of_one_channel(part: Part, one: Call, other: Call) -> bool:
    return "channel" not in part.options or one.row["c"] == other.row["c"]


def is_exact(part: Part, calls: Calls) -> bool:
    """Whether the calls of a row say how it ends, whatever time they took."""
    options = part.options
    splits = part.batch is not None and part.batch.split_on_error
    shares = options.get("cache") is not None
    breaker = options.get("circuit_breaker")
    refuses = breaker is not None and breaker.when_open == "fail"
    return not (part.has_limits_in_time or splits or shares or refuses) and not calls.broken


def ends_of(calls: Calls, ident: str, row: Mapping[str, Any]) -> Iterator[End]:
    """Yields every way in which a row may end."""
    part, options = calls.part, calls.part.options
    of_row = calls.of.get(ident, [])
    if is_exact(part, calls):
        if of_row:
            last = of_row[-1]
            yield end_of(part, last)
        return
    if options.get("cache") is not None:
        of_row = [it for all_of in calls.of.values() for it in all_of if it.row["k"] == row["k"]]
    for call in of_row:
        if call.state in ("answered", "failed"):
            yield end_of(part, call)
    if may_run_out_of_time(part, of_row):
        yield End(kinds=TIMED_OUT)
        if "on_timeout" in options:
            yield End((LATE,))
    if options.get("circuit_breaker") is not None:
        yield End(kinds=NEVER_CALLED)


def may_run_out_of_time(part: Part, of_row: Sequence[Call]) -> bool:
    """Whether a row with these calls may have had too little time."""
    if "timeout" in part.options:
        return True
    # The time of an attempt of a batched function begins with its call, or the wait for a thread.
    waits = part.kind == "batch" and "cache" not in part.options
    waits = waits and not part.is_plain
    return "attempt_timeout" in part.options and (bool(of_row) or not waits)


class Model:
    """Compares what came out with what may."""

    def __init__(self, case: Case, calls: Sequence[Calls], out: Sequence[pa.RecordBatch]) -> None:
        self.case, self.calls, self.out = case, calls, out
        self.found = [row for batch in out for row in batch.to_pylist()]

    def breaches(self, *, has_failed: bool) -> Iterator[str]:
        """Yields each rule that is broken.

        Args:
            has_failed: Whether the task ended with the failure of a row.
        """
        for calls in self.calls:
            yield from calls.broken
            yield from self._of_calls(calls, is_whole=self.case.ends == "well" and not has_failed)
        tail = self.case.rows[len(self.case.rows) - self.case.tail :]
        if tail and not any(str(row["id"]) in self.calls[0].of for row in tail):
            yield "rows are not called although nothing else is there"
        yield from self._of_rows(is_whole=self.case.ends == "well" and not has_failed)
        yield from self._of_order()
        yield from self._of_batches()
        yield from self._of_info()
        fails = [it.part.on_error == "fail" or self._has_many_failures(it) for it in self.calls]
        if has_failed and not any(fails):
            yield "the task failed although no failure of a row fails it"
        if not has_failed:
            yield from self._of_failures()

    # --- failures

    def _has_many_failures(self, calls: Calls) -> bool:
        """Whether so many rows may have failed that the task does."""
        many, rows = calls.part.options["on_error"], {str(it["id"]): it for it in self.case.rows}
        if not isinstance(many, sa.OnError):
            return False
        idents = set(calls.of) if calls.part.number and self.case.shape != "beside" else set(rows)
        failed = 0
        for ident in idents:
            row = rows[ident.split("#")[0]]
            failed += any(end.is_failure for end in ends_of(calls, ident, row))
        return failed >= (1 if many.stop_ratio else many.stop_after)

    def _of_failures(self) -> Iterator[str]:
        """Yields where a task went on although too many of its rows had failed."""
        if self.case.shape not in ("one", "beside"):
            return  # a row may be there more than once
        for calls in self.calls:
            many, value = calls.part.options["on_error"], f"y{calls.part.number}"
            failed = sum(row[value] is None for row in self.found)
            if not isinstance(many, sa.OnError):
                continue
            ended = len(self.case.rows)
            if many.stop_ratio is None and failed >= many.stop_after:
                yield f"{failed} rows failed of {many}"
            if many.stop_ratio is not None and ended >= 20 and failed >= many.stop_ratio * ended:
                yield f"{failed} of {ended} rows failed of {many}"

    # --- calls

    def _of_calls(self, calls: Calls, *, is_whole: bool) -> Iterator[str]:
        part = calls.part
        if part.kind != "http" and calls.running:
            yield f"{len(calls.running)} calls ran on after the end"
        splits = part.batch is not None and part.batch.split_on_error
        for ident, of_row in calls.of.items():
            uncounted = len(may_be_uncounted(calls, of_row))
            most = (part.max_attempts + uncounted) * (2 if "hedge" in part.options else 1)
            if len(of_row) > most and not splits:
                yield f"row {ident}: {len(of_row)} calls of {most}"
            if is_whole and is_exact(part, calls):
                yield from self._of_retries(calls, ident, of_row)
            may_not = not calls.is_repeatable and "hedge" not in part.options
            if "attempt_timeout" in part.options and may_not:
                for call in of_row[:-1]:
                    if call.state in ("cancelled", "running"):
                        yield f"row {ident}: called again after a call that may have been made"
        yield from self._of_limits(calls)

    def _of_retries(self, calls: Calls, ident: str, of_row: Sequence[Call]) -> Iterator[str]:
        part, may, must = calls.part, may_be_uncounted(calls, of_row), uncounted(calls, of_row)
        for number, call in enumerate(of_row, 1):
            is_last = number == len(of_row)
            known = sum(it <= number for it in (must if is_last else may))
            asks = wants_retry(part, call) and number < part.max_attempts + known
            if asks == is_last:
                what = call.error or call.state
                yield f"row {ident}: call {number} of {len(of_row)} ended with {what}"

    def _of_limits(self, calls: Calls) -> Iterator[str]:
        for limit in _known_limits(calls.part):
            terms = limit.terms("f", ALONE)
            spent: Counter[Any] = Counter()
            for at, row in sorted(calls.starts, key=lambda it: it[0]):
                channel = row["c"] if limit.per_channel else None
                spent[channel] += row["w"] if limit.cost == "w" else limit.cost
                # Calls may be noted late, never early, so this holds however slow the machine is.
                nanos = (at - calls.began_at) * 1e9
                allowed = terms.burst + terms.permits * nanos / terms.period_nanos + 1
                if spent[channel] > allowed:
                    yield f"{spent[channel]} permits of {limit.rate} spent of {allowed:.1f}"
                    return

    # --- rows

    def _of_rows(self, *, is_whole: bool) -> Iterator[str]:
        of_id: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in self.found:
            of_id[row["id"]].append(row)
        for row in self.case.rows:
            rows = of_id.pop(row["id"], [])
            if not is_whole and not rows:
                continue
            if not self._fits(row, rows, is_whole=is_whole):
                shown = [{k: v for k, v in it.items() if k[0] in "ye"} for it in rows]
                history = [
                    (it.number, it.state, it.error)
                    for calls in self.calls
                    for ident, of_row in calls.of.items()
                    for it in of_row
                    if ident.split("#")[0] == str(row["id"])
                ]
                yield f"row {row['id']} came out as {str(shown)[:300]} after {history[:9]}"
        if of_id:
            yield f"rows that are none of the input: {list(of_id)[:5]}"

    def _fits(self, row: Mapping[str, Any], rows: list[Any], *, is_whole: bool) -> bool:
        if self.case.shape == "beside":
            return len(rows) == 1 and all(
                self._fits_one(calls, str(row["id"]), row, rows, is_whole=is_whole)
                for calls in self.calls
            )
        first = self.calls[0]
        if len(self.calls) == 1:
            return self._fits_one(first, str(row["id"]), row, rows, is_whole=is_whole)
        return any(
            self._fits_chain(slots, row, rows, is_whole=is_whole)
            for slots in self._slots(first, str(row["id"]), row)
        )

    def _slots(
        self, calls: Calls, ident: str, row: Mapping[str, Any]
    ) -> Iterator[list[tuple[str | None, tuple[str, ...]]]]:
        """Yields the results that a row may have, each with the kinds of the failure that it is."""
        on_error = calls.part.on_error
        for end in ends_of(calls, ident, row):
            if not end.is_failure:
                yield [(result, ()) for result in end.results]
            elif on_error in ("null", "capture"):
                yield [(None, end.kinds)]
            else:
                yield []

    def _fits_one(
        self,
        calls: Calls,
        ident: str,
        row: Mapping[str, Any],
        rows: list[Any],
        *,
        is_whole: bool,
    ) -> bool:
        value, error = f"y{calls.part.number}", f"e{calls.part.number}"
        captures = calls.part.on_error == "capture"
        for slots in self._slots(calls, ident, row):
            if len(rows) != len(slots) and (is_whole or len(rows) > len(slots)):
                continue
            pairs = zip(rows, slots, strict=False)
            if all(
                it[value] == result
                and (not captures or ((it[error] or {}).get("kind") in (kinds or (None,))))
                for it, (result, kinds) in pairs
            ):
                return True
        return False

    def _fits_chain(
        self,
        slots: list[tuple[str | None, tuple[str, ...]]],
        row: Mapping[str, Any],
        rows: list[Any],
        *,
        is_whole: bool,
    ) -> bool:
        """Whether rows are what the second function may make of these results of the first."""
        left = list(rows)
        for result, _ in slots:
            ident = ident_of({**row, "y0": result}, 1, self.case.shape)
            mine = [it for it in left if it["y0"] == result]
            left = [it for it in left if it["y0"] != result]
            if not is_whole and not mine:
                continue
            if not self._fits_one(self.calls[1], ident, row, mine, is_whole=is_whole):
                return False
        return not left

    # --- what is told of calls

    def _of_info(self) -> Iterator[str]:
        """Yields where what is told of the calls of a row is not what was called."""
        for calls in self.calls:
            name = calls.part.options.get("info")
            for row in self.found if name is not None else ():
                ident = ident_of(row, calls.part.number, self.case.shape)
                told, of_row = row[name], calls.of.get(ident, [])
                if (told["attempts"] > 0) > (told["seconds"] is not None):
                    yield f"row {ident}: {told} has no times"
                if is_exact(calls.part, calls):
                    expected = _told_of(calls.part, row, of_row)
                    found = {name: told[name] for name in expected}
                    if found != expected:
                        yield f"row {ident}: {found} is told, {expected} were made"

    # --- order and batches

    def _of_order(self) -> Iterator[str]:
        ids = [row["id"] for row in self.found]
        if self.case.mode == "ordered" and ids != sorted(ids):
            yield "rows are out of order"
        if self.case.mode == "key_ordered":
            for key in {row["k"] for row in self.found} - {None}:
                of_key = [row["id"] for row in self.found if row["k"] == key]
                if of_key != sorted(of_key):
                    yield f"rows of key {key} are out of order"
        if "watermark" in self.case.common:
            runs = list(self._runs())
            crossed = [runs[number] for number in ids]
            if crossed != sorted(crossed):
                yield "rows crossed a watermark"

    def _runs(self) -> Iterator[int]:
        """Yields between which watermarks each row is."""
        every, run = self.case.common["watermark"].every, 0
        for length in self.case.lengths:
            for place in range(length):
                if every is not None and place and place % every == 0:
                    run += 1
                yield run
            run += 1

    def _of_batches(self) -> Iterator[str]:
        output = self.case.common.get("tuning", sa.Tuning())
        sizes_of_texts = {"64 MB": 64 << 20, "20 KB": 20 << 10}
        most_rows, bound = output.max_rows, sizes_of_texts.get(output.max_bytes, output.max_bytes)
        for batch in self.out:
            if not 0 < batch.num_rows <= most_rows:
                yield f"a batch has {batch.num_rows} rows of {most_rows}"
            sizes = [_bytes_of(row) for row in batch.to_pylist()]
            if len(sizes) > 1 and sum(sizes) > bound:
                yield f"a batch of {len(sizes)} rows has {sum(sizes)} bytes of {bound}"


def _known_limits(part: Part) -> list[sa.RateLimit]:
    """Returns the limits of a function; a rate that is found may be any."""
    return [it for it in part.options.get("rate_limit", ()) if it != "adaptive"]


def _told_of(part: Part, row: Mapping[str, Any], of_row: Sequence[Call]) -> dict[str, Any]:
    """Returns what `info` must tell of a row whose calls were these."""
    told: dict[str, Any] = {"attempts": len(of_row), "cached": False, "hedged": False}
    costs = [it.cost for it in _known_limits(part) if it.cost != 1]
    price = row["w"] if costs and costs[0] == "w" else next(iter(costs), None)
    told["cost"] = None if price is None else price * len(of_row)
    if part.kind == "http" and of_row:
        last = of_row[-1]
        statuses = {"results": 200, "raises": last.status, "refuses": 400, "asks": 429}
        told["status"] = statuses[last.deed]
    return told


def _bytes_of(row: Mapping[str, Any]) -> int:
    """Counts the bytes of a row that nobody could leave out: texts of results and of failures."""
    errors = [row[name]["message"] for name in ("e0", "e1") if row.get(name) is not None]
    results = [row[name] for name in ("y0", "y1") if row.get(name) is not None]
    return sum(len(text.encode()) for text in errors + results)


def breaches(
    case: Case, calls: Sequence[Calls], out: Sequence[pa.RecordBatch], *, has_failed: bool
) -> list[str]:
    """Returns each rule that a case breaks."""
    return list(Model(case, calls, out).breaches(has_failed=has_failed))
