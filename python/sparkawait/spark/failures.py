# SPDX-License-Identifier: Apache-2.0
"""What an exception says that leaves a task.

Spark sends its traceback to the driver as UTF-8. PySpark begins the message before it encodes the
text, so one that cannot be encoded leaves the query waiting for ever. Called on the task thread.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager

from sparkawait.exceptions import AsyncIOError, ResultError

__all__ = ["add_to_what_is_said", "in_micro_batch", "told_to_spark"]


@contextmanager
def told_to_spark() -> Generator[None, None, None]:
    r"""Has what the body raises say all that Spark's driver can read.

    The exception of the user's function is part of it, also where Spark drops causes. Half a
    character is written as its escape, such as ``\ud83d``.
    """
    try:
        yield
    except AsyncIOError as error:
        _keep_cause(error)
        _make_encodable(error)
        raise
    except Exception as error:
        if _is_encodable(_printed(error)):
            raise
        # Any other class may make its text of whatever it likes.
        raise RuntimeError(_escaped(_printed(error)).rstrip()) from None


@contextmanager
def in_micro_batch(number: int | None) -> Generator[None, None, None]:
    """Has what the body raises say which micro-batch of its query it has failed, if it is known."""
    try:
        yield
    except AsyncIOError as error:
        if number is not None:
            note = f"in micro-batch {number} of the query, or carried over from an earlier one"
            add_to_what_is_said(error, note)
        raise


def add_to_what_is_said(error: Exception, note: str) -> None:
    """Adds to what is printed of `error`, and not as its last line, which people read first."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
        *others, told = error.__notes__
        error.__notes__ = [told, *others]
    else:  # notes would not be printed
        error.args = (f"{error}\n{note}",)


def _keep_cause(error: AsyncIOError) -> None:
    """Writes the user's traceback into `error`, if it would be lost or cannot be encoded."""
    cause = error.__cause__
    if cause is None:
        return
    told = _printed(cause)
    is_encodable = _is_encodable(told)
    if is_encodable and not os.environ.get("SPARK_SIMPLIFIED_TRACEBACK"):
        return
    if not isinstance(cause, ResultError):  # was said, and no line of the user's raised it
        add_to_what_is_said(error, f"caused by the exception of the function:\n{told.rstrip()}")
    if not is_encodable:
        error.__cause__ = None


def _make_encodable(error: AsyncIOError) -> None:
    error.args = tuple(_escaped(it) if isinstance(it, str) else it for it in error.args)
    notes = [_escaped(note) for note in getattr(error, "__notes__", [])]
    error.__notes__ = notes  # pyright: ignore[reportAttributeAccessIssue]
    if not _is_encodable(_printed(error)):
        error.__cause__ = None  # so its context is not printed either


def _printed(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _is_encodable(told: str) -> bool:
    try:
        told.encode()
    except UnicodeEncodeError:
        return False
    return True


def _escaped(told: str) -> str:
    return told.encode("utf-8", "backslashreplace").decode()
