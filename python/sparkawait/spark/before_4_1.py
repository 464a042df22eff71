# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""What Spark before 4.1 needs: column functions through pandas, and texts instead of values.

Its arguments come as JSON, since pandas has fewer types, and with the types that ``typeof`` writes.
All of this goes when Spark 4.1 is the oldest that is supported.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkawait._checks import is_variant
from sparkawait._schema.ddl import parse_element
from sparkawait._schema.types import with_zone
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.spark.columns import ColumnTask

if TYPE_CHECKING:
    from pyspark.sql import Column

# -- types as Spark's ``typeof`` writes them, as Arrow types
#
# It does not quote names: ``struct<a b:int,c.d:array<string>>``. A name ends at the first colon
# with a readable rest, so only a name with ``:int,`` or the like in it is read as several. Readers
# of the values notice that by the names. Pure functions, for any thread.


_LEAF = re.compile(r"interval \w+(?: to \w+)?|string collate \w+|\w+(?:\([\d, ]+\))?")
_NOT_CARRIED = re.compile("interval .*")
"""Types that are not part of a name, in the versions of Spark that are asked."""
_Found = Iterator[tuple[Any, int]]
"""What may stand at a place, the likeliest first, and the place behind it."""


def parse_type_text(text: str) -> Any:
    """Returns the type that `text` says.

    Raises:
        ConfigurationError: If a part of it is a type that Arrow does not carry.
    """
    for data_type, end in _types(text, 0):
        if end == len(text):
            return data_type
    msg = f"an argument has a type that cannot be read: {text}"
    raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)


def _types(text: str, at: int) -> _Found:
    for start, read in (("struct<", _structs), ("array<", _arrays), ("map<", _maps)):
        if text.startswith(start, at):
            return read(text, at + len(start))
    return _leaves(text, at)


def _leaves(text: str, at: int) -> _Found:
    match = _LEAF.match(text, at)
    if match is None:
        return
    # It is one with a zone, whatever a session takes the word for.
    leaf = "timestamp_ltz" if match[0] == "timestamp" else match[0]
    try:
        found = parse_element(leaf, "arguments").type
    except ConfigurationError:
        if _NOT_CARRIED.fullmatch(leaf):
            raise
        return
    if is_variant(found):
        msg = "an argument of type variant is not supported before Spark 4.1; cast it to a string"
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    yield found, match.end()


def _arrays(text: str, at: int) -> _Found:
    for element, end in _types(text, at):
        if text.startswith(">", end):
            yield pa.list_(pa.field("element", element)), end + 1


def _maps(text: str, at: int) -> _Found:
    for key, middle in _types(text, at):
        if text.startswith(",", middle):
            for item, end in _types(text, middle + 1):
                if text.startswith(">", end):
                    yield pa.map_(key, item), end + 1


def _structs(text: str, at: int) -> _Found:
    if text.startswith(">", at):
        yield pa.struct([]), at + 1
    # What may come at each place, and what of it is tried now.
    places, members = [_members(text, at)], []
    while places:
        del members[len(places) - 1 :]
        member, end = next(places[-1], (None, at))
        if member is None:
            places.pop()
            continue
        members.append(member)
        if text.startswith(",", end):
            places.append(_members(text, end + 1))
        elif text.startswith(">", end):
            yield pa.struct(members), end + 1


def _members(text: str, at: int) -> _Found:
    colon = text.find(":", at)
    while colon >= 0:
        for data_type, end in _types(text, colon + 1):
            yield pa.field(text[at:colon], data_type), end
        colon = text.find(":", colon + 1)


# -- rows that Spark wrote as JSON, as Arrow columns: what pandas would not carry without loss.
#
# Spark writes them with `OPTIONS`, so that each text stands for exactly one value of its type. Pure
# functions, for any thread.

_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
OPTIONS = {
    "ignoreNullFields": "false",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": _TIME,
    "timestampNTZFormat": _TIME,
    "timeZone": "UTC",
}
"""Options of Spark's ``to_json``."""
PROBE = "named_struct('t', timestamp'1582-10-10 00:00:00.000001 UTC', 'd', date'1582-10-10')"
"""An expression whose text tells whether Spark writes times as `OPTIONS` say: the calendar of its
legacy formatters does not have this day."""
PROBE_TEXT = '{"t":"1582-10-10T00:00:00.000001","d":"1582-10-10"}'

