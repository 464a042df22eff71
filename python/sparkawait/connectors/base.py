# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""What the connectors have in common: how they are described and checked, and options of several.

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
from sparkawait._plan.option import Option, one_of, optional
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.native_function import NativeFunction
from sparkawait.secrets import LookUp, Sources, a_password, left_out, looked_up

HOW = Option(
    'what happens to a row that misses: `"left"` gives nulls, `"inner"` drops it',
    one_of("left", "inner"),
    default="left",
    type='Literal["left", "inner"]',
)
"""An option of each connector."""

PASSWORD = Option(
    "where the address does not have it: a text, or a secret, which is looked up again when the"
    " server refuses it",
    optional(a_password),
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
