# SPDX-License-Identifier: Apache-2.0
"""Rows that a stream has kept fit the form that its query has now, or are refused and stay there.

Steps are carried out in this process, without Spark.
"""

import asyncio
import uuid
from datetime import datetime, timezone
from types import SimpleNamespace

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._worker.forms import check_form, completed_in, forms_of
from sparkawait._worker.step import Bundle, Shard, pack, run_step, unpack
from sparkawait.exceptions import ErrorKind, SnapshotError
from sparkawait.spark.carry import Unpack
from tests.support.carried_query import lose_the_worker
from tests.support.waiting import wait_until

REFUSED = "carried over by another form of the query"
SLOW = 7
"""The row whose call waits for the gate."""


class Query:
    """A shard of a query, whose form may be another one in each micro-batch."""

    def __init__(self):
        self.is_open = True
        self.calls = []
        self.state = None
        self.rows = []
        self._name = uuid.uuid4().hex
        self._steps = 0

    def function(self, schema, results=lambda row: {"doubled": 2 * row["id"]}):
        @sa.async_function(schema)
        async def look_up(row):
            self.calls.append(row["id"])
            while row["id"] == SLOW and not self.is_open:  # noqa: ASYNC110 - a test opens it
                await asyncio.sleep(0.003)
            return results(row)

        return look_up

    def run(self, chain, rows, *, linger="60s", calls="as before", columns=None):
        """Carries out a step; `linger` lets all calls end, if none is slow."""
        packed = [
            Bundle(bundle["rows"], bundle["payload"])
            for batch in pack([rows], [0], partition=0, turn=0, is_keyed=False)
            for bundle in batch.to_pylist()
        ]
        shard = Shard(
            key=0,
            count=0,
            by="",
            step="it",
            partition=0,
            query=self._name,
            calls=calls,
            run="it",
            batch=self._steps,
        )
        end = run_step(
            chain,
            sa.CarryOver(linger=linger),
            self.state,
            iter(packed),
            columns=forms_of(rows.schema if columns is None else columns),
            shard=shard,
        )
        self._steps += 1
        self.state = end.state
        self.rows += [row for batch in unpack(end.outputs) for row in batch.to_pylist()]
        return end

    def drain(self, chain, none, **told):
        """Carries out steps without rows until nothing is left."""
        while (end := self.run(chain, none, linger="60s", **told)).carried or end.held:
            pass

    def ids(self):
        return sorted(row["id"] for row in self.rows)


@pytest.fixture
def query():
    yield Query()
    lose_the_worker()


def chain_of(rows, *functions, **options):
    """What is called for rows of a schema, the one function behind the other."""
    wait = sa.arrow.unordered_wait([rows.schema.empty_table()], functions[0], **options)
    for function in functions[1:]:
        wait = sa.arrow.unordered_wait(wait, function, chain=True)
    return wait.take_over()[0]


def of_ids(*ids):
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


def of_structs(kind, value, *ids):
    arrays = {"id": pa.array(ids, pa.int64()), "s": pa.array([value] * len(ids), kind)}
    return pa.record_batch(arrays)


A, B = ("a", pa.int64()), ("b", pa.string())
OTHER_MEMBERS = [
    (pa.struct([A, B]), {"a": 3, "b": "x"}),
    (pa.struct([("a", pa.int32())]), {"a": 3}),
    (pa.struct([("z", pa.int64())]), {"z": 3}),
]


@pytest.mark.parametrize(("kind", "value"), OTHER_MEMBERS, ids=["more", "narrower", "renamed"])
@pytest.mark.parametrize("ids", [(), (2,)], ids=["of no row", "of new rows"])
def test_rows_in_flight_with_other_members_of_a_struct_are_refused(query, ids, kind, value):
    """Also where no row has come to their shard."""
    query.is_open = False
    before = of_structs(pa.struct([A]), {"a": 5}, 1, SLOW)
    look_up = query.function("doubled bigint")
    query.run(chain_of(before, look_up), before, linger="7ms")

    now = of_structs(kind, value, *ids)
    with pytest.raises(SnapshotError, match=REFUSED) as raised:
        query.run(chain_of(now, look_up), now, linger="7ms")
    assert raised.value.kind is ErrorKind.SNAPSHOT_SCHEMA_MISMATCH

    # As it was, it goes on.
    query.is_open = True
    query.drain(chain_of(before, look_up), before.slice(0, 0))
    assert query.ids() == [1, SLOW]


def test_completed_rows_are_refused_by_a_query_that_would_call_more_for_them(query):
    rows = of_ids(1, 2)
    look_up = query.function("doubled bigint")
    query.run(chain_of(rows, look_up), rows)
    assert query.rows == []

    second = query.function("word string", lambda _: {"word": "called"})
    wider = query.function("doubled bigint, word string", lambda _: {"doubled": 0, "word": "x"})
    for other in [(look_up, second), (wider,)]:
        with pytest.raises(SnapshotError, match=REFUSED):
            query.run(chain_of(rows, *other), of_ids(3))
    assert query.calls == [1, 2]

    query.run(chain_of(rows, look_up), of_ids(3))
    query.run(chain_of(rows, look_up), of_ids())
    assert query.ids() == [1, 2, 3]


def test_completed_rows_leave_with_null_where_failures_are_captured_since(query):
    rows = of_ids(1, 2)
    look_up = query.function("doubled bigint")
    query.run(chain_of(rows, look_up), rows)

    query.run(chain_of(rows, look_up, on_error="capture", info="call"), of_ids())

    assert [(row["doubled"], row["error"], row["call"]) for row in query.rows] == [
        (2, None, None),
        (4, None, None),
    ]


NOON = datetime(2026, 6, 1, 12, 0, tzinfo=timezone.utc)


