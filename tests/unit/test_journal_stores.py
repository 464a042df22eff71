# SPDX-License-Identifier: Apache-2.0
"""The folder of a journal in a store that is busy, refuses, or has others at work."""

from __future__ import annotations

import contextlib
import resource
from typing import ClassVar

import pyarrow as pa
import pytest
from pyarrow import fs, parquet

import sparkawait as sa
from sparkawait._plan import journal as plans
from sparkawait._worker import journal as journals
from sparkawait._worker import known_rows
from sparkawait.exceptions import AsyncIOError
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


def test_a_url_may_have_one_slash_as_spark_writes_it(tmp_path):
    assert plan_of(f"file:{tmp_path}").journal.path == f"file://{tmp_path}"
    assert (tmp_path / "_journal.json").exists()
    with pytest.raises(sa.ConfigurationError, match="`journal` is at dbfs://, and only s3"):
        plan_of("dbfs:/x/y")
    with pytest.raises(sa.ConfigurationError, match="`journal` is at file: without a slash"):
        plan_of("file:x/y")


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
def test_a_file_is_whole_although_there_was_no_memory_to_read_it(
    tmp_path, told, monkeypatch, begun
):
    plan = plan_of(tmp_path)
    write(plan, task(plan), [1], [["kept"]])
    reading = task(plan) if begun else None

    def short(*_arguments, **_options):
        monkeypatch.undo()  # once
        msg = "malloc of size 64 failed"
        raise pa.ArrowMemoryError(msg)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", short)
    with pytest.raises(MemoryError, match="malloc"):
        known(reading or task(plan), rows([1]))

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


class Store:
    """A store of some type, whose files are in a local folder."""

    def __init__(self, folder, type_name):
        self.type_name = type_name
        self._files = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
        self.moves = 0

    def __getattr__(self, name):
        return getattr(self._files, name)

    def move(self, one, other):
        self.moves += 1
        self._files.move(one, other)


@pytest.mark.parametrize(
    ("url", "type_name"),
    [
        ("gs://team/kept", "gcs"),
        ("abfs://team@account.dfs.core.windows.net/kept", "abfs"),
        ("hdfs://namenode:8020/kept", "hdfs"),
        ("s3a://team/kept", "s3"),
    ],
    ids=["gs", "abfs", "hdfs", "s3a"],
)
def test_each_kind_of_store_keeps_results_and_hdfs_has_no_file_before_it_is_whole(
    tmp_path, monkeypatch, url, type_name
):
    store, asked = Store(tmp_path, type_name), []

    def from_uri(uri):
        asked.append(uri)
        return store, "kept"

    monkeypatch.setattr(plans, "_in_one_request", lambda files: files)
    monkeypatch.setattr(fs, "FileSystem", type("FileSystem", (), {"from_uri": from_uri}))
    for cached in (plans.folder_of, plans._checked_folder):
        cached.cache_clear()
    plan = plan_of(url)
    writing = task(plan)
    for number in range(3):
        write(plan, writing, [number], [[f"a{number}"]])
    assert known(task(plan), rows(range(4))) == [["a0"], ["a1"], ["a2"], None]
    writing.finish()
    assert known(task(plan), rows(range(4))) == [["a0"], ["a1"], ["a2"], None]
    assert len(files(tmp_path / "kept")) == 1
    assert asked == [url.replace("s3a", "s3")]
    assert store.moves == (5 if type_name == "hdfs" else 0)
    for cached in (plans.folder_of, plans._checked_folder):
        cached.cache_clear()


@contextlib.contextmanager
def files_of_at_most(size):
    """The system writes so many bytes of a file, and refuses the rest."""
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))


def test_a_file_of_which_the_system_writes_a_part_is_not_in_the_folder(tmp_path):
    plan = plan_of(tmp_path)
    writing = task(plan)
    write(plan, writing, [1], [["kept"]])
    with files_of_at_most(331), pytest.raises(AsyncIOError, match="cannot be written") as told:
        write(plan, writing, [2], [["lost"]])
    assert str(tmp_path) in str(told.value)
    assert len(files(tmp_path)) == 1
    assert not list(tmp_path.glob(".*parquet"))
    assert known(task(plan), rows([1, 2])) == [["kept"], None]
