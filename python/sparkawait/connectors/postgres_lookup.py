# SPDX-License-Identifier: Apache-2.0
"""What a lookup in PostgreSQL is told, and what it is: `sparkawait.postgres.lookup` makes one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa

from sparkawait import _core
from sparkawait._checks import (
    MAX_COUNT,
    flag,
    integer,
    is_unicode,
    positive_duration,
    refuse,
    shown,
    text,
    the_writes,
)
from sparkawait._option import (
    Option,
    Values,
    one_of,
    optional,
    options_of,
    size,
)
from sparkawait._schema.types import Model, duplicate
from sparkawait.connectors.base import (
    HOW,
    PASSWORD,
    CertificateOptions,
    Certificates,
    Connector,
    without_password,
)
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.secrets import (
    LookUp,
    Secret,
    Sources,
    left_out,
    reveal,
    sources_of,
)

__all__ = ["IN_ADDRESS", "POSTGRES_OPTIONS", "Lookup", "PostgresValues", "check_texts"]


# -- the options of a lookup in PostgreSQL: defaults, checks, and what they mean

MAX_CONNECTIONS = 1000
"""Of a process: a server allows about a hundred, a pooler some thousands."""

MOST_ROWS = 1000
"""Rows in one query with ``batch="auto"``, of a statement that only reads."""


def _batch(value: object, name: str) -> int | None:
    is_auto = isinstance(value, str) and value == "auto"
    return None if is_auto else integer(value, name, 1, other=" or 'auto'")


def _statement_timeout(value: object, name: str) -> float:
    seconds = positive_duration(value, name, hint="None leaves it to the server")
    if seconds * 1000 > MAX_COUNT:
        refuse(f"`{name}` must be at most 24 days, got {shown(value)}")
    return seconds


class PostgresValues(CertificateOptions, Values):
    """The options of a lookup in PostgreSQL; what a function has of them is checked."""

    how = HOW
    password = PASSWORD
    batch = Option(
        'most rows in one query. `"auto"` is 1000, and one query per row with `writes=` and '
        "where the statement cannot be part of another, such as an `insert`; 1 is always one "
        "query per row. What has no placeholder in it, such as `(select nextval(..))`, may run "
        "once for the rows of a query. With `channel=` the rows of a query are of one "
        "channel. If a row makes a query fail, it is looked for in further queries and fails alone",
        _batch,
        default="auto",
        type='int | Literal["auto"]',
    )
    connections = Option(
        "connections in each process, shared by its tasks; at most 1000. A channel has "
        "its share of them, and never the last one. `connections` times `batch` rows are "
        "on their way at most, however many calls an operator may have",
        lambda value, name: integer(value, name, 1, MAX_CONNECTIONS),
        default=4,
        type="int",
    )
    connect_timeout = Option(
        "longest time to connect in", positive_duration, default="10s", type="Duration"
    )
    statement_timeout = Option(
        "when the server ends a statement by itself, so that none is left running when "
        "its client is gone; at most 24 days. `None` leaves it to the server's setting. "
        "Of the rows of a query that takes longer, only the one at fault fails",
        optional(_statement_timeout),
        default="60s",
        type="Duration | None",
    )
    writes = Option(
        "whether the statement may change data; transactions are read-only without. "
        '`"idempotent"`: and two of them do what one does, such as an upsert, so that `retry` '
        "makes one again that may have been carried out, and `hedge` a second one",
        the_writes,
        default=False,
        type='bool | Literal["idempotent"]',
    )
    prepare = Option(
        "whether statements are prepared once for each connection. `False` leaves nothing "
        "behind on a connection, as poolers such as PgBouncer need it in transaction "
        "mode: the server reads the statement for every query, in a transaction of "
        "its own",
        flag,
        default=True,
        type="bool",
    )
    null_args = Option(
        'what happens to a row with a null among its arguments: `"miss"` is a miss '
        'without a call, `"call"` runs the statement, which must know what to do with '
        "it",
        one_of("miss", "call"),
        default="miss",
        type='Literal["miss", "call"]',
    )
    max_reply_bytes = Option(
        "a row for which more is found fails: an int of bytes, or a text (powers of 1024). "
        "What is found for all rows of a query may "
        "have as much; if it has more, the query is run again for half of them each, or with "
        "`writes=` its rows fail",
        size,
        default="64 MB",
        type="Size",
    )
    ca = Option(
        "authorities that the server's certificate must come from, in PEM form: a path "
        "that every executor has, a text or a secret. Given, the connection must be "
        "encrypted and they are checked, also with `sslmode=prefer`; not given, those of the "
        "system are taken",
        type="Pem | None",
    )


POSTGRES_OPTIONS = options_of(PostgresValues)
"""The options by name."""


IN_ADDRESS = dict.fromkeys(
    ("host", "port", "user", "username", "dbname", "database", "sslmode", "application_name"),
    "it stands in `dsn`, as in postgresql://user@host:5432/database?sslmode=require",
)
"""What to write instead of names that are not options."""

_AS_GIVEN = ("null_args", "max_reply_bytes")

MAX_ARGS = 65_535
"""Arguments of a statement that the protocol can count."""

_OTHER_PLACEHOLDERS = re.compile(r"%s|%\(\w+\)s|\?|(?<!:):[a-zA-Z_]\w*|\{\w*\}")
"""What other clients write."""


@dataclass(frozen=True, repr=False)
class Lookup(Connector):
    """A statement that is run for every row. Made by `lookup`."""

    dsn: str | Secret
    statement: str
    args: tuple[str, ...]
    options: PostgresValues
    """The other options, complete."""
    result_schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    parameters: tuple[int, ...] = ()
    """The types of the placeholders, as the server numbers them, if it was asked for them."""
    rules: Model | None = None
    required: tuple[str, ...] = ()
    """The columns that were declared as not null: a row for which a null is found there fails,
    while a miss has nulls."""

    connector = "postgres"
    names_are_of = "its statement"

    @property
    def name(self) -> str:
        """The name used in messages and metrics."""
        return "postgres.lookup"

    @property
    def idempotent(self) -> bool:
        """Whether two calls do what one does."""
        return self.options.writes is not True

    @property
    def idempotent_by(self) -> str | None:
        """What makes two calls do no more than one."""
        return "where two statements do what one does, give `writes='idempotent'`"

    @property
    def only_reads(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether it changes nothing."""
        return self.options.writes is False

    @property
    def input_columns(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The columns of the input that it reads."""
        return self.args

    def __repr__(self) -> str:
        """Shows the statement and never the address, which may have a password."""
        return f"postgres.lookup({self.statement!r}, args={list(self.args)!r})"

    @property
    def concurrency(self) -> int | None:
        """Most rows in queries at a time: those of a query on each connection."""
        return self._as_native(left_out).concurrency()

    def check(self, input_schema: pa.Schema | None = None) -> None:
        """Checks the server's address and the columns, as far as the driver can know."""
        # Without them nothing is known of the columns.
        known = replace(self, parameters=()) if input_schema is None else self
        Connector.check(known, input_schema)

    def _sources(self) -> tuple[Sources, dict[str, str]]:
        return sources_of({"dsn": self.dsn, "password": self.options.password})

    def _description(self, look_up: LookUp) -> dict[str, Any]:
        options, password = self.options, self.options.password
        certificates = Certificates.of(options)
        server = {
            "dsn": reveal(self.dsn, look_up, "host=host"),
            "password": None if password is None else reveal(password, look_up),
            "sources": self._sources()[1],
            "tls": certificates.texts(look_up),
            "is_certified": bool(certificates),
            "connect_seconds": options.connect_timeout,
            "statement_seconds": options.statement_timeout,
            "writes": bool(options.writes),
            "connections": options.connections,
            "prepare": options.prepare,
        }
        return {
            "server": server,
            "statement": self.statement,
            "args": self.args,
            "batch": options.batch or (1 if options.writes else MOST_ROWS),
            **{name: getattr(options, name) for name in _AS_GIVEN},
            "parameters": self.parameters,
        }

    def _asked(self, description: dict[str, Any]) -> dict[str, Any]:
        dsn = without_password(description["server"]["dsn"])
        return {"dsn": dsn, **{it: description[it] for it in ("statement", "args", "null_args")}}

    def described(self) -> Lookup:
        """Returns the function with the columns and types that the server says it has."""
        try:
            description = json.dumps(self.description())
        except ConfigurationError as error:
            msg = f"`schema` was not given, and the server cannot be asked: {error}; give schema="
            raise ConfigurationError(msg, ErrorKind.SCHEMA_MISSING) from None
        described = _core.describe_postgres(description)
        twice = duplicate(described.names)
        if twice is not None:
            msg = f"the statement returns column `{twice}` twice; name one with `as`: `.. as other`"
            raise ConfigurationError(msg, ErrorKind.SCHEMA_INVALID)
        numbers = (described.metadata or {}).get(b"parameters", b"")
        parameters = tuple(int(it) for it in numbers.decode().split(",") if it)
        return replace(self, parameters=parameters, result_schema=described.remove_metadata())


def check_texts(dsn: object, statement: object, args: object) -> None:
    """Checks the texts that a lookup is made of.

    Raises:
        ConfigurationError: If one is not a text, or `args` has too few names or too many.
    """
    if not isinstance(dsn, Secret):
        # Not quoted: it may have a password in it.
        text(dsn, "dsn", "a str that is not empty, or a secret", quoted=False)
    if not text(statement, "statement", "a str that is not empty").strip():
        refuse(f"`statement` must be a str that is not empty, got {statement!r}")
    is_names = isinstance(args, Sequence) and not isinstance(args, str)
    names = cast("Sequence[Any]", args) if is_names else ()
    if not names or not all(isinstance(it, str) and is_unicode(it) for it in names):
        found = shown(cast("object", args))
        refuse(f"`args` must be a list of column names, at least one, got {found}")
    if not re.search(r"\$\d", cast("str", statement)):
        other = _OTHER_PLACEHOLDERS.search(cast("str", statement))
        instead = f"; in place of `{other[0]}`" if other is not None else ""
        refuse(f"`statement` has no place for `args`: placeholders are $1, $2, ..{instead}")
    if len(names) > MAX_ARGS:
        refuse(f"`args` must be at most {MAX_ARGS} columns, got {len(names)}")
