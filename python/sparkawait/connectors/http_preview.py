# SPDX-License-Identifier: Apache-2.0
"""One call of an HTTP function, and what it makes of the answer: `preview`.

```text
  first row --> the request, as the job makes it --> status, body      one call of the service
                                                        |
                     the function, told to call here <--+              the columns, as in the job
```
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http.client import responses
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, cast
from urllib.parse import urlsplit

import pyarrow as pa

from sparkawait import _core
from sparkawait._checks import refuse, shown
from sparkawait.connectors.http_body import Each, Lines, changed
from sparkawait.connectors.http_client import Client
from sparkawait.connectors.http_request import HttpFunction, Request
from sparkawait.exceptions import ErrorKind
from sparkawait.options import FunctionWithOptions
from sparkawait.outcomes import OnError

# -- whether a document has something at a path, and what there is on the way. Pure functions

_STEP = re.compile(
    r"""\.?([^.\[\]'"]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]"""
)
_FEW = 8


def absent(options: Request, column: str, body: bytes, row: int) -> str:
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


_BODY, _STATUS, _TYPE, _HEADER, _ERROR = (
    f"__answer_{name}__" for name in ("body", "status", "type", "header", "error")
)
_MOST_CHARACTERS = 1000
_MOST_ROWS = 3


@dataclass(frozen=True)
class _Answer:
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...]


def preview(rows: object, function: object) -> None:
    """Makes one call, for the first row, and prints the answer and the columns made of it.

    The call is made as a job makes it: over a DataFrame in an executor, with its secrets and its
    way to the service. It is made once, whatever it costs, and not again if it fails. A column
    that is null because the answer has nothing at its path is said to be so.

    Args:
        rows: A DataFrame, which is asked for one row (classic or over Spark Connect, not a
            streaming one); or without Spark a row as a mapping, a record batch or a table.
        function: Made by `get`, `post` or `request`.

    Raises:
        ConfigurationError: If an argument is wrong, or the function cannot be called with the row.

    Examples:
        >>> import sparkawait as sa
        >>> from sparkawait.testing import LookupServer
        >>> with LookupServer({"customers": {"a": {"name": "Ann"}}}) as server:
        ...     url, client = server.url + "/customers/{id}", sa.http.Client(proxy=False)
        ...     paths = {"town": "$.adress.town"}
        ...     look_up = sa.http.get(url, "name string, town string", client=client, paths=paths)
        ...     sa.http.preview({"id": "a"}, look_up)
        http.get for id='a'
        answered 200 OK, 15 bytes:
          {"name": "Ann"}
        columns:
          name: string = 'Ann'
          town: string = None, because there is nothing at `$.adress.town`: `$` has `name`
    """
    called = function.function if isinstance(function, FunctionWithOptions) else function
    if not isinstance(called, HttpFunction):
        refuse(f"`function` must be made by sparkawait.http, got {shown(called)}")
    for line in _lines(rows, called):
        print(line)  # noqa: T201 - what it is for


def _lines(rows: object, function: HttpFunction) -> list[str]:
    row, error, answer = _call(rows, _asking(function))
    values = ", ".join(f"{name}={shown(row[name])}" for name in function.input_columns)
    lines = [f"{function.name}{' for ' * bool(values)}{values}"]
    if error is not None:
        return [*lines, f"no answer: {error['message']}"]
    if answer is None:
        why = "a column of the request is null, so that no call was made; or 204, 205"
        return [*lines, f"no answer with content: {why}"]
    reason = responses.get(answer.status, "")
    text = answer.body.decode("utf-8", "replace")
    cut = text[:_MOST_CHARACTERS] + " .." * (len(text) > _MOST_CHARACTERS)
    lines.append(f"answered {answer.status} {reason}, {len(answer.body)} bytes:")
    lines += [f"  {line}" for line in cut.splitlines()]
    return lines + _columns(function, row, answer)


def _columns(function: HttpFunction, row: Mapping[str, Any], answer: _Answer) -> list[str]:
    """Describes what the function makes of an answer."""
    found, error = _made_of(function, row, answer)
    if error is not None:
        return [f"the row fails ({error['kind']}): {error['message']}"]
    if answer.status in (function.options.missing or ()):
        return [f"a miss, as `missing` says of {answer.status}: the columns are null"]
    if not found:
        return ["no row"]
    lines: list[str] = []
    for index, made in enumerate(found[:_MOST_ROWS]):
        number = f" of row {index + 1} of {len(found)}" * (len(found) > 1)
        lines.append(f"columns{number}:")
        for field in cast("list[pa.Field[Any]]", list(function.result_schema)):
            value = made[field.name]
            why = absent(function.options, field.name, answer.body, index) if value is None else ""
            kind = _core.simple_string(field.type)
            lines.append(f"  {field.name}: {kind} = {shown(value)}{why}")
    return lines


