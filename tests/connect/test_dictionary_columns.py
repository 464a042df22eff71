# SPDX-License-Identifier: Apache-2.0
"""Categories of polars, pandas and Arrow in templates and in the bodies of requests."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pyarrow as pa
import pytest

import sparkawait as sa
from tests.support.batches import serve

TEXTS = ["a b", None, "é", "a b", ""]
NUMBERS = [7, 11, 13, 17, 19]


def of_polars(kind: str) -> pa.Table:
    pl = pytest.importorskip("polars")
    kinds = {"Categorical": pl.Categorical(), "Enum": pl.Enum(["a b", "é", ""])}
    frame = pl.DataFrame({"c": pl.Series(TEXTS, dtype=kinds[kind]), "n": NUMBERS})
    return pa.table(frame)


def of_pandas() -> pa.Table:
    return pa.Table.from_pandas(pd.DataFrame({"c": pd.Categorical(TEXTS), "n": NUMBERS}))


def of_arrow() -> pa.Table:
    return pa.table({"c": pa.array(TEXTS).dictionary_encode(), "n": NUMBERS})


def without_values() -> pa.Table:
    column = pa.nulls(len(NUMBERS), pa.dictionary(pa.int8(), pa.string()))
    assert len(column.dictionary) == 0
    return pa.table({"c": column, "n": NUMBERS})


MADE = {
    "polars.Categorical": lambda: of_polars("Categorical"),
    "polars.Enum": lambda: of_polars("Enum"),
    "pandas": of_pandas,
    "arrow": of_arrow,
    "without values": without_values,
}


CLIENT = sa.http.Client(proxy=False)


def table_of(made: str) -> tuple[pa.Table, list[str | None]]:
    table = MADE[made]()
    texts = table["c"].to_pylist()
    assert texts == ([None] * 5 if made == "without values" else TEXTS)
    assert pa.types.is_dictionary(table.schema.field("c").type)
    return table, texts


def statuses(function: Any, table: pa.Table) -> list[tuple[int, int | None]]:
    out = sa.arrow.ordered_wait(table, function, max_concurrency=1, tuning=sa.Tuning(warm_up=False))
    return [(row["n"], row["status"]) for row in out.to_table().to_pylist()]


@pytest.mark.parametrize("made", MADE)
def test_categories_are_texts_in_a_body_and_within_its_lists(made):
    table, texts = table_of(made)
    # pyarrow makes no list of such texts out of Python's, but of two arrays.
    each = table.column("c").combine_chunks()
    indices = pa.array([index for n in range(len(texts)) for index in (n, None)], pa.int32())
    lists = pa.ListArray.from_arrays(range(0, 2 * len(texts) + 1, 2), each.take(indices))
    table = table.append_column("cs", lists)

    with serve(lambda *_: (204, {}, b"")) as server:
        body = {"c": "{c}", "cs": "{cs}"}
        options = {"returns": "nothing", "status": "status", "client": CLIENT}
        function = sa.http.post(server.url, json=body, **options)
        assert statuses(function, table) == [(n, 204) for n in NUMBERS]

    sent = [json.loads(request.body) for request in server.requests]
    assert sent == [{"c": text, "cs": [text, None]} for text in texts]


@pytest.mark.parametrize("made", MADE)
def test_categories_are_texts_in_a_query_and_their_nulls_make_no_call(made):
    table, texts = table_of(made)

    with serve(lambda *_: (204, {}, b"")) as server:
        options = {"returns": "nothing", "status": "status", "client": CLIENT}
        function = sa.http.get(server.url + "/x?c={c}", **options)
        found = statuses(function, table)

    assert [n for n, _ in found] == NUMBERS
    assert [status for _, status in found] == [None if it is None else 204 for it in texts]
    asked = [parse_qs(urlsplit(it.target).query, True)["c"] for it in server.requests]
    assert asked == [[text] for text in texts if text is not None]
