# SPDX-License-Identifier: Apache-2.0
"""A function and the options that it is called with, wherever it is given.

Made on the driver by ``with_options`` of a function; immutable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkawait._plan.checks import refuse
from sparkawait.exceptions import ErrorKind
from sparkawait.wait_options import OPTIONS, FunctionArguments, WaitOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["FunctionWithOptions", "TakesOptions"]


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
class FunctionWithOptions:
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
                refuse(
                    f"`{name}` is not an option of one function; give it to the wait function",
                    ErrorKind.OPTION_INVALID,
                )
        return FunctionWithOptions(function, options)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.name

    def with_options(self, **given: Unpack[FunctionArguments]) -> FunctionWithOptions:
        """Returns the function with further options, which win over those that it has."""
        both: Any = {**self.options.given, **given}
        return FunctionWithOptions.of(self.function, both)
