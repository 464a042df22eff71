# SPDX-License-Identifier: Apache-2.0
"""Functions of record batches, `Batch(arrow=True)`."""

import asyncio
import contextvars
import math
import threading
import time
from collections import Counter
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sparkawait as sa
from sparkawait._worker.arrow_batching import ArrowCall
from sparkawait._worker.batch_lines import Doubt, Line

ROWS = 1009
EPOCH_5 = datetime.fromisoformat("1970-01-01T00:00:00.005")


def table(count: int = ROWS) -> pa.Table:
    ids = pa.array(range(count), pa.int64())
    return pa.table({"id": ids, "k": pc.bit_wise_and(ids, 3), "text": pc.cast(ids, pa.string())})


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"doubled": pc.multiply(batch["id"], 2)})


def batched(max_rows=97, **given):
    return sa.Batch(max_rows=max_rows, arrow=True, **given)


def found(out, column="doubled"):
    return sorted((row["id"], row[column]) for row in out.to_table().to_pylist())


EXPECTED = [(i, 2 * i) for i in range(ROWS)]
WAITS = {
    "ordered": sa.arrow.ordered_wait,
    "unordered": sa.arrow.unordered_wait,
    "by key": lambda rows, function, **given: sa.arrow.key_ordered_wait(
        rows, function, key="id", **given
    ),
}
COMBINED = {
    "alone": {},
    "with channels": {"channel": "k", "max_concurrency": 7},
    "with a cache": {"cache": sa.Cache(key="id")},
    "with limits": {"rate_limit": sa.RateLimit("90009/s", cost=3)},
    "with attempt_timeout and capture": {"attempt_timeout": "7s", "on_error": "capture"},
    "in small batches": {"tuning": sa.Tuning(max_rows=13)},
    "with one call at a time": {"max_concurrency": 1},
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
@pytest.mark.parametrize("options", COMBINED.values(), ids=COMBINED)
@pytest.mark.parametrize("is_plain", [False, True])
def test_each_row_has_its_result(wait, options, is_plain):
    rows = Counter()

    def noted(batch):
        assert isinstance(batch, pa.RecordBatch)
        assert batch.schema.names == ["id", "k", "text"]
        assert 0 < batch.num_rows <= 97
        rows.update(batch["id"].to_pylist())
        return doubled(batch)

    async def awaited(batch):
        await asyncio.sleep(0)
        return noted(batch)

    declare = sa.async_function("doubled long", batch=batched())
    # Input batches that no call has the length of.
    source = iter(table().to_batches(max_chunksize=61))
    out = wait(source, declare(noted if is_plain else awaited), **options)

    assert found(out) == EXPECTED
    assert rows == dict.fromkeys(range(ROWS), 1)


def test_the_order_of_the_input_is_kept():
    function = sa.async_function("doubled long", batch=batched(13))(doubled)
    out = sa.arrow.ordered_wait(table(), function, max_concurrency=5)
    assert out.to_table()["id"].to_pylist() == list(range(ROWS))


def test_rows_that_are_neighbours_in_a_batch_are_not_copied():
    (source,) = table(1500).to_batches()
    first = source["id"].buffers()[1].address
    seen = []

    @sa.async_function("doubled long", batch=batched(97))
    async def look(batch):
        ids = batch["id"]
        seen.append((batch.num_rows, ids.buffers()[1].address + 8 * ids.offset - first))
        return doubled(batch)

    assert found(sa.arrow.ordered_wait([source], look)) == [(i, 2 * i) for i in range(1500)]
    assert sum(rows for rows, _ in seen) == 1500
    assert [at for _, at in seen if not 0 <= at < 8 * 1500] == []


def test_rows_from_many_batches_are_put_together():
    sizes = []

    @sa.async_function("doubled long", batch=batched(500))
    async def look(batch):
        sizes.append(batch.num_rows)
        return doubled(batch)

    source = table(1500).to_batches(max_chunksize=61)
    rows = found(
        sa.arrow.unordered_wait(source, look, capacity=1500, tuning=sa.Tuning(warm_up=False))
    )
    assert rows == [(i, 2 * i) for i in range(1500)]
    assert sum(sizes) == 1500
    assert 61 < max(sizes) <= 500


OTHER_FORMS = {
    "a table": lambda batch: pa.table(doubled(batch)),
    "more columns": lambda batch: pa.RecordBatch.from_pydict(
        {"x": batch["text"], "doubled": doubled(batch)["doubled"]}
    ),
    "another type": lambda batch: pa.RecordBatch.from_pydict(
        {"doubled": doubled(batch)["doubled"].cast(pa.int16())}
    ),
}


@pytest.mark.parametrize("form", OTHER_FORMS.values(), ids=OTHER_FORMS)
def test_what_is_like_a_record_batch_will_do(form):
    function = sa.async_function("doubled long", batch=batched())(form)
    assert found(sa.arrow.unordered_wait(table(), function)) == EXPECTED


def test_a_frame_of_polars_will_do():
    polars = pytest.importorskip("polars")
    function = sa.async_function("doubled long", batch=batched())(
        lambda batch: polars.DataFrame(doubled(batch))
    )
    assert found(sa.arrow.unordered_wait(table(), function)) == EXPECTED


def test_duckdb_will_do():
    duckdb = pytest.importorskip("duckdb")

    @sa.async_function("doubled long", batch=batched())
    def query(batch):
        with duckdb.connect() as connection:
            return connection.sql("select id * 2 as doubled from batch").to_arrow_table()

    assert found(sa.arrow.unordered_wait(table(), query, max_concurrency=3)) == EXPECTED


WRONG = {
    "None": (lambda batch: None, "returned None; return a pyarrow.RecordBatch", "result-is-none"),
    "a list": (lambda batch: [1], "returned a `list`; return a pyarrow.RecordBatch", None),
    "fewer rows": (
        lambda batch: doubled(batch).slice(1),
        "got 97 rows and returned 96; return one for each, in order",
        "batch-result-count-mismatch",
    ),
    "another column": (
        lambda batch: batch,
        "must return column `doubled` once, got `id`, `k`, `text`",
        "result-schema-mismatch",
    ),
    "a text": (
        lambda batch: pa.RecordBatch.from_pydict(
            {"doubled": pa.array(["secret"] * batch.num_rows)}
        ),
        "returned column `doubled` as string, which is not int64",
        "result-schema-mismatch",
    ),
    "a null": (
        lambda batch: pa.RecordBatch.from_pydict({"doubled": pa.nulls(batch.num_rows, pa.int64())}),
        "returned 97 nulls in column `doubled`, which is declared NOT NULL",
        "result-schema-mismatch",
    ),
}


@pytest.mark.parametrize(("function", "words", "kind"), WRONG.values(), ids=WRONG)
def test_another_result_fails_the_rows_of_its_call_and_says_what_to_return(function, words, kind):
    declared = sa.async_function("doubled long NOT NULL", batch=batched())(function)
    out = sa.arrow.ordered_wait(table(97), declared, on_error="capture").to_table()

    errors = out["error"].to_pylist()
    assert len(errors) == 97
    assert all(words in error["message"] for error in errors)
    assert all("secret" not in error["message"] for error in errors)
    assert kind is None or {error["kind"] for error in errors} == {kind}


TOKYO = timezone(timedelta(hours=9))
NOON = datetime.fromisoformat("2026-01-01T12:00:00.000007")
KEPT = {
    "fewer bits": ("int", pa.array([7, None], pa.int64()), [7, None]),
    "a float": ("double", pa.array([7, None], pa.int64()), [7.0, None]),
    "rounded": ("array<float>", pa.array([[0.5, math.inf], None]), [[0.5, math.inf], None]),
    "a whole float": ("int", pa.array([7.0, None]), [7, None]),
    "a decimal": ("decimal(3,0)", pa.array([7, None], pa.int64()), [Decimal(7), None]),
    "a whole decimal": ("bigint", pa.array([Decimal(100), None]), [100, None]),
    "bytes": ("binary", pa.array(["a", None]), [b"a", None]),
    "a dictionary": ("string", pa.array(["a", None]).dictionary_encode(), ["a", None]),
    "a large list": ("array<int>", pa.array([[7], None], pa.large_list(pa.int8())), [[7], None]),
    "midnight": (
        "date",
        pa.array([NOON.replace(hour=0, microsecond=0), None]),
        [date(2026, 1, 1), None],
    ),
    "milliseconds": ("timestamp_ntz", pa.array([5, None], pa.timestamp("ms")), [EPOCH_5, None]),
    "a map": (
        "map<string,double>",
        pa.array([[("k", 7)], None], pa.map_(pa.string(), pa.int32())),
        [[("k", 7.0)], None],
    ),
    "a struct": ("struct<a: int>", pa.array([{"a": 7}, None]), [{"a": 7}, None]),
    "nothing": ("date", pa.nulls(2), [None, None]),
    "a clock": (
        "timestamp_ntz",
        pa.array([NOON.replace(tzinfo=TOKYO), None], pa.timestamp("us", "+09:00")),
        [NOON, None],
    ),
    "clocks": (
        "array<timestamp_ntz>",
        pa.array([[NOON.replace(tzinfo=TOKYO)], None], pa.list_(pa.timestamp("us", "+09:00"))),
        [[NOON], None],
    ),
}
LOST = {
    "a time of day": ("date", pa.array([NOON])),
    "a number": ("boolean", pa.array([5])),
    "a boolean": ("bigint", pa.array([True])),
    "a number as text": ("string", pa.array([5])),
    "a text as number": ("int", pa.array(["5"])),
    "bytes as text": ("string", pa.array([b"a"])),
    "microseconds": ("timestamp", pa.array([5])),
    "a double": ("decimal(10,2)", pa.array([7.25])),
    "half a cent": ("decimal(10,2)", pa.array([1.005])),
    "nearly three": ("decimal(10,2)", pa.array([2.999])),
    "digits": ("double", pa.array([Decimal("12345678901234567890.12")])),
    "a large number": ("float", pa.array([1e300])),
    "large numbers": ("array<float>", pa.array([[1.0, 1e300]])),
    "a fraction": ("int", pa.array([7.5])),
    "the day": ("time", pa.array([NOON])),
    "a nested time of day": ("struct<d: date>", pa.array([{"d": NOON}])),
    "another member": ("struct<a: int>", pa.array([{"b": 7}])),
    "nanoseconds": ("timestamp_ntz", pa.array([7], pa.timestamp("ns"))),
}


def returning(ddl, column):
    @sa.async_function(f"x {ddl}", batch=batched())
    async def function(batch):
        return pa.RecordBatch.from_arrays([column], ["x"])

    rows = table(len(column))
    return sa.arrow.ordered_wait(rows, function, on_error="capture").to_table()


@pytest.mark.parametrize(("ddl", "column", "stored"), KEPT.values(), ids=KEPT)
def test_a_column_of_another_type_is_cast_if_nothing_is_lost(ddl, column, stored):
    out = returning(ddl, column)
    assert out["error"].null_count == out.num_rows
    assert out["x"].to_pylist() == stored


@pytest.mark.parametrize(("ddl", "column"), LOST.values(), ids=LOST)
def test_a_column_that_would_lose_something_is_refused(ddl, column):
    errors = returning(ddl, column)["error"].to_pylist()
    assert {it["kind"] for it in errors} == {"result-schema-mismatch"}
    assert all("which is not" in it["message"] for it in errors)


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_a_time_without_a_zone_is_in_the_zone_of_the_process(unit, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        column = pa.array([NOON.replace(microsecond=0), None], pa.timestamp(unit))
        instants = returning("timestamp", column)["x"].cast(pa.int64()).to_pylist()
    time.tzset()
    noon = datetime(2026, 1, 1, 17, tzinfo=timezone.utc)
    assert instants == [int(noon.timestamp()) * 1_000_000, None]


@pytest.mark.parametrize("data_type", ["string", "array<string>"])
def test_a_text_that_is_not_utf8_fails_the_rows_of_its_call(data_type):
    @sa.async_function(f"name {data_type}", batch=batched(7))
    async def latin(batch):
        names = pa.array([b"M\xfcller"] * len(batch)).view(pa.string())
        if data_type != "string":
            names = pa.ListArray.from_arrays(range(len(batch) + 1), names)
        return pa.RecordBatch.from_arrays([names], ["name"])

    out = sa.arrow.ordered_wait(table(13), latin, on_error="capture", timeout=None).to_table()

    errors = out["error"].to_pylist()
    assert [it["kind"] for it in errors] == ["result-schema-mismatch"] * 13
    assert all(
        "returned column `name` with data that is not what" in it["message"] for it in errors
    )


def test_only_rows_at_fault_fail_when_calls_are_split():
    calls = []

    @sa.async_function("doubled long", batch=batched(61, split_on_error=True))
    def picky(batch):
        calls.append(batch.num_rows)
        bad = [i for i in batch["id"].to_pylist() if i % 100 == 7]
        if bad:
            raise LookupError(f"no {bad}")
        return doubled(batch)

    out = sa.arrow.ordered_wait(table(331), picky, on_error="capture").to_table().to_pylist()

    assert [row["id"] for row in out] == list(range(331))
    failed = {row["id"]: row["error"]["message"] for row in out if row["error"] is not None}
    assert sorted(failed) == [7, 107, 207, 307]
    assert all(f"no [{i}]" in message for i, message in failed.items())
    assert min(calls) == 1


class Group(list):
    """Numbers of attempts, in the place of a group of rows."""

    numbers = list.copy
    record_batch = list.copy

    def take(self, numbers):
        taken = Group(it for it in self if it in numbers)
        self.drop(numbers)
        return taken

    def drop(self, numbers):
        self[:] = [it for it in self if it not in numbers]
        return len(self)

    def split(self, count):
        return self.take(self[:count])


@pytest.mark.parametrize(
    ("forgotten", "answered", "left_out"),
    [
        ([{11, 13, 17, 19}], [[7]], []),
        ([{13}], [[7]], [[11], [17, 19]]),
        ([{7}], [], [[11, 13, 17, 19]]),
        ([{7}, {11, 13, 17}, {19}], [], []),
        ([{11, 13, 17, 19}, {7}], [], []),
        ([{11, 13, 17, 19, 7}], [], []),
    ],
)
def test_a_row_that_is_called_for_alone_is_one_of_those_that_are_wanted(
    forgotten, answered, left_out
):
    async def run():
        is_called, may_answer = asyncio.Event(), asyncio.Event()
        finished, told, again = [], [], []

        async def invoke(rows):
            is_called.set()
            await may_answer.wait()
            return rows

        runner = SimpleNamespace(
            results=SimpleNamespace(of=lambda returned, _: returned),
            replies=SimpleNamespace(
                finish_group=lambda rows, _: finished.append(list(rows)),
                fail=lambda rows, *_, **__: told.append(list(rows)),
            ),
            port=SimpleNamespace(started=lambda _: True),
            loop=asyncio.get_running_loop(),
            context=contextvars.copy_context(),
            call_done=lambda _: None,
            call_again=lambda _, numbers, *__, called: again.append((list(numbers), called)),
            invoke=invoke,
            function_name="f",
            counts_requests=False,
            splits=True,
        )
        doubt = Doubt(error=ValueError("why"), rows=5)
        call = ArrowCall(runner, Line(None), Group([7, 11, 13, 17, 19]), doubt)
        await is_called.wait()
        for ids in forgotten:
            call.cancel_rows(ids)
        may_answer.set()
        await asyncio.wait([call.task])
        return finished, told, again

    assert asyncio.run(run()) == (answered, [], [(numbers, False) for numbers in left_out])


def test_a_call_that_raises_is_made_again_for_its_rows():
    counts = Counter()

    @sa.async_function("doubled long", batch=batched(97))
    async def fails_once(batch):
        ids = batch["id"].to_pylist()
        counts.update(ids)
        if counts[ids[0]] == 1:
            raise ConnectionError
        return doubled(batch)

    retry = sa.retry.fixed_delay(13, "1ms", if_exception=ConnectionError)
    assert found(sa.arrow.unordered_wait(table(), fails_once, retry=retry)) == EXPECTED
    assert sum(counts.values()) > ROWS


def test_rows_that_time_out_fail_and_the_others_are_called():
    held, cancelled = [], []

    @sa.async_function("doubled long", batch=batched(7))
    async def hangs(batch):
        if 13 in batch["id"].to_pylist():
            held.extend(batch["id"].to_pylist())
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.extend(batch["id"].to_pylist())
                raise
        return doubled(batch)

    out = sa.arrow.unordered_wait(table(101), hangs, timeout="613ms", on_error="capture")
    rows = out.to_table().to_pylist()
    assert len(rows) == 101
    failed = [row for row in rows if row["error"] is not None]
    assert {13, *held} <= {row["id"] for row in failed}
    assert {row["error"]["kind"] for row in failed} == {"element-timed-out"}
    assert cancelled == held
    assert all(row["doubled"] == 2 * row["id"] for row in rows if row["error"] is None)


def test_a_fallback_gets_rows():
    never = threading.Event()

    @sa.async_function("doubled long", batch=batched(7))
    async def hangs(batch):
        await asyncio.Event().wait()

    out = sa.arrow.unordered_wait(
        table(23), hangs, timeout="61ms", on_timeout=lambda row: {"doubled": 2 * row.id}
    )
    assert found(out) == EXPECTED[:23]
    assert not never.is_set()


def test_a_row_with_a_text_that_is_not_utf8_fails_alone():
    texts = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    rows = pa.table({"id": [0, 1, 2], "text": texts})
    function = sa.async_function("doubled long", batch=batched())(doubled)
    out = sa.arrow.ordered_wait(rows, function, on_error="capture").to_table()

    assert out["doubled"].to_pylist() == [0, None, 4]
    assert [it and it["kind"] for it in out["error"].to_pylist()] == [None, "text-invalid", None]


def test_it_goes_side_by_side_and_in_a_chain():
    batches = sa.async_function("doubled long", batch=batched(97))(doubled)

    @sa.async_function("tripled long")
    async def tripled(row):
        return {"tripled": 3 * row.id}

    @sa.async_function("sum long", batch=batched(61))
    async def add(batch):
        return pa.RecordBatch.from_pydict({"sum": pc.add(batch["doubled"], batch["tripled"])})

    first = sa.arrow.unordered_wait(table(), [batches, tripled])
    out = sa.arrow.ordered_wait(first, add, chain=True)
    assert found(out, "sum") == [(i, 5 * i) for i in range(ROWS)]


class Scores(sa.AsyncFunction):
    schema = "doubled long"
    batch = sa.Batch(max_rows=61, arrow=True)

    def open(self, context):
        self.factor = pa.scalar(2)

    async def async_invoke_batch(self, rows):
        return pa.RecordBatch.from_pydict({"doubled": pc.multiply(rows["id"], self.factor)})


def test_a_class_may_be_one():
    assert found(sa.arrow.ordered_wait(table(), Scores())) == EXPECTED


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sa.Batch(arrow="yes"), "`arrow` must be a bool"),
        (lambda: sa.Batch(arrow=True, max_bytes="1 MB"), "`max_bytes` counts the cells of rows"),
        (
            lambda: sa.arrow.ordered_wait(
                [], Scores(), retry=sa.retry.fixed_delay(2, 0, if_result=sa.retry.if_empty)
            ),
            "`if_result` looks at rows",
        ),
    ],
)
def test_a_wrong_use_is_refused(make, words):
    with pytest.raises(sa.ConfigurationError, match=words):
        make()
