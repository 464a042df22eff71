# SPDX-License-Identifier: Apache-2.0
"""Chats and embeddings, asked of a server that answers as the services do."""

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel, Field, create_model

import sparkawait as sa
from sparkawait._core import LimitServer
from sparkawait.arrow.checks import _text_of
from sparkawait.exceptions import ConfigurationError
from sparkawait.testing import ModelServer
from tests.support.scripted_server import ScriptedServer


class Rated(BaseModel):
    mood: Literal["good", "bad"]
    stars: int = Field(ge=1, le=5)


@dataclass
class Mood:
    mood: str
    why: str | None = None


def hash_of(prompt):
    return ModelServer.hash_of(prompt)


@pytest.fixture
def server():
    with ModelServer(tokenizer=lambda text: len(text.split())) as server:
        yield server


def chat(server, prompt="say {x}", schema=None, **options):
    return sa.llm.chat(prompt, schema, model="m", base_url=server.base_url, **options)


def called(texts, function, mode="ordered", **options):
    wait = getattr(sa.arrow, f"{mode}_wait")
    rows = pa.table({"x": pa.array(texts, pa.string())}).to_batches()
    return wait(rows, function, **options).to_table().to_pylist()


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_each_row_gets_the_answer_to_its_own_prompt(server, api):
    texts = [f"n{n}" for n in range(200)]
    ask = chat(server, api=api, max_tokens=90)
    for row in called(texts, ask, "unordered"):
        assert row["answer"].startswith(hash_of(f"say {row['x']}"))
    assert server.stats()["answered"] == 200


@pytest.mark.parametrize("api", ["chat", "messages"])
@pytest.mark.parametrize(
    "schema", [Rated, Mood, "mood string not null, tags array<string>, at struct<x: double>"]
)
def test_a_schema_is_sent_and_the_answer_is_read_into_its_columns(server, api, schema):
    (row,) = called(["a"], chat(server, schema=schema, api=api, max_tokens=99))
    assert isinstance(row["mood"], str)
    assert None not in row.values()


def test_what_is_asked_for_beside_the_answer(server):
    also = ["usage", "request_id", "served_model", "tier", "finish_reason"]
    price = {"input": 2.0, "output": 10.0}
    ask = chat(server, also=also, price=price, extra={"service_tier": "flex"})
    (row,) = called(["one two"], ask)
    usage = row["usage"]
    assert usage["input"] == 3 + 4 + 3
    assert row["cost"] == pytest.approx((2 * usage["input"] + 10 * usage["output"]) / 1e6)
    assert (row["served_model"], row["tier"], row["finish_reason"]) == (
        "m-2026-01-01",
        "flex",
        "stop",
    )
    assert row["request_id"].startswith("req_")
    assert list(row)[1:4] == ["answer", "usage", "cost"]


def test_tokens_of_a_cache_cost_what_they_cost(server):
    system = " ".join(["rule"] * 1_100)
    price = {"input": 1.0, "output": 0.0, "cached": 0.1, "write": 1.25}
    for api in ("chat", "messages"):
        ask = chat(server, system=f"{api} {system}", api=api, max_tokens=99, price=price)
        first, second = called(["a", "b"], ask, max_concurrency=1)
        assert first["cost"] == pytest.approx((1.25 * 1_105 + 9) / 1e6)
        assert second["cost"] == pytest.approx((0.1 * 1_105 + 9) / 1e6)


@pytest.mark.parametrize("api", ["chat", "messages"])
@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("refusal", "refusal", "I cannot help with"),
        ("cut", "truncated", "raise `max_tokens`"),
        ("silent", "truncated", "all tokens were thought"),
        ("invalid", "result-schema-mismatch", "wrong"),
    ],
)
def test_what_is_no_answer_is_a_failure_with_the_words_of_the_model(
    server, api, fault, kind, words
):
    price = {"input": 1, "output": 1}
    ask = chat(server, schema=Rated, api=api, max_tokens=99, price=price, also=["usage"])
    good, bad = called(["fine", f"[[{fault}]]"], ask, on_error="capture")
    assert (good["error"], good["stars"] is None) == (None, False)
    assert bad["error"]["kind"] == kind
    assert words in bad["error"]["message"]
    assert (bad["mood"], bad["stars"]) == (None, None)
    assert bad["cost"] == pytest.approx((bad["usage"]["input"] + bad["usage"]["output"]) / 1e6)


