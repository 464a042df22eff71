# SPDX-License-Identifier: Apache-2.0
"""What errors are told of failed rows that are too many for `OnError`.

The core says whether they are: ``Tolerance`` for a task, ``FailAfter`` for a micro-batch. Runs on
the thread that takes the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from sparkawait import _core
from sparkawait._plan.plan import Chain
from sparkawait.exceptions import AsyncFunctionError, AsyncIOError, ErrorKind
from sparkawait.outcomes import OnError

__all__ = ["TooMany"]


class TooMany:
    """What the operators of a task bear.

    Args:
        chain: The calls.
        rows: Whose rows these are, in errors.
    """

    def __init__(self, chain: Chain, rows: str = "this task") -> None:
        """Has seen no failure yet."""
        self._operators = [(it.function_name, it.options.on_error) for it in chain.operators]
        self._rows = rows
        shares = (it for _, it in self._operators if it.stop_ratio is not None)
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

    def judge(self, judged: Sequence[tuple[int, int] | None]) -> None:
        """Fails for the first operator with too many failed rows.

        Args:
            judged: For each operator, how many rows have failed and how many have ended, where that
                is too many.

        Raises:
            AsyncFunctionError: If too many have failed.
        """
        for (name, on_error), counts in zip(self._operators, judged, strict=False):
            if counts is None:
                continue
            last = self._last.get(on_error.column or "", {})
            why = f"; one of them: {last['message']}" if last else ""
            msg = self._said(name, on_error, counts, "") + why
            kind = last.get("kind") or ErrorKind.USER_FUNCTION_FAILED
            raise AsyncFunctionError(msg, kind, status=last.get("status"))

    def judge_all(
        self, output: Iterable[pa.RecordBatch], metrics: Sequence[Mapping[str, Any]]
    ) -> None:
        """Looks at rows that have all ended, whose output is there.

        Raises:
            AsyncFunctionError: If too many have failed.
        """
        if any(it.stop_ratio is not None for _, it in self._operators):
            for batch in output:
                self.look_at(batch)
            known = zip(self._operators, metrics, strict=False)
            self.judge([_core.too_many(it.terms, *_of(counts)) for (_, it), counts in known])

    def tell(self, judged: Sequence[tuple[int, int] | None], error: AsyncIOError) -> None:
        """Has the error of a row say that the task failed because of many, where that is so."""
        for (name, on_error), counts in zip(self._operators, judged, strict=False):
            if counts is not None:
                last = self._last.get(on_error.column or "", {}).get("message")
                text = str(error)
                if on_error.column is not None:  # so there is no need to say how to see more
                    text = text.removesuffix(_ADVICE)
                said = self._said(name, on_error, counts, " that have ended")
                error.args = (f"{said}; one of them: {last or text}",)
                return

    def _said(self, name: str, on_error: OnError, counts: tuple[int, int], which: str) -> str:
        failed, ended = counts
        return (
            f"{failed} of the {ended} rows of {self._rows}{which} have failed in `{name}`"
            f" ({100 * failed / ended:.3g} %), which is too many for {on_error}: mend the cause,"
            " or allow more"
        )


_ADVICE = "; on_error='capture' shows its text"


def _of(counts: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the rows that have failed, and all that have ended."""
    failed, emitted = counts.get("failed", 0), counts.get("emitted", 0)
    return failed, failed + emitted + counts.get("dropped", 0)
