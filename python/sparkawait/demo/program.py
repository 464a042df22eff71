# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownArgumentType=false
"""The demo from the first line that it prints to the last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from rich.console import Console

from sparkawait.demo.data import AIRCRAFT, WEATHER, Dataset, ddl, load
from sparkawait.demo.errors import DemoError
from sparkawait.demo.functions import FlightLookup
from sparkawait.demo.job import enrich
from sparkawait.demo.postgres_store import postgres_store
from sparkawait.demo.recipe import Recipe
from sparkawait.demo.redis_store import redis_store
from sparkawait.demo.report import Run, latency_mean, littles_bound, table
from sparkawait.demo.runner import Runner
from sparkawait.demo.service import Service, serve
from sparkawait.demo.session import spark_session
from sparkawait.demo.settings import (
    FLIGHTS_PER_SECOND,
    TRIGGER_SECONDS,
    Function,
    Mode,
    Settings,
)
from sparkawait.demo.stream import run_streams
from sparkawait.demo.verify import compare_files, plain_join
from sparkawait.functions import AsyncFunction
from sparkawait.native_function import NativeFunction
from sparkawait.secrets import Secret, secret
from sparkawait.spark import Metrics

__all__ = [
    "PYTHON",
    "RECIPE",
    "introduction",
    "open_service",
    "run",
    "run_all",
    "stream_introduction",
]

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
    metrics = Metrics(runner.spark)
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
