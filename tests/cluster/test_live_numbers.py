# SPDX-License-Identifier: Apache-2.0
"""`sa.job` on a cluster: tasks tell the driver of their calls while they run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_cluster import SparkCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.newest_spark,
    pytest.mark.nightly,
    pytest.mark.timeout(300),
]

ROOT = Path(__file__).parents[2]


def test_calls_are_counted_while_they_are_made_and_a_stop_finds_their_job(tmp_path):
    (tmp_path / "cluster").mkdir()
    with SparkCluster(tmp_path / "cluster", cores=2) as cluster:
        program = subprocess.run(
            [sys.executable, "-m", "tests.cluster.live_numbers_program", cluster.address, tmp_path],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert program.returncode == 0, program.stderr[-5000:]
    seen = json.loads((tmp_path / "out.json").read_text())

    # No task had ended when it was looked at.
    assert seen["live"] == [0, 4, True]
    assert seen["stopped"] == 1
    counted, made = seen["after"]
    # A call that is cancelled in its first moment is counted and not made.
    assert 0 < made <= counted <= made + 4 * 7
    assert seen["later"] == made
