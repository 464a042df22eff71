# SPDX-License-Identifier: Apache-2.0
"""Lookups in Redis, from Arrow batches to the server and back without Python code per row.

`get`, `mget`, `hash`, `json` and `command` return functions for the wait functions of
`sparkawait`. Keys are templates over the input's columns, ``"customer:{customer_id}"``; a row with
a null in one of them never calls and counts as a miss. All rows of a task are pipelined over a
few connections, which all tasks of a process share.

    >>> from sparkawait import redis
    >>> redis.hash("redis://cache:6379", "customer:{id}", "name string, tier string")
    redis.hash('customer:{id}')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from sparkawait._checks import choice, flag, mapping, refuse, shown, text, the_writes
from sparkawait._option import documented
from sparkawait._schema.types import SchemaLike, declared_by
from sparkawait.connectors.arguments import RedisOptions
from sparkawait.connectors.redis_function import (
    REDIS_OPTIONS,
    RedisFunction,
    Url,
    check_command,
    make,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["RedisFunction", "RedisOptions", "command", "get", "hash", "json", "mget"]


@documented(REDIS_OPTIONS, RedisOptions)
def get(url: Url, key: str, schema: SchemaLike, **options: Unpack[RedisOptions]) -> RedisFunction:
    """Reads one value per row: ``GET``.

    The value becomes the schema's only column: text is parsed into numbers, dates and decimals,
    and read as JSON into nested types. Use `json` for documents with several columns.

    Args:
        url: Address of the server; a `sparkawait.secret` if there is a password in it. A list has
            several: nodes of a cluster, sentinels, or servers that are tried in turn.
        key: The key, with columns in braces.
        schema: One column.
        **options: The options of all lookups in Redis.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> get("redis://localhost", "price:{sku}", "price decimal(10,2)")
        redis.get('price:{sku}')
    """
    declared = declared_by(schema)
    result = declared.columns
    if len(result.names) != 1:
        refuse(f"`schema` of redis.get must have one column, got {result.names}; see redis.json")
    return make("get", url, [("GET", "get"), (key, "key")], declared, shape="row", options=options)


@documented(REDIS_OPTIONS, RedisOptions)
def mget(
    url: Url,
    keys: Mapping[str, str] | Sequence[str],
    schema: SchemaLike,
    **options: Unpack[RedisOptions],
) -> RedisFunction:
    """Reads several values per row: ``MGET``.

    A key that does not exist, or has a null in its columns, makes its column null; a row without
    any existing key is a miss. In a cluster, the keys of a row may belong to several nodes: each is
    asked for its own, and the answers are put together.

    Args:
        url: Address of the server.
        keys: A key for each column of the schema, by name or in the schema's order.
        schema: A column for each key.
        **options: The options of all lookups in Redis.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> mget("redis://localhost", ["a:{id}", "b:{id}"], "a bigint, b string")
        redis.mget('a:{id}', 'b:{id}')
    """
    declared = declared_by(schema)
    result = declared.columns
    if isinstance(keys, Mapping):
        by_name = mapping(keys, "keys", "keys by column")
        if set(by_name) != set(result.names):
            names = shown(sorted(by_name))
            refuse(f"`keys` are for columns {names}, but the schema has {result.names}")
        keys = [by_name[name] for name in result.names]
    elif not isinstance(keys, Sequence) or isinstance(keys, str | bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        refuse(f"`keys` must be a mapping or a sequence of keys, got {shown(keys)}; see redis.get")
    if len(keys) != len(result.names):
        refuse(f"`keys` must have a key for each of {result.names}, got {len(keys)}")
    arguments = [("MGET", "mget"), *((key, "keys") for key in keys)]
    return make("mget", url, arguments, declared, shape="row", options=options)


@documented(REDIS_OPTIONS, RedisOptions)
def hash(  # noqa: A001 - Redis's own word for it
    url: Url,
    key: str,
    schema: SchemaLike,
    *,
    fields: Mapping[str, str] | Literal["all"] | None = None,
    **options: Unpack[RedisOptions],
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
        **options: The options of all lookups in Redis.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> hash("redis://localhost", "c:{id}", "c map<string,string>", fields="all")
        redis.hash('c:{id}')
    """
    declared = declared_by(schema, has_names=fields != "all")
    result = declared.columns
    if isinstance(fields, str):
        _check_map(fields, result)
        arguments = [("HGETALL", "hash"), (key, "key")]
        return make("hash", url, arguments, declared, shape="map", options=options)
    names = mapping(fields, "fields", "names of fields by column")
    unknown = sorted(set(names) - set(result.names))
    if unknown:
        refuse(f"`fields` names columns {unknown}, which the schema does not have")
    names = {**declared.aliases, **names}
    wanted = [text(names.get(name, name), "fields") for name in result.names]
    wanted = [name.replace("{", "{{").replace("}", "}}") for name in wanted]
    arguments = [("HMGET", "hash"), (key, "key"), *((field, "fields") for field in wanted)]
    return make("hash", url, arguments, declared, shape="row", options=options)


