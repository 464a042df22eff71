# SPDX-License-Identifier: Apache-2.0
"""An HTTP server that stands in for a model service, with its dialects, limits and failures.

It is written in Rust and runs on a thread of its own. Tokens are counted, and answers made, in
Python only where a function for that was given. Any thread may use the handle, in the process that
made it; other processes use the url.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, cast, final

from sparkawait import _core
from sparkawait._checks import (
    Duration,
    integer,
    mapping,
    number,
    parse_duration,
    refuse,
    shown,
    text,
)
from sparkawait.testing.services import MAX_SEED, Latency, LatencyLike, to_latency

_MOST = 2**31
_MAX_PORT = 65_535

Answer = Callable[[dict[str, Any]], Any]
"""Makes the answer to a request: a text, or a value that becomes JSON; ``None`` for any."""


class _Settings(NamedTuple):
    """What a server is told, as the extension module reads it."""

    latency: Latency
    per_token: float
    rpm: float | None
    tpm: float | None
    max_concurrency: int | None
    burst: float
    faults: list[tuple[str, float]]
    api_key: str | None
    output_tokens: tuple[int, int]
    reasoning_tokens: int
    dimensions: int
    max_text_tokens: int
    max_request_tokens: int
    port: int
    seed: int


@final
class ModelServer:
    """Answers as model services do: ``chat/completions``, ``messages`` and ``embeddings``.

    ``base_url`` is what clients of OpenAI take, and `url` what those of Anthropic take. An answer
    is what `answer` returns; else what the JSON schema of the request asks for, or a text, made of
    the hash of the prompt, which is the first text of the user: `hash_of`. The first four elements
    of a vector are the hash of its text, in units of 1/65536. ``GET /-/stats`` gives the counters.

    A prompt may ask for a fault: ``[[cut]]``, or ``[[cut once]]`` for its first call alone. Faults
    are the statuses ``429``, ``498``, ``500``, ``503`` and ``529``; ``cut``: the answer ends as if
    ``max_tokens`` were spent; ``silent``: all tokens were thought, and nothing is said;
    ``invalid``: not what the schema says; ``refusal``; ``filtered``: taken away by a filter;
    ``stall``: nothing comes; ``reset``: the connection breaks, and the call is paid for.

    Args:
        answer: Makes the answer to a request, given as the JSON that came.
        tokenizer: Counts the tokens of a text. By default ``bpe_openai`` does (``o200k_base``), if
            that package is installed, else four bytes are a token.
        latency: How long it is until an answer begins: a duration or a distribution.
        token_latency: How long each token of an answer takes.
        rpm: Requests in a minute. Beyond it, as with `tpm` and `max_concurrency`, the answer is
            429, with the headers and words of the dialect.
        tpm: Tokens in a minute, of prompts and answers.
        max_concurrency: Calls at a time.
        burst: How much of what comes in time may be used at once.
        faults: Shares of the calls that meet faults, by name.
        api_key: Who may call; by default anybody.
        output_tokens: Least and most tokens of a text that nobody has written.
        reasoning_tokens: Tokens that are thought before each answer.
        dimensions: Elements of a vector, unless a request says otherwise.
        max_text_tokens: Tokens that one text of embeddings may have.
        max_request_tokens: Tokens that the texts of a request for embeddings may have.
        port: The port to listen on; 0 picks a free one.
        seed: Makes latencies and faults repeatable, in the order of the requests.

    Raises:
        ConfigurationError: If an argument is wrong.
        OSError: If the port is taken.

    Examples:
        >>> import json
        >>> from urllib.request import Request, urlopen
        >>> asked = {"model": "m", "messages": [{"role": "user", "content": "why?"}]}
        >>> with ModelServer(tokenizer=len) as server:
        ...     request = Request(f"{server.base_url}/chat/completions", json.dumps(asked).encode())
        ...     said = json.load(urlopen(request))["choices"][0]["message"]["content"]
        >>> said.startswith(ModelServer.hash_of("why?"))
        True
    """

    def __init__(
        self,
        answer: Answer | None = None,
        *,
        tokenizer: Callable[[str], int] | None = None,
        latency: LatencyLike = None,
        token_latency: Duration = 0,
        rpm: float | None = None,
        tpm: float | None = None,
        max_concurrency: int | None = None,
        burst: Duration = "5s",
        faults: Mapping[str, float] | None = None,
        api_key: str | None = None,
        output_tokens: tuple[int, int] = (16, 64),
        reasoning_tokens: int = 0,
        dimensions: int = 8,
        max_text_tokens: int = 8_192,
        max_request_tokens: int = 300_000,
        port: int = 0,
        seed: int = 0,
    ) -> None:
        pair = cast("object", output_tokens)
        if not isinstance(pair, (tuple, list)) or len(cast("Sequence[object]", pair)) != 2:  # noqa: PLR2004
            refuse(f"`output_tokens` must be a pair of ints, got {shown(cast('object', pair))}")
        least, most = output_tokens
        settings = _Settings(
            latency=to_latency(latency, "latency"),
            per_token=parse_duration(token_latency, "token_latency"),
            rpm=None if rpm is None else number(rpm, "rpm", 0),
            tpm=None if tpm is None else number(tpm, "tpm", 0),
            max_concurrency=None
            if max_concurrency is None
            else integer(max_concurrency, "max_concurrency", 1, _MOST),
            burst=parse_duration(burst, "burst"),
            faults=_faults(faults or {}),
            api_key=None if api_key is None else text(api_key, "api_key", quoted=False),
            output_tokens=(
                integer(least, "output_tokens", 1, _MOST),
                integer(most, "output_tokens", least, _MOST),
            ),
            reasoning_tokens=integer(reasoning_tokens, "reasoning_tokens", 0, _MOST),
            dimensions=integer(dimensions, "dimensions", 1, 65_536),
            max_text_tokens=integer(max_text_tokens, "max_text_tokens", 1, _MOST),
            max_request_tokens=integer(max_request_tokens, "max_request_tokens", 1, _MOST),
            port=integer(port, "port", 0, _MAX_PORT),
            seed=integer(seed, "seed", 0, MAX_SEED),
        )
        for name, function in (("answer", answer), ("tokenizer", tokenizer)):
            if function is not None and not callable(cast("object", function)):
                refuse(f"`{name}` must be a function, got a `{type(function).__name__}`")
        say = None if answer is None else _said(answer)
        self._server = _core.ModelServer(settings, tokenizer or _tokenizer(), say)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return self._server.port

    @property
    def url(self) -> str:
        """The address of the server, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """The address as clients of OpenAI take it, with ``/v1``."""
        return f"{self.url}/v1"

    @staticmethod
    def hash_of(prompt: str) -> str:
        """Returns the hash that the answer to a prompt has in it: 16 hexadecimal digits."""
        return _core.ModelServer.hash_of(prompt)

    def stats(self) -> dict[str, int]:
        """Returns the counters, which stay readable after `stop`.

        They are ``requests``, ``answered`` (paid for, also where the answer got lost),
        ``refused_requests``, ``refused_tokens`` and ``refused_concurrency`` (429), ``faults``,
        ``invalid``, ``input_tokens``, ``cached_tokens``, ``output_tokens``, ``texts``,
        ``in_flight`` and ``max_in_flight``.

        Raises:
            OperatorStateError: If called in a forked process.
        """
        return self._server.stats()

    def answered(self) -> dict[str, int]:
        """Returns how many answers each prompt, or text of embeddings, has got, by its hash.

        Raises:
            OperatorStateError: If called in a forked process.
        """
        return self._server.answered()

    def set_faults(self, faults: Mapping[str, float] | None = None) -> None:
        """Has other shares of the calls meet faults from now on.

        Args:
            faults: As in the constructor.

        Raises:
            ConfigurationError: If they add up to more than 1, or a name is unknown.
            OperatorStateError: If called in a forked process.
        """
        self._server.set_faults(_faults(faults or {}))

    def stop(self) -> None:
        """Closes the port and every connection. Further calls do nothing."""
        self._server.stop()

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"ModelServer({self.url!r})"


def _faults(faults: Mapping[str, float]) -> list[tuple[str, float]]:
    items = mapping(faults, "faults", "shares by name of the fault").items()
    return [(str(name), number(share, "faults", 0, 1)) for name, share in items]


def _said(answer: Answer) -> Callable[[str], str | None]:
    def say(request: str) -> str | None:
        said = answer(json.loads(request))
        return said if said is None or isinstance(said, str) else json.dumps(said)

    return say


@functools.cache
def _tokenizer() -> Callable[[str], int] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how it reads its own files
        try:
            import bpe_openai  # pyright: ignore[reportMissingTypeStubs]
        except ImportError:
            return None
        encode = cast("Any", bpe_openai).get_encoding("o200k_base").encode_ordinary
    return lambda words: len(encode(words))
