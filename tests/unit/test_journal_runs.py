# SPDX-License-Identifier: Apache-2.0
"""Calls with a journal, without Spark: what is known is not called for, in each mode."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparkawait as sa
import sparkawait.arrow as saa
from sparkawait._worker.journal import TaskJournal
from sparkawait.exceptions import AsyncIOError, ErrorKind
from tests.support.scripted_server import ScriptedServer

MODES = {"ordered_wait": {}, "unordered_wait": {}, "key_ordered_wait": {"key": "x"}}


class Service:
    """Counts its calls; rows whose number leaves 3 fail."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self.silent_from: int | None = None

    def function(self):
        @sa.async_function("y int, z string")
        async def double(row):
            self.calls[row.x] += 1
            if self.silent_from is not None and row.x >= self.silent_from:
                await asyncio.Event().wait()
            if row.x % 11 == 3:
                raise ValueError("odd")
            return [] if row.x % 7 == 5 else [{"y": 2 * row.x, "z": str(row.x)}] * (1 + row.x % 2)

        return double


def numbers(rows, start=0):
    return pa.table({"x": pa.array(range(start, rows), pa.int32())})


def expected(rows, start=0):
    found = []
    for x in range(start, rows):
        if x % 11 == 3:
            found.append((x, None, None))
        elif x % 7 != 5:
            found += [(x, 2 * x, str(x))] * (1 + x % 2)
    return found


def run(mode, function, path, rows, **journal):
    kept = sa.Journal(path, version="1", **journal)
    out = getattr(saa, mode)(
        numbers(rows), function, journal=kept, on_error="capture", capacity=13, **MODES[mode]
    )
    found = [tuple(it[name] for name in ("x", "y", "z")) for it in out.to_table().to_pylist()]
    return found if mode == "ordered_wait" else sorted(found, key=lambda it: it[0])


@pytest.mark.parametrize("mode", MODES)
def test_a_second_run_calls_for_what_failed_and_what_is_new(tmp_path, mode):
    service = Service()
    function = service.function()

    assert run(mode, function, tmp_path, 211) == expected(211)
    assert service.calls == Counter(range(211))
    assert run(mode, function, tmp_path, 317) == expected(317)
    assert service.calls == Counter([*range(317), *range(3, 211, 11)])
    assert run(mode, function, tmp_path, 317, again="none") == expected(317)
    assert service.calls.total() == 317 + len(range(3, 211, 11))


def test_a_failure_that_is_kept_says_that_it_is_one_of_an_earlier_run(tmp_path):
    function = Service().function()
    journal = sa.Journal(tmp_path, version=1, again="none")
    told = "odd; its journal has this of an earlier run"
    list(saa.ordered_wait(numbers(5), function, journal=journal, on_error="capture"))
    with pytest.raises(AsyncIOError, match=told):
        list(saa.ordered_wait(numbers(5), function, journal=journal))
    (of_row,) = [
        it["error"]["message"]
        for batch in saa.ordered_wait(numbers(5), function, journal=journal, on_error="capture")
        for it in batch.to_pylist()
        if it["error"] is not None
    ]
    assert of_row == "ValueError: odd"


def test_a_row_that_is_known_tells_that_nobody_was_called_for_it(tmp_path):
    function, journal = Service().function(), sa.Journal(tmp_path, version=1)
    for run in range(2):
        rows = saa.ordered_wait(numbers(3), function, journal=journal, info="call")
        told = [it["call"] for batch in rows for it in batch.to_pylist()]
        assert {(it["cached"], it["attempts"]) for it in told} == {(run == 1, 1 - run)}


def test_what_was_answered_before_a_reader_went_away_is_known(tmp_path):
    service = Service()
    kept = sa.Journal(tmp_path, version=7)
    options = {"journal": kept, "on_error": "null", "capacity": 13}
    service.silent_from = 1013
    out = iter(saa.ordered_wait(numbers(3011), service.function(), **options))
    first = next(out)
    out.close()
    service.silent_from = None
    called = dict(service.calls)

    rows = saa.ordered_wait(numbers(3011), service.function(), **options).to_table()

    assert 0 < len(set(first["x"].to_pylist())) <= len(called) < 3011
    assert list(zip(*rows.to_pydict().values(), strict=True)) == expected(3011)
    again = {x for x, count in service.calls.items() if count > 1}
    # Those in flight when the reader went away, and those that have failed.
    assert len({x for x in again if x % 11 != 3}) <= 13


