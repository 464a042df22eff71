# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""What asks a model once more, where its answer breaks the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeGuard, cast

import pyarrow as pa

from sparkawait._checks import refuse
from sparkawait._plan.plan import Plan
from sparkawait._schema.answers import ANSWER, REASON
from sparkawait.functions import NativeFunction
from sparkawait.options import WaitOptions
from sparkawait.outcomes import OnError
from sparkawait.rate_limit import Budget, Lengths

__all__ = ["Again", "Run"]

Run = Callable[[Plan, Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_MOST_ASIDE = 10_000
"""Rows that are kept to be asked again at the end of a task."""
_MOST_BYTES = 1 << 30
"""And bytes of them, where they have to wait; those beyond it stay failed."""


class Again:
    """Asks again for rows whose answers break the rules, in a task of its own."""

    def __init__(
        self, plan: Plan, function: NativeFunction, run: Run, taken: Callable[[str], float]
    ) -> None:
        """Makes the plan of it."""
        if not plan.keeps_input:
            refuse(
                "`repair` reads the columns of its row again, which a function of a list, or one"
                " that makes a column, does not have; call it alone, by a wait function"
            )
        limits = plan.options.rate_limit.known
        is_shared = plan.sharing.stocks is not None
        self._budgets = [] if is_shared else [it for it in limits if _is_own(it)]
        self._taken = taken
        if self._budgets and plan.mode != "unordered":
            refuse(
                "`repair` and `budget` go together in unordered mode, or where tasks share budgets:"
                " in a job of Spark"
            )
        own = WaitOptions(on_error=OnError("capture", column="sparkawait_error"), info=None)
        # What was said, and what is wrong with it, is paid for, too.
        known = [
            replace(it, cost=replace(it.cost, columns=(*it.cost.columns, ANSWER, REASON)))
            if isinstance(it, Budget) and isinstance(it.cost, Lengths)
            else it
            for it in limits
        ]
        if known:
            own = WaitOptions(rate_limit=cast("Any", known)).over(own)
        options = own.over(plan.options)
        journal = plan.journal
        if journal is not None:
            # The same row, and another question, in which is what was said and what was wrong.
            columns = journal.columns and (*journal.columns, ANSWER, REASON)
            identity = journal.identity + b" again"
            journal = replace(journal, identity=identity, columns=columns)
        cache = options.cache
        if cache is not None and cache.columns:
            key = [*cache.columns, ANSWER, REASON]
            options = WaitOptions(cache=cache.with_key(key)).over(options)
        self._plan = replace(
            plan,
            function=function,
            mode="ordered",
            options=options,
            branches=(),
            hidden=(),
            journal=journal,
            identity=f"{plan.identity} again",
        )
        self._run = run
        self._aside: list[tuple[pa.RecordBatch, list[str]]] = []
        self._kept = self._kept_bytes = 0

    @property
    def waits(self) -> bool:
        """Whether it asks only when all calls of the task have ended, and it knows what is left."""
        return bool(self._budgets)

    def has_room(self, rows: pa.RecordBatch) -> bool:
        """Whether more rows may be kept aside until the task ends."""
        size = self._kept_bytes + rows.nbytes
        most = _MOST_BYTES if self.waits else _MOST_BYTES // 16
        return size <= most and (self.waits or self._kept + rows.num_rows <= _MOST_ASIDE)

    def keep(self, batch: pa.RecordBatch, reasons: list[str]) -> None:
        """Keeps rows aside."""
        self._aside.append((batch, reasons))
        self._kept += len(reasons)
        self._kept_bytes += batch.nbytes

    def take_all(self) -> Iterator[tuple[pa.RecordBatch, list[str]]]:
        """Yields all rows that were kept, at once."""
        if self._aside:
            batches, reasons = zip(*self._aside, strict=True)
            self._aside, self._kept, self._kept_bytes = [], 0, 0
            whole = pa.Table.from_batches(batches).combine_chunks()
            yield whole.to_batches()[0], [it for some in reasons for it in some]

    def answered(self, rows: pa.RecordBatch, said: Any, reasons: list[str]) -> pa.RecordBatch:
        """Returns what is brought for rows, and the failures behind it."""
        asked = pa.RecordBatch.from_arrays(
            [*rows.columns, said, pa.array(reasons, pa.string())],
            names=[*rows.schema.names, ANSWER, REASON],
        )
        plan = self._plan
        if self._budgets:
            # All calls of the task have ended: what they have left of a budget is known.
            known = [self._left(it) for it in plan.options.rate_limit.known]
            options = WaitOptions(rate_limit=cast("Any", known)).over(plan.options)
            plan = replace(plan, options=options)
        found = list(self._run(plan, iter([asked])))
        whole = pa.Table.from_batches(found).combine_chunks().to_batches()[0]
        return whole.select(range(asked.num_columns, whole.num_columns))

    def _left(self, limit: Any) -> Any:
        if not _is_own(limit):
            return limit
        return replace(limit, total=max(limit.total - self._taken(limit.label), 1e-6))


def _is_own(limit: object) -> TypeGuard[Budget]:
    """Tells whether it is a budget that no server keeps, so that each task has its own."""
    return isinstance(limit, Budget) and limit.server is None