def test_an_answer_that_a_filter_took_away_is_a_failure(server):
    (row,) = called(["[[filtered]]"], chat(server), on_error="capture")
    assert row["error"]["kind"] == "content-filter"


@pytest.mark.parametrize(
    ("on_error", "left"), [("drop", ["a", "b"]), ("null", ["a", "[[refusal]]", "b"])]
)
def test_failures_are_what_on_error_says(server, on_error, left):
    rows = called(["a", "[[refusal]]", "b"], chat(server), on_error=on_error)
    assert [row["x"] for row in rows] == left
    assert [row["answer"] is None for row in rows] == ["[[" in it for it in left]


def test_a_failure_ends_the_task_with_its_kind(server):
    with pytest.raises(sa.AsyncFunctionError, match="the model refuses") as raised:
        called(["a", "[[refusal]]"], chat(server))
    assert raised.value.kind == "refusal"


def test_a_row_without_a_text_is_not_asked_for(server):
    none, some = called([None, "a"], chat(server, "say {x}!", schema=Mood))
    assert none["mood"] is None
    assert some["mood"] is not None
    assert server.stats()["requests"] == 1


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
def test_an_answer_against_the_schema_is_asked_for_once_more(server, mode):
    texts = ["a", "b [[invalid once]]", "c", "d [[invalid]]", "e [[refusal]]"]
    ask = chat(server, schema=Rated, repair=1, also=["usage"], price={"input": 1, "output": 1})
    rows = called(texts, ask, mode, on_error="capture")
    found = {row["x"][0]: row for row in rows}
    assert mode == "unordered" or [row["x"] for row in rows] == texts
    assert sorted(found) == list("abcde")
    assert found["b"]["stars"] is not None
    assert found["d"]["error"]["kind"] == "result-schema-mismatch"
    assert found["e"]["error"]["kind"] == "refusal"
    answered = server.answered()
    assert [answered[hash_of(f"say {it}")] for it in texts] == [1, 2, 1, 2, 1]
    spent = sum(row["cost"] for row in rows) * 1e6
    stats = server.stats()
    assert spent == pytest.approx(stats["input_tokens"] + stats["output_tokens"])


def test_rules_of_a_class_are_reasons_to_ask_again():
    def answer(request):
        turns = [it["content"] for it in request["messages"]]
        return {"mood": "good", "stars": 9 if len(turns) == 1 else 4}

    with ModelServer(answer) as server:
        (row,) = called(["a"], chat(server, schema=Rated, repair=1))
        (bad,) = called(["a"], chat(server, schema=Rated), on_error="capture")
    assert row == {"x": "a", "mood": "good", "stars": 4}
    assert "`Rated` refuses: stars" in bad["error"]["message"]


def test_json_in_a_fence_is_read():
    with ModelServer(lambda _: '```json\n{"mood": "good"}\n```') as server:
        (row,) = called(["a"], chat(server, schema="mood string"))
    assert row["mood"] == "good"


def test_refused_calls_are_made_again_and_each_row_gets_its_own_answer():
    shares = {"429": 0.1, "529": 0.1, "498": 0.05, "503": 0.05}
    retry = sa.retry.exponential_backoff(20, "1ms", "20ms", budget=None)
    with ModelServer(faults=shares, tokenizer=len, seed=7) as server:
        texts = [f"n{n % 60}" for n in range(300)]
        ask = chat(server, schema="answer string", repair=1)
        rows = called(texts, ask, "unordered", retry=retry, cache=True, on_error="capture")
        assert [row["error"] for row in rows if row["error"] is not None] == []
        for row in rows:
            assert row["answer"] == hash_of(f"say {row['x']}")
        assert server.stats()["answered"] == 60


