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

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

from sparkawait._arguments import ColumnArguments, FunctionArguments, OwnArguments, WaitArguments
from sparkawait._callables import layers
from sparkawait._checks import (
    ObjectOf,
    flag,
    integer,
    is_expression,
    optional_duration,
    refuse,
    warn_once,
)
from sparkawait._option import (
    Option,
    checked,
    documented,
    optional,
    options_of,
    rows_or_bytes,
    seconds,
)
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.journal import JOURNAL
from sparkawait.limits import CHANNEL, CIRCUIT_BREAKER, HEDGE, MAX_CONCURRENCY, Channel, the_batch
from sparkawait.outcomes import CACHE, CARRY_OVER, INFO, ON_ERROR, TUNING, WATERMARK, Cache
from sparkawait.rate_limit import RATE_LIMIT
from sparkawait.retry import RETRY

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "ColumnArguments",
    "FunctionArguments",
    "FunctionWithOptions",
    "OwnArguments",
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
    journal = JOURNAL
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


# -- a function and the options that it has for itself, wherever it is given
#
# ```text
#   a decorator, or the body of a class  <  with_options(..)  <  the call
# ```
#
# Made on the driver, from any thread; immutable.


OWN_OPTIONS = {it: o for it, o in OPTIONS.items() if o.of_function and it != "schema"}
"""Those that a function may have for itself: in its decorator or the body of its class."""

MOST_THREADS = 4096


class _OfFunction:
    """What a function says of itself, beside the options that a call may have as well."""

    batch = Option(
        "calls the function with lists of rows; it returns one result per row. A `Batch`, or an int"
        " for its `max_rows`",
        the_batch,
        type="Batch | int | None",
    )
    idempotent = Option(
        "whether a call that is made twice does no more than one. `hedge` needs `True`. With"
        " `False` a call that ran into `attempt_timeout` is not made again, whatever `retry` says:"
        " it may have been carried out. With `None` it is",
        optional(flag),
        type="bool | None",
    )
    threads = Option(
        "calls of a plain `def` at most at a time in a task, each in a thread. A job has as many"
        " for each of its tasks that run at once",
        optional(lambda value, name: integer(value, name, 1, MOST_THREADS)),
        type="int | None",
        shown="= `max_concurrency`, and 64 at most",
    )
    blocked_loop_timeout = Option(
        "ends the task when code that blocks, such as `time.sleep`, keeps the event loop of the"
        " worker for so long; `timeout` cannot cancel it. `None` only logs what blocks",
        optional_duration,
        type="Duration | None",
    )
    setup_timeout = Option(
        "how long `open` of a class may take, and `close`, each: what takes longer is cancelled and"
        " fails the task. `None`: no limit for `open`, and 30 s for `close`",
        optional_duration,
        type="Duration | None",
    )


OF_FUNCTION = options_of(_OfFunction)
"""What belongs to a function and to no call."""


_OF_SPARK = frozenset({"asNondeterministic", "deterministic", "evalType", "func", "returnType"})
"""What ``spark.udf.register`` looks for in a function of columns."""


def asks_for_column(name: str, *given: Any) -> bool:
    """Whether a function that can be called with rows, too, is to make a column of its arguments.

    It is, if one of them is a ``Column``. Texts alone are the arguments of a call.

    Args:
        name: The name of the function.
        *given: Its arguments.

    Raises:
        ConfigurationError: If there are columns and values among them.
    """
    if not any(map(is_expression, given)):
        return False
    for it in given:
        if not (isinstance(it, str) or is_expression(it)):
            refuse(
                f"`{name}` got a Column and a value of type `{type(it).__name__}`; to make a"
                " column, write F.lit(..) for a value; to call it now, give it no Column",
                ErrorKind.INPUT_INVALID,
            )
    return True


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


_TYPO = 0.85
"""How much alike two names are, of 1, if one is a typo of the other."""


def check_class(cls: type) -> None:
    """Checks each attribute of a class that has the name of an option; warns of a typo of one.

    Raises:
        ConfigurationError: If a value is wrong, or is a method or a property; or the option is not
            one of a function.
    """
    for name, value in vars(cls).items():
        option = OPTIONS.get(name)
        if option is None:
            _warn_of_typo(cls, name, value)
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
        _refuse_expression(value, attribute, "class")
        try:
            option.check(value, attribute)
        except ConfigurationError as error:
            msg = f"{str(error).splitlines()[0]}; {rename}"
            raise ConfigurationError(msg, error.kind) from None


def _warn_of_typo(cls: type, name: str, value: object) -> None:
    """Warns of what may be meant as an option; it may also be the author's own."""
    if name.startswith("_") or callable(value) or hasattr(value, "__get__"):
        return
    known = [it for it, option in OPTIONS.items() if option.of_function]
    close = difflib.get_close_matches(name, known, n=1, cutoff=_TYPO)
    if close and name != f"{close[0]}s":
        warn_once(
            "`%s.%s` is not an option, and has no effect on calls; did you mean `%s`?",
            cls.__qualname__,
            name,
            close[0],
        )


