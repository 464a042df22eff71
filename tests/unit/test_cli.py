# SPDX-License-Identifier: Apache-2.0
"""The command line, and the parts of the demo that need no Spark."""

import io
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rich.console import Console

from sparkawait import __main__ as cli
from sparkawait._flights import services, settings
from sparkawait._flights.data import (
    AIRCRAFT,
    FLIGHT_ID,
    WEATHER,
    Dataset,
    Verdict,
    compare,
    ddl,
    load,
    plain_join,
)
from sparkawait._flights.report import (
    Run,
    StreamRun,
    latency_mean,
    latency_percentile,
    littles_bound,
    progress,
    stream_table,
    table,
)
from sparkawait._flights.services import mean_of_two, serve
from sparkawait._flights.settings import STORE_CALLS, Settings
from sparkawait.exceptions import how_to_install
from sparkawait.testing import LookupServer, log_normal
from tests.support.servers import free_port


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        cli.parse(["demo", *arguments])
    assert stopped.value.code == 2
    return capsys.readouterr().err


def failed(capsys, *arguments):
    assert cli.main(["demo", *arguments]) == 1
    return capsys.readouterr().err


# -- arguments


def test_no_options_are_the_usual_settings():
    assert cli.parse(["demo"]) == Settings()


def test_every_option_reaches_the_settings():
    arguments = (
        "demo --rows 10 --mode ordered --sample 5 --max-concurrency 7 --latency 2ms"
        " --stragglers 0.1 --error-rate 0.2 --url http://here --output out --master local[3]"
        " --no-verify --streaming"
    )
    assert cli.parse(arguments.split()) == Settings(
        rows=10,
        sample=5,
        modes=("ordered",),
        max_concurrency=7,
        latency=0.002,
        stragglers=0.1,
        error_rate=0.2,
        url="http://here",
        output="out",
        master="local[3]",
        verify=False,
        streaming=True,
    )


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--rows", "0", "must be at least 1, got 0"),
        ("--max-concurrency", "many", "must be a number, got `many`"),
        ("--latency", "5 parsecs", "`latency`"),
        ("--error-rate", "1", "must be at least 0 and below 1, got 1"),
        ("--mode", "sideways", "invalid choice"),
        ("--master", "yarn", "must be a local master, such as local[4], got `yarn`"),
        ("--master", "local[x]", "must be a local master"),
    ],
)
def test_a_wrong_value_is_refused_with_its_rule(capsys, option, value, message):
    error = refused(capsys, option, value)
    assert option in error
    assert message in error


@pytest.mark.parametrize("option", ["redis", "postgres"])
def test_a_store_is_asked_with_more_calls_in_flight_and_its_address_is_not_shown(option):
    address = f"{option}://user:s3cret@here/0"
    settings = cli.parse(["demo", f"--{option}", address])
    assert settings == Settings(**{option: address}, max_concurrency=STORE_CALLS)
    assert not settings.is_over_http
    assert "s3cret" not in repr(settings)
    assert (
        cli.parse(["demo", f"--{option}", address, "--max-concurrency", "7"]).max_concurrency == 7
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--redis http://:s3cret@here", "argument --redis: must have the form redis://"),
        ("--postgres host=s3cret", "argument --postgres: must have the form postgresql://"),
        ("--redis redis://here --postgres postgres://here", "not allowed with argument --redis"),
        ("--redis redis://here --url http://here", "not allowed with argument"),
        ("--redis redis://here --function python", "`python` asks over HTTP"),
    ],
)
def test_a_wrong_store_is_refused_without_its_address(capsys, arguments, message):
    error = refused(capsys, *arguments.split())
    assert message in error
    assert "s3cret" not in error


def test_help_lists_the_options():
    program = [sys.executable, "-m", "sparkawait", "demo", "--help"]
    text = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    for option in ("--rows", "--mode", "--max-concurrency", "--latency", "--url"):
        assert option in text


# -- what may be missing


def test_a_missing_package_is_one_sentence(capsys, monkeypatch):
    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    assert failed(capsys) == (
        f"sparkawait demo: error: the package `pyspark` is missing; {how_to_install('demo')}\n"
    )


