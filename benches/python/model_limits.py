# SPDX-License-Identifier: Apache-2.0
"""The same texts asked of one model server, with 3,000 requests and 200,000 tokens a minute.

```text
  python benches/python/model_limits.py sparkawait 2000
  python benches/python/model_limits.py openai 2000      # the client by hand, 100 calls at a time
  python benches/python/model_limits.py daft 1000        # in an environment that has Daft
  python benches/python/model_limits.py openaivec 2000   # in one that has openaivec
```
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from sparkawait.testing import ModelServer, log_normal

RPM, TPM = 3_000, 200_000
WORDS = (
    "Is this good or bad? The delivery was late but the shop answered kindly and sent another one"
)
CALLS = 100


def with_sparkawait(base_url: str, texts: list[str]) -> int:
    """Asks by `sa.llm.chat`; returns how many texts have an answer."""
    import pyarrow as pa

    import sparkawait as sa

    limits = {"rpm": RPM, "tpm": TPM, "max_tokens": 100}
    ask = sa.llm.chat("{text}", model="m", base_url=base_url, **limits)
    rows = pa.table({"text": texts}).to_batches()
    found = sa.arrow.unordered_wait(rows, ask, on_error="capture", max_concurrency=CALLS)
    return found.to_table()["error"].null_count


def with_openai(base_url: str, texts: list[str]) -> int:
    """Asks by the client itself, with its own retries."""
    import openai

    async def main() -> int:
        slots, answered = asyncio.Semaphore(CALLS), 0

        async def ask(text: str) -> None:
            nonlocal answered
            said = [{"role": "user", "content": text}]
            async with slots:
                try:
                    await client.chat.completions.create(model="m", messages=said, max_tokens=100)
                except openai.RateLimitError:
                    return
            answered += 1

        async with openai.AsyncOpenAI(base_url=base_url, api_key="x", max_retries=10) as client:
            await asyncio.gather(*map(ask, texts))
        return answered

    return asyncio.run(main())


def with_daft(base_url: str, texts: list[str]) -> int:
    """Asks by ``prompt`` of Daft."""
    import daft
    from daft.ai.openai.provider import OpenAIProvider
    from daft.functions import prompt

    provider = OpenAIProvider(base_url=base_url, api_key="x")
    asked = prompt(daft.col("text"), provider=provider, model="m", use_chat_completions=True)
    try:
        return len(
            daft.from_pydict({"text": texts}).with_column("answer", asked).to_pydict()["text"]
        )
    except Exception as error:  # noqa: BLE001 - it ends with what the client of OpenAI raises
        print(f"{type(error).__name__}: {error}")
        return 0


def with_openaivec(base_url: str, texts: list[str]) -> int:
    """Asks by openaivec, which puts many texts in one prompt, of the endpoint ``responses``."""
    import bpe_openai
    import httpx2
    import openai
    import tiktoken
    from openaivec import AsyncBatchResponses

    # It counts by tables that it loads from a server of OpenAI; a package brings the same ones.
    tiktoken.get_encoding = bpe_openai.get_encoding

    class AsChat(httpx2.AsyncHTTPTransport):
        """Asks the endpoint that the server has, and answers as the other one does."""

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            asked = json.loads(await request.aread())
            sent = {
                "model": asked["model"],
                "messages": [
                    {"role": "system", "content": asked["instructions"]},
                    {"role": "user", "content": asked["input"]},
                ],
                "response_format": {"type": "json_schema", "json_schema": asked["text"]["format"]},
            }
            url = f"{base_url}/chat/completions"
            reply = await super().handle_async_request(httpx2.Request("POST", url, json=sent))
            if reply.is_error:
                return reply
            found = json.loads(await reply.aread())
            words = {
                "type": "output_text",
                "text": found["choices"][0]["message"]["content"],
                "annotations": [],
            }
            told = {"id": "m", "type": "message", "role": "assistant", "status": "completed"}
            said = {
                "id": found["id"],
                "object": "response",
                "created_at": found["created"],
                "model": found["model"],
                "status": "completed",
                "tools": [],
                "parallel_tool_calls": False,
                "tool_choice": "auto",
                "output": [{**told, "content": [words]}],
            }
            return httpx2.Response(200, json=said)

    async def main() -> int:
        async with (
            httpx2.AsyncClient(transport=AsChat()) as http,
            openai.AsyncOpenAI(base_url=base_url, api_key="x", http_client=http) as client,
        ):
            ask = AsyncBatchResponses.of(client, "m", "Is this good or bad?", str)
            try:
                found = await ask.parse(texts)
            except Exception as error:  # noqa: BLE001 - whatever it ends with
                print(f"{type(error).__name__}: {str(error)[:300]}")
                return 0
        return sum(it is not None for it in found)

    return asyncio.run(main())


def answer_many(request: Mapping[str, Any]) -> Any:
    """Answers a prompt that has many texts."""
    texts = json.loads(request["messages"][-1]["content"])["user_messages"]
    # As many tokens as an answer to one text has on average.
    return {"assistant_messages": [{"id": it["id"], "body": "good " * 40} for it in texts]}


WAYS: dict[str, Callable[[str, list[str]], int]] = {
    "sparkawait": with_sparkawait,
    "openai": with_openai,
    "daft": with_daft,
    "openaivec": with_openaivec,
}


def main(way: str, rows: int) -> None:
    """Runs one way and prints what the server has counted."""
    texts = [f"{WORDS} {n}" for n in range(rows)]
    latency, each = log_normal("800ms", 0.5), "10ms"
    many = answer_many if way == "openaivec" else None
    with ModelServer(many, rpm=RPM, tpm=TPM, latency=latency, token_latency=each) as server:
        began = time.monotonic()
        answered = WAYS[way](server.base_url, texts)
        minutes = (time.monotonic() - began) / 60
        stats = server.stats()
    refused = stats["refused_requests"] + stats["refused_tokens"]
    tokens = stats["input_tokens"] + stats["output_tokens"]
    told = {
        "way": way,
        "rows": rows,
        "with an answer": answered,
        "seconds": round(minutes * 60, 1),
        "of the tokens": round(tokens / minutes / TPM, 3),
        "of requests refused": round(refused / stats["requests"], 3),
        "paid for": stats["answered"],
        "tokens of a row": round(tokens / rows, 1),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
