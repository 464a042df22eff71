# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The limits of an account, and what tokens cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkawait._checks import mapping, number, refuse, shown
from sparkawait.llm.dialects import DIALECTS, TOKENS, Dialect
from sparkawait.rate_limit import Budget, Lengths, RateLimit

__all__ = ["Account", "rate_of"]

_SOME_OUTPUT = 500
"""Tokens of an answer that are reserved before any answer is known, without ``max_tokens``."""
_AROUND = 64
"""Tokens that a service may add around messages."""


@dataclass(frozen=True)
class Account:
    """What calls may take of an account, and what they cost.

    Attributes:
        model: Names the limits: functions of one model share them.
        rpm: Requests in a minute.
        tpm: Tokens in a minute; those of input and of output, if there are two.
        price: What a million tokens cost.
        fixed: Bytes that all prompts have.
        max_tokens: Most tokens of an answer.
        dialect: Says which tokens are told.
    """

    model: str
    rpm: float | None
    tpm: float | tuple[float, float] | None
    price: Mapping[str, float] | None = None
    fixed: int = 0
    max_tokens: int | None = None
    dialect: Dialect = DIALECTS["chat"]

    @property
    def prices(self) -> dict[str, float]:
        """What a token of each column costs."""
        return {} if self.price is None else _prices(self.price, self.dialect)

    def limits(self, columns: Sequence[str]) -> list[Any]:
        """Returns the limits of chats that read `columns`, which all tasks share."""
        limits: list[Any] = []
        if self.rpm is not None:
            name = f"requests of {self.model}"
            rate, burst = rate_of(self.rpm, "rpm"), _burst(self.rpm)
            limits.append(RateLimit(rate, burst, name=name, scope="job"))
        if self.tpm is None:
            return limits
        # What a cache knew does not count where input is told without it.
        names = ("input",) if self.dialect.is_whole else ("input", "write")
        paid = {TOKENS[it]: 1.0 for it in names}
        output = {TOKENS["output"]: 1.0}
        asked, answer = self.fixed // 4 + 100 * len(columns), self.max_tokens or _SOME_OUTPUT
        if isinstance(self.tpm, (tuple, list)):
            if len(self.tpm) != 2:  # noqa: PLR2004
                refuse(
                    f"`tpm` must be a number, or two for input and output, got {shown(self.tpm)}"
                )
            of_input, of_output = self.tpm
            limits.append(self._of_tokens(of_input, paid, asked, "input tokens"))
            limits.append(self._of_tokens(of_output, output, answer, "output tokens"))
        else:
            limits.append(self._of_tokens(self.tpm, paid | output, asked + answer, "tokens"))
        return limits

    def _of_tokens(self, rate: float, parts: dict[str, float], first: int, what: str) -> RateLimit:
        return RateLimit(
            rate_of(rate, "tpm"),
            _burst(rate),
            "usual",
            "job",
            name=f"{what} of {self.model}",
            result_cost=parts,
            counts="tokens",
            first_cost=max(first, 1),
        )

    def budget(self, total: float, columns: Sequence[str]) -> Budget:
        """Returns what the job may spend. A call reserves the most: no token is below a byte."""
        price = self.price
        if price is None:
            refuse("`budget` needs `price`")
        each = max(value for name, value in price.items() if name != "output") / 1e6
        most = (self.fixed + _AROUND) * each + (self.max_tokens or 0) * price["output"] / 1e6
        cost = Lengths(tuple(columns), each, most)
        return Budget(total, cost, self.prices, name=f"budget of {self.model}")

    def minutes(self, calls: int, tokens: float, output: float) -> float | None:
        """Returns how long calls take at the limits."""
        found = [] if self.rpm is None else [calls / self.rpm]
        if isinstance(self.tpm, (tuple, list)):
            found += [tokens / self.tpm[0], output / self.tpm[1]]
        elif self.tpm is not None:
            found.append((tokens + output) / self.tpm)
        return max(found) if found else None


def _burst(rate: float) -> int:
    """Returns three seconds of a limit: what calls in flight have reserved, and do not need."""
    return max(round(rate / 20), 1)


def rate_of(limit: Any, name: str) -> str:
    """Returns a limit in a minute as a rate."""
    return f"{max(1, round(number(limit, name, 1)))}/min"


def _prices(price: Mapping[str, float] | None, dialect: Dialect) -> dict[str, float]:
    """Returns what a token of each column costs."""
    if price is None:
        return {}
    given = mapping(price, "price", "prices of a million tokens by name")
    unknown = sorted({*map(str, given)} - {"input", "cached", "write", "output"})
    if unknown or not {"input", "output"} <= {*given}:
        refuse(
            "`price` needs `input` and `output`, and may have `cached` and `write`, for a million"
            f" tokens each; got {shown(list(given))}"
        )
    each = {name: number(value, f"price[{name}]", 0) / 1e6 for name, value in given.items()}
    own = each["input"] if dialect.is_whole else 0.0
    parts = {name: each.get(name, each["input"]) - own for name in ("cached", "write")}
    known = {"input": each["input"], **parts, "output": each["output"]}
    return {TOKENS[name]: value for name, value in known.items() if value}
