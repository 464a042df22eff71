# SPDX-License-Identifier: Apache-2.0
"""What all lookups in Redis share: their options, and their description in the executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from sparkawait import _core
from sparkawait._checks import flag, integer, positive_duration, refuse, shown, text
from sparkawait._option import Option, Values, checked, one_of, optional, options_of, size
from sparkawait._schema.types import Declared, Model
from sparkawait.connectors.base import (
    HOW,
    PASSWORD,
    CertificateOptions,
    Certificates,
    Connector,
    tls_words,
    without_password,
)
from sparkawait.secrets import LookUp, Secret, Sources, reveal, sources_of

# -- the options that all lookups in Redis have: defaults, checks, and what they mean

MAX_CONNECTIONS = 1000
"""Of a process and node: each has buffers and a task, and commands are pipelined over few."""


class RedisValues(CertificateOptions, Values):
    """The options of a lookup in Redis; what a function has of them is checked."""

    how = HOW
    username = Option("where the URL does not have it", optional(text), type="str | None")
    password = PASSWORD
    database = Option(
        "the number of the database, where the URL does not have it",
        optional(lambda value, name: integer(value, name, 0)),
        type="int | None",
    )
    sentinel = Option(
        "the name that sentinels know the primary by; then the URLs are those of the sentinels and"
        " of their users, while `username` and `password` are those of the server",
        optional(text),
        type="str | None",
    )
    cluster = Option(
        "whether the server is a node of a cluster, whose nodes are channels with"
        " `channel=sa.Channel(count=)`",
        flag,
        default=False,
        type="bool",
    )
    read_from = Option(
        'which nodes of a cluster are asked: `"primary"` or `"replica"`',
        one_of("primary", "replica"),
        default="primary",
        type='Literal["primary", "replica"]',
    )
    connections = Option(
        "connections of each process to a node, shared by its tasks; at most 1000",
        lambda value, name: integer(value, name, 1, MAX_CONNECTIONS),
        default=1,
        type="int",
    )
    connect_timeout = Option(
        "longest time to connect in", positive_duration, default="5s", type="Duration"
    )
    idle_timeout = Option(
        "a server that owes replies and sends nothing for so long is given up, also one that"
        " sends nothing until all calls of its oldest commands were cancelled",
        positive_duration,
        default="30s",
        type="Duration",
    )
    max_reply_bytes = Option(
        "a row whose reply has more fails: an int of bytes, or a text (powers of 1024)",
        size,
        default="64 MB",
        type="Size",
    )
    sslmode = Option(
        'what the certificate of the server must be: `"verify-full"`, from an authority and for its'
        ' host; `"verify-ca"`, from an authority of `ca`, whatever host it is for',
        one_of("verify-full", "verify-ca"),
        default="verify-full",
        type='Literal["verify-full", "verify-ca"]',
    )


REDIS_OPTIONS = options_of(RedisValues)
"""The options by name."""


_WORDS_OF_OTHERS = {
    "db": "write database=, or its number in the URL, as in redis://host:6379/3",
    **dict.fromkeys(
        ("host", "port", "unix_socket_path"), "it stands in the URL, as in redis://host:6379/3"
    ),
    "user": "write username=, or who calls in the URL, as in redis://user@host:6379",
    "max_connections": "write connections=",
}
"""What to write instead of the names that other clients have."""


def check_options(given: Mapping[str, Any]) -> RedisValues:
    """Returns all options, checked.

    Raises:
        ConfigurationError: If one is wrong or unknown.
    """
    hints = tls_words("ca= with a `url` of `rediss://`") | _WORDS_OF_OTHERS
    values = RedisValues(checked(REDIS_OPTIONS, given, hints))
    if values.read_from == "replica" and not values.cluster:
        refuse("`read_from='replica'` needs `cluster=True`; a server alone is what its `url` names")
    if values.sslmode == "verify-ca" and values.ca is None:
        refuse("`sslmode='verify-ca'` needs `ca`: anybody has a certificate for some host")
    Certificates.of(values)
    return values


# -- which Redis commands may be sent once per row. Pure functions, for any thread

_READS = """
    BITCOUNT BITFIELD_RO BITPOS DBSIZE ECHO EVALSHA_RO EVAL_RO EXISTS EXPIRETIME FCALL_RO GEODIST
    GEOHASH GEOPOS GEORADIUSBYMEMBER_RO GEORADIUS_RO GEOSEARCH GET GETBIT GETRANGE HEXISTS HGET
    HGETALL HKEYS HLEN HMGET HRANDFIELD HSTRLEN HVALS LCS LINDEX LLEN LPOS LRANGE MGET OBJECT
    PEXPIRETIME PFCOUNT PING PTTL SCARD SDIFF SINTER SINTERCARD SISMEMBER SMEMBERS SMISMEMBER
    SORT_RO SRANDMEMBER STRLEN SUBSTR SUNION TIME TTL TYPE XLEN XRANGE XREVRANGE ZCARD ZCOUNT ZDIFF
    ZINTER ZINTERCARD ZLEXCOUNT ZMSCORE ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK
    ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCORE ZUNION
    BF.EXISTS BF.MEXISTS CF.EXISTS CMS.QUERY FT.SEARCH FT.AGGREGATE JSON.ARRLEN JSON.GET JSON.MGET
    JSON.OBJKEYS JSON.OBJLEN JSON.STRLEN JSON.TYPE TOPK.QUERY TS.GET TS.RANGE TS.REVRANGE
