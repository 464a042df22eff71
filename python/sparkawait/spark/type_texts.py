# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""Types as Spark's ``typeof`` writes them, as Arrow types.

It does not quote names: ``struct<a b:int,c.d:array<string>>``. A name ends at the first colon
behind which the rest can be read, so that only one with ``:int,`` or the like in it is read as
several. Whoever reads the values finds that out by their names. Pure functions, for any thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from sparkawait._plan.ddl import parse_element
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["parse_type_text"]

_LEAF = re.compile(r"interval \w+(?: to \w+)?|string collate \w+|\w+(?:\([\d, ]+\))?")
_NOT_CARRIED = re.compile("variant|interval .*")
"""Types of the versions of Spark that are asked, which are no part of a name."""
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
        yield parse_element(leaf, "arguments").type, match.end()
    except ConfigurationError:
        if _NOT_CARRIED.fullmatch(leaf):
            raise


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
