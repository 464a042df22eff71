# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""What Arrow types have inside of them. Pure functions, for any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pyarrow as pa


def fields_within(field: pa.Field[Any]) -> Iterator[pa.Field[Any]]:
    """Yields a field, and all fields inside of it."""
    yield field
    kind: Any = field.type
    for index in range(kind.num_fields):
        yield from fields_within(kind.field(index))


def with_leaves(
    field: pa.Field[Any], change: Callable[[pa.Field[Any]], pa.Field[Any]]
) -> pa.Field[Any]:
    """Returns `field` with all fields changed that have none inside of them."""
    kind: Any = field.type

    def inside(part: pa.Field[Any]) -> Any:
        return with_leaves(part, change)

    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([inside(part) for part in kind]))
    if pa.types.is_map(kind):
        key, item = inside(kind.key_field), inside(kind.item_field)
        return field.with_type(cast("Any", pa.map_)(key, item, keys_sorted=kind.keys_sorted))
    if pa.types.is_fixed_size_list(kind):
        return field.with_type(pa.list_(inside(kind.value_field), kind.list_size))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(inside(kind.value_field)))
    if pa.types.is_large_list(kind):
        return field.with_type(pa.large_list(inside(kind.value_field)))
    return change(field)


def is_any_list(data_type: pa.DataType) -> bool:
    """Tells whether values are lists, of whatever length."""
    return (
        pa.types.is_list(data_type)
        or pa.types.is_large_list(data_type)
        or pa.types.is_fixed_size_list(data_type)
    )


def nullable(fields: Iterable[pa.Field[Any]]) -> list[pa.Field[Any]]:
    """Returns fields that may all be null."""
    return [field.with_nullable(True) for field in fields]  # noqa: FBT003
