# SPDX-License-Identifier: Apache-2.0
"""What editors show of the wait functions is what the list of options says."""

import inspect
from importlib import import_module

import pytest

from tools.signatures import ARGUMENTS, PACKAGES, arguments, path_of, signatures


@pytest.mark.parametrize("package", PACKAGES)
def test_the_signatures_are_those_of_the_options(package):
    text = path_of(f"{package}.signatures").read_text(encoding="utf-8")
    assert text == signatures(package), "run `make signatures`"


@pytest.mark.parametrize("module", ARGUMENTS)
def test_the_types_of_options_are_those_that_the_options_say(module):
    text = path_of(module).read_text(encoding="utf-8")
    assert text == arguments(module), "run `make signatures`"


@pytest.mark.parametrize("package", PACKAGES)
def test_editors_show_what_help_shows(package):
    if package == "sparkawait.spark":
        pytest.importorskip("pyspark")
    shown, running = import_module(f"{package}.signatures"), import_module(package)
    assert set(shown.__all__) < set(running.__all__)
    for name in shown.__all__:
        for_editors, real = getattr(shown, name), getattr(running, name)
        assert for_editors is not real
        assert defaults(for_editors) == defaults(real)
        assert inspect.getdoc(for_editors) == inspect.getdoc(real)


def defaults(function):
    parameters = inspect.signature(function).parameters.values()
    return [(it.name, it.kind, it.default) for it in parameters]
