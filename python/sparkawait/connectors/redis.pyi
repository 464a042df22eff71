# SPDX-License-Identifier: Apache-2.0
"""What editors show of `sparkawait.connectors.redis`. `make signatures` writes this file; nothing runs it.

The functions themselves are in `redis.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from sparkawait._checks import Duration, Size
from sparkawait._schema.types import SchemaLike
from sparkawait.connectors.arguments import RedisOptions as RedisOptions
from sparkawait.connectors.base import Pem
from sparkawait.connectors.redis_function import RedisFunction as RedisFunction, Url
from sparkawait.secrets import Secret

__all__ = ["RedisFunction", "RedisOptions", "command", "get", "hash", "json", "mget"]


def get(
    url: Url,
    key: str,
    schema: SchemaLike,
    *,
    how: Literal["left", "inner"] = "left",
    username: str | None = None,
    password: str | Secret | None = None,
    database: int | None = None,
    sentinel: str | None = None,
    cluster: bool = False,
    read_from: Literal["primary", "replica"] = "primary",
    connections: int = 1,
    connect_timeout: Duration = "5s",
    idle_timeout: Duration = "30s",
    max_reply_bytes: Size = "64 MB",
    sslmode: Literal["verify-full", "verify-ca"] = "verify-full",
    ca: Pem | None = None,
    certificate: Pem | None = None,
    private_key: Pem | None = None,
) -> RedisFunction:
    """Reads one value per row: ``GET``.

    The value becomes the schema's only column: text is parsed into numbers, dates and decimals,
    and read as JSON into nested types. Use `json` for documents with several columns.

    Args:
        url: Address of the server; a `sparkawait.secret` if there is a password in it. A list has
            several: nodes of a cluster, sentinels, or servers that are tried in turn.
        key: The key, with columns in braces.
        schema: One column.
        how: What happens to a row that misses: `"left"` gives nulls, `"inner"` drops it.
        username: Where the URL does not have it.
        password: Where the address does not have it: a text, or a secret, which is looked up again
            when the server refuses it.
        database: The number of the database, where the URL does not have it.
        sentinel: The name that sentinels know the primary by; then the URLs are those of the
            sentinels and of their users, while `username` and `password` are those of the server.
        cluster: Whether the server is a node of a cluster, whose nodes are channels with
            `channel=sa.Channel(count=)`.
        read_from: Which nodes of a cluster are asked: `"primary"` or `"replica"`.
        connections: Connections of each process to a node, shared by its tasks; at most 1000.
        connect_timeout: Longest time to connect in.
        idle_timeout: A server that owes replies and sends nothing for so long is given up, also one
            that sends nothing until all calls of its oldest commands were cancelled.
        max_reply_bytes: A row whose reply has more fails: an int of bytes, or a text (powers of
            1024).
        sslmode: What the certificate of the server must be: `"verify-full"`, from an authority and
            for its host; `"verify-ca"`, from an authority of `ca`, whatever host it is for.
        ca: Certificates to trust instead of the system's, in PEM form: a path that every executor
            has, a text or a secret.
        certificate: The client's certificate, likewise.
        private_key: The key of `certificate`, if it is not in there.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> get("redis://localhost", "price:{sku}", "price decimal(10,2)")
        redis.get('price:{sku}')
    """
    ...


def mget(
    url: Url,
    keys: Mapping[str, str] | Sequence[str],
    schema: SchemaLike,
    *,
    how: Literal["left", "inner"] = "left",
    username: str | None = None,
    password: str | Secret | None = None,
    database: int | None = None,
    sentinel: str | None = None,
    cluster: bool = False,
    read_from: Literal["primary", "replica"] = "primary",
    connections: int = 1,
    connect_timeout: Duration = "5s",
    idle_timeout: Duration = "30s",
    max_reply_bytes: Size = "64 MB",
    sslmode: Literal["verify-full", "verify-ca"] = "verify-full",
    ca: Pem | None = None,
    certificate: Pem | None = None,
    private_key: Pem | None = None,
) -> RedisFunction:
    """Reads several values per row: ``MGET``.

    A key that does not exist, or has a null in its columns, makes its column null; a row without
    any existing key is a miss. In a cluster, the keys of a row may belong to several nodes: each is
    asked for its own, and the answers are put together.

    Args:
        url: Address of the server.
        keys: A key for each column of the schema, by name or in the schema's order.
        schema: A column for each key.
        how: What happens to a row that misses: `"left"` gives nulls, `"inner"` drops it.
        username: Where the URL does not have it.
        password: Where the address does not have it: a text, or a secret, which is looked up again
            when the server refuses it.
        database: The number of the database, where the URL does not have it.
        sentinel: The name that sentinels know the primary by; then the URLs are those of the
            sentinels and of their users, while `username` and `password` are those of the server.
        cluster: Whether the server is a node of a cluster, whose nodes are channels with
            `channel=sa.Channel(count=)`.
        read_from: Which nodes of a cluster are asked: `"primary"` or `"replica"`.
        connections: Connections of each process to a node, shared by its tasks; at most 1000.
        connect_timeout: Longest time to connect in.
        idle_timeout: A server that owes replies and sends nothing for so long is given up, also one
            that sends nothing until all calls of its oldest commands were cancelled.
        max_reply_bytes: A row whose reply has more fails: an int of bytes, or a text (powers of
            1024).
        sslmode: What the certificate of the server must be: `"verify-full"`, from an authority and
            for its host; `"verify-ca"`, from an authority of `ca`, whatever host it is for.
        ca: Certificates to trust instead of the system's, in PEM form: a path that every executor
            has, a text or a secret.
        certificate: The client's certificate, likewise.
        private_key: The key of `certificate`, if it is not in there.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> mget("redis://localhost", ["a:{id}", "b:{id}"], "a bigint, b string")
        redis.mget('a:{id}', 'b:{id}')
    """
    ...


def hash(
    url: Url,
    key: str,
    schema: SchemaLike,
    *,
    fields: Mapping[str, str] | Literal['all'] | None = None,
    how: Literal["left", "inner"] = "left",
    username: str | None = None,
    password: str | Secret | None = None,
    database: int | None = None,
    sentinel: str | None = None,
    cluster: bool = False,
    read_from: Literal["primary", "replica"] = "primary",
    connections: int = 1,
    connect_timeout: Duration = "5s",
    idle_timeout: Duration = "30s",
    max_reply_bytes: Size = "64 MB",
    sslmode: Literal["verify-full", "verify-ca"] = "verify-full",
    ca: Pem | None = None,
    certificate: Pem | None = None,
    private_key: Pem | None = None,
) -> RedisFunction:
    """Reads the fields of a hash per row: ``HMGET`` of the fields that the schema names.

    A hash that does not exist, or has none of these fields, is a miss; a field that it lacks is
    null. With ``fields="all"`` the only column is a map, which takes whatever fields the hash has:
    ``HGETALL``.

    Args:
        url: Address of the server.
        key: The key of the hash, with columns in braces.
        schema: A column for each field, called otherwise with ``"name as city string"``; with
            ``fields="all"`` one column, which is a map from
            string or binary to values of any type.
        fields: Names of fields that are not the names of their columns, by column; or ``"all"``.
        how: What happens to a row that misses: `"left"` gives nulls, `"inner"` drops it.
        username: Where the URL does not have it.
        password: Where the address does not have it: a text, or a secret, which is looked up again
            when the server refuses it.
        database: The number of the database, where the URL does not have it.
        sentinel: The name that sentinels know the primary by; then the URLs are those of the
            sentinels and of their users, while `username` and `password` are those of the server.
        cluster: Whether the server is a node of a cluster, whose nodes are channels with
            `channel=sa.Channel(count=)`.
        read_from: Which nodes of a cluster are asked: `"primary"` or `"replica"`.
        connections: Connections of each process to a node, shared by its tasks; at most 1000.
        connect_timeout: Longest time to connect in.
        idle_timeout: A server that owes replies and sends nothing for so long is given up, also one
            that sends nothing until all calls of its oldest commands were cancelled.
        max_reply_bytes: A row whose reply has more fails: an int of bytes, or a text (powers of
            1024).
        sslmode: What the certificate of the server must be: `"verify-full"`, from an authority and
            for its host; `"verify-ca"`, from an authority of `ca`, whatever host it is for.
        ca: Certificates to trust instead of the system's, in PEM form: a path that every executor
            has, a text or a secret.
        certificate: The client's certificate, likewise.
        private_key: The key of `certificate`, if it is not in there.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> hash("redis://localhost", "c:{id}", "c map<string,string>", fields="all")
        redis.hash('c:{id}')
    """
    ...


def json(
    url: Url,
    key: str,
    schema: SchemaLike,
    *,
    stored: Literal['string', 'json'] = 'string',
    rows: str | None = None,
    paths: Mapping[str, str] | None = None,
    how: Literal["left", "inner"] = "left",
    username: str | None = None,
    password: str | Secret | None = None,
    database: int | None = None,
    sentinel: str | None = None,
    cluster: bool = False,
    read_from: Literal["primary", "replica"] = "primary",
    connections: int = 1,
    connect_timeout: Duration = "5s",
    idle_timeout: Duration = "30s",
    max_reply_bytes: Size = "64 MB",
    sslmode: Literal["verify-full", "verify-ca"] = "verify-full",
    ca: Pem | None = None,
    certificate: Pem | None = None,
    private_key: Pem | None = None,
) -> RedisFunction:
    """Reads a JSON document per row, and the schema's columns out of it.

    Args:
        url: Address of the server.
        key: The key, with columns in braces.
        schema: The columns; each takes the member of its name.
        stored: How the document is stored: as a ``"string"``, which is read by ``GET``, or by the
            module RedisJSON, ``"json"``, which is read by ``JSON.GET``.
        rows: Path of an array in the document; each element is a result row.
        paths: Paths of members that are not the names of their columns, by column.
        how: What happens to a row that misses: `"left"` gives nulls, `"inner"` drops it.
        username: Where the URL does not have it.
        password: Where the address does not have it: a text, or a secret, which is looked up again
            when the server refuses it.
        database: The number of the database, where the URL does not have it.
        sentinel: The name that sentinels know the primary by; then the URLs are those of the
            sentinels and of their users, while `username` and `password` are those of the server.
        cluster: Whether the server is a node of a cluster, whose nodes are channels with
            `channel=sa.Channel(count=)`.
        read_from: Which nodes of a cluster are asked: `"primary"` or `"replica"`.
        connections: Connections of each process to a node, shared by its tasks; at most 1000.
        connect_timeout: Longest time to connect in.
        idle_timeout: A server that owes replies and sends nothing for so long is given up, also one
            that sends nothing until all calls of its oldest commands were cancelled.
        max_reply_bytes: A row whose reply has more fails: an int of bytes, or a text (powers of
            1024).
        sslmode: What the certificate of the server must be: `"verify-full"`, from an authority and
            for its host; `"verify-ca"`, from an authority of `ca`, whatever host it is for.
        ca: Certificates to trust instead of the system's, in PEM form: a path that every executor
            has, a text or a secret.
        certificate: The client's certificate, likewise.
        private_key: The key of `certificate`, if it is not in there.

    Raises:
        ConfigurationError: If an argument is wrong.
    """
    ...


def command(
    url: Url,
    *arguments: str,
    schema: SchemaLike,
    explode: bool = False,
    writes: bool | Literal['idempotent'] = False,
    how: Literal["left", "inner"] = "left",
    username: str | None = None,
    password: str | Secret | None = None,
    database: int | None = None,
    sentinel: str | None = None,
    cluster: bool = False,
    read_from: Literal["primary", "replica"] = "primary",
    connections: int = 1,
    connect_timeout: Duration = "5s",
    idle_timeout: Duration = "30s",
    max_reply_bytes: Size = "64 MB",
    sslmode: Literal["verify-full", "verify-ca"] = "verify-full",
    ca: Pem | None = None,
    certificate: Pem | None = None,
    private_key: Pem | None = None,
) -> RedisFunction:
    """Sends any command per row: its name and its arguments, with columns in braces.

    A single value becomes the only column; an array becomes the columns, in their order. Nil, an
    empty array with `explode`, and an array of nils are misses.

    Args:
        url: Address of the server.
        *arguments: The command, such as ``"ZSCORE", "board:{game}", "{player}"``.
        schema: The columns.
        explode: Whether an array is a result row for each of its elements, as of ``LRANGE``.
        writes: Allows commands that are not known to only read. A Spark task that is tried again
            sends them again. ``"idempotent"``: two of them do what one does, such as ``SET``, so
            that ``retry=`` sends one again that may have been carried out, and ``hedge=`` a second
            one.
        how: What happens to a row that misses: `"left"` gives nulls, `"inner"` drops it.
        username: Where the URL does not have it.
        password: Where the address does not have it: a text, or a secret, which is looked up again
            when the server refuses it.
        database: The number of the database, where the URL does not have it.
        sentinel: The name that sentinels know the primary by; then the URLs are those of the
            sentinels and of their users, while `username` and `password` are those of the server.
        cluster: Whether the server is a node of a cluster, whose nodes are channels with
            `channel=sa.Channel(count=)`.
        read_from: Which nodes of a cluster are asked: `"primary"` or `"replica"`.
        connections: Connections of each process to a node, shared by its tasks; at most 1000.
        connect_timeout: Longest time to connect in.
        idle_timeout: A server that owes replies and sends nothing for so long is given up, also one
            that sends nothing until all calls of its oldest commands were cancelled.
        max_reply_bytes: A row whose reply has more fails: an int of bytes, or a text (powers of
            1024).
        sslmode: What the certificate of the server must be: `"verify-full"`, from an authority and
            for its host; `"verify-ca"`, from an authority of `ca`, whatever host it is for.
        ca: Certificates to trust instead of the system's, in PEM form: a path that every executor
            has, a text or a secret.
        certificate: The client's certificate, likewise.
        private_key: The key of `certificate`, if it is not in there.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> command("redis://localhost", "ZSCORE", "board", "{player}", schema="score double")
        redis.command('ZSCORE', 'board', '{player}')
    """
    ...
