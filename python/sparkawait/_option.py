# SPDX-License-Identifier: Apache-2.0
"""An option: one field with its default, its check and what it means.

A class of options is a list of such fields, with a ``TypedDict`` of their types beside it. What
takes these options as keywords is told of them by `documented`: for ``help()``, completion and
`inspect.signature`. Runs where the user calls.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast, get_type_hints, overload

from sparkawait._checks import (
    MAX_BYTES,
    Bytes,
    choice,
    integer,
    optional_duration,
    parse_size,
    refuse,
    shown,
    warn_once,
)
from sparkawait.exceptions import ErrorKind

if TYPE_CHECKING:
    from typing_extensions import Self

_OF_CALL = "it is an option of the call: sa.unordered_wait(.., {name}=..)"
_OF_FUNCTION = "it belongs to the function: @sa.async_function(.., {name}=..)"
_CALLS = "write max_concurrency=, the calls at a time of a task"
_COLUMNS = "write schema=, the columns that the function returns"
_RETRIES = "write retry=3, or a strategy of sa.retry"
_RETRIES_OF_CALL = "retries are an option of the call: sa.unordered_wait(.., retry=3)"
_FAILURES = "write on_error='capture', 'null', 'drop' or 'fail'"
_TOO_MANY = "write on_error=sa.OnError('capture', stop_after=1000), or stop_ratio=0.1"
_ORDER = "choose sa.ordered_wait or sa.unordered_wait"
_SELECT = "all columns come back; write .select(..) behind the call"
_BAR = "Spark shows its tasks, and metrics= counts while they run"
_RATE = "write rate_limit='500/min'"
_TOKENS = "write rate_limit=sa.RateLimit('100000/min', cost=..), whose cost is the tokens of a row"
_KEY = "write auth=sa.http.bearer(sa.secret(..)), or headers="

_Meanings = tuple[tuple[str | None, str], ...]
_TABLE: tuple[tuple[str, _Meanings], ...] = (
    (
        "rpm rps qps requests_per_minute requests_per_second calls_per_second max_rate",
        (("rate_limit", _RATE), ("rate", "write the rate as a text: sa.RateLimit('500/min')")),
    ),
    (
        "tpm tokens_per_minute",
        (("rate_limit", _TOKENS), ("rate", "write the rate as a text: sa.RateLimit('500/min')")),
    ),
    (
        "batch_size max_batch_size chunk_size",
        (
            ("batch", "write batch=, rows of a request"),
            (None, "rows of a call are set on the function: @sa.async_function(.., batch=100)"),
        ),
    ),
    ("batch idempotent threads", ((None, _OF_FUNCTION),)),
    (
        "retries max_retries num_retries retry_count max_attempts attempts tries",
        (
            ("retry", _RETRIES),
            ("max_retries", "write max_retries=, attempts beside the first one"),
            (None, _RETRIES_OF_CALL),
        ),
    ),
    (
        "backoff backoff_factor retry_delay retry_strategy",
        (
            ("retry", "write retry=sa.retry.exponential_backoff(..)"),
            ("initial", "write initial=, maximum= and multiplier="),
            (None, _RETRIES_OF_CALL),
        ),
    ),
    (
        "concurrency max_concurrent max_in_flight max_workers num_workers parallelism n_jobs",
        (
            ("max_concurrency", _CALLS),
            ("connections", "write connections="),
            (None, "calls at a time are an option of the call: max_concurrency="),
        ),
    ),
    (
        "returnType return_type return_dtype result_type output_schema returns dtype",
        (
            ("schema", _COLUMNS),
            (None, "the columns are the argument `schema`"),
        ),
    ),
    (
        "on_failure error_handling errors ignore_errors return_exceptions fail_fast",
        (("on_error", _FAILURES),),
    ),
    (
        "stop_after max_failures max_errors failure_threshold",
        (("on_error", _TOO_MANY), ("stop_after", "write stop_after=, the failed rows of a task")),
    ),
    (
        "stop_ratio error_rate failure_ratio max_error_rate ratio",
        (
            ("on_error", _TOO_MANY),
            ("stop_ratio", "write stop_ratio=, the share of rows that have failed, such as 0.1"),
        ),
    ),
    (
        "max_per_channel max_backlog max_backlog_per_channel channels",
        (
            ("channel", 'write channel=sa.Channel("tenant", count=3)'),
            ("count", "write count=, the channels that have rows at a time"),
        ),
    ),
    (
        "buffer_timeout target_latency max_bytes warm_up output_batches",
        (("tuning", "write tuning=sa.Tuning(..)"),),
    ),
    ("output keep_columns drop_input result_columns", (("on_error", _SELECT),)),
    ("ttl cache_ttl", (("cache", "write cache='10min'"),)),
    ("ordered preserve_order", (("on_error", _ORDER),)),
    ("progress progress_bar show_progress verbose", (("on_error", _BAR),)),
    ("params", (("query", "write query="),)),
    ("data", (("form", "write form= for a form, json= or body="),)),
    ("content", (("body", "write body="),)),
    ("files", (("multipart", "write multipart="),)),
    ("cookies", (("headers", "write headers={'Cookie': ..}"),)),
    ("method", (("query", "write sa.http.request(method, ..), or sa.http.post(..)"),)),
    ("api_key token access_token", (("auth", _KEY),)),
    ("timeout retry max_concurrency rate_limit on_error cache hedge channel", ((None, _OF_CALL),)),
)
_MEANINGS = {word: meanings for words, meanings in _TABLE for word in words.split()}


def meant_by(name: str, known: Collection[str]) -> str:
    """Returns what to write instead of the word of another library; empty for other words.

    Args:
        name: What was given.
        known: What could have been given; an entry may be about one of these.
    """
    for option, hint in _MEANINGS.get(name, ()):
        if option is None or option in known:
            return hint.format(name=name)
    return ""


# -- an option: one field with its default, its check and what it means
#
# A class of options is a list of such fields, with a ``TypedDict`` of their types beside it. What
# takes these options as keywords is told of them by `documented`: for ``help()``, completion and
# `inspect.signature`. Runs where the user calls.


_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])
_WIDTH = 100


def anything(value: Any, name: str) -> Any:  # noqa: ARG001 - a check gets the name
    """Returns what is checked with others only, or not at all."""
    return value


class Option(Generic[_T]):
    """One option of a class; an attribute of its instances is what the check has returned.

    Args:
        meaning: What it means, with units and with the words that it may be.
        check: Returns what was given in one form, or refuses it; gets its name, too.
        default: What it is when it is not given.
        type: What it takes, as a signature says it; its names are known where the option is made.
        shown: The default as a table says it, where that is not its `repr`.
        of_columns: Whether column functions have it.
        of_function: Whether each of several functions that are called for a row may have its own.
        of_task: Whether the operator takes the value, or what it resolves to, by the same name.
        is_rare: Whether few jobs need it; documents say it behind the others.
    """

    name: str

    def __init__(
        self,
        meaning: str,
        check: Callable[[Any, str], _T] = anything,
        *,
        default: object = None,
        type: str = "",  # noqa: A002 - what it is
        shown: str = "",
        of_columns: bool = True,
        of_function: bool = True,
        of_task: bool = False,
        is_rare: bool = False,
    ) -> None:
        self.default = default
        self.type = type
        self.check = check
        self.meaning = meaning
        self.is_told = not shown
        self.shown = shown or f"`{default!r}`".replace("'", '"')
        self.of_columns = of_columns
        self.of_function = of_function and of_columns
        self.of_task = of_task
        self.is_rare = is_rare

    @property
    def sentence(self) -> str:
        """What it means, with the default where a signature does not tell it."""
        told = "" if self.is_told else f" Default: {self.shown.removeprefix('= ')}."
        return f"{self.meaning[0].upper()}{self.meaning[1:]}.{told}"

    @functools.cached_property
    def usual(self) -> _T:
        """The value where nothing is given, which is checked once."""
        return self.check(self.default, self.name)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | _T:
        """Returns the option itself; instances have their own values under its name."""
        if instance is None:
            return self
        raise AttributeError(self.name)


def options_of(cls: type) -> dict[str, Option[Any]]:
    """Returns the options of a class by name, in the order of the source, inherited ones last."""
    found: dict[str, Option[Any]] = {}
    for owner in cls.__mro__:
        found |= {
            name: it
            for name, it in vars(owner).items()
            if isinstance(it, Option) and name not in found
        }
    return found


def refuse_unknown(name: str, known: Iterable[str], hint: str = "") -> NoReturn:
    """Raises a `ConfigurationError` that says which option was meant.

    Args:
        name: What was given.
        known: The options there are.
        hint: What to say instead.
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean `{close[0]}`?" if close else f"known are {', '.join(names)}"
    hint = hint or meant_by(name, names)
    refuse(f"unknown option `{name}`; {hint or meant}", ErrorKind.OPTION_UNKNOWN)


