# SPDX-License-Identifier: Apache-2.0
"""An option is said in one place; what shows it elsewhere says the same."""

import inspect
from dataclasses import fields
from typing import get_type_hints

import pytest

import sparkawait as sa
from sparkawait.connectors.arguments import HttpOptions, PostgresOptions, RedisOptions
from sparkawait.connectors.http_options import HTTP_OPTIONS
from sparkawait.connectors.postgres_lookup import POSTGRES_OPTIONS
from sparkawait.connectors.redis_function import REDIS_OPTIONS
from sparkawait.options import (
    COLUMN_OPTIONS,
    OPTIONS,
    ColumnArguments,
    WaitArguments,
    WaitOptions,
)
from tests.meta.repository import ROOT
from tools.option_table import with_table

REDIS = ["get", "mget", "hash", "json", "command"]
MODES = ["ordered_wait", "unordered_wait", "key_ordered_wait"]
ENTRIES = [(getattr(sa.arrow, name), OPTIONS) for name in MODES]
ENTRIES += [(sa.WaitOptions, OPTIONS)]


def entries():
    pytest.importorskip("pyspark")
    return [
        *ENTRIES,
        *((getattr(sa, name), OPTIONS) for name in MODES),
        (sa.async_udf, COLUMN_OPTIONS),
    ]


def test_each_option_has_a_type_and_each_type_an_option():
    assert set(get_type_hints(WaitArguments)) == set(OPTIONS)
    assert set(get_type_hints(ColumnArguments)) == set(COLUMN_OPTIONS)


def test_each_option_shows_in_the_signature_with_its_default_and_its_type():
    types = get_type_hints(WaitArguments)
    for function, options in entries():
        shown = inspect.signature(function).parameters
        assert not [it for it in shown.values() if it.kind is it.VAR_KEYWORD], function
        for name, option in options.items():
            assert shown[name].kind is inspect.Parameter.KEYWORD_ONLY
            assert (shown[name].default, shown[name].annotation) == (option.default, types[name])


def test_what_a_column_function_does_not_have_is_not_in_its_signature():
    pytest.importorskip("pyspark")
    shown = inspect.signature(sa.async_udf).parameters
    assert [name for name in OPTIONS if name not in COLUMN_OPTIONS and name in shown] == []


def test_each_option_shows_in_the_documentation_of_what_takes_it():
    for function, options in entries():
        for name, option in options.items():
            assert says(function, name, option), name
        assert max(map(len, function.__doc__.splitlines())) <= 100


def says(function, name: str, option) -> bool:
    """Whether the documentation of `function` has the meaning of an option and its default."""
    text = " ".join(function.__doc__.split())
    entry = f" {name}: {' '.join(option.sentence.split())}"
    is_told = repr(option.default).replace("'", '"') in option.shown
    return entry in text and (is_told or option.shown.removeprefix("= ") in entry)


def test_each_default_passes_its_own_check():
    options = WaitOptions()
    for name, option in OPTIONS.items():
        assert getattr(options, name) == option.check(option.default, name)


def test_the_table_of_the_documents_is_that_of_the_options():
    text = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert text == with_table(text), "run `python tools/option_table.py`"


CONNECTORS = [
    (sa.http.get, HTTP_OPTIONS, HttpOptions),
    (sa.http.post, HTTP_OPTIONS, HttpOptions),
    (sa.http.request, HTTP_OPTIONS, HttpOptions),
    *((getattr(sa.redis, name), REDIS_OPTIONS, RedisOptions) for name in REDIS),
    (sa.postgres.lookup, POSTGRES_OPTIONS, PostgresOptions),
]


@pytest.mark.parametrize(
    ("function", "options", "typed"),
    CONNECTORS,
    ids=[str(it[0].__qualname__) + it[0].__module__ for it in CONNECTORS],
)
def test_each_option_of_a_connector_has_a_type_and_shows(function, options, typed):
    types = get_type_hints(typed)
    shown = inspect.signature(function).parameters
    assert set(types) == set(options)
    assert not [it for it in shown.values() if it.kind is it.VAR_KEYWORD]
    for name, option in options.items():
        assert (shown[name].default, shown[name].annotation) == (option.default, types[name])
        assert says(function, name, option), name


@pytest.mark.parametrize(
    "call",
    [
        lambda: sa.http.get("https://h/{id}", "x int", max_reqests=5),
        lambda: sa.redis.get("redis://h", "{id}", schema="x int", conections=5),
        lambda: sa.postgres.lookup("host=h", "select $1", ["id"], schema="x int", conections=5),
    ],
    ids=["http", "redis", "postgres"],
)
def test_an_option_that_no_connector_has_is_refused_with_the_one_that_was_meant(call):
    with pytest.raises(sa.ConfigurationError, match=r"did you mean `(max_requests|connections)`"):
        call()


def test_a_word_means_the_same_in_all_connectors():
    of_http = HTTP_OPTIONS.keys() | {it.name for it in fields(sa.http.Client)}
    common = of_http & REDIS_OPTIONS.keys() & POSTGRES_OPTIONS.keys()
    assert common == {
        "how",
        "connect_timeout",
        "max_reply_bytes",
        "ca",
        "certificate",
        "private_key",
    }


MADE = [
    (HTTP_OPTIONS, lambda **given: sa.http.get("http://h/{id}", "x string", **given)),
    (HTTP_OPTIONS, lambda **given: sa.http.post("http://h/{id}", "x string", **given)),
    (REDIS_OPTIONS, lambda **given: sa.redis.get("redis://h", "{id}", "x string", **given)),
    (
        POSTGRES_OPTIONS,
        lambda **given: sa.postgres.lookup("host=h", "select $1", ["id"], "x string", **given),
    ),
]


@pytest.mark.parametrize(("options", "make"), MADE, ids=["get", "post", "redis", "postgres"])
def test_a_default_that_editors_show_may_be_written_out(options, make):
    for name, option in options.items():
        if name != "json":  # `null` is a body
            assert make(**{name: option.default}) == make(), name
