# SPDX-License-Identifier: Apache-2.0
"""Jobs under faults that are drawn, with all that lasts: `make soak T=600` does so for longer."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.soak import KINDS, schedule

pytestmark = [pytest.mark.spark, pytest.mark.newest_spark, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


# Among the faults of the first one is a clock that jumps, of the second a driver that is killed.
@pytest.mark.parametrize("seed", ["1", pytest.param("3", marks=pytest.mark.nightly)])
def test_no_row_is_lost_or_doubled_and_no_call_is_made_again_whatever_happens(seed):
    program = subprocess.run(
        [sys.executable, "-m", "tests.cluster.soak", "7", seed, "1013"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    sys.stdout.write(program.stdout)
    assert program.returncode == 0, program.stdout + program.stderr[-3000:]
    assert " 0 wrong" in program.stdout


def test_faults_come_again():
    faults = [schedule(13, it, 1013, on_cluster=True) for it in range(61)]
    assert faults == [schedule(13, it, 1013, on_cluster=True) for it in range(61)]
    assert {it.kind for of_round in faults for it in of_round} == set(KINDS)
    on_one_host = [schedule(13, it, 1013, on_cluster=False) for it in range(61)]
    assert all(it.kind != "kill executor" for of_round in on_one_host for it in of_round)