_REST = "-MM-ddTHH:mm:ss.SSSSSS"
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
_INTERVAL = re.compile(r"INTERVAL '(?P<sign>-?)(?P<numbers>[\d :.]+)' (?P<start>\w+)(?: TO \w+)?")
_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
_Read = Callable[[Any], Any]


def parse_rows(texts: Iterable[str], data_type: pa.DataType) -> pa.Array:
    """Returns the structs that `texts` were written from.

    Raises:
        ConfigurationError: If a type cannot be read back exactly, or a value is outside of what
            Python has.
    """
    read = _reader(data_type)
    try:
        values = [
            read(json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=list))
            for text in texts
        ]
    except ValueError as error:
        msg = (
            f"an argument of type {data_type} has a value that Python's types do not hold, such as"
            " a time outside of the years 1 to 9999"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID) from error
    return pa.array(values, data_type)


def _reader(data_type: Any) -> _Read:
    """Returns what makes Python values of the parts of a document."""
    read = _reader_of_values(data_type)
    return lambda value: None if value is None else read(value)


def _reader_of_values(data_type: Any) -> _Read:
    for matches, simple in _SIMPLE:
        if matches(data_type):
            return simple
    if pa.types.is_timestamp(data_type):
        return _instant if data_type.tz is not None else datetime.fromisoformat
    if pa.types.is_list(data_type):
        element = _reader(data_type.value_type)
        return lambda values: [element(value) for value in values]
    if pa.types.is_struct(data_type):
        return _struct_reader(data_type)
    if pa.types.is_map(data_type):
        key, item = _key_reader(data_type), _reader(data_type.item_type)
        return lambda pairs: [(key(name), item(value)) for name, value in pairs]
    return _refuse(data_type)


def _struct_reader(data_type: Any) -> _Read:
    names = [field.name for field in data_type]
    if len(set(names)) < len(names):
        return _refuse(data_type)
    members = [(field.name, _reader(field.type)) for field in data_type]
    names = [name for name, _ in members]

    def read_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if [name for name, _ in pairs] != names:
            msg = (
                "before Spark 4.1 no column of a column function, and no member of a struct in it,"
                " can have a name with a type in it, such as `a:int,b`; rename it"
            )
            raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
        return {name: read(value) for (name, read), (_, value) in zip(members, pairs, strict=True)}

    return read_members


def _key_reader(data_type: Any) -> _Read:
    """Keys are always texts."""
    key_type = data_type.key_type
    if pa.types.is_boolean(key_type):
        return lambda text: text == "true"
    if any(matches(key_type) for matches, _ in _SIMPLE[1:5]):
        return _reader(key_type)
    return _refuse(data_type)


def _refuse(data_type: Any) -> _Read:
    msg = (
        f"before Spark 4.1 a column function cannot have an argument of type {data_type}, which"
        " does not arrive exactly; use ordered_wait, or cast the argument"
    )
    raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)


def _same(value: Any) -> Any:
    return value


def _instant(text: str) -> int:
    """Reads the microseconds since 1970 of a time in UTC, where it may be in a year 0 or 10000."""
    year, rest = text[: -len(_REST)], text[-len(_REST) :]
    # The calendar repeats after 400 years.
    cycles, year_of_cycle = divmod(int(year) - 2000, 400)
    since = datetime.fromisoformat(f"{2000 + year_of_cycle}{rest}") - _EPOCH
    return (since + cycles * timedelta(days=146_097)) // timedelta(microseconds=1)


def _interval(text: str) -> timedelta:
    """Reads ``INTERVAL '-1 02:03:04.000005' DAY TO SECOND``; the start says what comes first."""
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise ValueError
    first = _UNITS.index(match["start"])
    numbers = map(Decimal, re.split("[ :]", match["numbers"]))
    units = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(microseconds=1))
    total = timedelta()
    for number, unit in zip(numbers, units[first:], strict=False):
        micros = unit.microseconds == 1
        total += unit * int(number * 1_000_000 if micros else number)
    return -total if match["sign"] else total


# The kinds of keys stand together.
_SIMPLE: list[tuple[Callable[[Any], bool], _Read]] = [
    (pa.types.is_boolean, _same),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_string, _same),
    (pa.types.is_null, _same),
    (pa.types.is_binary, b64decode),
    (pa.types.is_date, date.fromisoformat),
    (pa.types.is_duration, _interval),
]


