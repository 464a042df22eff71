# SPDX-License-Identifier: Apache-2.0
"""The folder of a journal: what was written is known, in other processes and after a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparkawait as sa
from sparkawait._plan import journal as plans
from sparkawait._plan.plan import Chain
from sparkawait._plan.resolve import resolve_unpickled
from sparkawait._worker import journal as journals
from sparkawait._worker import known_rows
from sparkawait._worker.journal import KEY, KNOWN, TaskJournal
from sparkawait._worker.known_rows import KnownRows
from sparkawait.exceptions import AsyncIOError, ErrorKind

INPUT = pa.schema([("id", pa.int64()), ("text", pa.string())])


@sa.async_function("answer string, seen timestamp")
async def ask(row):
    raise NotImplementedError


def plan_of(folder, function=ask, *, results="rows", schema=INPUT, **options):
    options = {"version": 1, **options}
    if isinstance(function, sa.AsyncFunction) is False:
        del options["version"]
    journal = sa.Journal(folder, **options)
    return resolve_unpickled(
        "ordered", function, input_schema=schema, results=results, journal=journal
    )


def task(plan, attempt=0):
    journals._known.clear()  # as a process of its own has nothing
    return TaskJournal(plan.journal, plan.result_schema, stage=3, partition=7, attempt=attempt)


def rows(ids, texts=None):
    texts = [f"text {it}" for it in ids] if texts is None else texts
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array(texts, pa.string())], schema=INPUT)


def entries(plan, batch, answers, kinds=None):
    """Completed rows as the engine hands them on: `answers` has a list of texts for each."""
    count = batch.num_rows
    fields = plan.result_schema
    flat = [it for one in answers for it in one or ()]
    columns = [pa.array(flat, pa.string()), pa.nulls(len(flat), fields.field("seen").type)]
    if len(fields) > 2:
        columns.append(pa.array([True if it is not None else None for it in flat], pa.bool_()))
    offsets = [0]
    for one in answers:
        offsets.append(offsets[-1] + len(one or ()))
    result = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.StructArray.from_arrays(columns, fields=list(fields))
    )
    kinds = pa.array(kinds or [None] * count, pa.string())
    arrays = {
        "key": batch.column(KEY),
        "attempt": pa.array([2] * count, pa.int32()),
        "kind": kinds,
        "message": pc.if_else(kinds.is_valid(), "why", pa.scalar(None, pa.string())),
        "status": pa.array([503] * count, pa.int32()),
        "cost": pa.array([0.25] * count, pa.float64()),
        "result": result,
    }
    return pa.record_batch(list(arrays.values()), list(arrays))


def write(plan, journal, ids, answers, kinds=None):
    journal.write(entries(plan, journal.with_known(rows(ids)), answers, kinds))


def known(journal, batch):
    """What is known of each row: its answers, its kind, or nothing."""
    column = journal.with_known(batch).column(KNOWN)
    column.validate(full=True)
    return [
        None
        if it is None
        else it["kind"] or [None if row is None else row["answer"] for row in it["result"]]
        for it in column.to_pylist()
    ]


def files(folder):
    return sorted(it.name for it in Path(folder).iterdir() if it.name[0] not in "_.")


def test_what_a_task_has_written_another_one_knows(tmp_path):
    plan = plan_of(tmp_path / "new" / "j")
    first = task(plan)
    assert known(first, rows([1, 2, 3])) == [None, None, None]
    write(plan, first, [3, 1], [["three", "more"], []])
    assert known(first, rows([1, 2, 3])) == [None, None, None]  # it has its own rows itself

    second = task(plan)
    assert known(second, rows([1, 2, 3, 3])) == [[], None, ["three", "more"], ["three", "more"]]
    assert known(second, rows([2])) == [None]
    assert known(second, rows([3], ["another text"])) == [None]
    column = second.with_known(rows([3])).column(KNOWN)
    assert column.type == journals.columns_of(plan.result_schema).field(KNOWN).type
    (found,) = column.to_pylist()
    assert (found["attempt"], found["status"], found["cost"]) == (2, 503, 0.25)


def test_a_batch_without_rows_has_the_two_columns(tmp_path):
    journal = task(plan_of(tmp_path))
    found = journal.with_known(rows([]))
    assert found.schema.names == ["id", "text", KEY, KNOWN]
    assert found.num_rows == 0


def test_files_of_a_task_become_one_and_rows_that_are_there_twice_count_once(tmp_path):
    plan = plan_of(tmp_path)
    first = task(plan)
    for number in range(13):
        write(plan, first, [number, 100 + number], [[f"a{number}"], [f"b{number}"]])
    parts = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    assert len(parts) == 13
    reader = task(plan)
    first.finish()
    (whole,) = files(tmp_path)
    wanted = [[f"a{it}"] for it in range(13)]
    # A task that began before finds its files gone, and looks again.
    assert known(reader, rows(range(13))) == wanted
    for name, data in parts.items():  # as if it had died before it could delete them
        (tmp_path / name).write_bytes(data)
    assert whole < min(parts)
    again = task(plan)
    assert known(again, rows(range(13))) == wanted
    assert files(tmp_path) == [whole]
    assert known(again, rows(range(13))) == wanted


def test_many_files_become_one_before_the_end_and_large_ones_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "_FILES", 7)
    plan = plan_of(tmp_path)
    journal = task(plan)
    for number in range(17):
        write(plan, journal, [number], [[f"a{number}"]])
        journal.tidy()
    assert len(files(tmp_path)) == 2 + 17 % 7
    monkeypatch.setattr(journals, "_LARGE_BYTES", 1)
    journal.finish()
    assert len(files(tmp_path)) == 2 + 17 % 7
    assert known(task(plan), rows(range(17))) == [[f"a{it}"] for it in range(17)]


def test_failures_are_asked_again_unless_they_are_kept(tmp_path):
    plan = plan_of(tmp_path)
    write(plan, task(plan), [1, 2], [None, ["two"]], ["user-function-failed", None])
    assert known(task(plan), rows([1, 2])) == [None, ["two"]]
    kept = task(plan_of(tmp_path, again="none"))
    assert known(kept, rows([1, 2])) == ["user-function-failed", ["two"]]

    write(plan, task(plan), [1], [["one"]])
    for again in ("failed", "none"):
        assert known(task(plan_of(tmp_path, again=again)), rows([1])) == [["one"]]


def test_of_two_results_each_run_takes_the_older_one_and_with_an_age_the_newer(
    tmp_path, monkeypatch
):
    plan = plan_of(tmp_path)
    at = [7_000_000_000_000]
    monkeypatch.setattr(journals.time, "time_ns", lambda: at[0] * 1000)
    for answer in ("old", "new"):
        write(plan, task(plan), [1], [[answer]])
        at[0] += 60_000_000
    assert known(task(plan), rows([1])) == [["old"]]
    assert known(task(plan_of(tmp_path, max_age="10min")), rows([1])) == [["new"]]
    young = task(plan_of(tmp_path, max_age="70s"))
    assert known(young, rows([1])) == [["new"]]
    at[0] += 60_000_000
    assert known(young, rows([1])) == [None]  # it has grown too old since
    assert known(task(plan_of(tmp_path, max_age="1s")), rows([1])) == [None]
    # The same process, and a call that takes older ones.
    older = plan_of(tmp_path, max_age="1h")
    again = TaskJournal(older.journal, older.result_schema, stage=3, partition=7, attempt=0)
    assert known(again, rows([1])) == [["new"]]


def test_a_store_that_cannot_be_reached_for_a_moment_loses_no_file(tmp_path, monkeypatch):
    plan = plan_of(tmp_path)
    write(plan, task(plan), [1], [["kept"]])
    reading = task(plan)
    with monkeypatch.context() as broken:

        def away(_self, _name):
            msg = "connection reset"
            raise OSError(msg)

        broken.setattr(plans.LocalFolder, "open", away)
        broken.setattr(known_rows, "_PAUSES", (0, 0))
        with pytest.raises(OSError, match="connection reset"):
            known(reading, rows([1]))
    assert known(reading, rows([1])) == [["kept"]]


class Memory(plans.Folder):
    """Files in memory."""

    def __init__(self, kept):
        self.path, self.kept, self.is_local = "memory", kept, True

    def names(self):
        return {name: (len(data), 0) for name, data in self.kept.items()}

    def open(self, name):
        if name not in self.kept:
            raise FileNotFoundError(name)
        return pa.BufferReader(self.kept[name])


def known_of(plan, kept, keys):
    """The answers that a reader has of some files."""
    result = plans.stored(plan.result_schema).field("result").type
    reader = KnownRows(Memory(kept), result, takes_newest=False, keeps_failures=False)
    reader.refresh(None)
    found = reader.rows(keys, None)
    found = [None] * len(keys) if found is None else found.to_pylist()
    return [it and [row["answer"] for row in it["result"]] for it in found]


@pytest.fixture
def told(monkeypatch):
    """What files were left out."""
    names = []
    monkeypatch.setattr(
        "sparkawait._worker.known_rows.warn_once", lambda _, name, *rest: names.append(name)
    )
    return names


def two_files(plan, folder):
    """Two commits of a row each, and the keys of both rows."""
    journal = task(plan)
    for row in range(2):
        write(plan, journal, [row], [[f"answer {row}"]])
    kept = {name: (folder / name).read_bytes() for name in files(folder)}
    return kept, journal._keys(rows([0, 1]))


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_file_that_is_cut_anywhere_is_named_and_not_used(tmp_path, told, step):
    plan = plan_of(tmp_path)
    kept, keys = two_files(plan, tmp_path)
    torn = max(kept)
    data = kept[torn]
    assert known_of(plan, kept, keys) == [["answer 0"], ["answer 1"]]
    assert told == []
    for end in {*range(0, len(data), step), *range(13), *range(len(data) - 13, len(data))}:
        kept[torn] = data[:end]
        assert known_of(plan, kept, keys) == [["answer 0"], None], end
        assert told == [torn]
        told.clear()


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_file_with_a_wrong_byte_gives_no_wrong_answer(tmp_path, told, step):
    pytest.importorskip("pyarrow", "15")  # before, pages have no checksums
    plan = plan_of(tmp_path)
    kept, keys = two_files(plan, tmp_path)
    name = max(kept)
    data = kept[name]
    for at in range(0, len(data), step):
        kept[name] = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        first, second = known_of(plan, kept, keys)
        assert first == ["answer 0"]
        assert second in (["answer 1"], None), at


def test_a_file_of_something_else_is_named_and_not_used(tmp_path, caplog):
    plan = plan_of(tmp_path)
    write(plan, task(plan), [1], [["one"]])
    from pyarrow import parquet

    parquet.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".half.parquet").write_bytes(b"PAR1")
    assert known(task(plan), rows([1])) == [["one"]]
    told = [it.getMessage() for it in caplog.records]
    assert len(told) == 1
    assert "other.parquet" in told[0]
    assert "no column `key`" in told[0]


STEPS = ["write", "open", "replace", "delete"]


@pytest.mark.parametrize("cut", range(40))
def test_a_crash_between_any_two_steps_loses_nothing_that_was_committed(tmp_path, monkeypatch, cut):
    """Each write, rename and deletion of three commits and a merge is the last in turn."""
    plan = plan_of(tmp_path)
    steps = [cut]

    class Dead(BaseException):
        pass

    def dying(function):
        def called(*arguments, **named):
            if steps[0] == 0:
                raise Dead
            steps[0] -= 1
            return function(*arguments, **named)

        return called

    journal, committed = task(plan), []
    for name in ("replace", "unlink", "fsync"):
        monkeypatch.setattr(os, name, dying(getattr(os, name)))
    monkeypatch.setattr(plans.LocalFolder, "delete", dying(plans.LocalFolder.delete))
    try:
        for number in range(3):
            write(plan, journal, [number], [[f"a{number}"]])
            committed.append(number)
        journal.finish()
        steps[0] = -1
    except Dead:
        pass
    monkeypatch.undo()
    found = known(task(plan), rows(range(3)))
    assert [found[it] for it in committed] == [[f"a{it}"] for it in committed]
    assert all(it in ([f"a{n}"], None) for n, it in enumerate(found))
    if cut == 39:
        assert steps[0] == -1, "there are more steps than cuts"


def test_a_commit_that_cannot_be_written_fails_and_names_the_folder(tmp_path, monkeypatch):
    plan = plan_of(tmp_path)
    journal = task(plan)

    def full(self, name, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plans.LocalFolder, "write", full)
    with pytest.raises(AsyncIOError, match=f"{tmp_path}.*No space left") as caught:
        write(plan, journal, [1], [["one"]])
    assert caught.value.kind is ErrorKind.JOURNAL_INVALID
    monkeypatch.undo()
    assert [it.name for it in tmp_path.iterdir()] == ["_journal.json"]
    write(plan, journal, [1], [["one"]])
    assert known(task(plan), rows([1])) == [["one"]]


def test_files_that_cannot_be_put_together_stay_as_they_are(tmp_path, monkeypatch, caplog):
    plan = plan_of(tmp_path)
    journal = task(plan)
    for number in range(2):
        write(plan, journal, [number], [[f"a{number}"]])

    def full(self, name, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plans.LocalFolder, "write", full)
    journal.finish()
    assert "stay apart" in caplog.text
    assert known(task(plan), rows(range(2))) == [["a0"], ["a1"]]


def test_a_row_has_one_key_whether_other_rows_are_unicode_or_not(tmp_path):
    plan = plan_of(tmp_path)
    bad = pa.array([b"a", b"\xff", b"c"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 3, bad.buffers())
    batch = pa.record_batch([pa.array([1, 2, 3], pa.int64()), texts], schema=INPUT)
    journal = task(plan)
    keys = journal._keys(batch)
    good = journal._keys(rows([1, 3], ["a", "c"]))
    assert keys.take(pa.array([0, 2])).equals(good)
    assert len(set(keys.to_pylist())) == 3


def test_a_row_keeps_its_key_beside_a_list_of_texts_that_are_not_unicode():
    bad = pa.array([b"a", b"\xff"]).view(pa.string())
    beside = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), bad)
    alone = pa.array([["a"]])
    keys = journals._keys_of(pa.record_batch([beside], ["texts"]), b"question")
    assert keys[0] == journals._keys_of(pa.record_batch([alone], ["texts"]), b"question")[0]
    assert keys[0] != keys[1]


def test_a_row_is_known_in_a_batch_with_a_text_that_is_not_unicode(tmp_path):
    called = []

    @sa.async_function("answer bigint")
    async def answer(row):
        called.append(row.id)
        return {"answer": row.id}

    def run(texts):
        array = pa.array(texts, pa.binary())
        texts = pa.Array.from_buffers(pa.string(), len(array), array.buffers())
        batch = pa.record_batch([pa.array(range(len(array)), pa.int64()), texts], schema=INPUT)
        journal = sa.Journal(tmp_path, version=1)
        return sa.arrow.ordered_wait([batch], answer, journal=journal).to_table()["answer"]

    assert run([b"a", b"b"]).to_pylist() == [0, 1]
    for _ in range(2):
        assert run([b"a", b"b", b"\xff"]).to_pylist() == [0, 1, 2]
    assert called == [0, 1, 2]


def test_a_column_function_and_a_wait_share_a_folder(tmp_path):
    wait, column = plan_of(tmp_path), plan_of(tmp_path, results="one")
    assert len(column.result_schema) == len(wait.result_schema) + 1
    write(wait, task(wait), [1, 2, 3], [["one"], [], ["many", "rows"]])
    found = task(column)
    values = found.with_known(rows([1, 2, 3, 4])).column(KNOWN).to_pylist()
    mark = column.result_schema.names[-1]
    assert [it and [row[mark] for row in it["result"]] for it in values] == [
        [True],
        [None],
        None,
        None,
    ]
    write(column, found, [5, 6, 7], [["five"], [None], None], [None, None, "retries-exhausted"])
    assert known(task(wait), rows([5, 6, 7])) == [["five"], [], None]
    assert known(task(column), rows([5, 6])) == [["five"], [None]]


def test_input_is_kept_where_it_is_asked_for(tmp_path):
    plan = plan_of(tmp_path, keep_input=True)
    journal = task(plan)
    assert journal.keep_input
    batch = rows([1, 2])
    entry = entries(plan, journal.with_known(batch), [["one"], ["two"]])
    kept = pa.StructArray.from_arrays(batch.columns, fields=list(INPUT))
    names = [*entry.schema.names, "input"]
    journal.write(pa.record_batch([*entry.columns, kept], names))
    table = pa.Table.from_pylist(pq_read(tmp_path))
    assert table["input"].to_pylist() == [{"id": 1, "text": "text 1"}, {"id": 2, "text": "text 2"}]
    assert known(task(plan), batch) == [["one"], ["two"]]


def pq_read(folder):
    from pyarrow import parquet

    return [row for name in files(folder) for row in parquet.read_table(folder / name).to_pylist()]


def test_others_read_the_folder(tmp_path):
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    plan = plan_of(tmp_path)
    journal = task(plan)
    for number in range(3):
        write(plan, journal, [number], [[f"a{number}"]])
    glob = f"{tmp_path}/*.parquet"
    query = f"select count(*), sum(cost), max(result[1].answer), min(kind) from '{glob}'"  # noqa: S608
    assert duckdb.sql(query).fetchall() == [(3, 0.75, "a2", "ok")]
    frame = polars.read_parquet(glob)
    assert frame.columns == plans.stored(plan.result_schema).names
    assert frame["cost"].sum() == 0.75


def test_what_others_write_is_read(tmp_path):
    """Polars and Spark know no bytes of a fixed width."""
    from pyarrow import parquet

    plan = plan_of(tmp_path / "a")
    write(plan, task(plan), range(7), [[f"a{it}"] for it in range(7)])
    (name,) = files(tmp_path / "a")
    table = parquet.read_table(tmp_path / "a" / name)
    other = table.set_column(0, "key", table["key"].cast(pa.binary()))
    other = other.replace_schema_metadata(None)
    (tmp_path / "b").mkdir()
    parquet.write_table(other.slice(2), tmp_path / "b" / "part-0.parquet", store_schema=False)
    found = known(task(plan_of(tmp_path / "b")), rows(range(7)))
    assert found == [None, None, *([f"a{it}"] for it in range(2, 7))]


PROGRAM = """
import sys
sys.path[:0] = {path!r}
from tests.unit.test_journal import *
ids = list(range(13))
plan = plan_of({folder!r})
print(known(task(plan), rows(ids)) == [[f"a{{it}}"] for it in ids])
"""


def test_another_process_with_another_hash_seed_knows_the_same(tmp_path):
    plan = plan_of(tmp_path)
    write(plan, task(plan), range(13), [[f"a{it}"] for it in range(13)])
    program = PROGRAM.format(path=sys.path, folder=str(tmp_path))
    for seed in ("1", "4711"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        )
        assert done.stdout.strip() == "True"


COMMIT = st.tuples(st.integers(0, 13), st.sampled_from(["ok", "ok", "ok", "failed"]))
STORIES = st.lists(st.lists(COMMIT, max_size=7), max_size=7)


@settings(max_examples=40, deadline=None)
@given(STORIES, st.lists(st.integers(0, 17), max_size=29), st.booleans())
def test_a_folder_knows_what_a_dict_knows(tmp_path_factory, commits, asked, ends):
    folder = tmp_path_factory.mktemp("journal")
    plan = plan_of(folder, again="none")
    journal = task(plan)
    model: dict[int, object] = {}
    for number, commit in enumerate(commits):
        ids = [it for it, _ in commit]
        answers = [[f"{number}/{at}"] if it[1] == "ok" else None for at, it in enumerate(commit)]
        kinds = [None if kind == "ok" else "retries-exhausted" for _, kind in commit]
        write(plan, journal, ids, answers, kinds)
        for at, (row, kind) in enumerate(commit):
            if kind == "ok" and not isinstance(model.get(row), list):
                model[row] = answers[at]
            elif kind != "ok":
                model.setdefault(row, "retries-exhausted")
    if ends:
        journal.finish()
    wanted = [model.get(it) for it in asked]
    assert known(task(plan), rows(asked)) == wanted
    assert known(journal, rows([])) == []


def test_calls_without_a_journal_load_nothing_that_reads_files():
    """It would be 9 MB of each Python worker."""
    program = (
        "import sys, sparkawait, pyarrow as pa\n"
        "function = sparkawait.testing.simulated()\n"
        "batch = pa.RecordBatch.from_pydict({'x': [1]})\n"
        "sparkawait.arrow.ordered_wait([batch], function).to_table()\n"
        "print([it for it in ('fs', 'parquet') if f'pyarrow.{it}' in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


# -- what a call is refused for, before anything runs


def refused(match, kind=ErrorKind.JOURNAL_INVALID):
    return pytest.raises(sa.ConfigurationError, match=match)


def test_a_python_function_needs_a_version(tmp_path):
    with refused(r"`journal` needs a version of `ask`.*version=1"):
        resolve_unpickled("ordered", ask, input_schema=INPUT, journal=str(tmp_path))


def test_a_native_function_knows_its_key_and_version(tmp_path):
    native = sa.http.get("http://127.0.0.1:9/{id}", "name string")
    for option in ({"key": "id"}, {"version": 1}):
        with refused(f"`{next(iter(option))}` of Journal is for Python functions"):
            resolve_unpickled(
                "ordered", native, input_schema=INPUT, journal=sa.Journal(tmp_path, **option)
            )


def test_an_unknown_column_of_the_key_is_refused(tmp_path):
    with pytest.raises(sa.ConfigurationError, match=r"`texts`.*did you mean `text`"):
        plan_of(tmp_path, key="texts")
    plan = plan_of(tmp_path, key="text")
    write(plan, task(plan), [1], [["one"]])
    assert known(task(plan), rows([2], ["text 1"])) == [["one"]]


def test_a_folder_is_for_one_function_and_one_result(tmp_path):
    plan_of(tmp_path)
    other = sa.async_function("answer string, seen timestamp")(renamed("other"))
    with refused(f"{tmp_path} of `journal` is for the function `ask`, and the call is of `other`"):
        plan_of(tmp_path, other)
    wider = sa.async_function("answer string, seen timestamp, more int")(renamed("ask"))
    with refused("is for results of `answer string`, .*, and the function returns .*`more int32`"):
        plan_of(tmp_path, wider)
    plan_of(tmp_path, sa.async_function("answer string not null, seen timestamp")(renamed("ask")))


def renamed(name):
    async def function(row):
        raise NotImplementedError

    function.__qualname__ = name
    return function


def test_several_functions_are_refused(tmp_path):
    journal = sa.Journal(tmp_path, version=1)
    other = sa.async_function("other string")(renamed("other"))
    for functions in ([ask.with_options(journal=journal), other],):
        with refused("`journal` keeps results of one function a call, got it for `ask`"):
            resolve_unpickled("ordered", functions, input_schema=INPUT)
    with refused("`journal` keeps results of one function"):
        resolve_unpickled("ordered", [ask, other], input_schema=INPUT, journal=journal)


def test_a_call_of_a_chain_has_no_journal(tmp_path):
    first = plan_of(tmp_path)
    other = sa.async_function("other string")(renamed("other"))
    behind = resolve_unpickled("ordered", other, input_schema=None)
    for one, two in ((first, behind), (behind, first)):
        with refused("`chain=True` does not go with the `journal` of `ask`"):
            Chain.of(one).then(two)


def test_types_that_have_no_key_or_no_file_are_refused(tmp_path):
    union = pa.schema([("odd", pa.dense_union([pa.field("a", pa.int64())]))])
    with refused("column `odd` has or contains"):
        plan_of(tmp_path, schema=union)


def test_a_damaged_or_later_folder_is_refused(tmp_path):
    about = tmp_path / "_journal.json"
    about.write_text("{", encoding="utf-8")
    with refused("`_journal.json` of the folder .* cannot be read"):
        plan_of(tmp_path)
    about.write_text(json.dumps({"format": 2}), encoding="utf-8")
    with refused("has format 2, and this version of sparkawait reads 1"):
        plan_of(tmp_path)


def test_a_folder_that_the_executor_does_not_share_is_refused(tmp_path):
    plan = plan_of(tmp_path)
    (tmp_path / "_journal.json").unlink()
    plans._checked_folder.cache_clear()
    with refused(f"the folder {tmp_path} of `journal` on the host .* is not the one that"):
        task(plan)
    plan_of(tmp_path)  # as another host has a folder of its own there
    with refused("is not the one that the driver has opened"):
        task(plan)


def test_a_store_that_does_not_answer_is_told_with_the_credentials(monkeypatch):
    import threading

    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(plans, "_PATIENCE_SECONDS", 0.01)
    ended = threading.Event()
    monkeypatch.setattr(plans, "folder_of", lambda path: ended.wait(7))
    with refused(
        r"s3://team/answers of `journal` cannot be opened on the host .*PyArrow finds.*AWS"
    ):
        plan_of("s3://team/answers?region=x")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    with refused("with the credentials of AWS_PROFILE: it took more than"):
        plan_of("s3://team/answers")
    ended.set()


def test_a_scheme_that_is_not_known_is_refused_and_a_password_is_not_shown():
    with refused("`journal` is at dbfs://, and only s3, .* are known; where it is mounted"):
        plan_of("dbfs://x/y")
    assert plans._shown("s3://key:word@team/answers?x=y") == "s3://team/answers"


@pytest.mark.parametrize(
    "given", ["", 7, {"path": "x", "again": "never"}, {"path": "x", "version": -1}, {"path": 7}]
)
def test_wrong_values_are_refused(given):
    with pytest.raises(sa.ConfigurationError):
        sa.WaitOptions(journal=sa.Journal(**given) if isinstance(given, dict) else given)


def test_a_function_has_its_journal_with_it(tmp_path):
    journal = sa.Journal(tmp_path, version=1)

    class Ask(sa.AsyncFunction):
        schema = "answer string, seen timestamp"

        async def async_invoke(self, row):
            raise NotImplementedError

    wanted = resolve_unpickled("ordered", Ask(), input_schema=INPUT, journal=journal).journal
    inside = type("Ask", (Ask,), {"journal": journal, "__qualname__": Ask.__qualname__})
    for function in (Ask().with_options(journal=journal), inside()):
        assert resolve_unpickled("ordered", function, input_schema=INPUT).journal == wanted
    own = sa.async_function(ask.schema, journal=sa.Journal(tmp_path / "2", version=1))(ask.function)
    assert resolve_unpickled("ordered", own, input_schema=INPUT).journal.function == "ask"


def test_short_forms_are_paths():
    for path in ("x/y", Path("x/y")):
        assert sa.WaitOptions(journal=path).journal == sa.Journal("x/y")
