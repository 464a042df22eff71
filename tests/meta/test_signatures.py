# SPDX-License-Identifier: Apache-2.0
"""What editors show of the wait functions is what the list of options says."""

import inspect
from importlib import import_module
from types import SimpleNamespace

import pytest

from tools.signatures import ARGUMENTS, PACKAGES, STUBS, arguments, path_of, signatures, stub


@pytest.mark.parametrize("package", PACKAGES)
def test_the_signatures_are_those_of_the_options(package):
    text = path_of(f"{package}.signatures", ".pyi").read_text(encoding="utf-8")
    assert text == signatures(package), "run `make signatures`"


@pytest.mark.parametrize("module", STUBS)
def test_the_stubs_of_connectors_are_those_of_the_options(module):
    text = path_of(module, ".pyi").read_text(encoding="utf-8")
    assert text == stub(module), "run `make signatures`"


@pytest.mark.parametrize("module", ARGUMENTS)
def test_the_types_of_options_are_those_that_the_options_say(module):
    text = path_of(module).read_text(encoding="utf-8")
    assert text == arguments(module), "run `make signatures`"


@pytest.mark.parametrize("package", PACKAGES)
def test_editors_show_what_help_shows(package):
    if package == "sparkawait.spark":
        pytest.importorskip("pyspark")
    shown, running = loaded(f"{package}.signatures"), import_module(package)
    assert set(shown.__all__) < set(running.__all__)
    for name in shown.__all__:
        for_editors, real = getattr(shown, name), getattr(running, name)
        assert for_editors is not real
        assert defaults(for_editors) == defaults(real)
        assert inspect.getdoc(for_editors) == inspect.getdoc(real)


@pytest.mark.parametrize("module", STUBS)
def test_editors_show_the_options_of_connectors_with_default_and_sentence(module):
    shown, running = loaded(module), import_module(module)
    assert sorted(shown.__all__) == sorted(running.__all__)
    count = 0
    for name in shown.__all__:
        for_editors, real = getattr(shown, name), getattr(running, name)
        if for_editors is real:
            continue
        count += 1
        assert inspect.getdoc(for_editors) == inspect.getdoc(real)
        known = [it for it in defaults(for_editors) if it[2] is not ...]
        assert set(known) <= set(defaults(real))
        assert [it[:2] for it in defaults(for_editors)] == [it[:2] for it in defaults(real)]
    assert count > 0


def loaded(module):
    """Runs a stub, which nothing else does."""
    path = path_of(module, ".pyi")
    names = {"__name__": module}
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)  # noqa: S102
    return SimpleNamespace(**names)


def defaults(function):
    parameters = inspect.signature(function).parameters.values()
    return [(it.name, it.kind, it.default) for it in parameters]
