# SPDX-License-Identifier: Apache-2.0
"""The options of HTTP functions: what they mean, and whether they are right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, TypeVar, cast

import pyarrow as pa

from sparkawait import _core
from sparkawait._plan.checks import (
    MAX_BYTES,
    choice,
    flag,
    integer,
    is_unicode,
    mapping,
    refuse,
    shown,
    text,
)
from sparkawait.connectors.certificates import Certificates, Pem
from sparkawait.connectors.http_hosts import check_hosts, require_hosts
from sparkawait.durations import Duration, positive_duration
from sparkawait.exceptions import ErrorKind
from sparkawait.secrets import LookUp, Secret, looked_up, reveal
from sparkawait.types import SchemaLike, duplicate, to_schema

__all__ = ["Checked", "HttpOptions", "check_options", "reveal_template"]

_T = TypeVar("_T")

_MAX_CONNECTIONS = 65_535
"""Requests at a time of a task: as many as there are ports to one address of a server."""

_MAX_REDIRECTS = 1000

_MAX_DEPTH = 100
"""Levels of a JSON body. The reader of the description has an end, too."""

_MAX_BITS = 4096
"""Bits of a number in a JSON body; Python writes no number of many times as many."""

_STATUSES = range(100, 1000)

Template = str | Secret
"""A text with columns in braces, or a secret, which is taken as it is."""


class HttpOptions(TypedDict, total=False):
    """The options of `sparkawait.http.get`, ``post`` and ``request``.

    Attributes:
        query: Parameters to append to the address, by name; values are templates.
        headers: Headers by name; values are templates or secrets.
        json: The request's body as a JSON value with columns in it.
        body: The request's body as a template.
        allow_hosts: The hosts that rows may name: ``"api.example.com"``, ``"api.example.com:8443"``
            for one port, ``".example.com"`` for all hosts below. They are meant by https, but for
            ``"http://localhost"`` and where the address itself starts with ``http://``. A row that
            names another fails, and no call is made. Needed where a column names the host and a
            header, a secret or a password goes along.
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
        missing: Statuses that are a miss, likewise; 404 by default for GET and HEAD, none for
            others.
        connections: Most requests at a time, 100 by default and at most 65 535: a task has no more
            calls in flight, whatever ``max_concurrency`` is.
        connect_timeout: Longest time for making a connection, ``"10s"`` by default.
        read_timeout: Longest time without a byte from the server, ``"30s"`` by default.
        max_response_bytes: Longest body, after decompression; 16 MiB by default.
        redirects: Most redirects to follow, 5 by default.
        version: ``"auto"`` (default): what TLS negotiates, else HTTP/1.1; or ``"1.1"`` or ``"2"``.
        streams_per_connection: Most requests at a time over one connection of HTTP/2, 100 by
            default: beyond them another connection is made. To be no more than the server allows,
            or requests wait for one another in the client; few servers allow less than 100.
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
    allow_hosts: Iterable[str] | None
    idempotency_key: str | Literal[True] | None
    rows: str | None
    paths: Mapping[str, str]
    returns: Literal["json", "text", "bytes", "nothing"]
    status: str | None
    response_headers: Mapping[str, str]
    how: Literal["left", "inner"]
    success: int | range | Iterable[int | range]
    missing: int | range | Iterable[int | range]
    connections: int
    connect_timeout: Duration
    read_timeout: Duration
    max_response_bytes: int
    redirects: int
    version: Literal["auto", "1.1", "2"]
    streams_per_connection: int
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
    connections: int
    connect_timeout: float
    read_timeout: float
    max_response_bytes: int
    redirects: int
    version: str
    streams_per_connection: int
    gzip: bool
    proxy: str | Secret | Literal[False] | None
    certificates: Certificates


def check_options(
    method: str, url: Template, schema: SchemaLike | None, options: dict[str, Any]
) -> tuple[Checked, pa.Schema, tuple[str, ...]]:
    """Checks the options; returns them with the columns that come out and those that go in.

    Raises:
        ConfigurationError: If one of them is wrong.
    """
    unknown = set(options) - set(HttpOptions.__annotations__)
    if unknown:
        refuse(f"HTTP functions have no option `{min(unknown)}`")
    take = options.get
    _check_template(url, "url")
    _check(take("json") is None or take("body") is None, "`json` and `body` exclude each other")
    missing = take("missing", (404,) if method in {"GET", "HEAD"} else ())
    success = tuple(_ranges(take("success", (range(200, 300),)), "success"))
    _check(bool(success), "`success` must have a status")
    checked = Checked(
        query=_templates(take("query"), "query"),
        headers=_templates(take("headers"), "headers"),
        has_json="json" in options,
        json=take("json"),
        body=_optional(take("body"), "body", _check_template),
        allow_hosts=check_hosts(take("allow_hosts")),
        idempotency_key=_key(take("idempotency_key")),
        rows=_optional(take("rows"), "rows", text),
        paths=_texts_by_name(take("paths"), "paths"),
        returns=choice(take("returns", "json"), "returns", "json", "text", "bytes", "nothing"),
        status=_optional(take("status"), "status", text),
        response_headers=_texts_by_name(take("response_headers"), "response_headers"),
        how=choice(take("how", "left"), "how", "left", "inner"),
        success=success,
        missing=tuple(
            status
            for first, last in _ranges(missing, "missing")
            for status in range(first, last + 1)
        ),
        connections=integer(take("connections", 100), "connections", 1, _MAX_CONNECTIONS),
        connect_timeout=positive_duration(take("connect_timeout", "10s"), "connect_timeout"),
        read_timeout=positive_duration(take("read_timeout", "30s"), "read_timeout"),
        max_response_bytes=integer(
            take("max_response_bytes", 16 << 20), "max_response_bytes", 1, MAX_BYTES
        ),
        redirects=integer(take("redirects", 5), "redirects", 0, _MAX_REDIRECTS),
        version=choice(take("version", "auto"), "version", "auto", "1.1", "2"),
        streams_per_connection=integer(
            take("streams_per_connection", 100), "streams_per_connection", 1, _MAX_CONNECTIONS
        ),
        gzip=flag({"gzip": True, **options}["gzip"], "gzip"),
        proxy=_proxy(take("proxy")),
        certificates=Certificates(take("ca"), take("certificate"), take("private_key")),
    )
    columns = _input_columns(url, checked)
    require_hosts(
        url, checked.allow_hosts, checked.headers, checked.query, (checked.json, checked.body)
    )
    return checked, _result_schema(checked, schema), columns


