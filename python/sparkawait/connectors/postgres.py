# SPDX-License-Identifier: Apache-2.0
"""Lookups in PostgreSQL, from Arrow batches to the wire and back without Python code per row.

`lookup` runs a statement with ``$1``, ``$2``, .. for every row and returns what it finds as typed
columns. Rows that arrive together go in one query, over a few connections that all tasks of a
process share.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa

from sparkawait import _core
from sparkawait._plan.checks import (
    MAX_BYTES,
    MAX_COUNT,
    choice,
    flag,
    integer,
    is_unicode,
    refuse,
    shown,
    text,
)
from sparkawait.connectors.certificates import Certificates, Pem
from sparkawait.durations import Duration, positive_duration
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.native_function import NativeFunction, check_native
from sparkawait.secrets import LookUp, Secret, left_out, looked_up, reveal
from sparkawait.types import SchemaLike, to_schema

if TYPE_CHECKING:
    from sparkawait._core import Native

__all__ = ["Lookup", "lookup"]

MAX_CONNECTIONS = 1000
"""Of a process: a server allows about a hundred, a pooler some thousands."""

MAX_ARGS = 65_535
"""Arguments of a statement that the protocol can count."""

MOST_ROWS = 1000
"""Rows in one query with ``batch="auto"``."""


@dataclass(frozen=True, repr=False)
class Lookup(NativeFunction):
    """A statement that is run for every row. Made by `lookup`."""

    dsn: str | Secret
    statement: str
    args: tuple[str, ...]
    how: Literal["left", "inner"]
    batch: int
    connections: int
    connect_timeout: float
    statement_timeout: float | None
    writes: bool
    prepare: bool
    null_args: Literal["miss", "call"]
    max_reply_bytes: int
    certificates: Certificates
    parameters: tuple[int, ...] = ()
    """The types of the placeholders, as the server numbers them, if it was asked for them."""
    required: tuple[str, ...] = ()
    """The columns that were declared as not null: a row for which a null is found there fails,
    while a miss has nulls."""

    @property
    def name(self) -> str:
        """The name used in messages and metrics."""
        return "postgres.lookup"

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
        description = self._description(left_out, retry_misses=False)
        return _core.Native.postgres(description).concurrency()

    def check(self, input_schema: pa.Schema | None = None) -> None:
        """Checks the server's address and the columns, as far as the driver can know."""
        description = json.loads(self._description(left_out, retry_misses=False))
        if input_schema is None:
            # Nothing is known of the columns.
            description["parameters"] = []
        native = _core.Native.postgres(json.dumps(description))
        check_native(self, native, input_schema)

    def _description(self, look_up: LookUp = looked_up, *, retry_misses: bool) -> str:
        certificates = self.certificates
        server = {
            "dsn": reveal(self.dsn, look_up, "host=host"),
            "tls": certificates.texts() if look_up is looked_up else certificates.known_texts(),
            "connect_seconds": self.connect_timeout,
            "statement_seconds": self.statement_timeout,
            "writes": self.writes,
            "connections": self.connections,
            "prepare": self.prepare,
        }
        return json.dumps(
            {
                "server": server,
                "statement": self.statement,
                "args": self.args,
                "misses": {"how": self.how, "retry": retry_misses},
                "null_args": self.null_args,
                "batch": self.batch,
                "max_reply_bytes": self.max_reply_bytes,
                "parameters": self.parameters,
                "required": self.required,
            }
        )

    def _native(self, *, retry_misses: bool) -> Native:
        return _core.Native.postgres(self._description(retry_misses=retry_misses))

    def _describe(self) -> pa.Schema:
        try:
            description = self._description(retry_misses=False)
        except ConfigurationError as error:
            msg = f"`schema` was not given, and the server cannot be asked: {error}; give schema="
            raise ConfigurationError(msg, ErrorKind.SCHEMA_MISSING) from None
        described = _core.describe_postgres(description)
        numbers = (described.metadata or {}).get(b"parameters", b"")
        parameters = tuple(int(it) for it in numbers.decode().split(",") if it)
        object.__setattr__(self, "parameters", parameters)
        return described.remove_metadata()


