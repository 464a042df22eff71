# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""What rows of native functions go through when they leave their task.

```text
  batches of the task --> answers of models become columns --> rules of the class --> on_error
                                  ^                                  |
                                  +---- asked again, once <----------+
```

On the thread that takes batches out of the task. There nothing holds up a call: the thread of the
connections, on which results are made, never asks for the GIL. So a row that is refused has ended
for the operator: it is not counted as failed, and what is asked again is a task of its own, with
the same options and limits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as _compute

from sparkawait import _core
from sparkawait._checks import fields_within, nullable
from sparkawait._plan.plan import Chain, Plan
from sparkawait._schema.answers import USAGE, Answers
from sparkawait._schema.types import Model
from sparkawait._values.results import ResultBuilder
from sparkawait.arrow.again import Again, Run
from sparkawait.exceptions import AsyncFunctionError, ErrorKind, ResultError, described
from sparkawait.functions import FunctionContext, NativeFunction
from sparkawait.outcomes import ERROR_TYPE

__all__ = ["checks_of", "judge_of", "leaving"]

pc = cast("Any", _compute)
_MOST_SHOWN = 3
_MISMATCH = ErrorKind.RESULT_SCHEMA_MISMATCH
_MOST_WORDS = 300

Failures = dict[int, tuple[ErrorKind, str]]
"""What is wrong with rows of a batch."""


class Check(ABC):
    """What the output of a task goes through."""

    @abstractmethod
    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns what leaves of a batch."""

    def late(self) -> Iterator[pa.RecordBatch]:
        """Yields what leaves behind the last batch."""
        yield from ()

    @abstractmethod
    def failures(self, results: pa.RecordBatch) -> Failures:
        """Returns which results fail when they leave, as a journal has to know."""

    def costs(self, results: pa.RecordBatch) -> Any:  # noqa: ARG002 - others look at them
        """Returns what the calls of results have cost; ``None`` if limits know that."""
        return None


def judge_of(plan: Plan) -> Check | None:
    """Returns what finds results of a call that fail when they leave; nothing if none does."""
    function = plan.function
    if not isinstance(function, NativeFunction):
        return None

    def refuse(_failed: int, _seen: int) -> bool:
        return False

    of_call = len(plan.result_schema), FunctionContext(0, function.name), refuse
    if function.answers is not None:
        return _AnswerCheck(plan, function.answers, *of_call)
    if function.rules is not None:
        return _ModelCheck(plan, function.rules, *of_call)
    return None


def checks_of(
    chain: Chain, task: _core.Task, contexts: list[FunctionContext], run: Run
) -> list[Check]:
    """Returns what the output of a chain has to go through, in this order.

    Args:
        chain: The calls; only functions of the last one have rules, or answers to be read.
        task: Their operators, which say how many rows may be refused.
        contexts: Those of its operators, which count what is refused.
        run: Runs a plan over batches, as a task of its own.
    """
    plan = chain.plans[-1]
    calls = plan.branches or (plan,)
    checks: list[Check] = []
    # From the end, as columns of a row may have been added or left out before.
    widths = [len(it.result_schema) + len(it.told_fields) for it in calls]
    from_end, first = sum(widths), len(contexts) - len(calls)
    for position, (call, width) in enumerate(zip(calls, widths, strict=True), first):
        function = call.function
        if isinstance(function, NativeFunction):
            refused = partial(task.refuse, position)
            if function.answers is not None:
                check = _AnswerCheck(call, function.answers, from_end, contexts[position], refused)
                checks.append(check.asking(run, partial(_taken_of, task, position)))
            elif function.rules is not None:
                check = _ModelCheck(call, function.rules, from_end, contexts[position], refused)
                checks.append(check)
        from_end -= width
    return checks


def leaving(
    batches: Iterator[pa.RecordBatch], checks: Sequence[Check]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields what leaves, with how many rows it was made of: none, if they were kept aside."""
    for batch in batches:
        yield batch.num_rows, _through(checks, batch)
    for position, check in enumerate(checks, 1):
        for batch in check.late():
            yield 0, _through(checks[position:], batch)


