# SPDX-License-Identifier: Apache-2.0
"""The row that a function gets: by attribute and by key, and what its cells are."""

import asyncio
import copy
import json
import pickle
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._values.cells import Struct


def row_of(columns, schema=None):
    """Returns the row that a function gets for the first one of `columns`."""
    seen = []

    @sa.async_function("n int")
    async def look(row):
        seen.append(row)
        return {"n": 1}

    batch = pa.RecordBatch.from_pydict(columns, schema=schema)
    list(arrow.ordered_wait([batch], look))
    return seen[0]


@pytest.fixture(scope="module")
def row():
    return row_of({"id": [7], "channel": ["c"], "attempt": [None], "keys": [3], "name": ["Ada"]})


def test_a_column_is_an_attribute_whatever_its_name(row):
    assert (row.id, row.channel, row.attempt, row.name) == (7, "c", None, "Ada")


def test_a_column_named_like_a_method_is_reached_by_key(row):
    assert row["keys"] == 3
    assert list(row.keys()) == ["id", "channel", "attempt", "keys", "name"]


def test_a_row_is_a_mapping(row):
    assert isinstance(row, Mapping)
    cells = {"id": 7, "channel": "c", "attempt": None, "keys": 3, "name": "Ada"}
    assert dict(row) == cells == row.asDict()
    assert {**row} == cells == row | {}
    assert row | {"id": 8} == {**cells, "id": 8}
    assert {"id": 8, "x": 1} | row == {**cells, "x": 1}
    assert row | row == cells
    assert "name" in row
    assert "Name" not in row
    assert row.get("Name", 5) == 5
    match row:
        case {"id": 7, "name": name}:
            assert name == "Ada"
        case _:
            pytest.fail("not matched")


def test_a_row_is_read_only(row):
    with pytest.raises(AttributeError):
        row.id = 8
    with pytest.raises(TypeError):
        row["id"] = 8
    with pytest.raises(TypeError):
        del row["id"]


def test_a_missing_attribute_names_the_columns_near_it(row):
    with pytest.raises(AttributeError, match="the row has no column `nam`; did you mean `name`"):
        _ = row.nam
    with pytest.raises(AttributeError, match="no column `zzz`; it has `id`, `channel`, `attempt`"):
        _ = row.zzz
    assert getattr(row, "nam", 5) == 5
    assert not hasattr(row, "__array__")


def test_the_columns_are_offered_for_completion(row):
    assert {"name", "id", "get", "asDict"} <= set(dir(row))


def test_a_copy_and_a_pickled_row_have_the_same_cells(row):
    for copied in (copy.copy(row), copy.deepcopy(row), pickle.loads(pickle.dumps(row))):  # noqa: S301
        assert copied == row
        assert (copied.name, copied["keys"]) == ("Ada", 3)


def test_a_row_shows_its_columns_and_no_cells(row):
    assert repr(row) == "Row('id', 'channel', 'attempt', 'keys', 'name')"


NESTED = pa.struct(
    [
        ("x", pa.int32()),
        ("m", pa.map_(pa.string(), pa.struct([("y", pa.int32())]))),
        ("l", pa.list_(pa.struct([("z", pa.map_(pa.int32(), pa.string()))]))),
    ]
)


def test_a_struct_is_a_dict_with_attributes():
    cell = {"x": 1, "m": [("a", {"y": 2})], "l": [{"z": [(1, "b")]}, None]}
    row = row_of({"s": [cell]}, pa.schema([("s", NESTED)]))
    plain = {"x": 1, "m": {"a": {"y": 2}}, "l": [{"z": {1: "b"}}, None]}
    assert row.s == plain == row["s"]
    assert row.s.m["a"].y == 2
    assert row.s.l[0].z[1] == "b"
    assert json.loads(json.dumps(row["s"]))["m"] == {"a": {"y": 2}}
    with pytest.raises(AttributeError, match="the struct has no field `xx`; did you mean `x`"):
        _ = row.s.xx


def test_as_dict_is_recursive_if_asked_for():
    row = row_of({"s": [{"x": 1, "m": [("a", {"y": 2})], "l": []}]}, pa.schema([("s", NESTED)]))
    assert type(row.asDict()["s"]) is Struct
    plain = row.asDict(recursive=True)
    assert type(plain["s"]) is dict
    assert type(plain["s"]["m"]["a"]) is dict
    assert row.asDict(True) == row.asDict()
    assert type(row.s.asDict()["m"]["a"]) is Struct
    assert type(row.s.asDict(recursive=True)["m"]["a"]) is dict


def test_a_map_is_a_dict_of_which_the_last_key_counts():
    row = row_of(
        {"m": [[("a", 1), ("b", None), ("a", 2)]]},
        pa.schema([("m", pa.map_(pa.string(), pa.int32()))]),
    )
    assert row["m"] == {"a": 2, "b": None}
    assert "a" in row["m"]


def test_structs_are_keys_of_maps():
    kind = pa.map_(pa.struct([("x", pa.int32())]), pa.int32())
    row = row_of({"m": [[({"x": 1}, 5)]]}, pa.schema([("m", kind)]))
    assert row.m[Struct(x=1)] == 5


