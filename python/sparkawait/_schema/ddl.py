# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeArgument=false
"""Spark's DDL strings, such as ``"temp double, tags array<string>"``, as Arrow schemas.

Follows Spark's grammar for column lists and types, and the Arrow types that PySpark uses for them,
without needing PySpark. Pure functions, for any thread.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, cast

import pyarrow as pa

from sparkawait.exceptions import ConfigurationError, ErrorKind, add_note

COLLATION = b"collation"
"""Where a field keeps the collation of its strings, which Arrow's type has no place for."""
INTERVAL = b"interval"
"""Where a field keeps the type of its intervals, such as ``interval day``, if it is narrower than
Arrow's: from days to seconds."""
LEFT_OUT: Mapping[bytes, bytes] = {b"left_out": b"null"}
"""Of a column that a result need not have: it is null then."""
SESSION_TIMESTAMP: Mapping[bytes, bytes] = {b"timestamp": b"session"}
"""What a field notes that was declared with the word ``timestamp``: what it stands for is a setting
of Spark's session, ``spark.sql.timestampType``."""

VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
"""How PySpark sends a variant, which is known by its mark."""

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<quoted>`(?:[^`]|``)*`)
      | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
      | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<word>\w+)
      | (?P<sign>[<>(),:])
      | (?P<end>$)
    )""",
    re.VERBOSE | re.DOTALL,
)

_PRIMITIVES: dict[str, Callable[[], pa.DataType]] = {
    **dict.fromkeys(("boolean", "bool"), pa.bool_),
    **dict.fromkeys(("tinyint", "byte"), pa.int8),
    **dict.fromkeys(("smallint", "short"), pa.int16),
    **dict.fromkeys(("int", "integer"), pa.int32),
    **dict.fromkeys(("bigint", "long"), pa.int64),
    **dict.fromkeys(("float", "real"), pa.float32),
    "double": pa.float64,
    "string": pa.string,
    "binary": pa.binary,
    "date": pa.date32,
    **dict.fromkeys(("timestamp", "timestamp_ltz"), lambda: pa.timestamp("us", tz="UTC")),
    "timestamp_ntz": lambda: pa.timestamp("us"),
    **dict.fromkeys(("void", "null"), pa.null),
    "variant": lambda: VARIANT,
}
_TIME_DIGITS = 6
_DAY_TIME = ("day", "hour", "minute", "second")
_MAX_DECIMAL_PRECISION = 38
_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))|(''|\"\")", re.DOTALL
)
# Those of `%` and `_` stay as they are: they are meant for LIKE.
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "0": "\0",
    "b": "\b",
    "Z": "\x1a",
    "%": r"\%",
    "_": r"\_",
}


def collated(field: pa.Field, collation: str | None) -> pa.Field:
    """Returns `field` with a note of its collation, in the spelling of Spark."""
    return noted(field, {} if collation is None else {COLLATION: collation.upper().encode()})


def noted(field: pa.Field, notes: Mapping[bytes, bytes]) -> pa.Field:
    """Returns `field` with more metadata."""
    metadata = field.metadata or {}
    return field.with_metadata({**metadata, **notes}) if notes else field


@functools.lru_cache(maxsize=256)  # of a function that is declared once and called often
def parse_schema(text: str, name: str = "schema") -> pa.Schema:
    """Parses a list of columns, or one ``struct<..>``, into an Arrow schema.

    Comments are kept as field metadata under ``comment``, and collations under ``collation``.

    Args:
        text: Columns in Spark's DDL, such as ``"id bigint not null, name string"``.
        name: The argument it was given for, used in messages.

    Raises:
        ConfigurationError: If `text` is not a column list; a note shows where.
    """
    parser = _Parser(text, name)
    if parser.is_word("struct") and parser.peek(1)[1] == "<":
        fields = list(cast("pa.StructType", parser.data_type()))
    else:
        fields = parser.fields()
    parser.expect_end()
    return pa.schema(fields)


def without_renames(text: str, name: str = "schema") -> tuple[str, dict[str, str]]:
    """Returns a list of columns in which each has one name, and the names that others had before.

    Args:
        text: Columns; ``"x as y int"`` is ``y``, and called ``x`` elsewhere.
        name: The argument it was given for, used in messages.

    Examples:
        >>> without_renames("id as customer_id bigint, `a, b` as c struct<x: int>, as int")
        ('customer_id bigint, c struct<x: int>, as int', {'customer_id': 'id', 'c': 'a, b'})
    """
    return _Parser(text, name).without_renames()


def parse_element(text: str, name: str = "schema") -> pa.Field:
    """Parses one type, such as ``"map<string, array<int>>"``, as a field that has no name yet.

    Raises:
        ConfigurationError: If `text` is not a type of Spark, or Arrow does not carry it.
    """
    parser = _Parser(text, name)
    result = parser.part("")
    parser.expect_end()
    return result


def _unescaped(literal: str) -> str:
    """Returns the text of a literal in quotes, with the escapes of Spark."""

    def character(match: re.Match[str]) -> str:
        short, long, octal, other, doubled = match.groups()
        if doubled:
            return doubled[0] if doubled[0] == literal[0] else doubled
        if short or long:
            code = int(short or long, 16)
            return chr(code) if code <= sys.maxunicode else match[0]
        return chr(int(octal, 8)) if octal else _ESCAPES.get(other, other)

    text = _ESCAPE.sub(character, literal[1:-1])
    # Characters beyond the first 65 536 may be written as two halves, as Java has them.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


class _Parser:
    """Recursive descent over the tokens of one DDL string."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._tokens: list[tuple[str, str, int]] = []
        self._notes: dict[bytes, bytes] = {}
        """What Arrow has no place for in the type that was read last, until a field takes it."""
        self._at = 0
        position = 0
        while True:
            match = _TOKEN.match(text, position)
            if match is None:
                start = len(text) - len(text[position:].lstrip())
                self._fail(f"unexpected {text[start]!r}; quote such names with backticks", start)
            kind = match.lastgroup or "end"
            self._tokens.append((kind, match.group(kind), match.start(kind)))
            if kind == "end":
                break
            position = match.end()

    # -- tokens

    def peek(self, ahead: int = 0) -> tuple[str, str, int]:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def next(self) -> tuple[str, str, int]:
        token = self.peek()
        self._at += 1
        return token

    def is_word(self, *words: str) -> bool:
        kind, text, _ = self.peek()
        return kind == "word" and text.lower() in words

    def take_word(self, *words: str) -> bool:
        if self.is_word(*words):
            self._at += 1
            return True
        return False

    def take_sign(self, sign: str) -> bool:
        if self.peek()[:2] == ("sign", sign):
            self._at += 1
            return True
        return False

    def expect_sign(self, sign: str) -> None:
        if not self.take_sign(sign):
            self._fail(f"expected {sign!r}, got {self._found()}")

    def expect_end(self) -> None:
        if self.peek()[0] != "end":
            self._fail(f"unexpected {self._found()}")

    # -- grammar

    def fields(self) -> list[pa.Field]:
        fields = [self._field()]
        while self.take_sign(","):
            fields.append(self._field())
        return fields

    def without_renames(self) -> tuple[str, dict[str, str]]:
        kept, renamed, begin, depth, is_first = "", dict[str, str](), 0, 0, True
        for at, (kind, text, position) in enumerate(self._tokens[:-3]):
            _, word, _ = self._tokens[at + 1]
            new_kind, new, new_position = self._tokens[at + 2]
            names = {kind, new_kind} <= {"word", "quoted"}
            has_type = self._tokens[at + 3][0] == "word"
            if is_first and depth == 0 and names and word.lower() == "as" and has_type:
                kept, begin = kept + self._text[begin:position], new_position
                renamed[_bare(new)] = _bare(text)
            depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(text, 0) if kind == "sign" else 0
            is_first = kind == "sign" and text == ","
        return kept + self._text[begin:], renamed

    def data_type(self) -> pa.DataType:
        kind, text, position = self.next()
        if kind != "word":
            self._at -= 1
            self._fail(f"expected a type, got {self._found()}")
        word = text.lower()
        if word in _PRIMITIVES:
            if word == "string" and self.take_word("collate"):
                self._notes[COLLATION] = self.next()[1].strip("`").upper().encode()
            if word == "timestamp":
                self._notes.update(SESSION_TIMESTAMP)
            return _PRIMITIVES[word]()
        nested = {
            "array": self._array,
            "map": self._map,
            "struct": self._struct,
            "interval": self._interval,
            "time": self._time,
            **dict.fromkeys(("decimal", "dec", "numeric"), self._decimal),
            **dict.fromkeys(("char", "character", "varchar"), self._char),
        }
        if word not in nested:
            self._fail(f"unknown or unsupported type {text!r}", position)
        return nested[word]()

    def _field(self) -> pa.Field:
        kind, text, _ = self.peek()
        if kind == "quoted":
            text = _bare(text)
        elif kind != "word":
            self._fail(f"expected a column name, got {self._found()}")
        self._at += 1
        if not text:
            self._at -= 1
            self._fail("a column name must not be empty")
        self.take_sign(":")
        if self.peek()[0] == "end":
            self._fail(f"column `{text}` has no type; write 'name type'")
        field = self.part(text)
        nullable = self._nullable()
        if not nullable and pa.types.is_null(field.type):
            self._fail("a void column cannot be NOT NULL")
        comment = self._comment()
        notes = {} if comment is None else {b"comment": comment.encode()}
        return noted(field.with_nullable(nullable), notes)

    def part(self, name: str) -> pa.Field:
        """Reads a type, as the field of this name."""
        data_type = self.data_type()
        notes, self._notes = self._notes, {}
        return noted(pa.field(name, data_type), notes)

    def _nullable(self) -> bool:
        if not self.take_word("not"):
            return True
        if not self.take_word("null"):
            self._fail(f"expected NULL after NOT, got {self._found()}")
        return False

    def _comment(self) -> str | None:
        if not self.take_word("comment"):
            return None
        parts: list[str] = []
        while self.peek()[0] in {"string", "raw"}:
            kind, text, _ = self.next()
            parts.append(text[2:-1] if kind == "raw" else _unescaped(text))
        if not parts:
            self._fail(f"expected a quoted comment, got {self._found()}")
        return "".join(parts)

    def _array(self) -> pa.DataType:
        self.expect_sign("<")
        element = self.part("element")
        self.expect_sign(">")
        return pa.list_(element)

    def _map(self) -> pa.DataType:
        self.expect_sign("<")
        position = self.peek()[2]
        key = self.part("key").with_nullable(False)  # noqa: FBT003
        if pa.types.is_null(key.type):
            self._fail("the keys of a map cannot be void", position)
        self.expect_sign(",")
        value = self.part("value")
        self.expect_sign(">")
        return pa.map_(cast("Any", key), cast("Any", value))

    def _struct(self) -> pa.DataType:
        self.expect_sign("<")
        fields = [] if self.peek()[1] == ">" else self.fields()
        self.expect_sign(">")
        return pa.struct(fields)

    def _decimal(self) -> pa.DataType:
        position = self.peek()[2]
        given = self._numbers(at_most=2) if self._has_numbers() else []
        precision, scale = [*given, *(10, 0)[len(given) :]]
        if not 1 <= precision <= _MAX_DECIMAL_PRECISION or scale > precision:
            self._fail(
                f"decimal({precision}, {scale}) must have 1 <= precision <= 38"
                " and scale <= precision",
                position,
            )
        return pa.decimal128(precision, scale)

    def _char(self) -> NoReturn:
        # Nothing here counts characters, and Spark does not when Python returns them.
        self._fail(
            "Spark takes no char and varchar from Python functions, since it does not check their"
            " length; write string, which a table of such columns checks when it is written"
        )

    def _time(self) -> pa.DataType:
        position = self.peek()[2]
        if self._has_numbers() and self._numbers(at_most=1) != [_TIME_DIGITS]:
            self._fail("Arrow data have no digits of a time; write time, and cast it", position)
        return pa.time64("ns")

    def _interval(self) -> pa.DataType:
        position = self.peek()[2]
        start = self.next()[1].lower()
        has_end = self.take_word("to")
        end = self.next()[1].lower() if has_end else start
        if start not in _DAY_TIME or end not in _DAY_TIME:
            self._fail("only day-time intervals are supported", position)
        if has_end and _DAY_TIME.index(start) >= _DAY_TIME.index(end):
            self._fail(f"an interval cannot go from {start} to {end}", position)
        if (start, end) != (_DAY_TIME[0], _DAY_TIME[-1]):
            shown = f"interval {start} to {end}" if has_end else f"interval {start}"
            self._notes[INTERVAL] = shown.encode()
        return pa.duration("us")

    def _has_numbers(self) -> bool:
        return self.peek()[:2] == ("sign", "(")

    def _numbers(self, at_most: int) -> list[int]:
        self.expect_sign("(")
        numbers: list[int] = []
        while True:
            _, text, _ = self.peek()
            if not text.isdecimal():
                self._fail(f"expected a number, got {self._found()}")
            numbers.append(int(text))
            self._at += 1
            if len(numbers) == at_most or not self.take_sign(","):
                break
        self.expect_sign(")")
        return numbers

    # -- errors

    def _found(self) -> str:
        kind, text, _ = self.peek()
        return "the end" if kind == "end" else repr(text)

    def _fail(self, problem: str, position: int | None = None) -> NoReturn:
        at = self.peek()[2] if position is None else position
        error = ConfigurationError(
            f"`{self._name}` is not a column list in Spark's DDL: {problem}",
            ErrorKind.SCHEMA_INVALID,
        )
        add_note(error, f"{self._text}\n{' ' * at}^")
        raise error
