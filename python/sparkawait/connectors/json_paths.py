# SPDX-License-Identifier: Apache-2.0
"""Whether a document has something at a path, and what there is on the way. Pure functions."""

from __future__ import annotations

import json
import re
from typing import Any, cast

from sparkawait.connectors.http_request import Checked

__all__ = ["absent"]

_STEP = re.compile(
    r"""\.?([^.\[\]'"]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]"""
)
_FEW = 8


def absent(options: Checked, column: str, body: bytes, row: int) -> str:
    """Returns why a column of an answer is null, if the answer has nothing at its path."""
    try:
        document = json.loads(body)
    except ValueError:
        return ""
    of_body = options.returns == "json" and column != options.status
    if not of_body or column in dict(options.response_headers):
        return ""
    start = "$"
    if options.rows is not None:
        start = options.rows.removesuffix("[*]")
        document = _walk(document, start)[0]
    if isinstance(document, list):
        elements = cast("list[Any]", document)
        document = elements[row] if row < len(elements) else None
        start = f"{start}[{row}]"
    path = dict(options.paths).get(column, column)
    _, is_there, before, inside = _walk(document, path)
    if is_there:
        return ""
    shown = path if path.startswith("$") else f"$.{path}"
    there = f"{start if start.startswith('$') else f'$.{start}'}{before}"
    return f", because there is nothing at `{shown}`: `{there}` {inside}"


def _walk(document: Any, path: str) -> tuple[Any, bool, str, str]:
    """Follows a path; returns what is there, whether it is, or else how far it got and to what."""
    at = ""
    value: Any = document
    for match in _STEP.finditer(path.removeprefix("$")):
        name, index, *quoted = match.groups()
        member = name or next((it for it in quoted if it is not None), None)
        elements = cast("list[Any]", value) if isinstance(value, list) else []
        members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        if index is not None and int(index) < len(elements):
            value, at = elements[int(index)], f"{at}[{index}]"
        elif member is not None and member in members:
            value, at = members[member], f"{at}.{member}"
        else:
            return None, False, at, _inside(cast("object", value))
    return value, True, at, ""


def _inside(value: object) -> str:
    if isinstance(value, dict):
        names = list(cast("dict[str, Any]", value))
        shown = ", ".join(f"`{name}`" for name in names[:_FEW])
        return f"has {shown or 'no members'}{', ..' * (len(names) > _FEW)}"
    if isinstance(value, list):
        return f"is an array of {len(cast('list[Any]', value))}"
    return "is null" if value is None else f"is {json.dumps(value)[:40]}"
