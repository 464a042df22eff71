# SPDX-License-Identifier: Apache-2.0
"""The folder of a journal in a store that is busy, refuses, or has others at work."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait._plan import journal as plans
from sparkawait._worker import journal as journals
from sparkawait._worker import known_rows
from tests.unit.test_journal import files, known, plan_of, rows, task, told, write

__all__ = ["told"]


class Busy(pa.PythonFile):
    """A file whose store does not answer each time."""

    errors: ClassVar[list[Exception]] = []

    def read(self, nbytes=None):
        if self.errors:
            raise self.errors.pop()
        return super().read(nbytes)


@pytest.fixture
def busy(monkeypatch):
    """What reads of files end with, before others read."""
    opened = plans.LocalFolder.open
    monkeypatch.setattr(
        plans.LocalFolder, "open", lambda self, name: Busy(opened(self, name), mode="r")
    )
    monkeypatch.setattr(known_rows, "_PAUSES", (0, 0))
    yield Busy.errors
    Busy.errors.clear()


@pytest.mark.parametrize("begun", [False, True])
def test_a_store_that_is_busy_is_asked_again_and_its_files_are_not_torn(
    tmp_path, told, busy, begun
):
    plan = plan_of(tmp_path)
    write(plan, task(plan), [1], [["kept"]])
    slow = OSError("AWS Error SLOW_DOWN during GetObject")
    reading = task(plan) if begun else None
    busy += [slow, slow]
    assert known(reading or task(plan), rows([1])) == [["kept"]]
    assert busy == []

    reading = task(plan) if begun else None
    busy += [slow] * 3
    with pytest.raises((OSError, sa.ConfigurationError), match="SLOW_DOWN"):
        known(reading or task(plan), rows([1]))
    busy.clear()
    assert known(reading or task(plan), rows([1])) == [["kept"]]
    assert told == []


@pytest.mark.parametrize("begun", [False, True])
def test_a_file_that_goes_while_it_is_read_was_put_together_with_others(
    tmp_path, told, busy, monkeypatch, begun
):
    plan = plan_of(tmp_path)
    writing = task(plan)
    for number in range(2):
        write(plan, writing, [number], [[f"a{number}"]])
    reading = task(plan) if begun else None

    def gone(self, nbytes=None):
        monkeypatch.undo()  # once
        writing.finish()
        msg = "RESOURCE_NOT_FOUND during GetObject"
        raise OSError(msg)

    monkeypatch.setattr(known_rows, "_PAUSES", ())
    monkeypatch.setattr(Busy, "read", gone)
    assert known(reading or task(plan), rows(range(2))) == [["a0"], ["a1"]]
    assert told == []


def test_without_the_right_to_delete_no_row_is_written_three_times(tmp_path, monkeypatch):
    def refused(_self, name):
        msg = f"Access Denied: {name}"
        raise OSError(msg)

    plan = plan_of(tmp_path)
    monkeypatch.setattr(plans.LocalFolder, "delete", refused)
    monkeypatch.setattr(journals, "_FILES", 3)
    writing = task(plan)
    for number in range(17):
        write(plan, writing, [number], [[f"a{number}"]])
        writing.tidy()
    writing.finish()
    assert len(files(tmp_path)) == 17 + 1
    assert known(task(plan), rows(range(17))) == [[f"a{it}"] for it in range(17)]
