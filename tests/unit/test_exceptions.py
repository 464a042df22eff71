# SPDX-License-Identifier: Apache-2.0
"""The tree of exceptions: what may be caught, and what survives pickling."""

import email.message
import importlib.metadata
import pickle

import pytest

from sparkawait import exceptions
from sparkawait.exceptions import (
    AsyncFunctionError,
    AsyncIOError,
    ConfigurationError,
    ElementTimeoutError,
    ErrorKind,
    InternalError,
    OperatorStateError,
    ResultError,
    SnapshotError,
    add_note,
)

CLASSES = [
    AsyncIOError,
    AsyncFunctionError,
    ConfigurationError,
    ElementTimeoutError,
    InternalError,
    OperatorStateError,
    ResultError,
    SnapshotError,
]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_exception_is_an_async_io_error_with_a_kind(cls):
    error = cls("went wrong", "internal")
    assert isinstance(error, AsyncIOError)
    assert error.kind is ErrorKind.INTERNAL
    assert str(error) == "went wrong"


@pytest.mark.parametrize(
    ("cls", "also"),
    [
        (ConfigurationError, ValueError),
        (ElementTimeoutError, TimeoutError),
        (ElementTimeoutError, AsyncFunctionError),
        (ResultError, TypeError),
        (OperatorStateError, RuntimeError),
    ],
)
def test_an_exception_is_caught_by_the_builtin_class_too(cls, also):
    assert issubclass(cls, also)


@pytest.mark.parametrize("cls", CLASSES)
def test_an_exception_survives_pickling(cls):
    error = cls("went wrong", ErrorKind.ELEMENT_TIMED_OUT)
    add_note(error, "a note")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - just made
    assert type(copy) is cls
    assert (str(copy), copy.kind) == ("went wrong", ErrorKind.ELEMENT_TIMED_OUT)
    assert copy.__notes__ == ["see docs/errors.md#element-timed-out", "a note"]


def test_a_traceback_names_where_its_kind_is_explained():
    error = ConfigurationError("`capacity` must be at least 1", ErrorKind.CAPACITY_NOT_POSITIVE)
    assert str(error) == "`capacity` must be at least 1"
    assert error.__notes__ == ["see docs/errors.md#capacity-not-positive"]


def test_the_address_is_the_one_that_the_package_was_published_with(monkeypatch):
    described = email.message.Message()
    described["Project-URL"] = "Issues, https://forge.test/issues"
    described["Project-URL"] = "Errors, https://forge.test/docs/errors.md"
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: described)
    exceptions._page.cache_clear()
    exceptions._advice.cache_clear()
    try:
        assert exceptions._advice(ErrorKind.INTERNAL) == (
            "see https://forge.test/docs/errors.md#internal"
        )
    finally:
        exceptions._page.cache_clear()
        exceptions._advice.cache_clear()


def test_the_number_of_attempts_survives_pickling():
    error = ElementTimeoutError("late", ErrorKind.ELEMENT_TIMED_OUT, attempts=3)
    assert pickle.loads(pickle.dumps(error)).attempts == 3  # noqa: S301 - just made


def test_a_timeout_keeps_its_message_out_of_errno():
    error = ElementTimeoutError("late", ErrorKind.ELEMENT_TIMED_OUT)
    assert error.errno is None
    assert str(error) == "late"


def test_a_kind_is_a_string_that_programs_compare():
    assert ErrorKind.ELEMENT_TIMED_OUT == "element-timed-out"
    assert f"{ErrorKind.ELEMENT_TIMED_OUT}" == "element-timed-out"


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="no-such-kind"):
        AsyncIOError("went wrong", "no-such-kind")


def test_every_class_is_listed():
    assert {cls.__name__ for cls in CLASSES} | {"ErrorKind"} == set(exceptions.__all__)
