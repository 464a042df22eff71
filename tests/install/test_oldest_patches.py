# SPDX-License-Identifier: Apache-2.0
"""A stream with `carry_over` runs on the oldest patch of each line, with the newest pyarrow.

What the extra of a line lets a user have, and other tests, which take its newest release, do not.
"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.install import carried_program as program
from tests.meta.repository import ROOT
from tests.support.environments import Environment

pytestmark = [pytest.mark.install, pytest.mark.nightly, pytest.mark.timeout(900)]

PROGRAM = Path(program.__file__)
ROWS = list(range(program.FILES * program.ROWS))


@pytest.mark.parametrize(
    ("extra", "patch"),
    [("spark35", "3.5.0"), ("spark40", "4.0.0"), ("spark41", "4.1.4"), ("spark", "4.2.0")],
)
def test_a_stream_carries_its_rows(wheel, tmp_path, extra, patch):
    environment = Environment.venv(tmp_path / "venv")
    # What the message asks for where `transform_with_state` has no protobuf.
    environment.install(f"{wheel}[{extra}]", f"pyspark=={patch}", "protobuf")
    java = [ROOT / "tools" / "java-home", environment.folder, "17", "17"]
    home = subprocess.run(java, capture_output=True, text=True, check=True).stdout.strip()

    ran = environment.run(
        environment.python, str(PROGRAM), str(tmp_path / "streams"), cwd=tmp_path, JAVA_HOME=home
    )

    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["spark"] == patch
    assert len(told["seen"]) == (1 if extra == "spark35" else 2)
    for vehicle, seen in told["seen"].items():
        assert seen == {"rows": ROWS, "calls": ROWS}, vehicle
