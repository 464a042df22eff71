# SPDX-License-Identifier: Apache-2.0
"""Calls to HTTP services, carried out by the extension module, with no Python a row.

The texts of a request are templates over columns: ``{name}`` stands for the column's value.

- ``url`` and ``query``: values are percent-encoded. Only a column that ``url`` starts with stands
  for scheme and host, or the whole address, as it is. A part of the path that a value leaves empty,
  or makes ``.`` or ``..``, fails the row.
- ``headers`` and ``body``: values are written as they are.
- ``json``: any JSON value; a text that is one column, ``"{customer}"``, is that column's value with
  its type, as ``to_json`` writes it (a struct is an object), and other texts are templates.

A value is written as Spark's ``cast(.. as string)`` does: a timestamp in the session's time zone.

``{{`` is a brace. A row with a null column in URL, query, headers or a whole body makes no call and
counts as a miss; within a larger JSON value it is ``null``.

A miss gives nulls with ``how="left"`` and drops the row with ``how="inner"``. Misses are responses
with a status of ``missing``, those without content (204, 205), and JSON without a row.

An attempt is worth a retry after 408, 425, 429, a status from 500, and whatever goes wrong with a
connection; ``Retry-After`` sets the delay. So it is after a 403 that says when to come again. All
other failures are final. A request that may have been carried out, because no whole answer came
(``read_timeout``, a connection that broke, 504), is sent again only where twice is harmless: with
GET, HEAD, PUT, DELETE, OPTIONS and TRACE, and with ``idempotency_key``; with it 409 is worth a
retry, too.

A redirection to another scheme, host or port takes no header along that was given here, and no
body: where one would have to go along the row fails.
"""

from __future__ import annotations

import functools
import json as json_module
import logging
import resource
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from sparkawait import _core
from sparkawait._plan.checks import refuse, shown
from sparkawait._plan.option import documented
from sparkawait.connectors.http_client import Client
from sparkawait.connectors.http_items import each, items, lines
from sparkawait.connectors.http_options import HTTP_OPTIONS, HttpOptions, Template
from sparkawait.connectors.http_request import Checked, check_options, reveal_template
from sparkawait.functions import Batch
from sparkawait.native_function import NativeFunction, check_native
from sparkawait.secrets import LookUp, Secret, left_out, looked_up
from sparkawait.types import SchemaLike, to_schema

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "Client",
    "HttpFunction",
    "HttpOptions",
    "each",
    "get",
    "items",
    "lines",
    "post",
    "request",
]


_logger = logging.getLogger("sparkawait")

_MOST_REQUESTS = 1024
"""Requests that a process has at a time, unless it is told otherwise."""
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"})
"""Methods of which two requests do what one does."""


@dataclass(frozen=True)
class HttpFunction(NativeFunction):
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
    options: Checked = field(repr=False)
    result_schema: pa.Schema = field(repr=False)
    input_columns: tuple[str, ...]
    required: tuple[str, ...] = field(default=(), repr=False)

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

    concurrency_option = "max_requests"
    writes_texts = True

    @property
    def idempotent(self) -> bool:
        """Whether its method may be repeated, or the service knows a request again."""
        named = {name.lower() for name, _ in self.options.headers}
        has_key = self.options.idempotency_key is not None or "idempotency-key" in named
        return has_key or self.method in _REPEATABLE

    idempotent_by = (
        "where the service knows a request again, or twice does no harm, give `idempotency_key`"
    )

    @property
    def batching(self) -> Batch | None:
        """How rows are put together into requests."""
        return None if self.options.items is None else self.options.items.batch

    def bounded(self, calls: int, rows: int) -> HttpFunction:
        """Returns the function for a task that makes so many requests of so many rows.

        To be called where they are made: without ``max_requests=`` the process has its bounds.
        """
        most, items = self.options.max_requests, self.options.items
        most = _requests_of_process(calls) if most is None else min(calls, most)
        items = None if items is None else items.bounded(rows)
        return replace(self, options=replace(self.options, max_requests=most, items=items))

    def dropping_misses(self) -> HttpFunction:
        """Returns the function with ``how="inner"``."""
        return replace(self, options=replace(self.options, how="inner"))

    def check(self, input_schema: pa.Schema | None = None) -> None:
        """Checks the request and its columns, as far as the driver can know."""
        check_native(self, self._read(left_out), input_schema)

    @property
    def may_have_several_results(self) -> bool:
        """Whether an array of the document is the result rows of one row."""
        return self.options.rows is not None and self.options.items is None

    def _native(self, *, retry_misses: bool) -> _core.Native:
        return self._read(looked_up, retry_misses=retry_misses)

    def _read(self, look_up: LookUp, *, retry_misses: bool = False) -> _core.Native:
        description = self._description(look_up, retry_misses=retry_misses)
        return _core.Native.http(json_module.dumps(description))

    def _description(self, look_up: LookUp = looked_up, *, retry_misses: bool) -> dict[str, Any]:
        options = self.options

        def pairs(templates: Iterable[tuple[str, Template]]) -> list[tuple[str, str]]:
            return [(name, reveal_template(value, look_up)) for name, value in templates]

        return {
            "method": self.method,
            "url": reveal_template(self.url, look_up, "http://host"),
            "query": pairs(options.query),
            "headers": pairs(options.headers),
            "body": _body(options, look_up),
            "batch": _batch(options, look_up),
            "allow_hosts": options.allow_hosts,
            "idempotency_key": _idempotency_key(options.idempotency_key),
            "returns": {"text": "body", "bytes": "body"}.get(options.returns, options.returns),
            "rows": options.rows,
            "paths": options.paths,
            "required": self.required,
            "status": options.status is not None,
            "response_headers": [name for _, name in options.response_headers],
            "success": options.success,
            "missing": options.missing,
            "retry_status": options.retry_status,
            "misses": {"how": options.how, "retry": retry_misses},
            "connections": options.max_requests or 1,
            "max_response_bytes": options.client.max_reply_bytes,
            "redirects": options.client.redirects,
            "client": options.client.description(look_up),
        }