def lookup(
    dsn: str | Secret,
    statement: str,
    args: Sequence[str],
    *,
    schema: SchemaLike | None = None,
    how: Literal["left", "inner"] = "left",
    batch: int | Literal["auto"] = "auto",
    connections: int = 4,
    connect_timeout: Duration = "10s",
    statement_timeout: Duration | None = "60s",
    writes: bool = False,
    prepare: bool = True,
    null_args: Literal["miss", "call"] = "miss",
    max_reply_bytes: int = 64 << 20,
    ca: Pem | None = None,
    certificate: Pem | None = None,
    private_key: Pem | None = None,
) -> Lookup:
    """Returns a function that looks every row up in PostgreSQL.

    A row whose statement returns several rows has as many results.

    Args:
        dsn: ``postgresql://user:password@host:port/database`` or ``host=.. user=..``, better as
            `sparkawait.secret`. ``sslmode`` has libpq's meaning: ``prefer`` and ``require``
            encrypt, ``verify-full`` checks the certificate and the host.
        statement: With ``$1``, ``$2``, .. for the values of `args`; any number of result columns.
        args: The columns that take the places of ``$1``, ``$2``, .. A string is read by the server;
            any other value is sent as what it is, exactly: a type that does not go with that of
            its placeholder ends the task, a value that would be rounded fails its row.
        schema: The returned columns, by the names that the statement gives them. ``None`` asks the
            server, from the driver, when the function is made: numbers, texts, bytes, dates and
            timestamps have their own types (``timestamptz`` is a timestamp, ``timestamp`` a
            timestamp_ntz), arrays are arrays, all others (``interval``, ``time``, ``uuid``, enums,
            ..) strings. A type that cannot become the declared one without loss ends the
            task, a value that cannot fails its row, and so does a null that is found in a column
            or member that is ``not null``; a miss has nulls all the same.
        how: What becomes of a row that finds nothing: ``"left"`` gives nulls, ``"inner"`` drops it.
        batch: Most rows in one query. ``"auto"`` is 1000, and one query per row where the statement
            cannot be part of another, such as an ``insert``; 1 is always one query per row. With
            ``channel=`` the rows of a query are of one channel. If a row makes a query fail, it is
            looked for in further queries and fails alone.
        connections: Connections in each process, shared by its tasks; at most 1000. A channel has
            its share of them, and never the last one. `connections` times `batch` rows are on
            their way at most, however many calls an operator may have.
        connect_timeout: Longest time to connect in.
        statement_timeout: When the server ends a statement by itself, so that none is left running
            when its client is gone; at most 24 days. ``None`` leaves it to the server's setting.
            Of the rows of a query that takes longer, only the one at fault fails.
        writes: Whether the statement may change data; transactions are read-only without. Failed
            calls that are retried write again.
        prepare: Whether statements are prepared once for each connection. ``False`` leaves nothing
            behind on a connection, as poolers such as PgBouncer need it in transaction mode: the
            server reads the statement anew for every query, in a transaction of its own.
        null_args: What becomes of a row with a null among its arguments: ``"miss"`` is a miss
            without a call, ``"call"`` runs the statement, which has to know what to do with it.
        max_reply_bytes: A row for which more is found fails. What is found for all rows of a query
            may have as much; if it has more, the query is run again for half of them each.
        ca: Authorities that the server's certificate must come from, in PEM form: a path that
            every executor has, a text or a secret. Given, they are checked whatever ``sslmode``
            is; not given, those of the system are taken.
        certificate: The client's certificate, likewise.
        private_key: The key of `certificate`, if it is not in there.

    Raises:
        ConfigurationError: If an argument is wrong, or without `schema` the server cannot be asked.
            Of the wait functions: if a column cannot take the place of its placeholder, or a
            declared type is none that the statement's can become (``type-refused``). With
            `schema` the server is not asked before, and the task ends with that.

    Examples:
        >>> lookup(
        ...     "host=db user=reader",
        ...     "select name, tier from customers where id = $1",
        ...     args=["customer_id"],
        ...     schema="name string, tier string",
        ... )
        postgres.lookup('select name, tier from customers where id = $1', args=['customer_id'])
    """
    _check_texts(dsn, statement, args)
    choice(how, "how", "left", "inner")
    is_auto = isinstance(batch, str) and batch == "auto"
    rows = MOST_ROWS if is_auto else integer(batch, "batch", 1, other=" or 'auto'")
    integer(connections, "connections", 1, MAX_CONNECTIONS)
    integer(max_reply_bytes, "max_reply_bytes", 1, MAX_BYTES)
    flag(writes, "writes")
    flag(prepare, "prepare")
    choice(null_args, "null_args", "miss", "call")
    limit = None
    if statement_timeout is not None:
        hint = "None leaves it to the server"
        limit = positive_duration(statement_timeout, "statement_timeout", hint=hint)
        if limit * 1000 > MAX_COUNT:
            refuse(f"`statement_timeout` must be at most 24 days, got {shown(statement_timeout)}")
    function = Lookup(
        dsn=dsn,
        statement=statement,
        args=tuple(args),
        how=how,
        batch=rows,
        connections=connections,
        connect_timeout=positive_duration(connect_timeout, "connect_timeout"),
        statement_timeout=limit,
        writes=writes,
        prepare=prepare,
        null_args=null_args,
        max_reply_bytes=max_reply_bytes,
        certificates=Certificates(ca, certificate, private_key),
    )
    found = function._describe() if schema is None else to_schema(schema)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    fields = cast("list[pa.Field[Any]]", list(to_schema(found)))
    nullable = pa.schema([field.with_nullable(True) for field in fields])  # noqa: FBT003
    object.__setattr__(function, "result_schema", nullable)
    required = tuple(field.name for field in fields if not field.nullable)
    object.__setattr__(function, "required", required)
    function.check()
    return function


def _check_texts(dsn: object, statement: object, args: object) -> None:
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
    if len(names) > MAX_ARGS:
        refuse(f"`args` must be at most {MAX_ARGS} columns, got {len(names)}")
