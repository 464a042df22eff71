# SPDX-License-Identifier: Apache-2.0
"""How much of the package a reader, and Python, goes through for one call on the driver."""

import sys
from collections import Counter
from pathlib import Path

import pytest

import sparkawait as sa

pytestmark = pytest.mark.spark

PACKAGE = str(Path(sa.__file__).parent)


@sa.async_function("doubled bigint")
async def double(row):
    return {"doubled": 2 * row.id}


async def halved(value) -> int:
    return value // 2


def passed(call) -> tuple[int, int]:
    """Returns the files of the package, and the functions of them, that a call passes."""
    calls: Counter[str] = Counter()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls[frame.f_code.co_filename] += 1

    call()  # imports, and what is asked once
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(calls), calls.total()


@pytest.mark.newest_spark
def test_a_call_passes_few_files_and_few_functions(spark):
    df = spark.range(13)
    get = sa.http.get("http://127.0.0.1:1/{id}", "x string")
    column = sa.async_udf("bigint")(halved)

    files, calls = passed(lambda: sa.unordered_wait(df, double))
    assert (files <= 16, calls <= 150) == (True, True), (files, calls)
    files, calls = passed(lambda: sa.unordered_wait(df, get))
    assert (files <= 18, calls <= 150) == (True, True), (files, calls)
    files, calls = passed(lambda: df.select(column("id")))
    assert (files <= 14, calls <= 115) == (True, True), (files, calls)