# -- the name of a column that has no other, which Spark gives to its own functions by itself.
#
# To be used on the driver, from any thread.


def name_of(column: Column) -> str | None:
    """Returns the name that Spark gives to a column that has no other.

    ``None`` without a JVM, or with another one than Spark's: then PySpark's text of it is the name.
    """
    java_column = getattr(column, "_jc", None)
    if java_column is None:
        return None
    from py4j.protocol import Py4JError  # which a client of Spark Connect may not have

    try:
        return _Names(SparkSession.active()).of(java_column)
    except (Py4JError, PySparkException, AttributeError, TypeError):
        return None


class _Names:
    """Writes expressions as Spark does when it names them, which it does once they are analysed.

    Before that, the text of a function has quotes in Spark 3.5, and Java's objects in 4.0.
    """

    def __init__(self, spark: Any) -> None:
        jvm, self._session = spark._jvm, spark._jsparkSession  # noqa: SLF001 - PySpark has no other
        self._seq: Any = jvm.PythonUtils.toSeq
        self._catalyst: Any = jvm.org.apache.spark.sql.catalyst
        self._no_type: Any = jvm.org.apache.spark.sql.types.NullType()

    def of(self, column: Any) -> str:
        is_expression = pyspark.__version__ < "4"
        found = column.expr() if is_expression else self._session.expression(column)
        return str(self._catalyst.util.package.toPrettySQL(self._named(found)))

    def _named(self, expression: Any) -> Any:
        children = expression.children()
        if children.size():
            named = [self._named(children.apply(at)) for at in range(children.size())]
            expression = expression.withNewChildren(self._seq(named))
        kind = expression.getClass().getSimpleName()
        if kind == "UnresolvedAttribute":
            name = expression.nameParts().mkString(".")
            return self._catalyst.expressions.PrettyAttribute(name, self._no_type)
        return self._function(expression) if kind == "UnresolvedFunction" else expression

    def _function(self, expression: Any) -> Any:
        name, arguments = expression.nameParts().mkString("."), expression.arguments()
        functions = self._catalyst.analysis.FunctionRegistry.builtin()
        identifier = self._catalyst.FunctionIdentifier(name)
        if functions.functionExists(identifier):
            # It has its own text, such as `(id + 1)`.
            return functions.lookupFunction(identifier, arguments)
        return self._catalyst.expressions.PrettyPythonUDF(name, self._no_type, arguments)


# -- column functions before Spark 4.1, where columns reach Python through pandas only.
#
# Pandas has fewer types than Spark, so arguments of a call on columns are sent as JSON, with their
# types. In SQL there are only the values that pandas has made of the arguments: those that may have
# been others are refused. Results leave as Arrow arrays. Used in the executor, like `columns`.


