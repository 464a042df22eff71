# SPDX-License-Identifier: Apache-2.0
"""What the options of an HTTP function mean together: the request, its columns, and its results."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import pyarrow as pa

from sparkawait import _core
from sparkawait._checks import is_unicode, nullable, refuse, shown, warn_once
from sparkawait._option import checked
from sparkawait._schema.types import Declared, Model, duplicate
from sparkawait.connectors.base import Connector, without_password
from sparkawait.connectors.http_body import (
    Each,
    Items,
    Lines,
    Template,
    check_items,
    check_template,
    id_columns,
    keyed,
    part_description,
    refuse_own_type,
    reveal_template,
)
from sparkawait.connectors.http_client import require_hosts
from sparkawait.connectors.http_options import HTTP_HINTS, HTTP_OPTIONS, HttpValues, require
from sparkawait.exceptions import ErrorKind
from sparkawait.limits import Batch
from sparkawait.secrets import LookUp, Secret, Sources, sources_of

_OF_AUTH = ("Authorization", "of `auth`")
"""What ``auth=`` sends."""

_BODIES = ("json", "body", "form", "multipart")

_FRAMING = {
    **dict.fromkeys(("content-length", "transfer-encoding", "trailer"), "where a body ends"),
    **dict.fromkeys(("connection", "keep-alive", "proxy-connection"), "which connections it keeps"),
    **dict.fromkeys(("upgrade", "te"), "which protocol it speaks"),
    "expect": "when it sends the body",
}
"""Headers that tell how a request travels, and what they say. With others than the client's own
values a server takes a part of the body, or a part of it for the next request."""

_MAX_DEPTH = 100
"""Levels of a JSON body. The reader of the description has an end, too."""

_MAX_BITS = 4096
"""Bits of a number in a JSON body; Python writes no number of many times as many."""


class Request(HttpValues):
    """The options of a function, with what several of them mean together."""

    has_json: bool
    batches: Items | None


def check_options(
    method: str, url: Template, schema: Declared | None, options: dict[str, Any]
) -> tuple[Request, pa.Schema, tuple[str, ...]]:
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
    if values["missing"] is None:
        values["missing"] = (404,) if method in {"GET", "HEAD"} else ()
    batches = check_items(values)
    request = Request({**values, "batches": batches, "has_json": "json" in options})
    columns = _input_columns(url, request)
    told = request.headers if request.auth is None else (*request.headers, _OF_AUTH)
    sent = (request.json, request.body, request.form, request.multipart)
    require_hosts(url, request.allow_hosts, told, request.query, sent)
    return request, _result_schema(request, schema), columns


def _check_headers(values: dict[str, Any]) -> None:
    headers = dict(values["headers"])
    names: dict[str, str] = {}
    for name in headers:
        says = _FRAMING.get(name.lower())
        if says is not None:
            refuse(
                f"`headers` has `{name}`, but the client itself says {says};"
                " leave it out of `headers`"
            )
        other = names.setdefault(name.lower(), name)
        if other != name:
            refuse(
                f"`headers` has `{other}` and `{name}`, which are the same header for a server;"
                " leave one of them out"
            )
    if values["idempotency_key"] is not None and "idempotency-key" in names:
        refuse("`idempotency_key` and the header `Idempotency-Key` exclude each other")
    if values["multipart"] is not None:
        refuse_own_type(headers)
    if values["auth"] is not None and any(name.lower() == "authorization" for name in headers):
        refuse("`auth` and the header `Authorization` exclude each other")


def _result_schema(checked: Request, schema: Declared | None) -> pa.Schema:
    fields: list[pa.Field[Any]] = []
    if checked.returns == "json":
        if schema is None:
            msg = '`schema` is needed for JSON; give it, or returns="text", "bytes" or "nothing"'
            refuse(msg, ErrorKind.SCHEMA_MISSING)
        fields.extend(schema.columns)
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
        fields = nullable(fields)
    return pa.schema(fields)


def _input_columns(url: Template, checked: Request) -> tuple[str, ...]:
    key = checked.idempotency_key
    found: list[str] = []
    templates = [
        ("url", url),
        *((keyed("query", key), value) for key, value in checked.query),
        *((keyed("headers", key), value) for key, value in checked.headers),
        *(("json", value) for value in _texts(checked.json)),
        *(("body", value) for value in _texts_of_body(checked.body)),
        *((keyed("form", key), value) for key, value in checked.form or ()),
        *(("multipart", value) for _, part in checked.multipart or () for value in part.templates),
        ("idempotency_key", None if key is True else key),
    ]
    for option, template in templates:
        if template is not None and not isinstance(template, Secret):
            found.extend(_core.template_columns(template, option))
    if checked.batches is not None:
        found.extend(id_columns(checked.batches))
    return tuple(dict.fromkeys(found))


def _texts_of_body(body: Template | Lines | None) -> Iterator[Template]:
    if isinstance(body, Lines):
        yield from _texts(body.value)
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


# -- what `sparkawait.http` makes: a request for each row, and its description in the executor

_MOST_REQUESTS = 1024
"""Requests that a process has at a time, unless it is told otherwise."""
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"})
"""Methods whose requests may be repeated."""


@dataclass(frozen=True)
class HttpFunction(Connector):
    """An HTTP request for each row, or for many of them. Made by `get`, `post` and `request`.

    Attributes:
        method: The method of the requests.
        url: The template of the address.
        options: What else was given, checked.
        result_schema: The columns that the function returns.
        input_columns: The columns of the input that it reads.
        required: The columns of the schema that are declared as not null: a response without one
            fails its row, while a miss has nulls.
    """

    method: str
    # Addresses, headers and bodies may have a token written into them.
    url: Template = field(repr=False)
    options: Request = field(repr=False)
    result_schema: pa.Schema = field(repr=False)
    input_columns: tuple[str, ...]
    required: tuple[str, ...] = field(default=(), repr=False)
    rules: Model | None = field(default=None, repr=False)

    names_are_of = "its schema"
    blank = 0
    """How many of the first columns are filled where rows leave. If there are any, a null in the
    JSON of the body makes no call."""

    @property
    def name(self) -> str:
        """The name used in messages and metrics."""
        return f"http.{self.method.lower()}"

    @property
    def channel_columns(self) -> tuple[str, ...]:
        """The columns in the host of the address."""
        return () if isinstance(self.url, Secret) else tuple(_core.host_columns(self.url)[0])

    @property
    def concurrency(self) -> int | None:
        """Most requests at a time, if ``max_requests=`` says so."""
        return self.options.max_requests

    connector = "http"
    concurrency_option = "max_requests"
    writes_texts = True

    @property
    def idempotent(self) -> bool:
        """Whether its method may be repeated, or the service knows a request again by its key.

        A request of many rows is sent again as it was, with all of them.
        """
        named = {name.lower() for name, _ in self.options.headers}
        has_key = self.options.idempotency_key is not None or "idempotency-key" in named
        return has_key or self.method in _REPEATABLE

    @property
    def idempotent_by(self) -> str | None:
        """What makes two calls do no more than one."""
        return (
            "where the service knows a request again, or twice does no harm, give `idempotency_key`"
        )

    @property
    def hedges(self) -> bool:
        """Whether one of its rows may be called for beside its first call.

        A key is of a request: of many rows none has a second call of its own.
        """
        return self.method in _REPEATABLE or (self.idempotent and self.batching is None)

    @property
    def batching(self) -> Batch | None:
        """How rows are put together into requests."""
        return None if self.options.batches is None else self.options.batches.batch

    def bounded(self, calls: int, rows: int) -> HttpFunction:
        """Returns the function for a task that makes so many requests of so many rows.

        To be called where they are made: without ``max_requests=`` the process has its bounds.
        """
        most, items = self.options.max_requests, self.options.batches
        most = _requests_of_process(calls) if most is None else min(calls, most)
        items = None if items is None else items.bounded(rows)
        return replace(self, options=self.options.replaced(max_requests=most, batches=items))

    @property
    def may_have_several_results(self) -> bool:
        """Whether an array of the document is the result rows of one row."""
        return self.options.rows is not None and self.options.batches is None

    def _sources(self) -> tuple[Sources, dict[str, str]]:
        auth, headers = self.options.auth, enumerate(self.options.headers)
        changing = {
            f"header {index}": value
            for index, (_, value) in headers
            if isinstance(value, Secret) and value.may_change
        }
        readers, told = ({}, {}) if auth is None else auth.sources()
        own_readers, own_told = sources_of(changing)
        return readers | own_readers, told | own_told

    def _description(self, look_up: LookUp) -> dict[str, Any]:
        options = self.options

        def pairs(templates: Iterable[tuple[str, Template]]) -> list[tuple[str, str]]:
            return [(name, reveal_template(value, look_up)) for name, value in templates]

        return {
            "method": self.method,
            "url": reveal_template(self.url, look_up, "http://host"),
            "query": pairs(options.query),
            "headers": pairs(options.headers),
            "body": _body(options, look_up, "whole" if self.blank else "json"),
            "blank": self.blank,
            "auth": options.auth and options.auth.description(look_up),
            "sources": self._sources()[1],
            "batch": _batch(options, look_up),
            "allow_hosts": options.allow_hosts,
            "idempotency_key": _idempotency_key(options.idempotency_key),
            "returns": {"text": "body", "bytes": "body"}.get(options.returns, options.returns),
            "rows": options.rows,
            "paths": options.paths,
            "status": options.status is not None,
            "response_headers": [name for _, name in options.response_headers],
            "success": options.success,
            "missing": options.missing,
            "retry_status": options.retry_status,
            "connections": options.max_requests or 1,
            "max_response_bytes": options.client.max_reply_bytes,
            "redirects": options.client.redirects,
            "client": options.client.description(look_up),
        }

    def _asked(self, description: dict[str, Any]) -> dict[str, Any]:
        batch = description["batch"]
        headers = [
            (name.lower(), value)
            for (name, value), (_, given) in zip(
                description["headers"], self.options.headers, strict=True
            )
            if name.lower() not in _SHOWS_WHO and not isinstance(given, Secret)
        ]
        return {
            **{name: description[name] for name in _ASKED},
            "url": without_password(description["url"]),
            "headers": headers,
            "items": batch and [batch[it] for it in ("item", "around", "id", "error", "status")],
        }


_ASKED = (
    *("method", "query", "body", "returns", "rows", "paths", "status", "response_headers"),
    *("success", "missing"),
)
"""What of a description decides about results."""
_SHOWS_WHO = frozenset(
    {"authorization", "proxy-authorization", "cookie", "api-key", "x-api-key", "apikey"}
)
"""Headers that show who asks."""


def _requests_of_process(calls: int) -> int:
    """Returns how many of `calls` requests this process has at a time: each may be a connection."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_REQUESTS
    if files != resource.RLIM_INFINITY:
        # The other half is for all else that has files open.
        most = max(min(most, files // 2), 1)
    if calls > most:
        warn_once(
            "`max_concurrency` is %d, and this process makes at most %d HTTP requests at a time:"
            " 1024, or half of the files that it may have open (`ulimit -n` is %d). Raise that"
            " limit, or set `max_requests=%d` if you want so many connections",
            calls,
            most,
            files,
            calls,
        )
    return min(calls, most)


def _batch(options: Request, look_up: LookUp) -> dict[str, Any] | None:
    items = options.batches
    if items is None:
        return None
    values = [reveal_template(value, look_up) for value in items.values]
    return items.description(values, reveal_template(items.around, look_up))


def _body(options: Request, look_up: LookUp, json: str) -> dict[str, Any] | None:
    if options.batches is not None:
        return None
    if options.has_json:
        return {json: reveal_template(options.json, look_up)}
    if options.body is not None:
        return {"raw": reveal_template(options.body, look_up)}
    if options.form is not None:
        return {"form": [(name, reveal_template(it, look_up)) for name, it in options.form]}
    if options.multipart is not None:
        parts = (part_description(name, part, look_up) for name, part in options.multipart)
        return {"multipart": list(parts)}
    return None


def _idempotency_key(key: str | Literal[True] | None) -> dict[str, Any] | None:
    if key is None:
        return None
    return {"header": "Idempotency-Key", "value": None if key is True else key}
