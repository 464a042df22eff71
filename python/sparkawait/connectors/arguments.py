# SPDX-License-Identifier: Apache-2.0
"""The types of the options, as keywords. `make signatures` writes this file, from the options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from sparkawait._checks import Duration, Size
from sparkawait.connectors.base import Pem
from sparkawait.connectors.http_auth import Auth
from sparkawait.connectors.http_body import Lines, Part, ReplyItems, Template
from sparkawait.connectors.http_client import Client
from sparkawait.limits import Batch
from sparkawait.secrets import Secret

__all__ = ["HttpOptions", "PostgresOptions", "RedisOptions"]


class HttpOptions(TypedDict, total=False):
    """The types of the options of `sparkawait.http.get`, ``post`` and ``request``."""

    query: Mapping[str, Template]
    headers: Mapping[str, Template]
    json: Any
    body: Template | Lines | None
    form: Mapping[str, Template] | None
    multipart: Mapping[str, Template | Part] | None
    auth: Auth | None
    allow_hosts: Iterable[str] | None
    idempotency_key: str | Literal[True] | None
    batch: Batch | int | None
    rows: str | None
    items: ReplyItems | None
    paths: Mapping[str, str]
    returns: Literal["json", "text", "bytes", "nothing"]
    status: str | None
    response_headers: Mapping[str, str]
    how: Literal["left", "inner"]
    success: int | range | Iterable[int | range]
    missing: int | range | Iterable[int | range] | None
    retry_status: int | range | Iterable[int | range] | None
    max_requests: int | None
    client: Client | None


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
