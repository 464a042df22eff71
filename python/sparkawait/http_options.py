# SPDX-License-Identifier: Apache-2.0
"""The options of HTTP functions: what they mean, and whether they are right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

import pyarrow as pa

from sparkawait import _core
from sparkawait.certificates import Certificates, Pem
from sparkawait.durations import Duration, positive_duration
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.secrets import Secret
from sparkawait.types import SchemaLike, duplicate, to_schema

__all__ = ["Checked", "HttpOptions", "check_options", "reveal_template"]

Template = str | Secret
"""A text with columns in braces, or a secret, which is taken as it is."""


class HttpOptions(TypedDict, total=False):
    """The options of `sparkawait.http.get`, ``post`` and ``request``.

    Attributes:
        query: Parameters to append to the address, by name; values are templates.
        headers: Headers by name; values are templates or secrets.
        json: The request's body as a JSON value with columns in it.
        body: The request's body as a template.
        idempotency_key: Sends the header ``Idempotency-Key``, the same in all attempts of a row:
            ``True`` for a random one, which is another one when Spark runs the task again, or a
            template over columns that name the row.
        rows: JSON path of the array whose elements are the result rows. By default the document is
            the row, or the array of rows.
        paths: JSON paths of columns that are not members of their own name.
        returns: ``"json"`` (default, needs a schema), ``"text"`` or ``"bytes"`` for one column
            ``body``, or ``"nothing"``.
        status: Name of a column with the response's status.
        response_headers: Columns out of the response's headers: header by name of the column.
        how: ``"left"`` (default): a miss gives nulls; ``"inner"``: it drops the row.
        success: Statuses that are a success: numbers and ranges; 200 to 299 by default.
        missing: Statuses that are a miss; 404 by default for GET and HEAD, none for others.
        connections: Most requests at a time of each task, 100 by default. Further calls wait, and
            their timeouts run.
        connect_timeout: Longest time for making a connection, ``"10s"`` by default.
        read_timeout: Longest time without a byte from the server, ``"30s"`` by default.
        max_response_bytes: Longest body, after decompression; 16 MiB by default.
        redirects: Most redirects to follow, 5 by default.
        version: ``"auto"`` (default): what TLS negotiates, else HTTP/1.1; or ``"1.1"`` or ``"2"``.
        gzip: Whether to ask for compressed responses; ``True`` by default.
        proxy: URL of a proxy; ``None`` (default) for what the environment says (``HTTPS_PROXY``,
            ``NO_PROXY`` and the like), ``False`` for none.
        ca: Certificates to trust instead of the system's, in PEM form: a path that every executor
            has, a text or a secret.
        certificate: The client's certificate, likewise.
        private_key: The key of `certificate`, if it is not in there.
    """

    query: Mapping[str, Template]
    headers: Mapping[str, Template]
    json: Any
    body: Template | None
    idempotency_key: str | Literal[True] | None
    rows: str | None
    paths: Mapping[str, str]
    returns: Literal["json", "text", "bytes", "nothing"]
    status: str | None
    response_headers: Mapping[str, str]
    how: Literal["left", "inner"]
    success: Iterable[int | range]
    missing: Iterable[int]
    connections: int
    connect_timeout: Duration
    read_timeout: Duration
    max_response_bytes: int
    redirects: int
    version: Literal["auto", "1.1", "2"]
    gzip: bool
    proxy: str | Secret | Literal[False] | None
    ca: Pem | None
    certificate: Pem | None
    private_key: Pem | None


@dataclass(frozen=True, repr=False)
class Checked:
    """The options as they are sent to executors."""

    query: tuple[tuple[str, Template], ...]
    headers: tuple[tuple[str, Template], ...]
    has_json: bool
    json: Any
    body: Template | None
    idempotency_key: str | Literal[True] | None
    rows: str | None
    paths: tuple[tuple[str, str], ...]
    returns: str
    status: str | None
    response_headers: tuple[tuple[str, str], ...]
    how: str
    success: tuple[tuple[int, int], ...]
    missing: tuple[int, ...]
    connections: int
    connect_timeout: float
    read_timeout: float
    max_response_bytes: int
    redirects: int
    version: str
    gzip: bool
    proxy: str | Secret | Literal[False] | None
    certificates: Certificates


def check_options(
    method: str, url: Template, schema: SchemaLike, options: dict[str, Any]
) -> tuple[Checked, pa.Schema, tuple[str, ...]]:
    """Checks the options; returns them with the columns that come out and those that go in.

    Raises:
        ConfigurationError: If one of them is wrong.
    """
    unknown = set(options) - set(HttpOptions.__annotations__)
    if unknown:
        msg = f"HTTP functions have no option `{min(unknown)}`"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    take = options.get
    _check(take("json") is None or take("body") is None, "`json` and `body` exclude each other")
    missing = take("missing", (404,) if method in {"GET", "HEAD"} else ())
    checked = Checked(
        query=_pairs(take("query"), "query"),
        headers=_pairs(take("headers"), "headers"),
        has_json="json" in options,
        json=take("json"),
        body=take("body"),
        idempotency_key=_key(take("idempotency_key")),
        rows=take("rows"),
        paths=_pairs(take("paths"), "paths"),
        returns=_choice(take("returns", "json"), "returns", "json", "text", "bytes", "nothing"),
        status=take("status"),
        response_headers=_pairs(take("response_headers"), "response_headers"),
        how=_choice(take("how", "left"), "how", "left", "inner"),
        success=tuple(_ranges(take("success", (range(200, 300),)))),
        missing=tuple(first for first, _ in _ranges(missing)),
        connections=_integer(take("connections", 100), "connections", 1),
        connect_timeout=positive_duration(take("connect_timeout", "10s"), "connect_timeout"),
        read_timeout=positive_duration(take("read_timeout", "30s"), "read_timeout"),
        max_response_bytes=_integer(take("max_response_bytes", 16 << 20), "max_response_bytes", 1),
        redirects=_integer(take("redirects", 5), "redirects", 0),
        version=_choice(take("version", "auto"), "version", "auto", "1.1", "2"),
        gzip=options.get("gzip") is not False,
        proxy=take("proxy"),
        certificates=Certificates(take("ca"), take("certificate"), take("private_key")),
    )
    return checked, _result_schema(checked, schema), _input_columns(url, checked)


def reveal_template(value: Any) -> Any:
    """Returns a template, or a JSON value with templates, with its secrets looked up."""
    if isinstance(value, Secret):
        return value.reveal().replace("{", "{{").replace("}", "}}")
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {name: reveal_template(member) for name, member in members.items()}
    if isinstance(value, list | tuple):
        return [reveal_template(element) for element in cast("list[Any]", value)]
    return value


def _result_schema(checked: Checked, schema: SchemaLike) -> pa.Schema:
    fields: list[pa.Field[Any]] = []
    if checked.returns == "json":
        if schema is None:
            msg = '`schema` is needed for JSON; give it, or returns="text", "bytes" or "nothing"'
            raise ConfigurationError(msg, ErrorKind.SCHEMA_MISSING)
        fields.extend(to_schema(schema))
    else:
        _check(schema is None, '`schema` belongs to returns="json"')
        _check(not checked.paths, '`paths` belongs to returns="json"')
        _check(checked.rows is None, '`rows` belongs to returns="json"')
    if checked.returns == "text":
        fields.append(pa.field("body", pa.string()))
    if checked.returns == "bytes":
        fields.append(pa.field("body", pa.binary()))
    for column, _ in checked.paths:
        _check(
            any(column == field.name for field in fields),
            f"`paths` names column `{column}`, which the schema does not have",
        )
    if checked.status is not None:
        fields.append(pa.field(checked.status, pa.int32()))
    fields.extend(pa.field(column, pa.string()) for column, _ in checked.response_headers)
    _check(bool(fields), 'returns="nothing" needs `status` or `response_headers`')
    twice = duplicate([field.name for field in fields])
    _check(twice is None, f"column `{twice}` is returned twice")
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
        ("body", checked.body),
        ("idempotency_key", None if key is True else key),
    ]
    for option, template in templates:
        if template is None or isinstance(template, Secret):
            continue
        is_text = isinstance(cast("object", template), str)
        _check(is_text, f"`{option}` must be a text, got {template!r}")
        found.extend(_core.template_columns(template, option))
    return tuple(dict.fromkeys(found))


def _texts(value: Any) -> Iterator[str]:
    """Yields the texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for member in cast("Mapping[str, Any]", value).values():
            yield from _texts(member)
    elif isinstance(value, list | tuple):
        for element in cast("list[Any]", value):
            yield from _texts(element)
    else:
        is_json = value is None or isinstance(value, bool | int | float | Secret)
        _check(is_json, f"`json` holds a `{type(value).__name__}`, which is no JSON value")