def _check_map(fields: str, schema: pa.Schema) -> None:
    if fields != "all":
        refuse(f"`fields` must be 'all' or a mapping of columns to fields, got {shown(fields)}")
    types: list[Any] = list(schema.types)
    if len(types) != 1 or not pa.types.is_map(types[0]):
        refuse(
            "`schema` must have one column, a map such as `fields map<string,string>`, to take"
            f" fields='all', got {schema.names}"
        )


@documented(REDIS_OPTIONS, RedisOptions)
def json(
    url: Url,
    key: str,
    schema: SchemaLike,
    *,
    stored: Literal["string", "json"] = "string",
    rows: str | None = None,
    paths: Mapping[str, str] | None = None,
    **options: Unpack[RedisOptions],
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
        **options: The options of all lookups in Redis.

    Raises:
        ConfigurationError: If an argument is wrong.
    """
    choice(stored, "stored", "string", "json")
    name = "GET" if stored == "string" else "JSON.GET"
    declared = declared_by(schema, has_names=True)
    result = declared.columns
    if rows is not None:
        text(rows, "rows", "a JSON path")
    by_column = mapping(paths, "paths", "JSON paths by column")
    by_column = {**declared.paths, **by_column}
    for column, path in by_column.items():
        text(path, "paths", "a mapping to JSON paths")
        if column not in result.names:
            refuse(f"`paths` names column {shown(column)}, which the schema does not have")
    shape = {"document": {"rows": rows, "paths": list(by_column.items())}}
    return make(
        "json",
        url,
        [(name, "stored"), (key, "key")],
        declared,
        shape=shape,
        options=options,
    )


@documented(REDIS_OPTIONS, RedisOptions)
def command(
    url: Url,
    *arguments: str,
    schema: SchemaLike,
    explode: bool = False,
    writes: bool | Literal["idempotent"] = False,
    **options: Unpack[RedisOptions],
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
        **options: The options of all lookups in Redis.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> command("redis://localhost", "ZSCORE", "board", "{player}", schema="score double")
        redis.command('ZSCORE', 'board', '{player}')
    """
    if not arguments:
        refuse("redis.command needs a command, such as 'ZSCORE', 'board', '{player}'")
    for argument in arguments:
        if not isinstance(argument, str) or argument:  # pyright: ignore[reportUnnecessaryIsInstance]
            text(argument, "arguments", "text with columns in braces")
    flag(explode, "explode")
    the_writes(writes, "writes")
    check_command(arguments, writes=bool(writes))
    if writes and options.get("read_from") == "replica":
        refuse("`read_from='replica'` cannot have `writes=True`: replicas take no writes")
    parts = [(argument, "arguments") for argument in arguments]
    shape = "rows" if explode else "row"
    made = make("command", url, parts, declared_by(schema), shape=shape, options=options)
    return replace(made, has_idempotent_writes=writes == "idempotent")
