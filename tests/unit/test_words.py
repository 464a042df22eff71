# SPDX-License-Identifier: Apache-2.0
"""Words of other libraries are answered with the one to write here."""

import pytest

import sparkawait as sa
from sparkawait import retry
from sparkawait._option import _MEANINGS, _TABLE
from sparkawait.connectors.http_options import HTTP_OPTIONS
from sparkawait.connectors.postgres_lookup import POSTGRES_OPTIONS
from sparkawait.connectors.redis_function import REDIS_OPTIONS
from sparkawait.options import OPTIONS

CALLS = {
    "wait": sa.WaitOptions,
    "http": lambda **given: sa.http.get("https://h/{id}", "x int", **given),
    "redis": lambda **given: sa.redis.get("redis://h", "{id}", schema="x int", **given),
    "postgres": lambda **given: sa.postgres.lookup(
        "host=h", "select $1", ["id"], schema="x int", **given
    ),
    "limit": lambda **given: sa.RateLimit("7/s", **given),
    "backoff": retry.exponential_backoff,
    "on_error": lambda **given: sa.OnError("capture", **given),
    "channel": lambda **given: sa.Channel("id", **given),
    "tuning": sa.Tuning,
    "delay": lambda **given: retry.fixed_delay(3, "7ms", **given),
}


@pytest.mark.parametrize(
    ("call", "word", "answer"),
    [
        ("wait", "rpm", "rate_limit='500/min'"),
        ("wait", "tpm", "whose cost is the tokens"),
        ("wait", "batch_size", r"@sa\.async_function\(\.\., batch=100\)"),
        ("wait", "batch", r"belongs to the function: @sa\.async_function\(\.\., batch=\.\.\)"),
        ("wait", "threads", r"the function: @sa\.async_function\(\.\., threads=\.\.\)"),
        ("wait", "max_retries", "write retry=3"),
        ("wait", "max_workers", "write max_concurrency="),
        ("wait", "concurrency", "write max_concurrency="),
        ("wait", "returnType", "write schema="),
        ("wait", "return_dtype", "write schema="),
        ("wait", "progress", "metrics= counts"),
        ("wait", "stop_after", r"write on_error=sa\.OnError\('capture', stop_after=1000\)"),
        ("wait", "error_rate", "or stop_ratio=0.1"),
        ("wait", "max_per_channel", r"write channel=sa\.Channel\("),
        ("wait", "warm_up", r"write tuning=sa\.Tuning\("),
        ("on_error", "ratio", "write stop_ratio="),
        ("on_error", "max_failures", "write stop_after="),
        ("channel", "channels", "write count="),
        ("tuning", "max_row", "did you mean `max_rows`"),
        ("http", "params", "write query="),
        ("http", "data", "write form="),
        ("http", "timeout", r"option of the call: sa\.unordered_wait\(\.\., timeout=\.\.\)"),
        ("http", "api_key", "write auth="),
        ("http", "batch_size", "write batch=, rows of a request"),
        ("redis", "max_workers", "write connections="),
        ("postgres", "retries", r"option of the call: sa\.unordered_wait\(\.\., retry=3\)"),
        ("limit", "rpm", r"write the rate as a text: sa\.RateLimit\('500/min'\)"),
        ("backoff", "max_attempts", "write max_retries="),
        ("delay", "max_attempts", "write max_retries="),
        ("delay", "jitter", "known are max_retries, delay"),
        ("limit", "busrt", "did you mean `burst`"),
    ],
)
def test_a_word_of_others_is_answered(call, word, answer):
    with pytest.raises(sa.ConfigurationError, match=f"unknown option `{word}`; .*{answer}") as info:
        CALLS[call](**{word: 5})
    assert info.value.kind == sa.exceptions.ErrorKind.OPTION_UNKNOWN


def test_other_mistakes_keep_the_words_of_python():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        retry.fixed_delay(3)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        sa.RateLimit()


def test_no_word_is_there_twice_or_is_what_it_answers():
    words = [word for entry, _ in _TABLE for word in entry.split()]
    assert len(words) == len(set(words)) == len(_MEANINGS)
    known = {*OPTIONS, *HTTP_OPTIONS, *REDIS_OPTIONS, *POSTGRES_OPTIONS}
    known |= {"rate", "max_retries", "initial", "stop_after", "stop_ratio", "count"}
    needed = {option for meanings in _MEANINGS.values() for option, _ in meanings}
    assert needed - {None} <= known
