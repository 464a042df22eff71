# SPDX-License-Identifier: Apache-2.0
"""Calls to HTTP services, carried out by the extension module, with no Python a row.

The texts of a request are templates over columns: ``{name}`` stands for the column's value.

- ``url`` and ``query``: values are percent-encoded. Only a column that ``url`` starts with stands
  for scheme and host, or the whole address, as it is. A part of the path that a value leaves empty,
  or makes ``.`` or ``..``, fails the row. The slashes of ``{+key}`` stay: it may be several parts
  (RFC 6570, 3.2.3).
- ``headers`` and ``body``: values are written as they are.
- ``form`` and ``multipart``: fields by name; a field with a null column is left out.
- ``json``: any JSON value; a text that is one column, ``"{customer}"``, is that column's value with
  its type, as ``to_json`` writes it (a struct is an object), and other texts are templates.

A value is written as Spark's ``cast(.. as string)`` does: a timestamp in the session's time zone.

``{{`` is a brace, and `literal` writes them for you. A row with a null column in URL, query,
headers or a whole body makes no call and counts as a miss; within a larger JSON value it is
``null``.

A miss gives nulls with ``how="left"`` and drops the row with ``how="inner"``. Misses are responses
with a status of ``missing``, those without content (204, 205), and JSON without a row.

An attempt is worth a retry after 408, 425, 429, a status from 500, and whatever goes wrong with a
connection; ``Retry-After`` sets the delay. A 403 that says when to come again is worth one, too,
and a 401 that refuses a secret of a file or a provider. All other failures are final. A request may
have been carried out although no whole answer came (``read_timeout``, a broken connection, 504). It
is sent again only where twice is harmless: with GET, HEAD, PUT, DELETE, OPTIONS and TRACE, and with
``idempotency_key``. With that key, 409 is worth a retry, too.

A redirection to another scheme, host or port takes no header along that was given here, and no
body: where one would have to go along the row fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkawait._checks import refuse, shown
from sparkawait._option import documented
from sparkawait._schema.types import SchemaLike, declared_by
from sparkawait.connectors.arguments import HttpOptions
from sparkawait.connectors.http_auth import aws_sigv4, basic, bearer, oauth2
from sparkawait.connectors.http_body import each, file, items, lines, literal
from sparkawait.connectors.http_client import Client
from sparkawait.connectors.http_options import HTTP_OPTIONS
from sparkawait.connectors.http_preview import preview
from sparkawait.connectors.http_request import HttpFunction, check_options
from sparkawait.secrets import Secret

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "Client",
    "HttpFunction",
    "HttpOptions",
    "aws_sigv4",
    "basic",
    "bearer",
    "each",
    "file",
    "get",
    "items",
    "lines",
    "literal",
    "oauth2",
    "post",
    "preview",
    "request",
]


@documented(HTTP_OPTIONS, HttpOptions)
def get(
    url: str | Secret, schema: SchemaLike | None = None, **options: Unpack[HttpOptions]
) -> HttpFunction:
    """Returns a function that gets an address for each row.

    A status of 404 is a miss; ``missing=()`` makes it a failure. ``sa.http.preview(df, function)``
    makes one call, and shows the answer and the columns made of it.

    Args:
        url: Template of the address.
        schema: Columns of the JSON in the response: a DDL string, a `pyarrow.Schema`, a
            ``StructType``, or a class: a model of pydantic, a dataclass, a TypedDict. A column
            takes the member of its name or alias, or the value at its path in ``paths=``;
            ``"name as city string"`` takes the member ``name``. If the class has rules beside its
            types, instances are made of the rows that leave the task.
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
    """Returns a function that posts a body for each row: ``json=``, ``form=`` and the like.

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
    given, declared = dict(options), None
    if schema is not None:
        declared = declared_by(schema, has_names=True)
        if declared.aliases:
            given["paths"] = {**declared.paths, **(options.get("paths") or {})}
    checked, result_schema, columns = check_options(method, url, declared, given)
    function = HttpFunction(
        method,
        url,
        checked,
        result_schema,
        columns,
        () if declared is None else declared.required,
        None if declared is None else declared.rules,
    )
    function.check()
    return function
