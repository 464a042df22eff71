# SPDX-License-Identifier: Apache-2.0
"""The options of the wait functions, each in one place: `WaitOptions`.

```text
  an Option, beside the class of its values where it has one: default, type, check, meaning
        |
        +--> `make signatures`: WaitArguments and the like, signatures, docs/options.md; help()
        +--> WaitOptions in a Plan --> of_task: an argument of `_core.Task`
```

Made on the driver, from any thread; immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from sparkawait._call_info import INFO
from sparkawait._checks import ObjectOf, refuse
from sparkawait._emission import CARRY_OVER, TUNING, WATERMARK
from sparkawait._option import (
    Option,
    checked,
    documented,
    optional,
    options_of,
    rows_or_bytes,
    seconds,
)
from sparkawait._plan.arguments import ColumnArguments, WaitArguments
from sparkawait._policies import CIRCUIT_BREAKER, HEDGE, MAX_CONCURRENCY
from sparkawait.cache import CACHE
from sparkawait.channels import CHANNEL
from sparkawait.on_error import ON_ERROR
from sparkawait.rate_limit import RATE_LIMIT
from sparkawait.retry import RETRY

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["ColumnArguments", "WaitArguments", "WaitOptions"]

_HINTS = {
    "key": "it belongs to key_ordered_wait",
    "setup_timeout": "it is an attribute of an AsyncFunction, whose `open` and `close` it bounds",
    "blocked_loop_timeout": "it is set on the function: @sa.async_function(..,"
    " blocked_loop_timeout=), or an attribute of an AsyncFunction",
}
"""What to write instead of names that are not options."""


class WaitOptions:  # noqa: PLW1641 - what it holds may not be hashable
    """A set of options for the wait functions, to be used for several calls.

    Pass it as ``options=``; a keyword that is given besides wins over it. Options that are not
    given have their defaults. The attributes are the checked values: durations are seconds, sizes
    are bytes.

    Args:
        **options: Each option by its name.

    Raises:
        ConfigurationError: If a value is wrong, or an option unknown. What depends on several
            options, or on the function, is checked when a wait function is called.

    Examples:
        >>> import sparkawait as sa
        >>> patient = sa.WaitOptions(timeout="5 min", retry=9)
        >>> patient.timeout
        300.0
        >>> sa.ordered_wait(df, lookup, options=patient, on_error="null")  # doctest: +SKIP
    """

    schema = Option(
        "the columns that the function returns, unless it declares them: a DDL string, a"
        " `StructType` or a `pyarrow.Schema`",
        type="SchemaLike | None",
        shown="the function's",
    )
    timeout = Option(
        "time for one row, with all attempts and back-offs, from its first call on; waiting"
        ' in line does not count. `None` for no limit. Write a text such as `"5s"`, a'
        " timedelta or seconds",
        seconds,
        default="60s",
        type="Duration | None",
        of_task=True,
    )
    attempt_timeout = Option(
        "time for one attempt. Then it is cancelled, and retried unless the function is not"
        " idempotent",
        seconds,
        type="Duration | None",
        of_task=True,
        is_rare=True,
    )
    max_wait = Option(
        "how long a row waits for a destination that is gone: its circuit breaker is open, or"
        " it has not answered for `timeout`. Then the row fails with kind"
        " `destination-unavailable`, as a timeout, or gets the results of `on_timeout`. A"
        " `Retry-After` is waited out unless you give `max_wait`",
        seconds,
        type="Duration | None",
        shown="= `timeout`",
        of_task=True,
        is_rare=True,
    )
    max_concurrency = MAX_CONCURRENCY
    capacity = Option(
        "rows that a task holds, completed ones included. Ordered mode holds more rows than"
        " calls, because completed rows wait for slow ones: at first 8 for each call, and up to"
        " 100, or 16 MB of results, as rows are taken. It never makes more"
        ' calls. A text such as `"256 MB"` (powers of 1024) limits memory instead of rows:'
        " results plus 128 bytes per row",
        optional(rows_or_bytes),
        type="Size | None",
        shown="= `max_concurrency`; 8 to 100 x if ordered",
        of_function=False,
    )
    retry = RETRY
    hedge = HEDGE
    on_error = ON_ERROR
    on_timeout = Option(
        "results for a row that timed out or exceeded `max_wait`, or a plain function of the"
        " row that returns them. Python functions only",
        type="Any | Callable[[Row], Any]",
    )
    info = INFO
    cache = CACHE
    channel = CHANNEL
    rate_limit = RATE_LIMIT
    circuit_breaker = CIRCUIT_BREAKER
    watermark = WATERMARK
    tuning = TUNING
    carry_over = CARRY_OVER

    given: dict[str, Any]
    """The options that were given, by name. A short form is replaced by its object, so that calls
    with this set share its cache."""

    def __init__(self, **options: Unpack[WaitArguments]) -> None:
        """Checks each value by itself."""
        given: dict[str, Any] = {**options}
        values = checked(OPTIONS, given, _HINTS)
        # `None` may be what a short form stands for, as 0 of `retry`, and mean something else.
        objects = {
            name: values[name]
            for name in given
            if isinstance(OPTIONS[name].check, ObjectOf) and values[name] is not None
        }
        self.__dict__.update(values, given={**given, **objects})

    def over(self, other: WaitOptions) -> WaitOptions:
        """Returns the options of both sets; where both say something, these win."""
        if not other.given:
            return self
        both = object.__new__(WaitOptions)
        both.__dict__.update(vars(other))
        both.__dict__.update({name: getattr(self, name) for name in self.given})
        both.__dict__["given"] = {**other.given, **self.given}
        return both

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuses: two calls may share the set."""
        msg = f"`{name}` cannot be set; make another set, WaitOptions(..)"
        raise AttributeError(msg)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WaitOptions) and self.given == other.given

    def __repr__(self) -> str:
        """Shows what was given."""
        return f"WaitOptions({', '.join(f'{name}={it!r}' for name, it in self.given.items())})"


OPTIONS = options_of(WaitOptions)
"""All options by name."""
NONE_GIVEN = WaitOptions()
"""The set in which nothing was given."""
COLUMN_OPTIONS = {name: option for name, option in OPTIONS.items() if option.of_columns}
"""Those that column functions have."""

documented(OPTIONS, WaitArguments)(WaitOptions)


def of_call(options: object, given: Mapping[str, Any]) -> WaitOptions:
    """Returns the options of a set; those that were given besides win over it.

    Raises:
        ConfigurationError: If `options` is not a set, or one that was given is wrong.
    """
    if options is None:
        return WaitOptions(**given) if given else NONE_GIVEN
    if not isinstance(options, WaitOptions):
        refuse(f"`options` must be a sparkawait.WaitOptions, got `{type(options).__name__}`")
    return WaitOptions(**given).over(options) if given else options