def of_times(zone, *ids):
    """Rows with an instant, which nested columns have, too."""
    at = pa.timestamp("us", zone)
    nested = pa.struct([("all", pa.list_(at)), ("by", pa.map_(pa.string(), at))])
    value = {"all": [NOON, None], "by": [("x", NOON)]}
    arrays = {
        "id": pa.array(ids, pa.int64()),
        "at": pa.array([NOON] * len(ids), at),
        "nested": pa.array([value if id_ % 2 else None for id_ in ids], nested),
    }
    return pa.record_batch(arrays)


def test_a_time_zone_that_is_set_behind_the_call_changes_no_form(query):
    query.is_open = False
    written = of_times("UTC")
    chain = chain_of(written, query.function("doubled bigint"))
    for ids in [(1, SLOW), (2,)]:
        query.run(chain, of_times("Asia/Tokyo", *ids), linger="7ms", columns=written.schema)
    query.is_open = True
    query.drain(chain, of_times("Asia/Tokyo"), columns=written.schema)
    assert query.ids() == [1, 2, SLOW]
    assert sorted(query.calls) == [1, 2, SLOW]


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "there"])
@pytest.mark.parametrize("key", [None, "at"])
def test_a_query_goes_on_in_another_time_zone(query, is_lost, key):
    """What is in flight is called again, and its instants show the zone of the rows that come."""
    query.is_open = False
    seen = []

    def results(row):
        seen.append((row["id"], str(row["at"].tzinfo), row["at"].hour))
        return {"again": row["at"]}

    wait = sa.arrow.unordered_wait if key is None else sa.arrow.key_ordered_wait
    options = {} if key is None else {"key": key}

    def chain(zone):
        look_up = query.function(pa.schema([("again", pa.timestamp("us", zone))]), results)
        return wait([of_times(zone).schema.empty_table()], look_up, **options).take_over()[0]

    query.run(chain("UTC"), of_times("UTC", 1, 2, SLOW, 8), linger="7ms")
    wait_until(lambda: SLOW in query.calls)
    # Those that wait for the slow one, which has their key.
    in_flight = [SLOW] if key is None else [SLOW, 8]
    if is_lost:
        lose_the_worker()
    query.run(chain("Asia/Tokyo"), of_times("Asia/Tokyo", 3), linger="7ms")
    wait_until(lambda: query.calls.count(SLOW) == 2)
    query.is_open = True
    query.drain(chain("Asia/Tokyo"), of_times("Asia/Tokyo"))

    assert query.ids() == [1, 2, 3, SLOW, 8]
    assert query.calls.count(SLOW) == 2
    assert all(row["at"] == row["again"] == NOON for row in query.rows)
    assert {row["id"]: row["nested"] and row["nested"]["all"] for row in query.rows} == {
        id_: [NOON, None] if id_ % 2 else None for id_ in (1, 2, 3, SLOW, 8)
    }
    late = [it for it in seen if it[0] in (3, *in_flight)]
    assert {(zone, hour) for _, zone, hour in late} == {("Asia/Tokyo", 21)}


def test_rows_of_several_time_zones_leave_in_the_same_one():
    bundles = [
        pa.record_batch({"payload": pa.array([payload, None], pa.binary())})
        for zone, id_ in [("UTC", 1), ("Asia/Tokyo", 3)]
        for part in pack([of_times(zone, id_)], [0], partition=0, turn=0, is_keyed=False)
        for payload in part["payload"].to_pylist()
    ]
    found = list(Unpack({})(iter(bundles)))
    assert [it.schema for it in found] == [of_times("UTC").schema] * 2
    assert pa.Table.from_batches(found).to_batches() == [of_times("UTC", 1), of_times("UTC", 3)]


def completed_again(before, now):
    """What a step puts out of rows that one with a column of another type has completed."""
    came = pa.schema([("id", pa.int64())])
    put_out = pa.schema([*came, ("s", before)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, put_out) as stream:
        stream.write_batch(
            pa.RecordBatch.from_arrays([pa.array([7]), pa.nulls(1, before)], schema=put_out)
        )
    bundle = sink.getvalue().to_pybytes()
    plan = SimpleNamespace(told_fields=[])
    chain = SimpleNamespace(output_schema=lambda its: pa.schema([*its, ("s", now)]), plans=[plan])
    carried = SimpleNamespace(
        schema=came.serialize().to_pybytes(), completed=[bundle], rows=(0, 0), operators=[b""]
    )
    check_form(chain, forms_of(came), carried)
    return completed_in(chain, carried) == [bundle]


C, D = ("a", pa.string()), ("b", pa.int32())


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (pa.struct([C, D]), pa.struct([D, C])),
        (pa.struct([C, D]), pa.struct([C])),
        (pa.struct([C]), pa.struct([C, D])),
        (pa.struct([C, D]), pa.struct([C, ("b", pa.int64())])),
        (pa.list_(pa.struct([C])), pa.list_(pa.struct([("c", pa.string())]))),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.string())),
        (pa.string(), pa.binary()),
    ],
    ids=["order", "fewer", "more", "type", "name", "values", "flat"],
)
def test_completed_rows_of_another_type_are_refused(before, now):
    with pytest.raises(SnapshotError, match=REFUSED):
        completed_again(before, now)


def test_completed_rows_are_put_out_whatever_form_their_type_has():
    element, item = pa.field("item", pa.string(), nullable=False), pa.field("element", pa.string())
    assert completed_again(pa.list_(element), pa.list_(item))
    assert completed_again(pa.list_(pa.large_string()), pa.large_list(pa.string()))
    assert completed_again(pa.struct([C, D]), pa.struct([pa.field(*C, nullable=False), D]))