def _through(checks: Sequence[Check], batch: pa.RecordBatch) -> pa.RecordBatch:
    for check in checks:
        batch = check(batch)
    return batch


class _OfCall(Check):
    """What is done with the rows of one call that are refused, as its ``on_error`` says.

    Args:
        plan: The call.
        from_end: How many columns from the end its own begin.
        context: Counts what is refused.
        refuse: Told of the rows that are refused, and of all that have left; says whether too many
            have failed.
    """

    def __init__(
        self,
        plan: Plan,
        from_end: int,
        context: FunctionContext,
        refuse: Callable[[int, int], bool],
    ) -> None:
        """Looks at the columns."""
        self._plan, self._name = plan, plan.function_name
        self._on_error = plan.options.on_error
        self._from_end, self._count = from_end, len(plan.result_schema)
        self._context, self._refuse = context, refuse
        self._seen = 0

    def _first(self, batch: pa.RecordBatch) -> int:
        """Returns where the columns of the call begin."""
        return batch.num_columns - self._from_end

    def _without(
        self, batch: pa.RecordBatch, arrays: list[Any], emptied: Sequence[int], failures: Failures
    ) -> pa.RecordBatch:
        """Does with rows that are refused what ``on_error`` says.

        Args:
            batch: The rows.
            arrays: Their columns, as they are now.
            emptied: Those that are null in a row that has failed.
            failures: The rows, and why.
        """
        action = self._on_error.action
        self._context.add_metric("refused", len(failures))
        for kind, _ in failures.values():
            if kind != _MISMATCH:
                self._context.add_metric(f"refused.{kind}")
        if self._refuse(len(failures), self._seen) or action == "fail":
            kind, message = next(iter(failures.values()))
            error = ResultError if kind == _MISMATCH else AsyncFunctionError
            raise error(message, kind)
        rows = range(batch.num_rows)
        if action == "drop":
            left = pa.array([row for row in rows if row not in failures], pa.int64())
            return pa.RecordBatch.from_arrays(arrays, schema=batch.schema).take(left)
        indices = pa.array([None if row in failures else row for row in rows], pa.int64())
        for at in emptied:
            arrays[at] = arrays[at].take(indices)
        if action == "capture":
            place = self._first(batch) + self._count
            errors = cast("list[Any]", arrays[place].to_pylist())
            for row, (kind, message) in failures.items():
                errors[row] = {**dict.fromkeys(ERROR_TYPE.names), "kind": str(kind)}
                errors[row]["message"] = message
            arrays[place] = pa.array(errors, ERROR_TYPE)
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


class _Instances:
    """Makes an instance of a class of each row, and columns of the instances."""

    def __init__(self, name: str, model: Model, fields: Sequence[pa.Field]) -> None:
        """Looks at the columns."""
        self._name, self._kind = name, model.kind.__name__
        self._make = model.maker()
        self._fields = fields
        self._names = [it.name for it in fields]
        self._known = set(self._names)
        required = [it.name for it in model.schema if not it.nullable]
        self._builder = ResultBuilder(pa.schema(nullable(fields)), required)

    def hold(self, columns: Sequence[Any], rows: Sequence[int]) -> tuple[list[Any], Failures]:
        """Returns the columns of the instances of `rows`, null in others; and who is refused."""
        cells = [_values(*it) for it in zip(columns, self._fields, strict=True)]
        made: dict[int, object] = {}
        refused: Failures = {}
        for row in rows:
            try:
                instance = self._make(
                    {name: of[row] for name, of in zip(self._names, cells, strict=True)}
                )
                (values,) = self._builder.rows_of(instance)
                # Whatever else an instance has is left out by the builder.
                is_whole = type(values) is dict and values.keys() >= self._known
                made[row] = values if is_whole else {it: values.get(it) for it in self._names}
            except Exception as error:  # noqa: BLE001 - whatever rules raise
                why = f"`{self._name}` returned what `{self._kind}` refuses: {_told(error)}"
                refused[row] = _MISMATCH, why
        built = self._builder.build(list(made), list(made.values()))
        refused |= {row: (_MISMATCH, str(error)) for row, error in built.failures}
        place: dict[int, int] = {row: at for at, row in enumerate(built.rows)}
        count = len(columns[0])
        if len(place) == count:
            return list(built.batch.columns), refused
        indices = pa.array([place.get(row) for row in range(count)], pa.int64())
        return list(built.batch.take(indices).columns), refused