def test_lists_of_each_kind_are_lists():
    kinds = [pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 2)]
    schema = pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)])
    batch = pa.RecordBatch.from_pydict({f"c{i}": [[9, 9], [1, None]] for i in range(3)}, schema)
    row = row_of({name: batch.column(name).slice(1) for name in batch.schema.names}, schema)
    assert list(row.values()) == [[1, None]] * 3


def test_a_sliced_batch_has_its_own_cells():
    schema = pa.schema([("s", NESTED), ("m", pa.map_(pa.string(), pa.int32()))])
    values = [{"s": {"x": i, "m": [], "l": []}, "m": [("k", i)] * (i + 1)} for i in range(4)]
    batch = pa.RecordBatch.from_pylist(values, schema=schema).slice(2)
    row = row_of({"s": batch.column(0), "m": batch.column(1)}, schema)
    assert (row.s.x, row.m) == (2, {"k": 2})


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("UTC", 0),
        ("Z", 0),
        ("+02:00", 2),
        ("-0130", -1.5),
        ("GMT+8", 8),
        ("UTC-05:00", -5),
        ("Asia/Kolkata", 5.5),
    ],
)
def test_a_timestamp_is_an_aware_datetime_in_any_zone_that_spark_knows(name, offset):
    micros = 1_720_000_000_000_001
    schema = pa.schema([("t", pa.timestamp("us", tz=name))])
    row = row_of({"t": pa.array([micros], pa.int64()).view(schema.types[0])}, schema)
    assert row.t.utcoffset() == timedelta(hours=offset)
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert row.t - epoch == timedelta(microseconds=micros)


def test_the_hour_that_is_there_twice_keeps_its_instant():
    schema = pa.schema([("t", pa.timestamp("us", tz="America/New_York"))])
    second = datetime(2024, 11, 3, 6, 30, tzinfo=timezone.utc)
    row = row_of({"t": [second]}, schema)
    assert (row.t.hour, row.t.fold) == (1, 1)
    assert row.t == second.astimezone(ZoneInfo("America/New_York"))
    assert row.t.astimezone(timezone.utc) == second


def test_a_zone_that_nobody_knows_is_named():
    schema = pa.schema([("t", pa.timestamp("us", tz="Mars/Olympus"))])
    row = row_of({"t": pa.array([1], pa.int64()).view(schema.types[0])}, schema)
    with pytest.raises(ValueError, match="time zone `Mars/Olympus` is not known here"):
        _ = row.t


def test_two_fields_of_one_name_are_refused():
    kind = pa.struct([pa.field("a", pa.int32()), pa.field("a", pa.int32())])
    cells = pa.StructArray.from_arrays(
        [pa.array([1], pa.int32()), pa.array([2], pa.int32())], fields=list(kind)
    )
    with pytest.raises(ValueError, match="two fields of one name"):
        _ = row_of({"s": cells}, pa.schema([("s", kind)])).s


def test_a_row_that_is_made_by_hand_says_how_a_function_is_tested():
    with pytest.raises(TypeError, match="a `Row` is made by a task; to test a function") as info:
        sa.typing.Row(id=3)

    assert 'call it with a dict, as in `await function({"id": 3})`' in str(info.value)
    assert '`sparkawait.arrow.ordered_wait([{"id": 3}], function).to_table()`' in str(info.value)


def test_a_dict_is_a_row_for_a_declared_function_that_is_called_by_itself():
    @sa.async_function("n int")
    async def one(row):
        return {"n": row.id + row["id"] + len(row.asDict()) + row.inner["a"]}

    @sa.async_function("n int", batch=3)
    def many(rows, more=1):
        return [{"n": row.id + more} for row in rows]

    given = {"id": 3, "inner": {"a": 7}}
    assert asyncio.run(one(given)) == {"n": 15}
    assert many([{"id": 3}, {"id": 5}], more=2) == [{"n": 5}, {"n": 7}]
    with pytest.raises(AttributeError, match="has no field `ix`; it has `id`"):
        asyncio.run(sa.async_function("n int")(lambda row: row.ix)({"id": 3}))
    assert given == {"id": 3, "inner": {"a": 7}}


def test_a_time_that_python_has_no_room_for_is_refused_and_not_cut():
    @sa.async_function("shown string")
    async def show(row):
        return {"shown": str([row.time, *row.times])}

    nanos = [3_600_000_001_000, 3_600_000_000_001, None]
    times = pa.array(nanos, pa.time64("ns"))
    column = pa.array([[it] for it in times.to_pylist()[:1]] * 3, pa.list_(pa.time64("ns")))
    batch = pa.record_batch({"time": times, "times": column})
    out = list(arrow.ordered_wait([batch], show, on_error="capture"))
    shown = [it for part in out for it in part["shown"].to_pylist()]
    errors = [it for part in out for it in part["error"].to_pylist()]
    assert shown[0].count("datetime.time(1, 0, 0, 1)") == 2
    assert [it is None for it in errors] == [True, False, True]
    assert "finer than a microsecond" in errors[1]["message"]
