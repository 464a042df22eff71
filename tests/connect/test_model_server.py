# SPDX-License-Identifier: Apache-2.0
"""What the server that stands in for models answers, to the clients of those services."""

import json
import warnings
from contextlib import closing
from http.client import HTTPConnection
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from sparkawait.exceptions import ConfigurationError
from sparkawait.testing import ModelServer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what these packages say of their own when they are imported
    import anthropic
    import openai

SCHEMA = {
    "type": "object",
    "properties": {"mood": {"enum": ["good", "bad"]}, "stars": {"type": "integer", "maximum": 5}},
    "required": ["mood", "stars"],
    "additionalProperties": False,
}


def ask(server, prompt="why?", path="/v1/chat/completions", **more):
    said = [{"role": "user", "content": prompt}]
    body = {"model": "m", "messages": said, **more}
    request = Request(server.url + path, json.dumps(body).encode())  # noqa: S310 - our own
    with urlopen(request) as reply:  # noqa: S310 - the same
        return json.load(reply), reply.headers


def refused(server, prompt="why?", path="/v1/chat/completions", **more):
    with pytest.raises(HTTPError) as raised:
        ask(server, prompt, path, **more)
    return raised.value.code, json.load(raised.value), raised.value.headers


@pytest.fixture
def server():
    with ModelServer(api_key="right") as server:
        yield server


@pytest.fixture
def open_ai(server):
    with openai.OpenAI(base_url=server.base_url, api_key="right", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(server):
    with anthropic.Anthropic(base_url=server.url, api_key="right", max_retries=0) as client:
        yield client


def test_the_client_of_openai_gets_texts_and_tokens(server, open_ai):
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "why?"}]
    reply = open_ai.chat.completions.create(model="m", messages=said)
    choice, usage = reply.choices[0], reply.usage
    assert choice.message.content.startswith(ModelServer.hash_of("why?"))
    assert (choice.finish_reason, reply.model) == ("stop", "m-2026-01-01")
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert server.stats()["output_tokens"] == usage.completion_tokens
    assert server.answered() == {ModelServer.hash_of("why?"): 1}


def test_the_client_of_openai_gets_what_its_schema_says(open_ai):
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}
    reply = open_ai.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "why?"}], response_format=schema
    )
    answer = json.loads(reply.choices[0].message.content)
    assert answer["mood"] in ("good", "bad")
    assert 0 <= answer["stars"] <= 5


def test_the_client_of_openai_gets_vectors_that_say_whose_they_are(server, open_ai):
    reply = open_ai.embeddings.create(model="m", input=["a", "b"], dimensions=6)
    assert [it.index for it in reply.data] == [0, 1]
    for text, item in zip(["a", "b"], reply.data, strict=True):
        found = "".join(f"{round(it * 65536):04x}" for it in item.embedding[:4])
        assert (found, len(item.embedding)) == (ModelServer.hash_of(text), 6)
    assert server.stats()["texts"] == 2


def test_the_client_of_anthropic_gets_texts_and_what_its_schema_says(server, claude):
    asked = {"model": "m", "max_tokens": 500, "messages": [{"role": "user", "content": "why?"}]}
    reply = claude.messages.create(**asked, system="Be brief.")
    assert reply.content[0].text.startswith(ModelServer.hash_of("why?"))
    assert reply.stop_reason == "end_turn"
    assert server.stats()["input_tokens"] == reply.usage.input_tokens
    bounded = {"format": {"type": "json_schema", "schema": SCHEMA}}
    with pytest.raises(anthropic.BadRequestError, match="'maximum' is not permitted"):
        claude.messages.create(**asked, output_config=bounded)
    form = {"format": {"type": "json_schema", "schema": anthropic.transform_schema(SCHEMA)}}
    reply = claude.messages.create(**asked, output_config=form)
    assert json.loads(reply.content[0].text)["mood"] in ("good", "bad")


@pytest.mark.parametrize(
    ("fault", "of_openai", "of_anthropic"),
    [
        ("429", openai.RateLimitError, anthropic.RateLimitError),
        ("498", openai.APIStatusError, anthropic.APIStatusError),
        ("500", openai.InternalServerError, anthropic.InternalServerError),
        ("529", openai.InternalServerError, anthropic.InternalServerError),
    ],
)
def test_clients_raise_what_they_raise_for_their_services(
    open_ai, claude, fault, of_openai, of_anthropic
):
    said = [{"role": "user", "content": f"[[{fault}]]"}]
    with pytest.raises(of_openai):
        open_ai.chat.completions.create(model="m", messages=said)
    with pytest.raises(of_anthropic):
        claude.messages.create(model="m", messages=said, max_tokens=9)


def test_clients_with_a_wrong_key_are_told(server):
    said = [{"role": "user", "content": "why?"}]
    with (
        openai.OpenAI(base_url=server.base_url, api_key="wrong") as client,
        pytest.raises(openai.AuthenticationError, match="Incorrect API key"),
    ):
        client.chat.completions.create(model="m", messages=said)
    with (
        anthropic.Anthropic(base_url=server.url, api_key="wrong") as client,
        pytest.raises(anthropic.AuthenticationError, match="Incorrect API key"),
    ):
        client.messages.create(model="m", messages=said, max_tokens=9)


def test_a_cut_answer_is_told_in_both_dialects(open_ai, claude):
    said = [{"role": "user", "content": "why?"}]
    reply = open_ai.chat.completions.create(model="m", messages=said, max_completion_tokens=3)
    assert (reply.choices[0].finish_reason, reply.usage.completion_tokens) == ("length", 3)
    reply = claude.messages.create(model="m", messages=said, max_tokens=3)
    assert (reply.stop_reason, reply.usage.output_tokens) == ("max_tokens", 3)


