# SPDX-License-Identifier: Apache-2.0
"""Whatever is given for an option works, or is refused as a `ConfigurationError` at the call."""

import inspect
import os
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparkawait as sa
from sparkawait import _core, http, postgres, redis, retry, testing
from sparkawait._checks import shown
from sparkawait._plan import resolve as options
from sparkawait._plan.plan import Chain
from sparkawait.options import OPTIONS

EXAMPLES = int(os.environ.get("ARGUMENTS", "23"))
"""For each call. `make combinations` tries more."""

INPUT = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])


class Rude:
    """Raises whatever it is asked."""

    def __repr__(self):
        raise RuntimeError

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None


class Endless:
    """Never ends."""

    def __iter__(self):
        while True:
            yield 200


@sa.async_function("y bigint")
async def double(row):
    return {"y": 1}


@sa.async_function("z bigint")
async def triple(row):
    return {"z": 1}


async def bare(row):
    return {"y": 1}


def plain(row):
    return {"y": 1}


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**400]),
    st.floats(),
    st.sampled_from([1e309, -0.0, 1e300, 5e-324]),
    st.text(max_size=6),
    st.sampled_from(
        ["\ud800", "a\0b", "{", "}", "{id}", "{nope}", "{{", "$[", "$.a", "id", "name"]
    ),
    st.sampled_from(
        ["x bigint", "x map<string,int>", "x", "", "1s", "-1s", "1e400s", "9" * 400 + "d"]
    ),
    st.sampled_from(["http://h", "redis://h", "host=h", "htp://h", "http://", "http://[::", "A b"]),
    st.sampled_from([b"", b"x", bytearray(b"x"), Decimal("NaN"), Decimal(1), Fraction(1, 3), 1j]),
    st.sampled_from(
        [timedelta(days=-1), timedelta.max, timedelta.min, range(0), range(3), range(200, 9**9)]
    ),
    st.sampled_from([pa.int64(), INPUT, pa.array([1]), int, len, plain, bare, double, http, ...]),
    st.builds(lambda: 10**5000),
    st.builds(Rude) | st.builds(Endless) | st.builds(object),
    st.sampled_from([sa.secret("NOWHERE"), sa.Cache(key="id"), sa.Channel(), sa.Batch()]),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.lists(inner, max_size=2).map(tuple)
        | st.dictionaries(st.sampled_from(["x", "id", "", "\ud800", 5, None]), inner, max_size=2)
    ),
    max_leaves=3,
)


class Given:
    """Shows a value even if it cannot be printed."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return shown(self.value)


def parameters(function):
    """The names of what a function takes, but for those that stand for others."""
    several = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    given = inspect.signature(function).parameters.values()
    return [it.name for it in given if it.kind not in several and it.name != "self"]


HTTP = parameters(http.get)
URL = {"url": "https://h/{id}", "schema": "x bigint"}
REDIS = {"url": "redis://h", "key": "{id}", "schema": "x bigint"}


def redis_options(function):
    return parameters(function)


def command(arguments=("GET", "{id}"), **given):
    # Anything may stand where a word of the command does.
    return redis.command(
        given.pop("url", "redis://h"),
        *(arguments if isinstance(arguments, list | tuple) else [arguments]),
        **{"schema": "x bigint", **given},
    )


def lookup_server(**given):
    given = {"tables": {"t": {"k": 1}}, "latency": None, **given}
    if isinstance(given.get("port"), int) and given["port"] in range(1, 65_536):
        given["port"] = 0  # The system says whether it is free.
    testing.LookupServer(**given).stop()


def model_server(**given):
    if isinstance(given.get("port"), int) and given["port"] in range(1, 65_536):
        given["port"] = 0  # The system says whether it is free.
    testing.ModelServer(**given).stop()


def wait(mode, function=double, **given):
    """Resolves a plan for columns that are known, and has the extension module read it."""
    given = {"key": "id", **given} if mode == "key_ordered" else given
    plan = options.resolve(mode, function, input_schema=INPUT, **given)
    return partial(_core.Task, **Chain.of(plan).task_arguments(INPUT, 0))


def decorated(**given):
    made = sa.async_function(**{"schema": "y bigint", **given})
    # A function in the place of the schema is decorated itself.
    if not isinstance(made, sa.AsyncFunction):
        made(bare)


def in_threads(**given):
    made = sa.async_function(**{"schema": "y bigint", "threads": 7, **given})
    # A function in the place of the schema is decorated itself.
    if not isinstance(made, sa.AsyncFunction):
        made(plain)


def with_cache(**given):
    return wait("ordered", cache=sa.Cache(**{"key": "id", **given}))


@pytest.fixture(scope="module", autouse=True)
def in_a_folder_of_its_own(tmp_path_factory):
    """Any text is the path of a journal."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("journals"))
    yield
    os.chdir(before)


def with_journal(**given):
    return wait("ordered", journal=sa.Journal(**{"path": "x", "version": 1, **given}))