@documented(HTTP_OPTIONS, HttpOptions)
def get(
    url: str | Secret, schema: SchemaLike | None = None, **options: Unpack[HttpOptions]
) -> HttpFunction:
    """Returns a function that gets an address for each row.

    A status of 404 is a miss; ``missing=()`` makes it a failure.

    Args:
        url: Template of the address.
        schema: Columns of the JSON in the response: a DDL string, a `pyarrow.Schema` or a
            ``StructType``. A column takes the member of its name, or the value at its path in
            ``paths=``.
        **options: The options of all requests.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> import pyarrow as pa
        >>> import sparkawait.arrow
        >>> from sparkawait.testing import LookupServer
        >>> rows = pa.record_batch({"id": ["a", None]})
        >>> with LookupServer({"customers": {"a": {"name": "Ann", "age": 7}}}) as server:
        ...     url, client = server.url + "/customers/{id}", Client(proxy=False)
        ...     lookup = get(url, "name string", client=client)
        ...     out = sparkawait.arrow.ordered_wait(rows, lookup).to_table()
        >>> out.to_pydict()
        {'id': ['a', None], 'name': ['Ann', None]}
    """
    return request("GET", url, schema, **options)


@documented(HTTP_OPTIONS, HttpOptions)
def post(
    url: str | Secret, schema: SchemaLike | None = None, **options: Unpack[HttpOptions]
) -> HttpFunction:
    """Returns a function that posts ``json=`` or ``body=`` for each row.

    No status is a miss, unless ``missing=`` says so. A service that must not do a thing twice needs
    ``idempotency_key=`` before calls may be retried.

    Args:
        url: Template of the address.
        schema: Columns of the JSON in the response, as for `get`.
        **options: The options of all requests.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> post("https://api.example.com/score", "score double", json={"age": "{age}"})
        HttpFunction(method='POST', input_columns=('age',))
    """
    return request("POST", url, schema, **options)


@documented(HTTP_OPTIONS, HttpOptions)
def request(
    method: str, url: str | Secret, schema: SchemaLike | None = None, **options: Unpack[HttpOptions]
) -> HttpFunction:
    """Returns a function that makes a request of any method for each row.

    Args:
        method: The method, such as ``"PUT"``.
        url: Template of the address.
        schema: Columns of the JSON in the response, as for `get`.
        **options: The options of all requests.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> request("HEAD", "https://example.com/{path}", returns="nothing", status="status")
        HttpFunction(method='HEAD', input_columns=('path',))
    """
    if not isinstance(method, str) or not method.isalpha() or not method.isascii():  # pyright: ignore[reportUnnecessaryIsInstance]
        refuse(f"`method` must be the name of an HTTP method, got {shown(method)}")
    method = method.upper()
    checked, result_schema, columns = check_options(method, url, schema, dict(options))
    declared: list[pa.Field[Any]] = [] if schema is None else list(to_schema(schema))
    required = tuple(column.name for column in declared if not column.nullable)
    function = HttpFunction(method, url, checked, result_schema, columns, required)
    function.check()
    return function


def _requests_of_process(calls: int) -> int:
    """Returns how many of `calls` requests this process has at a time: each may be a connection."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_REQUESTS
    if files != resource.RLIM_INFINITY:
        # The other half is for all else that has files open.
        most = max(min(most, files // 2), 1)
    if calls > most:
        _warn_of_few_requests(calls, most, files)
        return most
    return calls


@functools.cache
def _warn_of_few_requests(calls: int, most: int, files: int) -> None:
    """Says so once a process."""
    _logger.warning(
        "`max_concurrency` is %d, and this process makes at most %d HTTP requests at a time: 1024,"
        " or half of the files that it may have open (`ulimit -n` is %d); raise that limit, or say"
        " `max_requests=%d` if so many connections are what you want",
        calls,
        most,
        files,
        calls,
    )


def _batch(options: Checked, look_up: LookUp) -> dict[str, Any] | None:
    items = options.items
    if items is None:
        return None
    values = [reveal_template(value, look_up) for value in items.values]
    return items.description(values, reveal_template(items.around, look_up))


def _body(options: Checked, look_up: LookUp) -> dict[str, Any] | None:
    if options.items is not None:
        return None
    if options.has_json:
        return {"json": reveal_template(options.json, look_up)}
    if options.body is not None:
        return {"raw": reveal_template(options.body, look_up)}
    return None


def _idempotency_key(key: str | Literal[True] | None) -> dict[str, Any] | None:
    if key is None:
        return None
    return {"header": "Idempotency-Key", "value": None if key is True else key}
