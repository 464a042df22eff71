# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""Schemas of Spark as Arrow schemas, and back, alike in all versions of PySpark.

Pure functions, for any thread of the driver.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, cast

import pyarrow as pa
from pyspark.sql import types
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
)

from sparkawait._checks import (
    fields_within,
    is_any_list,
    is_variant,
    refuse,
    warn_once,
)
from sparkawait._plan.plan import Place, Plan
from sparkawait._schema.types import COLLATION, INTERVAL, timestamps_of, with_zone
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import AsyncFunction, NativeFunction
from sparkawait.rate_limit import ALONE, Limit, RateLimit, Sharing
from sparkawait.spark.limit_server import limit_server
from sparkawait.spark.session import Session, Times, rules_of

__all__ = ["PlaceOfSession", "check_arguments", "check_columns", "read_arguments"]

_UNITS = ("day", "hour", "minute", "second")

# Required since 4.2; replaced by the zone that is asked for.
_ZONE: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def to_arrow(schema: StructType, zone: str = "UTC") -> pa.Schema:
    """Returns the Arrow schema in which a session in `zone` sends rows of `schema`.

    Raises:
        ConfigurationError: If a column has a type that PySpark cannot send as Arrow data.
    """
    return with_zone(pa.schema([_arrow_field(field) for field in schema.fields]), zone)


def to_spark(schema: pa.Schema) -> StructType:
    """Returns the Spark schema for results of `schema`. Comments are kept as metadata.

    Raises:
        ConfigurationError: If a column has a type that Spark does not know.
    """
    return StructType([_spark_field(field) for field in schema])


def conformed(schema: pa.Schema, times: Times) -> pa.Schema:
    """Returns `schema` with the Arrow types that Spark reads, such as microseconds for all times.

    A timestamp of Spark's has no zone of its own: all get that of `times`, in which texts are read.

    Raises:
        ConfigurationError: As `to_spark`.
    """
    schema = timestamps_of(schema, are_naive=times.are_naive)
    fields = [_conformed_field(field, field, times.zone) for field in schema]
    metadata = schema.metadata
    return pa.schema(fields, metadata=metadata)  # pyright: ignore[reportArgumentType]


def _conformed_field(field: pa.Field, column: pa.Field, zone: str) -> pa.Field:
    return field.with_type(_conformed_type(field.type, column, zone))


def _conformed_type(data_type: Any, column: pa.Field, zone: str) -> pa.DataType:
    """Keeps what fields within have beside their types."""
    if _is_plain_struct(data_type):
        return pa.struct([_conformed_field(field, column, zone) for field in data_type])
    if is_any_list(data_type):
        element = _conformed_field(data_type.value_field, column, zone)
        return pa.list_(element.with_name("element"))
    if pa.types.is_map(data_type):
        fields = (data_type.key_field, data_type.item_field)
        key, item = (cast("Any", _conformed_field(field, column, zone)) for field in fields)
        return pa.map_(key, item)
    wanted = StructType([StructField("leaf", _leaf_type(data_type, column))])
    try:
        found = to_arrow_schema(wanted, **_ZONE).field(0)
    except Exception as error:  # such as a decimal of more than 38 digits
        raise _unknown(column) from error
    return with_zone(pa.schema([found]), zone).field(0).type


def _arrow_field(field: StructField) -> pa.Field:
    try:
        return to_arrow_schema(StructType([field]), **_ZONE).field(0)
    except Exception as error:
        msg = (
            f"column `{field.name}` has type {field.dataType.simpleString()}, which PySpark cannot"
            " send as Arrow data; cast it or leave it out"
        )
        raise ConfigurationError(msg, ErrorKind.INPUT_INVALID) from error


def _spark_field(field: pa.Field, column: pa.Field | None = None) -> StructField:
    comment = (field.metadata or {}).get(b"comment")
    metadata = None if comment is None else {"comment": comment.decode()}
    data_type = _spark_type(field, column or field)
    return StructField(field.name, data_type, field.nullable, metadata)


def _spark_type(field: pa.Field, column: pa.Field) -> DataType:
    """Returns the type of a field that is `column`, or within it."""
    data_type: Any = field.type
    if _is_plain_struct(data_type):
        return StructType([_spark_field(member, column) for member in data_type])
    if is_any_list(data_type):
        element = data_type.value_field
        return ArrayType(_spark_type(element, column), element.nullable)
    if pa.types.is_map(data_type):
        key, item = data_type.key_field, data_type.item_field
        return MapType(_spark_type(key, column), _spark_type(item, column), item.nullable)
    notes = field.metadata or {}
    if COLLATION in notes:
        return _collated(notes[COLLATION].decode(), column)
    if INTERVAL in notes:
        first, _, last = notes[INTERVAL].decode().removeprefix("interval ").partition(" to ")
        return DayTimeIntervalType(_UNITS.index(first), _UNITS.index(last or first))
    return _leaf_type(data_type, column)


