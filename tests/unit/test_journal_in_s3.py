# SPDX-License-Identifier: Apache-2.0
"""A journal in a store of objects: one request a commit, and what cannot be reached is told."""

from __future__ import annotations

import pytest

from tests.support.s3_server import s3_server
from tests.unit.test_journal import known, plan_of, refused, rows, task, write

pytest.importorskip("pyarrow", "18")  # before, a file takes three requests


@pytest.fixture(scope="module")
def store():
    with s3_server("team") as served:
        yield served


def test_what_is_committed_is_known_and_put_together(store):
    url, objects, asked = store
    plan = plan_of(url.format("answers/a"))
    assert "word" not in repr(plan.journal)
    first = task(plan)
    assert (first.interval, first.max_bytes) == (2.0, 8 << 20)
    asked.clear()
    for number in range(13):
        write(plan, first, [number, 100 + number], [[f"a{number}"], []])
    assert [it.split()[0] for it in asked] == ["PUT"] * 13
    reader = task(plan)
    wanted = [[f"a{it}"] for it in range(13)]
    assert known(reader, rows(range(13))) == wanted
    first.finish()
    assert len([it for it in objects if it.endswith(".parquet")]) == 1
    assert known(reader, rows(range(13))) == wanted
    assert known(task(plan), rows([113, 112, 0])) == [None, [], ["a0"]]


def test_drivers_that_begin_at_the_same_time_agree(store):
    url, objects, _ = store
    one = plan_of(url.format("answers/b"))
    del objects["team/answers/b/_journal.json"]
    other = plan_of(url.format("answers/b"))
    assert one.journal == other.journal


def test_a_bucket_that_is_not_there_is_told(store):
    url, _, _ = store
    with refused("s3://other/x of `journal` cannot be opened .* with the credentials in the URL"):
        plan_of(url.format("x").replace("@team", "@other"))
