# SPDX-License-Identifier: Apache-2.0
"""A real HTTP server on the loopback interface, to test against instead of the real service.

It is written in Rust and runs on a thread of its own, without the GIL. Any thread may use the
handle, in the process that made it; other processes use the url.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import NamedTuple, cast, final

from sparkawait import _core
from sparkawait._checks import integer, mapping, number, refuse, text
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.testing.latency import LatencyLike, to_latency

_MAX_PORT = 65_535
_SEED_MASK = 2**64 - 1


@final
class LookupServer:
    """Serves tables by key over HTTP, as late and as badly as it is told to.

    ``GET /<table>/<key>`` gives the value as JSON, or status 404. ``POST /<table>`` with a JSON
    array of keys gives an array of values, null for each unknown key. ``GET /-/stats`` gives the
    counters. Use it as a context manager, or call `stop`.

    Args:
        tables: Values by key, by table name. Keys are turned into strings. Values become JSON,
            except `str` and `bytes`, which are taken to be JSON already.
        latency: How long an answer takes: a duration, a distribution from
            `sparkawait.testing.latency`, or `None`.
        error_rate: Share of the requests answered with status 500.
        rate_limit: Requests per second beyond which the answer is status 429 with a
            ``Retry-After`` header, at once. One second's worth may come at once.
        stall_rate: Share of the requests that are never answered.
        reset_rate: Share of the requests whose connection is reset.
        port: The port to listen on; 0 picks a free one.
        seed: Makes delays and faults repeatable: they depend on the seed and on the order in which
            requests arrive.

    Raises:
        ConfigurationError: If an argument is out of range, or a value cannot be written as JSON.
        OSError: If the port is taken.

    Examples:
        >>> from urllib.request import urlopen
        >>> with LookupServer({"airports": {"JFK": {"tz": -5}}}) as server:
        ...     urlopen(f"{server.url}/airports/JFK").read()
        b'{"tz": -5}'
    """

    def __init__(
        self,
        tables: Mapping[str, Mapping[str, object]],
        *,
        latency: LatencyLike = "5ms",
        error_rate: float = 0.0,
        rate_limit: float | None = None,
        stall_rate: float = 0.0,
        reset_rate: float = 0.0,
        port: int = 0,
        seed: int = 0,
    ) -> None:
        integer(port, "port", 0, _MAX_PORT)
        integer(seed, "seed", -_SEED_MASK - 1, _SEED_MASK)
        tables = mapping(tables, "tables", "values by key by name of the table")
        encoded = {name: _encode(name, table) for name, table in tables.items()}
        self._server = _core.LookupServer(
            latency=to_latency(latency, "latency"),
            faults=_faults(error_rate, stall_rate, reset_rate, rate_limit),
            port=port,
            seed=seed & _SEED_MASK,
        )
        for name, entries in encoded.items():
            self._server.add_table(name, entries)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return self._server.port

    @property
    def url(self) -> str:
        """The address of the server, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    def add_table(self, name: str, table: Mapping[str, object]) -> None:
        """Adds a table, in place of one with the same name.

        Args:
            name: Name of the table, the first part of the path.
            table: Values by key, as in the constructor.

        Raises:
            ConfigurationError: If a value cannot be written as JSON.
            OperatorStateError: If called in a forked process.
        """
        self._server.add_table(text(name, "name"), _encode(name, table))

    def stats(self) -> dict[str, int]:
        """Returns the counters, which stay readable after `stop`.

        They are ``requests``, ``hits`` and ``misses`` (keys), ``errors``, ``rejected``,
        ``stalled``, ``reset``, ``in_flight`` and ``max_in_flight``.

        Raises:
            OperatorStateError: If called in a forked process.
        """
        return self._server.stats()

    def set_latency(self, latency: LatencyLike) -> None:
        """Changes how long answers take; requests in flight keep their delay.

        Args:
            latency: As in the constructor.

        Raises:
            ConfigurationError: If `latency` is out of range.
            OperatorStateError: If called in a forked process.
        """
        self._server.set_latency(to_latency(latency, "latency"))

    def set_faults(
        self,
        *,
        error_rate: float = 0.0,
        rate_limit: float | None = None,
        stall_rate: float = 0.0,
        reset_rate: float = 0.0,
    ) -> None:
        """Changes all faults; those that are not named end. Requests in flight keep their fate.

        Args:
            error_rate: As in the constructor.
            rate_limit: As in the constructor.
            stall_rate: As in the constructor.
            reset_rate: As in the constructor.

        Raises:
            ConfigurationError: If a rate is out of range.
            OperatorStateError: If called in a forked process.
        """
        self._server.set_faults(_faults(error_rate, stall_rate, reset_rate, rate_limit))

    def stop(self) -> None:
        """Closes the port and every connection. Further calls do nothing."""
        self._server.stop()

    def __enter__(self) -> LookupServer:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"LookupServer({self.url!r})"


class _Faults(NamedTuple):
    """What goes wrong on purpose, as the extension module takes it."""

    error_rate: float
    stall_rate: float
    reset_rate: float
    rate_limit: float | None


def _faults(
    error_rate: float, stall_rate: float, reset_rate: float, rate_limit: float | None
) -> _Faults:
    """Returns the faults as the extension module takes them, which knows what they may be."""
    return _Faults(
        number(error_rate, "error_rate", 0, 1),
        number(stall_rate, "stall_rate", 0, 1),
        number(reset_rate, "reset_rate", 0, 1),
        None if rate_limit is None else number(rate_limit, "rate_limit", 0),
    )


def _encode(name: str, table: object) -> list[tuple[str, bytes]]:
    """Returns keys and values as the server holds them."""
    if not isinstance(table, Mapping):
        refuse(f"table `{name}` must be a mapping, values by key, got a `{type(table).__name__}`")
    entries = cast("Mapping[object, object]", table)
    try:
        return [(_key(key), _to_json(value)) for key, value in entries.items()]
    except (TypeError, ValueError, RecursionError, RuntimeError) as error:
        reason = type(error).__name__ if not str(error) else str(error)
        raise ConfigurationError(
            f"table `{name}` has a value that cannot be written as JSON: {reason}",
            ErrorKind.OPTION_INVALID,
        ) from error


def _key(key: object) -> str:
    found = str(key)
    found.encode()
    return found


def _to_json(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
    return text.encode()