def test_rows_wait_for_the_folder_and_calls_do_not(tmp_path, monkeypatch):
    service, is_open = Service(), threading.Event()
    write = TaskJournal.write

    def slow(self, entries):
        assert is_open.wait(60)
        write(self, entries)

    monkeypatch.setattr(TaskJournal, "write", slow)
    kept = sa.Journal(tmp_path, version="1")
    out = iter(saa.unordered_wait(numbers(211), service.function(), journal=kept, on_error="drop"))
    found = []
    reader = threading.Thread(target=lambda: found.extend(out))
    reader.start()
    # All are called, and none has left.
    while service.calls.total() < 211:
        reader.join(0.01)
    assert found == []
    is_open.set()
    reader.join()

    assert sum(it.num_rows for it in found) == len(
        [it for it in expected(211) if it[1] is not None]
    )
    assert service.calls == Counter(range(211))


def test_a_folder_that_cannot_be_written_fails_the_task_and_its_rows_do_not_leave(
    tmp_path, monkeypatch
):
    def full(_self, _entries):
        msg = "the disk is full"
        raise AsyncIOError(msg, ErrorKind.JOURNAL_INVALID)

    monkeypatch.setattr(TaskJournal, "write", full)
    service = Service()
    with pytest.raises(AsyncIOError, match="the disk is full") as raised:
        run("ordered_wait", service.function(), tmp_path, 211)
    assert raised.value.kind == ErrorKind.JOURNAL_INVALID


PROGRAM = """
import sys
import pyarrow as pa, sparkawait as sa, sparkawait.arrow as saa

# {comment}
@sa.async_function("y int, z string")
async def double(row):
    print(row.x)
    return {{"y": 2 * row.x, "z": str(row.x)}}

table = pa.table({{"x": pa.array(range({rows}), pa.int32())}})
kept = sa.Journal({path!r}, version="1")
rows = saa.{mode}(table, double, journal=kept).to_table().to_pylist()
assert [(it["y"], it["z"]) for it in rows] == [(2 * x, str(x)) for x in range({rows})]
"""


def test_another_process_knows_what_one_before_it_has_called_for(tmp_path):
    calls = []
    for rows, comment in ((131, "first"), (131, "edited"), (173, "longer")):
        program = PROGRAM.format(
            rows=rows, comment=comment, path=str(tmp_path / "kept"), mode="ordered_wait"
        )
        script = tmp_path / "script.py"
        script.write_text(program)
        ended = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        calls.append(sorted(map(int, ended.stdout.split())))
    assert calls == [list(range(131)), [], list(range(131, 173))]
    folder = pq.read_table(tmp_path / "kept", columns=["key", "kind"])
    assert (folder.num_rows, set(folder["kind"].to_pylist())) == (173, {"ok"})


def test_costs_are_those_of_the_budget_in_its_own_unit(tmp_path):
    @sa.async_function("used double, tokens int")
    async def pays(row):
        return {"used": 0.07, "tokens": 331 + row.x}

    limits = [
        sa.RateLimit("100000/s", cost=500, result_cost="tokens"),
        sa.Budget(20.0, cost=0.15, result_cost="used"),
    ]
    kept = sa.Journal(tmp_path, version="1")
    out = saa.ordered_wait(numbers(13), pays, journal=kept, rate_limit=limits, info="call")
    told = [it["cost"] for it in out.to_table()["call"].to_pylist()]

    again = saa.ordered_wait(numbers(13), pays, journal=kept, rate_limit=limits, info="call")
    assert told == [0.07] * 13
    assert pq.read_table(tmp_path)["cost"].to_pylist() == [0.07] * 13
    known = again.to_table()["call"].to_pylist()
    assert [(it["cost"], it["attempts"], it["cached"]) for it in known] == [(0.0, 0, True)] * 13


def test_a_row_is_known_whatever_texts_the_rows_beside_it_have(tmp_path):
    calls = []

    @sa.async_function("y int")
    async def length(row):
        calls.append(row.x)
        return {"y": len(row.t)}

    def texts(*values):
        x = pa.array(range(len(values)), pa.int32())
        offsets = [0]
        for value in values:
            offsets.append(offsets[-1] + len(value))
        buffers = [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(b"".join(values))]
        t = pa.StringArray.from_buffers(len(values), buffers[1], buffers[2])
        return pa.RecordBatch.from_arrays([x, t], ["x", "t"])

    kept = sa.Journal(tmp_path, version="1")
    options = {"journal": kept, "on_error": "null"}
    for batch in (texts(b"abc", b"de", b"f"), texts(b"abc", b"\xff\xfe", b"f")):
        out = saa.ordered_wait([batch], length, **options).to_table()
        assert out.num_rows == 3
    assert calls[:3] == [0, 1, 2]
    assert set(calls[3:]) <= {1}


