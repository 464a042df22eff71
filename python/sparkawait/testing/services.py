# SPDX-License-Identifier: Apache-2.0
"""Services that stand in for real ones: how long they take, a function, and an HTTP server.

Values only, for any thread. Ranges are checked where values are drawn from a distribution.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, NamedTuple, cast, final

import pyarrow as pa

from sparkawait import _core
from sparkawait._checks import (
    Duration,
    flag,
    integer,
    mapping,
    number,
    parse_duration,
    refuse,
    text,
)
from sparkawait.exceptions import ConfigurationError, ErrorKind
from sparkawait.functions import NativeFunction


@dataclass(frozen=True)
class Latency:
    """A distribution of delays; made by `constant`, `uniform` or `log_normal`.

    The extension module reads its attributes.

    Attributes:
        kind: Which distribution it is.
        first: In seconds, the delay, the shortest one, or the median.
        second: The longest delay in seconds, or `sigma`.
        stragglers: Share of the delays that are multiplied, 0 to 1.
        straggler_factor: What those are multiplied by, at least 1.

    Raises:
        ConfigurationError: If a number is out of range.
    """

    kind: Literal["constant", "uniform", "log_normal"]
    first: float
    second: float = 0.0
    stragglers: float = 0.0
    straggler_factor: float = 10.0

    def __post_init__(self) -> None:
        """Asks the extension module whether there is a distribution like this."""
        number(self.stragglers, "stragglers", 0, 1)
        number(self.straggler_factor, "straggler_factor", 1)
        nothing = pa.schema([])
        made = _core.Native.simulated(latency=self, error_rate=0.0, seed=0, timestamps=False)
        made.check(nothing, nothing)


LatencyLike = Latency | Duration | None
"""A distribution, a duration that is always the same, or `None` for no delay."""


def constant(
    delay: Duration, *, stragglers: float = 0.0, straggler_factor: float = 10.0
) -> Latency:
    """Returns a latency that is always the same.

    Args:
        delay: How long an answer takes.
        stragglers: Share of the answers that take `straggler_factor` times as long.
        straggler_factor: At least 1.

    Raises:
        ConfigurationError: If `delay` is not a duration.
    """
    return Latency("constant", parse_duration(delay, "delay"), 0.0, stragglers, straggler_factor)


def uniform(
    minimum: Duration,
    maximum: Duration,
    *,
    stragglers: float = 0.0,
    straggler_factor: float = 10.0,
) -> Latency:
    """Returns a latency where every delay between two bounds is equally likely.

    Args:
        minimum: The shortest delay.
        maximum: The longest delay, stragglers aside.
        stragglers: Share of the answers that take `straggler_factor` times as long.
        straggler_factor: At least 1.

    Raises:
        ConfigurationError: If a bound is not a duration.
    """
    least, most = parse_duration(minimum, "minimum"), parse_duration(maximum, "maximum")
    return Latency("uniform", least, most, stragglers, straggler_factor)


def log_normal(
    median: Duration,
    sigma: float = 0.5,
    *,
    stragglers: float = 0.0,
    straggler_factor: float = 10.0,
) -> Latency:
    """Returns a latency whose logarithm is normally distributed, as it roughly is on a network.

    Args:
        median: Half of the delays are below this.
        sigma: Standard deviation of the logarithm. With 0.5 the 99th percentile is 3.2 times the
            median, with 1.0 it is 10 times the median.
        stragglers: Share of the answers that take `straggler_factor` times as long.
        straggler_factor: At least 1.

    Raises:
        ConfigurationError: If `median` is not a duration, or `sigma` is below 0.

    Examples:
        >>> log_normal("5ms", stragglers=0.01, straggler_factor=20)
        Latency(kind='log_normal', first=0.005, second=0.5, stragglers=0.01, straggler_factor=20)
    """
    middle, spread = parse_duration(median, "median"), number(sigma, "sigma", 0)
    return Latency("log_normal", middle, spread, stragglers, straggler_factor)


def to_latency(value: LatencyLike, name: str) -> Latency:
    """Returns the distribution that `value` stands for.

    Args:
        value: A distribution, a duration, or `None` for no delay.
        name: The argument it was given for, used in messages.

    Raises:
        ConfigurationError: If `value` has another type.
    """
    if isinstance(value, Latency):
        return value
    return Latency("constant", 0.0 if value is None else parse_duration(value, name))


# -- a native function that only takes time

MAX_SEED = 2**64 - 1


@dataclass(frozen=True)
class Simulated(NativeFunction):
    """A call that waits and returns the row's position in its task. Made by `simulated`.

    Attributes:
        latency: How long a call takes.
        error_rate: Share of the calls that fail.
        seed: Determines latencies and failures, in the order of the calls.
        timestamps: Whether a call also tells when it began.
        column: Names the column of the position.
    """

    latency: Latency
    error_rate: float
    seed: int
    timestamps: bool = False
    column: str = "ordinal"

    def __post_init__(self) -> None:
        """Declares the returned columns."""
        columns = [self.column, "began"] if self.timestamps else [self.column]
        schema = pa.schema([pa.field(name, pa.int64()) for name in columns])
        object.__setattr__(self, "result_schema", schema)

    @property
    def idempotent(self) -> bool:
        """It does nothing at all."""
        return True

    def _native(self, *, retry_misses: bool) -> _core.Native:  # noqa: ARG002 - it never misses
        return _core.Native.simulated(
            latency=self.latency,
            error_rate=self.error_rate,
            seed=self.seed,
            timestamps=self.timestamps,
        )


def simulated(
    delay: LatencyLike = 0,
    *,
    error_rate: float = 0.0,
    seed: int = 0,
    timestamps: bool = False,
    column: str = "ordinal",
) -> Simulated:
    """Returns a native function whose calls take `delay` and touch neither network nor Python.

    Its result is one column ``ordinal bigint``, the row's position in its task, from 0. It shows
    what the operator itself costs, and what a latency does to throughput.

    Args:
        delay: A duration, a distribution of `sparkawait.testing`, or 0 for a call that ends at
            once. Delays are kept to the millisecond, and right on average.
        error_rate: Share of the calls that fail, from 0 to 1. A failure may be retried.
        seed: Determines latencies and failures, in the order of the calls.
        timestamps: Adds a column ``began bigint``: when the row's call began, in nanoseconds of
            the machine's monotonic clock, which is that of `time.monotonic_ns` and of Java's
            ``System.nanoTime`` on Linux. The difference to where a row is looked at is its
            latency, the operator's and the engine's share included.
        column: Names the column of the position, for a second function in a chain.

    Raises:
        ConfigurationError: If `delay` is not a duration, or `error_rate` not from 0 to 1.

    Examples:
        >>> import pyarrow as pa
        >>> import sparkawait.arrow
        >>> batches = [pa.record_batch({"x": ["a", "b"]})]
        >>> out = sparkawait.arrow.ordered_wait(batches, simulated("1ms"))
        >>> out.to_table().to_pydict()
        {'x': ['a', 'b'], 'ordinal': [0, 1]}
    """
    latency = to_latency(delay, "delay")
    number(error_rate, "error_rate", 0, 1)
    integer(seed, "seed", 0, MAX_SEED)
    flag(timestamps, "timestamps")
    text(column, "column", "a name that is not empty")
    return Simulated(latency, float(error_rate), seed, timestamps, column)


# -- a real HTTP server on the loopback interface, to test against instead of the real service
#
# It is written in Rust and runs on a thread of its own, without the GIL. Any thread may use the
# handle, in the process that made it; other processes use the url.


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
            `sparkawait.testing.services`, or `None`.
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
