# SPDX-License-Identifier: Apache-2.0
# PyArrow's stubs leave much of its types open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The functions that ask models: `chat` and `embed`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, cast, get_args

import pyarrow as pa

from sparkawait._checks import choice, integer, mapping, nullable, number, refuse, shown, text
from sparkawait._schema.answers import ANSWER, REASON, USAGE, Answers
from sparkawait._schema.json_schema import json_schema
from sparkawait._schema.types import Declared, SchemaLike, declared_by
from sparkawait.connectors import http
from sparkawait.connectors.http_auth import Auth, bearer
from sparkawait.connectors.http_request import HttpFunction
from sparkawait.limits import Batch
from sparkawait.llm.account import Account, rate_of
from sparkawait.llm.dialects import DIALECTS, ENDED, REFUSAL, SAID, STATUS, TEXT, TOKENS, Dialect
from sparkawait.options import NONE_GIVEN, WaitOptions
from sparkawait.rate_limit import Budget, Lengths, RateLimit
from sparkawait.retry import exponential_backoff
from sparkawait.secrets import LookUp, Secret, looked_up, secret

__all__ = ["ChatFunction", "EmbedFunction", "ModelFunction", "chat", "embed"]

Api = Literal["chat", "messages"]
Overlong = Literal["error", "truncate"]
Also = Literal["usage", "request_id", "served_model", "tier", "finish_reason"]


