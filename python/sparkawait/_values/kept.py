# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Columns of another type than was declared: cast, if that keeps everything.

PyArrow's safe casts do not: they make a date of 23:59, a boolean of 5, 3.00 of 2.999, an infinity
of a large double, and an instant of a time without a zone. Pure functions, for any thread.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkawait._checks import is_any_list


class ZonesDifferError(pa.ArrowInvalid):
    """Times with a zone are wanted as such without, or the other way round."""


def kept_as(column: Any, wanted: Any) -> Any:
    """Returns an array as one of another type, with all that is in it.

    A double may be rounded to a float, as of any result.

    Raises:
        ArrowException: If it cannot be cast, or something would be lost.
        ZonesDifferError: If only the clock of a time would be kept.
    """
    if column.type == wanted:
        return column
    cast = column.cast(wanted)
    _check(column, cast)
    return cast


def forms_of(schema: pa.Schema) -> dict[str, str]:
    """Returns names and types of columns: types are equal where Spark takes one for the other."""
    return {field.name: _form_of(field.type) for field in schema}


def _form_of(data_type: Any) -> str:
    if pa.types.is_struct(data_type):
        return f"struct<{', '.join(f'{it.name!r} {_form_of(it.type)}' for it in data_type)}>"
    if pa.types.is_map(data_type):
        return f"map<{_form_of(data_type.key_type)}, {_form_of(data_type.item_type)}>"
    if _is_list(data_type):
        return f"array<{_form_of(data_type.value_type)}>"
    return str(data_type).replace("large_", "")


def _check(came: Any, cast: Any) -> None:
    """Raises if the values of `cast` are not those that `came`, part by part."""
    came = _plain(came)
    if pa.types.is_map(came.type) and pa.types.is_map(cast.type):
        parts = zip(_entries(came), _entries(cast), strict=True)
    elif _is_list(came.type) and _is_list(cast.type):
        parts = [(came.flatten(), cast.flatten())]
    elif pa.types.is_struct(came.type) and pa.types.is_struct(cast.type):
        members = _members(came), _members(cast)
        if members[0].keys() != members[1].keys():
            _refuse()
        parts = [(part, members[1][name]) for name, part in members[0].items()]
    else:
        parts = []
        _check_leaves(came, cast)
    for its, instead in parts:
        _check(its, instead)


def _plain(array: Any) -> Any:
    """Returns what an array is without its encoding."""
    if isinstance(array, pa.ExtensionArray):
        return array.storage
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _entries(array: Any) -> list[Any]:
    # Maps do not flatten.
    first, last = (array.offsets[at].as_py() for at in (0, -1))
    return [part.slice(first, last - first) for part in (array.keys, array.items)]


def _is_list(data_type: Any) -> bool:
    return is_any_list(data_type) or "list_view<" in str(data_type)[:16]


def _members(array: Any) -> dict[str, Any]:
    return dict(zip((field.name for field in array.type), array.flatten(), strict=True))


def _check_leaves(came: Any, cast: Any) -> None:
    its, wanted = came.type, cast.type
    if pa.types.is_timestamp(its) and pa.types.is_timestamp(wanted):
        if (its.tz is None) is not (wanted.tz is None):
            msg = "the zone would be lost"
            raise ZonesDifferError(msg)
    elif pa.types.is_floating(its) and pa.types.is_floating(wanted):
        if wanted.bit_width < its.bit_width and pc.sum(pc.is_inf(came)) != pc.sum(pc.is_inf(cast)):
            _refuse()
    elif not _is_kept(its, wanted) and not cast.cast(its).equals(came):
        _refuse()


def _is_text_or_bytes(data_type: Any) -> bool:
    return pa.types.is_fixed_size_binary(data_type) or str(data_type) in _TEXTS_OR_BYTES


_TEXTS_OR_BYTES = {f"{size}{kind}" for kind in ("string", "binary") for size in ("", "large_")} | {
    "string_view",
    "binary_view",
}
_KINDS = (
    pa.types.is_integer,
    pa.types.is_decimal,
    pa.types.is_duration,
    pa.types.is_time,
    _is_text_or_bytes,
)
"""Between types of one kind PyArrow looks at each value."""


def _is_kept(came: Any, wanted: Any) -> bool:
    if came == wanted or pa.types.is_null(came):
        return True
    if pa.types.is_integer(came) and (pa.types.is_floating(wanted) or pa.types.is_decimal(wanted)):
        return True
    return any(is_one(came) and is_one(wanted) for is_one in _KINDS)


def _refuse() -> None:
    msg = "something would be lost"
    raise pa.ArrowInvalid(msg)
