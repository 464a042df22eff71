# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The wait functions over Arrow record batches."""

from __future__ import annotations

from collections.abc import (
    AsyncIterable,
    Iterable,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from sparkawait._option import documented
from sparkawait._plan.plan import Chain
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait._worker.event_loop import check_may_wait
from sparkawait._worker.metrics import SumsOfTasks
from sparkawait.arrow.output import Batches, Source
from sparkawait.exceptions import (
    ConfigurationError,
    ErrorKind,
)
from sparkawait.functions import AsyncFunctionsLike
from sparkawait.metrics import Metrics, sums_of
from sparkawait.options import OPTIONS, WaitArguments, WaitOptions, of_call

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "ArrowInput",
    "ArrowStream",
    "key_ordered_wait",
    "ordered_wait",
    "unordered_wait",
]


# -- the wait functions


class ArrowStream(Protocol):
    """What has ``__arrow_c_stream__``."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns the stream."""
        ...


Rows: TypeAlias = ArrowStream | pa.RecordBatch | Sequence[Mapping[str, Any]] | Mapping[str, Any]
"""Things that have rows of named columns."""
ArrowInput: TypeAlias = Rows | Iterable[Rows] | AsyncIterable[Rows]
"""What the wait functions over Arrow take."""


@documented(OPTIONS, WaitArguments)
def ordered_wait(
    batches: ArrowInput,
    function: AsyncFunctionsLike,
    *,
    chain: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> Batches:
    """Calls `function` for every row; the output has the order of the input.

    Args:
        batches: What has ``__arrow_c_stream__``, such as a PyArrow table or a polars DataFrame; a
            list of dicts, one for each row; or a dict with a list for each column. Or an iterable
            of these and of record batches, all of one schema, which is pulled lazily and ahead of
            need. An asynchronous one is for an ``async for`` over the output.
        function: An ``async def``, or a plain function, which is called in threads, decorated with
            `sparkawait.async_function` or with ``schema=`` given here; an `AsyncFunction` or a
            native function; or a list of several, which are called for a row side by side.
        chain: Whether this call joins the task of the call that returned `batches`: one thread
            drives both operators, and this one begins with the first row that the other completes.
        metrics: Adds up what this and other calls count, while they run and after they ended:
            `sparkawait.Metrics`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.

    Returns:
        An iterator of non-empty batches, whose row counts do not follow those of the input, and an
        Arrow stream: ``polars.DataFrame(out)``, ``out.to_table()`` and others, see `Batches`.

    Raises:
        ConfigurationError: At once if an argument is wrong; from the iterator if it does not go
            with the input.
        AsyncFunctionError: From the iterator, if a row failed on its last attempt and `on_error`
            is ``"fail"``. Rows that completed before it have been emitted.
        ResultError: The same, if what the function returned does not fit its schema.
        OperatorStateError: On the event loop that runs the functions, in a coroutine or `open`.
    """
    return _wait("ordered", batches, function, options, given, chain=chain, metrics=metrics)


@documented(OPTIONS, WaitArguments)
def unordered_wait(
    batches: ArrowInput,
    function: AsyncFunctionsLike,
    *,
    chain: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> Batches:
    """Calls `function` for every row; rows are emitted as they complete.

    With ``watermark=`` rows between two watermarks may overtake one another, and no row crosses a
    watermark. Result and exceptions are those of `ordered_wait`.

    Args:
        batches: As in `ordered_wait`.
        function: As in `ordered_wait`.
        chain: As in `ordered_wait`.
        metrics: As in `ordered_wait`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait("unordered", batches, function, options, given, chain=chain, metrics=metrics)


@documented(OPTIONS, WaitArguments)
def key_ordered_wait(
    batches: ArrowInput,
    function: AsyncFunctionsLike,
    *,
    key: str | Sequence[str],
    chain: bool = False,
    metrics: Metrics | None = None,
    options: WaitOptions | None = None,
    **given: Unpack[WaitArguments],
) -> Batches:
    """Calls `function` for every row, one at a time per key; each key keeps its order.

    Rows with a null key have no order among themselves. Result and exceptions are those of
    `ordered_wait`; `timeout` includes the wait for the key.

    Args:
        batches: As in `ordered_wait`.
        function: As in `ordered_wait`.
        key: Column, or columns, of the key.
        chain: As in `ordered_wait`.
        metrics: As in `ordered_wait`.
        options: A set of options; those that are given by themselves win over it.
        **given: The options, see `sparkawait.WaitOptions`.
    """
    return _wait(
        "key_ordered", batches, function, options, given, chain=chain, metrics=metrics, key=key
    )


def _wait(
    mode: str,
    batches: object,
    function: object,
    options: WaitOptions | None,
    given: Mapping[str, Any],
    *,
    chain: bool,
    metrics: Metrics | None,
    key: object = None,
) -> Batches:
    check_may_wait()
    sums = sums_of(metrics)
    before, source, summed = _taken(batches) if chain else (None, Source.of(batches), ())
    plan = resolve_unpickled(
        mode,
        function,
        input_schema=None,
        key=key,
        # It takes other things by name, too, which are not options.
        options=of_call(options, given),
        taken=() if before is None else before.names,
    )
    if plan.options.carry_over is not None:
        msg = (
            "`carry_over` is for streaming DataFrames, whose input comes in micro-batches; an"
            " iterator ends when all rows have left, so leave it out"
        )
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    calls = Chain.of(plan) if before is None else before.then(plan)
    return Batches(calls, source, (*summed, sums))


def _taken(batches: object) -> tuple[Chain, Source, Sequence[SumsOfTasks | None]]:
    """Returns the operators that make `batches`, their input and what they add their counts to."""
    if not isinstance(batches, Batches):
        msg = (
            "`chain` needs what a wait function of sparkawait.arrow returned, untouched, got"
            f" `{type(batches).__name__}`; leave `chain` out"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    return batches.take_over()
