# SPDX-License-Identifier: Apache-2.0
"""What messages tell people to write instead, of mistakes that new users make."""

import asyncio
import logging

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._checks import warn_once
from sparkawait._plan.resolve import resolve_unpickled

ROWS = pa.record_batch({"id": [1], "text": ["a"]})
URL = "https://example.com/{id}"


async def score(id, text):  # noqa: A002
    return 1.0


async def one(row):
    return 1


def call(function, **options):
    return list(sa.arrow.ordered_wait([ROWS], function, **options))


def of_prompt():
    return call(sa.http.post(URL, "mood string", body='answer with {"mood": "good"}'))


def of_sql(statement):
    return lambda: sa.postgres.lookup("host=h", statement, ["id"], "name string")


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (of_prompt, r"if the braces are part of the text, write `{{` and `}}`"),
        (
            lambda: call(score),
            r"functools.partial\(.*; or call .* sparkawait.async_udf\(score\)",
        ),
        (of_sql("select name from t where id = %s"), r"\$1, \$2, \.\.; in place of `%s`"),
        (of_sql("select name from t where id = :id"), r"\$1, \$2, \.\.; in place of `:id`"),
        (of_sql("select name from t where id = ?"), r"\$1, \$2, \.\.; in place of `\?`"),
        (
            of_sql("select id::text from t"),
            r"no place for `args`: placeholders are \$1, \$2",
        ),
        (
            lambda: sa.redis.get("localhost:6379", "{id}", "n int"),
            r"begins with redis://, rediss://, redis\+unix:// or unix://, got",
        ),
        (lambda: sa.http.get(URL, "n int", verify=False), r"always checked; .*Client\(ca=\.\.\)"),
        (lambda: sa.http.get(URL, "n int", cafile="x"), r"are always checked; .*Client\(ca=\.\.\)"),
        (lambda: sa.http.get(URL, "n int", proxy=False), r"client=sa\.http\.Client\(proxy=\.\.\)"),
        (
            lambda: sa.redis.get("redis://h", "{id}", "n int", ssl=True),
            r"give ca= with .* `re",
        ),
        (lambda: sa.http.get(URL, "n int", client={"proxy": False}), r"a sparkawait.http.Client"),
        (
            lambda: sa.WaitOptions(batch=5),
            r"belongs to the function: @sa.async_function\(.., batch=..\)",
        ),
        (lambda: sa.WaitOptions(idempotent=True), r"@sa.async_function\(.., idempotent=..\)"),
        (
            lambda: sa.WaitOptions(threads=5),
            r"belongs to the function: @sa.async_function\(.., threads=..\)",
        ),
        (lambda: sa.WaitOptions(max_retries=5), "`max_retries`; write retry=3"),
        (lambda: sa.secret("NOWHERE_AT_ALL").reveal(), r"after Spark has started does not reach"),
    ],
)
def test_a_message_says_what_to_write(mistake, words):
    with pytest.raises(sa.ConfigurationError, match=words):
        mistake()


def test_a_loop_within_the_loop_is_told_to_await():
    @sa.async_function("y int")
    async def blocks(row):
        coroutine = asyncio.sleep(0)
        try:
            asyncio.run(coroutine)
        finally:
            coroutine.close()

    (batch,) = call(blocks, on_error="capture")
    message = batch.to_pylist()[0]["error"]["message"]
    assert message.endswith("the function runs on one: `await` the coroutine instead")


@pytest.mark.parametrize(
    ("timeout", "is_told"), [(30_000, True), (3600, False), ("30000s", False), (9.5, False)]
)
def test_a_number_that_may_be_meant_as_milliseconds_is_told_once(caplog, timeout, is_told):
    warn_once.cache_clear()
    for _ in range(2):
        sa.WaitOptions(timeout=timeout)

    told = [it.getMessage() for it in caplog.records if it.levelno == logging.WARNING]
    expected = '`timeout=30000` is 8.3 h, as a number is seconds; did you mean "30s"?'
    assert told == [expected] * is_told


@sa.async_function("y int", batch=7, idempotent=False)
def plain(rows):
    return [1] * len(rows)


def with_requests(most):
    return sa.http.get(URL, "n int", max_requests=most)


WARNED = {
    "threads": (
        lambda: call(plain, max_concurrency=331),
        "say sparkawait.async_function(plain, threads=331), ask for fewer calls, or write it",
        [
            lambda: call(sa.async_function(plain, threads=331), max_concurrency=331),
            lambda: call(plain, max_concurrency=64),
            lambda: call(one, schema="y int", max_concurrency=331),
        ],
    ),
    "requests": (
        lambda: plan_of(with_requests(7), max_concurrency=331),
        "as its `max_requests` says: raise that, or ask for fewer",
        [
            lambda: plan_of(with_requests(331), max_concurrency=331),
            lambda: plan_of(with_requests(7), max_concurrency=7),
        ],
    ),
    "milliseconds": (
        lambda: call(one, schema="y int", timeout=30_000),
        'did you mean "30s"?',
        [lambda: call(one, schema="y int", timeout="30s")],
    ),
}
"""What warns, what it says to do, and each way to do so."""


def plan_of(function, **options):
    return resolve_unpickled("unordered", function, input_schema=None, **options)


@pytest.mark.parametrize(("mistake", "words", "ways"), WARNED.values(), ids=WARNED)
def test_who_does_what_a_warning_says_is_warned_no_more(caplog, mistake, words, ways):
    warn_once.cache_clear()
    mistake()
    (told,) = (it.getMessage() for it in caplog.records)
    assert words in told

    caplog.clear()
    for way in ways:
        way()
    assert [it.getMessage() for it in caplog.records] == []


def test_a_bound_of_the_functions_own_code_is_checked_and_travels_with_it():
    with pytest.raises(sa.ConfigurationError, match="`blocked_loop_timeout` must be positive"):
        sa.async_function("y int", blocked_loop_timeout=0)(one)

    class Slow(sa.AsyncFunction):
        schema, setup_timeout = "y int", "soon"

        async def async_invoke(self, row):
            return None

    with pytest.raises(sa.ConfigurationError, match=r"`.*Slow\.setup_timeout` is not a duration"):
        call(Slow())


@pytest.mark.parametrize("form", ["httpx", "aiohttp", "botocore", "other"])
def test_the_status_of_a_clients_exception_is_captured(form):
    class Response:
        status_code, headers = 418, {}

    errors = {
        "httpx": {"response": Response()},
        "aiohttp": {"status": 418},
        "botocore": {"response": {"ResponseMetadata": {"HTTPStatusCode": 418}}},
        "other": {"code": "x418"},
    }

    @sa.async_function("y int")
    async def fails(row):
        error = Exception("teapot")
        vars(error).update(errors[form])
        raise error

    (batch,) = call(fails, on_error="capture", retry=0)
    (row,) = batch.to_pylist()
    assert row["error"]["kind"] == "user-function-failed"
    assert row["error"]["status"] == (None if form == "other" else 418)