class _ModelCheck(_OfCall):
    """Makes an instance of each row that has a result, and columns of the instances."""

    def __init__(self, plan: Plan, model: Model, *of_call: Any) -> None:
        """Looks at the columns."""
        super().__init__(plan, *of_call)
        self._columns = [plan.result_schema.names.index(name) for name in model.schema.names]
        fields = [plan.result_schema.field(at) for at in self._columns]
        self._instances = _Instances(self._name, model, fields)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the batch with what the class makes of its rows.

        Raises:
            ResultError: If it refuses one, and ``on_error`` says that the task fails.
        """
        first = self._first(batch)
        self._seen += batch.num_rows
        taken, refused = self._held(batch, first)
        arrays = list(batch.columns)
        for at, column in zip(self._columns, taken, strict=True):
            arrays[first + at] = column
        if refused:
            return self._without(batch, arrays, range(first, first + self._count), refused)
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)

    def failures(self, results: pa.RecordBatch) -> Failures:
        """Returns those that the class refuses."""
        return self._held(results, 0)[1]

    def _held(self, batch: pa.RecordBatch, first: int) -> tuple[list[Any], Failures]:
        columns = [batch.column(first + at) for at in self._columns]
        valid = [it.is_valid().to_pylist() for it in columns]
        # A miss is null in all of them, and a row that has failed is, too.
        rows = [row for row, cells in enumerate(zip(*valid, strict=True)) if any(cells)]
        return self._instances.hold(columns, rows)


class _AnswerCheck(_OfCall):
    """Makes columns of the answers of a model, and failures of refusals and the like.

    Python runs only for rows that have failed, or are held to the rules of a class.
    """

    def __init__(self, plan: Plan, answers: Answers, *of_call: Any) -> None:
        """Looks at the columns."""
        super().__init__(plan, *of_call)
        self._answers = answers
        schema = plan.result_schema
        self._at = {name: at for at, name in enumerate(schema.names)}
        # In the types of where the task runs, and as they were declared.
        fields = [
            schema.field(it.name).with_nullable(it.nullable) for it in cast("Any", answers.schema)
        ]
        self._fields = fields
        self._json = pa.schema(fields)
        model = answers.model
        has_rules = model is not None and model.has_rules
        self._instances = _Instances(self._name, model, fields) if model and has_rules else None
        self._emptied = [self._at[it.name] for it in fields]
        self._again: Again | None = None

    def asking(self, run: Run, taken: Callable[[str], float]) -> Check:
        """Returns the same, which asks again where an answer breaks the rules, if it is to."""
        if self._answers.again is not None:
            self._again = Again(self._plan, self._answers.again, run, taken)
        return self

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the batch with the columns of its answers.

        Raises:
            AsyncFunctionError: If a row fails, and ``on_error`` says that the task does.
        """
        self._seen += batch.num_rows
        arrays, failures = self._read(batch, self._first(batch))
        wrong = [row for row, (kind, _) in failures.items() if kind == _MISMATCH]
        again = self._again
        if again is not None and wrong:
            taken = self._taken(batch, arrays, wrong)
            if self._plan.mode == "unordered" and again.has_room(taken):
                again.keep(taken, [failures[it][1] for it in wrong])
                rest = pa.array(sorted({*range(batch.num_rows)} - {*wrong}), pa.int64())
                failures = self._moved(failures, rest)
                arrays = [it.take(rest) for it in arrays]
                batch = batch.take(rest)
            elif not again.waits:
                reasons = [failures[it][1] for it in wrong]
                answered, still = self._ask(taken, reasons)
                rows = dict(
                    zip(wrong, range(batch.num_rows, batch.num_rows + len(wrong)), strict=True)
                )
                places = pa.array([rows.get(it, it) for it in range(batch.num_rows)], pa.int64())
                arrays = [
                    pa.concat_arrays([one, other]).take(places)
                    for one, other in zip(arrays, answered, strict=True)
                ]
                for row in wrong:
                    del failures[row]
                failures |= {wrong[row]: why for row, why in still.items()}
        return self._leave(batch, arrays, failures)

    def late(self) -> Iterator[pa.RecordBatch]:
        """Asks again for the rows that were kept aside, and yields them."""
        if self._again is not None:
            for batch, reasons in self._again.take_all():
                arrays, failures = self._ask(batch, reasons)
                yield self._leave(batch, arrays, failures)

    def _taken(self, batch: pa.RecordBatch, arrays: list[Any], rows: list[int]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema).take(
            pa.array(rows, pa.int64())
        )

    @staticmethod
    def _moved(failures: Failures, rest: Any) -> Failures:
        places = {row: at for at, row in enumerate(rest.to_pylist())}
        return {places[row]: why for row, why in failures.items() if row in places}

    def _ask(self, batch: pa.RecordBatch, reasons: list[str]) -> tuple[list[Any], Failures]:
        """Asks again for rows; returns their columns then, and which of them have failed."""
        assert self._again is not None  # noqa: S101 - it was asked for
        first, answers = self._first(batch), self._answers
        self._context.add_metric("repairs", batch.num_rows)
        # A null would make the row a miss, and services refuse a turn that is empty.
        said = _text_of(batch.column(first + self._at[answers.text])).fill_null("(nothing)")
        answered = self._again.answered(batch.select(range(first)), said, reasons)
        arrays, place = list(batch.columns), 0
        for name, at in self._at.items():
            if name not in answers.hidden:
                brought = answered.column(place)
                if name in (answers.usage, answers.cost):
                    brought = _sum(arrays[first + at], brought)
                arrays[first + at] = brought
                place += 1
        errors = enumerate(answered.column(place).to_pylist())
        failures = {
            row: (ErrorKind(it["kind"]), it["message"]) for row, it in errors if it is not None
        }
        self._context.add_metric("repaired", batch.num_rows - len(failures))
        return arrays, failures

    def _leave(
        self, batch: pa.RecordBatch, arrays: list[Any], failures: Failures
    ) -> pa.RecordBatch:
        """Returns the rows without the columns that nobody asked for."""
        first = self._first(batch)
        if failures:
            emptied = [first + at for at in self._emptied]
            made = self._without(batch, arrays, emptied, failures)
        else:
            made = pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
        hidden = {first + self._at[name] for name in self._answers.hidden}
        return made.select([it for it in range(made.num_columns) if it not in hidden])

    def failures(self, results: pa.RecordBatch) -> Failures:
        """Returns those without an answer. What is asked again has one: its next question."""
        found, is_last = self._read(results, 0)[1], self._answers.again is None
        return {row: it for row, it in found.items() if is_last or it[0] != _MISMATCH}

    def _read(self, batch: pa.RecordBatch, first: int) -> tuple[list[Any], Failures]:
        """Returns the columns of a batch, those of answers filled; and the rows that have none."""
        answers, arrays = self._answers, list(batch.columns)

        def column(name: str) -> Any:
            return batch.column(first + self._at[name])

        text, ended = _text_of(column(answers.text)), column(answers.ended)
        # A miss, and a row that has failed, have no status.
        is_found = column(answers.status).is_valid()
        # Some services say more behind the reason.
        reasons = pc.replace_substring_regex(ended, ":.*", "")
        is_bad = pc.is_in(reasons, pa.array([*answers.kinds], pa.string()))
        if answers.refusal is not None:
            is_bad = pc.or_(is_bad, pc.not_equal(pc.fill_null(column(answers.refusal), ""), ""))
        is_said = pc.greater(pc.utf8_length(pc.fill_null(text, "")), 0)
        is_whole = pc.and_(pc.and_(is_found, is_said), pc.invert(is_bad))
        failures = self._failures(is_found, is_whole, text, column)
        filled, wrong = self._columns(pc.if_else(is_whole, text, pa.scalar(None, pa.string())))
        for row, why in wrong.items():
            failures[row] = _MISMATCH, f"{why}; the model said: {_shortened(text[row].as_py())}"
        if self._instances is not None:
            rows = [
                row for row, good in enumerate(is_whole.to_pylist()) if good and row not in wrong
            ]
            filled, refused = self._instances.hold(filled, rows)
            failures |= refused
        for at, made in zip(self._emptied, filled, strict=True):
            arrays[first + at] = made
        self._fill_usage(arrays, first, column)
        return arrays, dict(sorted(failures.items()))

    def _failures(
        self, is_found: Any, is_whole: Any, text: Any, column: Callable[[str], Any]
    ) -> Failures:
        """Returns the rows whose answers have ended otherwise than they should."""
        answers, failures = self._answers, Failures()
        refusal = None if answers.refusal is None else column(answers.refusal)
        failed = pc.indices_nonzero(pc.and_(is_found, pc.invert(is_whole))).to_pylist()
        for row in failed:
            ended, said = column(answers.ended)[row].as_py(), text[row].as_py()
            refused = None if refusal is None else refusal[row].as_py()
            reason = (ended or "").partition(":")[0]
            kind = ErrorKind.REFUSAL if refused else answers.kinds.get(reason, _MISMATCH)
            words = _shortened(refused or said or column(answers.said)[row].as_py() or "")
            what = {
                ErrorKind.REFUSAL: "the model refuses to answer",
                ErrorKind.TRUNCATED: "the answer ends before its end, as its tokens were spent;"
                " raise `max_tokens`",
                ErrorKind.CONTENT_FILTER: "a filter of the service has taken the answer away",
            }.get(kind, "the model said nothing")
            if kind == ErrorKind.TRUNCATED and not words:
                what = (
                    "all tokens were thought, and none was left for an answer; raise `max_tokens`"
                )
            why = f" (`{ended}`)" if ended else ""
            failures[row] = kind, f"{what}{why}" + (f": {words}" if words else "")
        return failures

    def _columns(self, texts: Any) -> tuple[list[Any], dict[int, str]]:
        """Returns the columns that are made of texts, and what is wrong with some."""
        if not self._answers.is_json:
            return [texts.cast(self._fields[0].type)], {}
        if pc.any(pc.starts_with(texts, "```")).as_py():
            # Some models wrap what they were asked for.
            texts = pc.replace_substring_regex(texts, r"^```\w*\s*|\s*```\s*$", "")
        batch = pa.RecordBatch.from_arrays([texts], names=["text"])
        read, wrong = _core.read_json(batch, self._json, list(self._answers.paths.items()))
        return list(read.columns), dict(wrong)

    def _fill_usage(self, arrays: list[Any], first: int, column: Callable[[str], Any]) -> None:
        """Fills what the call has cost, in tokens and in money."""
        answers = self._answers
        if answers.usage is not None:
            tokens = {name: column(it) for name, it in answers.tokens.items()}
            if not answers.is_whole:
                parts = [
                    pc.coalesce(tokens[it], pa.scalar(0, pa.int64())) for it in ("cached", "write")
                ]
                tokens["input"] = pc.add(tokens["input"], pc.add(*parts))
            is_known = tokens["input"].is_valid()
            filled = pa.StructArray.from_arrays(
                [tokens[it] for it in USAGE], list(USAGE), mask=pc.invert(is_known)
            )
            arrays[first + self._at[answers.usage]] = filled
        if answers.cost is not None:
            arrays[first + self._at[answers.cost]] = self._cost(column, len(arrays[0]))

    def costs(self, results: pa.RecordBatch) -> Any:
        """Returns what they cost at the prices; null without these, and never tokens."""

        def column(name: str) -> Any:
            return results.column(self._at[name])

        return self._cost(column, results.num_rows)

    def _cost(self, column: Callable[[str], Any], rows: int) -> Any:
        cost = pa.nulls(rows, pa.float64())
        for name, price in self._answers.prices.items():
            cost = _sum(cost, pc.multiply(column(name).cast(pa.float64()), pa.scalar(price)))
        return cost


