# SPDX-License-Identifier: Apache-2.0
"""What a request says for its row, or for each of its rows, and how the reply names them.

```text
  json={"model": "m", "input": each("{text}")}      {"model": "m", "input": ["a", "b", "c"]}
  body=lines({"index": {}}, "{document}")           {"index": {}}
                                                    {"title": "a"}
                                                    {"index": {}}
                                                    {"title": "b"}
```

A template is a text with columns in braces, or a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from sparkawait import _core
from sparkawait._checks import ObjectOf, mapping, refuse, shown, text
from sparkawait.exceptions import ErrorKind
from sparkawait.limits import Batch
from sparkawait.secrets import LookUp, Secret, looked_up, reveal

Template = str | Secret
"""A text with columns in braces, or a secret, which is taken as it is."""


def keyed(name: str, key: str) -> str:
    """Names a template among others of an option, for messages."""
    return f'{name}["{key}"]'


def check_template(value: object, name: str) -> Template:
    """Returns a template; an empty one is one, too."""
    if isinstance(value, Secret) or (isinstance(value, str) and not value):
        return value
    # Not quoted: it may have a token in it.
    return text(value, name, "a text with columns in braces, or a secret", quoted=False)


def reveal_template(value: Any, look_up: LookUp = looked_up, form: str = "secret") -> Any:
    """Returns a template, or a JSON value with templates, with its secrets looked up."""

    def part(value: Any) -> Any:
        return literal(reveal(value, look_up, form)) if isinstance(value, Secret) else value

    return changed(value, part)


def changed(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a JSON value in which each part without members or elements is a changed one."""
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value)
        return {name: changed(member, change) for name, member in members.items()}
    if isinstance(value, list | tuple):
        return [changed(element, change) for element in cast("list[Any]", value)]
    return change(value)


def leaves(value: Any) -> Iterator[Any]:
    """Yields the parts of a JSON value that have no members or elements."""
    if isinstance(value, Mapping):
        value = list(cast("Mapping[Any, Any]", value).values())
    if isinstance(value, list | tuple):
        for element in cast("list[Any]", value):
            yield from leaves(element)
    else:
        yield value


def literal(value: Any) -> Any:
    """Returns a text, or a JSON value with its texts, in which braces are not columns.

    For prompts and JSON Schemas. What it returns may stand beside templates, or be part of one:
    ``sa.http.literal(prompt) + "{question}"``.

    Args:
        value: A text, or any JSON value; what is not a text in it stays as it is.

    Examples:
        >>> import sparkawait as sa
        >>> sa.http.literal('Answer as {"mood": "good"}.')
        'Answer as {{"mood": "good"}}.'
        >>> sa.http.post(
        ...     "https://api.example.com/v1/chat",
        ...     "answer string",
        ...     json={"schema": sa.http.literal({"pattern": "a{3}"}), "prompt": "{question}"},
        ... )
        HttpFunction(method='POST', input_columns=('question',))
    """

    def part(value: Any) -> Any:
        return value.replace("{", "{{").replace("}", "}}") if isinstance(value, str) else value

    return changed(value, part)


# -- bodies of named fields: ``form=``, and ``multipart=`` with its files.
#
# ```text
#   form={"name": "{name}", "n": "7"}                 name=Ann&n=7
#   multipart={"note": "{text}", "scan": file(..)}    a part for each; files have a name and a type
# ```


@dataclass(frozen=True)
class Part:
    """A part of a multipart body; a file is made by `file`."""

    value: Template = field(repr=False)
    filename: str | None = None
    content_type: str | None = None

    @property
    def templates(self) -> tuple[Template | None, ...]:
        """The texts with columns in braces."""
        return (self.value, self.filename)


def file(value: str, filename: str, content_type: str = "application/octet-stream") -> Part:
    """Returns a file for ``multipart=``: mostly a binary column, as it is.

    Args:
        value: Template of the contents. A part with a null column is left out.
        filename: Template of the name that the server is told.
        content_type: What the file is.

    Raises:
        ConfigurationError: If they are not texts, or the type cannot stand in a header.

    Examples:
        >>> import sparkawait as sa
        >>> sa.http.post(
        ...     "https://api.example.com/scans",
        ...     "text string",
        ...     multipart={"lang": "en", "scan": sa.http.file("{image}", "{id}.png", "image/png")},
        ... )
        HttpFunction(method='POST', input_columns=('image', 'id'))
    """
    template = check_template(value, "value")
    name = text(filename, "filename", "a text with columns in braces")
    kind = text(content_type, "content_type")
    if not (kind.isascii() and kind.isprintable()):
        refuse("`content_type` of a file has characters that no header may have")
    return Part(template, name, kind)


