# SPDX-License-Identifier: Apache-2.0
"""The wait functions over Arrow take whatever has rows; whatever reads rows takes the output."""

import asyncio
import importlib
import io
import itertools
import sys
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._checks import warn_once
from sparkawait.arrow import Batches

ROWS = [{"id": i, "word": None if i % 3 else f"w{i}"} for i in range(13)]
EXPECTED = [{**row, "square": row["id"] ** 2} for row in ROWS]
PARTS = [ROWS[:5], ROWS[5:7], ROWS[7:]]


@sa.async_function("square long")
async def square(row):
    await asyncio.sleep(0)
    return {"square": row["id"] ** 2}


@sa.async_function("seen boolean")
async def mirror(row):
    return {"seen": True}


def out() -> Batches:
    return sa.arrow.ordered_wait(pa.Table.from_pylist(ROWS), square)


def polars(name, *arguments):
    return getattr(pytest.importorskip("polars"), name)(*arguments)


# --- what reads the output


def read_by_a_loop():
    return [row for batch in out() for row in batch.to_pylist()]


def read_by_rich():
    console = pytest.importorskip("rich.console").Console(file=io.StringIO())
    track = importlib.import_module("rich.progress").track
    return [row for batch in track(out(), console=console) for row in batch.to_pylist()]


def read_by_tqdm():
    tqdm = pytest.importorskip("tqdm").tqdm
    return [row for batch in tqdm(out(), file=io.StringIO()) for row in batch.to_pylist()]


def read_by_tqdm_auto():
    tqdm = pytest.importorskip("tqdm.auto").tqdm
    return [row for batch in tqdm(out(), file=io.StringIO()) for row in batch.to_pylist()]


def read_after_a_look_for_an_asynchronous_iterator():
    """As `tqdm.auto` does in its constructor."""
    output = out()
    aiter(output)
    return [row for batch in output for row in batch.to_pylist()]


def read_by_async_for():
    async def read():
        return [row async for batch in out() for row in batch.to_pylist()]

    return asyncio.run(read())


def read_by_polars():
    return polars("DataFrame", out()).to_dicts()


def read_by_polars_as_a_series():
    """What `from_arrow` makes of any stream, as the guide says."""
    series = polars("from_arrow", out())
    assert isinstance(series, pytest.importorskip("polars").Series)
    return series.to_list()


def read_by_pandas():
    pandas = pytest.importorskip("pandas")
    if not hasattr(pandas.DataFrame, "from_arrow"):
        pytest.skip("pandas reads no streams before version 3")
    frame = pandas.DataFrame.from_arrow(out())
    return pa.Table.from_pandas(frame).to_pylist()


def read_by_duckdb():
    duckdb = pytest.importorskip("duckdb")
    output = out()  # noqa: F841 - named in the query
    with duckdb.connect() as connection:
        return pa.table(connection.sql("from output").to_arrow_table()).to_pylist()


READERS = [it for name, it in list(globals().items()) if name.startswith("read_")]


@pytest.mark.parametrize("read", READERS)
def test_it_is_read_by(read):
    assert read() == EXPECTED


def test_an_asynchronous_iterator_that_asks_for_no_batch_reads_nothing():
    output = out()
    aiter(output)
    assert output.to_table().to_pylist() == EXPECTED
    with pytest.raises(sa.ConfigurationError, match="is read once"):
        asyncio.run(anext(aiter(output)))


# --- what is taken as input


def of_each(make):
    return [make(part) for part in PARTS]


def columns(part):
    return {name: [row[name] for row in part] for name in part[0]}


def typed(part):
    return pa.Table.from_pylist(part, schema=pa.schema({"id": pa.int64(), "word": pa.string()}))


class OnlyAStream:
    """What polars, DuckDB and others hand out, and nothing else that PyArrow knows."""

    def __init__(self, part):
        self._table = typed(part)

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


