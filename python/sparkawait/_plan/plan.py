# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
# pyright: reportUnknownArgumentType=false
"""A call of one of the wait functions with everything checked, as it travels to the executors.

Immutable and picklable; any thread may read it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

import pyarrow as pa

from sparkawait._checks import (
    nullable,
    rename_of,
    require_column,
    require_key,
    require_number,
    require_number_at,
    require_timestamp,
)
from sparkawait._core import Native, ResultColumns
from sparkawait._plan.called import (
    UNKNOWN,
    Facts,
    Growth,
    check_no_rules,
    left_out_of,
    rows_in_calls,
    weights_of,
)
from sparkawait._plan.journal import JournalPlan, check_not_chained, check_rows
from sparkawait._schema.types import check_input_names, timestamps_of
from sparkawait._values.results import NoResults, OneResult, ResultBuilder, with_mark
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import AsyncFunction, NativeFunction
from sparkawait.limits import Adaptive, Batch, Credits
from sparkawait.options import OPTIONS, WaitOptions
from sparkawait.outcomes import CALL_TYPE, ERROR_TYPE
from sparkawait.rate_limit import ALONE, Limit, PerJob, Sharing, sharers

__all__ = [
    "HERE",
    "SLOT",
    "FunctionGroup",
    "Mode",
    "Place",
    "Plan",
    "Results",
    "group_name",
    "joined",
    "limits_of",
    "numbered",
    "rows_in_calls",
    "told_fields",
    "without",
]

# -- several functions for each row instead of one. Immutable; any thread may read it

SLOT = pa.schema([pa.field("__sparkawait_slot", pa.uint32(), nullable=False)])
"""Tells the branches of an operator, and it the branches, which row is meant."""


@dataclass(frozen=True)
class FunctionGroup(NativeFunction):
    """The function of an operator that calls several: what all of them return.

    Attributes:
        names: What the functions are called.
        result_schema: Their columns, one function after the other.
    """

    names: tuple[str, ...]
    result_schema: pa.Schema

    @property
    def name(self) -> str:
        """The names, as a list of functions is written."""
        return group_name(self.names)


def group_name(names: Iterable[str]) -> str:
    """Returns what functions that are called for a row side by side are called together."""
    return f"[{', '.join(names)}]"


def joined(branches: Iterable[Plan]) -> pa.Schema:
    """Returns the columns that several calls add to a row, those of one call after the other."""
    return pa.schema([field for branch in branches for field in branch.added_fields])


Mode = Literal["ordered", "unordered", "key_ordered"]

Results = Literal["rows", "one", "none"]
"""What a row has of its function: any number of rows; one or null, as of a column function; or
nothing that anybody looks at."""


def numbered(name: str, taken: set[str]) -> str:
    """Returns `name`, with a number if another operator has it; notes that it is taken."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}#{number}"
    taken.add(found)
    return found


# -- where the tasks of a plan run


def limits_of(options: WaitOptions) -> tuple[Limit, ...]:
    """Returns what calls take permits of; those of `rate_limit` come first."""
    calls = options.max_concurrency
    return (*options.rate_limit.known, *([calls] if isinstance(calls, PerJob) else []))


class Place:
    """What a plan has to know of where its tasks run: here, in the process that makes it.

    That of a session of Spark says more.
    """

    is_case_sensitive: bool = True
    """Whether columns whose names differ in case only are two."""

    @property
    def tasks(self) -> int | None:
        """How many tasks of the call run at once, if that is known."""
        return 1

    @property
    def zones(self) -> tuple[tuple[str, bytes], ...]:
        """The rules of time zones that differ from those of the tasks' own database."""
        return ()

    def columns(
        self,
        declared: pa.Schema,
        function: AsyncFunction | NativeFunction,  # noqa: ARG002 - for those who read Arrow's types
    ) -> pa.Schema:
        """Returns the columns that `function` has declared in the types that come out.

        Raises:
            ConfigurationError: If one of them has none.
        """
        return timestamps_of(declared)

    def sharing(self, name: str, limits: Sequence[Limit]) -> Sharing:  # noqa: ARG002
        """Returns who shares the `limits` of the function `name`.

        Raises:
            ConfigurationError: If nobody knows, and a limit depends on it.
        """
        return ALONE


HERE = Place()

_TOLD = (
    ("failures are captured", "give that another with sparkawait.OnError('capture', column='..')"),
    ("`info` tells of calls", "give `info` another name"),
)
"""What columns are for that tell what happened to a row, and how to call them otherwise."""


