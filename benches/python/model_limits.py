# SPDX-License-Identifier: Apache-2.0
"""The same texts asked of one model server, with 3,000 requests and 200,000 tokens a minute.

```text
  python benches/python/model_limits.py sparkawait 2000
  python benches/python/model_limits.py openai 2000      # the client by hand, 100 calls at a time
  python benches/python/model_limits.py daft 1000        # in an environment that has Daft
```
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable

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


WAYS: dict[str, Callable[[str, list[str]], int]] = {
    "sparkawait": with_sparkawait,
    "openai": with_openai,
    "daft": with_daft,
}


def main(way: str, rows: int) -> None:
    """Runs one way and prints what the server has counted."""
    texts = [f"{WORDS} {n}" for n in range(rows)]
    latency, each = log_normal("800ms", 0.5), "10ms"
    with ModelServer(rpm=RPM, tpm=TPM, latency=latency, token_latency=each) as server:
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
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