def _text_of(column: Any) -> Any:
    """Returns the texts of answers; those that come in parts are put together."""
    if not pa.types.is_list(column.type):
        return column
    of_parts = pc.list_flatten(column)
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    if not pc.all(pc.equal(pc.struct_field(of_parts, "type"), "text")).as_py() or (
        pc.any(pc.greater(lengths, 1)).as_py()
    ):
        texts = [
            None
            if parts is None
            else "".join(it["text"] or "" for it in parts if it["type"] == "text")
            for parts in column.to_pylist()
        ]
        return pa.array(texts, pa.string())
    # The usual case: one part, which is a text, or none.
    ends = pc.cumulative_sum(lengths)
    places = pc.if_else(pc.greater(lengths, 0), pc.subtract(ends, 1), pa.scalar(None, ends.type))
    return pc.struct_field(of_parts, "text").take(places)


def _taken_of(task: _core.Task, position: int, label: str) -> float:
    """Returns what the calls of an operator have taken of one limit."""
    limits = task.metrics()[position].get("rate_limits", {})
    return limits.get(label, {}).get("permits", 0.0)


def _sum(one: Any, other: Any) -> Any:
    """Returns the sums of two columns of numbers, or of structs of them; null where both are."""
    if pa.types.is_struct(one.type):
        parts = [_sum(*it) for it in zip(one.flatten(), other.flatten(), strict=True)]
        names = [one.type.field(at).name for at in range(one.type.num_fields)]
        mask = pc.and_(one.is_null(), other.is_null())
        return pa.StructArray.from_arrays(parts, names, mask=mask)
    return pc.coalesce(pc.add(one, other), one, other)


