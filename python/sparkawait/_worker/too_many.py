# SPDX-License-Identifier: Apache-2.0
"""Whether a task has too many failed rows to end well, as `OnError` bounds them.

While rows are called the operator looks; here a share of them is looked at when all have ended, and
errors are told what has been too many. Runs on the thread that takes the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from sparkawait._plan.plan import Chain
from sparkawait.exceptions import AsyncFunctionError, ErrorKind, add_note
from sparkawait.functions import FunctionContext

__all__ = ["TooMany"]


class TooMany:
    """What the operators of a task bear.

    Args:
        chain: The calls.
        contexts: Those of the operators, which count rows that a class refused; none if they are
            not looked at.
        rows: Whose rows these are, in errors.
    """

    def __init__(
        self, chain: Chain, contexts: Sequence[FunctionContext] | None, rows: str = "this task"
    ) -> None:
        """Has seen no failure yet."""
        of = [None] * len(chain.operators) if contexts is None else contexts
        self._operators = [
            (plan.function_name, plan.options.on_error, context)
            for plan, context in zip(chain.operators, of, strict=True)
        ]
        self._rows = rows
        shares = (it for _, it, _ in self._operators if it.stop_ratio is not None)
        self._is_judged = False
        self._last: dict[str, dict[str, Any]] = {}
        self._captured = [it.column for it in shares if it.column is not None]

    def look_at(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Remembers a failure of each column, since the error at the end has to say why."""
        for name in self._captured:
            at = batch.schema.get_field_index(name)
            if at < 0:
                continue
            column = cast("Any", batch.column(at))
            if column.null_count < batch.num_rows:
                self._last[name] = column.drop_null()[-1].as_py()
        return batch

    def judge(self, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Looks at all rows of the task, which have ended.

        Raises:
            AsyncFunctionError: If too many have failed.
        """
        self._is_judged = True
        for (name, on_error, context), counts in zip(self._operators, metrics, strict=False):
            failed, ended = _failed_and_ended(counts, context)
            if not on_error.is_reached_at_end(failed, ended):
                continue
            last = self._last.get(on_error.column or "", {})
            why = f"; one of them: {last['message']}" if last else ""
            msg = (
                f"{failed} of the {ended} rows of {self._rows} have failed in `{name}`, which is"
                f" too many for {on_error}{why}"
            )
            kind = last.get("kind") or ErrorKind.USER_FUNCTION_FAILED
            raise AsyncFunctionError(msg, kind, status=last.get("status"))

    def judge_all(
        self, output: Iterable[pa.RecordBatch], metrics: Sequence[Mapping[str, Any]]
    ) -> None:
        """Looks at rows that have all ended, whose output is there.

        Raises:
            AsyncFunctionError: If too many have failed.
        """
        if any(it.stop_ratio is not None for _, it, _ in self._operators):
            for batch in output:
                self.look_at(batch)
            self.judge(metrics)

    def note(self, metrics: Sequence[Mapping[str, Any]], error: AsyncFunctionError) -> None:
        """Says that a task failed because of many rows, and not of the one in the error."""
        for (name, on_error, context), counts in zip(self._operators, metrics, strict=False):
            failed, ended = _failed_and_ended(counts, context)
            if not self._is_judged and on_error.is_reached(failed, ended):
                add_note(
                    error,
                    f"{failed} rows of `{name}` have failed, of {ended} in this task that have"
                    f" ended, which is too many for {on_error}",
                )


def _failed_and_ended(
    counts: Mapping[str, Any], context: FunctionContext | None
) -> tuple[int, int]:
    """Returns the rows that have failed, and all that have ended."""
    # A class refuses rows that the operator has emitted.
    refused = 0 if context is None else int(dict(context.metrics).get("refused", 0))
    failed, emitted = counts.get("failed", 0), counts.get("emitted", 0)
    return failed + refused, failed + emitted + counts.get("dropped", 0)
