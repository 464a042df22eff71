# SPDX-License-Identifier: Apache-2.0
"""How the answers of models are read, as it travels to the executors.

Immutable and picklable; any thread may read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sparkawait._schema.types import Model
from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["Answers"]


@dataclass(frozen=True)
class Answers:
    """Where an answer is among the columns that a call brings, and what is made of it.

    The first columns are blank, and filled here: those of the answer, then `usage` and `cost`, if
    they are asked for. Those that are `hidden` do not leave the task.

    Attributes:
        schema: The columns of the answer.
        is_json: Whether they are members of the JSON in the text, or the text is the only one.
        paths: JSON paths of columns that have other names there.
        model: The class that they are held to.
        text: The column with the text of the answer.
        status: That with the status of the reply: a row that was not asked for has none.
        said: That with the words of a service that has no answer.
        ended: That with the reason why it ended.
        refusal: That with the words of a refusal, if the service has one.
        kinds: The failures that reasons are.
        tokens: Columns of tokens: ``input``, ``cached``, ``write``, ``output``, ``reasoning``.
        is_whole: Whether ``input`` counts all of the prompt, or only what is not of a cache.
        usage: The column to fill with the tokens.
        cost: The column to fill with what the call has cost.
        prices: What a token costs, by the columns of `tokens`.
        hidden: The columns that do not leave.
        again: The function that asks again where an answer breaks the rules: it reads `ANSWER` and
            `REASON`.
    """

    schema: pa.Schema
    is_json: bool
    text: str
    status: str
    said: str
    ended: str
    refusal: str | None
    kinds: Mapping[str, ErrorKind]
    tokens: Mapping[str, str]
    is_whole: bool
    hidden: frozenset[str]
    paths: Mapping[str, str] = field(default_factory=dict[str, str])
    model: Model | None = None
    usage: str | None = None
    cost: str | None = None
    prices: Mapping[str, float] = field(default_factory=dict[str, float])
    again: Any = None

    def told(self, weights: Mapping[str, float], function: str) -> dict[str, float]:
        """Returns weights of columns as those of what the call brings, which settles limits.

        Args:
            weights: By the paths of numbers, as users name them.
            function: The name of the function, for messages.

        Raises:
            ConfigurationError: If one is read out of the text, where rows leave: behind the call.
        """
        found: dict[str, float] = {}
        for path, weight in weights.items():
            first, _, rest = path.partition(".")
            if path == self.cost:
                each = {name: weight * price for name, price in self.prices.items()}
            elif first == self.usage and rest in self.tokens:
                each = {self.tokens[rest]: weight}
            elif first in self.schema.names:
                known = ", ".join(f"`{it}`" for it in (self.cost, self.usage) if it)
                msg = (
                    f"`result_cost` of `{function}` names `{path}`, which is read out of the answer"
                    " behind the call; name what the call has cost, or the tokens that it took:"
                    f" {known or 'with `price=`, `cost`'}"
                )
                raise ConfigurationError(msg, ErrorKind.RATE_LIMIT_INVALID)
            else:
                each = {path: weight}
            for name, value in each.items():
                found[name] = found.get(name, 0.0) + value
        return found


ANSWER, REASON = "sparkawait_answer", "sparkawait_reason"
"""Columns of a call that asks again: what the model has said, and what is wrong with it."""

USAGE = ("input", "cached", "write", "output", "reasoning")
"""The fields of ``usage``."""