def reveal_template(value: Any, look_up: LookUp = looked_up, form: str = "secret") -> Any:
    """Returns a template, or a JSON value with templates, with its secrets looked up."""
    if isinstance(value, Secret):
        return reveal(value, look_up, form).replace("{", "{{").replace("}", "}}")
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {name: reveal_template(member, look_up) for name, member in members.items()}
    if isinstance(value, list | tuple):
        return [reveal_template(element, look_up) for element in cast("list[Any]", value)]
    return value


def _result_schema(checked: Checked, schema: SchemaLike | None) -> pa.Schema:
    fields: list[pa.Field[Any]] = []
    if checked.returns == "json":
        if schema is None:
            msg = '`schema` is needed for JSON; give it, or returns="text", "bytes" or "nothing"'
            refuse(msg, ErrorKind.SCHEMA_MISSING)
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
        if template is not None and not isinstance(template, Secret):
            found.extend(_core.template_columns(template, option))
    return tuple(dict.fromkeys(found))


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yields the texts in a JSON value."""
    _check(depth <= _MAX_DEPTH, f"`json` is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, str):
        _check(is_unicode(value), "`json` has a text with lone surrogates, which is no Unicode")
        yield value
    elif isinstance(value, Mapping):
        for name, member in cast("Mapping[Any, Any]", value).items():
            is_name = isinstance(name, str) and is_unicode(name)
            _check(is_name, f"`json` has the name {shown(name)}, which is no text")
            yield from _texts(member, depth + 1)
    elif isinstance(value, list | tuple):
        for element in cast("list[Any]", value):
            yield from _texts(element, depth + 1)
    elif isinstance(value, float):
        _check(math.isfinite(value), f"`json` holds {value!r}, which is no JSON value")
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        refuse(f"`json` holds a number of more than {_MAX_BITS} bits")
    else:
        is_json = value is None or isinstance(value, bool | int | Secret)
        _check(is_json, f"`json` holds a `{type(value).__name__}`, which is no JSON value")


def _key(value: object) -> str | Literal[True] | None:
    if value is None or isinstance(value, bool):
        return True if value else None
    return text(value, "idempotency_key", "True or a template")


def _proxy(value: object) -> str | Secret | Literal[False] | None:
    if value is None or value is False or isinstance(value, Secret):
        return value
    rule = "a URL, a secret, None for what the environment says, or False for no proxy"
    return text(value, "proxy", rule, quoted=False)


def _check_template(value: object, name: str) -> Template:
    """Returns a template; an empty one is one, too."""
    if isinstance(value, Secret) or (isinstance(value, str) and not value):
        return value
    # Not quoted: it may have a token in it.
    return text(value, name, "a text with columns in braces, or a secret", quoted=False)


def _templates(value: object, name: str) -> tuple[tuple[str, Template], ...]:
    items = mapping(value, name, "texts with columns in braces by name").items()
    return tuple((key, _check_template(item, name)) for key, item in items)


def _texts_by_name(value: object, name: str) -> tuple[tuple[str, str], ...]:
    items = mapping(value, name, "texts by column").items()
    return tuple((key, text(item, name, "a mapping to texts")) for key, item in items)


def _optional(value: Any, name: str, check: Callable[[object, str], _T]) -> _T | None:
    return None if value is None else check(value, name)


def _ranges(values: object, name: str) -> Iterator[tuple[int, int]]:
    """Yields the first and the last status of each range."""
    rule = f"`{name}` must be statuses from 100 to 999, or ranges of them, got"
    given = [values] if isinstance(values, int | range) else values
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        refuse(f"{rule} {shown(values)}")
    for count, value in enumerate(cast("Iterable[object]", given)):
        _check(count < len(_STATUSES), f"{rule} too many")
        statuses = range(0)
        if isinstance(value, range):
            statuses = value
        elif isinstance(value, int) and not isinstance(value, bool):
            statuses = range(value, value + 1)
        ends = (statuses[0], statuses[-1]) if statuses else (0, 0)
        _check(all(end in _STATUSES for end in ends), f"{rule} {shown(value)}")
        if statuses.step == 1:
            yield ends
        else:
            yield from ((status, status) for status in statuses)


def _check(condition: bool, message: str) -> None:  # noqa: FBT001 - what is to hold
    if not condition:
        refuse(message)
