# SPDX-License-Identifier: Apache-2.0
"""What a path does to values, for the tests and for `docs/reference/types.md`.

A path is a way that values take through sparkawait, such as from a column into a URL. What becomes
of each is compared with an *oracle*, which sparkawait has no part in. They are equal, but where a
rule of the path says otherwise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["NO_MONTHS", "Path", "Refused", "Rule", "without_units"]

Verdict = Literal["equal", "refused", "differs"]
Cell = tuple[str, str]
"""A type in Spark's DDL, and the name of a value of it."""


@dataclass(frozen=True)
class Refused:
    """Stands in the place of a value that was refused: by us, or by the oracle.

    All refusals are equal: an error where the oracle has one too is no difference.
    """

    message: str = field(default="", compare=False)


@dataclass(frozen=True)
class Rule:
    """Cells whose outcome is not that of the oracle.

    Attributes:
        types: Pattern of the whole type.
        names: Pattern of the whole name of the value.
        verdict: ``"refused"``: an error says so. ``"differs"``: another value, without loss.
        why: What happens instead, and the reason; a line of the documentation.
        holds: For ``"differs"``: whether ours, the first argument, is what the rule says it is.
        versions: Whether the rule is about a version of Spark, as ``(major, minor)``.
    """

    types: str
    names: str
    verdict: Literal["refused", "differs"]
    why: str
    holds: Callable[[Any, Any], bool] | None = None
    versions: Callable[[tuple[int, int]], bool] = lambda _version: True

    def __post_init__(self) -> None:
        """A difference that nothing describes would not be documented."""
        assert (self.verdict == "differs") == (self.holds is not None), self

    def covers(self, cell: Cell, version: tuple[int, int]) -> bool:
        return bool(
            self.versions(version)
            and re.fullmatch(self.types, cell[0])
            and re.fullmatch(self.names, cell[1])
        )


@dataclass(frozen=True)
class Path:
    """A way that values take.

    Attributes:
        title: Heading in the documentation.
        oracle: What says how it should be.
        cells: What is sent over it, in the newest version of Spark that is tested.
        rules: The exceptions, the first that covers a cell wins.
        text: What a user has to know, in Markdown.
    """

    title: str
    oracle: str
    cells: tuple[Cell, ...]
    rules: tuple[Rule, ...] = ()
    text: str = ""

    def rule(self, cell: Cell, version: tuple[int, int]) -> Rule | None:
        return next((rule for rule in self.rules if rule.covers(cell, version)), None)

    def counts(self, version: tuple[int, int]) -> Counter[Verdict]:
        """Returns how many cells have which verdict."""
        rules = (self.rule(cell, version) for cell in self.cells)
        return Counter("equal" if rule is None else rule.verdict for rule in rules)

    def check(
        self,
        outcomes: Mapping[Cell, tuple[object, object]] | Iterable[tuple[Cell, tuple[Any, Any]]],
        version: tuple[int, int],
        *,
        same: Callable[[Any, Any], bool] | None = None,
    ) -> None:
        """Fails with all cells whose outcome is not what the path says.

        Args:
            outcomes: For each cell our value and the oracle's; `Refused` for a refusal. A cell may
                come several times, from several time zones for instance.
            version: The version of Spark.
            same: Whether two values are equal; by default as `repr` shows them, so that -0.0, NaN
                and types count.
        """
        pairs = list(outcomes.items() if isinstance(outcomes, Mapping) else outcomes)
        assert pairs, "nothing was tried"
        wrong: list[str] = []
        used: set[int] = set()
        for cell, (ours, oracle) in pairs:
            assert cell in self.cells, f"{cell} is not among the cells of `{self.title}`"
            rule = self.rule(cell, version)
            if rule is not None:
                used.add(self.rules.index(rule))
            if not _is_as_said(rule, ours, oracle, same or _same):
                said = "equal" if rule is None else f"{rule.verdict}: {rule.why}"
                wrong.append(f"{cell}: {ours!r:.300}, the oracle {oracle!r:.300}; should be {said}")
        idle = [rule for rule in self.rules if rule.versions(version)]
        idle = [rule for rule in idle if self.rules.index(rule) not in used]
        wrong += [f"no cell shows this rule: {rule}" for rule in idle]
        assert not wrong, f"{len(wrong)} of {len(pairs)}:\n" + "\n".join(wrong)


def _is_as_said(
    rule: Rule | None, ours: object, oracle: object, same: Callable[[Any, Any], bool]
) -> bool:
    if rule is None:
        if isinstance(ours, Refused) or isinstance(oracle, Refused):
            return isinstance(ours, Refused) and isinstance(oracle, Refused)
        return same(ours, oracle)
    if rule.verdict == "refused":
        return isinstance(ours, Refused)
    return rule.holds is not None and not same(ours, oracle) and rule.holds(ours, oracle)


def _same(ours: object, oracle: object) -> bool:
    return repr(ours) == repr(oracle)


NO_MONTHS = Rule(
    "interval year to month", ".*", "refused", "at the call: no Arrow type of Python holds it"
)


def without_units(types: str) -> Rule:
    """Refuses intervals of which a text does not say which units it has."""
    return Rule(
        types,
        ".*",
        "refused",
        "at the call: Arrow data do not say which units the text has; cast it to a string."
        " `async_udf` refuses all intervals",
    )