def test_a_call_without_an_answer_is_not_made_again_unless_you_say_so(server):
    (row,) = called(["[[reset once]]"], chat(server), on_error="capture")
    assert row["error"]["kind"] == "unanswered"
    assert "`repeat=True`" in row["error"]["message"]
    assert server.stats()["answered"] == 1
    (row,) = called(["a [[reset once]]"], chat(server, repeat=True))
    assert row["answer"].startswith(hash_of("say a [[reset once]]"))
    assert server.stats()["answered"] == 3


def test_the_key_goes_to_the_service_that_it_is_of(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "right")
    with ModelServer(api_key="right") as server:
        (row,) = called(["a"], chat(server), on_error="capture")
        assert (row["error"]["kind"], row["error"]["status"]) == ("unauthorized", 401)
        assert "right" not in row["error"]["message"]
        for api in ("chat", "messages"):
            ask = chat(server, api_key=sa.secret("OPENAI_API_KEY"), api=api, max_tokens=9)
            assert called(["a"], ask, on_error="null")[0]["x"] == "a"
        assert server.stats()["answered"] == 2


def test_a_budget_is_never_exceeded_and_nearly_used(server):
    price = {"input": 100.0, "output": 1_000.0}
    ask = chat(server, price=price, budget=0.5, max_tokens=70)
    rows = called([f"n{n}" for n in range(60)], ask, on_error="capture")
    spent = sum(row["cost"] or 0 for row in rows)
    kinds = {row["error"]["kind"] for row in rows if row["error"]}
    stats = server.stats()
    paid = (stats["input_tokens"] * 100 + stats["output_tokens"] * 1_000) / 1e6
    assert kinds == {"budget-spent"}
    assert spent == pytest.approx(paid)
    assert 0.4 < paid <= 0.5


def test_what_is_asked_again_is_of_the_same_budget(server):
    price = {"input": 100.0, "output": 1_000.0}
    ask = chat(server, schema=Rated, price=price, budget=0.5, max_tokens=70, repair=1)
    texts = [f"[[invalid]] {n}" for n in range(60)]
    rows = called(texts, ask, "unordered", on_error="capture")
    stats = server.stats()
    paid = (stats["input_tokens"] * 100 + stats["output_tokens"] * 1_000) / 1e6
    assert paid <= 0.5
    assert sum(row["cost"] or 0 for row in rows) == pytest.approx(paid)
    assert len(rows) == 60
    with pytest.raises(ConfigurationError, match="unordered mode"):
        called(texts, ask)


@pytest.mark.parametrize("told", ["cost", {"usage.input": 1e-4, "usage.output": 1e-3}])
def test_a_budget_of_the_user_is_settled_by_what_the_call_has_cost(server, told):
    """Columns are made where rows leave: what a call reserved would be spent."""
    price = {"input": 100.0, "output": 1_000.0}
    ask = chat(server, price=price, max_tokens=70, also=["usage"])
    budget = sa.Budget(0.9, cost=0.15, result_cost=told)
    rows = called([f"n{n}" for n in range(97)], ask, on_error="capture", rate_limit=budget)
    stats = server.stats()
    paid = (stats["input_tokens"] * 100 + stats["output_tokens"] * 1_000) / 1e6
    assert sum(row["cost"] or 0 for row in rows) == pytest.approx(paid)
    assert 0.75 < paid <= 0.9
    assert stats["answered"] > 6


def test_a_cost_that_is_read_out_of_the_answer_is_refused(server):
    budget = sa.Budget(0.9, cost=0.15, result_cost="stars")
    ask = chat(server, schema="stars long")
    with pytest.raises(ConfigurationError, match=r"`stars`, which is read out of the answer"):
        called(["x"], ask, rate_limit=budget)


def test_what_is_asked_again_is_of_the_budget_that_a_server_keeps(server):
    limits = LimitServer("127.0.0.1", 0, "dollars")
    kept = f"redis://:dollars@127.0.0.1:{limits.port}"
    budget = sa.Budget(0.5, cost=0.09, name="dollars", server=kept)
    ask = chat(server, schema=Rated, max_tokens=70, repair=1)
    texts = [f"[[invalid]] {n}" for n in range(61)]
    rows = called(texts, ask, on_error="capture", rate_limit=budget)
    assert server.stats()["answered"] == 5
    assert [row["x"] for row in rows] == texts
    assert {row["error"]["kind"] for row in rows} >= {"budget-spent"}


