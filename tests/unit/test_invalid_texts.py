# SPDX-License-Identifier: Apache-2.0
"""Texts that are not UTF-8, which Spark's strings may be: they pass, and are refused where read."""

import asyncio

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait.exceptions import ErrorKind
from sparkawait.testing import simulated
from tests.support.scripted_server import ScriptedServer

WAITS = (arrow.ordered_wait, arrow.unordered_wait, arrow.key_ordered_wait)
BAD = b"\xffA"
VALUES = [b"a", BAD, None, "ä".encode()]


@sa.async_function("seen string")
async def read(row):
    return {"seen": str(row.v)}


@sa.async_function("y bigint")
async def look_away(row):
    return {"y": row.x}


def of(data_type, values):
    """A column of texts of these bytes, unchecked as those of Spark."""
    column = pa.array(values, like(data_type))
    return pa.RecordBatch._import_from_c_capsule(
        pa.schema([("v", data_type)]).__arrow_c_schema__(),
        pa.RecordBatch.from_arrays([column], names=["v"]).__arrow_c_array__()[1],
    ).column(0)


def like(data_type):
    """The type with bytes in the place of texts."""
    if data_type == pa.string():
        return pa.binary()
    if data_type == pa.large_string():
        return pa.large_binary()
    if pa.types.is_struct(data_type):
        return pa.struct([(field.name, like(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(like(data_type.key_type), like(data_type.item_type))
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(like(data_type.value_type), data_type.list_size)
    return pa.list_(like(data_type.value_type)) if pa.types.is_list(data_type) else data_type


def batch(values=VALUES, data_type=None, **others):
    column = of(data_type or pa.string(), values)
    numbers = pa.array(range(len(values)), pa.int64())
    names = ["x", "v", *others]
    return pa.RecordBatch.from_arrays([numbers, column, *map(pa.array, others.values())], names)


def texts(output, column="v"):
    """The bytes of the texts of a column, with the numbers of their rows, in order of these."""
    found = []
    for one in output:
        schema = pa.schema(
            [
                field.with_type(like(field.type)) if field.name == column else field
                for field in one.schema
            ]
        )
        seen = pa.RecordBatch._import_from_c_capsule(
            schema.__arrow_c_schema__(), one.__arrow_c_array__()[1]
        )
        found += [(row["x"], row[column]) for row in seen.to_pylist()]
    return sorted(found, key=repr)


def wait(function, batches, called, **given):
    if function is arrow.key_ordered_wait:
        given.setdefault("key", "x")
    return list(function(batches, called, **given))


@pytest.mark.parametrize("function", WAITS)
@pytest.mark.parametrize("called", [look_away, simulated()], ids=["python", "native"])
def test_columns_that_are_not_read_pass_byte_for_byte(function, called):
    good = batch([b"x", b"y"]).set_column(0, "x", pa.array([10, 11], pa.int64()))

    output = wait(function, [good, batch()], called)

    assert texts(output) == sorted([*enumerate(VALUES), (10, b"x"), (11, b"y")], key=repr)
    assert {one.schema.field("v").type for one in output} == {pa.string()}


NESTED = {
    pa.large_string(): [BAD, b"a", None],
    pa.list_(pa.string()): [[b"a", BAD], None, [], [b"b"]],
    pa.list_(pa.string(), 2): [[b"a", BAD], None, [b"c", b"b"]],
    pa.struct([("t", pa.string()), ("b", pa.binary())]): [{"t": BAD, "b": BAD}, None],
    pa.map_(pa.string(), pa.list_(pa.string())): [[(b"k", [BAD])], [(BAD, None)], None, []],
}


@pytest.mark.parametrize("data_type", NESTED, ids=str)
@pytest.mark.parametrize("function", WAITS)
def test_nested_texts_pass_byte_for_byte(data_type, function):
    values = NESTED[data_type]

    output = wait(function, [batch(values, data_type), batch(values[1:], data_type)], look_away)

    assert all(one.schema.field("v").type == data_type for one in output)
    assert texts(output) == sorted([*enumerate(values), *enumerate(values[1:])], key=repr)


@pytest.mark.parametrize("data_type", NESTED, ids=str)
def test_a_row_whose_text_is_read_fails_alone(data_type):
    output = wait(
        arrow.ordered_wait, [batch(NESTED[data_type], data_type)], read, on_error="capture"
    )

    errors = [row for one in output for row in one.column("error").to_pylist()]
    assert {error and error["kind"] for error in errors} == {None, "text-invalid"}
    assert errors[0]["message"].startswith("column `v` has a text in this row that is not UTF-8")
    assert errors[0]["attempts"] == 1


def test_reading_is_not_tried_again_and_fails_the_task():
    with pytest.raises(sa.AsyncFunctionError, match="column `v` has a text") as caught:
        wait(
            arrow.ordered_wait,
            [batch()],
            read,
            retry=sa.retry.fixed_delay(max_retries=3, delay="1h"),
            timeout="2h",
        )

    assert (caught.value.kind, caught.value.attempts) == (ErrorKind.TEXT_INVALID, 1)


def test_a_function_may_go_on_without_the_cell():
    @sa.async_function("seen string")
    async def careful(row):
        try:
            return {"seen": row.get("v")}
        except sa.AsyncIOError as error:
            return {"seen": str(error.kind)}

    output = wait(arrow.ordered_wait, [batch()], careful)

    assert [row["seen"] for row in output[0].select(["seen"]).to_pylist()] == [
        "a",
        "text-invalid",
        None,
        "ä",
    ]


def test_native_functions_make_no_call_for_a_row_that_they_cannot_read():
    with ScriptedServer(lambda *_: (200, {}, b'{"n": 7}')) as server:
        function = sa.http.get(f"{server.url}/{{v}}", "n int", client=sa.http.Client(proxy=False))
        output = wait(arrow.ordered_wait, [batch()], function, on_error="capture")
        cached = wait(arrow.ordered_wait, [batch()], function, on_error="capture", cache=sa.Cache())
        by_channels = wait(
            arrow.unordered_wait, [batch()], function, on_error="capture", channel="v"
        )

        assert sorted(server.targets) == sorted(["/a", "/%C3%A4"] * 3)
    for one in (output, cached, by_channels):
        rows = {
            row["x"]: row for part in one for row in part.select(["x", "n", "error"]).to_pylist()
        }
        assert [rows[x]["n"] for x in range(4)] == [7, None, None, 7]
        assert [rows[x]["error"] and rows[x]["error"]["kind"] for x in range(4)] == [
            None,
            "text-invalid",
            None,
            None,
        ]
        assert texts(one) == list(enumerate(VALUES))


def test_keys_are_compared_byte_for_byte():
    calls = []

    @sa.async_function("y bigint")
    async def count(row):
        calls.append(row.x)
        return {"y": row.x}

    values = [BAD, b"\xfeA", BAD, b"?A"]
    output = wait(arrow.ordered_wait, [batch(values)], count, cache=sa.Cache(key=["v"]))

    assert sorted(calls) == [0, 1, 3]
    found = {row["x"]: row["y"] for one in output for row in one.select(["x", "y"]).to_pylist()}
    assert found == {0: 0, 1: 1, 2: 0, 3: 3}
    for given in ({"key": "v"}, {"channel": "v", "key": "x"}):
        output = wait(arrow.key_ordered_wait, [batch(values)], look_away, **given)
        assert texts(output) == list(enumerate(values))


def test_operators_of_a_chain_pass_them_on():
    @sa.async_function("z binary")
    async def add(row):
        return {"z": bytes([row.y])}

    first = arrow.ordered_wait([batch()], look_away)
    output = list(arrow.unordered_wait(first, add, chain=True))

    assert texts(output) == list(enumerate(VALUES))
    assert output[0].schema.types == [pa.int64(), pa.string(), pa.int64(), pa.binary()]
    again = arrow.ordered_wait([batch()], look_away)
    errors = list(arrow.ordered_wait(again, read, chain=True, on_error="capture"))
    kinds = [
        row["error"] and row["error"]["kind"] for row in errors[0].select(["error"]).to_pylist()
    ]
    assert kinds == [None, "text-invalid", None, None]


def test_binary_results_beside_texts_stay_binary():
    @sa.async_function("w binary")
    async def answer(row):
        return {"w": b"\xff"}

    output = wait(arrow.ordered_wait, [batch()], answer)

    assert output[0].schema.field("w").type == pa.binary()
    assert output[0].column("w").to_pylist() == [b"\xff"] * 4


def test_only_the_columns_that_are_not_utf8_are_not_read():
    whole = batch(others=["p", "q", "r", "s"])

    @sa.async_function("seen string")
    async def other(row):
        return {"seen": row.others}

    output = wait(arrow.ordered_wait, [whole], other)

    assert output[0].column("seen").to_pylist() == ["p", "q", "r", "s"]
    assert texts(output) == list(enumerate(VALUES))


def read_all(rows):
    return [{"seen": str(row.v)} for row in rows]


def errors_of(output):
    rows = [row for one in output for row in one.select(["x", "seen", "error"]).to_pylist()]
    return {row["x"]: row["error"] and row["error"]["kind"] for row in rows}


@pytest.mark.parametrize("reads_twice", [False, True])
def test_rows_of_a_batch_that_cannot_be_read_fail_alone(reads_twice):
    calls = []

    @sa.async_function("seen string", batch=sa.Batch(max_rows=5, linger="50s"))
    async def answer(rows):
        calls.append([row.x for row in rows])
        results = read_all(rows)
        if reads_twice:
            [row.w for row in rows]
        await asyncio.sleep(0)
        return results

    whole = batch([b"a", BAD, None, BAD, b"b"])
    whole = whole.append_column("w", of(pa.string(), [b"a", b"b", b"c", b"d", BAD]))
    output = wait(arrow.ordered_wait, [whole], answer, on_error="capture")

    bad = {1, 3, 4} if reads_twice else {1, 3}
    assert errors_of(output) == {x: "text-invalid" if x in bad else None for x in range(5)}
    without = [[0, 1, 2, 3, 4], [0, 2, 4], [0, 2]]
    assert calls == without[: 3 if reads_twice else 2]


def late(split_on_error=False):
    calls = []

    @sa.async_function(
        "seen string",
        batch=sa.Batch(max_rows=4, linger="1ms", split_on_error=split_on_error),
    )
    async def answer(rows):
        calls.append([row.x for row in rows])
        await asyncio.sleep(0)
        return read_all(rows)

    return answer, calls


@pytest.mark.parametrize("column", ["text", "day"])
def test_cells_that_are_not_read_are_counted_by_max_bytes(column):
    rows = batch([b"a" * 1000, BAD, None, b"c"])
    if column == "day":
        days = pa.array([0, 10**7, None, 2], pa.int32()).view(pa.date32())
        rows = pa.RecordBatch.from_arrays([rows["x"], days], ["x", "day"])

    @sa.async_function("y bigint", batch=sa.Batch(max_rows=3, max_bytes=1024))
    async def look_away(rows):
        return [{"y": row.x} for row in rows]

    out = arrow.ordered_wait([rows], look_away, timeout=None)
    assert [y for it in out for y in it["y"].to_pylist()] == [0, 1, 2, 3]


def test_a_batch_that_reads_them_late_is_not_called_again_by_itself():
    answer, calls = late()

    output = wait(arrow.ordered_wait, [batch()], answer, on_error="capture")

    assert calls == [[0, 1, 2, 3]]
    kinds = dict.fromkeys((0, 2, 3), "user-function-failed") | {1: "text-invalid"}
    assert errors_of(output) == kinds
    (message,) = {
        row["error"]["message"]
        for row in output[0].select(["x", "error"]).to_pylist()
        if row["x"] != 1
    }
    assert "column `v`" in message
    assert "set `split_on_error` or `retry`" in message


@pytest.mark.parametrize("split_on_error", [False, True])
def test_of_a_plain_function_nobody_knows_what_it_does_before_it_reads_them(split_on_error):
    calls = []

    @sa.async_function(
        "seen string", batch=sa.Batch(max_rows=4, split_on_error=split_on_error, linger="50s")
    )
    def answer(rows):
        calls.append([row.x for row in rows])
        return read_all(rows)

    output = wait(arrow.ordered_wait, [batch()], answer, on_error="capture")

    errors = errors_of(output)
    if split_on_error:
        assert errors == {0: None, 1: "text-invalid", 2: None, 3: None}
        return
    assert calls == [[0, 1, 2, 3]]
    assert errors == dict.fromkeys((0, 2, 3), "user-function-failed") | {1: "text-invalid"}
    (message,) = {
        it["message"] for it in output[0]["error"].to_pylist() if "nobody" in it["message"]
    }
    assert message.endswith("done before; set `split_on_error` or `retry`")


def test_a_batch_that_reads_them_late_is_called_again_where_that_was_allowed():
    for split, given in (
        (True, {}),
        (False, {"retry": sa.retry.fixed_delay(1, "1ms"), "timeout": "1h"}),
    ):
        answer, calls = late(split)
        output = wait(arrow.ordered_wait, [batch()], answer, on_error="capture", **given)

        assert calls[0] == [0, 1, 2, 3]
        assert sorted(x for call in calls[1:] for x in call) == [0, 2, 3]
        assert errors_of(output) == {0: None, 1: "text-invalid", 2: None, 3: None}
