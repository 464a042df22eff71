# SPDX-License-Identifier: Apache-2.0
"""Requests of many rows whatever fails, whatever is replied, and as the documentation has them."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sparkawait as sa
from tests.meta.repository import ROOT
from tests.support.batches import bulk, inputs, lookup, ok, rows, serve
from tests.support.scripted_server import Answer, Request


@settings(max_examples=9, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32),
    max_rows=st.integers(1, 20),
    matching=st.sampled_from(["position", "index", "name"]),
    mode=st.sampled_from(["ordered", "unordered"]),
)
def test_every_row_gets_its_own_result_whatever_fails_on_the_way(
    seed: int, max_rows: int, matching: str, mode: str
):
    tries: Counter[int] = Counter()
    lock = threading.Lock()

    def reply(request: Request, before: int) -> Answer:
        rng = random.Random(seed * 1000 + before)  # noqa: S311 - failures
        if rng.random() < 0.2:
            return rng.choice([(503, {}, b""), (429, {"retry-after-ms": "1"}, b""), None])
        items: list[dict[str, Any]] = []
        for index, x in enumerate(inputs(request)):
            with lock:
                tries[x] += 1
            item: dict[str, Any] = {"index": index, "key": f"k{x}", "v": 3 * x}
            if rng.random() < 0.15:
                item = {"index": index, "key": f"k{x}", "error": "busy"}
            if x % 17 == 5:
                item = {"index": index, "key": f"k{x}", "error": {"code": "final"}}
            items.append(item)
        if matching != "position":
            rng.shuffle(items)
        return ok({"data": items})

    names: dict[str, Any] = {"position": None, "index": "index", "name": {"key": "k{x}"}}
    with serve(reply) as server:
        function = lookup(
            server,
            rows="data",
            items=sa.http.items(id=names[matching], error="error", retry=["busy"]),
            method="PUT",
            batch=sa.Batch(max_rows=max_rows, linger="1ms"),
        )
        wait = getattr(sa.arrow, f"{mode}_wait")
        batches = [pa.record_batch({"x": list(range(at, at + 50))}) for at in (0, 50)]
        retry = sa.retry.fixed_delay(60, "1ms", budget=None)
        out = wait(batches, function, retry=retry, on_error="capture", max_concurrency=5)
        found = {row["x"]: row for row in pa.Table.from_batches(out).to_pylist()}

        assert len(found) == 100
        for x, row in found.items():
            assert row["v"] == (None if x % 17 == 5 else 3 * x)
            assert bool(row["error"]) == (x % 17 == 5)
        assert all(len(inputs(request)) <= max_rows for request in server.requests)


def documents() -> st.SearchStrategy[Any]:
    plain = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3)
    names = st.sampled_from(["data", "index", "v", "error", "status"])
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner),
        max_leaves=12,
    )


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    body=documents().map(lambda it: json.dumps(it).encode()) | st.binary(max_size=40),
    options=st.sampled_from(
        [{}, {"rows": "data"}, {"items": sa.http.items(id="index")},
         {"items": sa.http.items(id={"key": "{x}"}), "rows": "data"},
         {"items": sa.http.items(error="error", status="status")}]
    ),
)  # fmt: skip
def test_whatever_a_server_replies_each_row_has_a_result_or_an_error(
    body: bytes, options: dict[str, Any]
):
    with serve(lambda *_: (200, {}, body)) as server:
        found = rows(lookup(server, **options), [1, 2, 3], on_error="capture")

        assert [row["x"] for row in found] == [1, 2, 3]


# -- the examples of the documentation


def example(name: str, url: str) -> dict[str, Any]:
    text = (ROOT / "docs" / "connectors" / "http.md").read_text(encoding="utf-8")
    block = text.split(f"```python batch {name}\n")[1].split("```")[0]
    found: dict[str, Any] = {"sa": sa}
    exec(block.replace("https://api.example.com", url), found)  # noqa: S102 - our own
    return found


def test_the_example_of_embeddings_works(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("API_TOKEN", "t")

    def reply(request: Request, _: int) -> Answer:
        assert request.headers["authorization"] == "Bearer t"
        texts = inputs(request)
        data = [{"index": i, "embedding": [len(text)]} for i, text in enumerate(texts)]
        return ok({"object": "list", "data": data[::-1]})

    with serve(reply) as server:
        function = example("embeddings", server.url)["embedding"]
        found = rows(function, pa.record_batch({"text": ["a" * n for n in range(100)]}))

        assert [row["embedding"] for row in found] == [[n] for n in range(100)]
        assert len(server.requests) == 2


def test_the_examples_of_documents_work():
    def reply(request: Request, _: int) -> Answer:
        if request.target == "/_bulk":
            actions = [action for action, _ in bulk(request)]
            return ok({"items": [{"index": {"status": 201, "result": "created"}} for _ in actions]})
        ids = [document["_id"] for document in json.loads(request.body)["docs"]]
        found = [{"_id": one, "found": True, "_source": {"total": one / 2}} for one in ids]
        found[0] = {"_id": ids[0], "found": False}
        return ok({"docs": found})

    with serve(reply) as server:
        functions = example("documents", server.url)
        found = rows(functions["document"], pa.record_batch({"id": [1, 2, 3]}))
        batch = pa.record_batch({"id": [1, 2], "order": [{"n": 1}, {"n": 2}]})
        written = rows(functions["indexed"], batch)

        assert [row["total"] for row in found] == [None, 1.0, 1.5]
        assert [row["result"] for row in written] == ["created", "created"]


def test_the_example_of_scores_works():
    def reply(request: Request, _: int) -> Answer:
        return ok([one["age"] / 10 for one in json.loads(request.body)])

    with serve(reply) as server:
        function = example("scores", server.url)["score"]
        batch = pa.record_batch({"age": [10, 25], "city": ["Oslo", "Rome"]})

        assert [row["score"] for row in rows(function, batch)] == [1.0, 2.5]