@pytest.mark.parametrize("repair", [0, 1])
def test_a_budget_holds_where_a_token_is_a_byte_and_a_column_is_said_often(repair):
    price = {"input": 100.0, "output": 1_000.0}
    with ModelServer(tokenizer=lambda text: len(text.encode())) as server:
        options = {"price": price, "budget": 0.9, "max_tokens": 71, "repair": repair}
        ask = chat(server, "{x}{x}{x}{x}", schema=Rated, extra={"user": "u" * 97}, **options)
        texts = [f"[[invalid]] {n} {'w' * 331}" for n in range(13)]
        rows = called(texts, ask, "unordered", on_error="capture")
        stats = server.stats()
    paid = (stats["input_tokens"] * 100 + stats["output_tokens"] * 1_000) / 1e6
    assert len(rows) == 13
    assert 0.3 < paid <= 0.9
    spent = [row["error"]["message"] for row in rows if row["error"]["kind"] == "budget-spent"]
    told = re.compile(r"the call costs 0\.\d+, and the budget \"[^\"]+\" has 0\.\d+ left")
    assert spent
    assert all(told.search(it) for it in spent)


def test_a_row_that_was_told_nothing_is_asked_again_and_has_no_silent_null():
    choice = {"index": 0, "message": {"role": "assistant", "content": None}}
    said = {"choices": [{**choice, "finish_reason": "stop"}], "usage": None}
    body = json.dumps(said).encode()
    with ScriptedServer(lambda _target, _before: (200, {}, body)) as server:
        ask = sa.llm.chat("{x}", Rated, model="m", base_url=f"{server.url}/v1", repair=1)
        rows = called(["a", "b"], ask, on_error="capture")
        assert len(server.targets) == 4
    assert [row["error"]["kind"] for row in rows] == ["result-schema-mismatch"] * 2


EMPTY = [
    ("chat", {"error": {"code": 502, "message": "no room"}}, "no room"),
    ("chat", {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 0}}, "nothing"),
    ("chat", {"choices": [{"message": {"content": None}, "finish_reason": None}]}, "nothing"),
    ("messages", {"type": "error", "error": {"type": "x", "message": "no room"}}, "no room"),
]


@pytest.mark.parametrize(("api", "reply", "words"), EMPTY)
def test_a_reply_without_an_answer_is_a_failure_that_a_journal_asks_again(
    tmp_path, api, reply, words
):
    body = json.dumps(reply).encode()
    with ScriptedServer(lambda _target, _before: (200, {}, body)) as server:
        ask = sa.llm.chat("{x}!", model="m", base_url=server.url, api=api, max_tokens=9)
        told = {"on_error": "capture", "journal": str(tmp_path / "journal")}
        for calls in (1, 2):
            found, none = called(["a", None], ask, **told)
            assert found["error"]["kind"] == "result-schema-mismatch"
            assert words in found["error"]["message"]
            assert (none["answer"], none["error"]) == (None, None)
            assert len(server.targets) == calls


BARE = {"null": b"null", "list": b"[]", "empty": b"", "number": b"17", "text": b'"so"', "{}": b"{}"}


@pytest.mark.parametrize(
    ("status", "body"),
    [*((200, it) for it in BARE.values()), (204, b"")],
    ids=[*BARE, "no content"],
)
@pytest.mark.parametrize("kind", ["chat", "messages", "embed"])
def test_an_answer_with_nothing_in_it_is_a_failure_and_never_a_silent_null(
    tmp_path, kind, body, status
):
    with ScriptedServer(lambda _target, _before: (status, {}, body)) as server:
        told = {"model": "m", "base_url": server.url}
        if kind == "embed":
            ask, column = sa.llm.embed("{x}", **told), "embedding"
        else:
            ask, column = sa.llm.chat("{x}", api=kind, max_tokens=9, **told), "answer"
        options = {"on_error": "capture", "retry": None, "journal": str(tmp_path / "journal")}
        for calls in (1, 2):
            found, none = called(["a", None], ask, **options)
            assert found[column] is None
            assert found["error"]["kind"] == "result-schema-mismatch", found
            assert (none[column], none["error"]) == (None, None)
            assert len(server.targets) == calls, "a journal asks again"


