# SPDX-License-Identifier: Apache-2.0
"""Exceptions and records that cannot be read, as those of some clients: only their rows fail."""

import dataclasses
import sys

import pytest

import sparkawait as sa
from sparkawait import arrow
from sparkawait._worker import batching
from sparkawait.exceptions import described, text_of

if sys.version_info < (3, 11):
    from exceptiongroup import ExceptionGroup


class NoText:
    """An answer that cannot be shown any more."""

    def __repr__(self):
        raise ValueError("the answer was closed")


class NoTextError(Exception):
    """Makes its text of an answer that is gone."""

    def __str__(self):
        raise ValueError("the answer was closed")


class BodyError(Exception):
    """Has the members of the answer as attributes, as the exceptions of SDKs do."""

    def __init__(self):
        super().__init__("overloaded")
        self.body = {"message": "overloaded"}

    def __getattr__(self, name):
        return self.__dict__["body"][name]


class NoClassError(Exception):
    """Does not even tell what it is."""

    @property
    def __class__(self):
        raise ValueError("the answer was closed")


ERRORS = {
    "no text": (NoTextError, "NoTextError"),
    "a group": (
        lambda: ExceptionGroup("two", [NoTextError(), KeyError("why")]),
        "NoTextError; KeyError: 'why'",
    ),
    "an argument": (lambda: RuntimeError(NoText()), "RuntimeError"),
    "any attribute": (BodyError, "BodyError: overloaded"),
}


def one(make):
    async def fails(row):
        raise make()

    return sa.async_function("y int")(fails)


def threads(make):
    def fails(row):
        raise make()

    return sa.async_function("y int")(fails)


def batches(make):
    async def fails(rows):
        raise make()

    return sa.async_function("y int", batch=sa.Batch(max_rows=2))(fails)


def record_batches(make):
    async def fails(rows):
        raise make()

    return sa.async_function("y int", batch=sa.Batch(max_rows=2, arrow=True))(fails)


@pytest.mark.parametrize("kind", [one, threads, batches, record_batches])
@pytest.mark.parametrize("case", ERRORS)
def test_an_exception_that_cannot_be_read_fails_its_row(case, kind):
    make, words = ERRORS[case]

    out = arrow.ordered_wait({"x": [3, 7, 13]}, kind(make), on_error="capture", timeout=None)

    errors = out.to_table()["error"].to_pylist()
    assert {error["kind"] for error in errors} == {"user-function-failed"}
    assert len(errors) == 3
    assert all(words in error["message"] for error in errors)


def test_an_exception_that_does_not_tell_its_class_fails_its_row():
    out = arrow.ordered_wait({"x": [7]}, one(NoClassError), on_error="capture", timeout=None)

    (error,) = out.to_table()["error"].to_pylist()
    assert error["message"] == "the exception, a `NoClassError`, cannot be read"


@pytest.mark.parametrize("kind", [batches, record_batches])
def test_a_call_that_breaks_by_itself_fails_its_rows(kind, monkeypatch):
    async def breaks(self):
        raise KeyError("a mistake of ours")

    monkeypatch.setattr(batching.Call, "_make", breaks)
    for call in batching.Call.__subclasses__():
        monkeypatch.setattr(call, "_make", breaks)

    out = arrow.ordered_wait({"x": [3, 7, 13]}, kind(None), on_error="capture", timeout=None)

    assert [it["kind"] for it in out.to_table()["error"].to_pylist()] == ["internal"] * 3


def test_what_has_no_text_is_described_by_its_class():
    assert text_of(NoTextError()) == ""
    assert described(NoTextError()) == "NoTextError"
    assert described(KeyError("why")) == "KeyError: 'why'"


@pytest.mark.parametrize("phase", ["open", "close"])
def test_open_and_close_that_raise_what_has_no_text_are_told_by_its_class(phase):
    class Client(sa.AsyncFunction):
        schema = "y int"

        async def async_invoke(self, row):
            return 1

    def fails(self, *context):
        raise NoTextError

    setattr(Client, phase, fails)
    with pytest.raises(sa.AsyncFunctionError, match=f"{phase}` failed: NoTextError\n") as info:
        arrow.ordered_wait({"x": [7]}, Client()).to_table()
    assert info.value.kind == f"{phase}-failed"


@dataclasses.dataclass
class Unset:
    """One of its values is not there unless somebody sets it."""

    a: int
    b: int = dataclasses.field(init=False)


class LazyKeys:
    """Reads its names when it is asked for them."""

    def keys(self):
        raise ConnectionError("the connection was closed")

    def __getitem__(self, name):
        return 7


class LazyValues(LazyKeys):
    """Reads its values then."""

    def keys(self):
        return ["a", "b"]

    def __getitem__(self, name):
        raise ConnectionError("the connection was closed")


class Model:
    """As a model of pydantic with a serializer of its own is."""

    def model_dump(self):
        raise ValueError("3 cannot be written")


class Short(tuple):
    """Has fewer values than names."""

    __slots__ = ()
    _fields = ("a", "b")


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (Unset(3), "`Unset` cannot be read: AttributeError"),
        (LazyKeys(), "`LazyKeys` cannot be read: ConnectionError"),
        (LazyValues(), "`LazyValues` cannot be read: ConnectionError"),
        (Model(), "`Model` cannot be read: ValueError"),
        (Short((3,)), "`Short` cannot be read: ValueError"),
    ],
    ids=["unset", "keys", "values", "model", "short"],
)
@pytest.mark.parametrize("if_result", [None, lambda results: False], ids=["plain", "asked"])
def test_a_record_that_cannot_be_read_fails_its_row_alone(record, why, if_result):
    @sa.async_function("a int, b int")
    async def function(row):
        return record if row.x == 7 else {"a": row.x, "b": 1}

    retry = sa.retry.fixed_delay(2, "7ms", if_result=if_result) if if_result else 0
    out = arrow.ordered_wait({"x": [3, 7, 13]}, function, on_error="capture", retry=retry)

    rows = out.to_table().to_pylist()
    assert [row["a"] for row in rows] == [3, None, 13]
    error = rows[1]["error"]
    assert (error["kind"], error["attempts"]) == ("result-schema-mismatch", 1)
    assert error["message"] == f"a returned {why}"