INPUTS = {
    "list of dicts": lambda: ROWS,
    "dict of lists": lambda: columns(ROWS),
    "lists of dicts": lambda: PARTS,
    "dicts of lists": lambda: iter(of_each(columns)),
    "tables": lambda: of_each(typed),
    "streams": lambda: of_each(OnlyAStream),
    "polars frames": lambda: [polars("DataFrame", typed(part)) for part in PARTS],
    "readers": lambda: [typed(part).to_reader() for part in PARTS],
    "pages, of which some are empty": lambda: iter([[], PARTS[0], [], *PARTS[1:], []]),
    "a table, then dicts": lambda: [typed(PARTS[0]), PARTS[1], columns(PARTS[2])],
}


@pytest.mark.parametrize("is_generator", [False, True])
@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
def test_it_takes(make, is_generator):
    source = make()
    if is_generator:
        if source is ROWS or isinstance(source, dict):
            source = [source]
        source = (it for it in source)
    assert sa.arrow.ordered_wait(source, square).to_table().to_pylist() == EXPECTED


@pytest.mark.parametrize("make", INPUTS.values(), ids=INPUTS)
def test_it_takes_them_asynchronously(make):
    source = make()
    parts = [source] if source is ROWS or isinstance(source, dict) else source

    async def pages():
        for part in parts:
            await asyncio.sleep(0)
            yield part

    async def read():
        output = sa.arrow.ordered_wait(pages(), square)
        return [row async for batch in output for row in batch.to_pylist()]

    assert asyncio.run(read()) == EXPECTED


def test_a_key_that_only_some_rows_have_is_a_column_too():
    rows = [{"id": 1}, {"id": 2, "late": "x"}]
    output = sa.arrow.ordered_wait(rows, square).to_table()
    assert output.column("late").to_pylist() == [None, "x"]


def test_the_schema_of_parts_is_that_of_the_first():
    parts = [[{"id": 1, "word": "a"}], [{"id": 2}], {"word": ["c"], "id": [3]}]
    output = sa.arrow.ordered_wait(iter(parts), square)
    assert output.schema.names == ["id", "word", "square"]
    assert output.to_table().column("word").to_pylist() == ["a", None, "c"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([{"id": 1}, 7], "has a list for each column, and `id` has a `int`"),
        ([[{"id": 1}], 7], "the input must hold record batches, .*got `int`"),
        ([[{"id": 1}], [{"id": 2, "new": 3}]], "got a column `new`, and began with id"),
        ([[{"id": 1}], {"new": [3]}], "got a column `new`"),
        ([[{"id": 1, "k": "a"}], {"id": [2]}], "lacks column `k`"),
        ([{"id": 1}, {"id": "secret"}], "`id` has values of types `int` and `str`, which do not"),
        ([[{"id": 1}], [{"id": "secret"}]], "`id` is int64 in what came before, and has a value"),
        ([{"id": 2**64}], "input column `id` has values of type `int` that do not fit; give"),
        ({"id": 7}, "has a list for each column, and `id` has a `int`"),
        ({"id": "secret"}, "has a list for each column, and `id` has a `str`"),
        ({"id": [1, 2], "k": [3]}, r"have several lengths: \[1, 2\]"),
        ([{1: 2}], "must be named by a str, got 1"),
        (7, "`batches` must hold record batches, .*got `int`"),
    ],
)
def test_what_makes_no_table_is_refused_without_its_values(source, words):
    source = iter(source) if isinstance(source, list) and isinstance(source[0], list) else source
    with pytest.raises(sa.ConfigurationError, match=words) as info:
        sa.arrow.ordered_wait(source, square).to_table()
    assert "secret" not in str(info.value)


NUL = pa.table({"a\0b": [3, 1, 7]})