def test_vectors_that_do_not_come_fail_with_the_words_of_the_service():
    body = json.dumps({"error": {"code": 502, "message": "no room"}}).encode()
    with ScriptedServer(lambda _target, _before: (200, {}, body)) as server:
        embed = sa.llm.embed("{x}", model="m", base_url=server.url)
        (row,) = called(["a"], embed, on_error="capture", retry=None)
    assert row["embedding"] is None
    assert "but an error: no room" in row["error"]["message"]


def test_columns_that_nobody_has_named_are_not_said_to_be_absent(server, caplog):
    # No answer has a refusal or an error, nor tokens of a cache.
    rows = called([f"n{n}" for n in range(61)], chat(server), max_concurrency=7)
    assert len(rows) == 61
    assert "null in all of their rows" not in caplog.text


def test_an_empty_refusal_is_none_and_a_reason_may_say_more():
    def reply(**choice):
        return (200, {}, json.dumps({"choices": [choice], "usage": None}).encode())

    said = {"content": "fine", "refusal": ""}
    replies = iter(
        [
            reply(message=said, finish_reason="stop"),
            reply(message={"content": "so"}, finish_reason="content_filter: SAFETY"),
        ]
    )
    with ScriptedServer(lambda _target, _before: next(replies)) as server:
        ask = sa.llm.chat("{x}", model="m", base_url=server.url)
        good, bad = called(["a", "b"], ask, on_error="capture", max_concurrency=1)
    assert (good["answer"], good["error"]) == ("fine", None)
    assert bad["error"]["kind"] == "content-filter"


@pytest.mark.parametrize(
    ("base_url", "word"),
    [
        (None, "max_completion_tokens"),
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("https://x.openai.azure.com/openai/v1?api-version=1", "max_completion_tokens"),
        ("https://x.services.ai.azure.com/models", "max_completion_tokens"),
        ("http://127.0.0.1/openai.com", "max_tokens"),
        ("https://openai.com.example.org/v1", "max_tokens"),
    ],
)
def test_most_tokens_are_told_in_the_word_of_the_service(base_url, word):
    ask = sa.llm.chat("{x}", model="m", base_url=base_url, api_key="k", max_tokens=7)
    body = str(ask.description())
    assert f'"{word}"' in body or f"'{word}'" in body


@pytest.mark.parametrize(
    "given",
    [
        {"extra": {"n": 50}},
        {"extra": {"max_tokens": 500}},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
    ],
)
def test_a_budget_knows_the_most_that_a_call_costs(given):
    price = {"input": 1.0, "output": 1.0}
    with pytest.raises(ConfigurationError, match="`budget`"):
        sa.llm.chat("{x}", model="m", price=price, budget=1.0, max_tokens=7, **given)


def test_a_budget_counts_bytes_of_texts_only(server):
    price = {"input": 1.0, "output": 1.0}
    ask = chat(server, "{x}", price=price, budget=1.0, max_tokens=7)
    rows = pa.table({"x": [["long"] * 300]})
    with pytest.raises(ConfigurationError, match="columns of texts"):
        sa.arrow.unordered_wait(rows, ask).to_table()


@pytest.mark.parametrize("cache", [True, sa.Cache(key="x")])
def test_what_is_asked_again_is_another_question_for_a_cache(server, cache):
    ask = chat(server, schema=Rated, repair=1)
    texts = ["a [[invalid once]]"] * 3 + ["b"]
    rows = called(texts, ask, "unordered", cache=cache, on_error="capture")
    assert [row["error"] for row in rows] == [None] * 4
    assert server.stats()["answered"] == 3


def test_another_reason_is_another_question_for_a_journal(tmp_path):
    def rule(most):
        return create_model("Named", name=(str, Field(max_length=most)))

    names = iter(["ten letters", "eight..", "two"])
    with ModelServer(lambda _: {"name": next(names)}) as server:
        told = {"on_error": "capture", "journal": str(tmp_path / "journal")}
        asks = [chat(server, schema=rule(most), repair=1) for most in (8, 3)]
        first, second = (called(["x"], ask, **told)[0]["name"] for ask in asks)
    assert (first, second) == ("eight..", "two")