def test_a_missing_java_is_one_sentence(capsys, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    error = failed(capsys, "--rows", "1")
    assert error == (
        "sparkawait demo: error: Spark needs Java 17 or later, and none is on PATH;"
        " install one or set JAVA_HOME\n"
    )


def test_an_unreachable_service_is_one_sentence(capsys):
    with LookupServer({}) as server:
        url = server.url
    error = failed(capsys, "--url", url)
    assert error.startswith(f"sparkawait demo: error: `{url}` cannot be reached: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "name", "reason"),
    [("redis", "Redis", "refused"), ("postgres", "PostgreSQL", "refused|failed")],
)
def test_an_unreachable_store_is_one_sentence(capsys, option, name, reason):
    error = failed(capsys, f"--{option}", f"{option}://user:s3cret@127.0.0.1:{free_port()}/0")
    assert error.startswith(f"sparkawait demo: error: the tables cannot be written to {name}: ")
    assert re.search(reason, error)
    assert error.count("\n") == 1
    assert "s3cret" not in error


def test_a_malformed_address_is_one_sentence_that_does_not_quote_it(capsys):
    error = failed(capsys, "--postgres", "postgresql://user:s3@cret:here/db")
    assert error.startswith("sparkawait demo: error: the address of PostgreSQL is not one")
    assert error.count("\n") == 1
    error = failed(capsys, "--redis", "redis://user:s3@cret:here/db")
    assert error.startswith("sparkawait demo: error: ")
    assert error.count("\n") == 1
    assert "cret" not in error


def test_a_missing_asyncpg_is_one_sentence(capsys, monkeypatch):
    monkeypatch.setattr(services, "find_spec", lambda name: None)
    error = failed(capsys, "--postgres", "postgresql://here/db")
    assert error == (
        f"sparkawait demo: error: the package `asyncpg` is missing; {how_to_install('demo')}\n"
    )


def test_output_is_not_written_over(capsys, tmp_path):
    (tmp_path / "kept").touch()
    assert "is not an empty folder" in failed(capsys, "--output", str(tmp_path))


# -- the data and the service


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """The first flights, some of which have no weather, no aircraft or no tail number."""
    flights = load()
    nameless = flights.flights.filter(pc.is_null(flights.flights["tailnum"])).slice(0, 5)
    return replace(flights, flights=pa.concat_tables([flights.flights.slice(0, 500), nameless]))


def test_every_flight_is_there():
    assert load().flights.num_rows == 336_776
    assert load().first(10).flights[FLIGHT_ID].to_pylist() == list(range(10))


def test_served_values_are_found_by_key(dataset):
    served = dataset.served()
    assert served["weather"]["EWR/2013-01-01T10:00:00Z"]["temp"] == 39.02
    assert served["aircraft"]["N14228"]["manufacturer"] == "BOEING"


def test_columns_are_declared_as_spark_does():
    assert ddl(WEATHER).startswith("temp double, dewp double")
    assert "built bigint, type string" in ddl(AIRCRAFT)


def test_mean_of_two_calls_is_that_of_the_slower():
    steady = log_normal("10ms", sigma=0.0, stragglers=0.5, straggler_factor=3)
    assert mean_of_two(steady) == pytest.approx(0.25 * 0.01 + 0.75 * 0.03)
    assert mean_of_two(log_normal("10ms", sigma=0.5)) == pytest.approx(0.01446, rel=1e-3)


def test_a_service_elsewhere_is_asked_for_its_counters(dataset):
    with LookupServer({"weather": {}}) as server:
        with serve(Settings(url=f"{server.url}/"), dataset) as service:
            assert service.name == service.url == server.url
            assert service.mean_latency is None
            assert service.stats()["requests"] == 1
        assert service.stats() is not None
    assert service.stats() is None


# -- the comparison with a plain join


@pytest.fixture(scope="module")
def joined(dataset) -> pa.Table:
    return plain_join(dataset)


def test_the_plain_join_has_every_flight_once(dataset, joined):
    assert joined.num_rows == dataset.flights.num_rows
    assert joined.column_names == [*dataset.flights.column_names, *WEATHER.names, *AIRCRAFT.names]
    assert 0 < joined["built"].null_count < joined.num_rows


def test_equal_rows_in_another_order_are_right(joined):
    verdict = compare(joined, joined.sort_by([("dest", "descending")]))
    assert verdict.is_right
    assert str(verdict) == "equal to the plain join: all 505 rows, each exactly once"


def test_missing_and_repeated_rows_are_found(joined):
    output = pa.concat_tables([joined.slice(2), joined.slice(10, 3)])
    assert compare(joined, output) == Verdict(505, missing=2, repeated=3)


def test_unknown_rows_are_found(joined):
    strange = joined.slice(0, 1).set_column(0, FLIGHT_ID, pa.array([-1]))
    assert compare(joined, pa.concat_tables([joined, strange])) == Verdict(505, unknown=1)


@pytest.mark.parametrize("value", [None, -459.67])
def test_a_changed_value_is_found(joined, value):
    place = joined.column_names.index("temp")
    temperatures = [value, *joined["temp"].to_pylist()[1:]]
    output = joined.set_column(place, "temp", pa.array(temperatures, pa.float64()))
    verdict = compare(joined, output)
    assert verdict == Verdict(505, different=1)
    assert str(verdict) == "not equal to the plain join of 505 rows: 1 different"


# -- what is shown


def test_percentiles_and_mean_of_latencies():
    buckets = [(0.001, 98), (0.002, 1), (0.5, 1)]
    assert latency_percentile(buckets, 0.5) == 0.001
    assert latency_percentile(buckets, 0.99) == 0.002
    assert latency_percentile([], 0.5) is None
    assert latency_mean(buckets) == pytest.approx(0.6 / 100)
    assert latency_mean([]) is None


def test_littles_bound_is_concurrency_over_latency():
    assert littles_bound(100, 2, 0.05) == 4000


def test_the_table_shows_the_share_of_the_bound_and_what_is_unknown():
    runs = [
        Run("unordered", 1000, 2.0, calls=2003, errors=3, retries=3, latencies=[(0.05, 1000)]),
        Run("recipe", 500, 2.0),
    ]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table(runs, [1000.0] * len(runs)))
    lines = {line[2:26].strip(): line[26:].split() for line in console.export_text().splitlines()}
    assert lines["calls"] == ["2,003", "-"]
    assert lines["rows/s"] == ["500", "250"]
    assert lines["p99 of a call"] == ["50.0", "ms", "-"]
    assert lines["share of it reached"] == ["50%", "25%"]


