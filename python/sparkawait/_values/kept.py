# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Columns of another type than was declared, and of values that do not say theirs: if all is kept.

PyArrow keeps less: it makes a date of 23:59, a boolean of 5, 3.00 of 2.999, an infinity of a large
double, and an instant of a time without a zone. Pure functions, for any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from sparkawait._checks import is_any_list
from sparkawait._values.conversion import Misfit, conversion_to, kind_of, kinds_for

_Kinds = tuple["str | None", "str | None"]
_BY_VALUE: set[_Kinds] = {
    ("clock", "instant"),
    ("instant", "clock"),
    ("instant", "date"),
    ("clock", "date"),
    ("integer", "decimal"),
}
"""What PyArrow casts in another way than values are converted, or for types that hold all."""


def kept_as(column: Any, wanted: Any, *, keeps_all: bool = False) -> Any:
    """Returns an array as one of another type, with all that is in it.

    It takes the values that `conversion_to` takes, whose parameters these are, but members of
    structs must be the same.

    Raises:
        Misfit: If no column of the type takes values of that one.
        ArrowException: If something in it would be lost.
    """
    if column.type == wanted or (column := _plain(column)).type == wanted:
        return column
    pairs = {
        (kind_of(came.type), kind_of(to.type))
        for came, to in _leaves(pa.nulls(0, column.type), pa.nulls(0, wanted))
        if came.type != to.type and not pa.types.is_null(came.type)
    }
    if not all(came in kinds_for(to, keeps_all=keeps_all) for came, to in pairs):
        raise Misfit(str(column.type))
    if pairs & _BY_VALUE:
        conversion = conversion_to(wanted, keeps_all=keeps_all)
        values = column.to_pylist()
        return pa.array(values if conversion is None else conversion.all(values), wanted)
    found = column.cast(wanted)
    if ("floating", "floating") in pairs and any(_is_beyond(*it) for it in _leaves(column, found)):
        msg = "a double would be infinite as a float"
        raise pa.ArrowInvalid(msg)
    return found


def _is_beyond(came: Any, to: Any) -> bool:
    """Tells whether numbers have become infinities."""
    return pa.types.is_floating(came.type) and pc.sum(pc.is_inf(came)) != pc.sum(pc.is_inf(to))


def _leaves(came: Any, to: Any) -> Iterator[tuple[Any, Any]]:
    """Returns the parts of two arrays that hold no others, those of one place together.

    Raises:
        Misfit: If the one has members that the other has not.
    """
    came = _plain(came)
    if pa.types.is_map(came.type) and pa.types.is_map(to.type):
        parts = zip(_entries(came), _entries(to), strict=True)
    elif _is_list(came.type) and _is_list(to.type):
        parts = [(came.flatten(), to.flatten())]
    elif pa.types.is_struct(came.type) and pa.types.is_struct(to.type):
        members, others = _members(came), _members(to)
        if members.keys() != others.keys():
            raise Misfit(str(came.type))
        parts = [(part, others[name]) for name, part in members.items()]
    else:
        yield came, to
        return
    for its, instead in parts:
        yield from _leaves(its, instead)


def _plain(array: Any) -> Any:
    """Returns what an array is without its encoding."""
    if isinstance(array, pa.ExtensionArray):
        return array.storage
    if str(array.type).startswith("run_end_encoded"):
        return cast("Any", pc).run_end_decode(array)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _entries(array: Any) -> list[Any]:
    # Maps do not flatten.
    first, last = (array.offsets[at].as_py() for at in (0, -1))
    return [part.slice(first, last - first) for part in (array.keys, array.items)]


def _is_list(data_type: Any) -> bool:
    return is_any_list(data_type) or "list_view<" in str(data_type)[:16]


def _members(array: Any) -> dict[str, Any]:
    return dict(zip((field.name for field in array.type), array.flatten(), strict=True))


# -- columns of Python's values, whose type is that of those before, or what holds them all


def array_of(values: Any, wanted: pa.DataType | None = None) -> Any:
    """Returns values as an array.

    Args:
        values: A list, or a column of another library, which may know its type.
        wanted: The type of those before, if there are any.

    Raises:
        Misfit: If they are of no one type, or would lose something.
    """
    try:
        return _array_of(values, wanted)
    except Misfit:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # What they say has values of rows in it.
        names = [f"`{it.__name__}`" for it in dict.fromkeys(map(type, values)) if it is not _NONE]
        of_types, rule = (
            ("types", ", which do not fit together") if names[1:] else ("type", " that do not fit")
        )
        raise Misfit(f"values of {of_types} {' and '.join(names)}{rule}") from None


def check_objects(frame: Any) -> None:
    """Looks at the columns of a data frame of pandas that say no type, and may hold several.

    Raises:
        Misfit: If one does.
    """
    if not hasattr(getattr(frame, "dtypes", None), "items"):
        return
    for name, column in frame.items():
        if _is_untyped(column):
            try:
                array_of(column)
            except Misfit as error:
                raise Misfit(error.got, f"{name}{error.path}") from None


def _array_of(values: Any, wanted: pa.DataType | None) -> Any:
    names = ("chunks", "dtype", "__arrow_array__", "__arrow_c_array__", "__arrow_c_stream__")
    if any(hasattr(values, it) for it in names) and not _is_untyped(values):
        array: Any = pa.array(values)
        array = array.combine_chunks() if hasattr(array, "chunks") else array
        return array if wanted is None else kept_as(array, wanted, keeps_all=True)
    if hasattr(values, "isna"):  # of pandas, where NaN is no number but missing
        values = [None if one else it for it, one in zip(values, values.isna(), strict=True)]
    kinds = {*map(type, values)} - {_NONE}
    if missing := {kind for kind in kinds if kind.__name__ in _MISSING}:
        values = [None if type(it) in missing else it for it in values]
    if wanted is not None:
        return pa.array(_converted(values, wanted), wanted)
    array = pa.array(values)
    if len(kinds) < 2 and all(_says_all(kind) for kind in kinds):  # noqa: PLR2004
        return array
    try:
        kept = _converted(values, array.type)
    except Misfit as error:
        raise Misfit(f"{error.got} beside values of {array.type}", error.path) from None
    return array if kept is values else pa.array(kept, array.type)


def _is_untyped(values: Any) -> bool:
    return str(getattr(values, "dtype", "")) == "object"


def _converted(values: Sequence[Any], data_type: pa.DataType) -> Sequence[Any]:
    conversion = conversion_to(data_type, keeps_all=True)
    return values if conversion is None else conversion.all(values)


_NONE = type(None)
_MISSING = {"NaTType", "NAType"}
_SCALARS = (bool, int, float, str, bytes, Decimal, timedelta, time)


def _says_all(kind: type) -> bool:
    """Tells whether a type of values is all that PyArrow must know of them."""
    is_of_numpy = hasattr(kind, "dtype") and not hasattr(kind, "__len__")
    return kind is date or issubclass(kind, _SCALARS) or is_of_numpy