def check_parts(value: object, name: str) -> tuple[tuple[str, Part], ...]:
    """Returns the parts of a multipart body by name."""
    items = mapping(value, name, "texts and files by name").items()

    def part(item: object) -> Part:
        return item if isinstance(item, Part) else Part(check_template(item, name))

    return tuple((key, part(item)) for key, item in items)


def refuse_own_type(headers: Mapping[str, object]) -> None:
    """Refuses a header without which nobody finds the parts of a body."""
    if any(name.lower() == "content-type" for name in headers):
        refuse(
            "`multipart` makes the header `Content-Type` itself, with what stands between the"
            " parts; leave it out of `headers`"
        )


def part_description(name: str, part: Part, look_up: LookUp) -> dict[str, Any]:
    """Returns what the extension module is told of a part."""
    return {
        "name": name,
        "value": reveal_template(part.value, look_up),
        "filename": part.filename,
        "content_type": part.content_type,
    }


# -- what a request says for each of its rows, and how its reply names them

_PLACE = "{}"
"""Stands for the array in what is sent to executors. As a template it would be refused."""


@dataclass(frozen=True)
class Each:
    """The place of an array in a JSON body that has an element for each row. Made by `each`."""

    value: Any = field(repr=False)


@dataclass(frozen=True)
class Lines:
    """A body that has lines for each row. Made by `lines`."""

    value: tuple[Any, ...] = field(repr=False)


def each(value: Any) -> Each:
    """Returns the place of an array in ``json=`` that has an element for each row of a request.

    Needs ``batch=``. May be the whole body.

    Args:
        value: The element: any JSON value with columns in it, as ``json=`` takes it. A row for
            which it is one column that is null makes no call and is a miss.

    Examples:
        >>> import sparkawait as sa
        >>> sa.http.post(
        ...     "https://api.example.com/v1/embeddings",
        ...     "embedding array<float>",
        ...     json={"model": "small", "input": sa.http.each("{text}")},
        ...     rows="data",
        ...     items=sa.http.items(id="index"),
        ...     batch=64,
        ... )
        HttpFunction(method='POST', input_columns=('text',))
    """
    return Each(value)


def lines(*values: Any) -> Lines:
    """Returns a body for ``body=`` that has a line of JSON for each of `values` and each row.

    Needs ``batch=``. Sent as ``application/x-ndjson``, unless ``headers=`` says otherwise.

    Args:
        *values: The lines of a row: JSON values with columns in them, as ``json=`` takes them. A
            row for which one of them is a column that is null makes no call and is a miss.

    Raises:
        ConfigurationError: If there are none.

    Examples:
        >>> import sparkawait as sa
        >>> sa.http.post(
        ...     "https://search.example.com/_bulk",
        ...     "result string",
        ...     body=sa.http.lines({"index": {"_index": "orders", "_id": "{id}"}}, "{order}"),
        ...     rows="items",
        ...     paths={"result": "index.result"},
        ...     items=sa.http.items(status="index.status", error="index.error"),
        ...     batch=500,
        ... )
        HttpFunction(method='POST', input_columns=('id', 'order'))
    """
    if not values:
        refuse("`lines` needs at least one value for each row")
    return Lines(values)


@dataclass(frozen=True)
class ReplyItems:
    """What a reply to many rows says of each of them. Made by `items`."""

    id: tuple[str, str | None] | None = None
    error: str | None = None
    status: str | None = None
    retry: tuple[str, ...] = ()


def items(
    *,
    id: str | Mapping[str, str] | None = None,  # noqa: A002 - as APIs call it
    error: str | None = None,
    status: str | None = None,
    retry: Iterable[str | int] = (),
) -> ReplyItems:
    """Returns what a reply to many rows says of each of them, for ``items=``.

    Needs ``batch=``. An item is an element of the array at ``rows=``, or of the document.

    Args:
        id: What an item names its row by: the JSON path of the row's position in the request,
            counted from 0 (``"index"``), or a path with a template that tells rows apart
            (``{"key": "{customer_id}"}``), which rows of a request then do not share. Without it
            items are in the order of the rows, and as many.
        error: JSON path of an item's error: where there is one, and it is not null, false or
            empty, the row fails.
        status: JSON path of an item's status, which means for its row what the status of a response
            means: ``success=``, ``missing=``, and which failures are tried again.
        retry: The errors that are worth another attempt of their rows: texts or whole numbers that
            the error is, or has as a member, such as its code. Needs `error`.

    Raises:
        ConfigurationError: If one of them is wrong.

    Examples:
        >>> items(id="index", error="error", retry=["rate_limited", 503])
        ReplyItems(id=('index', None), error='error', status=None, retry=('rate_limited', '503'))
    """
    path = "a JSON path"
    found = ReplyItems(
        None if id is None else _id(id),
        None if error is None else text(error, "error", path),
        None if status is None else text(status, "status", path),
        _retry(retry),
    )
    if found.retry and found.error is None:
        refuse("`retry` of items needs `error`, the path of an item's error")
    return found