def with_known_names(function: _F) -> _F:
    """Has a function or class refuse unknown names in the words of `refuse_unknown`."""
    if inspect.isclass(function):
        made: Any = function
        made.__init__ = with_known_names(made.__init__)
        return made
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*arguments: Any, **given: Any) -> Any:
        try:
            return function(*arguments, **given)
        except TypeError:
            for name in given:
                if name not in signature.parameters:
                    refuse_unknown(name, (it for it in signature.parameters if it != "self"))
            raise

    return cast("_F", called)


def checked(
    options: Mapping[str, Option[Any]],
    given: Mapping[str, Any],
    hints: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Returns the value of each option, checked by itself.

    Args:
        options: The options there are.
        given: What was given.
        hints: What to write instead of some names that are not options.

    Raises:
        ConfigurationError: If one is wrong or unknown.
    """
    for name in given:
        if name not in options:
            refuse_unknown(name, options, (hints or {}).get(name, ""))
    return {
        name: it.check(given[name], name) if name in given else it.usual
        for name, it in options.items()
    }


class Values:  # noqa: PLW1641 - what it holds may not be hashable
    """The value of each option of the class, checked, by attribute; not to be changed."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Takes the values."""
        self.__dict__.update(values)

    def replaced(self, **values: Any) -> Self:
        """Returns the same with some other values."""
        return type(self)({**self.__dict__, **values})

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__


def documented(options: Mapping[str, Option[Any]], types: type) -> Callable[[_F], _F]:
    """Has a function or class that takes `options` as keywords show each of them.

    Args:
        options: The options by name.
        types: The ``TypedDict`` of their types.

    Returns:
        A decorator: the last entry of ``Args:``, that of the keywords, and the keywords in the
        signature make room for the options.
    """
    hints = get_type_hints(types)

    def decorate(function: _F) -> _F:
        signature = inspect.signature(function)
        named = [it for it in signature.parameters.values() if it.kind is not it.VAR_KEYWORD]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=it.default,
                annotation=hints.get(name, it.type),
            )
            for name, it in options.items()
        ]
        decorated: Any = function
        decorated.__signature__ = signature.replace(parameters=[*named, *added])
        if inspect.isclass(decorated):
            # What documents a class from its constructor finds them there.
            this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
            constructor: Any = decorated.__init__
            constructor.__signature__ = signature.replace(parameters=[this, *named, *added])
        if function.__doc__ is not None:
            decorated.__doc__ = with_entries(function.__doc__, options)
        return function

    return decorate


