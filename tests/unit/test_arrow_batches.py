# SPDX-License-Identifier: Apache-2.0
"""What a wait function over Arrow returns: an iterator, an Arrow stream and a table, read once."""

import asyncio
import contextvars
import sqlite3
import threading
from concurrent.futures import Future

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait.exceptions import OperatorStateError

WAITS = [sa.arrow.ordered_wait, sa.arrow.unordered_wait]


@sa.async_function("square long, word string")
async def square(row):
    await asyncio.sleep(0)
    return {"square": row["id"] ** 2, "word": None if row["id"] % 5 else f"w{row['id']}"}


@sa.async_function("square long")
async def fails_at_7(row):
    if row["id"] == 7:
        raise ValueError("seven")
    return {"square": row["id"] ** 2}


def numbers(rows: int = 13) -> pa.Table:
    return pa.table({"id": pa.array(range(rows), pa.int64()), "ü": ["x"] * rows})


def reader_of(out: object) -> pa.RecordBatchReader:
    """What PyArrow makes of a stream; before 15 it had no public name for that."""
    if hasattr(pa.RecordBatchReader, "from_stream"):
        return pa.RecordBatchReader.from_stream(out)
    return pa.RecordBatchReader._import_from_c_capsule(out.__arrow_c_stream__())


def pairs(table: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(table["id"].to_pylist(), table["square"].to_pylist(), strict=True))


EXPECTED = [(i, i * i) for i in range(13)]


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("on_error", ["fail", "capture"])
def test_its_schema_is_that_of_each_batch(wait, on_error):
    out = wait(numbers(), square, on_error=on_error)
    schema = out.schema
    found = list(out)

    assert {batch.schema for batch in found} == {schema}
    assert sum(batch.num_rows for batch in found) == 13


def test_the_schema_of_an_iterator_is_that_of_its_first_batch_which_is_not_lost():
    batches = numbers().to_batches(max_chunksize=3)
    out = sa.arrow.ordered_wait(iter(batches), square)

    assert out.schema.names == ["id", "ü", "square", "word"]
    assert pairs(out.to_table()) == EXPECTED


@pytest.mark.parametrize("rows", [0, 13])
def test_a_stream_of_it_is_what_pyarrow_makes_of_the_rows_by_hand(rows):
    by_hand = [
        {**row, "square": row["id"] ** 2, "word": None if row["id"] % 5 else f"w{row['id']}"}
        for row in numbers(rows).to_pylist()
    ]

    out = sa.arrow.ordered_wait(numbers(rows), square)
    read = reader_of(out).read_all()

    assert read.equals(pa.Table.from_pylist(by_hand, schema=out.schema))


def test_polars_reads_it_and_is_read():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"id": list(range(13)), "day": ["mon"] * 13})

    read = polars.DataFrame(sa.arrow.ordered_wait(frame, square))

    expected = frame.with_columns(square=polars.col("id") ** 2)
    assert read.drop("word").equals(expected)
    assert polars.DataFrame(sa.arrow.ordered_wait(frame.head(0), square)).columns == read.columns


@pytest.mark.parametrize("is_reader", [True, False])
def test_duckdb_reads_it(is_reader):
    duckdb = pytest.importorskip("duckdb")
    out = sa.arrow.unordered_wait(numbers(), square)

    with duckdb.connect() as connection:
        relation = (
            connection.from_arrow(out.to_reader()) if is_reader else connection.sql("from out")
        )
        [(rows, total)] = relation.aggregate("count(*), sum(square)").fetchall()

    assert (rows, total) == (13, sum(i * i for i in range(13)))


def test_no_rows_are_no_error():
    empty = iter(numbers().to_batches(max_chunksize=3)[:0])
    reader = pa.RecordBatchReader.from_batches(numbers().schema, empty)

    table = sa.arrow.ordered_wait(reader, square).to_table()

    assert (table.num_rows, table.schema.names) == (0, ["id", "ü", "square", "word"])
    assert list(sa.arrow.ordered_wait(iter([]), square)) == []


def test_columns_that_nobody_knows_are_asked_for():
    out = sa.arrow.ordered_wait(iter([]), square)

    with pytest.raises(sa.ConfigurationError, match=r"the input has no batch, .* give a table"):
        out.to_table()


async def first_of(out):
    return await anext(aiter(out))