@dataclass(frozen=True, repr=False)
class Items:
    """How rows are put together into requests, and what belongs to each in a reply.

    Attributes:
        batch: How many go together.
        values: What a request says for a row: one element of an array, or lines.
        around: The JSON value with the place of the array; unused for lines.
        are_lines: Whether they are lines.
        reply: What the reply says of each.
    """

    batch: Batch
    values: tuple[Any, ...]
    around: Any
    are_lines: bool
    reply: ReplyItems

    def bounded(self, rows: int) -> Items:
        """Returns the same for a task that has no more than `rows` rows."""
        batch = self.batch
        return replace(self, batch=replace(batch, max_rows=min(batch.max_rows, rows)))

    def description(self, values: list[Any], around: Any) -> dict[str, Any]:
        """Returns what the extension module is told, with the secrets looked up."""
        batch, reply = self.batch, self.reply
        return {
            "max_rows": batch.max_rows,
            "max_bytes": batch.max_bytes,
            "linger": batch.linger_seconds,
            "split_on_error": batch.split_on_error,
            "item": values,
            "around": None if self.are_lines else around,
            "id": None if reply.id is None else {"path": reply.id[0], "template": reply.id[1]},
            "error": reply.error,
            "status": reply.status,
            "retry": reply.retry,
        }


the_items = ObjectOf(ReplyItems, "made by sparkawait.http.items")


def _id(value: object) -> tuple[str, str | None]:
    if isinstance(value, Mapping):
        pairs = list(cast("Mapping[object, object]", value).items())
        if len(pairs) == 1:
            path, template = pairs[0]
            rule = "a JSON path to a template, as in {'key': '{customer_id}'}"
            return text(path, "id", rule), text(template, "id", rule)
        refuse(f"`id` must have one member, got {shown(cast('object', value))}")
    return text(value, "id", "a JSON path, or one path to a template"), None


_MAX_CODE = 2**63


def _retry(value: object) -> tuple[str, ...]:
    rule = "texts or whole numbers"
    if not isinstance(value, list | tuple | set | frozenset):
        refuse(f"`retry` of items must be a list of {rule}, got {shown(value)}")
    errors: list[str] = []
    for error in cast("Iterable[object]", value):
        if isinstance(error, bool) or not isinstance(error, str | int) or error == "":
            refuse(f"`retry` of items must be {rule}, got {shown(error)}")
        if isinstance(error, int) and not -_MAX_CODE < error < _MAX_CODE:
            refuse(f"`retry` of items has a number beyond 63 bits: {shown(error)}")
        errors.append(str(error))
    return tuple(errors)


def check_items(values: dict[str, Any]) -> Items | None:
    """Takes the options of batched requests out of `values`; returns what they mean together.

    Raises:
        ConfigurationError: If they contradict one another.
    """
    batch: Batch | None = values.pop("batch")
    reply: ReplyItems | None = values.pop("items")
    json, body = values["json"], values["body"]
    places = [it for it in leaves(json) if isinstance(it, Each)]
    if batch is None:
        _refuse_without_batch(reply, places, body)
        return None
    own = [body.value] if isinstance(body, Lines) else []
    own += [(place.value,) for place in places]
    if len(own) != 1:
        refuse(
            "`batch` needs one place for the rows, json={.., 'input': sparkawait.http.each(..)} or"
            f" body=sparkawait.http.lines(..), got {len(own)}",
            ErrorKind.BATCH_INVALID,
        )
    if any(isinstance(it, Each) for it in leaves(own[0])):
        refuse("`each` cannot stand within another, or within `lines`")
    _check_results(values["returns"], reply)
    are_lines = isinstance(body, Lines)
    around = changed(json, lambda part: _PLACE if isinstance(part, Each) else part)
    return Items(batch, own[0], None if are_lines else around, are_lines, reply or ReplyItems())


def _refuse_without_batch(reply: ReplyItems | None, places: list[Each], body: object) -> None:
    if reply is not None:
        refuse("`items` belongs to `batch`: it is about one row of several")
    if places or isinstance(body, Lines):
        what = "each" if places else "lines"
        refuse(f"`{what}` needs `batch`, as in batch=64")


def _check_results(returns: str, reply: ReplyItems | None) -> None:
    if returns not in ("json", "nothing"):
        refuse(f'`batch` needs returns="json" or "nothing", got {shown(returns)}')
    if returns == "nothing" and reply is not None:
        refuse('`items` belongs to returns="json"')


def id_columns(items: Items) -> list[str]:
    """Returns the columns in the template of ``id=``."""
    template = None if items.reply.id is None else items.reply.id[1]
    return [] if template is None else list(_core.template_columns(template, "id"))
