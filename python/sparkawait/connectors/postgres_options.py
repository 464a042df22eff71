# SPDX-License-Identifier: Apache-2.0
"""The options of a lookup in PostgreSQL: defaults, checks, and what they mean."""

from __future__ import annotations

from typing import Literal, TypedDict

from sparkawait._plan.checks import MAX_COUNT, flag, integer, refuse, shown, the_writes
from sparkawait._plan.option import Option, options_of
from sparkawait._plan.option_checks import anything, one_of, optional, size
from sparkawait.connectors.certificates import CertificateOptions, Pem
from sparkawait.durations import Duration, positive_duration
from sparkawait.secrets import Secret, a_password
from sparkawait.sizes import Size

__all__ = ["POSTGRES_OPTIONS", "PostgresOptions"]

MAX_CONNECTIONS = 1000
"""Of a process: a server allows about a hundred, a pooler some thousands."""

MOST_ROWS = 1000
"""Rows in one query with ``batch="auto"``."""


class PostgresOptions(TypedDict, total=False):
    """The types of the options of `sparkawait.postgres.lookup`."""

    how: Literal["left", "inner"]
    password: str | Secret | None
    batch: int | Literal["auto"]
    connections: int
    connect_timeout: Duration
    statement_timeout: Duration | None
    writes: bool | Literal["idempotent"]
    prepare: bool
    null_args: Literal["miss", "call"]
    max_reply_bytes: Size
    ca: Pem | None
    certificate: Pem | None
    private_key: Pem | None


def _batch(value: object, name: str) -> int:
    is_auto = isinstance(value, str) and value == "auto"
    return MOST_ROWS if is_auto else integer(value, name, 1, other=" or 'auto'")


def _statement_timeout(value: object, name: str) -> float:
    seconds = positive_duration(value, name, hint="None leaves it to the server")
    if seconds * 1000 > MAX_COUNT:
        refuse(f"`{name}` must be at most 24 days, got {shown(value)}")
    return seconds


class _Fields(CertificateOptions):
    how = Option(
        default="left",
        check=one_of("left", "inner"),
        meaning='what becomes of a row that finds nothing: `"left"` gives nulls, `"inner"` drops '
        "it",
    )
    password = Option(
        default=None,
        check=optional(a_password),
        meaning="where `dsn` does not have it: a text, or a secret, which is looked up again when "
        "the server refuses it",
    )
    batch = Option(
        default="auto",
        check=_batch,
        meaning='most rows in one query. `"auto"` is 1000, and one query per row where the '
        "statement cannot be part of another, such as an `insert`; 1 is always one query "
        "per row. With `channel=` the rows of a query are of one channel. If a row makes "
        "a query fail, it is looked for in further queries and fails alone",
    )
    connections = Option(
        default=4,
        check=lambda value, name: integer(value, name, 1, MAX_CONNECTIONS),
        meaning="connections in each process, shared by its tasks; at most 1000. A channel has "
        "its share of them, and never the last one. `connections` times `batch` rows are "
        "on their way at most, however many calls an operator may have",
    )
    connect_timeout = Option(
        default="10s",
        check=positive_duration,
        meaning="longest time to connect in",
    )
    statement_timeout = Option(
        default="60s",
        check=optional(_statement_timeout),
        meaning="when the server ends a statement by itself, so that none is left running when "
        "its client is gone; at most 24 days. `None` leaves it to the server's setting. "
        "Of the rows of a query that takes longer, only the one at fault fails",
    )
    writes = Option(
        default=False,
        check=the_writes,
        meaning="whether the statement may change data; transactions are read-only without. "
        '`"idempotent"`: and two of them do what one does, such as an upsert, so that `retry` '
        "makes one again that may have been carried out, and `hedge` a second one",
    )
    prepare = Option(
        default=True,
        check=flag,
        meaning="whether statements are prepared once for each connection. `False` leaves nothing "
        "behind on a connection, as poolers such as PgBouncer need it in transaction "
        "mode: the server reads the statement anew for every query, in a transaction of "
        "its own",
    )
    null_args = Option(
        default="miss",
        check=one_of("miss", "call"),
        meaning='what becomes of a row with a null among its arguments: `"miss"` is a miss '
        'without a call, `"call"` runs the statement, which has to know what to do with '
        "it",
    )
    max_reply_bytes = Option(
        default="64 MB",
        check=size,
        meaning="a row for which more is found fails: an int of bytes, or a text (powers of 1024). "
        "What is found for all rows of a query may "
        "have as much; if it has more, the query is run again for half of them each",
    )
    ca = Option(
        default=None,
        check=anything,
        meaning="authorities that the server's certificate must come from, in PEM form: a path "
        "that every executor has, a text or a secret. Given, the connection must be "
        "encrypted and they are checked, also with `sslmode=prefer`; not given, those of the "
        "system are taken",
    )


POSTGRES_OPTIONS = options_of(_Fields)
"""The options by name."""