def test_an_estimate_of_no_rows_is_nothing(server):
    price = {"input": 1.0, "output": 1.0}
    table = pa.table({"x": pa.array([], pa.string())})
    found = sa.llm.estimate(table, chat(server, price=price), ask=3)
    assert (found.rows, found.cost) == (0, (0, 0))


def test_all_parts_of_an_answer_are_put_together_beside_rows_without_one():
    def parts(*texts):
        return [{"type": "text", "text": it} for it in texts]

    column = pa.array([parts("a", "b"), None, parts("c"), []])
    assert _text_of(column).to_pylist() == ["ab", None, "c", ""]


def test_an_estimate_asks_no_row_again(server):
    rows = [{"x": f"[[invalid]] {n}"} for n in range(7)]
    price = {"input": 100.0, "output": 1_000.0}
    ask = chat(server, schema=Rated, price=price, max_tokens=99, repair=1)
    assert sa.llm.estimate(rows, ask, ask=7).asked == 7
    with pytest.raises(sa.ConfigurationError, match="`df` must be record batches, or"):
        sa.llm.estimate(["a"], ask)
    assert server.stats()["answered"] == 7


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
def test_a_journal_knows_both_questions_of_a_row_and_failures_are_asked_again(
    server, tmp_path, mode
):
    ask = chat(server, schema=Rated, repair=1, price={"input": 1, "output": 1})
    texts = ["a", "[[refusal once]]", "[[invalid]]", "b [[invalid once]]", "[[cut]]", "c"]
    folder = str(tmp_path / "journal")
    told = {"on_error": "capture", "journal": folder}
    first = {row["x"]: row for row in called(texts, ask, mode, **told)}
    assert server.stats()["answered"] == 8
    kinds = [row["kind"] for row in pq.read_table(folder).to_pylist()]
    failed = ["refusal", "result-schema-mismatch", "truncated"]
    assert Counter(kinds) == Counter(["ok"] * 5 + failed)
    second = {row["x"]: row for row in called(texts, ask, mode, **told)}
    # The refusal, what was cut, and the second question of what was invalid twice.
    assert server.stats()["answered"] == 11
    assert second["[[refusal once]]"]["stars"] is not None
    assert second["[[cut]]"]["error"]["kind"] == "truncated"
    known = ["a", "c", "b [[invalid once]]"]
    assert [second[it] for it in known] == [first[it] for it in known]
    assert second["b [[invalid once]]"]["stars"] is not None


def test_a_journal_may_keep_failures_with_what_they_have_cost(server, tmp_path):
    ask = chat(server, schema=Rated, price={"input": 1, "output": 1}, also=["usage"])
    texts = ["a", "[[refusal]]", "[[cut]]", "[[invalid]]", "[[silent]]", None]
    told = {"on_error": "capture", "journal": sa.Journal(tmp_path / "kept", again="none")}
    first = called(texts, ask, **told)
    assert called(texts, ask, **told) == first
    assert server.stats()["answered"] == 5
    assert all(row["cost"] > 0 for row in first[:5])


@pytest.mark.parametrize("price", [None, {"input": 2.0, "output": 10.0}])
def test_the_cost_in_a_journal_is_money_and_never_tokens(server, tmp_path, price):
    ask = chat(server, price=price, tpm=100_000, also=["usage"])
    texts = ["a", "b", "a", "[[refusal]]", None]
    told = {"on_error": "capture", "cache": True, "journal": str(tmp_path / "journal")}
    called(texts, ask, max_concurrency=1, **told)
    costs = [row["cost"] for row in pq.read_table(tmp_path / "journal").to_pylist()]
    stats = server.stats()
    if price is None:
        assert set(costs) == {None}
    else:
        paid = (2 * stats["input_tokens"] + 10 * stats["output_tokens"]) / 1e6
        assert sum(it or 0 for it in costs) == pytest.approx(paid)


