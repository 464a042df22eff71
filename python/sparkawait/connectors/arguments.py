# SPDX-License-Identifier: Apache-2.0
"""The types of the options, as keywords. `make signatures` writes this file, from the options."""

from __future__ import annotations

from typing import Literal, TypedDict

from sparkawait._quantities import Duration, Size
from sparkawait.connectors.certificates import Pem
from sparkawait.secrets import Secret

__all__ = ["PostgresOptions", "RedisOptions"]


class RedisOptions(TypedDict, total=False):
    """The types of the options of all functions of `sparkawait.redis`."""

    how: Literal["left", "inner"]
    username: str | None
    password: str | Secret | None
    database: int | None
    sentinel: str | None
    cluster: bool
    read_from: Literal["primary", "replica"]
    connections: int
    connect_timeout: Duration
    idle_timeout: Duration
    max_reply_bytes: Size
    sslmode: Literal["verify-full", "verify-ca"]
    ca: Pem | None
    certificate: Pem | None
    private_key: Pem | None


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