def _key(value: object) -> str | Literal[True] | None:
    is_right = value is None or isinstance(value, str | bool)
    _check(is_right, f"`idempotency_key` must be True or a template, got {value!r}")
    return None if value is False else cast("str | Literal[True] | None", value)


def _pairs(value: object, name: str) -> tuple[tuple[str, Any], ...]:
    if value is None:
        return ()
    _check(isinstance(value, Mapping), f"`{name}` must be a mapping by name")
    return tuple(cast("Mapping[str, Any]", value).items())


def _ranges(values: object) -> Iterator[tuple[int, int]]:
    for value in [values] if isinstance(values, int | range) else cast("Iterable[object]", values):
        bounds = (value[0], value[-1]) if isinstance(value, range) and value else (value, value)
        _check(
            all(isinstance(it, int) and 100 <= it <= 999 for it in bounds),  # noqa: PLR2004 - HTTP's
            f"a status must be a number from 100 to 999, or a range of them, got {value!r}",
        )
        yield cast("tuple[int, int]", bounds)


def _choice(value: str, name: str, *choices: str) -> str:
    known = ", ".join(map(repr, choices))
    _check(value in choices, f"`{name}` must be one of {known}, got {value!r}")
    return value


def _integer(value: object, name: str, least: int) -> int:
    is_right = isinstance(value, int) and not isinstance(value, bool) and value >= least
    _check(is_right, f"`{name}` must be an int of at least {least}, got {value!r}")
    return cast("int", value)


def _check(condition: bool, message: str) -> None:  # noqa: FBT001 - what is to hold
    if not condition:
        raise ConfigurationError(message, ErrorKind.OPTION_INVALID)
