# SPDX-License-Identifier: Apache-2.0
"""Rules of plain English, and the prose of the repository that they are for.

usage: python -m tests.meta.prose [FILE ..]

Each rule has a text that it catches and one that it lets pass; the tests try both. Rules are about
what makes a sentence hard: nouns that are denied, relative clauses where a word does, inversions,
length. A text that is right and breaks a rule can nearly always be said shorter.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.meta.repository import ROOT, tracked_files

__all__ = ["LONGEST", "RULES", "Finding", "Rule", "check", "findings", "page", "python", "rust"]

LONGEST = 40
"""The most words of a sentence."""


@dataclass(frozen=True)
class Rule:
    """What is not written, and what is written instead."""

    name: str
    pattern: str
    instead: str
    catches: str
    passes: str


RULES = [
    Rule(
        "is-no-noun",
        r"(?<!there )\b(?:is|are|was|were) (?:none\b|no (?!longer|more|better|worse|less)\w)",
        "is not a ..",
        "`5` is no duration.",
        "`5` is not a duration, and there is no default.",
    ),
    Rule(
        "of-which",
        r"\b(?:of|by|with|over|under|behind|beside|than) (?:which|whom|whose)\b",
        "two sentences, or `whose`",
        "It has limits of which one holds.",
        "It has limits, and one of them holds.",
    ),
    Rule(
        "comes-of",
        r"\b(?:comes?|came|becomes?|became) of (?:it|them|this|that|those|an?|the|its|each)\b",
        "gives, becomes, happens to",
        "The page says what becomes of a row.",
        "The page says what happens to a row.",
    ),
    Rule("such-a", r"\bsuch an?\b", "a .. like this", "Such a call is lost.", "The call is lost."),
    Rule(
        "archaic",
        r"\b(?:who(?:so)?ever|whomever|where(?:in|of|upon|by)|there(?:of|in|by|upon)|here(?:by|in)"
        r"|anew|lest|albeit|thus|hence|nor does|nor do)\b",
        "a word that people say",
        "The permit goes to whoever waits.",
        "The permit goes to the next row that waits.",
    ),
    Rule(
        "inverted",
        r"\bso (?:is|are|was|were|do|does|did|has|have|it is with|may|can|must) "
        r"(?:it|they|those|the|that|a|an|its|one|what|each|all)\b",
        "subject first: `it does, too`",
        "So does the second action.",
        "The second action does, too.",
    ),
    Rule(
        "to-be-had",
        r"\b(?:is|are|was|were|has|have|had) to be\b|\bto be (?:had|done so)\b",
        "must be, or who does it",
        "The column has to be a timestamp.",
        "The column must be a timestamp.",
    ),
    Rule(
        "but-for",
        r"\b(?:but|save) for\b|\bnothing but\b|\bnone but\b",
        "except, only",
        "All options but for `output`.",
        "All options except `output`.",
    ),
    Rule(
        "wordy",
        r"\b(?:in order to|so as to|by means of|with regards? to|in the place of|in case of"
        r"|due to the fact|for the purpose of|prior to|as well as)\b",
        "to, instead of, because, before, and",
        "Set it in order to wait.",
        "Set it to wait.",
    ),
    Rule(
        "says-so",
        r"\b(?:say|says|said|tell|tells|told) (?:it|so|them) (?:itself|themselves|so|of)\b"
        r"|\bis said (?:by|of|in|once)\b|\bif it does not say so\b",
        "sets, gives, has; who says what",
        "The function says it itself.",
        "The function has a schema.",
    ),
    Rule(
        "talks-down",
        r"\b(?:simply|obviously|of course|easily|just (?:call|set|use|pass)|please note)\b",
        "leave it out",
        "Simply call it.",
        "Call it.",
    ),
    Rule(
        "one-another",
        r"\b(?:after|behind|beside|over|to|of|from) one another\b|\bone by one\b",
        "each other, in turn",
        "Calls after one another.",
        "One call after the other.",
    ),
    Rule(
        "one-term",
        r"\b(?:backoff(?!\()|rate-limit(?!-)|in-flight|micro batch|circuit-breaker|time-out|"
        r"dead-letter(?! queue)|e\.g\.|i\.e\.)\b",
        "back-off, rate limit, in flight, micro-batch, circuit breaker, timeout, dead letter",
        "A row in backoff.",
        "A row in back-off holds no permit in flight.",
    ),
    Rule(
        "twice-denied",
        r"\bnot (?:un(?!icode|ique|til|der|less|it|ion)\w+|without)\b"
        r"|\bno\w* \w+ (?:no|never|nothing)\b|\bnever (?:not|without)\b",
        "say it positively",
        "It is not unusual.",
        "It is usual.",
    ),
    Rule(
        "passive-chain",
        r"(?:\b(?:is|are|was|were|be|been|being) (?:not |never |only |still |then )?"
        r"\w+(?:ed|en|nt|ld|ut|de)\b[^.;:|?!]*?){3}",
        "say who does it",
        "It is cancelled then and may be tried again, unless it was sent.",
        "The task cancels it, and may try it again unless it was sent.",
    ),
    Rule(
        "to-that",
        r"(?:^|[.?!] )(?:To|Of|By|From) (?:that|this|these|those|it|them)\b",
        "begin with the subject",
        "Of that a task takes half.",
        "A task takes half of that.",
    ),
    Rule(
        "as-may-be",
        r"\b(?:be it|may be had|as the case may be|whether or not|what is more|as it were|"
        r"that is to say|none the less|notwithstanding)\b",
        "leave it out",
        "A row waits, be it for a permit or a limit.",
        "A row waits for a permit or a limit.",
    ),
]
"""In the order in which they are told."""


@dataclass(frozen=True)
class Finding:
    """A place that breaks a rule."""

    file: str
    line: int
    rule: str
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: ..{self.text}.. ({self.instead})"


_FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"``[^`]+``|`[^`\n]+`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_RUST_TEXT = re.compile(r"""(?<!['\\])"((?:[^"\\\n]|\\.|\\\n\s*)+)\"""")
_END = re.compile(r"(?<=[.:;?!])[\s)*\"]+(?=[A-Z`\"(*\[])|\n\s*\n|\n\s*(?=[-*|#] |\d\. )|\|")


def check(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Yields the offset, the rule, the text and the remedy of each place that breaks a rule."""
    for rule in RULES:
        for match in re.finditer(rule.pattern, text, re.IGNORECASE):
            around = text[max(0, match.start() - 20) : match.end() + 20]
            yield match.start(), rule.name, " ".join(around.split()), rule.instead
    start = 0
    for end in [*(match.start() for match in _END.finditer(text)), len(text)]:
        words = re.findall(r"(?!X\b)[A-Za-z][\w'-]*", text[start:end])
        if len(words) > LONGEST:
            shown = f"{' '.join(words[:6])} [{len(words)} words]"
            yield end - 1, "long-sentence", shown, f"at most {LONGEST} words"
        start = end


def _blank(match: re.Match[str]) -> str:
    """Takes a piece of code out and keeps the lines; code inside of a sentence does not count."""
    lines = "\n" * match[0].count("\n")
    return lines or "X"


def page(text: str) -> str:
    """Returns the prose of a page in Markdown, line by line where it was."""
    text = re.sub(r"^::: .*$", "", text, flags=re.MULTILINE)
    text = _COMMENT.sub(lambda it: "\n" * it[0].count("\n"), text)
    text = _FENCE.sub(lambda it: "\n" * it[0].count("\n"), text)
    return _LINK.sub(lambda it: it[1] + "\n" * it[0].count("\n"), _CODE.sub(_blank, text))


def python(text: str) -> Iterator[tuple[int, str]]:
    """Yields comments, docstrings, and other texts that are sentences, each with its line."""
    yield from _comments(text.splitlines(), r"\s*(#) ?(?!noqa|type:)(.*)")
    tree = ast.parse(text)
    inner = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            found = node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [it.value if isinstance(it, ast.Constant) else "X" for it in node.values]
            found = "".join(map(str, parts))
        else:
            continue
        if len(found.split()) > 4 and re.search("[a-z]{3}", found):  # else names
            code = re.sub(r"^( *)>>> .*(?:\n\1(?:\.\.\.|[^\s]).*)*", "", found, flags=re.MULTILINE)
            code = re.sub(
                r"^ *\.\. code.*|^( *)```.*?```", "", code, flags=re.MULTILINE | re.DOTALL
            )
            yield node.lineno, page(code)


def rust(text: str) -> Iterator[tuple[int, str]]:
    """Yields comments, and messages that are sentences, each with its line."""
    yield from _comments(text.splitlines(), r"\s*(//[/!]?) ?(.*)")
    for found in _RUST_TEXT.finditer(text):
        message = re.sub(r"\{[^}]*\}", "X", re.sub(r"\\\n\s*", "", found[1]))
        if len(message.split()) > 4 and not message.startswith("select "):
            yield text.count("\n", 0, found.start()) + 1, page(message)


def _comments(lines: list[str], pattern: str) -> Iterator[tuple[int, str]]:
    """Yields the comments on lines of their own, each block of one kind with its line."""
    block, first, kind = list[str](), 0, ""
    for number, line in enumerate([*lines, ""], 1):
        found = re.match(pattern, line)
        if block and (found is None or found[1] != kind):
            yield first, page("\n".join(block))
            block = []
        if found:
            first, kind = (first, kind) if block else (number, found[1])
            block.append(found[2])


def findings(path: Path) -> list[Finding]:
    """Returns all places of a file that break a rule."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    if path.suffix == ".py":
        parts = python(text)
    elif path.suffix == ".rs":
        parts = rust(text)
    else:
        parts = iter([(1, page(text))])
    return [
        Finding(name, line + part.count("\n", 0, offset), rule, shown, instead)
        for line, part in parts
        for offset, rule, shown, instead in check(part)
    ]


def main(names: list[str]) -> None:
    """Prints what breaks a rule, in the files that are named or in all."""
    paths = [Path(name).resolve() for name in names] or tracked_files(
        "*.md", "python/**/*.py", "rust/**/*.rs"
    )
    for path in paths:
        for found in findings(path):
            print(found)  # noqa: T201 - it is a program


if __name__ == "__main__":
    main(sys.argv[1:])
