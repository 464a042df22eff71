# SPDX-License-Identifier: Apache-2.0
"""Texts with columns in braces; a secret may stand instead of a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from sparkawait._plan.checks import text
from sparkawait.secrets import LookUp, Secret, looked_up, reveal

__all__ = ["Template", "check_template", "reveal_template"]

Template = str | Secret
"""A text with columns in braces, or a secret, which is taken as it is."""


def check_template(value: object, name: str) -> Template:
    """Returns a template; an empty one is one, too."""
    if isinstance(value, Secret) or (isinstance(value, str) and not value):
        return value
    # Not quoted: it may have a token in it.
    return text(value, name, "a text with columns in braces, or a secret", quoted=False)


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
