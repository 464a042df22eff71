# SPDX-License-Identifier: Apache-2.0
"""An option is said in one place; what shows it elsewhere says the same."""

import inspect
from typing import get_type_hints

import pytest

import sparkawait as sa
from sparkawait.wait_options import (
    COLUMN_OPTIONS,
    OPTIONS,
    ColumnArguments,
    WaitArguments,
    WaitOptions,
)
from tests.meta.repository import ROOT
from tools.option_table import with_table

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
        lines = [line.strip() for line in function.__doc__.splitlines()]
        for name, option in options.items():
            assert any(line.startswith(f"{name} (default {option.shown})") for line in lines), name
        assert max(map(len, function.__doc__.splitlines())) <= 100


def test_each_default_passes_its_own_check():
    options = WaitOptions()
    for name, option in OPTIONS.items():
        assert getattr(options, name) == option.check(option.default, name)


def test_the_table_of_the_readme_is_that_of_the_options():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == with_table(text), "run `python tools/option_table.py`"
