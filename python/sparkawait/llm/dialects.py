# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""How services of models are spoken to, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from sparkawait._schema.answers import USAGE
from sparkawait.exceptions import ErrorKind

__all__ = ["DIALECTS", "ENDED", "REFUSAL", "SAID", "STATUS", "TEXT", "TOKENS", "Dialect"]

_TRUNCATED, _FILTER = ErrorKind.TRUNCATED, ErrorKind.CONTENT_FILTER
TEXT, ENDED, REFUSAL = "sparkawait_text", "sparkawait_ended", "sparkawait_refusal"
STATUS, SAID = "sparkawait_status", "sparkawait_said"
TOKENS = {name: f"sparkawait_{name}" for name in USAGE}
_PARTS = pa.list_(pa.struct([("type", pa.string()), ("text", pa.string())]))


@dataclass(frozen=True)
class Dialect:
    """How a service is spoken to, and where in its answers things are."""

    path: str
    base_url: str
    key: str
    header: str | None
    headers: Mapping[str, str]
    text: tuple[str, pa.DataType]
    ended: str
    refusal: str | None
    kinds: Mapping[str, ErrorKind]
    tokens: Mapping[str, str]
    is_whole: bool
    tier: str
    request_id: str


DIALECTS = {
    "chat": Dialect(
        path="/chat/completions",
        base_url="https://api.openai.com/v1",
        key="OPENAI_API_KEY",
        header=None,
        headers={},
        text=("$.choices[0].message.content", pa.string()),
        ended="$.choices[0].finish_reason",
        refusal="$.choices[0].message.refusal",
        kinds={"length": _TRUNCATED, "content_filter": _FILTER},
        tokens={
            "input": "$.usage.prompt_tokens",
            "cached": "$.usage.prompt_tokens_details.cached_tokens",
            "write": "$.usage.prompt_tokens_details.cache_write_tokens",
            "output": "$.usage.completion_tokens",
            "reasoning": "$.usage.completion_tokens_details.reasoning_tokens",
        },
        is_whole=True,
        tier="$.service_tier",
        request_id="x-request-id",
    ),
    "messages": Dialect(
        path="/v1/messages",
        base_url="https://api.anthropic.com",
        key="ANTHROPIC_API_KEY",
        header="x-api-key",
        headers={"anthropic-version": "2023-06-01"},
        text=("$.content", _PARTS),
        ended="$.stop_reason",
        refusal=None,
        kinds={
            "max_tokens": _TRUNCATED,
            "model_context_window_exceeded": _TRUNCATED,
            "refusal": ErrorKind.REFUSAL,
        },
        tokens={
            "input": "$.usage.input_tokens",
            "cached": "$.usage.cache_read_input_tokens",
            "write": "$.usage.cache_creation_input_tokens",
            "output": "$.usage.output_tokens",
            "reasoning": "$.usage.output_tokens_details.thinking_tokens",
        },
        is_whole=False,
        tier="$.usage.service_tier",
        request_id="request-id",
    ),
}