def test_a_row_that_the_rules_of_a_class_refuse_is_asked_for_again(tmp_path):
    stars = iter([9, 3])
    with ScriptedServer(
        lambda _target, _before: (200, {}, json.dumps({"stars": next(stars)}).encode())
    ) as server:
        rated = create_model("Rated", stars=(int, Field(le=5)))
        ask = sa.http.get(f"{server.url}/{{x}}", rated)
        told = {"on_error": "capture", "journal": str(tmp_path / "journal")}
        found = [called(["a"], ask, **told)[0]["stars"] for _ in range(3)]
    assert found == [None, 3, 3]


def test_limits_hold_at_the_server():
    with ModelServer(rpm=3_000, tpm=120_000, tokenizer=lambda it: len(it.split())) as server:
        ask = chat(server, rpm=3_000, tpm=120_000, max_tokens=90)
        called([f"n{n}" for n in range(120)], ask, "unordered")
        stats = server.stats()
    assert stats["answered"] == 120
    assert stats["refused_requests"] + stats["refused_tokens"] == 0


def test_vectors_belong_to_their_rows(server):
    texts = [f"text {n}" for n in range(300)] + [None]
    embed = sa.llm.embed("{x}", model="m", base_url=server.base_url, dimensions=6, max_rows=64)
    for row in called(texts, embed):
        if row["x"] is None:
            assert row["embedding"] is None
            continue
        found = "".join(f"{round(it * 65536):04x}" for it in row["embedding"][:4])
        assert (found, len(row["embedding"])) == (hash_of(row["x"]), 6)
    assert server.stats()["requests"] < 15


def test_a_text_that_is_too_long_fails_alone():
    with ModelServer(tokenizer=len, max_text_tokens=10, max_request_tokens=40) as server:
        texts = [f"text {n}" for n in range(20)]
        texts[7] = "far too long a text"
        embed = sa.llm.embed("{x}", model="m", base_url=server.base_url, max_rows=16)
        rows = called(texts, embed, on_error="capture")
    failed = [row for row in rows if row["error"]]
    assert [row["x"] for row in failed] == [texts[7]]
    assert "maximum context length" in failed[0]["error"]["message"]


def test_a_text_that_is_too_long_is_halved_until_it_fits():
    with ModelServer(tokenizer=len, max_text_tokens=10, max_request_tokens=40) as server:
        texts = [f"text {n}" for n in range(20)]
        texts[7], texts[11] = "far too long a text", 'é"\\ß' * 13
        options = {"model": "m", "base_url": server.base_url, "max_rows": 16}
        embed = sa.llm.embed("{x}", overlong="truncate", **options)
        rows = called(texts, embed, on_error="capture")
        answered = server.answered()
    assert [row["error"] for row in rows] == [None] * 20
    for row in rows:
        found = "".join(f"{round(it * 65536):04x}" for it in row["embedding"][:4])
        beginnings = [hash_of(row["x"][:n]) for n in range(1, 11)]
        assert found in beginnings
        if len(row["x"]) <= 10:
            assert found == hash_of(row["x"])
    assert set(answered.values()) == {1}


def test_an_index_that_two_vectors_have_fails_its_rows(server):
    embed = sa.llm.embed("{x}", model="m", base_url=server.base_url)
    rows = called(["[[invalid]]", "b"], embed, on_error="capture")
    assert [row["error"] is None for row in rows] == [False, False]


def test_an_estimate_pays_for_nothing_and_is_narrowed_by_some_answers(server):
    table = pa.table({"x": [f"word {n % 30} " * (1 + n % 5) for n in range(400)]})
    price = {"input": 100.0, "output": 1_000.0}
    ask = chat(server, price=price, max_tokens=500, rpm=600, tpm=100_000)
    first = sa.llm.estimate(table, ask, tokenizer=lambda it: len(it.split()))
    assert server.stats()["requests"] == 0
    assert (first.rows, first.differing) == (400, 150 if first.differing == 150 else 30)
    narrowed = sa.llm.estimate(table, ask, ask=20)
    assert narrowed.asked == 20
    called(table["x"].to_pylist(), ask, rate_limit=None)
    stats = server.stats()
    paid = (stats["input_tokens"] * 100 + stats["output_tokens"] * 1_000) / 1e6 * 400 / 420
    least, most = narrowed.cost
    assert first.cost[0] <= paid <= first.cost[1]
    assert least <= paid * 1.25
    assert most >= paid * 0.75
    assert most - least < first.cost[1] - first.cost[0]
    assert "400 rows" in str(narrowed)


