# SPDX-License-Identifier: Apache-2.0
"""HTTP functions when the service is busy, broken or silent, and when calls are given up."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Iterator
from email.utils import formatdate

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import retry
from sparkawait.testing import LookupServer
from tests.support.nginx import Nginx
from tests.support.scripted_server import ScriptedServer
from tests.support.servers import LOOPBACK
from tests.support.waiting import wait_until

ROWS = 1000
TABLES = {"numbers": {i: {"n": i} for i in range(ROWS)}}
AT_ONCE = retry.fixed_delay(1000, "1ms", budget=None)


@pytest.fixture
def server() -> Iterator[LookupServer]:
    with LookupServer(TABLES, latency=None) as running:
        yield running


def numbers(url: str, client=None, **options):
    client = sa.http.Client(**{"proxy": False} | (client or {}))
    return sa.http.get(f"{url}/numbers/{{id}}", "n bigint", client=client, **options)


def batch_of(ids) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})


def look_up(function, ids, **options) -> list[int | None]:
    batches = sa.arrow.ordered_wait([batch_of(ids)], function, **options)
    return [row["n"] for batch in batches for row in batch.to_pylist()]


# -- a service that is busy


def test_seconds_of_retry_after_are_waited_for():
    with LookupServer(TABLES, latency=None, rate_limit=1) as server:
        # One more attempt after a millisecond would be too early, and the last.
        found = look_up(numbers(server.url), [1, 2], retry=retry.fixed_delay(1, "1ms"))
        stats = server.stats()
    assert found == [1, 2]
    assert (stats["requests"], stats["rejected"]) == (3, 1)


@pytest.mark.parametrize("status", [429, 503])
def test_a_date_of_retry_after_is_waited_for(status):
    opens = []

    def answer(target, before):
        if before == 0:
            opens.append(math.ceil(time.time() + 0.2))
        if time.time() < opens[0]:
            return status, {"Retry-After": formatdate(opens[0], usegmt=True)}, b""
        return 200, {}, b'{"n": 7}'

    with ScriptedServer(answer) as server:
        # One more attempt after a millisecond would be too early, and the last.
        found = look_up(numbers(server.url), [7], retry=retry.fixed_delay(1, "1ms"))
    assert found == [7]
    assert server.targets == ["/numbers/7"] * 2


USED_UP = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (429, {"Retry-After": "1"}),
        (503, {"retry-after-ms": "1000"}),
        pytest.param(429, USED_UP, marks=pytest.mark.nightly),
        (403, USED_UP),
        pytest.param(403, {"Retry-After": "1"}, marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_no_row_is_called_while_the_service_asks_for_a_pause(status, headers):
    came = []

    def answer(target, before):
        came.append(time.monotonic())
        if before == 0:
            return status, headers, b""
        return 200, {}, b'{"n": %d}' % int(target.rpartition("/")[2])

    with ScriptedServer(answer) as server:
        options = {"retry": retry.fixed_delay(1, "1ms"), "max_concurrency": 1}
        found = look_up(numbers(server.url), [1, 2, 3], **options)
    assert found == [1, 2, 3]
    assert server.targets == [f"/numbers/{i}" for i in (1, 1, 2, 3)]
    assert came[1] - came[0] >= 1


def test_rows_of_other_channels_go_on_while_one_asks_for_a_pause():
    refused = []

    def answer(target, _):
        number = int(target.rpartition("/")[2])
        # Not what comes first: two rows are called at once.
        if number == 1 and not refused:
            refused.append(number)
            return 429, {"Retry-After": "1"}, b""
        return 200, {}, b'{"n": %d}' % number

    with ScriptedServer(answer) as server:
        rows = pa.record_batch({"id": [1, 2, 3, 4], "tenant": ["a", "b", "a", "b"]})
        options = {"retry": retry.fixed_delay(1, "1ms"), "max_concurrency": 2}
        channel = sa.Channel("tenant", count=2, max_per_channel=1)
        out = sa.arrow.ordered_wait([rows], numbers(server.url), channel=channel, **options)
        assert pa.Table.from_batches(out)["n"].to_pylist() == [1, 2, 3, 4]
    asked = [int(target.rpartition("/")[2]) for target in server.targets]
    assert sorted(asked[:3]) == [1, 2, 4]
    assert asked[3:] == [1, 3]


def test_where_rows_name_the_host_one_host_holds_no_other_up():
    came = []

    def busy_once(target, before):
        came.append("busy")
        return (429, {"Retry-After": "1"}, b"") if before == 0 else (200, {}, b'{"n": 1}')

    def well(target, before):
        came.append("well")
        return 200, {}, b'{"n": 2}'

    with ScriptedServer(busy_once) as one, ScriptedServer(well) as other:
        ports = [int(server.url.rpartition(":")[2]) for server in (one, other, other)]
        rows = pa.record_batch({"port": ports})
        function = sa.http.get(
            f"http://{LOOPBACK}:{{port}}/", "n bigint", client=sa.http.Client(proxy=False)
        )
        options = {"retry": retry.fixed_delay(1, "1ms"), "max_concurrency": 1}
        out = sa.arrow.ordered_wait([rows], function, **options)
        assert pa.Table.from_batches(out)["n"].to_pylist() == [1, 2, 2]
    assert came == ["busy", "well", "well", "busy"]


def test_the_service_sees_no_call_in_any_pause_that_it_has_asked_for():
    # One that counts: so many in a window of 300 ms, and a pause for each that is too much.
    window, most = 0.3, 20
    came, began, refused = [], [], []

    def answer(target, before):
        now = time.monotonic()
        if not began or now >= began[-1] + window:
            began.append(now)
            came.append(0)
        came[-1] += 1
        if came[-1] > most:
            left = began[-1] + window - now
            refused.append(now)
            return 429, {"retry-after-ms": str(math.ceil(left * 1000))}, b""
        return 200, {}, b'{"n": %d}' % int(target.rpartition("/")[2])

    with ScriptedServer(answer) as server:
        options = {"retry": retry.fixed_delay(50, "1ms"), "max_concurrency": 8}
        assert look_up(numbers(server.url), range(100), **options) == [*range(100)]
    # Those that were on their way when the first of a window was refused, and none after them.
    assert len(server.targets) == 100 + len(refused)
    assert max(came) <= most + 8


def test_without_retry_a_busy_service_fails_the_row():
    with ScriptedServer(lambda target, before: (429, {"Retry-After": "1"}, b"slow")) as server:
        function = numbers(server.url)
        with pytest.raises(sa.AsyncFunctionError, match=r"1 attempt: .* 429 Too Many Requests"):
            look_up(function, [1], retry=0)
    assert server.targets == ["/numbers/1"]


# -- a service that is broken


def test_a_burst_of_errors_is_survived_and_each_error_is_one_more_call(server):
    def batches():
        server.set_faults(error_rate=1.0)
        yield batch_of(range(50))
        wait_until(lambda: server.stats()["errors"] > 200)
        server.set_faults()
        yield batch_of(range(50, ROWS))

    out = sa.arrow.ordered_wait(batches(), numbers(server.url), retry=AT_ONCE, capacity=50)
    found = [row["n"] for batch in out for row in batch.to_pylist()]

    assert found == list(range(ROWS))
    stats = server.stats()
    assert stats["requests"] == ROWS + stats["errors"]


def test_connections_that_are_reset_lose_no_row(server):
    server.set_faults(reset_rate=0.1, error_rate=0.1)

    found = look_up(numbers(server.url), range(ROWS), retry=AT_ONCE, max_concurrency=200)

    assert found == list(range(ROWS))
    stats = server.stats()
    assert stats["reset"] > 0
    assert stats["requests"] == ROWS + stats["errors"] + stats["reset"]


def test_a_reset_connection_is_told(server):
    server.set_faults(reset_rate=1.0)
    with pytest.raises(sa.AsyncFunctionError, match=r"broke off or is not HTTP: .*reset"):
        look_up(numbers(server.url), [1])


# -- a service that is silent, and calls that are given up


def test_a_stalled_call_ends_with_the_timeout_of_its_row(server):
    server.set_faults(stall_rate=1.0)

    with pytest.raises(sa.exceptions.ElementTimeoutError, match="700ms"):
        look_up(numbers(server.url), [1], timeout="700ms", retry=AT_ONCE)

    wait_until(lambda: server.stats()["in_flight"] == 0)
    assert server.stats()["stalled"] == 1


def test_a_stalled_attempt_is_cancelled_and_made_again(server):
    server.set_faults(stall_rate=0.3)

    found = look_up(numbers(server.url), range(30), attempt_timeout="200ms", retry=AT_ONCE)

    assert found == list(range(30))
    wait_until(lambda: server.stats()["in_flight"] == 0)
    stats = server.stats()
    assert stats["requests"] >= 30 + stats["stalled"] > 30


def urls_of(first: str, silent: LookupServer, base: str | None = None) -> pa.RecordBatch:
    others = [f"{base or silent.url}/numbers/{i}" for i in range(20)]
    return pa.RecordBatch.from_pydict({"url": [first, *others]})


@pytest.fixture
def silent() -> Iterator[LookupServer]:
    with LookupServer(TABLES, latency=None, stall_rate=1.0) as running:
        yield running


@pytest.mark.parametrize(
    ("options", "calls"), [({"max_concurrency": 500}, 500), ({"capacity": 5000}, 100)]
)
def test_a_server_sees_as_many_calls_in_flight_as_max_concurrency_says(
    server, silent, options, calls
):
    urls = [f"{server.url}/numbers/0", *(f"{silent.url}/numbers/{i}" for i in range(996))]
    rows = pa.RecordBatch.from_pydict({"url": urls})
    client, hosts = sa.http.Client(proxy=False), [server.url, silent.url]
    function = sa.http.get("{url}", "n bigint", client=client, allow_hosts=hosts)
    out = sa.arrow.unordered_wait(
        [rows], function, tuning=sa.Tuning(warm_up=False), timeout=None, **options
    )

    assert next(out)["n"].to_pylist() == [0]
    wait_until(lambda: silent.stats()["in_flight"] == calls)
    out.close()

    wait_until(lambda: silent.stats()["in_flight"] == 0)
    assert silent.stats()["requests"] == calls


def test_calls_in_flight_end_with_the_iterator(server, silent):
    options = {"client": sa.http.Client(proxy=False), "allow_hosts": [server.url, silent.url]}
    function = sa.http.get("{url}", "n bigint", **options)
    urls = urls_of(f"{server.url}/numbers/0", silent)
    out = sa.arrow.unordered_wait([urls], function, tuning=sa.Tuning(warm_up=False))
    assert next(out)["n"].to_pylist() == [0]
    wait_until(lambda: silent.stats()["in_flight"] == 20)

    out.close()

    wait_until(lambda: silent.stats()["in_flight"] == 0)
    assert silent.stats()["requests"] == 20


def test_calls_in_flight_over_http2_end_with_the_iterator(tmp_path, silent):
    lines = f"""location /quick {{ return 200 '{{"n": 0}}'; }}
        location /numbers/ {{ proxy_pass {silent.url}; }}"""
    with Nginx(tmp_path, lines, listen="http2") as nginx:
        client = sa.http.Client(proxy=False, version="2")
        function = sa.http.get("{url}", "n bigint", client=client, allow_hosts=[nginx.url])
        urls = urls_of(f"{nginx.url}/quick", silent, nginx.url)
        out = sa.arrow.unordered_wait([urls], function, tuning=sa.Tuning(warm_up=False))
        assert next(out)["n"].to_pylist() == [0]
        wait_until(lambda: silent.stats()["in_flight"] == 20)

        out.close()

        # nginx gives up what nobody waits for any more.
        wait_until(lambda: silent.stats()["in_flight"] == 0)


def test_calls_in_flight_end_with_the_row_that_fails_the_task(silent):
    def answer(target, before):
        wait_until(lambda: silent.stats()["in_flight"] == 20)
        return 400, {}, b""

    with ScriptedServer(answer) as broken:
        options = {"client": sa.http.Client(proxy=False), "allow_hosts": [broken.url, silent.url]}
        function = sa.http.get("{url}", "n bigint", **options)
        out = sa.arrow.unordered_wait(
            [urls_of(broken.url, silent)], function, tuning=sa.Tuning(warm_up=False)
        )
        with pytest.raises(sa.AsyncFunctionError, match="400 Bad Request"):
            list(out)

    wait_until(lambda: silent.stats()["in_flight"] == 0)
    assert silent.stats()["requests"] == 20


def test_no_more_calls_than_connections_are_on_their_way(server):
    server.set_latency("2ms")

    found = look_up(
        numbers(server.url, max_requests=7),
        range(100),
        capacity=100,
        tuning=sa.Tuning(warm_up=False),
    )

    assert found == list(range(100))
    assert server.stats()["max_in_flight"] == 7


def test_a_connection_that_is_not_made_in_time_is_told():
    # A backlog that is full takes no more connections, and refuses none.
    with socket.create_server((LOOPBACK, 0), backlog=0) as listener:
        waiting = [socket.create_connection(listener.getsockname())]
        url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        with pytest.raises(sa.AsyncFunctionError, match="was not made within `connect_timeout`"):
            look_up(numbers(url, client={"connect_timeout": "50ms"}), [1])
        for connection in waiting:
            connection.close()


# -- what is in a document, and around it


def test_an_array_in_the_document_gives_a_row_for_each_element(server):
    elements = [{"n": 1}, {"n": None}, {"n": 3}]
    pages = {"full": {"found": {"items": elements}}, "none": {"found": {"items": []}}, "bare": {}}
    server.add_table("pages", pages)
    ids = pa.array(["full", "none", "bare", None])
    found = {}
    for how in ("left", "inner"):
        function = sa.http.get(
            server.url + "/pages/{id}",
            "n int",
            rows="$.found.items",
            how=how,
            client=sa.http.Client(proxy=False),
        )
        out = sa.arrow.ordered_wait([pa.RecordBatch.from_pydict({"id": ids})], function)
        found[how] = [(row["id"], row["n"]) for batch in out for row in batch.to_pylist()]
    assert found["inner"] == [("full", 1), ("full", None), ("full", 3)]
    assert found["left"] == [*found["inner"], ("none", None), ("bare", None), (None, None)]
