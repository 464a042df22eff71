# SPDX-License-Identifier: Apache-2.0
"""What editors show of `sparkawait.connectors.http`. `make signatures` writes this file; nothing runs it.

The functions themselves are in `http.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from sparkawait._schema.types import SchemaLike
from sparkawait.connectors.arguments import HttpOptions as HttpOptions
from sparkawait.connectors.http_auth import Auth, aws_sigv4 as aws_sigv4, basic as basic, bearer as bearer, oauth2 as oauth2
from sparkawait.connectors.http_body import Lines, Part, ReplyItems, Template, each as each, file as file, items as items, lines as lines, literal as literal
from sparkawait.connectors.http_client import Client as Client
from sparkawait.connectors.http_preview import preview as preview
from sparkawait.connectors.http_request import HttpFunction as HttpFunction
from sparkawait.limits import Batch
from sparkawait.secrets import Secret

__all__ = ["Client", "HttpFunction", "HttpOptions", "aws_sigv4", "basic", "bearer", "each", "file", "get", "items", "lines", "literal", "oauth2", "post", "preview", "request"]


def get(
    url: str | Secret,
    schema: SchemaLike | None = None,
    *,
    query: Mapping[str, Template] = ...,
    headers: Mapping[str, Template] = ...,
    json: Any = None,
    body: Template | Lines | None = None,
    form: Mapping[str, Template] | None = None,
    multipart: Mapping[str, Template | Part] | None = None,
    auth: Auth | None = None,
    allow_hosts: Iterable[str] | None = None,
    idempotency_key: str | Literal[True] | None = None,
    batch: Batch | int | None = None,
    rows: str | None = None,
    items: ReplyItems | None = None,
    paths: Mapping[str, str] = ...,
    returns: Literal["json", "text", "bytes", "nothing"] = "json",
    status: str | None = None,
    response_headers: Mapping[str, str] = ...,
    how: Literal["left", "inner"] = "left",
    success: int | range | Iterable[int | range] = range(200, 300),
    missing: int | range | Iterable[int | range] | None = None,
    retry_status: int | range | Iterable[int | range] | None = None,
    max_requests: int | None = None,
    client: Client | None = None,
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
        query: Parameters to append to the address, by name; values are templates.
        headers: Headers by name; values are templates or secrets. A secret of a file or a provider
            is read again when the server answers 401.
        json: The request's body as a JSON value with columns in it; with `batch`,
            `sa.http.each(..)` in it is an array with an element for each row.
        body: The request's body as a template; with `batch`, `sa.http.lines(..)` has lines for each
            row.
        form: The request's body as fields of a form, `application/x-www-form-urlencoded`; values
            are templates, and a field with a null column is left out.
        multipart: The request's body as `multipart/form-data`: templates by name, and files, which
            `sa.http.file(..)` makes of columns; a part with a null column is left out.
        auth: Who calls: `sa.http.basic(..)`, `sa.http.bearer(..)`, `sa.http.oauth2(..)` or
            `sa.http.aws_sigv4(..)`. After 401 its secrets are read again, and the call is made once
            more.
        allow_hosts: The hosts that rows may name: `"api.example.com"`, `"api.example.com:8443"` for
            one port, `".example.com"` for all hosts below. They are meant by https, except
            `"http://localhost"` and where the address itself starts with `http://`. A row that
            names another fails, and no call is made. Needed where a column names the host and a
            header, a secret or a password goes along.
        idempotency_key: Sends the header `Idempotency-Key`, the same in all attempts of a row:
            `True` for a random one, which is another one when Spark runs the task again, or a
            template over columns that name the row. With `batch` one for a request, made of its
            rows, which is sent again with the same rows and the same key.
        batch: Sends one request for many rows: `sa.Batch(max_rows=, max_bytes=, linger=,
            split_on_error=)`; `64` is its `max_rows`. The rows of a request are of one channel, and
            alike in all that stands beside `each` or `lines`. Default: a request a row.
        rows: JSON path of the array whose elements are the result rows. By default the document is
            the row, or the array of rows. With `batch` each element is the result of one row, an
            array too, and null a miss.
        items: With `batch`, what a result says of its row: `sa.http.items(id=, error=, status=,
            retry=)`. Default: results are in the order of the rows.
        paths: JSON paths of columns that are not members of their own name.
        returns: `"json"` (needs a schema), `"text"` or `"bytes"` for one column `body`, or
            `"nothing"`.
        status: Name of a column with the response's status.
        response_headers: Columns out of the response's headers: header by name of the column.
        how: What happens to a row that misses: `"left"` gives nulls, `"inner"` drops it.
        success: Statuses that are a success: numbers and ranges. Default: 200 to 299.
        missing: Statuses that are a miss, likewise. Default: 404 for GET and HEAD, else none.
        retry_status: The statuses that are worth another attempt, likewise, also of a POST, and no
            others. Default: 408, 425, 429, 503, 521, 523, 525, 526, 529, and with `retry` all from
            500 where twice is harmless.
        max_requests: Most requests at a time in a task, up to 65 535: fewer than `max_concurrency`,
            or more than the default bound of a process, 1 024 or half of `ulimit -n`. Default: as
            many as `max_concurrency`.
        client: How connections are made: `sa.http.Client(connect_timeout=, read_timeout=,
            max_reply_bytes=, redirects=, version=, streams_per_connection=, compressed=, proxy=,
            ca=, certificate=, private_key=)`; several functions may have the same. Default:
            `sa.http.Client()`.

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
    ...


def post(
    url: str | Secret,
    schema: SchemaLike | None = None,
    *,
    query: Mapping[str, Template] = ...,
    headers: Mapping[str, Template] = ...,
    json: Any = None,
    body: Template | Lines | None = None,
    form: Mapping[str, Template] | None = None,
    multipart: Mapping[str, Template | Part] | None = None,
    auth: Auth | None = None,
    allow_hosts: Iterable[str] | None = None,
    idempotency_key: str | Literal[True] | None = None,
    batch: Batch | int | None = None,
    rows: str | None = None,
    items: ReplyItems | None = None,
    paths: Mapping[str, str] = ...,
    returns: Literal["json", "text", "bytes", "nothing"] = "json",
    status: str | None = None,
    response_headers: Mapping[str, str] = ...,
    how: Literal["left", "inner"] = "left",
    success: int | range | Iterable[int | range] = range(200, 300),
    missing: int | range | Iterable[int | range] | None = None,
    retry_status: int | range | Iterable[int | range] | None = None,
    max_requests: int | None = None,
    client: Client | None = None,
) -> HttpFunction:
    """Returns a function that posts a body for each row: ``json=``, ``form=`` and the like.

    No status is a miss, unless ``missing=`` says so. A service that must not do a thing twice needs
    ``idempotency_key=`` before calls may be retried.

    Args:
        url: Template of the address.
        schema: Columns of the JSON in the response, as for `get`.
        query: Parameters to append to the address, by name; values are templates.
        headers: Headers by name; values are templates or secrets. A secret of a file or a provider
            is read again when the server answers 401.
        json: The request's body as a JSON value with columns in it; with `batch`,
            `sa.http.each(..)` in it is an array with an element for each row.
        body: The request's body as a template; with `batch`, `sa.http.lines(..)` has lines for each
            row.
        form: The request's body as fields of a form, `application/x-www-form-urlencoded`; values
            are templates, and a field with a null column is left out.
        multipart: The request's body as `multipart/form-data`: templates by name, and files, which
            `sa.http.file(..)` makes of columns; a part with a null column is left out.
        auth: Who calls: `sa.http.basic(..)`, `sa.http.bearer(..)`, `sa.http.oauth2(..)` or
            `sa.http.aws_sigv4(..)`. After 401 its secrets are read again, and the call is made once
            more.
        allow_hosts: The hosts that rows may name: `"api.example.com"`, `"api.example.com:8443"` for
            one port, `".example.com"` for all hosts below. They are meant by https, except
            `"http://localhost"` and where the address itself starts with `http://`. A row that
            names another fails, and no call is made. Needed where a column names the host and a
            header, a secret or a password goes along.
        idempotency_key: Sends the header `Idempotency-Key`, the same in all attempts of a row:
            `True` for a random one, which is another one when Spark runs the task again, or a
            template over columns that name the row. With `batch` one for a request, made of its
            rows, which is sent again with the same rows and the same key.
        batch: Sends one request for many rows: `sa.Batch(max_rows=, max_bytes=, linger=,
            split_on_error=)`; `64` is its `max_rows`. The rows of a request are of one channel, and
            alike in all that stands beside `each` or `lines`. Default: a request a row.
        rows: JSON path of the array whose elements are the result rows. By default the document is
            the row, or the array of rows. With `batch` each element is the result of one row, an
            array too, and null a miss.
        items: With `batch`, what a result says of its row: `sa.http.items(id=, error=, status=,
            retry=)`. Default: results are in the order of the rows.
        paths: JSON paths of columns that are not members of their own name.
        returns: `"json"` (needs a schema), `"text"` or `"bytes"` for one column `body`, or
            `"nothing"`.
        status: Name of a column with the response's status.
        response_headers: Columns out of the response's headers: header by name of the column.
        how: What happens to a row that misses: `"left"` gives nulls, `"inner"` drops it.
        success: Statuses that are a success: numbers and ranges. Default: 200 to 299.
        missing: Statuses that are a miss, likewise. Default: 404 for GET and HEAD, else none.
        retry_status: The statuses that are worth another attempt, likewise, also of a POST, and no
            others. Default: 408, 425, 429, 503, 521, 523, 525, 526, 529, and with `retry` all from
            500 where twice is harmless.
        max_requests: Most requests at a time in a task, up to 65 535: fewer than `max_concurrency`,
            or more than the default bound of a process, 1 024 or half of `ulimit -n`. Default: as
            many as `max_concurrency`.
        client: How connections are made: `sa.http.Client(connect_timeout=, read_timeout=,
            max_reply_bytes=, redirects=, version=, streams_per_connection=, compressed=, proxy=,
            ca=, certificate=, private_key=)`; several functions may have the same. Default:
            `sa.http.Client()`.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> post("https://api.example.com/score", "score double", json={"age": "{age}"})
        HttpFunction(method='POST', input_columns=('age',))
    """
    ...


def request(
    method: str,
    url: str | Secret,
    schema: SchemaLike | None = None,
    *,
    query: Mapping[str, Template] = ...,
    headers: Mapping[str, Template] = ...,
    json: Any = None,
    body: Template | Lines | None = None,
    form: Mapping[str, Template] | None = None,
    multipart: Mapping[str, Template | Part] | None = None,
    auth: Auth | None = None,
    allow_hosts: Iterable[str] | None = None,
    idempotency_key: str | Literal[True] | None = None,
    batch: Batch | int | None = None,
    rows: str | None = None,
    items: ReplyItems | None = None,
    paths: Mapping[str, str] = ...,
    returns: Literal["json", "text", "bytes", "nothing"] = "json",
    status: str | None = None,
    response_headers: Mapping[str, str] = ...,
    how: Literal["left", "inner"] = "left",
    success: int | range | Iterable[int | range] = range(200, 300),
    missing: int | range | Iterable[int | range] | None = None,
    retry_status: int | range | Iterable[int | range] | None = None,
    max_requests: int | None = None,
    client: Client | None = None,
) -> HttpFunction:
    """Returns a function that makes a request of any method for each row.

    Args:
        method: The method, such as ``"PUT"``.
        url: Template of the address.
        schema: Columns of the JSON in the response, as for `get`.
        query: Parameters to append to the address, by name; values are templates.
        headers: Headers by name; values are templates or secrets. A secret of a file or a provider
            is read again when the server answers 401.
        json: The request's body as a JSON value with columns in it; with `batch`,
            `sa.http.each(..)` in it is an array with an element for each row.
        body: The request's body as a template; with `batch`, `sa.http.lines(..)` has lines for each
            row.
        form: The request's body as fields of a form, `application/x-www-form-urlencoded`; values
            are templates, and a field with a null column is left out.
        multipart: The request's body as `multipart/form-data`: templates by name, and files, which
            `sa.http.file(..)` makes of columns; a part with a null column is left out.
        auth: Who calls: `sa.http.basic(..)`, `sa.http.bearer(..)`, `sa.http.oauth2(..)` or
            `sa.http.aws_sigv4(..)`. After 401 its secrets are read again, and the call is made once
            more.
        allow_hosts: The hosts that rows may name: `"api.example.com"`, `"api.example.com:8443"` for
            one port, `".example.com"` for all hosts below. They are meant by https, except
            `"http://localhost"` and where the address itself starts with `http://`. A row that
            names another fails, and no call is made. Needed where a column names the host and a
            header, a secret or a password goes along.
        idempotency_key: Sends the header `Idempotency-Key`, the same in all attempts of a row:
            `True` for a random one, which is another one when Spark runs the task again, or a
            template over columns that name the row. With `batch` one for a request, made of its
            rows, which is sent again with the same rows and the same key.
        batch: Sends one request for many rows: `sa.Batch(max_rows=, max_bytes=, linger=,
            split_on_error=)`; `64` is its `max_rows`. The rows of a request are of one channel, and
            alike in all that stands beside `each` or `lines`. Default: a request a row.
        rows: JSON path of the array whose elements are the result rows. By default the document is
            the row, or the array of rows. With `batch` each element is the result of one row, an
            array too, and null a miss.
        items: With `batch`, what a result says of its row: `sa.http.items(id=, error=, status=,
            retry=)`. Default: results are in the order of the rows.
        paths: JSON paths of columns that are not members of their own name.
        returns: `"json"` (needs a schema), `"text"` or `"bytes"` for one column `body`, or
            `"nothing"`.
        status: Name of a column with the response's status.
        response_headers: Columns out of the response's headers: header by name of the column.
        how: What happens to a row that misses: `"left"` gives nulls, `"inner"` drops it.
        success: Statuses that are a success: numbers and ranges. Default: 200 to 299.
        missing: Statuses that are a miss, likewise. Default: 404 for GET and HEAD, else none.
        retry_status: The statuses that are worth another attempt, likewise, also of a POST, and no
            others. Default: 408, 425, 429, 503, 521, 523, 525, 526, 529, and with `retry` all from
            500 where twice is harmless.
        max_requests: Most requests at a time in a task, up to 65 535: fewer than `max_concurrency`,
            or more than the default bound of a process, 1 024 or half of `ulimit -n`. Default: as
            many as `max_concurrency`.
        client: How connections are made: `sa.http.Client(connect_timeout=, read_timeout=,
            max_reply_bytes=, redirects=, version=, streams_per_connection=, compressed=, proxy=,
            ca=, certificate=, private_key=)`; several functions may have the same. Default:
            `sa.http.Client()`.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> request("HEAD", "https://example.com/{path}", returns="nothing", status="status")
        HttpFunction(method='HEAD', input_columns=('path',))
    """
    ...