def declared_options(given: OwnArguments) -> WaitOptions:
    """Returns the options that a decorator was given.

    Raises:
        ConfigurationError: If a value is wrong, has an expression, or is not of a function.
    """
    options = _of_one_function(given)
    for option, value in options.given.items():
        _refuse_expression(value, option, "function")
    return options


def _of_one_function(given: Any) -> WaitOptions:
    options = WaitOptions(**given)
    for name in options.given:
        if not OPTIONS[name].of_function:
            refuse(f"`{name}` is not an option of one function; give it to the wait function")
    return options


def _refuse_expression(value: Any, option: str, holder: str) -> None:
    if _has_expression(value):
        refuse(
            f"`{option}` has an expression, which cannot be sent with a {holder}; name a column"
            " there, or give the expression by `with_options` or to the call"
        )


def has_expressions(key: object, options: WaitOptions, function: object) -> bool:
    """Whether Spark has to compute a column for a call of one function, or of several.

    Args:
        key: What makes up the key, in the key-ordered mode.
        options: The options of the call.
        function: What is called.
    """
    given = [key, *options.given.values()]
    if isinstance(function, (list, tuple)):
        for it in cast("list[Any]", function):
            if isinstance(it, FunctionWithOptions):
                given += it.options.given.values()
    return any(_has_expression(it) for it in given if it is not None)


def _has_expression(value: Any) -> bool:
    """Whether an option is an expression, or made of one, which Spark has to compute."""
    if isinstance(value, (list, tuple)):
        return any(map(_has_expression, cast("list[Any]", value)))
    if is_expression(value):
        return True
    if isinstance(value, Cache):
        return any(map(is_expression, value.columns))
    if isinstance(value, Channel):
        return any(map(is_expression, value.by))
    of_limit, of_watermark = getattr(value, "cost", None), getattr(value, "column", None)
    return is_expression(of_limit) or is_expression(of_watermark)


def _is_fallback(name: str, value: object) -> bool:
    """Whether an attribute is the method for rows that timed out."""
    is_method = callable(value) or isinstance(value, (staticmethod, classmethod))
    return name == "on_timeout" and is_method


def with_own_options(function: Any) -> Any:
    """Returns a function, or each of several, with the options that it has for itself.

    Those are in the body of its class, or were given to its decorator, also of a function that it
    wraps. Options that it was given by ``with_options`` win over those.
    """
    if isinstance(function, (list, tuple)):
        return [with_own_options(it) for it in cast("list[Any]", function)]
    called, options = function, NONE_GIVEN
    if isinstance(function, FunctionWithOptions):
        called, options = function.function, function.options
    for layer in layers(called):
        if isinstance(layer, TakesOptions):
            options = options.over(layer.own_options())
    return FunctionWithOptions(called, options) if options.given else function


def _options_in_class(cls: type) -> WaitOptions:
    """Returns the options in the bodies of a class and its bases. Not asked of an instance."""
    found: dict[str, Any] = {}
    for owner in cls.__mro__:
        if owner is TakesOptions:
            break
        found |= {
            name: value
            for name, value in vars(owner).items()
            if name in OWN_OPTIONS and name not in found and not _is_fallback(name, value)
        }
    # They were checked when the class was made, and may have been set since.
    return WaitOptions(**found) if found else NONE_GIVEN


class TakesOptions:
    """What can be called with options of its own: a function of Python, or a native one."""

    @property
    def name(self) -> str:
        """What messages and metrics call it."""
        raise NotImplementedError

    is_called_with_rows: ClassVar[bool] = False
    """Whether it can be called by itself, as one that was decorated."""

    def own_options(self) -> WaitOptions:
        """Returns the options that it has for itself: those in the body of its class."""
        return _options_in_class(type(self))

    def with_facts(self, facts: Mapping[str, Any]) -> TakesOptions:
        """Returns the function that says `facts` of itself, which are of `OF_FUNCTION`.

        Raises:
            ConfigurationError: If it is a native function.
        """
        refuse(
            f"`{next(iter(facts))}` is not an option of the native function `{self.name}`; `batch`"
            " and `idempotent` are given where it is made, if it has them"
        )

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
        every: dict[str, Any] = {**given}
        facts = {name: every.pop(name) for name in OF_FUNCTION if name in every}
        options = _of_one_function(every)
        if facts:
            function = function.with_facts(facts)
        return FunctionWithOptions(function, options)

    def __call__(self, *columns: Any, **named: Any) -> Any:
        """Returns the column of its results; or calls what was decorated, as that would be called.

        Args:
            *columns: Columns or their names, in the order in which the function names them.
            **named: Columns by the names that the function has for them.

        Raises:
            ConfigurationError: If these are not the columns that the function reads.
        """
        called: Any = self.function
        takes_rows = called.is_called_with_rows
        if takes_rows and not asks_for_column(self.name, *columns, *named.values()):
            return called(*columns, **named)
        return super().__call__(*columns, **named)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.name

    def with_options(self, **given: Unpack[FunctionArguments]) -> FunctionWithOptions:
        """Returns the function with further options, which win over those that it has."""
        made = FunctionWithOptions.of(self.function, given)
        return FunctionWithOptions(made.function, made.options.over(self.options))