def with_entries(doc: str, options: Mapping[str, Option[Any]]) -> str:
    """Returns `doc` with an entry for each option instead of one for all of them."""
    entry = re.compile(r"^(?P<margin> *)\*\*\w+: .*(?:\n(?P=margin) +.*)*", re.MULTILINE)

    def entries(match: re.Match[str]) -> str:
        margin = match["margin"]
        return "\n".join(
            textwrap.fill(
                f"{name}: {it.sentence}",
                _WIDTH,
                initial_indent=margin,
                subsequent_indent=f"{margin}    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            for name, it in options.items()
        )

    return entry.sub(entries, doc, count=1)


# -- checks of single options of the wait functions; each returns the value in one form.
#
# What depends on several options, or on the function, is checked in `options`.

_LONG = 10_000
"""Seconds that somebody may have meant as milliseconds."""


def optional(check: Callable[[object, str], _T]) -> Callable[[object, str], _T | None]:
    """Returns a check that ``None`` passes."""
    return lambda value, name: None if value is None else check(value, name)


def seconds(value: object, name: str) -> float | None:
    """Returns a length of time that is not zero; ``None`` for no bound."""
    found = optional_duration(value, name)
    if found is not None and found >= _LONG and not isinstance(value, str | timedelta):
        meant = '`%s=%g` is %.1f h, as a number is seconds; did you mean "%gs"?'
        warn_once(meant, name, found, found / 3600, found / 1000)
    return found


def rows_or_bytes(value: object, name: str) -> int | Bytes:
    """Returns a number of rows, or of bytes where a text gives them with a unit."""
    if isinstance(value, str):
        if value.strip().replace(".", "", 1).isdecimal():
            msg = f"`{name}` must be an int of rows or a text with a unit such as '256 MB'"
            refuse(f"{msg}, got {shown(value)}", ErrorKind.CAPACITY_NOT_POSITIVE)
        return Bytes(parse_size(value, name, most=MAX_BYTES))
    return integer(value, name, 1, kind=ErrorKind.CAPACITY_NOT_POSITIVE)


def size(value: object, name: str) -> int:
    """Returns a size in bytes."""
    return parse_size(value, name, most=MAX_BYTES)


def one_of(*words: str) -> Callable[[object, str], Any]:
    """Returns a check for one of some words."""
    return lambda value, name: choice(value, name, *words)
