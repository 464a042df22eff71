# SPDX-License-Identifier: Apache-2.0
"""What editors show of `sparkawait.connectors.postgres`. `make signatures` writes this file; nothing runs it.

The functions themselves are in `postgres.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sparkawait._checks import Duration, Size
from sparkawait._schema.types import SchemaLike
from sparkawait.connectors.arguments import PostgresOptions as PostgresOptions
from sparkawait.connectors.base import Pem
from sparkawait.connectors.postgres_lookup import Lookup as Lookup
from sparkawait.secrets import Secret

__all__ = ["Lookup", "PostgresOptions", "lookup"]


def lookup(
    dsn: str | Secret,
    statement: str,
    args: Sequence[str],
    schema: SchemaLike | None = None,
    *,
    how: Literal["left", "inner"] = "left",
    password: str | Secret | None = None,
    batch: int | Literal["auto"] = "auto",
    connections: int = 4,
    connect_timeout: Duration = "10s",
    statement_timeout: Duration | None = "60s",
    writes: bool | Literal["idempotent"] = False,
    prepare: bool = True,
    null_args: Literal["miss", "call"] = "miss",
    max_reply_bytes: Size = "64 MB",
    ca: Pem | None = None,
    certificate: Pem | None = None,
    private_key: Pem | None = None,
) -> Lookup:
    """Returns a function that looks every row up in PostgreSQL.

    A row whose statement returns several rows has as many results.

    Args:
        dsn: ``postgresql://user:password@host:port/database`` or ``host=.. user=..``, better as
            `sparkawait.secret`. ``sslmode`` has libpq's meaning: ``prefer`` and ``require``
            encrypt, ``verify-ca`` checks the certificate, ``verify-full`` the host as well.
        statement: With ``$1``, ``$2``, .. for the values of `args`; any number of result columns.
        args: The columns that take the places of ``$1``, ``$2``, .. A string is read by the server;
            any other value is sent exactly. A type that does not go with that of its placeholder
            ends the task. A value that would be rounded fails its row.
        schema: The returned columns, by the names that the statement gives them. ``None`` asks the
            server, from the driver, when the function is made: numbers, texts, bytes, dates and
            timestamps have their own types (``timestamptz`` is a timestamp, ``timestamp`` a
            timestamp_ntz), arrays are arrays, all others (``interval``, ``time``, ``uuid``, enums,
            ..) strings. A type that cannot become the declared one without loss ends the task. A
            value that cannot, or a null in a ``not null`` column or member, fails its row. A miss
            has nulls all the same.
        how: What happens to a row that misses: `"left"` gives nulls, `"inner"` drops it.
        password: Where the address does not have it: a text, or a secret, which is looked up again
            when the server refuses it.
        batch: Most rows in one query. `"auto"` is 1000, and one query per row with `writes=` and
            where the statement cannot be part of another, such as an `insert`; 1 is always one
            query per row. What has no placeholder in it, such as `(select nextval(..))`, may run
            once for the rows of a query. With `channel=` the rows of a query are of one channel. If
            a row makes a query fail, it is looked for in further queries and fails alone.
        connections: Connections in each process, shared by its tasks; at most 1000. A channel has
            its share of them, and never the last one. `connections` times `batch` rows are on their
            way at most, however many calls an operator may have.
        connect_timeout: Longest time to connect in.
        statement_timeout: When the server ends a statement by itself, so that none is left running
            when its client is gone; at most 24 days. `None` leaves it to the server's setting. Of
            the rows of a query that takes longer, only the one at fault fails.
        writes: Whether the statement may change data; transactions are read-only without.
            `"idempotent"`: and two of them do what one does, such as an upsert, so that `retry`
            makes one again that may have been carried out, and `hedge` a second one.
        prepare: Whether statements are prepared once for each connection. `False` leaves nothing
            behind on a connection, as poolers such as PgBouncer need it in transaction mode: the
            server reads the statement for every query, in a transaction of its own.
        null_args: What happens to a row with a null among its arguments: `"miss"` is a miss without
            a call, `"call"` runs the statement, which must know what to do with it.
        max_reply_bytes: A row for which more is found fails: an int of bytes, or a text (powers of
            1024). What is found for all rows of a query may have as much; if it has more, the query
            is run again for half of them each, or with `writes=` its rows fail.
        ca: Authorities that the server's certificate must come from, in PEM form: a path that every
            executor has, a text or a secret. Given, the connection must be encrypted and they are
            checked, also with `sslmode=prefer`; not given, those of the system are taken.
        certificate: The client's certificate, likewise.
        private_key: The key of `certificate`, if it is not in there.

    Raises:
        ConfigurationError: If an argument is wrong, or without `schema` the server cannot be asked.
            Of the wait functions: if a column does not fit its placeholder, or a column of the
            statement cannot become the declared type (``type-refused``). With `schema` the server
            is not asked before, and the task ends with that.

    Examples:
        >>> lookup(
        ...     "host=db user=reader",
        ...     "select name, tier from customers where id = $1",
        ...     args=["customer_id"],
        ...     schema="name string, tier string",
        ... )
        postgres.lookup('select name, tier from customers where id = $1', args=['customer_id'])
    """
    ...