"""

_NEVER = """
    ASKING AUTH BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN CLIENT DISCARD EXEC
    HELLO MONITOR MULTI PSUBSCRIBE PSYNC PUNSUBSCRIBE QUIT READONLY READWRITE REPLCONF RESET SELECT
    SHUTDOWN SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE SYNC UNSUBSCRIBE UNWATCH WAIT WAITAOF WATCH
"""

READS = frozenset(_READS.split())
"""Commands that change nothing."""

NEVER = frozenset(_NEVER.split())
"""Commands that block, or change the connection that all rows share."""


def check_command(arguments: Sequence[str], *, writes: bool) -> None:
    """Refuses what must not be sent.

    Args:
        arguments: The command's name and arguments.
        writes: Whether commands that may write are allowed.

    Raises:
        ConfigurationError: If the command is refused.

    Examples:
        >>> check_command(["ZSCORE", "board", "{player}"], writes=False)
    """
    name = arguments[0].upper()
    blocks = name in {"XREAD", "XREADGROUP"} and "BLOCK" in {it.upper() for it in arguments}
    if name in NEVER or blocks or "{" in name:
        why = "has a column in its name" if "{" in name else "blocks or changes the connection"
        refuse(f"redis.command cannot send `{name}`: it {why}, which all rows of a task share")
    if name not in READS and not writes:
        refuse(f"`{name}` is not known to only read; give writes=True to send it for every row")


Url = str | Secret | Sequence[str | Secret]
"""``redis://[user:password@]host[:port][/database]``, ``rediss://`` for TLS, ``redis+unix://``; or
several of them."""

_OTHERS = ("how", "password", "sslmode", "ca", "certificate", "private_key")
_OF_SERVER = tuple(name for name in REDIS_OPTIONS if name not in _OTHERS)
"""Options that the description of the server has as they are."""

SCHEMES = ("redis", "rediss", "redis+unix", "unix")


@dataclass(frozen=True, repr=False)
class RedisFunction(Connector):
    """One command per row. Made by the functions of `sparkawait.redis`.

    Attributes:
        operation: The name of the function that made it.
        url: Addresses of the server.
        arguments: The command and its arguments, each with the option that it was given for.
        result_schema: The columns that it returns.
        shape: What a reply becomes.
        options: The other options, complete.
        required: The columns that were declared as not null: a row for which Redis has none fails,
            while a miss has nulls.
        has_idempotent_writes: Whether two commands do what one does, though they write.
        rules: The class whose rules the rows keep, if it has some.
    """

    operation: str
    url: tuple[str | Secret, ...]
    arguments: tuple[tuple[str, str], ...]
    result_schema: pa.Schema
    shape: Any
    options: RedisValues
    required: tuple[str, ...] = ()
    has_idempotent_writes: bool = False
    rules: Model | None = None

    names_are_of = "its schema"

    connector = "redis"
    writes_texts = True

    def __post_init__(self) -> None:
        """Finds the columns that the arguments name."""
        found = [
            it for text, option in self.arguments for it in _core.template_columns(text, option)
        ]
        object.__setattr__(self, "input_columns", tuple(dict.fromkeys(found)))

    @property
    def name(self) -> str:
        """The name used in messages and metrics."""
        return f"redis.{self.operation}"

    @property
    def finds_channels(self) -> bool:
        """Whether there are several nodes; each is a channel."""
        return bool(self.options.cluster)

    def __repr__(self) -> str:
        """Shows what is asked for, and not where."""
        given = ("arguments",) if self.operation == "command" else ("key", "keys")
        shown = ", ".join(repr(text) for text, option in self.arguments if option in given)
        return f"redis.{self.operation}({shown})"

    @property
    def idempotent(self) -> bool:
        """Whether two commands do what one does."""
        return self.has_idempotent_writes or self.only_reads

    @property
    def idempotent_by(self) -> str | None:
        """What makes two calls do no more than one."""
        return "where two commands do what one does, give `writes='idempotent'`"

    @property
    def only_reads(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether it is known to only read."""
        return self.operation != "command" or self.arguments[0][0].upper() in READS

    def _sources(self) -> tuple[Sources, dict[str, str]]:
        named = {f"url {index}": url for index, url in enumerate(self.url)}
        return sources_of({**named, "password": self.options.password})

    def _description(self, look_up: LookUp) -> dict[str, Any]:
        options, password = self.options, self.options.password
        certificates = Certificates.of(options)
        form = "rediss://host" if certificates else "redis://host"
        server: dict[str, Any] = {
            "url": [reveal(url, look_up, form) for url in self.url],
            **{name: getattr(options, name) for name in _OF_SERVER},
            "password": None if password is None else reveal(password, look_up),
            "tls": certificates.texts(look_up),
            "any_host": options.sslmode == "verify-ca",
            "sources": self._sources()[1],
        }
        return {
            "server": server,
            "command": [text for text, _ in self.arguments],
            "options": [option for _, option in self.arguments],
            "shape": self.shape,
            "reads": self.only_reads,
            "is_split": self.operation == "mget",
        }

    def _asked(self, description: dict[str, Any]) -> dict[str, Any]:
        urls = [without_password(it) for it in description["server"]["url"]]
        return {"url": urls, **{it: description[it] for it in ("command", "options", "shape")}}