AGAIN = {
    "list": list,
    "table": lambda out: out.to_table(),
    "stream": lambda out: out.__arrow_c_stream__(),
    "async for": lambda out: asyncio.run(first_of(out)),
}


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
def test_it_is_read_once(again):
    out = sa.arrow.ordered_wait(numbers(), square)
    assert out.to_table().num_rows == 13

    with pytest.raises(sa.ConfigurationError, match="is read once"):
        again(out)


def test_a_loop_may_go_on_where_another_one_stopped():
    batches = sa.Tuning(max_rows=5, buffer_timeout=None)
    out = sa.arrow.ordered_wait(numbers(), square, tuning=batches)
    first = next(iter(out))

    assert first.num_rows + sum(batch.num_rows for batch in out) == 13


def test_a_failure_passes_through_a_stream_with_its_text():
    reader = reader_of(sa.arrow.ordered_wait(numbers(), fails_at_7))

    with pytest.raises(Exception, match="failed for row 7"):
        reader.read_all()


def test_counters_can_be_read():
    out = sa.arrow.ordered_wait(numbers(), square)
    assert out.metrics == {}
    out.to_table()

    assert (out.metrics["admitted"], out.metrics["emitted"]) == (13, 13)


class Source:
    """Batches that come on the event loop of the test, and on no other."""

    def __init__(self, rows: int) -> None:
        self.batches = numbers(rows).to_batches(max_chunksize=3)
        self.loops: set[object] = set()
        self.is_closed = False

    async def __aiter__(self):
        try:
            for batch in self.batches:
                self.loops.add(asyncio.get_running_loop())
                await asyncio.sleep(0)
                yield batch
        finally:
            self.is_closed = True


@pytest.mark.parametrize("wait", WAITS)
def test_async_for_reads_what_async_for_gives(wait):
    source = Source(13)

    async def read():
        found = [batch async for batch in wait(source, square)]
        return asyncio.get_running_loop(), pa.Table.from_batches(found)

    loop, table = asyncio.run(read())

    assert pairs(table) == EXPECTED
    assert source.loops == {loop}


def test_the_event_loop_goes_on_while_a_batch_is_awaited():
    async def read():
        caller, may_answer = asyncio.get_running_loop(), asyncio.Event()

        @sa.async_function("square long")
        async def waits(row):
            waiting = asyncio.run_coroutine_threadsafe(may_answer.wait(), caller)
            await asyncio.wrap_future(waiting)
            return {"square": row["id"] ** 2}

        caller.call_soon(may_answer.set)
        return [batch async for batch in sa.arrow.ordered_wait(numbers(), waits)]

    assert pairs(pa.Table.from_batches(asyncio.run(read()))) == EXPECTED


