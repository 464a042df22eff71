# SPDX-License-Identifier: Apache-2.0
"""The test kit finds jobs that pay twice after a crash, and passes those that do not."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import sparkawait as sa
from sparkawait.testing import Crash, crashes

ROWS = 97


def to_pandas(out):
    pandas = pytest.importorskip("pandas", "2.2", reason="older ones have no Arrow streams")
    return pandas.DataFrame(out.to_table().select(["x", "answer"]).to_pydict())


RESULTS = {
    "table": lambda out: out.to_table().select(["x", "answer"]),
    "output": lambda out: out,
    "batches": list,
    "pandas": to_pandas,
}


class Job:
    """Calls for each row, and has a defect if it is told one."""

    def __init__(self, defect="", result=None):
        self.defect, self.runs, self.made = defect, itertools.count(), []
        self.result = result

    def __call__(self, folder):
        run = next(self.runs)
        made = self.made

        @sa.async_function("answer string")
        async def ask(row):
            made.append(row["x"])
            if row["x"] % 11 == 3:
                msg = "no"
                raise ValueError(msg)
            return {"answer": f"{row['x']}"}

        batch = pa.RecordBatch.from_pydict({"x": list(range(ROWS)), "run": [run] * ROWS})
        key = ["x", "run"] if self.defect == "another key" else "x"
        version = run if self.defect == "another version" else 1
        out = sa.arrow.unordered_wait(
            [batch.slice(0, 41), batch.slice(41)],
            ask,
            journal=sa.Journal(folder, key=key, version=version),
            on_error="null",
        )
        if self.result is not None:
            return self.result(out)
        out = out.to_table()
        rows = out.select(["x", "answer"]).to_pylist()
        return rows[1:] if self.defect == "a lost row" and run == 3 else rows

    @property
    def calls(self):
        return len(self.made)


@pytest.mark.parametrize("result", RESULTS)
def test_a_job_may_return_its_rows_in_any_form(result):
    job = Job(result=RESULTS[result])
    if result in {"output", "batches"}:
        job.runs = itertools.repeat(0)  # whose columns are all compared
    found = crashes(job, lambda: job.calls, cuts=3)
    assert [it.calls for it in found] == [it.unknown for it in found]
    assert found[0] == Crash(0, ROWS, ROWS)


def test_a_job_that_pays_once_passes():
    job = Job()
    found = crashes(job, lambda: job.calls, cuts=5)
    failed = len(range(3, ROWS, 11))
    assert found[0] == Crash(0, ROWS, ROWS)
    assert found[-1] == Crash(ROWS, failed, failed)
    assert [it.calls for it in found] == [it.unknown for it in found]


@pytest.mark.parametrize("defect", ["another key", "another version"])
def test_a_job_that_pays_twice_is_found(defect):
    job = Job(defect)
    with pytest.raises(AssertionError, match=r"after a crash with \d+ of 97 rows .* made 97 calls"):
        crashes(job, lambda: job.calls)


def test_a_job_with_other_results_is_found():
    job = Job("a lost row")
    with pytest.raises(AssertionError, match="had other results than without one"):
        crashes(job, lambda: job.calls)


def test_a_job_without_a_journal_is_told():
    with pytest.raises(AssertionError, match="has committed nothing"):
        crashes(lambda folder: [], lambda: 0)
    with pytest.raises(sa.ConfigurationError, match="`cuts` must be an int of at least 2"):
        crashes(lambda folder: [], lambda: 0, cuts=1)