@pytest.mark.parametrize(
    "source",
    [
        NUL,
        NUL.to_batches(),
        NUL.to_reader(),
        {"a\0b": [3]},
        [{"a\0b": 3}],
        pa.table({"id": [{"a\0b": 3}]}),
    ],
    ids=["table", "batches", "reader", "columns", "rows", "field"],
)
def test_a_name_that_arrow_would_end_early_is_refused(source):
    words = r"the input has a column or field 'a\\x00b', with the character NUL; rename it"
    with pytest.raises(sa.ConfigurationError, match=words):
        sa.arrow.ordered_wait(source, square).to_table()
    with pytest.raises(sa.ConfigurationError, match=words.replace("the input", "`schema`")):
        sa.arrow.ordered_wait([{"id": 3}], square, schema=pa.schema([("a\0b", pa.int64())]))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"keeps_input": False}, "unknown option `keeps_input`"),
        ({"hidden": ["b"]}, "unknown option `hidden`"),
        ({"results": "none"}, "unknown option `results`"),
        ({"travels": True}, "unknown option `travels`"),
        ({"key": "id"}, "it belongs to key_ordered_wait"),
    ],
)
def test_only_options_are_options(given, words):
    with pytest.raises(sa.ConfigurationError, match=words):
        sa.arrow.ordered_wait(ROWS, square, **given)


DAY = date(2026, 1, 1)
NAIVE = datetime.fromisoformat("2026-01-01T05:30")
AWARE = NAIVE.replace(tzinfo=timezone(timedelta(hours=9)))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (1, 1.5),
        (1, True),
        (1.5, 2**53 + 1),
        ("a", b"a"),
        (DAY, NAIVE),
        (DAY, 5),
        (NAIVE, DAY),
        (NAIVE, AWARE),
        (AWARE, NAIVE),
        (NAIVE, 5),
        (timedelta(1), 5),
        (NAIVE, pd.Timestamp("2026-01-01T05:30:00.000000007")),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": DAY}, {"a": NAIVE}),
        ([NAIVE], [NAIVE, AWARE]),
        (DAY, pd.Series([NAIVE])),
        (NAIVE, pd.Series([AWARE])),
        (1, np.array([1.5])),
    ],
    ids=itertools.count(),
)
def test_a_value_that_its_column_has_no_place_for_is_refused(first, then):
    then = {"c": then if hasattr(then, "dtype") else [then]}
    with pytest.raises(
        sa.ConfigurationError, match=r"input column `c.*` is .* came before, and has"
    ):
        sa.arrow.ordered_wait(iter([[{"c": first}], then]), mirror).to_table()


@pytest.mark.parametrize(
    "values",
    [
        [DAY, NAIVE],
        [NAIVE, AWARE],
        [AWARE, None, NAIVE],
        [NAIVE, 5],
        [timedelta(1), 5],
        [[DAY], [NAIVE]],
        [{"a": AWARE}, {"a": NAIVE}],
        [pd.Timestamp("2026-01-01T05:30:00.000000007")],
    ],
    ids=itertools.count(),
)
@pytest.mark.parametrize("given", ["dicts", "objects", "frame"])
def test_values_of_several_types_are_refused(values, given):
    objects = pd.Series([None, *values], dtype=object)
    sources = {
        "dicts": [{"c": it} for it in values],
        "objects": {"c": objects},
        "frame": pd.DataFrame({"c": objects}),
    }
    words = "input column `c.*` has .* beside values of|input column `c` has values of types"
    with pytest.raises(sa.ConfigurationError, match=words):
        sa.arrow.ordered_wait(sources[given], mirror).to_table()


def test_a_frame_in_the_result_of_a_function_with_a_column_of_several_types_is_refused():
    @sa.async_function("c date", batch=sa.Batch(arrow=True))
    async def mixed(batch):
        return pd.DataFrame({"c": pd.Series([DAY, NAIVE], dtype=object)})

    with pytest.raises(sa.AsyncIOError, match=r"returned column `c` with a value of type"):
        sa.arrow.ordered_wait([{"id": 3}, {"id": 1}], mixed).to_table()