def test_an_iteration_that_is_cancelled_ends_the_calls():
    started, cancelled = threading.Event(), threading.Event()

    @sa.async_function("square long")
    async def hangs(row):
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    async def read():
        async def all_of_it():
            return [batch async for batch in sa.arrow.ordered_wait(Source(13), hangs)]

        task = asyncio.create_task(all_of_it())
        await asyncio.to_thread(started.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(cancelled.wait)

    asyncio.run(read())
    assert cancelled.is_set()


def test_input_that_somebody_cancels_is_not_at_its_end():
    async def pages():
        yield pa.table({"id": range(3)})
        page = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(page.cancel)
        await page
        yield pa.table({"id": range(10)})

    async def read():
        return [batch async for batch in sa.arrow.unordered_wait(pages(), square)]

    with pytest.raises(sa.AsyncIOError, match="`batches` let a cancellation out"):
        asyncio.run(read())


def test_an_asynchronous_iterator_is_not_read_without_a_loop():
    with pytest.raises(sa.ConfigurationError, match="take the output there, too: `async for batch"):
        list(sa.arrow.ordered_wait(Source(13), square))


# -- read once, in whatever way


async def all_of(out):
    return [batch async for batch in out]


WAYS = {
    "iterator": next,
    "table": lambda out: out.to_table(),
    "reader": lambda out: out.to_reader(),
    "async for": lambda out: asyncio.run(first_of(out)),
    "input": lambda out: sa.arrow.ordered_wait(out, fails_at_7),
    "chain": lambda out: sa.arrow.ordered_wait(out, fails_at_7, chain=True),
    "close": lambda out: out.close(),
}


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("second", [it for it in WAYS if it != "close"])
def test_a_second_reader_is_told_who_reads_it(first, second):
    out = sa.arrow.ordered_wait(numbers(), square, tuning=sa.Tuning(max_rows=2))
    held = WAYS[first](out)

    if (first, second) == ("table", "iterator"):  # all of it was read: an iterator at its end
        with pytest.raises(StopIteration):
            next(out)
    elif first == second == "iterator":
        assert next(out).num_rows == 2
    else:
        with pytest.raises((sa.ConfigurationError, OperatorStateError)) as info:
            WAYS[second](out)
        assert any(it in str(info.value) for it in ("read once", "was closed", "`chain` needs"))
    del held


def test_one_of_two_readers_has_all_rows_and_the_other_an_error():
    out = sa.arrow.ordered_wait(numbers(), square)
    reader = out.to_reader()

    with pytest.raises(sa.ConfigurationError, match="a reader of it was made; call the wait"):
        out.to_reader()
    assert reader.read_all().num_rows == 13


class Held(sa.AsyncFunction):
    """Calls that wait for their test."""

    schema = "square long"

    def __init__(self) -> None:
        self.started, self.ended = threading.Event(), threading.Event()
        self.gate: Future[None] = Future()

    async def async_invoke(self, row):
        self.started.set()
        try:
            await asyncio.wrap_future(self.gate)
        finally:
            self.ended.set()
        return {"square": row["id"] ** 2}


@pytest.fixture
def held():
    held = Held()
    yield held
    if not held.gate.done():
        held.gate.set_result(None)


def test_closing_it_ends_the_calls_of_an_async_for(held):
    async def read():
        out = sa.arrow.unordered_wait(numbers(), held)
        reading = asyncio.create_task(all_of(out))
        await asyncio.to_thread(held.started.wait)
        out.close()
        with pytest.raises(OperatorStateError, match="closed before all of its batches"):
            await reading

    asyncio.run(read())
    assert held.ended.wait(50)
    assert held.gate.cancelled()


def test_another_thread_may_close_it(held):
    out = sa.arrow.unordered_wait(numbers(), held)
    told = []

    def read():
        with pytest.raises(OperatorStateError, match="closed before all of its batches"):
            list(out)
        told.append(True)

    thread = threading.Thread(target=read)
    thread.start()
    assert held.started.wait(50)
    with pytest.raises(OperatorStateError, match="another thread waits for a batch"):
        next(out)
    out.close()
    thread.join(50)
    assert told == [True]
    assert held.ended.is_set()


def test_a_wait_for_a_batch_that_is_cancelled_is_not_the_end_of_the_rows(held):
    async def read():
        batches = aiter(sa.arrow.ordered_wait(numbers(), held))
        waiting = asyncio.create_task(anext(batches))
        await asyncio.to_thread(held.started.wait)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(OperatorStateError, match="was cancelled, which has ended its calls"):
            await anext(batches)
        await asyncio.to_thread(held.ended.wait)

    asyncio.run(read())
    assert held.gate.cancelled()


def test_a_wait_for_a_batch_that_takes_too_long_may_be_gone_on_with(held):
    async def read():
        batches = aiter(sa.arrow.ordered_wait(numbers(), held))
        waiting = asyncio.create_task(anext(batches))
        await asyncio.to_thread(held.started.wait)
        for _ in range(3):
            _, pending = await asyncio.wait({waiting}, timeout=0)
            assert pending == {waiting}
        held.gate.set_result(None)
        return [await waiting, *[batch async for batch in batches]]

    assert pairs(pa.Table.from_batches(asyncio.run(read()))) == EXPECTED


def test_a_second_loop_goes_on_with_an_iterator():
    out = sa.arrow.ordered_wait(numbers(), square, tuning=sa.Tuning(max_rows=5))
    batches = aiter(out)
    first = asyncio.run(anext(batches))

    rest = asyncio.run(all_of(batches))
    assert first.num_rows + sum(batch.num_rows for batch in rest) == 13


# -- what reads the input


def test_asynchronous_input_runs_in_one_task_with_the_readers_context():
    asked = contextvars.ContextVar("asked", default="nobody")
    tasks, seen = set(), []

    async def pages():
        for page in range(3):
            tasks.add(asyncio.current_task())
            seen.append(asked.get())
            asked.set(f"{asked.get()} {page}")
            yield {"id": [page]}
            await asyncio.sleep(0)

    async def read():
        asked.set("me")
        return await all_of(sa.arrow.ordered_wait(pages(), square))

    assert sum(batch.num_rows for batch in asyncio.run(read())) == 3
    assert (len(tasks), seen) == (1, ["me", "me 0", "me 0 1"])


def test_a_time_limit_within_the_input_holds():
    async def pages():
        never = asyncio.Event()
        task = asyncio.current_task()
        for page in range(3):
            yield {"id": [page]}
        # As the end of `asyncio.timeout` does, which Python 3.10 has not.
        asyncio.get_running_loop().call_soon(task.cancel)
        try:
            await never.wait()
        except asyncio.CancelledError:
            raise TimeoutError("the input took too long") from None

    with pytest.raises(TimeoutError, match="took too long"):
        asyncio.run(all_of(sa.arrow.ordered_wait(pages(), square)))


def test_input_that_is_not_read_to_its_end_is_closed():
    closed = threading.Event()

    async def pages():
        try:
            while True:
                yield {"id": [3]}
        finally:
            await asyncio.sleep(0)
            closed.set()

    async def read():
        batches = aiter(sa.arrow.ordered_wait(pages(), square))
        await anext(batches)
        await batches.aclose()
        await asyncio.to_thread(closed.wait)

    asyncio.run(read())
    assert closed.is_set()


@pytest.mark.parametrize("has_schema", [False, True])
def test_one_thread_reads_the_input_from_its_first_row_on(has_schema):
    def rows():
        with sqlite3.connect(":memory:") as store:
            store.execute("create table customers as select 1 as id union select 2 union select 3")
            for found in store.execute("select id from customers order by id"):
                yield [{"id": found[0]}]

    out = sa.arrow.ordered_wait(rows(), square)
    if has_schema:
        assert out.schema.names == ["id", "square", "word"]
    assert pairs(out.to_table()) == EXPECTED[1:4]


def test_a_first_page_that_does_not_come_holds_nothing_up():
    may_come, is_asked = threading.Event(), threading.Event()

    def pages():
        is_asked.set()
        may_come.wait()
        yield {"id": [1]}

    async def read():
        batches = aiter(sa.arrow.ordered_wait(pages(), square))
        waiting = asyncio.create_task(anext(batches))
        await asyncio.to_thread(is_asked.wait)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await batches.aclose()

    asyncio.run(read())
    # Python waits for threads of a pool when it ends.
    for thread in threading.enumerate():
        if thread.name.startswith("sparkawait-batches"):
            thread.join(50)
            assert not thread.is_alive()
    may_come.set()


def test_a_wait_over_a_wait_fails_with_the_error_of_the_first():
    inner = sa.arrow.ordered_wait(numbers(), fails_at_7)
    out = sa.arrow.ordered_wait(inner, sa.async_function("z long")(lambda _row: {"z": 1}))

    with pytest.raises(sa.AsyncFunctionError, match="`fails_at_7` failed for row 7") as info:
        out.to_table()
    assert isinstance(info.value.__cause__, ValueError)


def test_a_wait_over_a_wait_reads_asynchronous_input():
    again = sa.async_function("z long")(lambda row: {"z": row["square"]})

    out = sa.arrow.ordered_wait(sa.arrow.unordered_wait(Source(13), square), again)
    table = pa.Table.from_batches(asyncio.run(all_of(out)))

    assert pairs(table.select(["id", "square"])) == EXPECTED
    assert table["z"].equals(table["square"])


def test_pages_may_differ_in_what_is_said_of_their_nulls():
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    loose = pa.table({"id": [3, 4]})
    pages = [pa.table({"id": [1, 2]}).cast(strict), loose, pa.table({"id": [5]}).cast(strict)]

    table = sa.arrow.ordered_wait(iter(pages), square).to_table()
    assert table["id"].to_pylist() == [1, 2, 3, 4, 5]

    missing = [pages[0], pa.table({"id": pa.array([None], pa.int64())})]
    with pytest.raises(sa.ConfigurationError, match=r"from \(id int64 not null\) to \(id int64\)"):
        sa.arrow.ordered_wait(iter(missing), square).to_table()
