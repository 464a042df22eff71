# SPDX-License-Identifier: Apache-2.0
"""Options in the body of a class hold wherever it is called."""

import asyncio
from typing import ClassVar

import cloudpickle
import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._plan.called import facts_of
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait.options import OWN_OPTIONS
from tests.support import looked_up

ROWS = 31
VALUES = {
    "timeout": "7s",
    "attempt_timeout": "3s",
    "max_wait": "13s",
    "max_concurrency": 7,
    "retry": 5,
    "hedge": "31ms",
    "on_error": "capture",
    "on_timeout": {"y": -1},
    "info": "call",
    "cache": sa.Cache(97, key=["id"]),
    "journal": sa.Journal("known", version=7),
    "channel": sa.Channel("id", count=3),
    "rate_limit": "97/min",
    "circuit_breaker": True,
}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    """A plan with a journal writes in the folder which function that is for."""
    monkeypatch.chdir(tmp_path)


class Ask(sa.AsyncFunction):
    schema = "y int"
    idempotent = True

    async def async_invoke(self, row):
        return row.id


def ask_with(**attributes) -> type[sa.AsyncFunction]:
    return type("Asks", (Ask,), attributes)


def plan(function, **given):
    return resolve_unpickled("unordered", function, input_schema=None, **given)


def test_each_option_of_a_function_is_tried():
    assert VALUES.keys() == OWN_OPTIONS.keys()


@pytest.mark.parametrize("name", VALUES)
def test_each_option_means_in_a_class_what_it_means_in_a_call(name):
    value = VALUES[name]
    said = plan(ask_with(**{name: value})())
    given = plan(ask_with()(), **{name: value})

    assert getattr(said.options, name) == getattr(given.options, name)
    assert said.max_concurrency == given.max_concurrency
    assert said.has_timeout_handler == given.has_timeout_handler
    # As a worker has it, and as one of several functions has it.
    sent = cloudpickle.loads(cloudpickle.dumps(said))
    assert getattr(sent.options, name) == getattr(given.options, name)
    if name not in {"info", "journal"}:
        (branch, _) = plan([ask_with(**{name: value})(), Other()]).branches
        assert getattr(branch.options, name) == getattr(given.options, name)


class Other(Ask):
    schema = "z int"


def test_the_call_wins_over_the_function_and_the_function_over_its_class():
    function = ask_with(max_concurrency=7, timeout="7s", retry=5)()

    made = plan(function.with_options(max_concurrency=5, timeout="5s"), timeout="3s")

    assert (made.options.max_concurrency, made.options.timeout) == (5, 3.0)
    assert made.options.retry == sa.WaitOptions(retry=5).retry


def test_a_class_has_the_options_of_its_base():
    base = ask_with(max_concurrency=7, timeout="7s")
    derived = type("Derived", (base,), {"timeout": None})

    made = plan(derived())

    assert (made.options.max_concurrency, made.options.timeout) == (7, None)


def test_what_an_instance_has_under_the_name_of_an_option_is_its_own():
    class Keeps(Ask):
        def __init__(self):
            self.cache = {}
            self.timeout = self.retry = "what you like"

    made = plan(Keeps())

    assert made.options.given == {}


def test_a_class_that_was_given_an_option_later_is_sent_with_it(monkeypatch):
    monkeypatch.setattr(looked_up.Lookup, "max_concurrency", 2, raising=False)
    sent = cloudpickle.dumps(plan(looked_up.Lookup()))
    monkeypatch.undo()

    assert cloudpickle.loads(sent).max_concurrency == 2


def test_no_more_calls_are_made_at_a_time_than_the_class_says():
    class Counts(sa.AsyncFunction):
        schema, max_concurrency = "most int", 2

        def open(self, context):
            self.running = self.most = 0
            self.both = asyncio.Event()

        async def async_invoke(self, row):
            self.running += 1
            self.most = max(self.most, self.running)
            if self.most == 2:
                self.both.set()
            await self.both.wait()  # the second row may come to the loop later
            self.running -= 1
            return self.most

    out = sa.arrow.unordered_wait(
        pa.table({"id": list(range(ROWS))}), Counts(), tuning=sa.Tuning(warm_up=False)
    )

    assert max(out.to_table()["most"].to_pylist()) == 2


class Hangs(sa.AsyncFunction):
    schema, timeout = "y int", "7ms"

    async def async_invoke(self, row):
        await asyncio.Event().wait()


class HangsWithMethod(Hangs):
    def on_timeout(self, row):
        return -row.id


class HangsWithStaticMethod(Hangs):
    @staticmethod
    def on_timeout(row):
        return -row.id


class HangsWithConstant(Hangs):
    on_timeout: ClassVar = {"y": -1}


@pytest.mark.parametrize(
    ("kind", "is_method", "result"),
    [
        (HangsWithMethod, True, lambda id: -id),  # noqa: A006
        (HangsWithStaticMethod, True, lambda id: -id),  # noqa: A006
        (HangsWithConstant, False, lambda _: -1),
    ],
)
def test_a_row_that_timed_out_has_the_results_that_its_class_says(kind, is_method, result):
    out = sa.arrow.ordered_wait(pa.table({"id": list(range(ROWS))}), kind())

    assert out.to_table().to_pylist() == [{"id": i, "y": result(i)} for i in range(ROWS)]
    assert facts_of(kind()).has_fallback is is_method


def method(self, row):
    return None


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"timeout": "soon"}, r"`Asks\.timeout` is not a duration"),
        ({"max_concurrency": 0}, r"`Asks\.max_concurrency` must be an int of at least 1"),
        ({"cache": {}}, r"`Asks\.cache` must be"),
        ({"channel": property(method)}, r"`Asks\.channel` "),
        ({"timeout": method}, r"`Asks\.timeout` is a function.*timed out is `on_timeout\(row\)`;"),
        ({"retry": method}, r"`Asks\.retry` is a function, got where an option is;"),
        ({"capacity": 5}, r"`Asks\.capacity` is an option of a call; give it to the wait function"),
    ],
    ids=["duration", "number", "object", "property", "timeout", "method", "of a call"],
)
def test_what_is_no_option_is_refused_when_the_class_is_made(attributes, words):
    with pytest.raises(sa.ConfigurationError, match=words) as caught:
        ask_with(**attributes)
    (name,) = attributes
    assert f"rename the attribute if it is not meant as the option `{name}`" in str(caught.value)


def test_an_attribute_that_is_nearly_an_option_is_warned_of(caplog):
    class Lookup(sa.AsyncFunction):
        schema = "y long"
        max_concurency = 5
        attempttimeout = "1s"
        timeouts = (3, 7)
        time = 13
        _retrry = 3

        def on_eror(self):
            return None

        async def call(self, row):
            return {"y": row.id}

    said = [it.getMessage() for it in caplog.records]
    assert said == [
        f"`{Lookup.__qualname__}.{name}` is not an option, and has no effect on calls; did you mean"
        f" `{meant}`?"
        for name, meant in (
            ("max_concurency", "max_concurrency"),
            ("attempttimeout", "attempt_timeout"),
        )
    ]
