# SPDX-License-Identifier: Apache-2.0
"""What the key of a row says of the function: what is asked and of whom, and nothing else."""

from __future__ import annotations

import tempfile

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._plan.journal import identity_in
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait._worker.journal import TaskJournal

INPUT = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "Europe/Paris"))])
URL = "https://user:word@host/{id}"


@sa.async_function("name string")
async def _ask(row):
    return {"name": str(row.id)}


def plan_of(tmp_path, function, schema=INPUT, **options):
    journal = sa.Journal(tempfile.mkdtemp(dir=tmp_path), **options)
    return resolve_unpickled("ordered", function, input_schema=schema, journal=journal).journal


def http(**options):
    return sa.http.post(URL, "name string", **{"json": {"q": "{id}"}, **options})


def same(tmp_path, one, other):
    return plan_of(tmp_path, one).identity == plan_of(tmp_path, other).identity


@pytest.mark.parametrize(
    "options",
    [
        {"auth": sa.http.bearer(sa.secret("TOKEN"))},
        {"headers": {"Authorization": "Bearer abc"}},
        {"headers": {"x": sa.secret("OTHER")}},
        {"client": sa.http.Client(proxy="http://proxy:1")},
        {"max_requests": 7},
        {"retry_status": (500,)},
        {"idempotency_key": "{id}"},
    ],
    ids=str,
)
def test_secrets_and_connections_are_no_part_of_it(tmp_path, options):
    assert same(tmp_path, http(), http(**options))


@pytest.mark.parametrize(
    "other",
    [
        sa.http.request("PUT", URL, "name string", json={"q": "{id}"}),
        sa.http.post("https://other/{id}", "name string", json={"q": "{id}"}),
        http(json={"q": "{id}", "model": "larger"}),
        http(headers={"X-Model": "larger"}),
        http(query={"page": "1"}),
        http(paths={"name": "$.other"}),
        http(how="inner"),
        http(json={"q": sa.secret("PROMPT")}),
        sa.http.post(URL, "name int", json={"q": "{id}"}),
        sa.http.post(URL, "name string not null", json={"q": "{id}"}),
    ],
    ids=range(10),
)
def test_what_is_asked_and_what_is_made_of_the_answer_belong_to_it(tmp_path, other):
    assert not same(tmp_path, http(), other)


def test_what_is_asked_is_not_shown(tmp_path):
    plan = plan_of(tmp_path, http(headers={"X-Model": "key-331"}))
    assert b"key-331" in plan.identity
    assert "key-331" not in repr(plan)


def test_stores_are_known_without_their_passwords(tmp_path):
    one, two = (
        sa.redis.get(f"redis://:{it}@host/3", "customer:{id}", "name string") for it in "ab"
    )
    assert same(tmp_path, one, two)
    assert not same(tmp_path, one, sa.redis.get("redis://host/4", "customer:{id}", "name string"))

    def lookup(dsn, statement="select name from t where id = $1"):
        return sa.postgres.lookup(dsn, statement, args=["id"], schema="name string")

    assert same(tmp_path, lookup("postgresql://a:b@host/x"), lookup("postgresql://a:c@host/x"))
    assert same(
        tmp_path, lookup("host=h password=x dbname=y"), lookup("host=h password=z dbname=y")
    )
    assert not same(tmp_path, lookup("postgresql://host/x"), lookup("postgresql://host/y"))
    dsn = "postgresql://host/x?user=u&password=p&options=-csearch_path%3D"
    assert not same(tmp_path, lookup(f"{dsn}one"), lookup(f"{dsn}two"))
    assert not same(
        tmp_path, lookup("postgresql://host/x"), lookup("postgresql://host/x", "select $1::text")
    )


def test_the_zone_counts_where_a_template_writes_times(tmp_path):
    def identity(url, zone):
        schema = pa.schema([INPUT.field("id"), ("at", pa.timestamp("us", zone))])
        function = sa.http.get(url, "name string")
        return identity_in(plan_of(tmp_path, function, schema), schema)

    for url, counts in (("https://host/{id}/{at}", True), ("https://host/{id}", False)):
        found = identity(url, "Europe/Paris"), identity(url, "UTC")
        assert (found[0] != found[1]) == counts


def test_the_zone_counts_where_texts_without_one_are_read(tmp_path):
    def identity(returned, zone):
        made = pa.schema([("seen", pa.timestamp("us", zone)), ("name", pa.string())])
        schema = made if returned == "seen" else made.remove(0)
        return plan_of(tmp_path, sa.http.get("https://h/{id}", schema)).identity

    for returned, counts in (("seen", True), ("name", False)):
        found = identity(returned, "Europe/Paris"), identity(returned, "UTC")
        assert (found[0] != found[1]) == counts


def test_the_order_of_columns_is_no_question_of_its_own(tmp_path):
    found = []
    for key in (["id", "at"], ["at", "id"]):
        plan = plan_of(tmp_path, _ask, version=1, key=key)
        found.append([INPUT.names[at] for at in plan.read_from(INPUT)])
    assert found[0] == found[1] == ["at", "id"]


@pytest.mark.parametrize("place", ["s3://AKIA:SEC/RET@team/kept", "nope://u:SEC/RET@team/kept"])
def test_a_password_in_the_address_of_a_folder_is_not_shown(place):
    journal = sa.Journal(place)
    assert "RET" not in repr(journal)
    with pytest.raises(sa.ConfigurationError) as refused:
        sa.arrow.ordered_wait(pa.table({"id": [1]}), _ask, journal=journal)
    assert "RET" not in str(refused.value)
    versioned = sa.Journal(place, version=1)
    with pytest.raises(sa.ConfigurationError) as refused:
        sa.arrow.ordered_wait(pa.table({"id": [1]}), _ask, journal=versioned).to_table()
    assert "RET" not in str(refused.value)


def test_a_python_function_is_its_name_and_its_version(tmp_path):
    @sa.async_function("name string")
    async def ask(row):
        return {"name": "before"}

    before = plan_of(tmp_path, ask, version=1)

    @sa.async_function("name string")
    async def ask(row):
        return {"name": "after"}  # an edit that the version does not tell

    assert plan_of(tmp_path, ask, version=1).identity == before.identity
    assert plan_of(tmp_path, ask, version="1").identity == before.identity
    assert plan_of(tmp_path, ask, version=2).identity != before.identity


def test_keys_are_pinned(tmp_path):
    """A key that changed would have all rows paid for again."""
    native = sa.http.post(
        "https://host/{id}", "name string", json={"q": "{id}"}, headers={"X-A": "{at}"}
    )

    @sa.async_function("name string, n int")
    async def ask(row):
        raise NotImplementedError

    ask._name = "ask"
    batch = pa.record_batch(
        [pa.array([7, None], pa.int64()), pa.array([0, 1], INPUT.field("at").type)], schema=INPUT
    )
    found = {}
    for function, options in ((native, {}), (ask, {"version": 3, "key": "id"})):
        made = plan_of(tmp_path, function, **options)
        schema = pa.schema([("name", pa.string())])
        journal = TaskJournal(made, schema, stage=0, partition=0, attempt=0)
        found[function.name] = [it.hex() for it in journal._keys(batch).to_pylist()]
    assert found == {
        "http.post": ["4ce0865f93c80ab948aa71350e0c8d16", "4f4b90e42c634441f8e4253dbc0c5c27"],
        "ask": ["7a1bd2aeff2b8d88468a75d5b59db4fc", "da5f33fe29b2eb66dce3bda3b70987d7"],
    }