def test_the_folder_has_the_request_of_a_service_where_the_function_tells_it(tmp_path):
    @sa.async_function("y int, request_id string")
    async def asks(row):
        if row.x % 11 == 3:
            raise ValueError("odd")
        rows = [{"y": n, "request_id": f"req-{row.x}-{n}"} for n in range(row.x % 3)]
        return rows if row.x % 7 else [{"y": 0, "request_id": None}]

    kept = sa.Journal(tmp_path, version="1", keep_input=True)
    options = {"journal": kept, "on_error": "null"}
    saa.ordered_wait(numbers(61), asks, **options).to_table()

    rows = pq.read_table(tmp_path, columns=["input", "request_id"]).to_pylist()
    assert {it["input"]["x"]: it["request_id"] for it in rows} == {
        x: f"req-{x}-0" if x % 3 and x % 7 and x % 11 != 3 else None for x in range(61)
    }


@dataclass
class Rated:
    stars: int

    def __post_init__(self):
        if self.stars > 5:
            msg = "more than there are"
            raise ValueError(msg)


def test_a_result_that_a_class_refuses_is_asked_for_again(tmp_path):
    stars = {"/0": 3, "/1": 9, "/2": 5}

    def answer(target, _before):
        return 200, {}, json.dumps({"stars": stars[target]}).encode()

    with ScriptedServer(answer) as server:
        get = sa.http.get(f"{server.url}/{{x}}", Rated, client=sa.http.Client(proxy=False))

        def call(**journal):
            kept = sa.Journal(tmp_path, **journal)
            out = saa.ordered_wait(numbers(3), get, journal=kept, on_error="null").to_table()
            return out["stars"].to_pylist(), len(server.targets)

        assert call() == ([3, None, 5], 3)
        assert call(again="none") == ([3, None, 5], 3)
        stars["/1"] = 4
        assert call() == ([3, 4, 5], 4)
        assert call() == ([3, 4, 5], 4)
    kinds = pq.read_table(tmp_path)["kind"].to_pylist()
    assert sorted(kinds) == ["ok", "ok", "ok", "result-schema-mismatch"]


DOWN = sa.CircuitBreaker(3, "20s", when_open="fail")
NEVER_CALLED = {
    "budget-spent": (
        {"rate_limit": sa.Budget(7.0, cost=1)},
        {"rate_limit": sa.Budget(1000.0, cost=1)},
    ),
    "cost-invalid": (
        {"rate_limit": sa.RateLimit("100000/s", cost="paid", burst=1000)},
        {},
    ),
    "destination-paused": (
        {"circuit_breaker": DOWN, "retry": sa.retry.fixed_delay(1, 0)},
        {"circuit_breaker": DOWN, "retry": sa.retry.fixed_delay(1, 0)},
    ),
}


@pytest.mark.parametrize("again", ["none", "failed"])
@pytest.mark.parametrize("kind", NEVER_CALLED)
def test_a_row_that_was_never_called_is_called_for_in_the_next_run(tmp_path, kind, again):
    calls: list[int] = []
    is_down = kind == "destination-paused"

    @sa.async_function("y long")
    async def double(row):
        calls.append(row.x)
        if is_down:
            raise ConnectionError("down")
        return {"y": 2 * row.x}

    table = pa.table({"x": range(41), "paid": [None if it % 2 else 1.0 for it in range(41)]})

    def run(options):
        journal = sa.Journal(tmp_path, version=1, again=again, key="x")
        told = {"journal": journal, "on_error": "capture", "info": "call", "max_concurrency": 2}
        return saa.ordered_wait(table, double, **told, **options).to_table().to_pylist()

    before, after = NEVER_CALLED[kind]
    first = run(before)
    uncalled = [it["x"] for it in first if it["call"]["attempts"] == 0]
    failed = {it["x"] for it in first if it["error"] is not None and it["x"] not in uncalled}
    assert uncalled == [x for x in range(41) if x not in calls]
    assert {it["error"]["kind"] for it in first if it["x"] in uncalled} == {kind}
    assert uncalled

    calls.clear()
    is_down = False
    second = run(after)

    again_for = set(uncalled) | (failed if again == "failed" else set())
    assert sorted(calls) == sorted(again_for)
    kept = {it["x"]: it["error"] for it in second if it["error"] is not None}
    assert set(kept) == (failed if again == "none" else set())
    assert len(second) == 41