def _leaf_type(data_type: pa.DataType, column: pa.Field) -> DataType:
    name = "Variant" if is_variant(data_type) else "Time" if pa.types.is_time(data_type) else None
    if name is not None and not hasattr(types, f"{name}Type"):
        since, way_out = ("4.0", "return its JSON") if name == "Variant" else ("4.1", "return it")
        msg = (
            f"returned column `{column.name}` has a {name.lower()}, which needs Spark {since};"
            f" {way_out} as a string"
        )
        raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)
    try:
        # By position: the default is the other one in 3.5.
        return from_arrow_type(data_type, True)  # noqa: FBT003
    except Exception as error:
        raise _unknown(column) from error


def _unknown(column: pa.Field) -> ConfigurationError:
    msg = f"returned column `{column.name}` has type {column.type}, which Spark does not know"
    return ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)


def _collated(collation: str, column: pa.Field) -> DataType:
    if "collation" not in inspect.signature(StringType).parameters:
        msg = (
            f"returned column `{column.name}` has the collation {collation}, which needs Spark 4;"
            " leave it out"
        )
        raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)
    return cast("Any", StringType)(collation)


def bare(data_type: DataType) -> DataType:
    """Returns `data_type` as Arrow has it: without collations, and metadata of fields within.

    Intervals go from days to seconds.
    """
    if isinstance(data_type, StructType):
        fields = [StructField(it.name, bare(it.dataType), it.nullable) for it in data_type.fields]
        return StructType(fields)
    if isinstance(data_type, ArrayType):
        return ArrayType(bare(data_type.elementType), data_type.containsNull)
    if isinstance(data_type, MapType):
        key, value = bare(data_type.keyType), bare(data_type.valueType)
        return MapType(key, value, data_type.valueContainsNull)
    if isinstance(data_type, DayTimeIntervalType):
        return DayTimeIntervalType()
    return StringType() if isinstance(data_type, StringType) else data_type


def _is_plain_struct(data_type: Any) -> bool:
    """Tells structs from what PySpark sends as structs, such as variants, by their marks."""
    if not pa.types.is_struct(data_type):
        return False
    marks = {key for field in data_type for key in field.metadata or {}}
    return marks.isdisjoint({b"variant", b"srid"})


# -- the columns that a function returns, as Spark is told of them. To be called on the driver


def columns_for_spark(
    declared: pa.Schema, function: AsyncFunction | NativeFunction, times: Times
) -> pa.Schema:
    """Returns the declared columns of `function` in the Arrow types that Spark reads.

    A native function builds those that it declares, in the zone of the session. Which of them Spark
    wants in another type is known by `casts`.

    Raises:
        ConfigurationError: If a returned column has a type that Spark does not know, or that a
            native function does not read.
    """
    if not isinstance(function, NativeFunction):
        return conformed(declared, times)
    for field in declared:
        _check_units(field)
    return with_zone(timestamps_of(declared, are_naive=times.are_naive), times.zone)


def _check_units(column: Any) -> None:
    """Checks that a column of a native function has no type of intervals that it does not read."""
    for field in fields_within(column):
        units = (field.metadata or {}).get(INTERVAL)
        if units is not None:
            refuse(
                f"returned column `{column.name}` is declared as {units.decode()}, but intervals"
                " are read from days to seconds; declare it as interval day to second, and cast it",
                ErrorKind.SCHEMA_INVALID,
            )


def types_within(found: DataType) -> Iterator[DataType]:
    """Yields a type of Spark, and all types inside of it."""
    yield found
    parts: list[DataType] = []
    if isinstance(found, StructType):
        parts = [field.dataType for field in found.fields]
    elif isinstance(found, ArrayType):
        parts = [found.elementType]
    elif isinstance(found, MapType):
        parts = [found.keyType, found.valueType]
    elif isinstance(found, UserDefinedType):
        parts = [cast("Any", found).sqlType()]
    for part in parts:
        yield from types_within(part)


def result_fields(plan: Plan) -> list[Any]:
    """Returns the Spark fields that the operator adds to its input."""
    return to_spark(pa.schema(plan.added_fields)).fields


def casts(plan: Plan, times: Times) -> dict[str, pa.DataType]:
    """Returns the columns of a native function that Spark wants in another type."""
    if not isinstance(plan.function, NativeFunction):
        return {}  # the plan has Spark's types
    declared = plan.declared_schema
    return {
        field.name: field.type
        for field in conformed(declared, times)
        if field.type != declared.field(field.name).type
    }


# -- where the tasks of a job run: what limits that they share have to know of the cluster
#
# To be used on the driver, from any thread.


