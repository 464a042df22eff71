# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownArgumentType=false
"""The demo from the first line that it prints to the last."""

from __future__ import annotations

import math
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import pyarrow as pa
from pyarrow import parquet
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from sparkawait._flights.data import (
    AIRCRAFT,
    WEATHER,
    Dataset,
    compare_files,
    ddl,
    load,
    plain_join,
)
from sparkawait._flights.job import FlightLookup, enrich
from sparkawait._flights.recipe import Recipe
from sparkawait._flights.report import Run, latency_mean, littles_bound, progress, table
from sparkawait._flights.services import Service, postgres_store, redis_store, serve
from sparkawait._flights.settings import (
    FLIGHTS_PER_SECOND,
    TRIGGER_SECONDS,
    DemoError,
    Function,
    Mode,
    Settings,
)
from sparkawait._flights.stream import run_streams
from sparkawait.functions import AsyncFunction, NativeFunction
from sparkawait.metrics import Metrics
from sparkawait.secrets import Secret, secret

RECIPE = "recipe"
"""Name of the run that does without sparkawait."""

PYTHON: Function = "python"
"""Name of the run whose calls are made by a coroutine, beside those made natively."""


def run(settings: Settings, console: Console) -> bool:
    """Enriches the flights in every way that is asked for, and prints what came of it.

    Returns:
        Whether all output was right.

    Raises:
        DemoError: If something that the demo needs is missing.
    """
    with ExitStack() as stack:
        work = Path(stack.enter_context(TemporaryDirectory(prefix="sparkawait-demo-")))
        output = _new_folder(settings.output) if settings.output else work / "output"
        dataset = load()
        dataset = dataset if settings.streaming else dataset.first(settings.rows)
        service = stack.enter_context(open_service(settings, dataset, work))
        console.print("Starting Spark ...")
        spark = stack.enter_context(spark_session(settings.master, work / "spark.log"))
        if settings.streaming:
            console.print(stream_introduction(settings, service))
            return run_streams(spark, settings, dataset, service, work=work, console=console)
        tasks = min(spark.sparkContext.defaultParallelism, dataset.flights.num_rows)
        console.print(introduction(settings, service, dataset, tasks))
        runner = Runner(spark, service, console, tasks, work, output)
        lookups = _lookups(settings.function, service)
        runner.warm_up(
            dataset, lambda df: enrich(df, "unordered", lookups, settings.max_concurrency)
        )
        runs = run_all(settings, dataset, runner)
        _print(runs, settings, service, tasks, console)
        return not settings.verify or _verify(runs, dataset, output, console)


def open_service(
    settings: Settings, dataset: Dataset, work: Path
) -> AbstractContextManager[Service]:
    """Returns what the settings name, to be entered.

    Args:
        settings: Say what is asked.
        dataset: What has to be known there.
        work: Folder for the address of a store, which may have a password in it: plans have the
            name of that file only.
    """
    if settings.redis is not None:
        return redis_store(_kept(settings.redis, work), dataset)
    if settings.postgres is not None:
        return postgres_store(_kept(settings.postgres, work), dataset)
    return serve(settings, dataset)


def introduction(settings: Settings, service: Service, dataset: Dataset, tasks: int) -> str:
    """Says what is about to be done."""
    return (
        f"{dataset.flights.num_rows:,} flights; the weather and the aircraft of each are looked up"
        f" {_where(settings, service)}. Tasks: {tasks}, each with up to {settings.max_concurrency}"
        " flights being looked up at a time."
    )


def stream_introduction(settings: Settings, service: Service) -> str:
    """Says what is about to be done with a stream."""
    seconds = settings.stream_rows / FLIGHTS_PER_SECOND
    return (
        f"{FLIGHTS_PER_SECOND} flights a second for {seconds:g} s, a micro-batch every"
        f" {TRIGGER_SECONDS * 1000:g} ms; the aircraft of each is looked up"
        f" {_where(settings, service)}."
    )