def test_the_table_of_streams_shows_micro_batches_and_latencies():
    waited = StreamRun("without carry_over", 4, 9.0, batches=[5.0], latencies=[1.0, 2.0, 3.0, 4.0])
    carried = StreamRun(
        "with carry_over", 4, 3.0, batches=[0.5, 0.4], latencies=[0.5] * 4, carried=[1, 2]
    )
    console = Console(width=90, record=True, file=io.StringIO())
    console.print(stream_table([waited, carried]))
    lines = {line[2:38].strip(): line[38:].split() for line in console.export_text().splitlines()}
    assert lines["longest micro-batch"] == ["5.00", "s", "0.50", "s"]
    assert lines["p50 from coming to sink"] == ["2.00", "s", "0.50", "s"]
    assert lines["most rows in flight between batches"] == ["0", "2"]


def test_what_a_stream_lost_doubled_or_changed_is_told():
    expected = {0: 1999, 1: 2004, 2: None}
    run = StreamRun(
        "with", 3, 1.0, [], [], expected=expected, seen=[(0, 1999), (1, 2004), (2, None)]
    )
    assert run.is_right
    wrong = replace(run, seen=[(0, 1999), (0, 1999), (1, 1)])
    assert not wrong.is_right
    assert wrong.verdict == "not right: 1 missing, 1 twice, 1 different"


def test_the_table_leaves_out_a_bound_that_says_nothing():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table([Run("unordered", 1000, 2.0)], []))
    assert "bound" not in console.export_text()


def test_progress_is_silent_while_nothing_is_known(capsys):
    with progress(Console(), "unordered", 10, lambda: None):
        pass
    assert capsys.readouterr().out == ""


def test_progress_draws_a_bar_on_a_terminal(capsys):
    seen = threading.Event()

    def done():
        seen.set()
        return 4

    with progress(Console(force_terminal=True), "unordered", 10, done):
        assert seen.wait(50)
    assert "unordered" in capsys.readouterr().out
