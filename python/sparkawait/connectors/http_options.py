# SPDX-License-Identifier: Apache-2.0
"""The options of HTTP functions: what they mean, and whether they are right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Literal, cast

from sparkawait._checks import integer, mapping, refuse, shown, text
from sparkawait._option import Option, Values, one_of, optional, options_of
from sparkawait.connectors.base import HOW, tls_words
from sparkawait.connectors.http_auth import the_auth
from sparkawait.connectors.http_body import (
    Lines,
    Template,
    check_parts,
    check_template,
    keyed,
    the_items,
)
from sparkawait.connectors.http_client import MAX_CONNECTIONS, Client, check_hosts, the_client
from sparkawait.limits import the_batch

_STATUSES = range(100, 1000)


def _key(value: object, name: str) -> str | Literal[True] | None:
    if value is None or isinstance(value, bool):
        return True if value else None
    return text(value, name, "True or a template")


def _body(value: object, name: str) -> Template | Lines:
    return value if isinstance(value, Lines) else check_template(value, name)


def _templates(value: object, name: str) -> tuple[tuple[str, Template], ...]:
    items = mapping(value, name, "texts with columns in braces by name").items()
    return tuple((key, check_template(item, keyed(name, key))) for key, item in items)


def _texts_by_name(value: object, name: str) -> tuple[tuple[str, str], ...]:
    items = mapping(value, name, "texts by column").items()
    return tuple((key, text(item, name, "a mapping to texts")) for key, item in items)


def _ranges(values: object, name: str) -> Iterator[tuple[int, int]]:
    """Yields the first and the last status of each range."""
    rule = f"`{name}` must be statuses from 100 to 999, or ranges of them, got"
    given = [values] if isinstance(values, int | range) else values
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        refuse(f"{rule} {shown(values)}")
    for count, value in enumerate(cast("Iterable[object]", given)):
        require(count < len(_STATUSES), f"{rule} too many")
        statuses = range(0)
        if isinstance(value, range):
            statuses = value
        elif isinstance(value, int) and not isinstance(value, bool):
            statuses = range(value, value + 1)
        ends = (statuses[0], statuses[-1]) if statuses else (0, 0)
        require(all(end in _STATUSES for end in ends), f"{rule} {shown(value)}")
        if statuses.step == 1:
            yield ends
        else:
            yield from ((status, status) for status in statuses)


def _statuses(values: object, name: str) -> tuple[int, ...]:
    ranges = _ranges(values, name)
    return tuple(status for first, last in ranges for status in range(first, last + 1))


def require(condition: bool, message: str) -> None:  # noqa: FBT001 - what is to hold
    """Refuses with `message` what does not hold."""
    if not condition:
        refuse(message)


class HttpValues(Values):
    """The options of HTTP functions; what a function has of them is checked."""

    query = Option(
        "parameters to append to the address, by name; values are templates",
        _templates,
        type="Mapping[str, Template]",
    )
    headers = Option(
        "headers by name; values are templates or secrets. A secret of a file or a "
        "provider is read again when the server answers 401",
        _templates,
        type="Mapping[str, Template]",
    )
    json = Option(
        "the request's body as a JSON value with columns in it; with `batch`, "
        "`sa.http.each(..)` in it is an array with an element for each row",
        type="Any",
    )
    body = Option(
        "the request's body as a template; with `batch`, `sa.http.lines(..)` has lines "
        "for each row",
        optional(_body),
        type="Template | Lines | None",
    )
    form = Option(
        "the request's body as fields of a form, `application/x-www-form-urlencoded`; "
        "values are templates, and a field with a null column is left out",
        optional(_templates),
        type="Mapping[str, Template] | None",
    )
    multipart = Option(
        "the request's body as `multipart/form-data`: templates by name, and files, which "
        "`sa.http.file(..)` makes of columns; a part with a null column is left out",
        optional(check_parts),
        type="Mapping[str, Template | Part] | None",
    )
    auth = Option(
        "who calls: `sa.http.basic(..)`, `sa.http.bearer(..)`, `sa.http.oauth2(..)` or "
        "`sa.http.aws_sigv4(..)`. After 401 its secrets are read again, and the call is made once "
        "more",
        the_auth,
        type="Auth | None",
    )
    allow_hosts = Option(
        'the hosts that rows may name: `"api.example.com"`, `"api.example.com:8443"` for '
        'one port, `".example.com"` for all hosts below. They are meant by https, except '
        '`"http://localhost"` and where the address itself starts with `http://`. A row '
        "that names another fails, and no call is made. Needed where a column names the "
        "host and a header, a secret or a password goes along",
        optional(check_hosts),
        type="Iterable[str] | None",
    )
    idempotency_key = Option(
        "sends the header `Idempotency-Key`, the same in all attempts of a row: `True` "
        "for a random one, which is another one when Spark runs the task again, or a "
        "template over columns that name the row. With `batch` one for a request, made of its "
        "rows, which is sent again with the same rows and the same key",
        _key,
        type="str | Literal[True] | None",
    )
    batch = Option(
        "sends one request for many rows: `sa.Batch(max_rows=, max_bytes=, linger=, "
        "split_on_error=)`; `64` is its `max_rows`. The rows of a request are of one channel, and "
        "alike in all that stands beside `each` or `lines`",
        the_batch,
        type="Batch | int | None",
        shown="a request a row",
    )
    rows = Option(
        "JSON path of the array whose elements are the result rows. By default the "
        "document is the row, or the array of rows. With `batch` each element is the result of "
        "one row, an array too, and null a miss",
        optional(text),
        type="str | None",
    )
    items = Option(
        "with `batch`, what a result says of its row: `sa.http.items(id=, error=, status=, "
        "retry=)`",
        the_items,
        type="ReplyItems | None",
        shown="results are in the order of the rows",
    )
    paths = Option(
        "JSON paths of columns that are not members of their own name",
        _texts_by_name,
        type="Mapping[str, str]",
    )
    returns = Option(
        '`"json"` (needs a schema), `"text"` or `"bytes"` for one column `body`, or `"nothing"`',
        one_of("json", "text", "bytes", "nothing"),
        default="json",
        type='Literal["json", "text", "bytes", "nothing"]',
    )
    status = Option(
        "name of a column with the response's status", optional(text), type="str | None"
    )
    response_headers = Option(
        "columns out of the response's headers: header by name of the column",
        _texts_by_name,
        type="Mapping[str, str]",
    )
    how = HOW
    success = Option(
        "statuses that are a success: numbers and ranges",
        lambda value, name: tuple(_ranges(value, name)),
        default=range(200, 300),
        type="int | range | Iterable[int | range]",
        shown="200 to 299",
    )
    missing = Option(
        "statuses that are a miss, likewise",
        optional(_statuses),
        type="int | range | Iterable[int | range] | None",
        shown="404 for GET and HEAD, else none",
    )
    retry_status = Option(
        "the statuses that are worth another attempt, likewise, also of a POST, and no others",
        optional(lambda value, name: tuple(_ranges(value, name))),
        type="int | range | Iterable[int | range] | None",
        shown="408, 425, 429, 503, 521, 523, 525, 526, 529, and with `retry` all from 500 where"
        " twice is harmless",
    )
    max_requests = Option(
        "most requests at a time in a task, up to 65 535: fewer than `max_concurrency`, or"
        " more than the default bound of a process, 1 024 or half of `ulimit -n`",
        optional(lambda value, name: integer(value, name, 1, MAX_CONNECTIONS)),
        type="int | None",
        shown="as many as `max_concurrency`",
    )
    client = Option(
        "how connections are made: `sa.http.Client(connect_timeout=, read_timeout=, "
        "max_reply_bytes=, redirects=, version=, streams_per_connection=, compressed=, proxy=, "
        "ca=, certificate=, private_key=)`; several functions may have the same",
        lambda value, name: the_client(value, name) or Client(),
        type="Client | None",
        shown="`sa.http.Client()`",
    )


HTTP_OPTIONS = options_of(HttpValues)
"""The options by name."""

HTTP_HINTS = {
    **tls_words("client=sa.http.Client(ca=..)"),
    **{
        it.name: f"it is a field of the client: client=sa.http.Client({it.name}=..)"
        for it in fields(Client)
    },
}
"""What to write instead of names that are not options."""