def pandas_function(task: ColumnTask) -> Callable[..., Any]:
    """Returns what Spark calls for `task`; the annotations tell it what to pass."""
    if task.arguments.packed:

        def evaluate(arguments: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            return map(_wrapped, task.run(_packed_rows(task, arguments)))

    else:

        def evaluate(arguments: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            return map(_plain, task.run(_Rows(task).to_batches(arguments)))

    evaluate.__name__ = task.plan.function_name
    return evaluate


def _packed_rows(task: ColumnTask, arguments: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of each batch of texts, which come with their types and the time zone."""
    row_type: Any = None
    for texts, types, zones, probes in arguments:
        if not len(texts):
            continue
        if row_type is None:
            if probes.iloc[0] != PROBE_TEXT:
                msg = (
                    "before Spark 4.1 column functions need"
                    " spark.sql.legacy.timeParserPolicy=CORRECTED or EXCEPTION"
                )
                raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
            schema = pa.schema([("row", parse_type_text(types.iloc[0]))])
            row_type = with_zone(schema, zones.iloc[0]).field("row").type
        yield task.arguments.to_rows(parse_rows(texts, row_type))


class _Rows:
    """Makes record batches of one schema from arguments in SQL; the first batch sets the types."""

    def __init__(self, task: ColumnTask) -> None:
        self._arguments = task.arguments
        self._types: list[Any] = []

    def to_batches(self, arguments: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of each batch of arguments."""
        for one in arguments:
            is_struct = isinstance(one, pd.DataFrame)
            if is_struct and self._arguments.are_values:
                raise _inexact(0, _STRUCT)
            columns = [one[name] for name in one.columns] if is_struct else _many(one)
            if columns and len(columns[0]):
                yield self._to_batch(columns, is_struct=is_struct)

    def _to_batch(self, columns: list[pd.Series], *, is_struct: bool) -> pa.RecordBatch:
        arrays = [_exact(column, index) for index, column in enumerate(columns)]
        if not self._types:
            self._types = [pa.string() if it.type == pa.null() else it.type for it in arrays]
        for index, (array, expected) in enumerate(zip(arrays, self._types, strict=True)):
            if array.type == pa.null():
                arrays[index] = pa.nulls(len(array), expected)
            elif array.type != expected:
                raise _inexact(index, f"was {expected} before and is {array.type} now")
        if is_struct:
            names = [str(column.name) for column in columns]
            return self._arguments.to_rows(pa.StructArray.from_arrays(arrays, names=names))
        return self._arguments.to_rows(arrays[0] if len(arrays) == 1 else tuple(arrays))


def _many(arguments: Any) -> list[pd.Series]:
    return list(arguments) if isinstance(arguments, tuple) else [arguments]


_STRUCT = "is a struct, and a null one arrives as one whose members are null"


def _exact(column: pd.Series | pd.DataFrame, index: int) -> Any:
    """Returns the values that an argument certainly had.

    Raises:
        ConfigurationError: If they may have been others.
    """
    if isinstance(column, pd.DataFrame):
        raise _inexact(index, _STRUCT)
    kind = column.dtype.kind
    if kind == "f" and column.isna().any():
        raise _inexact(index, "has null or NaN among numbers, which pandas does not tell apart")
    if kind == "M" or (kind == "O" and any(isinstance(it, datetime) for it in column)):
        raise _inexact(index, "is a timestamp or a timestamp_ntz, which cannot be told apart")
    if kind == "m":
        return pa.Array.from_pandas(column, type=pa.duration("us"))
    if kind != "O":
        return pa.Array.from_pandas(column)
    values = column.tolist()
    kinds = {type(value) for value in values if value is not None}
    if kinds == {Decimal}:
        scale = -min(value.as_tuple().exponent for value in values if value is not None)
        return pa.array(values, pa.decimal128(38, scale))
    if not kinds <= _SIMPLE_KINDS:
        raise _inexact(index, "is nested, and values within may have changed")
    return pa.array(values)


_SIMPLE_KINDS = {bool, str, bytes, bytearray, date}
"""What pandas leaves as it is, with its nulls."""


def _inexact(index: int, why: str) -> ConfigurationError:
    msg = (
        f"argument {index + 1} {why}: before Spark 4.1 such arguments do not reach a column"
        " function in SQL; call the function on columns, or cast the argument to a string"
    )
    return ConfigurationError(msg, ErrorKind.INPUT_INVALID)


class _Exact(pd.arrays.ArrowExtensionArray):
    """An Arrow array that PySpark's conversions leave alone."""

    def map(self, mapper: Any, na_action: Any = None) -> Any:  # noqa: ARG002
        return self


def _series(column: pa.Array) -> pd.Series:
    return pd.Series(_Exact(pa.chunked_array([column])))


def _wrapped(column: Any) -> Any:
    """Returns what a call on columns expects: an array of none or one struct for each struct."""
    if not pa.types.is_struct(column.type):
        return _series(column)
    valid = column.is_valid()
    ends = pc.cumulative_sum(pc.cast(valid, pa.int32()))
    offsets: Any = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return _series(pa.ListArray.from_arrays(offsets, column.filter(valid)))


def _plain(column: pa.Array) -> Any:
    """Returns what Spark expects in SQL.

    Raises:
        ConfigurationError: If a struct is null, which it could not tell from one with nulls.
    """
    if not pa.types.is_struct(column.type):
        return _series(column)
    if column.null_count:
        msg = (
            "before Spark 4.1 a column function in SQL cannot return null for a struct; call it on"
            " columns, return one column, or use on_error='capture'"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID)
    parts = column.flatten()  # pyright: ignore[reportAttributeAccessIssue]
    members = zip(column.type, parts, strict=True)
    return pd.DataFrame({field.name: _series(member) for field, member in members})