class PlaceOfSession(Place):
    """The executors of a session, as a plan has to know them.

    Args:
        session: The session, or none.
        is_streaming: Whether the tasks are those of micro-batches.
        is_case_sensitive: Whether names of columns are told apart that differ in case only.
        usual_zone: Another time zone that they may have to do with.
    """

    def __init__(
        self,
        session: Session,
        *,
        is_streaming: bool = False,
        is_case_sensitive: bool = True,
        usual_zone: str | None = None,
    ) -> None:
        """Asks nothing yet."""
        self._session = session
        self._usual_zone = usual_zone
        self._is_streaming = is_streaming
        self.is_case_sensitive = is_case_sensitive

    @property
    def tasks(self) -> int | None:
        """How many tasks of the call run at once, if that is known."""
        return self._session.cores

    @property
    def zones(self) -> tuple[tuple[str, bytes], ...]:
        """The rules of the time zones that the tasks may have to do with, as Spark has them."""
        found: dict[str, bytes] = {}
        for zone in (self._session.times.zone, self._usual_zone):
            rules = None if zone is None else rules_of(self._session.spark, zone)
            if zone is not None and rules is not None:
                found[zone] = rules
        return tuple(found.items())

    def columns(self, declared: pa.Schema, function: AsyncFunction | NativeFunction) -> pa.Schema:
        """Returns the columns in the types of Spark, in the time zone of the session.

        Raises:
            ConfigurationError: If one of them has a type that Spark does not know.
        """
        return columns_for_spark(declared, function, self._session.times)

    def sharing(self, name: str, limits: Sequence[Limit]) -> Sharing:
        """Returns who shares the `limits` of the function `name`.

        Raises:
            ConfigurationError: If a limit of the job must be split and the number of cores is
                unknown.
        """
        if not limits:
            return ALONE
        session = self._session
        # A limit that a Redis keeps needs nothing of the session.
        asked = [it for it in limits if it.server is None and it.scope != "task"]
        said = [it for it in asked if it.scope is not None]
        if session.spark is None:
            if said:
                _refuse("there is no session to ask for them, start one first")
            return ALONE
        if not asked:
            return Sharing(session.application, session.cores)
        stocks = [it for it in asked if not isinstance(it, RateLimit)]
        if session.is_on_one_host:
            # What all processes of a host keep together is that of the job: nothing is split.
            return Sharing(session.application, stocks=_here(session, stocks), is_usual=True)
        if all(it.scope == "host" for it in asked):
            return Sharing(session.application)
        server = limit_server(session)
        if server is None:
            _warn_of_tasks(name, limits, session, is_streaming=self._is_streaming)
            if stocks:
                _refuse_stocks(stocks[0])
            if session.cores is None and any(it.scope == "job" for it in said):
                _refuse(
                    "set `spark.cores.max`, or `spark.executor.cores` and"
                    " `spark.executor.instances` (`spark.dynamicAllocation.maxExecutors` with"
                    " dynamic allocation), or give the limit a `server`"
                )
        cores, of_one = session.cores, session.executor_cores
        usual = server is not None
        return Sharing(session.application, cores, of_one, server, server, is_usual=usual)


def _warn_of_tasks(
    name: str, limits: Sequence[Limit], session: Session, *, is_streaming: bool
) -> None:
    """Says what limits come to that each task has for itself, where nobody said they are so."""
    if session.cores == 1:
        return
    for limit in limits:
        if isinstance(limit, RateLimit) and limit.scope is None and limit.server is None:
            together = "as many times that as tasks run at once"
            if session.cores is not None:
                together = f"on {session.cores} cores that is up to {limit.times(session.cores)}"
            warn_once(
                'rate_limit="%s" of `%s` is a limit of each task, since tasks cannot ask the'
                ' driver: %s%s; say scope="job" to split it, give it a `server` for %s in all, or'
                ' say scope="task" if you mean each task',
                limit.rate.strip(),
                name,
                together,
                ", and each micro-batch begins with a whole burst" if is_streaming else "",
                limit.rate.strip(),
            )


def _here(session: Session, stocks: Sequence[Limit]) -> str | None:
    """Returns where the tasks of one host ask for `stocks`.

    Raises:
        ConfigurationError: If the driver is in another process.
    """
    server = limit_server(session, is_local=True) if stocks else None
    if stocks and server is None:
        _refuse_stocks(stocks[0])
    return server


def _refuse_stocks(limit: Limit) -> NoReturn:
    msg = (
        f"`{type(limit).__name__}` is of the whole job, and tasks ask the driver for it, which they"
        " do not reach with Spark Connect; give it a `name` and a `server`, a Redis that the"
        " executors reach, or use a session without Spark Connect"
    )
    raise ConfigurationError(msg, ErrorKind.RATE_LIMIT_INVALID)


