# SPDX-License-Identifier: Apache-2.0
"""What the package says where it cannot run."""

import subprocess
import sys

import pyarrow as pa
import pytest


def output_of(program):
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    return (result.stderr.strip() or result.stdout.strip()).splitlines()[-1]


def test_windows_is_refused_in_one_sentence():
    assert output_of("import sys; sys.platform = 'win32'; import sparkawait") == (
        "ImportError: sparkawait runs on Linux and macOS; on Windows, use it in WSL or a container"
    )


def test_without_pyspark_the_functions_for_data_frames_name_the_extra():
    program = (
        "import sys; sys.modules['pyspark'] = None; import sparkawait; sparkawait.ordered_wait"
    )

    assert output_of(program) == (
        "ModuleNotFoundError: the functions for DataFrames of Spark need PySpark;"
        " run `pip install 'sparkawait[spark]'` where the wheel of sparkawait is installed"
        " (`make wheel` in the source builds it). For polars, pandas, DuckDB and Arrow there is"
        " `sparkawait.arrow.ordered_wait`"
    )


def test_a_frame_of_another_library_is_sent_to_the_functions_for_it():
    pytest.importorskip("pyspark")
    import sparkawait

    message = "got `pyarrow.lib.Table`; for that there is `sparkawait.arrow.unordered_wait`"
    with pytest.raises(sparkawait.ConfigurationError, match=message):
        sparkawait.unordered_wait(pa.table({"id": [7]}), len, schema="n int")


def test_the_version_is_that_of_the_extension_module():
    import sparkawait
    from sparkawait import _core

    assert sparkawait.__version__ == _core.VERSION


GEVENT = """
import sys, types
monkey = types.ModuleType("gevent.monkey")  # as far as it is asked
monkey.is_module_patched = {patched}.__contains__
sys.modules["gevent.monkey"] = monkey

import pyarrow as pa
import sparkawait as sa

async def same(row):
    return row.id

out = sa.arrow.ordered_wait(pa.table({{"id": [3, 1, 7]}}), same, schema="y int")
print(out.to_table()["y"].to_pylist())
"""


def test_threads_that_gevent_has_patched_are_told_instead_of_waited_for():
    program = GEVENT.format(patched=["threading", "socket"])
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "wait for them for ever; write `gevent.monkey.patch_all(thread=False)`" in result.stderr
    assert output_of(GEVENT.format(patched=["socket"])) == "[3, 1, 7]"
