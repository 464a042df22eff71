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

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, cast

from sparkawait._call_info import INFO
from sparkawait._emission import CARRY_OVER, OUTPUT_BATCHES, WATERMARK
from sparkawait._plan.arguments import ColumnArguments, FunctionArguments, WaitArguments
from sparkawait._plan.checks import ObjectOf, flag, refuse
from sparkawait._plan.option import (
    Option,
    checked,
    documented,
    one_of,
    optional,
    options_of,
    rows_or_bytes,
    seconds,
)
from sparkawait._policies import CIRCUIT_BREAKER, HEDGE, MAX_CONCURRENCY
from sparkawait._quantities import columns, is_expression
from sparkawait.cache import CACHE, Cache
from sparkawait.capture import ON_ERROR
from sparkawait.channels import CHANNELS
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.rate_limit import RATE_LIMIT
from sparkawait.retry import RETRY

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "ColumnArguments",
    "FunctionArguments",
    "FunctionWithOptions",
    "WaitArguments",
    "WaitOptions",
]

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
        "rows that a task holds, completed ones included. Ordered mode holds eight times as"
        " many rows as calls, because completed rows wait for slow ones. It never makes more"
        ' calls. A text such as `"256 MB"` (powers of 1024) limits memory instead of rows:'
        " results plus 128 bytes per row",
        optional(rows_or_bytes),
        type="Size | None",
        shown="= `max_concurrency`; 8 x if ordered",
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
    output: Option[Any] = Option(
        '`"append"`: the columns of the input and the returned ones; `"replace"`: the'
        " returned columns only",
        one_of("append", "replace"),
        default="append",
        type="Output",
        of_columns=False,
        of_task=True,
    )
    cache = CACHE
    channel = Option(
        "the destination of a row, such as its host or tenant: a column, an expression, or"
        " several. A slow destination does not hold up the others. Each gets a tenth of the"
        " calls, unless `channels=3` gives the number of destinations",
        optional(lambda value, name: columns(value, name, ErrorKind.CHANNELS_INVALID)),
        type="ColumnsLike | None",
    )
    channels = CHANNELS
    rate_limit = RATE_LIMIT
    circuit_breaker = CIRCUIT_BREAKER
    watermark = WATERMARK
    output_batches = OUTPUT_BATCHES
    warm_up = Option(
        "starts with few calls (an eighth, at least 4), so that `show()` and `limit` do not"
        " pay for rows that you won't see; full speed 100 ms after the first rows were taken. Only"
        " in the first tasks of a function in a worker: a later `show(3)` may pay for"
        " `max_concurrency` rows and more",
        flag,
        default=True,
        type="bool",
        of_columns=False,
        is_rare=True,
    )
    carry_over = CARRY_OVER

    given: dict[str, Any]
    """The options that were given, by name. A short form is replaced by its object, so that calls
    with this set share its cache."""

    def __init__(self, **options: Unpack[WaitArguments]) -> None:
        """Checks each value by itself."""
        given: dict[str, Any] = {**options}
        values = checked(OPTIONS, given, _HINTS)
        for name in given:
            # `None` may be what a short form stands for, as 0 of `retry`, and mean something else.
            if isinstance(OPTIONS[name].check, ObjectOf) and values[name] is not None:
                given[name] = values[name]
        self.__dict__.update(values, given=given)

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
COLUMN_OPTIONS = {name: option for name, option in OPTIONS.items() if option.of_columns}
"""Those that column functions have."""

OF_CLASS = {it for it, option in OPTIONS.items() if option.of_function} - {"schema"}
"""Those that the class of a function may have in its body, beside what `AsyncFunction` has."""

documented(OPTIONS, WaitArguments)(WaitOptions)


# -- a function and the options that it is called with, wherever it is given.
#
# Made on the driver by ``with_options`` of a function; immutable.

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


def check_class(cls: type) -> None:
    """Checks each attribute of a class that has the name of an option.

    Raises:
        ConfigurationError: If a value is wrong, or is a method or a property; or the option is not
            one of a function.
    """
    for name, value in vars(cls).items():
        option = OPTIONS.get(name)
        if option is None or _is_fallback(name, value):
            continue
        attribute = f"{cls.__qualname__}.{name}"
        rename = f"rename the attribute if it is not meant as the option `{name}`"
        if not option.of_function:
            refuse(
                f"`{attribute}` is an option of a call; give it to the wait function, or {rename}"
            )
        if callable(value) and not isinstance(value, type):
            other = " the method for rows that timed out is `on_timeout(row)`;" * (
                name == "timeout"
            )
            refuse(f"`{attribute}` is a function, got where an option is;{other} {rename}")
        if _has_expression(value):
            refuse(
                f"`{attribute}` has an expression, which cannot be sent with a class; name a column"
                " there, or give the expression by `with_options` or to the call"
            )
        try:
            option.check(value, attribute)
        except ConfigurationError as error:
            msg = f"{str(error).splitlines()[0]}; {rename}"
            raise ConfigurationError(msg, error.kind) from None


def _has_expression(value: Any) -> bool:
    """Whether an option is an expression, or made of one, which Spark has to compute."""
    if isinstance(value, (list, tuple)):
        return any(map(_has_expression, cast("list[Any]", value)))
    if is_expression(value):
        return True
    columns = value.columns or () if isinstance(value, Cache) else ()
    return any(map(is_expression, [*columns, getattr(value, "cost", None)]))


def _is_fallback(name: str, value: object) -> bool:
    """Whether an attribute is the method for rows that timed out."""
    is_method = callable(value) or isinstance(value, (staticmethod, classmethod))
    return name == "on_timeout" and is_method


def with_own_options(function: Any) -> Any:
    """Returns a function, or each of several, with the options that its class has in its body.

    Options that the function was given by ``with_options`` win over those.
    """
    if isinstance(function, (list, tuple)):
        return [with_own_options(it) for it in cast("list[Any]", function)]
    given: dict[str, Any] = {}
    called = function
    if isinstance(function, FunctionWithOptions):
        called, given = function.function, function.options.given
    own = _options_in_class(type(called)) if isinstance(called, TakesOptions) else {}
    return FunctionWithOptions(called, WaitOptions(**{**own, **given})) if own else function


def _options_in_class(cls: type) -> dict[str, Any]:
    """Returns the options in the bodies of a class and its bases. Not asked of an instance."""
    found: dict[str, Any] = {}
    for owner in cls.__mro__:
        if owner is TakesOptions:
            break
        found |= {
            name: value
            for name, value in vars(owner).items()
            if name in OF_CLASS and name not in found and not _is_fallback(name, value)
        }
    return found


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
