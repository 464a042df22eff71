# SPDX-License-Identifier: Apache-2.0
"""An option of a function holds, however it is given and wherever the function is called."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

import sparkawait as sa
from sparkawait.options import OF_FUNCTION, OWN_OPTIONS
from tests.spark.options_program import CASES, PLACES, chosen, results

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
FULL = pytest.param("full", marks=pytest.mark.nightly)
CONNECT = pytest.param("connect", marks=pytest.mark.nightly)


def over_connect(folder: Path, amount: str) -> dict[str, Any]:
    pytest.importorskip("grpc")
    out = folder / "results.json"
    command = [sys.executable, "-m", "tests.spark.options_program", str(out), amount]
    program = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert program.returncode == 0, program.stderr[-5000:]
    return json.loads(out.read_text())


@pytest.mark.parametrize("amount", ["one way each", FULL])
@pytest.mark.parametrize("kind", ["classic", CONNECT])
def test_calls_are_those_that_the_option_says(request, tmp_path, kind, amount):
    is_full = amount == "full"
    if kind == "connect":
        found = over_connect(tmp_path, amount)
    else:
        found = results(request.getfixturevalue("spark"), tmp_path, is_full=is_full)

    assert found == {
        f"{place}, {name}, {way}": [CASES[name].seen, CASES[name].results]
        for place in PLACES
        for name, way in chosen(place, is_full=is_full)
    }


def test_each_option_of_a_function_is_tried():
    # These end a task: the tests of functions have them.
    ending = {"blocked_loop_timeout", "setup_timeout"}
    assert CASES.keys() == (OWN_OPTIONS.keys() | OF_FUNCTION.keys()) - ending


@sa.async_function("doubled long", timeout="13s")
async def double(row):
    return 2 * row["id"]


def test_with_a_column_it_is_a_column_and_with_anything_else_it_is_called(spark):
    rows = spark.range(13).selectExpr("id", "id as k")

    assert [row[0] for row in rows.select(double(F.col("id"))).collect()] == list(range(0, 26, 2))
    assert [row[0] for row in rows.select(double("id", F.col("k"))).collect()] == [*range(0, 26, 2)]
    assert asyncio.run(double({"id": 3})) == 6
    with pytest.raises(TypeError):  # a text is no row, and no column
        asyncio.run(double("id"))


def test_a_column_beside_a_value_is_refused_with_both_ways_out(spark):
    words = r"got a Column and a value of type `dict`; .*write F.lit\(..\).*give it no Column"
    for function in (double, double.with_options(timeout="7s")):
        with pytest.raises(sa.ConfigurationError, match=words):
            function(F.col("id"), {"k": 1})


def test_a_declared_function_is_known_to_sql(spark):
    spark.udf.register("doubled", double)
    found = spark.sql("SELECT doubled(named_struct('id', id)) FROM range(13)").collect()
    assert [row[0] for row in found] == list(range(0, 26, 2))
