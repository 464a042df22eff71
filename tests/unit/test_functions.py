# SPDX-License-Identifier: Apache-2.0
"""Functions as users declare them."""

import asyncio
import functools
import json
import pickle
import sys
import types
from decimal import Decimal

import cloudpickle
import numpy as np
import pytest

from sparkawait import AsyncFunction, Batch, ConfigurationError
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.exceptions import ElementTimeoutError, ErrorKind
from sparkawait.functions import async_function
from sparkawait.typing import FunctionContext


@async_function("y bigint")
async def double(row):
    """Doubles."""
    return {"y": 2 * row["x"]}


def test_a_decorated_function_can_still_be_called():
    assert asyncio.run(double({"x": 4})) == {"y": 8}


def test_a_decorated_function_looks_like_what_it_wraps():
    assert (double.__name__, double.__doc__, double.name) == ("double", "Doubles.", "double")


def test_the_call_of_a_row_is_the_function_itself():
    again = functools.partial(async_function(double))
    assert async_function(again).what_is_called(batched=False).func is double.function
    assert async_function(double).what_is_called(batched=False) is double.function


def test_partials_and_objects_with_async_call_are_functions():
    async def add(row, amount):
        return {"y": row["x"] + amount}

    class Adder:
        async def __call__(self, row):
            return {"y": row["x"]}

    partial = async_function("y bigint")(functools.partial(add, amount=5))
    assert partial.name.endswith("add")
    assert asyncio.run(partial({"x": 1})) == {"y": 6}
    assert asyncio.run(async_function("y bigint")(Adder())({"x": 1})) == {"y": 1}


def yields(row):
    yield {"y": 1}


def hides(function):
    @functools.wraps(function)
    def called(row):
        return function(row)

    return called


async def generator(row):
    yield {"y": 1}


class Generates:
    async def __call__(self, row):
        yield {"y": 1}


class IsEntered:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass

    async def __call__(self, row):
        return {"y": 1}


class requests_like:  # noqa: N801 - named as the instance
    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __call__(self, row):
        return {"y": 1}


class Service:
    async def __call__(self, row):
        return {"y": 1}

    async def lookup(self, row):
        return {"y": 2}

    async def with_client(self, row, client):
        return {"y": 3}


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (5, "function-invalid", "`int` must be a function of a row, an `async def` or a plain"),
        (None, "function-invalid", "`NoneType` must be"),
        (generator, "function-not-async", "`generator` is a generator; return a list of rows"),
        (functools.partial(generator), "function-not-async", "is a generator"),
        (Generates(), "function-not-async", "`Generates` is a generator"),
        (yields, "function-not-async", "`yields` is a generator"),
        (hides(Service().lookup), "function-not-async", "that a decorator hides behind a plain"),
        (AsyncFunction, "function-invalid", r"is a class; pass an instance, AsyncFunction\(\.\.\)"),
        (Service, "function-invalid", r"`Service` is a class; pass an instance, Service\(\.\.\)"),
        (IsEntered(), "function-invalid", "`__aenter__`, which is not called; derive from"),
        (requests_like(), "function-invalid", "`__enter__`, which is not called; derive from"),
    ],
    ids=str,
)
def test_what_cannot_be_called_for_a_row_is_refused_with_the_way_out(function, kind, words):
    with pytest.raises(ConfigurationError, match=words) as info:
        async_function("y bigint")(function)
    assert info.value.kind == kind


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("name strin", "unknown or unsupported type 'strin'"),
        ("", "`schema`"),
        ("a int, a int", "column `a` twice"),
        (5, "must be a DDL string"),
    ],
)
def test_a_wrong_schema_is_refused_where_it_is_declared(schema, words):
    with pytest.raises(ConfigurationError, match=words) as info:

        @async_function(schema)
        async def declared(row):
            return {"name": "a"}

    assert info.value.kind == "schema-invalid"
    if schema == "name strin":
        [text, mark] = next(it for it in info.value.__notes__ if "^" in it).splitlines()
        assert mark.index("^") == text.index("strin")


async def needs_client(row, client):
    return {"y": 1}


async def needs_two(row, *, client, url, retries=3):
    return {"y": 1}


async def takes_nothing():
    return {"y": 1}


async def takes_anything(*args, **kwargs):
    return {"y": 1}


async def by_keyword(*, row):
    return {"y": 1}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            needs_client,
            r"needs_client\(row\), but needs `client` too; bind it with functools.partial\(",
        ),
        (needs_two, r"needs `client`, `url` too; bind them with functools.partial"),
        (takes_nothing, r"takes_nothing\(row\), but takes no arguments by position"),
        (by_keyword, "but takes no arguments by position"),
        (Service().with_client, r"called as with_client\(row\), but needs `client` too"),
        (functools.partial(needs_client, 1, client=2), "but takes no arguments by position"),
    ],
    ids=str,
)
def test_what_cannot_be_called_with_a_row_is_refused_on_the_driver(function, words):
    with pytest.raises(ConfigurationError, match=words) as info:
        async_function("y bigint")(function)
    assert info.value.kind is ErrorKind.FUNCTION_INVALID


