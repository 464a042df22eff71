# SPDX-License-Identifier: Apache-2.0
"""What the options of an HTTP function mean together: the request, its columns, and its results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import pyarrow as pa

from sparkawait import _core
from sparkawait._plan.checks import is_unicode, refuse, shown
from sparkawait._plan.option import checked
from sparkawait.connectors.http_auth import Auth
from sparkawait.connectors.http_client import Client
from sparkawait.connectors.http_form import Part, refuse_own_type
from sparkawait.connectors.http_hosts import require_hosts
from sparkawait.connectors.http_items import Each, Items, Lines, check_items, id_columns
from sparkawait.connectors.http_options import HTTP_HINTS, HTTP_OPTIONS, require
from sparkawait.connectors.http_template import Template, check_template
from sparkawait.exceptions import ErrorKind
from sparkawait.secrets import Secret
from sparkawait.types import SchemaLike, duplicate, to_schema

__all__ = ["Checked", "check_options"]

_OF_AUTH = ("Authorization", "of `auth`")
"""What ``auth=`` sends."""

_BODIES = ("json", "body", "form", "multipart")

_MAX_DEPTH = 100
"""Levels of a JSON body. The reader of the description has an end, too."""

_MAX_BITS = 4096
"""Bits of a number in a JSON body; Python writes no number of many times as many."""


@dataclass(frozen=True, repr=False)
class Checked:
    """The options as they are sent to executors."""

    query: tuple[tuple[str, Template], ...]
    headers: tuple[tuple[str, Template], ...]
    has_json: bool
    json: Any
    body: Template | Lines | None
    form: tuple[tuple[str, Template], ...] | None
    multipart: tuple[tuple[str, Part], ...] | None
    auth: Auth | None
    items: Items | None
    allow_hosts: tuple[str, ...] | None
    idempotency_key: str | Literal[True] | None
    rows: str | None
    paths: tuple[tuple[str, str], ...]
    returns: str
    status: str | None
    response_headers: tuple[tuple[str, str], ...]
    how: str
    success: tuple[tuple[int, int], ...]
    missing: tuple[int, ...]
    retry_status: tuple[tuple[int, int], ...] | None
    max_requests: int | None
    client: Client


def check_options(
    method: str, url: Template, schema: SchemaLike | None, options: dict[str, Any]
) -> tuple[Checked, pa.Schema, tuple[str, ...]]:
    """Checks the options; returns them with the columns that come out and those that go in.

    Raises:
        ConfigurationError: If one of them is wrong.
    """
    values = checked(HTTP_OPTIONS, options, HTTP_HINTS)
    check_template(url, "url")
    bodies = [name for name in _BODIES if options.get(name) is not None]
    require(len(bodies) <= 1, f"{' and '.join(f'`{it}`' for it in bodies)} exclude each other")
    _check_headers(values)
    require(bool(values["success"]), "`success` must have a status")
    if "missing" not in options:
        values["missing"] = (404,) if method in {"GET", "HEAD"} else ()
    values["items"] = check_items(values)
    request = Checked(has_json="json" in options, **values)
    columns = _input_columns(url, request)
    told = request.headers if request.auth is None else (*request.headers, _OF_AUTH)
    sent = (request.json, request.body, request.form, request.multipart)
    require_hosts(url, request.allow_hosts, told, request.query, sent)
    return request, _result_schema(request, schema), columns


def _check_headers(values: dict[str, Any]) -> None:
    headers = dict(values["headers"])
    if values["multipart"] is not None:
        refuse_own_type(headers)
    if values["auth"] is not None and any(name.lower() == "authorization" for name in headers):
        refuse("`auth` and the header `Authorization` exclude each other")


def _result_schema(checked: Checked, schema: SchemaLike | None) -> pa.Schema:
    fields: list[pa.Field[Any]] = []
    if checked.returns == "json":
        if schema is None:
            msg = '`schema` is needed for JSON; give it, or returns="text", "bytes" or "nothing"'
            refuse(msg, ErrorKind.SCHEMA_MISSING)
        fields.extend(to_schema(schema))
    else:
        require(schema is None, '`schema` belongs to returns="json"')
        require(not checked.paths, '`paths` belongs to returns="json"')
        require(checked.rows is None, '`rows` belongs to returns="json"')
    if checked.returns == "text":
        fields.append(pa.field("body", pa.string()))
    if checked.returns == "bytes":
        fields.append(pa.field("body", pa.binary()))
    for column, _ in checked.paths:
        require(
            any(column == field.name for field in fields),
            f"`paths` names column `{column}`, which the schema does not have",
        )
    if checked.status is not None:
        fields.append(pa.field(checked.status, pa.int32()))
    fields.extend(pa.field(column, pa.string()) for column, _ in checked.response_headers)
    require(bool(fields), 'returns="nothing" needs `status` or `response_headers`')
    twice = duplicate([field.name for field in fields])
    require(twice is None, f"column `{twice}` is returned twice")
    if checked.how == "left":
        fields = [field.with_nullable(nullable=True) for field in fields]
    return pa.schema(fields)


def _input_columns(url: Template, checked: Checked) -> tuple[str, ...]:
    key = checked.idempotency_key
    found: list[str] = []
    templates = [
        ("url", url),
        *(("query", value) for _, value in checked.query),
        *(("headers", value) for _, value in checked.headers),
        *(("json", value) for value in _texts(checked.json)),
        *(("body", value) for value in _texts_of_body(checked.body)),
        *(("form", value) for _, value in checked.form or ()),
        *(("multipart", value) for _, part in checked.multipart or () for value in part.templates),
        ("idempotency_key", None if key is True else key),
    ]
    for option, template in templates:
        if template is not None and not isinstance(template, Secret):
            found.extend(_core.template_columns(template, option))
    if checked.items is not None:
        found.extend(id_columns(checked.items))
    return tuple(dict.fromkeys(found))


def _texts_of_body(body: Template | Lines | None) -> Iterator[Template]:
    if isinstance(body, Lines):
        yield from _texts(body.values)
    elif body is not None:
        yield body


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yields the texts in a JSON value."""
    require(depth <= _MAX_DEPTH, f"`json` is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, str):
        require(is_unicode(value), "`json` has a text with lone surrogates, which is not Unicode")
        yield value
    elif isinstance(value, Each):
        yield from _texts(value.value, depth + 1)
    elif isinstance(value, Mapping):
        for name, member in cast("Mapping[Any, Any]", value).items():
            is_name = isinstance(name, str) and is_unicode(name)
            require(is_name, f"`json` has the name {shown(name)}, which is not a text")
            yield from _texts(member, depth + 1)
    elif isinstance(value, list | tuple):
        for element in cast("list[Any]", value):
            yield from _texts(element, depth + 1)
    elif isinstance(value, float):
        require(math.isfinite(value), f"`json` holds {value!r}, which is not a JSON value")
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        refuse(f"`json` holds a number of more than {_MAX_BITS} bits")
    else:
        is_json = value is None or isinstance(value, bool | int | Secret)
        require(is_json, f"`json` holds a `{type(value).__name__}`, which is not a JSON value")