@pytest.mark.parametrize(
    ("values", "read"),
    [
        ([1, None, 2.5], [1.0, None, 2.5]),
        ([1, Decimal("1.5")], [Decimal("1.0"), Decimal("1.5")]),
        (["a", b"b"], [b"a", b"b"]),
        ([{"a": 1}, {"b": 2}], [{"a": 1, "b": None}, {"a": None, "b": 2}]),
        ([[1], (2.5,), None], [[1.0], [2.5], None]),
        ([np.int8(1), 300], [1, 300]),
        (np.array([1, 2], "int8"), [1, 2]),
        (pd.Series([1.5, None]), [1.5, None]),
        (pa.array([1, None]), [1, None]),
        (pa.chunked_array([[1], [None]]), [1, None]),
        ([AWARE, AWARE.astimezone(timezone.utc)], [AWARE, AWARE]),
        ([pd.NaT, NAIVE], [None, NAIVE]),
        ([DAY, pd.NaT], [DAY, None]),
        ([pd.NA, 1], [None, 1]),
        (pd.Series([float("nan"), "a"], dtype=object), [None, "a"]),
        (pd.Series([None, 1, 2.5], dtype=object), [None, 1.0, 2.5]),
    ],
    ids=itertools.count(),
)
def test_values_that_fit_one_type_are_taken(values, read):
    assert sa.arrow.ordered_wait({"c": values}, mirror).to_table()["c"].to_pylist() == read
    # As the second part, too.
    column = pa.table({"c": read})["c"]
    parts = iter([pa.table({"c": column}), {"c": values}])
    assert sa.arrow.ordered_wait(parts, mirror).to_table()["c"].to_pylist() == read * 2


# --- reads on a running loop


@pytest.fixture
def warnings(caplog):
    warn_once.cache_clear()
    yield lambda: [line for line in caplog.messages if "is read by a coroutine" in line]
    warn_once.cache_clear()


async def read_here():
    return out().to_table().num_rows


def test_a_read_that_blocks_a_loop_is_told(warnings):
    assert asyncio.run(read_here()) == 13
    assert asyncio.run(read_here()) == 13
    [line] = warnings()
    assert "`square` is read by a coroutine" in line
    assert "async for batch in out" in line


def test_other_reads_are_not(warnings):
    async def read():
        await asyncio.to_thread(lambda: out().to_table())
        async for _ in out():
            pass

    asyncio.run(read())
    out().to_table()
    assert warnings() == []


def test_the_loop_of_jupyter_waits_for_the_cell_anyway(warnings, monkeypatch):
    class IPKernelApp:
        kernel = SimpleNamespace(io_loop=SimpleNamespace(asyncio_loop=None))
        initialized = staticmethod(lambda: True)
        instance = staticmethod(lambda: IPKernelApp)

    monkeypatch.setitem(
        sys.modules, "ipykernel.kernelapp", SimpleNamespace(IPKernelApp=IPKernelApp)
    )

    async def cell():
        IPKernelApp.kernel.io_loop.asyncio_loop = asyncio.get_running_loop()
        return await read_here()

    assert asyncio.run(cell()) == 13
    assert warnings() == []
    IPKernelApp.kernel.io_loop.asyncio_loop = None
    asyncio.run(read_here())
    assert len(warnings()) == 1


# The oldest pyarrow makes frames of pandas in a way that the newest pandas warns of.
@pytest.mark.filterwarnings("ignore:Passing a BlockManager:DeprecationWarning")
def test_a_data_frame_of_pandas_is_not_made_of_an_output_that_it_would_put_into_one_cell():
    pandas, output = pytest.importorskip("pandas"), out()

    with pytest.raises(sa.ConfigurationError, match=r"write `out.to_table\(\).to_pandas\(\)`"):
        pandas.DataFrame(output)

    assert output.to_table().to_pandas().shape == (13, 3)