def test_a_batched_function_is_called_with_rows():
    with pytest.raises(ConfigurationError, match=r"called as needs_client\(rows\)"):
        async_function("y bigint", batch=Batch())(needs_client)


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(needs_client, client=1),
        functools.partial(needs_two, client=1, url="u"),
        takes_anything,
        Service(),
        Service().lookup,
        functools.partial(Service().with_client, client=1),
    ],
    ids=str,
)
def test_what_can_be_called_with_a_row_is_a_function(function):
    made = async_function("y bigint")(function)
    assert asyncio.run(made({"x": 1}))["y"] in (1, 2, 3)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("async_invoke", r"`Odd.async_invoke` is called as async_invoke\(row\), but takes no"),
        ("on_timeout", r"`Odd.on_timeout` is called as on_timeout\(row\), but takes no"),
        ("open", r"`Odd.open` is called as open\(context\), but takes no"),
        ("__aenter__", "`Odd` defines `__aenter__`, which is not called"),
    ],
)
def test_a_method_with_other_arguments_is_refused(method, words):
    class Odd(AsyncFunction):
        schema = "y bigint"

        async def async_invoke(self, row):
            return {"y": 1}

    Odd.__qualname__ = "Odd"

    async def without_row(self):
        return {"y": 1}

    def plain_without_row(self):
        return {"y": 1}

    setattr(Odd, method, plain_without_row if method == "on_timeout" else without_row)
    with pytest.raises(ConfigurationError, match=words):
        resolve_unpickled("ordered", Odd(), input_schema=None)


def test_the_decorator_needs_no_parentheses():
    @async_function
    async def bare(row):
        return {"y": 1}

    assert bare.schema is None
    assert asyncio.run(bare({})) == {"y": 1}
    made = resolve_unpickled("ordered", bare, input_schema=None, schema="y int")
    assert made.declared_schema.names == ["y"]


def test_a_decorated_function_of_a_module_is_pickled_by_name(monkeypatch):
    module = types.ModuleType("module_of_user")
    monkeypatch.setitem(sys.modules, "module_of_user", module)
    code = "async def f(row): return {}"
    exec(code, module.__dict__)  # noqa: S102 - a module that can be imported by name
    module.f = async_function("y bigint")(module.f)
    assert pickle.loads(pickle.dumps(module.f)) is module.f  # noqa: S301 - just made


def test_a_decorated_function_of_a_module_that_is_pickled_by_value_is_so_too(monkeypatch):
    module = types.ModuleType("module_of_user")
    monkeypatch.setitem(sys.modules, "module_of_user", module)
    exec("LIMIT = 5\nasync def f(row): return LIMIT", module.__dict__)  # noqa: S102 - as above
    module.f = async_function("y bigint")(module.f)
    cloudpickle.register_pickle_by_value(module)
    try:
        pickled = cloudpickle.dumps(module.f)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    monkeypatch.delitem(sys.modules, "module_of_user")
    copy = cloudpickle.loads(pickled)
    assert asyncio.run(copy({})) == 5


def test_a_decorated_function_of_a_notebook_is_pickled_by_value():
    @async_function("y bigint", batch=Batch(max_rows=7))
    async def local(rows):
        return [{"y": 1}]

    copy = cloudpickle.loads(cloudpickle.dumps(local))
    assert copy.batch == Batch(max_rows=7)
    assert copy.schema == "y bigint"
    assert asyncio.run(copy.what_is_called(batched=True)([1])) == [{"y": 1}]


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_rows": 0},
        {"max_rows": True},
        {"max_rows": 1.5},
        {"max_bytes": 0},
        {"max_bytes": "1 XB"},
    ],
    ids=repr,
)
def test_a_batch_with_a_wrong_bound_is_refused(arguments):
    with pytest.raises(ConfigurationError, match=r"`max_(rows|bytes)` ") as info:
        Batch(**arguments)
    assert info.value.kind is ErrorKind.BATCH_INVALID


@pytest.mark.parametrize("linger", ["soon", -1, None])
def test_a_batch_with_a_wrong_linger_is_refused(linger):
    with pytest.raises(ConfigurationError, match="`linger`"):
        Batch(linger=linger)


def test_a_timeout_that_is_not_overridden_raises():
    with pytest.raises(ElementTimeoutError):
        AsyncFunction().on_timeout({})


def test_the_functions_own_metrics_add_up():
    context = FunctionContext(3, "f (3)")
    context.add_metric("hits")
    context.add_metric("hits", 2)
    # Those of other libraries, too: reports are JSON.
    context.add_metric("hits", np.int64(13))
    context.add_metric("seconds", np.float32(0.25))
    context.add_metric("seconds", Decimal("0.5"))
    context.add_metric("seconds", np.array(0.125))
    assert json.loads(json.dumps(context.metrics)) == {"hits": 16, "seconds": 0.875}


@pytest.mark.parametrize("amount", ["7", None, [7], np.array([7, 13])])
def test_a_metric_of_the_function_is_a_number(amount):
    with pytest.raises(ConfigurationError, match="`amount` of add_metric must be a number, got a"):
        FunctionContext(3, "f (3)").add_metric("hits", amount)