def _where(settings: Settings, service: Service) -> str:
    if not settings.is_over_http:
        return f"in {service.name}"
    if settings.url is not None:
        return f"over HTTP from {service.name}"
    return (
        f"over HTTP from a server of the demo's own: log-normal latency, median"
        f" {settings.latency * 1000:g} ms, {settings.stragglers:.1%} of the answers"
        f" {settings.straggler_factor:g} times as late, {settings.error_rate:.1%} errors"
    )


def run_all(settings: Settings, dataset: Dataset, runner: Runner) -> list[Run]:
    """Makes the runs: the first over all flights, the others over the sample."""
    sample = dataset.first(settings.sample)
    first, *others = settings.modes
    runs = [_run_sparkawait(first, settings, dataset, runner)]
    runs += [_run_sparkawait(mode, settings, sample, runner) for mode in others]
    url = runner.service.url
    if url is None:
        return runs
    if settings.function != PYTHON:
        with_python = replace(settings, function=PYTHON)
        runs.append(_run_sparkawait(first, with_python, sample, runner, name=PYTHON))
    columns = pa.schema([*dataset.flights.schema, *WEATHER, *AIRCRAFT])
    function = Recipe(url, columns, settings.max_concurrency)
    runs.append(runner.run(RECIPE, sample, lambda df: df.mapInArrow(function, ddl(columns))))
    return runs


def _lookups(function: Function, service: Service) -> Sequence[AsyncFunction | NativeFunction]:
    if function == PYTHON and service.url is not None:
        return [FlightLookup(service.url)]
    return service.lookups


def _kept(url: str, work: Path) -> Secret:
    file = work / "address"
    file.touch(mode=0o600)
    file.write_text(url)
    return secret(file=str(file))


def _run_sparkawait(
    mode: Mode, settings: Settings, dataset: Dataset, runner: Runner, name: str | None = None
) -> Run:
    metrics = Metrics()
    lookups, calls = _lookups(settings.function, runner.service), settings.max_concurrency
    return runner.run(
        name or mode, dataset, lambda df: enrich(df, mode, lookups, calls, metrics), metrics
    )


def _print(
    runs: Sequence[Run], settings: Settings, service: Service, tasks: int, console: Console
) -> None:
    calls = (
        "A row has two calls: two lookups one after the other in one Python worker (chain=True),"
        f" each with {settings.max_concurrency} calls in flight in each of {tasks} tasks"
    )
    if service.url is None:
        console.print(table(runs, []))
        console.print(f"{calls}; those that wait go to {service.name} together.")
        return
    measured = latency_mean(runs[0].latencies) or math.inf
    source = "the measured one" if service.mean_latency is None else "that of the server"
    one, two = service.mean_latency or measured, service.mean_latency_of_two or measured
    is_native = [run.name not in (RECIPE, PYTHON) and settings.function == "http" for run in runs]
    latencies = [one if native else two for native in is_native]
    bounds = [littles_bound(settings.max_concurrency, tasks, latency) for latency in latencies]
    console.print(table(runs, bounds))
    console.print(
        f"{calls}, or in `{PYTHON}` and `{RECIPE}` two calls made at once. Little's bound is the"
        f" rows in flight by the mean latency: {one * 1000:.1f} ms of one call, {two * 1000:.1f} ms"
        f" of two at once ({source})."
        f" `{RECIPE}` is the usual one: mapInArrow, and asyncio.gather within each batch."
    )


def _verify(runs: Sequence[Run], dataset: Dataset, output: Path, console: Console) -> bool:
    is_right = True
    for one in runs:
        expected = plain_join(dataset.first(one.rows))
        verdict = compare_files(expected, output / one.name, in_order=one.name == "ordered")
        console.print(f"{one.name}: {verdict}")
        is_right = is_right and verdict.is_right
    return is_right


def _new_folder(name: str) -> Path:
    folder = Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DemoError(f"`{name}` is not an empty folder; name another one for the output")
    return folder


# -- a Spark of the demo's own, which leaves the terminal to the demo

_STDERR = 2


