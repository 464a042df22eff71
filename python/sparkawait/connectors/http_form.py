# SPDX-License-Identifier: Apache-2.0
"""Bodies of named fields: ``form=``, and ``multipart=`` with its files.

```text
  form={"name": "{name}", "n": "7"}                 name=Ann&n=7
  multipart={"note": "{text}", "scan": file(..)}    a part for each; files have a name and a type
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkawait._plan.checks import mapping, refuse, text
from sparkawait.connectors.http_template import Template, check_template, reveal_template
from sparkawait.secrets import LookUp

__all__ = ["Part", "check_parts", "file", "part_description", "refuse_own_type"]


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
