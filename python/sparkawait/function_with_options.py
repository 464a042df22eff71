# SPDX-License-Identifier: Apache-2.0
"""A function and the options that it is called with, wherever it is given.

Made on the driver by ``with_options`` of a function; immutable.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparkawait._plan.checks import refuse
from sparkawait.wait_options import OPTIONS, FunctionArguments, WaitOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

_OF_SPARK = frozenset({"asNondeterministic", "deterministic", "evalType", "func", "returnType"})
"""What ``spark.udf.register`` looks for in a function of columns."""


class OfColumns:
    """A function of rows that is one of columns, too, as `sparkawait.async_udf` of it is.

    ``df.withColumn("customer", function("id"))`` calls it, and
    ``spark.udf.register("customer", function)`` makes it known to SQL.
    """

    def __call__(self, *columns: Any, **named: Any) -> Any:
        """Returns the column of its results; null for rows that it finds nothing for.

        Args:
            *columns: Columns or their names, in the order in which the function names them.
            **named: Columns by the names that the function has for them.

        Raises:
            ConfigurationError: If these are not the columns that the function reads.
        """
        return self._of_columns()(*columns, **named)

    def __getattr__(self, name: str) -> Any:
        """Returns what Spark asks a function of columns for."""
        if name in _OF_SPARK:
            return getattr(self._of_columns(), name)
        msg = f"`{type(self).__name__}` has no attribute `{name}`"
        raise AttributeError(msg)

    def _of_columns(self) -> Any:
        # PySpark is imported for it, which nothing else here needs.
        return import_module("sparkawait").async_udf(self)


class TakesOptions:
    """What can be called with options of its own: a function of Python, or a native one."""

    @property
    def name(self) -> str:
        """What messages and metrics call it."""
        raise NotImplementedError

    def with_options(self, **given: Unpack[FunctionArguments]) -> FunctionWithOptions:
        """Returns this function with options of its own, such as ``timeout="1s"``.

        They are those of the function wherever it is called, also as one of several that are called
        for a row side by side; options of the call win where it is called alone. Options that are
        about rows, such as ``capacity``, are those of the call.

        Raises:
            ConfigurationError: If a value is wrong, or an option is not of a function.
        """
        return FunctionWithOptions.of(self, given)


@dataclass(frozen=True)
class FunctionWithOptions(OfColumns):
    """A function with options of its own, as one of several that are called for a row.

    Attributes:
        function: The function.
        options: What it is called with, unless the call says otherwise.
    """

    function: TakesOptions
    options: WaitOptions

    @staticmethod
    def of(function: TakesOptions, given: FunctionArguments) -> FunctionWithOptions:
        """Returns `function` with these options.

        Raises:
            ConfigurationError: If a value is wrong, or an option is not of a function.
        """
        options = WaitOptions(**given)
        for name in options.given:
            if not OPTIONS[name].of_function:
                refuse(f"`{name}` is not an option of one function; give it to the wait function")
        return FunctionWithOptions(function, options)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.name

    def with_options(self, **given: Unpack[FunctionArguments]) -> FunctionWithOptions:
        """Returns the function with further options, which win over those that it has."""
        both: Any = {**self.options.given, **given}
        return FunctionWithOptions.of(self.function, both)