@dataclass(frozen=True)
class Plan:
    """One checked call. Made once, by `sparkawait._plan.resolve`.

    Attributes:
        mode: Which order the output has.
        function: What is called for every row.
        declared_schema: The columns that the function returns, in the types of where it runs.
        options: The options, checked; what follows from several of them is below.
        capacity: Rows admitted and not emitted, at first; with `capacity_bytes` not completed.
        capacity_bytes: Bytes of completed rows.
        growth: How far `capacity` grows, if it does.
        max_concurrency: Calls in flight, no more than a native function can have.
        facts: What the function said of itself on the driver; of its schema, see above.
        not_repeated: Why a call that may have been carried out is not made again, if it is not.
        key: Columns that make up the key, for the key-ordered mode.
        hidden: The last columns of the input, which no row has: options were computed.
        keeps_input: Whether the columns of a row leave with its results, or these alone.
        route: Columns of a row's channel, if there are channels; none if the function finds it.
        credits: How calls are spread over them.
        case_sensitive: Whether columns whose names differ in case only are two.
        identity: What tells the function from others that are given the same cache.
        name: What the operator is called, if not as its function is.
        sharing: Who shares its limits in time.
        zones: The rules of the session's time zone, as Spark has them.
        results: What a row has of the function.
        is_input_known: Whether the plan was made for an input, which is checked; it is checked when
            it comes otherwise.
        branches: The calls of several functions for each row, which this one waits for; its own
            function stands for all of them.
        journal: The folder of known results, if there is one.
    """

    mode: Mode
    function: AsyncFunction | NativeFunction
    declared_schema: pa.Schema
    options: WaitOptions
    capacity: int
    max_concurrency: int
    facts: Facts = UNKNOWN
    not_repeated: str | None = None
    capacity_bytes: int | None = None
    growth: Growth | None = None
    key: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = ()
    keeps_input: bool = True
    route: tuple[str, ...] | None = None
    credits: Credits | None = None
    case_sensitive: bool = True
    identity: str = ""
    name: str = ""
    sharing: Sharing = ALONE
    zones: tuple[tuple[str, bytes], ...] = ()
    results: Results = "rows"
    is_input_known: bool = False
    branches: tuple[Plan, ...] = ()
    journal: JournalPlan | None = None

    @cached_property
    def function_name(self) -> str:
        """The function's name for messages."""
        return self.name or self.function.name

    @property
    def batch(self) -> Batch | None:
        """How rows are collected, for a batched function."""
        return self.facts.batch

    @property
    def threads(self) -> int | None:
        """How many threads call a plain function at most; ``None`` for any other."""
        return self.facts.threads and min(self.facts.threads, self.max_concurrency)

    @property
    def rows_called(self) -> int:
        """Rows that are in calls, or wait for one with others, at most."""
        return rows_in_calls(self, self.capacity, self.max_concurrency)

    @property
    def has_timeout_handler(self) -> bool:
        """Whether a row that timed out gets results from Python."""
        return self.facts.has_fallback or self.options.on_timeout is not None

    def what_is_called(self) -> Callable[[Any], Any]:
        """Returns what of a Python function is called for a row, or for many."""
        return cast("AsyncFunction", self.function).what_is_called(batched=self.batch is not None)

    @cached_property
    def result_schema(self) -> pa.Schema:
        """The declared columns, nullable where a row leaves them empty; and a mark of its results.

        The mark tells a row that has none from one whose columns are all null.
        """
        if self.results == "one" and not isinstance(self.function, NativeFunction):
            return with_mark(self.declared_schema)
        if self.options.on_error.action in ("fail", "drop"):
            return self.declared_schema
        metadata = cast("Any", self.declared_schema.metadata)
        return pa.schema(nullable(self.declared_schema), metadata=metadata)

    def result_builder(self) -> ResultBuilder:
        """Returns a builder of result batches, which holds the function to what it declared."""
        if self.results == "none":
            return NoResults()
        if self.results == "one":
            return OneResult(self.declared_schema, self.required)
        return ResultBuilder(self.result_schema, self.required)

    def result_columns(self) -> ResultColumns | None:
        """Returns what reads plain results faster than the builder, if their types are plain."""
        if self.results != "rows":
            return None
        return ResultColumns.of(self.result_schema, self.required)

    @property
    def error_field(self) -> pa.Field | None:
        """A column of the output with ``on_error="capture"``; null for other rows."""
        column = self.options.on_error.column
        return None if column is None else pa.field(column, ERROR_TYPE)

    @cached_property
    def told_fields(self) -> list[pa.Field]:
        """The last columns of the output: failures and calls, where somebody asks for them."""
        return told_fields(self.options)

    @property
    def added_fields(self) -> list[pa.Field]:
        """The columns that the operator adds to its input."""
        return [*without(self.result_schema, left_out_of(self.function)), *self.told_fields]

    @property
    def width(self) -> int:
        """How many columns of the function leave the task."""
        return len(self.declared_schema) - len(left_out_of(self.function))

    @property
    def required(self) -> list[str]:
        """Columns that the function must not leave null."""
        return [field.name for field in self.declared_schema if not field.nullable]

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Returns the schema of the output for input of `input_schema`.

        Metadata of input fields and of the input schema is kept.
        """
        input_schema = self.rows(input_schema)
        kept = list(input_schema) if self.keeps_input else []
        metadata = input_schema.metadata if self.keeps_input else None
        return pa.schema([*kept, *self.added_fields], metadata=cast("Any", metadata))

    def check_input(self, input_schema: pa.Schema) -> None:
        """Checks the options that depend on the input.

        Raises:
            ConfigurationError: If the input lacks a column that an option names, or two columns of
                the output would have the same name.
        """
        check_input_names(input_schema)
        rows = self.rows(input_schema)
        for branch in self.branches:
            branch.check_input(input_schema)
        for column in self.key or ():
            require_key(input_schema, column, "key", ErrorKind.OPTION_INVALID)
        if isinstance(self.function, NativeFunction):
            for column in self.function.input_columns:
                is_in_text = self.function.writes_texts
                require_column(rows, column, self.function.name, is_in_text=is_in_text)
            self.function.check(rows)
        for column in self.cache_key:
            require_key(input_schema, column, "cache", ErrorKind.CACHE_INVALID)
        for column in self.route or ():
            require_key(input_schema, column, "channel", ErrorKind.CHANNELS_INVALID)
        if self.journal is not None:
            check_rows(self.journal, rows)
        self._check_costs(input_schema)
        if self.options.watermark is not None:
            require_timestamp(input_schema, str(self.options.watermark.column))
        self.check_names(rows.names)

    def _check_costs(self, input_schema: pa.Schema) -> None:
        for limit in self.options.rate_limit.known:
            if isinstance(limit.cost, str) and not limit.is_usual:
                require_column(input_schema, limit.cost, "cost")
                require_number(input_schema.field(limit.cost), "cost")

    def check_names(self, inputs: Sequence[str] = ()) -> None:
        """Checks the names of the output, as its reader compares them.

        Raises:
            ConfigurationError: If two columns would have the same name.
        """
        kept = inputs if self.keeps_input else ()
        fold = str if self.case_sensitive else str.lower
        names = {fold(name): name for name in kept}
        for name in without(self.declared_schema, left_out_of(self.function)).names:
            taken = names.get(fold(name))
            if taken is not None:
                whose = "returned twice" if taken not in kept else "already a column of the input"
                case = "" if taken == name else f" as `{taken}`, and case does not tell them apart"
                msg = f"returned column `{name}` is {whose}{case}; {self._rename(taken, kept)}"
                raise ConfigurationError(msg, ErrorKind.COLUMN_CLASH)
            names[fold(name)] = name
        for field in self.told_fields:
            taken = names.get(fold(field.name))
            if taken is not None:
                tells, way_out = _TOLD[field.type == CALL_TYPE]
                msg = f"column `{taken}` has the name of the column in which {tells}; {way_out}"
                raise ConfigurationError(msg, ErrorKind.COLUMN_CLASH)
            names[fold(field.name)] = field.name

    def _rename(self, taken: str, inputs: Sequence[str]) -> str:
        written = getattr(self.function, "names_are_of", "")
        return rename_of(taken, written) if taken in inputs else "rename one of them"

    def operator_arguments(
        self,
        input_schema: pa.Schema,
        carried: pa.Schema | None = None,
        *,
        consumer_seconds: float = 0.0,
        is_wanted: bool = False,
        result_bytes: Sequence[int | None] = (None,),
        named_by: Sequence[str] = (),
        is_branch: bool = False,
    ) -> dict[str, Any]:
        """Returns what `_core.Task` is told of its operator, and of its branches.

        Args:
            input_schema: Of the rows that come, and of the hidden columns of this call.
            carried: Hidden columns of calls behind this one, which come behind its own.
            consumer_seconds: What a batch costs its consumer beside the time until it asks for the
                next one.
            is_wanted: Whether the rows are known to be wanted, so that no warm-up is needed.
            result_bytes: What a call of each brought in an earlier task, in bytes; ``None`` where
                nobody knows.
            named_by: Columns whose values an error of a row tells, where the row has them.
            is_branch: Whether it is a branch of another operator.
        """
        options, output = self.options, self.options.tuning.resolve()
        if output.buffer_timeout == "auto":
            output = output._replace(buffer_timeout=("auto", consumer_seconds))
        sizes = list(result_bytes[1:]) or [None] * len(self.branches)
        return {
            **{name: _told(getattr(options, name)) for name, it in OPTIONS.items() if it.of_task},
            **options.on_error.of_task(),
            "mode": self.mode,
            "output": "append" if self.keeps_input else "replace",
            "input_schema": self.rows(input_schema),
            "hidden_schema": pa.schema([input_schema.field(name) for name in self.hidden]),
            "carried_schema": carried or pa.schema([]),
            "result_schema": self.result_schema,
            "capacity": self.capacity if self.growth is None else self.growth.rows,
            "capacity_bytes": self.capacity_bytes,
            "growth": self.growth and (self.capacity, self.growth.bytes),
            # Rows that wait for a batch are in flight; the runner bounds the calls.
            "max_concurrency": self.rows_called,
            "begins_when_said": self.batch is not None,  # its rows wait in line for their call
            "not_repeated": self.not_repeated,
            "key": None if self.key is None else list(self.key),
            "has_timeout_handler": self.has_timeout_handler,
            **output._asdict(),
            "function_name": self.function_name,
            "reads": list(self._read_in(input_schema)),
            "names_of_rows": [name for name in named_by if name in input_schema.names],
            # From the system, because forked workers share the state of `random`.
            "seed": int.from_bytes(os.urandom(8), "little"),
            "journal": None,  # given where the task runs
            "is_branch": is_branch,
            "branches": [
                branch.operator_arguments(
                    input_schema, SLOT, is_wanted=True, result_bytes=[expected], is_branch=True
                )
                for branch, expected in zip(self.branches, sizes, strict=True)
            ],
            "native": self._native(),
            "cache": self._cache_arguments(input_schema),
            "channels": self._channel_arguments(),
            "policies": self._policy_arguments(),
            "warm_up": None if is_wanted else self._warm_up_arguments(),
            "expected_result_bytes": result_bytes[0],
        }

    def _warm_up_arguments(self) -> tuple[int, int] | None:
        """Returns the calls in flight at most, and the rows that one of them takes."""
        # Rows that leave in full batches only are many, however few are wanted.
        if not self.options.tuning.warm_up or self.options.tuning.buffer_timeout is None:
            return None
        if self.branches:
            called = [(it.max_concurrency, it.rows_per_call) for it in self.branches]
            return max(calls for calls, _ in called), max(rows for _, rows in called)
        return self.max_concurrency, self.rows_per_call

    @property
    def rows_per_call(self) -> int:
        """How many rows a call takes."""
        return 1 if self.batch is None else min(self.batch.max_rows, self.capacity)

    @property
    def operators(self) -> tuple[Plan, ...]:
        """This call and its branches, as a task has them."""
        return (self, *self.branches)

    def rows(self, input_schema: pa.Schema) -> pa.Schema:
        """Returns the schema of the rows, without hidden columns."""
        return without(input_schema, self.hidden) if self.hidden else input_schema

    def _channel_arguments(self) -> dict[str, Any] | None:
        if self.route is None or self.credits is None:
            return None
        return {"route": list(self.route), "credits": self.credits}

    def _policy_arguments(self) -> dict[str, Any] | None:
        """Returns what bounds the calls beside their number; ``None`` if nothing does."""
        rows, batch, limited = self.rows_per_call, self.batch, self.options.rate_limit
        breaker, calls = self.options.circuit_breaker, self.options.max_concurrency
        adaptive = calls.resolve(rows) if isinstance(calls, Adaptive) else None
        known = limits_of(self.options)
        if not (known or limited.is_adaptive or breaker or adaptive):
            return None
        limits = [
            it.terms(self.function_name, self.sharing)
            .revealed()
            ._replace(
                result_cost=self.result_cost(it),
                per_request=batch is not None and it.per == "request",
            )
            for it in known
        ]
        pays = batch is not None and any(it.per_request for it in limits)
        requests = (rows, batch.linger_seconds) if batch is not None and pays else None
        return {
            "rate_limits": limits,
            "requests": requests,
            "application": sharers(self.sharing.application, known),
            "adaptive_limit": adaptive,
            "is_rate_adaptive": limited.is_adaptive,
            "pause": None if breaker is None else breaker.resolve(),
            "seed": int.from_bytes(os.urandom(8), "little"),  # of probes, which are spread
        }

    def result_cost(self, limit: Limit) -> list[tuple[list[str], float]] | None:
        """Returns the columns of the results that say what a call cost, with fields and weights.

        Raises:
            ConfigurationError: If there is none of numbers.
        """
        name = self.function_name
        weights = weights_of(self.function, limit.result_cost, name)
        if weights is None:
            return None
        return [
            (require_number_at(self.declared_schema, path, "result_cost", name), weight)
            for path, weight in weights.items()
        ]

    @property
    def cache_key(self) -> tuple[str, ...]:
        """The columns that results depend on, if they are kept."""
        if self.options.cache is None:
            return ()
        if self.options.cache.columns:
            return tuple(map(str, self.options.cache.columns))
        return self._read_columns

    def _read_in(self, input_schema: pa.Schema) -> Sequence[str]:
        """The columns whose texts must be UTF-8; rows of Python look at each when it is read."""
        if self.batch is not None and self.batch.arrow:
            return self.rows(input_schema).names
        return self._read_columns

    @property
    def _read_columns(self) -> tuple[str, ...]:
        """The columns that a native function reads."""
        columns = self.function.input_columns if isinstance(self.function, NativeFunction) else ()
        return tuple(dict.fromkeys(columns))

    def _cache_arguments(self, input_schema: pa.Schema) -> dict[str, Any] | None:
        cache = self.options.cache
        if cache is None:
            return None
        # The same instants are other texts, and the other way round, in another time zone.
        keys = (input_schema.field(name).type for name in self.cache_key)
        types = ",".join(map(str, (*self.declared_schema.types, *keys)))
        # What a function must not leave null is checked before it is kept, and not again.
        required = "".join(str(int(not field.nullable)) for field in self.declared_schema)
        name = f"{cache.id}:{self.identity}:{required}:{types}"
        return {"id": name, "key": self.cache_key, "cache": cache}

    def _native(self) -> Native | None:
        if self.branches or not isinstance(self.function, NativeFunction):
            return None
        retry_misses = self.options.retry is not None and self.options.retry.retry_misses
        function = self.function.bounded(self.max_concurrency, self.capacity)
        return function._native(retry_misses=retry_misses)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def told_fields(options: WaitOptions) -> list[pa.Field]:
    """Returns the columns that tell what happened to a row: its failure, and its calls."""
    error, info = options.on_error.column, options.info
    fields = [] if error is None else [pa.field(error, ERROR_TYPE)]
    return fields if info is None else [*fields, pa.field(info, CALL_TYPE)]


def _told(value: Any) -> Any:
    """Returns the value of an option as a task takes it: some objects come to plain numbers."""
    return value.resolve() if hasattr(value, "resolve") else value


def without(schema: pa.Schema, hidden: Collection[str]) -> pa.Schema:
    """Returns `schema` without some columns."""
    # Of fields: a schema of a schema comes through the C interface, which ends names at a NUL.
    fields = [field for field in schema if field.name not in hidden] if hidden else [*schema]
    return pa.schema(fields, metadata=cast("Any", schema.metadata))


# -- the operators of one task, as they travel to the executors
#
# Immutable and picklable; any thread may read it.


@dataclass(frozen=True)
class Chain:
    """Several calls, one after the other, in one task, each for what the one before it puts out.

    Counterpart of Flink's operator chain.

    Attributes:
        plans: One for each operator, the one that gets the input first.
        schemas: What each operator but the first gets, in types that the one before it can be cast
            to. None where all get what the one before them puts out, as it is.
    """

    plans: tuple[Plan, ...]
    schemas: tuple[pa.Schema, ...] = ()

    @classmethod
    def of(cls, plan: Plan) -> Chain:
        """Returns the chain of one operator."""
        return cls((plan,))

    def then(self, plan: Plan, schema: pa.Schema | None = None) -> Chain:
        """Returns the chain with one operator more.

        Args:
            plan: The call that the operator makes, which was made with the `names` of the chain.
            schema: What it gets, if that is cast.

        Raises:
            ConfigurationError: If the one before it has rules for its rows.
        """
        check_no_rules(
            self.plans[-1].operators, "chain=True", "leave it out: the next call gets what is left"
        )
        check_not_chained(it.journal for it in (*self.operators, *plan.operators))
        schemas = self.schemas if schema is None else (*self.schemas, schema)
        return Chain((*self.plans, plan), schemas)

    @property
    def names(self) -> frozenset[str]:
        """What its operators are called: another one has another name."""
        return frozenset(it.function_name for it in self.operators)

    @property
    def name(self) -> str:
        """The functions' names, for logs."""
        return " -> ".join([plan.function_name for plan in self.plans])

    def input_schemas(self, input_schema: pa.Schema) -> list[pa.Schema]:
        """Returns what each operator gets if the first one gets `input_schema`.

        That is rows, and its own hidden columns behind them.

        Raises:
            ConfigurationError: If one of the calls does not go with what it gets, and was made
                before that was known.
        """
        schemas: list[pa.Schema] = []
        rows = without(input_schema, self.hidden)
        for index, plan in enumerate(self.plans):
            schemas.append(_with_fields(rows, input_schema, plan.hidden))
            if not plan.is_input_known:
                plan.check_input(schemas[-1])
            put_out = plan.output_schema(schemas[-1])
            rows = self.schemas[index] if index < len(self.schemas) else put_out
        return schemas

    @property
    def operators(self) -> tuple[Plan, ...]:
        """All operators of the task: the calls, and behind each one its branches."""
        return tuple(it for plan in self.plans for it in plan.operators)

    @property
    def zones(self) -> tuple[tuple[str, bytes], ...]:
        """The rules of time zones that Spark has told: those of one session."""
        return tuple(dict.fromkeys(it for plan in self.operators for it in plan.zones))

    @property
    def hidden(self) -> tuple[str, ...]:
        """The hidden columns of all operators, which come behind those of the first one's rows."""
        return tuple(name for plan in self.plans for name in plan.hidden)

    def output_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Returns what the last operator puts out for input of `input_schema`.

        Raises:
            ConfigurationError: As `input_schemas`.
        """
        return self.plans[-1].output_schema(self.input_schemas(input_schema)[-1])

    def passed_schema(self, input_schema: pa.Schema) -> pa.Schema:
        """Returns the columns of the input that come out as they went in."""
        is_appended = all(plan.keeps_input for plan in self.plans)
        return input_schema if is_appended else pa.schema([])

    def task_arguments(
        self,
        input_schema: pa.Schema,
        partition: int,
        *,
        consumer_seconds: float = 0.0,
        are_wanted: bool = False,
        result_bytes: Sequence[int | None] | None = None,
    ) -> dict[str, Any]:
        """Returns the keyword arguments of `_core.Task`.

        Args:
            input_schema: Of the batches that come, with the hidden columns of all operators last.
            partition: Number of the partition.
            consumer_seconds: What a batch costs its consumer beside the time until it asks for the
                next one.
            are_wanted: Whether the rows are known to be wanted, so that no warm-up is needed.
            result_bytes: What a call of each brought in an earlier task, in bytes; ``None`` where
                nobody knows.

        Raises:
            ConfigurationError: As `input_schemas`.
        """
        schemas = self.input_schemas(input_schema)
        nothing, sizes = pa.schema([]), list(result_bytes or [None] * len(self.operators))
        operators: list[dict[str, Any]] = []
        # The first call of a chain says it for all.
        carry_over = self.plans[0].options.carry_over
        named_by = () if carry_over is None else carry_over.name_rows_by or ()
        for index, (plan, schema) in enumerate(zip(self.plans, schemas, strict=True)):
            behind = Chain(self.plans[index + 1 :]).hidden
            operators.append(
                plan.operator_arguments(
                    schema,
                    _with_fields(nothing, input_schema, behind),
                    consumer_seconds=consumer_seconds,
                    is_wanted=are_wanted,
                    result_bytes=sizes[: len(plan.operators)],
                    named_by=named_by,
                )
            )
            del sizes[: len(plan.operators)]
        return {"operators": operators, "partition": partition}


def _with_fields(schema: pa.Schema, source: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Returns `schema` with some fields of `source` behind its own."""
    if not names:
        return schema
    fields = [*schema, *(source.field(name) for name in names)]
    return pa.schema(fields, metadata=cast("Any", schema.metadata))
