# SPDX-License-Identifier: Apache-2.0
"""Lookups in PostgreSQL, from Arrow batches to the wire and back without Python code per row.

`lookup` runs a statement with ``$1``, ``$2``, .. for every row and returns what it finds as typed
columns. Rows that arrive together go in one query, over a few connections that all tasks of a
process share.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa

from sparkawait import _core
from sparkawait._plan.checks import is_unicode, refuse, shown, text
from sparkawait._plan.option import checked, documented
from sparkawait.connectors.certificates import Certificates, tls_words
from sparkawait.connectors.postgres_options import POSTGRES_OPTIONS, PostgresOptions
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.native_function import NativeFunction, check_native
from sparkawait.secrets import (
    LookUp,
    Secret,
    Sources,
    left_out,
    looked_up,
    reveal,
    sources_of,
)
from sparkawait.types import SchemaLike, to_schema

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sparkawait._core import Native

__all__ = ["Lookup", "PostgresOptions", "lookup"]

MAX_ARGS = 65_535
"""Arguments of a statement that the protocol can count."""

_OTHER_PLACEHOLDERS = re.compile(r"%s|%\(\w+\)s|\?|(?<!:):[a-zA-Z_]\w*|\{\w*\}")
"""What other clients write."""


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
    writes: bool | Literal["idempotent"]
    prepare: bool
    null_args: Literal["miss", "call"]
    max_reply_bytes: int
    certificates: Certificates
    password: str | Secret | None = None
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
    def idempotent(self) -> bool:
        """Whether two calls do what one does."""
        return self.writes is not True

    idempotent_by = "where two statements do what one does, give `writes='idempotent'`"

    @property
    def only_reads(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether it changes nothing."""
        return self.writes is False

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
        return _core.Native.postgres(description, {}).concurrency()

    def dropping_misses(self) -> Lookup:
        """Returns the function with ``how="inner"``."""
        return replace(self, how="inner")

    def check(self, input_schema: pa.Schema | None = None) -> None:
        """Checks the server's address and the columns, as far as the driver can know."""
        description = json.loads(self._description(left_out, retry_misses=False))
        if input_schema is None:
            # Nothing is known of the columns.
            description["parameters"] = []
        native = _core.Native.postgres(json.dumps(description), {})
        check_native(self, native, input_schema)

    def _sources(self) -> tuple[Sources, dict[str, str]]:
        return sources_of({"dsn": self.dsn, "password": self.password})

    def _description(self, look_up: LookUp = looked_up, *, retry_misses: bool) -> str:
        certificates, password = self.certificates, self.password
        server = {
            "dsn": reveal(self.dsn, look_up, "host=host"),
            "password": None if password is None else reveal(password, look_up),
            "sources": self._sources()[1],
            "tls": certificates.texts() if look_up is looked_up else certificates.known_texts(),
            "is_certified": bool(certificates),
            "connect_seconds": self.connect_timeout,
            "statement_seconds": self.statement_timeout,
            "writes": bool(self.writes),
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
        sources, _ = self._sources()
        return _core.Native.postgres(self._description(retry_misses=retry_misses), sources)

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


@documented(POSTGRES_OPTIONS, PostgresOptions)
def lookup(
    dsn: str | Secret,
    statement: str,
    args: Sequence[str],
    schema: SchemaLike | None = None,
    **options: Unpack[PostgresOptions],
) -> Lookup:
    """Returns a function that looks every row up in PostgreSQL.

    A row whose statement returns several rows has as many results.

    Args:
        dsn: ``postgresql://user:password@host:port/database`` or ``host=.. user=..``, better as
            `sparkawait.secret`. ``sslmode`` has libpq's meaning: ``prefer`` and ``require``
            encrypt, ``verify-ca`` checks the certificate, ``verify-full`` the host as well.
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
        **options: The options of the lookup.

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
    values = checked(POSTGRES_OPTIONS, options, tls_words("ca="))
    certificates = Certificates(
        *(values.pop(name) for name in ("ca", "certificate", "private_key"))
    )
    function = Lookup(dsn, statement, tuple(args), certificates=certificates, **values)
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
    if not re.search(r"\$\d", cast("str", statement)):
        other = _OTHER_PLACEHOLDERS.search(cast("str", statement))
        instead = f"; in place of `{other[0]}`" if other is not None else ""
        refuse(f"`statement` has no place for `args`: placeholders are $1, $2, ..{instead}")
    if len(names) > MAX_ARGS:
        refuse(f"`args` must be at most {MAX_ARGS} columns, got {len(names)}")