def with_channel(**given):
    return wait("ordered", channel=sa.Channel(**{"columns": "id", **given}))


def with_rate(**given):
    limit = sa.RateLimit(**{"rate": "5/s", **given})
    return wait("ordered", rate_limit=limit)


def with_adaptive(**given):
    return wait("ordered", max_concurrency=sa.Adaptive(**given))


def with_calls_of_job(**given):
    return wait("ordered", max_concurrency=sa.PerJob(**{"calls": 7, **given}))


def with_budget_of_job(**given):
    return wait("ordered", rate_limit=sa.Budget(**{"total": 7.5, **given}))


def with_batch(**given):
    function = sa.async_function("y bigint", batch=sa.Batch(**given))(bare)
    return wait("ordered", function)


def with_hedge(**given):
    function = sa.async_function("y bigint", idempotent=True)(bare)
    return wait("ordered", function, hedge=sa.Hedge(**given))


def with_several(**given):
    return wait("ordered", **{"function": [double, triple], **given})


def with_options(**given):
    return wait("ordered", [double.with_options(**given), triple])


def with_circuit_breaker(**given):
    return wait("ordered", circuit_breaker=sa.CircuitBreaker(**given))


def with_auth(make, usual):
    return lambda **given: with_native(http.get(**URL, auth=make(**{**usual, **given})))


def with_file(**given):
    part = http.file(**{"value": "{id}", "filename": "f", **given})
    with_native(http.post(**URL, multipart={"part": part}))


def with_client(**given):
    with_native(http.get(**URL, client=http.Client(**given)))


def with_on_error(**given):
    return wait("ordered", on_error=sa.OnError(**given))


def with_tuning(**given):
    return wait("ordered", tuning=sa.Tuning(**given))


def with_budget(**given):
    strategy = retry.fixed_delay(3, "1s", budget=sa.retry.Budget(**given))
    return wait("ordered", retry=strategy)


def with_items(**body):
    with_native(http.post("https://h", "x bigint", batch=sa.Batch(max_rows=3), **body))


def with_retry(make, usual, **given):
    return wait("ordered", retry=make(**{**usual, **given}))


def with_watermark(**given):
    make = sa.WatermarkStrategy.for_bounded_out_of_orderness
    return wait("unordered", watermark=make(**{"column": "at", "delay": "1s", **given}))


def with_latency(make, usual, **given):
    return wait("ordered", testing.simulated(make(**{**usual, **given})))


def with_simulated(**given):
    return wait("ordered", testing.simulated(**given))


def with_native(function):
    """What the driver can know of it was checked; what the input adds is checked with the plan."""
    options.resolve("ordered", function, input_schema=INPUT, cache=sa.Cache(), retry=None)


def native(make, **usual):
    def call(**given):
        with_native(make(**{**usual, **given}))

    return call


