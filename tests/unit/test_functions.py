# SPDX-License-Identifier: Apache-2.0
"""Functions as users declare them."""

import asyncio
import functools
import pickle
import sys
import types

import cloudpickle
import pytest

from sparkawait import AsyncFunction, Batch, ConfigurationError, ErrorKind, FunctionContext
from sparkawait.exceptions import ElementTimeoutError
from sparkawait.functions import async_function


@async_function("y bigint")
async def double(row):
    """Doubles."""
    return {"y": 2 * row["x"]}


def test_a_decorated_function_can_still_be_called():
    assert asyncio.run(double({"x": 4})) == {"y": 8}


def test_a_decorated_function_looks_like_what_it_wraps():
    assert (double.__name__, double.__doc__, double.name) == ("double", "Doubles.", "double")


def test_the_call_of_a_row_is_the_function_itself():
    assert double.async_invoke is double.__wrapped__


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


def plain(row):
    return {"y": 1}


async def generator(row):
    yield {"y": 1}


@pytest.mark.parametrize("function", [plain, generator, len, 5, None, AsyncFunction])
def test_what_is_not_async_is_refused_by_the_decorator(function):
    with pytest.raises(ConfigurationError, match="async def") as info:
        async_function("y bigint")(function)
    assert info.value.kind is ErrorKind.FUNCTION_NOT_ASYNC


def test_the_decorator_needs_a_schema():
    with pytest.raises(ConfigurationError, match="needs a schema") as info:

        @async_function
        async def bare(row):
            return {}

    assert info.value.kind is ErrorKind.SCHEMA_MISSING


def test_a_decorated_function_of_a_module_is_pickled_by_name(monkeypatch):
    module = types.ModuleType("module_of_user")
    monkeypatch.setitem(sys.modules, "module_of_user", module)
    code = "async def f(row): return {}"
    exec(code, module.__dict__)  # noqa: S102 - a module that can be imported by name
    module.f = async_function("y bigint")(module.f)
    assert pickle.loads(pickle.dumps(module.f)) is module.f  # noqa: S301 - just made


def test_a_decorated_function_of_a_notebook_is_pickled_by_value():
    @async_function("y bigint", batch=Batch(max_rows=7))
    async def local(rows):
        return [{"y": 1}]

    copy = cloudpickle.loads(cloudpickle.dumps(local))
    assert copy.batch == Batch(max_rows=7)
    assert copy.schema == "y bigint"
    assert asyncio.run(copy.async_invoke_batch([1])) == [{"y": 1}]


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_rows": 0},
        {"max_rows": True},
        {"max_rows": 1.5},
        {"max_bytes": 0},
        {"max_bytes": "1k"},
    ],
    ids=repr,
)
def test_a_batch_with_a_wrong_bound_is_refused(arguments):
    with pytest.raises(ConfigurationError, match="of at least 1") as info:
        Batch(**arguments)
    assert info.value.kind is ErrorKind.BATCH_INVALID


@pytest.mark.parametrize("linger", ["soon", -1, None])
def test_a_batch_with_a_wrong_linger_is_refused(linger):
    with pytest.raises(ConfigurationError, match="`linger`"):
        Batch(linger=linger)


def test_a_timeout_that_is_not_overridden_raises():
    with pytest.raises(ElementTimeoutError):
        AsyncFunction().timeout({})


def test_the_functions_own_metrics_add_up():
    context = FunctionContext(3, "f (3)")
    context.add_metric("hits")
    context.add_metric("hits", 2)
    assert context.metrics == {"hits": 3}
