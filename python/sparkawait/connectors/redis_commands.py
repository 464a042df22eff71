# SPDX-License-Identifier: Apache-2.0
"""Which Redis commands may be sent once per row. Pure functions, for any thread."""

from __future__ import annotations

from collections.abc import Sequence

from sparkawait.exceptions import ConfigurationError, ErrorKind

__all__ = ["check"]

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


def check(arguments: Sequence[str], *, writes: bool) -> None:
    """Refuses what must not be sent.

    Args:
        arguments: The command's name and arguments.
        writes: Whether commands that may write are allowed.

    Raises:
        ConfigurationError: If the command is refused.

    Examples:
        >>> check(["ZSCORE", "board", "{player}"], writes=False)
    """
    name = arguments[0].upper()
    blocks = name in {"XREAD", "XREADGROUP"} and "BLOCK" in {it.upper() for it in arguments}
    if name in NEVER or blocks or "{" in name:
        why = "has a column in its name" if "{" in name else "blocks or changes the connection"
        msg = f"redis.command cannot send `{name}`: it {why}, which all rows of a task share"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
    if name not in READS and not writes:
        msg = f"`{name}` is not known to only read; give writes=True to send it for every row"
        raise ConfigurationError(msg, ErrorKind.OPTION_INVALID)
