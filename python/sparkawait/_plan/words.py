# SPDX-License-Identifier: Apache-2.0
"""What other libraries call things, and what they are here: for messages about unknown options."""

from __future__ import annotations

from collections.abc import Collection

_OF_CALL = "it is an option of the call: sa.unordered_wait(.., {name}=..)"
_OF_FUNCTION = "it belongs to the function: @sa.async_function(.., {name}=..)"
_CALLS = "write max_concurrency=, the calls at a time of a task"
_COLUMNS = "write schema=, the columns that the function returns"
_RETRIES = "write retry=3, or a strategy of sa.retry"
_RETRIES_OF_CALL = "retries are an option of the call: sa.unordered_wait(.., retry=3)"
_FAILURES = "write on_error='capture', 'null', 'drop' or 'fail'"
_TOO_MANY = "write on_error=sa.OnError('capture', stop_after=1000), or stop_ratio=0.1"
_ORDER = "choose sa.ordered_wait or sa.unordered_wait"
_SELECT = "all columns come back; write .select(..) behind the call"
_BAR = "Spark shows its tasks, and metrics= counts while they run"
_RATE = "write rate_limit='500/min'"
_TOKENS = "write rate_limit=sa.RateLimit('100000/min', cost=..), whose cost is the tokens of a row"
_KEY = "write auth=sa.http.bearer(sa.secret(..)), or headers="

_Meanings = tuple[tuple[str | None, str], ...]
_TABLE: tuple[tuple[str, _Meanings], ...] = (
    (
        "rpm rps qps requests_per_minute requests_per_second calls_per_second max_rate",
        (("rate_limit", _RATE), ("rate", "write the rate as a text: sa.RateLimit('500/min')")),
    ),
    (
        "tpm tokens_per_minute",
        (("rate_limit", _TOKENS), ("rate", "write the rate as a text: sa.RateLimit('500/min')")),
    ),
    (
        "batch_size max_batch_size chunk_size",
        (
            ("batch", "write batch=, rows of a request"),
            (None, "rows of a call are set on the function: @sa.async_function(.., batch=100)"),
        ),
    ),
    ("batch idempotent threads", ((None, _OF_FUNCTION),)),
    (
        "retries max_retries num_retries retry_count max_attempts attempts tries",
        (
            ("retry", _RETRIES),
            ("max_retries", "write max_retries=, attempts beside the first one"),
            (None, _RETRIES_OF_CALL),
        ),
    ),
    (
        "backoff backoff_factor retry_delay retry_strategy",
        (
            ("retry", "write retry=sa.retry.exponential_backoff(..)"),
            ("initial", "write initial=, maximum= and multiplier="),
            (None, _RETRIES_OF_CALL),
        ),
    ),
    (
        "concurrency max_concurrent max_in_flight max_workers num_workers parallelism n_jobs",
        (
            ("max_concurrency", _CALLS),
            ("connections", "write connections="),
            (None, "calls at a time are an option of the call: max_concurrency="),
        ),
    ),
    (
        "returnType return_type return_dtype result_type output_schema returns dtype",
        (
            ("schema", _COLUMNS),
            (None, "the columns are the argument `schema`"),
        ),
    ),
    (
        "on_failure error_handling errors ignore_errors return_exceptions fail_fast",
        (("on_error", _FAILURES),),
    ),
    (
        "stop_after max_failures max_errors failure_threshold",
        (("on_error", _TOO_MANY), ("stop_after", "write stop_after=, the failed rows of a task")),
    ),
    (
        "stop_ratio error_rate failure_ratio max_error_rate ratio",
        (
            ("on_error", _TOO_MANY),
            ("stop_ratio", "write stop_ratio=, the share of rows that have failed, such as 0.1"),
        ),
    ),
    (
        "max_per_channel max_backlog max_backlog_per_channel channels",
        (
            ("channel", 'write channel=sa.Channel("tenant", count=3)'),
            ("count", "write count=, the channels that have rows at a time"),
        ),
    ),
    (
        "buffer_timeout target_latency max_bytes warm_up output_batches",
        (("tuning", "write tuning=sa.Tuning(..)"),),
    ),
    ("output keep_columns drop_input result_columns", (("on_error", _SELECT),)),
    ("ttl cache_ttl", (("cache", "write cache='10min'"),)),
    ("ordered preserve_order", (("on_error", _ORDER),)),
    ("progress progress_bar show_progress verbose", (("on_error", _BAR),)),
    ("params", (("query", "write query="),)),
    ("data", (("form", "write form= for a form, json= or body="),)),
    ("content", (("body", "write body="),)),
    ("files", (("multipart", "write multipart="),)),
    ("cookies", (("headers", "write headers={'Cookie': ..}"),)),
    ("method", (("query", "write sa.http.request(method, ..), or sa.http.post(..)"),)),
    ("api_key token access_token", (("auth", _KEY),)),
    ("timeout retry max_concurrency rate_limit on_error cache hedge channel", ((None, _OF_CALL),)),
)
_MEANINGS = {word: meanings for words, meanings in _TABLE for word in words.split()}


def meant_by(name: str, known: Collection[str]) -> str:
    """Returns what to write instead of the word of another library; empty for other words.

    Args:
        name: What was given.
        known: What could have been given; an entry may be about one of these.
    """
    for option, hint in _MEANINGS.get(name, ()):
        if option is None or option in known:
            return hint.format(name=name)
    return ""
