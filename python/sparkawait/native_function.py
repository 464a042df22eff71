# SPDX-License-Identifier: Apache-2.0
"""Functions that the extension module carries out: what all of their descriptions have in common.

Made and checked on the driver, pickled, started in the executors.
"""

from __future__ import annotations

import pyarrow as pa

from sparkawait import _core
from sparkawait._schema.types import Model
from sparkawait.limits import Batch
from sparkawait.options import NONE_GIVEN, OfColumns, TakesOptions, WaitOptions


class NativeFunction(OfColumns, TakesOptions):
    """Base of functions that the extension module carries out, without Python code per row.

    Attributes:
        result_schema: The columns that the function returns.
        input_columns: The columns of the input that it reads.
    """

    result_schema: pa.Schema
    rules: Model | None = None
    """The class whose rules its rows keep, if it has some beside its types."""
    input_columns: tuple[str, ...] = ()
    only_reads = False
    """Whether a call changes nothing and costs nothing, so that it is made again unasked."""
    writes_texts = False
    """Whether values of its columns become texts, such as parts of an address."""
    names_are_of = ""
    """Where its columns may have other names than what comes: in what a user has written."""
    concurrency_option = "connections"
    """The option that says how many calls it can have on their way."""

    @property
    def name(self) -> str:
        """The name used in messages and metrics."""
        return type(self).__qualname__

    def own_options(self) -> WaitOptions:
        """Returns none: what it has is given where it is made."""
        return NONE_GIVEN

    @property
    def channel_columns(self) -> tuple[str, ...]:
        """The columns that name the destination of a row; none if there is one destination."""
        return ()

    @property
    def finds_channels(self) -> bool:
        """Whether it finds the destination of a row by itself, in the executor."""
        return False

    @property
    def concurrency(self) -> int | None:
        """Most calls that it can have on their way in a process; ``None``: nothing bounds them."""
        return None

    @property
    def idempotent(self) -> bool:
        """Whether a call that is made twice does no more than one."""
        return False

    @property
    def idempotent_by(self) -> str | None:
        """What makes a call that is made twice do no more than one, if anything does."""
        return None

    @property
    def hedges(self) -> bool:
        """Whether a row may be called for once more, beside its first call."""
        return self.idempotent

    @property
    def batching(self) -> Batch | None:
        """How rows are collected, if a call takes many of them; ``None``: a call a row."""
        return None

    def bounded(self, calls: int, rows: int) -> NativeFunction:  # noqa: ARG002 - for those who collect rows
        """Returns the function for a task that has `calls` calls on their way and `rows` rows."""
        return self

    def dropping_misses(self) -> NativeFunction:
        """Returns the function that drops the rows it finds nothing for."""
        return self

    @property
    def may_have_several_results(self) -> bool:
        """Whether it is known to have several results for a row."""
        return False

    def check(self, input_schema: pa.Schema | None = None) -> None:
        """Asks the extension module whether tasks could start, on the driver, without secrets.

        Args:
            input_schema: The columns of the input; ``None`` while they are not known.

        Raises:
            ConfigurationError: If the function is wrong, or the input does not fit it.
        """

    def _native(self, *, retry_misses: bool) -> _core.Native:
        """Builds the description that the extension module takes, in the executor.

        Args:
            retry_misses: Whether a call that finds nothing asks for another attempt.
        """
        raise NotImplementedError
