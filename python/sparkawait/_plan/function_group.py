# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Several functions for each row, in the place of one. Immutable; any thread may read it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from sparkawait.native_function import NativeFunction

__all__ = ["SLOT", "FunctionGroup", "joined", "numbered"]

SLOT = pa.schema([pa.field("__sparkawait_slot", pa.uint32(), nullable=False)])
"""Tells the branches of an operator, and it the branches, which row is meant."""


@dataclass(frozen=True)
class FunctionGroup(NativeFunction):
    """The function of an operator that calls several: what all of them return.

    Attributes:
        names: What the functions are called.
        result_schema: Their columns, one function after the other.
    """

    names: tuple[str, ...]
    result_schema: pa.Schema

    @property
    def name(self) -> str:
        """The names, as a list of functions is written."""
        return f"[{', '.join(self.names)}]"


class _AddsFields(Protocol):
    """A plan, which has such a function: so it is not imported here."""

    @property
    def added_fields(self) -> list[pa.Field]: ...


def joined(branches: Iterable[_AddsFields]) -> pa.Schema:
    """Returns the columns that several calls add to a row, those of one call after the other."""
    return pa.schema([field for branch in branches for field in branch.added_fields])


def numbered(name: str, taken: set[str]) -> str:
    """Returns `name`, with a number if another operator has it; notes that it is taken."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}#{number}"
    taken.add(found)
    return found
