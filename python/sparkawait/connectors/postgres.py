# SPDX-License-Identifier: Apache-2.0
"""Lookups in PostgreSQL, from Arrow batches to the wire and back without Python code per row.

`lookup` runs a statement with ``$1``, ``$2``, .. for every row and returns what it finds as typed
columns. Rows that arrive together go in one query, over a few connections that all tasks of a
process share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkawait._option import (
    checked,
    documented,
)
from sparkawait._schema.types import SchemaLike, declared_by
from sparkawait.connectors.arguments import PostgresOptions
from sparkawait.connectors.base import (
    Certificates,
    tls_words,
)
from sparkawait.connectors.postgres_lookup import (
    IN_ADDRESS,
    POSTGRES_OPTIONS,
    Lookup,
    PostgresValues,
    check_texts,
)
from sparkawait.secrets import (
    Secret,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Lookup", "PostgresOptions", "lookup"]


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
            any other value is sent exactly. A type that does not go with that of its placeholder
            ends the task. A value that would be rounded fails its row.
        schema: The returned columns, by the names that the statement gives them. ``None`` asks the
            server, from the driver, when the function is made: numbers, texts, bytes, dates and
            timestamps have their own types (``timestamptz`` is a timestamp, ``timestamp`` a
            timestamp_ntz), arrays are arrays, all others (``interval``, ``time``, ``uuid``, enums,
            ..) strings. A type that cannot become the declared one without loss ends the task. A
            value that cannot, or a null in a ``not null`` column or member, fails its row. A miss
            has nulls all the same.
        **options: The options of the lookup.

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
    check_texts(dsn, statement, args)
    values = PostgresValues(checked(POSTGRES_OPTIONS, options, tls_words("ca=") | IN_ADDRESS))
    Certificates.of(values)
    function = Lookup(dsn, statement, tuple(args), values)
    if schema is None:
        function = function.described()
    found = declared_by(function.result_schema if schema is None else schema)
    function = replace(
        function, result_schema=found.nullable, required=found.required, rules=found.rules
    )
    function.check()
    return function
