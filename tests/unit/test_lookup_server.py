# SPDX-License-Identifier: Apache-2.0
"""The lookup server as a user of `sparkawait.testing` meets it."""

from __future__ import annotations

import json
import os
from dataclasses import astuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from sparkawait.exceptions import ConfigurationError, ErrorKind, OperatorStateError
from sparkawait.testing.services import LookupServer, constant, log_normal, to_latency, uniform

TABLES = {"weather": {"JFK": {"temp": 1.5}, "a/b ü": [1, 2], 7: None, "raw": b"[3]", "text": "4"}}


def get(url, data=None):
    with urlopen(Request(url, data=data), timeout=20) as response:  # noqa: S310
        return json.loads(response.read())


@pytest.fixture
def server():
    with LookupServer(TABLES, latency=None) as server:
        yield server


@pytest.mark.parametrize(
    ("key", "value"),
    [("JFK", {"temp": 1.5}), ("a/b ü", [1, 2]), ("7", None), ("raw", [3]), ("text", 4)],
)
def test_value_is_served_by_key(server, key, value):
    assert get(f"{server.url}/weather/{quote(key)}") == value


def test_batch_gives_null_for_each_unknown_key(server):
    assert get(f"{server.url}/weather", b'["LAX", "raw", 7]') == [None, [3], None]
    assert server.stats() == {
        "requests": 1,
        "hits": 2,
        "misses": 1,
        "errors": 0,
        "rejected": 0,
        "stalled": 0,
        "reset": 0,
        "in_flight": 0,
        "max_in_flight": 1,
    }


def test_counters_are_served_too(server):
    get(f"{server.url}/weather/JFK")

    assert get(f"{server.url}/-/stats") == server.stats()


def test_unknown_key_is_not_found(server):
    with pytest.raises(HTTPError) as info:
        get(f"{server.url}/weather/LAX")
    info.value.close()
    assert info.value.code == 404


def test_table_can_be_added_later(server):
    server.add_table("planes", {"N1": {"seats": 2}})

    assert get(f"{server.url}/planes/N1") == {"seats": 2}


def test_faults_begin_and_end_while_the_server_runs(server):
    server.set_faults(error_rate=1.0)
    with pytest.raises(HTTPError) as info:
        get(f"{server.url}/weather/JFK")
    info.value.close()
    assert info.value.code == 500

    server.set_faults()
    assert get(f"{server.url}/weather/JFK") == {"temp": 1.5}


def test_request_over_the_rate_limit_is_told_when_to_come_back():
    with LookupServer(TABLES, latency=None, rate_limit=0.01) as server:
        get(f"{server.url}/weather/JFK")
        with pytest.raises(HTTPError) as info:
            get(f"{server.url}/weather/JFK")
    info.value.close()
    assert info.value.code == 429
    assert info.value.headers["Retry-After"] == "100"
    assert server.stats()["rejected"] == 1


def test_reset_connection_is_an_error():
    with LookupServer(TABLES, latency=None, reset_rate=1.0) as server:
        with pytest.raises(ConnectionResetError):
            get(f"{server.url}/weather/JFK")
        assert server.stats()["reset"] == 1


def test_stopped_server_refuses_connections_and_keeps_its_counters(server):
    get(f"{server.url}/weather/JFK")

    server.stop()
    server.stop()

    with pytest.raises(URLError, match="refused"):
        get(f"{server.url}/weather/JFK")
    assert server.stats()["requests"] == 1


def test_port_that_is_taken_is_an_os_error(server):
    with pytest.raises(OSError, match=f"cannot listen on port {server.port}"):
        LookupServer({}, port=server.port)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"error_rate": 1.5}, "`error_rate` must be a number from 0 to 1, got 1.5"),
        ({"error_rate": 0.75, "stall_rate": 0.5}, "add up to at most 1, got 1.25"),
        ({"rate_limit": 0}, "`rate_limit` must be positive and finite, got 0"),
        ({"port": 70_000}, "`port` must be at most 65535, got 70000"),
    ],
)
def test_argument_out_of_range_is_refused(options, message):
    with pytest.raises(ConfigurationError, match=message) as info:
        LookupServer({}, **options)
    assert info.value.kind is ErrorKind.OPTION_INVALID


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: uniform("2ms", "1ms"), "`min` of a uniform latency must not exceed"),
        (lambda: log_normal("2ms", -1), "`sigma` must be a number of at least 0, got -1"),
        (lambda: constant("2ms", stragglers=2), "`stragglers` must be a number from 0 to 1"),
    ],
)
def test_a_distribution_that_does_not_exist_is_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


@pytest.mark.parametrize("value", [object(), float("nan")])
def test_value_that_is_no_json_is_refused(value):
    with pytest.raises(ConfigurationError, match="table `t` has a value that cannot be written"):
        LookupServer({"t": {"a": value}})


def test_text_that_is_no_duration_is_refused():
    with pytest.raises(ConfigurationError, match="`latency`"):
        LookupServer({}, latency="soon")


def test_duration_stands_for_a_constant_latency():
    assert to_latency("5ms", "latency") == constant(0.005)
    assert to_latency(None, "latency") == constant(0)
    assert to_latency(uniform(1, 2), "latency") == uniform("1s", "2s")


def test_latency_has_what_the_extension_module_reads_in_seconds():
    latency = uniform("1ms", "3ms", stragglers=0.1, straggler_factor=5)

    assert astuple(latency) == ("uniform", 0.001, 0.003, 0.1, 5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_process_is_served_but_does_not_own_the_server(server):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.write(write, in_child(server).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as report:
        assert report.read() == "served, refused, stopped"

    assert get(f"{server.url}/weather/JFK") == {"temp": 1.5}


def in_child(server):
    steps = []
    try:
        if get(f"{server.url}/weather/JFK") == {"temp": 1.5}:
            steps.append("served")
        try:
            server.stats()
        except OperatorStateError:
            steps.append("refused")
        server.stop()
        steps.append("stopped")
    except BaseException as error:  # noqa: BLE001 - the parent reports it
        steps.append(repr(error))
    return ", ".join(steps)
