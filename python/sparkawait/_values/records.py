# SPDX-License-Identifier: Apache-2.0
"""The forms in which a function may return rows, read as mappings by column name.

Classes of other packages are known by what they have, so that none of these is imported.
Pure functions, for any thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from sparkawait._schema.classes import dataclass_fields
from sparkawait.exceptions import ErrorKind, ResultError

_Reader = Callable[[Any], "Mapping[str, Any] | None"]


def fields_of(value: object) -> Mapping[str, Any] | None:
    """Returns what `value` names, by name; ``None`` if it names nothing.

    Read are mappings and what has ``keys`` and items, dataclasses, NamedTuples, rows of PySpark and
    values of its user-defined types, models of pydantic and classes of attrs.

    Raises:
        ResultError: If it cannot be read, whatever it raises then.
    """
    try:
        return _reader_of(type(value))(value)
    except ResultError:
        raise
    except Exception as error:
        # Of the error its class alone: what it says may have contents of the row.
        msg = f"a returned `{_name(value)}` cannot be read: {type(error).__qualname__}"
        raise ResultError(msg, ErrorKind.RESULT_SCHEMA_MISMATCH) from error


def rows_of(
    result: object, names: Sequence[str], *, is_array: bool = False
) -> list[Mapping[str, Any]]:
    """Returns the rows that `result` stands for.

    Args:
        result: One row or a list of 0..n rows. A row is anything that `fields_of` reads or, for a
            single column, its value; ``None`` is a value too then.
        names: The columns of a row.
        is_array: Whether the only column is an array: a list of values could be either then.

    Raises:
        ResultError: If it is anything else; says what to return.
    """
    fields = fields_of(result)
    if fields is not None:
        return [fields]
    only = names[0] if len(names) == 1 else None
    if isinstance(result, (list, tuple)):
        many = cast("Sequence[object]", result)
        return [_row(one, index, many, names, is_array=is_array) for index, one in enumerate(many)]
    if only is not None:
        return [{only: result}]
    if result is None:
        msg = f"the function returned None; return {_form(names)}, or [] for no row"
        raise ResultError(msg, ErrorKind.RESULT_IS_NONE)
    msg = f"the function must return {_form(names)} or a list of them, got `{_name(result)}`"
    raise ResultError(msg, ErrorKind.RESULT_NOT_A_LIST)


def _row(
    one: object, index: int, result: Sequence[object], names: Sequence[str], *, is_array: bool
) -> Mapping[str, Any]:
    fields = fields_of(one)
    if fields is not None:
        return fields
    if len(names) == 1 and not is_array:
        return {names[0]: one}
    if is_array:
        msg = (
            "a list that the function returns is a list of rows;"
            f" return {_form(names)} with the list as value"
        )
    elif isinstance(result, tuple):
        msg = (
            "the function returned a tuple, which does not name its columns;"
            f" return {_form(names)}, a NamedTuple or a dataclass"
        )
    else:
        msg = f"item {index} of the returned list must be {_form(names)}, got `{_name(one)}`"
    raise ResultError(msg, ErrorKind.RESULT_NOT_A_LIST)


def _form(names: Sequence[str]) -> str:
    shown = ", ".join(f"{name!r}: .." for name in names[:3])
    return f"a mapping {{{shown}{', ..' if len(names) > 3 else ''}}}"  # noqa: PLR2004


def _name(value: object) -> str:
    return type(value).__name__


@lru_cache(maxsize=256)
def _reader_of(kind: type[Any]) -> _Reader:  # noqa: PLR0911 - a table
    if issubclass(kind, Mapping):
        return _itself
    if hasattr(kind, "__UDT__"):
        return _by_user_defined_type(kind.__UDT__)
    if callable(getattr(kind, "model_dump", None)):
        return lambda value: value.model_dump()
    if tuple in kind.__mro__:
        # A row of PySpark has names unless it was made without.
        names = "_fields" if hasattr(kind, "_fields") else "__fields__"
        return lambda value: _named(getattr(value, names, None), value)
    if dataclasses.is_dataclass(kind):
        return _by_attributes([field.name for field in dataclass_fields(kind)])
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is not None:
        return _by_attributes([attribute.name for attribute in attributes])
    if callable(getattr(kind, "keys", None)) and hasattr(kind, "__getitem__"):
        return dict
    return _nothing


def _itself(value: Any) -> Mapping[str, Any]:
    return value


def _nothing(_value: Any) -> None:
    return None


def _by_user_defined_type(user_defined: Any) -> _Reader:
    """Reads a value, such as a vector, as the struct that it is stored as, if that is one."""
    names = getattr(user_defined.sqlType(), "names", None)
    if names is None:
        return _nothing
    return lambda value: dict(zip(names, user_defined.serialize(value), strict=True))


def _by_attributes(names: Sequence[str]) -> _Reader:
    return lambda value: {name: getattr(value, name) for name in names}


def _named(names: Sequence[str] | None, values: Sequence[Any]) -> Mapping[str, Any] | None:
    if names is None:
        return None
    fields = dict(zip(names, values, strict=True))
    if len(fields) < len(names):
        msg = f"a returned `{_name(values)}` has two values of one name"
        raise ResultError(msg, ErrorKind.RESULT_SCHEMA_MISMATCH)
    return fields
