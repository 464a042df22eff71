# SPDX-License-Identifier: Apache-2.0
"""The type matrix over Spark Connect, where values of the driver go another way."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.types import test_async_udf, test_bodies, test_cells, test_pass_through, test_results

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
TABLES = (
    *test_pass_through.PATHS,
    *test_cells.PATHS,
    *test_async_udf.PATHS,
    test_results.PATHS[0],
    test_bodies.PATH,
)


@pytest.mark.nightly
def test_values_over_connect_are_as_the_tables_say(tmp_path):
    pytest.importorskip("grpc")
    out = tmp_path / "cells.json"
    program = subprocess.run(
        [sys.executable, "-m", "tests.types.connect_program", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        # Of the workers, too, which import modules of the tests.
        env={**os.environ, "TZ": "Asia/Kolkata", "PYTHONPATH": str(ROOT)},
    )
    assert program.returncode == 0, program.stderr[-20000:]
    tried = json.loads(out.read_text())
    assert set(tried) == {path.title for path in TABLES}
    assert min(tried.values()) > 50
