# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Functions that the extension module carries out: what all of their descriptions have in common.

Made and checked on the driver, pickled, started in the executors.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, cast

import pyarrow as pa

from sparkawait import _core
from sparkawait._plan.arrow_types import fields_within
from sparkawait._plan.checks import refuse
from sparkawait._plan.ddl import is_variant
from sparkawait._plan.models import Model
from sparkawait._plan.option import Option, one_of, optional
from sparkawait.batch import Batch
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.function_with_options import OfColumns, TakesOptions
from sparkawait.secrets import LookUp, Sources, a_password, left_out, looked_up


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
    idempotent_by: str | None = None
    """What makes a call that is made twice do no more than one, if anything does."""
    only_reads = False
    """Whether a call changes nothing and costs nothing, so that it is made again unasked."""
    writes_texts = False
    """Whether values of its columns become texts, such as parts of an address."""
    concurrency_option = "connections"
    """The option that says how many calls it can have on their way."""

    @property
    def name(self) -> str:
        """The name used in messages and metrics."""
        return type(self).__qualname__

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


HOW = Option(
    "left",
    one_of("left", "inner"),
    'what happens to a row that misses: `"left"` gives nulls, `"inner"` drops it',
    type='Literal["left", "inner"]',
)
"""An option of each connector."""

PASSWORD = Option(
    None,
    optional(a_password),
    "where the address does not have it: a text, or a secret, which is looked up again when the"
    " server refuses it",
    type="str | Secret | None",
)
"""An option of connectors to databases."""


class Connector(NativeFunction):
    """A function of one of the connectors, which are described to the extension module in JSON."""

    connector: ClassVar[str]
    """What the extension module calls it."""

    def check(self, input_schema: pa.Schema | None = None) -> None:
        """Checks the description and its columns; unknown ones are taken for texts."""
        native = self._as_native(left_out)

        def column(name: str) -> pa.Field[Any]:
            if input_schema is None:
                return pa.field(name, pa.string())
            return cast("Any", input_schema).field(name)

        for field in cast("Any", self.result_schema):
            if any(is_variant(it.type) for it in fields_within(field)):
                refuse(
                    f"column `{field.name}` is declared as a variant, which Spark makes of texts;"
                    f" declare it as a string, and write parse_json({field.name})",
                    ErrorKind.SCHEMA_INVALID,
                )
        columns = [column(name) for name in dict.fromkeys(self.input_columns)]
        try:
            native.check(pa.schema(columns), self.result_schema)
        except ConfigurationError:
            raise
        except (pa.ArrowException, TypeError, ValueError) as error:
            msg = f"`{self.name}` has a column of a type that it cannot read: {error}"
            raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID) from error

    def _native(self, *, retry_misses: bool) -> _core.Native:
        return self._as_native(looked_up, retry_misses=retry_misses)

    def _as_native(self, look_up: LookUp, *, retry_misses: bool = False) -> _core.Native:
        description = self._description(look_up, retry_misses=retry_misses)
        return _core.Native.of(self.connector, json.dumps(description), self._sources()[0])

    def _description(self, look_up: LookUp = looked_up, *, retry_misses: bool) -> dict[str, Any]:
        """Returns what tasks are told, with the secrets looked up."""
        raise NotImplementedError

    def _sources(self) -> tuple[Sources, dict[str, str]]:
        """Returns what reads secrets again that may change, and what tells them from others."""
        raise NotImplementedError