def _asking(function: HttpFunction) -> HttpFunction:
    """Returns the function that makes the same request and returns the answer as it is."""
    options = function.options
    if isinstance(options.body, Lines):
        refuse("`preview` cannot show a function whose `body` is made by sparkawait.http.lines")
    headers = tuple(
        (f"{_HEADER}{index}", name) for index, (_, name) in enumerate(options.response_headers)
    )
    asking = options.replaced(
        # The place of an array has one element.
        json=changed(options.json, lambda it: [it.value] if isinstance(it, Each) else it),
        batches=None,
        rows=None,
        paths=(),
        returns="bytes",
        status=_STATUS,
        response_headers=((_TYPE, "Content-Type"), *headers),
        how="left",
        success=((100, 999),),
        missing=(),
        retry_status=(),
    )
    texts = [pa.field(name, pa.string()) for name, _ in asking.response_headers]
    fields = [pa.field(_BODY, pa.binary()), pa.field(_STATUS, pa.int32()), *texts]
    return replace(
        function, options=asking, result_schema=pa.schema(fields), required=(), rules=None
    )


def _call(
    rows: object, asking: HttpFunction
) -> tuple[dict[str, Any], dict[str, Any] | None, _Answer | None]:
    """Makes the call; returns the row, why there is no answer, and the answer."""
    options: dict[str, Any] = {"on_error": OnError("capture", column=_ERROR), "retry": 0}
    if isinstance(rows, Mapping):
        rows = pa.RecordBatch.from_pylist([dict(cast("Mapping[str, Any]", rows))])
    if isinstance(rows, (pa.RecordBatch, pa.Table)):
        import sparkawait.arrow

        output = sparkawait.arrow.ordered_wait(rows.slice(0, 1), asking, **options)
        called = [row for made in output for row in made.to_pylist()]
    elif hasattr(rows, "mapInArrow"):
        called = _called_in_spark(cast("Any", rows), asking, options)
    else:
        rule = "a DataFrame of Spark, a record batch or a table, or a row as a mapping"
        refuse(f"`rows` must be {rule}, got {shown(rows)}")
    if not called:
        refuse("`rows` has no row to make a call for", ErrorKind.INPUT_INVALID)
    row = called[0]
    if row[_STATUS] is None:
        return row, row[_ERROR], None
    named = asking.options.response_headers
    headers = tuple((name, row[key]) for key, name in named if row[key] is not None)
    return row, None, _Answer(row[_STATUS], bytes(row[_BODY]), headers)


def _called_in_spark(df: Any, asking: HttpFunction, options: dict[str, Any]) -> list[Any]:
    import sparkawait.spark
    from sparkawait.spark import interrupts

    if df.isStreaming:
        refuse("`rows` must not be a streaming DataFrame; give a row as a mapping")
    names = ["`" + name.replace("`", "``") + "`" for name in asking.input_columns]
    first = (df.select(*names) if names else df).limit(1)
    output = sparkawait.spark.ordered_wait(first, asking, **options)
    called = interrupts.wait_for(df.sparkSession, output.collect)
    return [row.asDict(recursive=True) for row in called]


def _made_of(
    function: HttpFunction, row: Mapping[str, Any], answer: _Answer
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Returns the rows that the function makes of an answer, or why it fails."""
    import sparkawait.arrow

    options = function.options
    is_batched = options.batches is not None
    with _Replaying(answer) as relay:
        here = options.replaced(
            query=(),
            headers=(),
            has_json=options.has_json and is_batched,
            json=options.json if is_batched else None,
            body=None,
            form=None,
            multipart=None,
            auth=None,
            allow_hosts=None,
            idempotency_key=None,
            how="left",
            client=replace(Client(proxy=False), max_reply_bytes=options.client.max_reply_bytes),
        )
        columns = function.input_columns if is_batched else ()
        replayed = replace(function, url=f"http://{relay}/", options=here, input_columns=columns)
        batch = pa.RecordBatch.from_pylist([{"": 0, **{name: row[name] for name in columns}}])
        output = sparkawait.arrow.ordered_wait(
            [batch], replayed, retry=0, on_error=OnError("capture", column=_ERROR)
        )
        made = [found for part in output for found in part.to_pylist()]
    error = made[0][_ERROR] if made else None
    if error is not None:
        error["message"] = error["message"].replace(relay, _place_of(function.url))
    return made, error


def _place_of(url: object) -> str:
    """Returns what an address names; columns name it where the first part of it is one."""
    place = urlsplit(url).netloc.rpartition("@")[2] if isinstance(url, str) else ""
    return place if place and "{" not in place else "the service"


class _Replaying:
    """A server of this process that gives one answer, whatever it is asked for."""

    def __init__(self, answer: _Answer) -> None:
        class Handler(BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(answer.status)
                for name, value in answer.headers:
                    # In UTF-8, as it may have come: `send_header` takes bytes as characters.
                    self.send_header(name, value.encode().decode("latin-1"))
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)
                self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
                """Says nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> str:
        """Returns its host and port, which errors name."""
        self._thread.start()
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *ignored: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