def test_a_prompt_asks_for_a_refusal_a_filter_silence_and_a_wrong_answer():
    with ModelServer() as server:
        refusal, _ = ask(server, "[[refusal]]")
        filtered, _ = ask(server, "[[filtered]]")
        silent, _ = ask(server, "[[silent]]", max_tokens=40)
        wrong, _ = ask(server, "[[invalid once]]")
        right, _ = ask(server, "[[invalid once]]")
    assert refusal["choices"][0]["message"]["refusal"].startswith("I cannot")
    assert refusal["choices"][0]["message"]["content"] is None
    assert filtered["choices"][0]["finish_reason"] == "content_filter"
    assert silent["choices"][0]["message"]["content"] == ""
    assert silent["usage"]["completion_tokens_details"]["reasoning_tokens"] == 40
    assert "wrong" in wrong["choices"][0]["message"]["content"]
    assert "wrong" not in right["choices"][0]["message"]["content"]
    assert server.stats()["faults"] == 4


def test_tokens_are_counted_by_a_tokenizer_that_a_package_brings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import bpe_openai

    words = "Tokenizers count pieces of words, and not their letters."
    with ModelServer() as server:
        reply, _ = ask(server, words)
    counted = len(bpe_openai.get_encoding("o200k_base").encode(words))
    assert reply["usage"]["prompt_tokens"] == counted + 4 + 3


def test_requests_beyond_a_limit_are_refused_with_the_words_and_headers_of_the_dialect():
    with ModelServer(rpm=1, burst="1 min") as server:
        _, headers = ask(server)
        assert headers["x-ratelimit-limit-requests"] == "1"
        assert headers["x-ratelimit-remaining-requests"] == "0"
        code, body, headers = refused(server)
        assert (code, body["error"]["code"]) == (429, "rate_limit_exceeded")
        assert 0 < int(headers["retry-after-ms"]) <= 60_000
        assert int(headers["retry-after"]) <= 60
        code, body, headers = refused(server, path="/v1/messages", max_tokens=9)
        assert (code, body["error"]["type"]) == (429, "rate_limit_error")
        assert headers["anthropic-ratelimit-requests-remaining"] == "0"
        assert headers["anthropic-ratelimit-requests-reset"].endswith("Z")
        assert server.stats()["refused_requests"] == 2


def test_tokens_and_calls_at_a_time_are_limited():
    with ModelServer(lambda _: "one two", tokenizer=lambda it: len(it.split()), tpm=60) as server:
        ask(server, "three words here")  # 12 of them: more than the 5 that may be used at once
        code, body, _ = refused(server)
        assert (code, "TPM" in body["error"]["message"]) == (429, True)
        assert server.stats()["refused_tokens"] == 1
    with ModelServer(max_concurrency=1, latency="5 min") as server:
        with pytest.raises(TimeoutError), closing(connection(server, timeout=0.05)) as waiting:
            waiting.getresponse()
        first = connection(server)
        while server.stats()["in_flight"] != 1:
            pass  # the one that has given up is still seen as a call
        code, body, headers = refused(server)
        assert (code, "concurrency" in body["error"]["message"]) == (429, True)
        assert headers["retry-after"] is None
        first.close()


def connection(server, **more):
    made = HTTPConnection("127.0.0.1", server.port, **more)
    said = [{"role": "user", "content": "why?"}]
    made.request("POST", "/v1/chat/completions", json.dumps({"model": "m", "messages": said}))
    return made


def test_answers_are_what_a_function_says():
    def answer(request):
        return {"asked": request["messages"][0]["content"]}

    with ModelServer(answer) as server:
        reply, _ = ask(server, "why?")
    assert json.loads(reply["choices"][0]["message"]["content"]) == {"asked": "why?"}


def test_a_long_prefix_is_written_once_and_then_known():
    with ModelServer(tokenizer=len) as server:
        told = {"system": "x" * 2_000, "max_tokens": 99, "path": "/v1/messages"}
        first, _ = ask(server, "a", **told)
        second, _ = ask(server, "b", **told)
    assert first["usage"]["cache_creation_input_tokens"] == 2_004
    assert second["usage"]["cache_read_input_tokens"] == 2_004
    assert second["usage"]["input_tokens"] == first["usage"]["input_tokens"] == 8


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"messages": []}, "'messages' is missing"),
        ({"messages": [{"role": "cat", "content": "x"}]}, "'cat' is not one of the roles"),
        ({"stream": True}, "does not stream"),
        ({"model": ""}, "model"),
    ],
)
def test_wrong_requests_are_refused_in_words(body, says):
    with ModelServer() as server:
        code, reply, _ = refused(server, **body)
        assert (code, says in reply["error"]["message"]) == (400, True)
        assert server.stats()["invalid"] == 1


def test_texts_that_are_too_long_are_refused():
    with ModelServer(tokenizer=len, max_text_tokens=5, max_request_tokens=9) as server:
        for texts, says in ((["abcdef"], "maximum context length"), (["abcde"] * 2, "per request")):
            code, body, _ = refused(server, path="/v1/embeddings", input=texts)
            assert (code, says in body["error"]["message"]) == (400, True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"faults": {"nonsense": 0.5}}, "`nonsense` is not a fault"),
        ({"faults": {"cut": 0.7, "429": 0.7}}, "add up to at most 1"),
        ({"rpm": 0}, "`rpm` must be positive"),
        ({"answer": 7}, "`answer` must be a function"),
        ({"output_tokens": (9, 3)}, "`output_tokens`"),
    ],
)
def test_wrong_arguments_are_refused(options, says):
    with pytest.raises(ConfigurationError, match=says):
        ModelServer(**options)