@contextmanager
def spark_session(master: str, log: Path) -> Generator[SparkSession]:
    """Yields a session that ends with the body.

    Args:
        master: A local master, such as ``local[4]``.
        log: File for all that Spark has to say.

    Raises:
        DemoError: If there is no Java, or Spark does not start.
    """
    _check_java()
    # PySpark warns of pandas 3, of which nothing here makes use.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    # The JVM keeps the standard error that it is started with.
    with _stderr_to(log):
        try:
            spark = _start(master)
        except (PySparkRuntimeError, OSError) as error:
            raise DemoError(f"Spark did not start: {_last_line(log) or error}") from error
    try:
        yield spark
    finally:
        spark.stop()


def _start(master: str) -> SparkSession:
    # Workers must run the Python of the demo, not the `python3` that is first on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master(master)
        .appName("sparkawait demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else "java"
    if shutil.which(java) is None:
        where = f"JAVA_HOME, `{home}`, has none" if home else "none is on PATH"
        raise DemoError(f"Spark needs Java 17 or later, and {where}; install one or set JAVA_HOME")


@contextmanager
def _stderr_to(path: Path) -> Generator[None]:
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    with path.open("ab") as file:
        os.dup2(file.fileno(), _STDERR)
    try:
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


# -- one run: flights from Parquet, through a job, to Parquet, with the clock on

_WARM_UP_ROWS = 100
"""For each task."""

Job = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Runner:
    """Runs jobs one after another.

    Attributes:
        spark: A classic session.
        service: What the jobs ask.
        console: Where progress is shown.
        tasks: Partitions of a run.
        work: Folder for the flights.
        output: Folder for what comes out, in a folder of the name of the run.
    """

    spark: SparkSession
    service: Service
    console: Console
    tasks: int
    work: Path
    output: Path

    def warm_up(self, dataset: Dataset, job: Job) -> None:
        """Runs `job` over a few flights, so that no run has to wait for Spark's workers to start.

        Args:
            dataset: Where the flights come from.
            job: Adds the columns; it should not be counting.
        """
        flights = self._flights("warm-up", dataset.first(self.tasks * _WARM_UP_ROWS))
        job(flights).write.format("noop").mode("overwrite").save()

    def run(self, name: str, dataset: Dataset, job: Job, metrics: Metrics | None = None) -> Run:
        """Runs `job` over the flights of `dataset`.

        Args:
            name: Name of the run.
            dataset: Its flights are the input.
            job: Adds the columns.
            metrics: Where the job collects its metrics, if it does.
        """
        enriched = job(self._flights(name, dataset))
        rows, before, start = dataset.flights.num_rows, self.service.stats(), monotonic()
        with progress(self.console, name, rows, lambda: self._rows_since(before)):
            enriched.write.parquet(str(self.output / name))
        seconds = monotonic() - start
        self.console.print(f"{name}: {rows:,} rows in {seconds:,.1f} s")
        collected = {} if metrics is None else metrics.snapshot()
        return Run(
            name=name,
            rows=rows,
            seconds=seconds,
            calls=self._since(before, "requests"),
            errors=self._since(before, "errors"),
            retries=collected.get("retries"),
            latencies=collected.get("call_latency", []),
        )

    def _rows_since(self, before: dict[str, int] | None) -> int | None:
        """Estimates how many flights are done; a few have one lookup only, or none."""
        answered = self._since(before, "hits", "misses")
        return None if answered is None else answered // 2

    def _since(self, before: dict[str, int] | None, *counters: str) -> int | None:
        """Returns how much `counters` of the service have grown, if it has any."""
        now = None if before is None else self.service.stats()
        if before is None or now is None:
            return None
        return sum(now[name] - before[name] for name in counters)

    def _flights(self, name: str, dataset: Dataset) -> DataFrame:
        """Returns the flights in as many partitions as there are tasks, in their order."""
        folder = self.work / name
        folder.mkdir()
        parts: list[DataFrame] = []
        rows = dataset.flights.num_rows
        for task in range(self.tasks):
            first, end = (rows * number // self.tasks for number in (task, task + 1))
            file = folder / f"{task:05}.parquet"
            parquet.write_table(  # pyright: ignore[reportUnknownMemberType]
                dataset.flights.slice(first, end - first), file
            )
            parts.append(self.spark.read.parquet(str(file)))
        return reduce(DataFrame.union, parts)