WAIT = ["function", "options", *OPTIONS, "unknown"]
FIXED = {"max_retries": 2, "delay": "1s"}
GROWING = {"max_retries": 2, "initial": "1s", "maximum": "9s"}
CALLS = {
    "http.get": (native(http.get, **URL), HTTP),
    "http.post": (native(http.post, **URL), HTTP),
    "http.request": (native(http.request, method="PUT", **URL), ["method", *HTTP]),
    "http.each": (lambda value: with_items(json=http.each(value)), ["value"]),
    "http.items": (
        lambda **given: with_items(json=http.each("{id}"), items=http.items(**given)),
        parameters(http.items),
    ),
    "http.lines": (lambda value: with_items(body=http.lines(value)), ["value"]),
    "redis.get": (native(redis.get, **REDIS), redis_options(redis.get)),
    "redis.mget": (
        native(redis.mget, url="redis://h", keys=["{id}"], schema="x int"),
        redis_options(redis.mget),
    ),
    "redis.hash": (native(redis.hash, **REDIS), redis_options(redis.hash)),
    "redis.json": (native(redis.json, **REDIS), redis_options(redis.json)),
    "redis.command": (
        lambda **given: with_native(command(**given)),
        ["arguments", *redis_options(redis.command)],
    ),
    "postgres.lookup": (
        native(
            postgres.lookup,
            dsn="host=h",
            statement="select 1 as x where 1 = $1",
            args=["id"],
            schema="x int",
        ),
        # Without a schema the server is asked.
        parameters(postgres.lookup),
    ),
    "WaitOptions": (sa.WaitOptions, [*OPTIONS, "unknown"]),
    "Cache": (with_cache, parameters(sa.Cache)),
    "Journal": (with_journal, parameters(sa.Journal)),
    "Channel": (with_channel, parameters(sa.Channel)),
    "Adaptive": (with_adaptive, parameters(sa.Adaptive)),
    "RateLimit": (with_rate, parameters(sa.RateLimit)),
    "PerJob": (with_calls_of_job, parameters(sa.PerJob)),
    "sa.Budget": (with_budget_of_job, parameters(sa.Budget)),
    "Batch": (with_batch, parameters(sa.Batch)),
    "CarryOver": (sa.CarryOver, parameters(sa.CarryOver)),
    "Hedge": (with_hedge, parameters(sa.Hedge)),
    "CircuitBreaker": (with_circuit_breaker, parameters(sa.CircuitBreaker)),
    "http.basic": (with_auth(http.basic, {"user": "u", "password": "p"}), parameters(http.basic)),
    "http.bearer": (with_auth(http.bearer, {"token": "t"}), parameters(http.bearer)),
    "http.oauth2": (
        with_auth(
            http.oauth2, {"token_url": "https://h/t", "client_id": "c", "client_secret": "s"}
        ),
        parameters(http.oauth2),
    ),
    "http.aws_sigv4": (
        with_auth(http.aws_sigv4, {"service": "s3", "region": "r"}),
        parameters(http.aws_sigv4),
    ),
    "http.file": (with_file, parameters(http.file)),
    "http.Client": (with_client, parameters(http.Client)),
    "OnError": (with_on_error, parameters(sa.OnError)),
    "Tuning": (with_tuning, parameters(sa.Tuning)),
    "Budget": (with_budget, parameters(sa.retry.Budget)),
    "retry.fixed_delay": (
        partial(with_retry, retry.fixed_delay, FIXED),
        parameters(retry.fixed_delay),
    ),
    "retry.exponential_backoff": (
        partial(with_retry, retry.exponential_backoff, GROWING),
        parameters(retry.exponential_backoff),
    ),
    "RetryAfter": (
        lambda **given: sa.RetryAfter(**{"delay": "1s", **given}),
        ["delay", "channel"],
    ),
    "WatermarkStrategy": (
        with_watermark,
        parameters(sa.WatermarkStrategy.for_bounded_out_of_orderness),
    ),
    "connector": (lambda **given: sa.connector(**{"name": "A", **given}), parameters(sa.connector)),
    "secret": (lambda **given: sa.secret(**{"name": "A", **given}), parameters(sa.secret)),
    "async_function": (decorated, parameters(sa.async_function)),
    "async_function of a def": (in_threads, parameters(sa.async_function)),
    "ordered_wait": (partial(wait, "ordered"), WAIT),
    "unordered_wait": (partial(wait, "unordered"), WAIT),
    "key_ordered_wait": (partial(wait, "key_ordered"), [*WAIT, "key"]),
    "ordered_wait of several": (with_several, WAIT),
    "with_options": (with_options, [*OPTIONS, "unknown"]),
    "testing.constant": (
        partial(with_latency, testing.constant, {"delay": "1s"}),
        parameters(testing.constant),
    ),
    "testing.uniform": (
        partial(with_latency, testing.uniform, {"minimum": 0, "maximum": "1s"}),
        parameters(testing.uniform),
    ),
    "testing.log_normal": (
        partial(with_latency, testing.log_normal, {"median": "1s"}),
        parameters(testing.log_normal),
    ),
    "testing.simulated": (with_simulated, parameters(testing.simulated)),
    "testing.LookupServer": (lookup_server, parameters(testing.LookupServer)),
    "testing.ModelServer": (model_server, parameters(testing.ModelServer)),
    "testing.OperatorTestHarness": (
        lambda **given: testing.OperatorTestHarness(**given).close(),
        parameters(testing.OperatorTestHarness),
    ),
}


@pytest.mark.parametrize("name", CALLS)
@given(data=st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_an_argument_works_or_is_refused_at_the_call(name, data):
    call, names = CALLS[name]
    given_names = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    arguments = {option: data.draw(ANYTHING.map(Given), option).value for option in given_names}
    try:
        start = call(**arguments)
    except sa.ConfigurationError:
        return
    if start is not None and callable(start):
        start()


def test_every_public_constructor_and_function_is_tried():
    tried = {name.rpartition(".")[2] for name in CALLS}
    found = {
        name: vars(module).get(name)
        for module in (sa, http, redis, postgres, retry, testing)
        for name in module.__all__
    }
    public = {
        name
        for name, value in found.items()
        if (inspect.isroutine(value) or inspect.isclass(value))
        # What needs Spark is there once something has asked for it.
        and not value.__module__.startswith("sparkawait.spark")
    }
    errors = {name for name in public if name.endswith("Error") or name == "ErrorKind"}
    # What is made by others or by users, the pieces of `Options`, and what takes no option.
    made = {
        "AsyncFunction",
        "AsyncRetryStrategy",
        "Crash",
        "FunctionContext",
        "FunctionWithOptions",
        "HttpFunction",
        "HttpOptions",
        "PostgresOptions",
        "RedisOptions",
        "Invocation",
        "Latency",
        "Lookup",
        "Metrics",
        "NativeFunction",
        "RedisFunction",
        "Row",
        "Simulated",
        "crashes",
        "if_empty",
        "literal",
        "preview",
    }
    assert public - errors - made - {"lookup"} <= tried | {"retry"}