def make(
    operation: str,
    url: Url,
    arguments: Sequence[tuple[str, str]],
    declared: Declared,
    *,
    shape: Any,
    options: Mapping[str, Any],
) -> RedisFunction:
    """Checks what all lookups have in common, and makes one.

    Raises:
        ConfigurationError: If an argument is wrong.
    """
    urls = _urls(url)
    for argument, option in arguments:
        if not isinstance(argument, str) or argument:  # pyright: ignore[reportUnnecessaryIsInstance]
            text(argument, option, "text with columns in braces")
    checked = check_options(options)
    if checked.sentinel is not None and checked.cluster:
        refuse("`sentinel` and `cluster=True` exclude each other: a cluster has no sentinels")
    # A miss gives nulls, and a field that a hash lacks does, too.
    function = RedisFunction(
        operation,
        urls,
        tuple(arguments),
        declared.nullable,
        shape,
        checked,
        declared.required,
        rules=declared.rules,
    )
    function.check()
    return function


def _urls(given: object) -> tuple[str | Secret, ...]:
    urls: list[object] = [given]
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        urls = list(cast("Sequence[object]", given))
    if not urls:
        refuse("`url` must be an address or a list of at least one, got an empty list")
    for url in urls:
        if not isinstance(url, Secret):
            _check_url(url)
    return tuple(cast("list[str | Secret]", urls))


def _check_url(url: object) -> None:
    # The URL may have a password in it, so that only its scheme is quoted.
    *others, last = (f"{scheme}://" for scheme in SCHEMES)
    rule = f"text or a secret that begins with {', '.join(others)} or {last}"
    known = text(url, "url", rule, quoted=False)
    scheme = known.partition("://")[0] if "://" in known else ""
    if scheme.lower() not in SCHEMES:
        found = "text with another beginning" if not scheme.isalnum() else shown(scheme)
        refuse(f"`url` must be {rule}, got {found}; write redis://host:6379/0")