@pytest.mark.parametrize(
    "text",
    ["good", "a word of this and that ", "0123456789", " " * 90 + "x", "aB3+/xY7Zq", "\U0001f389"],
)
def test_the_range_of_an_estimate_holds_or_has_no_end(server, text):
    price = {"input": 100.0, "output": 100.0}
    table = pa.table({"x": [text * (1 + n % 7) + str(n) for n in range(61)]})
    ask = chat(server, price=price, max_tokens=500)
    bounded, learnt = sa.llm.estimate(table, ask), sa.llm.estimate(table, ask, ask=20)
    endless = sa.llm.estimate(table, chat(server, price=price))
    before = server.stats()
    called(table["x"].to_pylist(), ask, rate_limit=None)
    stats = server.stats()
    paid = sum(stats[it] - before[it] for it in ("input_tokens", "output_tokens")) * 100 / 1e6
    assert bounded.cost[0] <= paid <= bounded.cost[1]
    assert learnt.cost[0] <= paid <= learnt.cost[1] <= bounded.cost[1]
    assert endless.cost == (bounded.cost[0], None)
    assert "output tokens; cost at least" in str(endless)
    assert "`ask=` would tell an upper end" in str(endless)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prompt": None}, "needs a `prompt`"),
        ({"api": "responses"}, "`api` must be one of 'chat', 'messages'"),
        ({"api": "messages"}, "`max_tokens` is needed"),
        ({"budget": 1.0, "max_tokens": 9}, "`budget` needs `price`"),
        ({"budget": 1.0, "price": {"input": 1, "output": 1}}, "`max_tokens` is needed"),
        ({"price": {"in": 1}}, "`price` needs `input` and `output`"),
        ({"also": ["tokens"]}, "`also` must be one of 'usage'"),
        ({"repair": 2}, "`repair` must be 0 or 1"),
        ({"schema": "m map<string, int>"}, "no JSON schema"),
        ({"rpm": 0}, "`rpm`"),
        ({"messages": ["x"]}, "`messages`"),
        ({"messages": "x"}, "`messages`"),
        ({"tpm": "x"}, "`tpm`"),
        ({"tpm": (1, 2, 3)}, "`tpm`"),
        ({"budget": "x", "price": {"input": 1, "output": 1}, "max_tokens": 9}, "Budget"),
        ({"extra": {"stream": True}}, "`stream`"),
        ({"api_key": "", "base_url": "http://x"}, "`api_key`"),
    ],
)
def test_wrong_arguments_are_refused(options, says):
    given = {"prompt": "say {x}", "schema": None, "model": "m", **options}
    with pytest.raises(ConfigurationError, match=says):
        sa.llm.chat(given.pop("prompt"), given.pop("schema"), **given)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tpm": "x"}, "`tpm`"),
        ({"rpm": "x"}, "`rpm`"),
        ({"overlong": "cut"}, "`overlong` must be one of 'error', 'truncate'"),
        ({"dimensions": 0}, "`dimensions`"),
    ],
)
def test_wrong_arguments_of_embed_are_refused(options, says):
    with pytest.raises(ConfigurationError, match=says):
        sa.llm.embed("{x}", model="m", **options)


def test_answers_do_not_go_with_what_is_behind_them(server):
    with pytest.raises(ConfigurationError, match="how answers are read"):
        sa.arrow.ordered_wait(
            sa.arrow.ordered_wait(pa.table({"x": ["a"]}), chat(server)), chat(server), chain=True
        )


def test_it_is_imported_when_it_is_asked_for():
    program = "import sys, sparkawait; assert 'sparkawait.llm' not in sys.modules; sparkawait.llm"
    subprocess.run([sys.executable, "-c", program], check=True)
