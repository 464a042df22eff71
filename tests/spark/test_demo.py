# SPDX-License-Identifier: Apache-2.0
"""The demo, small and fast."""

from dataclasses import replace

import pyarrow as pa
import pytest
from pyarrow import parquet
from rich.console import Console

import sparkawait as sa
from sparkawait._flights.data import compare_files, load, plain_join
from sparkawait._flights.program import PYTHON, RECIPE, Runner, run_all
from sparkawait._flights.services import serve
from sparkawait._flights.settings import Settings
from sparkawait._flights.stream import Flights, FlightStream

pytestmark = pytest.mark.spark

SETTINGS = Settings(sample=400, max_concurrency=20, latency=0.0005, error_rate=0.02)


@pytest.fixture(scope="module")
def dataset():
    return load().first(2000)


@pytest.fixture(scope="module")
def output(spark, dataset, tmp_path_factory):
    """The folder of the output, and the runs by name."""
    work = tmp_path_factory.mktemp("demo")
    with serve(SETTINGS, dataset) as service:
        runner = Runner(spark, service, Console(), 2, work, work / "output")
        runs = run_all(SETTINGS, dataset, runner)
    return work / "output", {run.name: run for run in runs}


@pytest.mark.parametrize("name", ["unordered", "ordered", PYTHON, RECIPE])
def test_output_is_equal_to_the_plain_join(dataset, output, name):
    folder, runs = output
    expected = plain_join(dataset.first(runs[name].rows))
    verdict = compare_files(expected, folder / name, in_order=name == "ordered")
    assert verdict.is_right, verdict


def test_the_first_run_is_over_all_rows_and_the_others_over_the_sample(output):
    _, runs = output
    assert {name: run.rows for name, run in runs.items()} == {
        "unordered": 2000,
        "ordered": 400,
        PYTHON: 400,
        RECIPE: 400,
    }


def test_calls_errors_and_retries_are_counted(output):
    _, runs = output
    run = runs["unordered"]
    assert run.errors == run.retries > 0
    assert 4000 - 20 <= run.calls - run.retries <= 4000
    assert sum(count for _, count in run.latencies) >= 4000 - 20


def test_a_coroutine_makes_both_calls_again(output):
    _, runs = output
    run = runs[PYTHON]
    assert run.errors >= run.retries > 0
    assert 800 - 5 <= run.calls - 2 * run.retries <= 800
    assert sum(count for _, count in run.latencies) >= 400


def test_flights_of_a_stream_come_out_once_each_with_its_own_aircraft(spark, dataset, tmp_path):
    settings = replace(SETTINGS, streaming=True, stragglers=0.1)
    with serve(settings, dataset) as service:
        flights = Flights(spark, dataset, 100)
        _, lookup = service.lookups
        stream = FlightStream(flights, "carried", lookup, settings, sa.CarryOver())
        run = stream.run(tmp_path)
    assert run.is_right, run.verdict
    assert (run.rows, len(run.latencies)) == (100, 100)


def test_tampered_output_is_found(dataset, output, tmp_path):
    folder, _ = output
    table = parquet.read_table(folder / "ordered")
    seats = [None if value is None else value + 1 for value in table["seats"].to_pylist()]
    tampered = table.set_column(table.column_names.index("seats"), "seats", pa.array(seats))
    backwards = tampered.take(list(range(tampered.num_rows - 1, 0, -1)))
    parquet.write_table(backwards, tmp_path / "part.parquet")
    expected = plain_join(dataset.first(400))

    verdict = compare_files(expected, tmp_path, in_order=True)

    known = 400 - table["seats"].null_count
    assert replace(verdict, different=0) == replace(verdict.__class__(400), missing=1, disordered=1)
    assert known - 1 <= verdict.different <= known