def _shortened(words: str) -> str:
    return words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]} .."


def _told(error: Exception) -> str:
    """Returns what a rule says of a row, without its contents."""
    options = {"include_url": False, "include_context": False, "include_input": False}
    try:
        found = cast("Any", error).errors(**options)
        shown = [f"{'.'.join(map(str, it['loc'])) or 'the row'}: {it['msg']}" for it in found]
    except Exception:  # noqa: BLE001 - none of pydantic, and it may raise anything
        return described(error)
    return "; ".join(shown[:_MOST_SHOWN] + [".."] * (len(shown) > _MOST_SHOWN))


def _values(column: Any, field: pa.Field) -> list[Any]:
    values = column.to_pylist()
    has_map = any(pa.types.is_map(it.type) for it in fields_within(field))
    return [_plain(it, field.type) for it in values] if has_map else values


def _plain(value: Any, data_type: Any) -> Any:
    """Returns a value whose maps are dicts: in PyArrow they are lists of pairs."""
    if value is None:
        return None
    if pa.types.is_map(data_type):
        key, item = data_type.key_type, data_type.item_type
        return {_plain(one, key): _plain(other, item) for one, other in value}
    if pa.types.is_struct(data_type):
        return {it.name: _plain(value[it.name], it.type) for it in data_type}
    if pa.types.is_list(data_type):
        return [_plain(one, data_type.value_type) for one in value]
    return value