def _refuse(way_out: str) -> NoReturn:
    msg = (
        "the application and its cores are not known, which `rate_limit` of scope 'host' and 'job'"
        f" needs: {way_out}; or use a part of the limit with scope 'task'"
    )
    raise ConfigurationError(msg, ErrorKind.RATE_LIMIT_INVALID)


# -- intervals that become texts, which Spark writes with the units of their type.
#
# ``INTERVAL '5' DAY`` and ``INTERVAL '5 00:00:00' DAY TO SECOND`` are one interval and two texts.
# Arrow data say nothing of units, so that a function in the extension module would write the second
# for both, and look up what nobody has stored. Pure functions, for any thread.


def check_columns(plan: Plan, schema: StructType) -> None:
    """Checks the columns of `schema` that `plan` makes texts of.

    Raises:
        ConfigurationError: If one of them has intervals that do not go from days to seconds.
    """
    for branch in plan.branches:
        check_columns(branch, schema)
    function = plan.function
    if plan.branches or not isinstance(function, NativeFunction) or not function.writes_texts:
        return
    for column in function.input_columns:
        for found in types_within(schema[column].dataType):
            if isinstance(found, DayTimeIntervalType) and found != DayTimeIntervalType():
                refuse(
                    f"column `{column}` has type {found.simpleString()}, whose texts in Spark have"
                    " other units than those that would be sent; cast it to a string, or to"
                    " interval day to second",
                    ErrorKind.INPUT_INVALID,
                )


_MONTHS = 21
"""What Arrow calls ``interval year to month``; PyArrow has no class for its columns."""


def read_arguments(arguments: Iterator[Any], read: Callable[[Any], Any]) -> Iterator[Any]:
    """Yields what `read` makes of the arguments of a column function.

    Raises:
        ConfigurationError: If one is of a type that no column of Python has.
    """
    try:
        yield from map(read, arguments)
    except KeyError as error:
        if error.args == (_MONTHS,):
            _refuse_months()
        raise


def _refuse_months() -> NoReturn:
    refuse(
        "an argument is, or has within it, an interval year to month, which PySpark does not send"
        " as Arrow data; cast it to a string, or leave it out",
        ErrorKind.INPUT_INVALID,
    )


def check_arguments(function: AsyncFunction | NativeFunction, schema: pa.Schema) -> None:
    """Checks the arguments of a column function, whose types only the executor knows.

    Raises:
        ConfigurationError: If one is of a type that no column of Python has, or texts are made of
            one with intervals.
    """
    if any(it.type.id == _MONTHS for field in schema for it in fields_within(field)):
        _refuse_months()
    if not isinstance(function, NativeFunction) or not function.writes_texts:
        return
    for field in schema:
        if any(pa.types.is_duration(it.type) for it in fields_within(field)):
            refuse(
                f"argument `{field.name}` has intervals, whose units a column function is not told,"
                " and which are in Spark's texts; cast it to a string",
                ErrorKind.INPUT_INVALID,
            )


# -- columns whose values are compared: the key of the key-ordered mode, a cache's, a channel's.
#
# Two rows have one key where Spark's ``GROUP BY`` puts them in one group. What cannot be compared
# so is refused. To be called on the driver.

_BINARY = "UTF8_BINARY"
# By name, because no version of Spark has all of them.
_NOT_COMPARED = frozenset(
    {"CalendarIntervalType", "GeographyType", "GeometryType", "MapType", "VariantType"}
)


def check_keys(plan: Plan, schema: StructType) -> None:
    """Checks the columns of `schema` that `plan` uses as keys.

    Raises:
        ConfigurationError: If Spark does not group by one of them, or groups by its collation.
    """
    for branch in plan.branches:
        check_keys(branch, schema)
    for option, columns, kind in (
        ("key", plan.key or (), ErrorKind.OPTION_INVALID),
        ("cache", plan.cache_key, ErrorKind.CACHE_INVALID),
        ("channel", plan.route or (), ErrorKind.CHANNELS_INVALID),
    ):
        for column in columns:
            if column in plan.hidden:
                continue  # looked at when it was made
            found = schema[column].dataType
            why = why_no_key(found)
            if why is not None:
                refuse(f"`{option}` names column `{column}`, a {found.simpleString()}, {why}", kind)


def why_no_key(found: DataType) -> str | None:
    """Says why values of a type cannot be keys; `None` if they can."""
    for it in types_within(found):
        if isinstance(it, StringType) and getattr(it, "collation", _BINARY) != _BINARY:
            return (
                "whose equal values may be written differently; give a column such as"
                " `lower(name) collate utf8_binary` instead"
            )
        if type(it).__name__ in _NOT_COMPARED:
            return "whose values cannot be compared"
    return None