@dataclass(frozen=True)
class ModelFunction(HttpFunction):
    """A request to a model, with the options that fit it."""

    own: WaitOptions = field(default_factory=lambda: NONE_GIVEN, repr=False)
    once: bool = field(default=False, repr=False)
    what: str = field(default="", repr=False)
    account: Account | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The name used in messages and metrics."""
        return f"llm.{self.what}"

    def own_options(self) -> WaitOptions:
        """Returns the limits, timeouts and retries that fit it."""
        return self.own

    def description(
        self, look_up: LookUp = looked_up, *, retry_misses: bool = False
    ) -> dict[str, Any]:
        """Returns what tasks are told: an answer without anything in it is a failure."""
        told = super().description(look_up, retry_misses=retry_misses)
        return {**told, "misses": {**told["misses"], "fails": True}}

    @property
    def idempotent_by(self) -> str | None:
        """What makes two calls do no more than one."""
        return "`repeat=True` asks again, and pays again"


@dataclass(frozen=True)
class ChatFunction(ModelFunction):
    """A model that is asked for each row. Made by `chat`."""

    answers: Answers | None = field(default=None, repr=False)
    blank: int = field(default=0, repr=False)

    def check(self, input_schema: pa.Schema | None = None) -> None:
        """Checks the columns: of those that a budget counts the bytes must be known.

        Raises:
            ConfigurationError: If one is wrong.
        """
        super().check(input_schema)
        limits = self.own.rate_limit.known
        if input_schema is not None and any(isinstance(it, Budget) for it in limits):
            for name in {*self.input_columns} & {*input_schema.names}:
                kind = input_schema.field(name).type
                if pa.types.is_nested(kind):
                    refuse(f"`budget` goes with columns of texts, and `{name}` is {kind}")


@dataclass(frozen=True)
class EmbedFunction(ModelFunction):
    """A model that makes vectors of texts. Made by `embed`."""

    truncates: bool = field(default=False, repr=False)

    def _description(self, look_up: LookUp) -> dict[str, Any]:
        description = super()._description(look_up)
        description["batch"]["halve_texts"] = self.truncates
        return description

    def _asked(self, description: dict[str, Any]) -> dict[str, Any]:
        return {**super()._asked(description), "truncates": self.truncates}


def chat(
    prompt: str | None = None,
    schema: SchemaLike | None = None,
    *,
    model: str,
    api_key: str | Secret | None = None,
    base_url: str | None = None,
    system: str | None = None,
    messages: Sequence[Mapping[str, Any]] = (),
    max_tokens: int | None = None,
    extra: Mapping[str, Any] | None = None,
    api: Api = "chat",
    also: Iterable[Also] = (),
    rpm: float | None = None,
    tpm: float | tuple[float, float] | None = None,
    price: Mapping[str, float] | None = None,
    budget: float | None = None,
    repair: int = 0,
    repeat: bool = False,
    once: bool = False,
    auth: Auth | None = None,
    headers: Mapping[str, str | Secret] | None = None,
    client: http.Client | None = None,
) -> ChatFunction:
    """Returns a function that asks a model for each row.

    A row whose prompt has a null column is not asked for: a miss. A refusal fails its row with kind
    ``refusal``, an answer that ends before its end with ``truncated``, one that a filter took away
    with ``content-filter``, and one against the schema or the rules of its class with
    ``result-schema-mismatch``; the message has the model's words. With ``on_error="capture"`` such
    rows keep what they have cost.

    A call without an answer is not made again, as it may be paid for: no large provider is known to
    take an idempotency key for inference. Its row fails with kind ``unanswered``.

    Args:
        prompt: What the user says: a template, as all texts of `sparkawait.http` are. ``{column}``
            is a column, ``{{`` a brace.
        schema: The columns of the answer: a DDL string, a `pyarrow.Schema`, or a class: a model of
            pydantic, a dataclass, a TypedDict. Its JSON schema is sent, and the answer is read into
            the columns. By default the answer is a text, in the column ``answer``.
        model: The name of the model.
        api_key: A secret, or a text. By default the variable ``OPENAI_API_KEY`` of the executors,
            or ``ANTHROPIC_API_KEY`` for ``api="messages"``; none if `base_url` is given.
        base_url: Where the service is: ``"https://api.openai.com/v1"`` by default, or
            ``"https://api.anthropic.com"``.
        system: What the model is told before; a template.
        messages: What was said before the prompt: ``role`` and ``content`` of each, as templates.
        max_tokens: Most tokens of an answer. ``api="messages"`` and `budget` need it.
        extra: Further members of the request, such as ``{"temperature": 0}`` or
            ``{"service_tier": "flex"}``.
        api: How the service is spoken to: ``"chat"`` (OpenAI, Azure, vLLM, Gemini's compatible
            address) or ``"messages"`` (Anthropic, also on Bedrock).
        also: Further columns: ``"usage"`` (input, cached, write, output and reasoning tokens),
            ``"request_id"``, ``"served_model"``, ``"tier"``, ``"finish_reason"``.
        rpm: Requests in a minute that your account has, for all tasks of the job.
        tpm: Tokens in a minute, likewise; or those of input and of output: ``(input, output)``.
        price: What a million tokens cost: ``{"input": , "output": , "cached": , "write": }``. Adds
            the column ``cost``. Without ``cached`` and ``write`` these cost as ``input``.
        budget: What the job may spend, in the unit of `price`.
        repair: How often an answer against the schema or the rules is asked for once more, with the
            reason: 0 or 1. In unordered mode this happens at the end of a task.
        repeat: Whether a call that got no answer is made again, and perhaps paid for twice.
        once: Whether equal rows are asked for once in the job: Spark brings them together by the
            columns that are read, and one answer serves all. In unordered mode only.
        auth: Who calls, instead of `api_key`, such as ``sa.http.aws_sigv4(service="bedrock")``.
        headers: Further headers.
        client: How connections are made, see `sparkawait.http.Client`.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> import sparkawait as sa
        >>> sa.llm.chat("Is this good or bad? {review}", "mood string", model="some-model")
        ChatFunction(method='POST', input_columns=('review',))
    """
    dialect = DIALECTS[choice(api, "api", *DIALECTS)]
    text(model, "model", "the name of a model")
    said = [dict(mapping(it, "messages", "turns with `role` and `content`")) for it in messages]
    if prompt is not None:
        said.append({"role": "user", "content": text(prompt, "prompt", "a text", quoted=False)})
    if not said:
        refuse("`chat` needs a `prompt` or `messages`")
    if max_tokens is not None:
        integer(max_tokens, "max_tokens", 1)
    elif api == "messages" or budget is not None:
        why = 'api="messages"' if budget is None else "`budget`, which reserves the longest answer"
        refuse(f"`max_tokens` is needed by {why}")
    if repair not in (0, 1):
        refuse(f"`repair` must be 0 or 1, got {shown(repair)}")
    _check_sent(said, extra or {}, has_budget=budget is not None)
    asked = [choice(it, "also", *get_args(Also)) for it in dict.fromkeys(also)]
    declared = None if schema is None else declared_by(schema, has_names=True)
    sent = None if declared is None else json_schema(declared, api=api)
    texts = [system or "", *(str(it.get("content", "")) for it in said)]
    fixed = sum(len(it.encode()) for it in (*texts, str(sent), str(dict(extra or {}))))
    account = Account(model, rpm, tpm, price, fixed, max_tokens, dialect)
    answers, blank, read = _answers(dialect, declared, asked, account.prices)
    body = {
        "model": http.literal(model),
        **_bound(base_url or dialect.base_url, max_tokens),
        **_format(api, sent),
        **http.literal(dict(extra or {})),
    }

    def function(said: list[dict[str, Any]]) -> ChatFunction:
        made = http.post(
            _url(base_url or dialect.base_url, dialect.path),
            pa.schema([*blank, *(pa.field(name, kind) for name, (_, kind) in read.items())]),
            paths={name: path for name, (path, _) in read.items()},
            json={**body, **_said(api, system, said)},
            status=STATUS,
            response_headers={"request_id": dialect.request_id} if "request_id" in asked else {},
            idempotency_key=True if repeat else None,
            client=client or http.Client(read_timeout=_waits(extra)[1]),
            **_caller(dialect, api_key, base_url, auth, headers),
        )
        of_chat: dict[str, Any] = {"what": "chat", "once": once, "account": account}
        return ChatFunction(**_told(made), **of_chat, answers=answers, blank=len(blank))

    plain = function(said)
    limits = account.limits(plain.input_columns)
    if budget is not None:
        # A column that is said twice is paid for twice.
        often = [
            name
            for name in plain.input_columns
            for _ in range(max(1, sum(text.count(f"{{{name}}}") for text in texts)))
        ]
        limits.append(account.budget(budget, often))
    if repair:
        wrong = f"This is not what I asked for: {{{REASON}}}. Answer again."
        again = (
            {"role": "assistant", "content": f"{{{ANSWER}}}"},
            {"role": "user", "content": wrong},
        )
        answers = replace(answers, again=function([*said, *again]))
    own = _options(_waits(extra)[0], limits, once=once)
    return replace(plain, answers=answers, own=own)


def _answers(
    dialect: Dialect, declared: Declared | None, asked: list[str], prices: dict[str, float]
) -> tuple[Answers, list[Any], dict[str, tuple[str, pa.DataType]]]:
    """Returns how answers are read, the columns that are blank until then, and all others."""
    answer = pa.schema([("answer", pa.string())]) if declared is None else declared.columns
    blank: list[Any] = list(nullable(cast("Any", answer)))
    if "usage" in asked:
        blank.append(pa.field("usage", pa.struct([(name, pa.int64()) for name in USAGE])))
    if prices:
        blank.append(pa.field("cost", pa.float64()))
    text_ = pa.string()
    places = {"served_model": "$.model", "tier": dialect.tier, "finish_reason": dialect.ended}
    read = {name: (path, text_) for name, path in places.items() if name in asked}
    shown_ = frozenset(read)
    ended = "finish_reason" if "finish_reason" in asked else ENDED
    read |= {ended: (dialect.ended, text_), TEXT: dialect.text, SAID: ("$.error.message", text_)}
    if dialect.refusal is not None:
        read[REFUSAL] = dialect.refusal, text_
    read |= {TOKENS[name]: (path, pa.int64()) for name, path in dialect.tokens.items()}
    answers = Answers(
        schema=answer,
        is_json=declared is not None,
        paths={} if declared is None else declared.paths,
        model=None if declared is None else declared.rules,
        text=TEXT,
        status=STATUS,
        said=SAID,
        ended=ended,
        refusal=None if dialect.refusal is None else REFUSAL,
        kinds=dialect.kinds,
        tokens=TOKENS,
        is_whole=dialect.is_whole,
        usage="usage" if "usage" in asked else None,
        cost="cost" if prices else None,
        prices=prices,
        hidden=frozenset({*read, STATUS}) - shown_,
    )
    return answers, blank, read


def embed(
    text: str,
    *,
    model: str,
    api_key: str | Secret | None = None,
    base_url: str | None = None,
    dimensions: int | None = None,
    column: str = "embedding",
    max_rows: int = 256,
    max_tokens: int = 100_000,
    overlong: Overlong = "error",
    extra: Mapping[str, Any] | None = None,
    rpm: float | None = None,
    tpm: float | None = None,
    repeat: bool = False,
    once: bool = False,
    auth: Auth | None = None,
    headers: Mapping[str, str | Secret] | None = None,
    client: http.Client | None = None,
) -> EmbedFunction:
    """Returns a function that makes vectors of texts, many in a request.

    Each vector belongs to the row that its index names. A request that is too large for the service
    is made again in halves, down to one row; `overlong` says what a text is that is too long alone.

    Args:
        text: The text of a row: a template.
        model: The name of the model.
        api_key: As for `chat`.
        base_url: As for `chat`.
        dimensions: Elements of a vector, where the model lets you choose.
        column: The name of the column.
        max_rows: Texts of a request.
        max_tokens: Tokens of a request; three bytes count as one.
        overlong: What happens to a text that is too long for the model, as the service says:
            ``"error"`` fails its row, and ``"truncate"`` halves it until it fits.
        extra: Further members of the request.
        rpm: Requests in a minute that your account has, for all tasks of the job.
        tpm: Tokens in a minute, likewise.
        repeat: As for `chat`.
        once: As for `chat`.
        auth: As for `chat`.
        headers: As for `chat`.
        client: As for `chat`.

    Raises:
        ConfigurationError: If an argument is wrong.

    Examples:
        >>> import sparkawait as sa
        >>> sa.llm.embed("{title}: {body}", model="some-model", dimensions=256)
        EmbedFunction(method='POST', input_columns=('title', 'body'))
    """
    dialect = DIALECTS["chat"]
    if dimensions is not None:
        integer(dimensions, "dimensions", 1)
    integer(max_rows, "max_rows", 1)
    integer(max_tokens, "max_tokens", 1)
    choice(overlong, "overlong", *get_args(Overlong))
    made = http.post(
        _url(base_url or dialect.base_url, "/embeddings"),
        pa.schema([pa.field(column, pa.list_(pa.float32()), nullable=False)]),
        paths={column: "$.embedding"},
        json={
            "model": http.literal(model),
            "input": http.each(text),
            **({} if dimensions is None else {"dimensions": dimensions}),
            **http.literal(dict(extra or {})),
        },
        rows="data",
        items=http.items(id="index"),
        batch=Batch(
            max_rows=max_rows, max_bytes=3 * max_tokens, linger="50ms", split_on_error=True
        ),
        idempotency_key=True if repeat else None,
        client=client or http.Client(read_timeout="110s", max_reply_bytes="256 MB"),
        **_caller(dialect, api_key, base_url, auth, headers),
    )
    limits: list[Any] = []
    if rpm is not None:
        name = f"requests of {model}"
        limits.append(RateLimit(rate_of(rpm, "rpm"), per="request", name=name, scope="job"))
    if tpm is not None:
        burst = max(int(number(tpm, "tpm", 1) / 60), max_tokens)
        cost = Lengths(made.input_columns, 0.25, 1)
        name, rate = f"tokens of {model}", rate_of(tpm, "tpm")
        limits.append(RateLimit(rate, burst, cost, "job", name=name, counts="tokens"))
    own = _options("2 min", limits, once=once)
    account = Account(model, rpm, tpm, fixed=len(text.encode()), max_tokens=0)
    of_embed: dict[str, Any] = {"what": "embed", "own": own, "once": once, "account": account}
    return EmbedFunction(**_told(made), **of_embed, truncates=overlong == "truncate")


def _told(made: HttpFunction) -> dict[str, Any]:
    return {it.name: getattr(made, it.name) for it in fields(HttpFunction)}


def _options(timeout: str, limits: list[Any], *, once: bool) -> WaitOptions:
    """Returns the options that fit a model; those of the call win."""
    given: dict[str, Any] = {"timeout": timeout, "retry": exponential_backoff(10, "500ms", "30s")}
    if limits:
        given["rate_limit"] = limits
    if once:
        given["cache"] = True
    return WaitOptions(**given)


def _url(base: str, path: str) -> str:
    """Returns the address; what a base address has as a query stays behind the path."""
    text(base, "base_url", "an address", quoted=False)
    address, mark, query = base.partition("?")
    address = address.rstrip("/")
    if path.startswith("/v1/") and address.endswith("/v1"):
        address = address.removesuffix("/v1")
    return http.literal(f"{address}{path}{mark}{query}")


def _said(api: str, system: str | None, said: list[dict[str, Any]]) -> dict[str, Any]:
    if system is None:
        return {"messages": said}
    if api == "messages":
        return {"system": system, "messages": said}
    return {"messages": [{"role": "system", "content": system}, *said]}


_SAYS_COMPLETION = re.compile(
    r"//[^/]*\.(openai|openai\.azure|services\.ai\.azure)\.com(?=[:/?]|$)"
)
"""Whose models that think understand another word than other services do."""


def _bound(address: str, max_tokens: int | None) -> dict[str, Any]:
    is_openai = _SAYS_COMPLETION.search(address) is not None
    return {} if max_tokens is None else {_MOST[is_openai]: max_tokens}


_MOST = ("max_tokens", "max_completion_tokens")


def _check_sent(
    said: Iterable[Mapping[str, Any]], extra: Mapping[str, Any], *, has_budget: bool
) -> None:
    """Checks that answers come whole, and that a budget knows the most that they cost."""
    if extra.get("stream"):
        refuse("`stream` in `extra` does not go with `chat`, which reads whole answers")
    if not has_budget:
        return
    for name in ("n", *_MOST):
        if name in extra:
            refuse(f"`budget` does not go with `{name}` in `extra`: it reserves one answer")
    for turn in said:
        parts = turn.get("content")
        kinds = [it.get("type") for it in parts] if isinstance(parts, (list, tuple)) else []
        if other := [it for it in kinds if it != "text"]:
            refuse(f"`budget` goes with texts, got a part of type {shown(other[0])} in `messages`")


def _format(api: str, schema: dict[str, Any] | None) -> dict[str, Any]:
    if schema is None:
        return {}
    sent = http.literal(schema)
    if api == "messages":
        return {"output_config": {"format": {"type": "json_schema", "schema": sent}}}
    named = {"name": "answer", "strict": True, "schema": sent}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _waits(extra: Mapping[str, Any] | None) -> tuple[str, str]:
    """Returns how long a row may take, and how long its server may be silent."""
    is_flex = (extra or {}).get("service_tier") == "flex"
    return ("20 min", "15 min") if is_flex else ("10 min", "590s")


def _caller(
    dialect: Dialect,
    api_key: str | Secret | None,
    base_url: str | None,
    auth: Auth | None,
    headers: Mapping[str, str | Secret] | None,
) -> dict[str, Any]:
    """Returns who calls. A key of one service goes to no other unless it is given."""
    given: dict[str, Any] = {**dialect.headers, **(headers or {})}
    if api_key is not None and auth is not None:
        refuse("`api_key` and `auth` exclude each other")
    if api_key is None and auth is None and base_url is None:
        api_key = secret(dialect.key)
    if api_key is not None and not isinstance(api_key, Secret):
        text(api_key, "api_key", "a secret or a text", quoted=False)
    if api_key is not None and dialect.header is not None:
        given[dialect.header] = api_key if isinstance(api_key, Secret) else http.literal(api_key)
    elif api_key is not None:
        auth = bearer(api_key)
    return {"headers": given, "auth": auth}
