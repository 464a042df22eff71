# SPDX-License-Identifier: Apache-2.0
"""The demo that asks a model, and is killed in the middle."""

import subprocess
import sys

import pytest

from sparkawait.__main__ import parse
from sparkawait._flights.models import ModelSettings

pytestmark = pytest.mark.spark


def test_the_demo_of_models_is_an_option_of_the_demo():
    assert parse(["demo", "--llm"]) == ModelSettings()
    assert parse(["demo", "--llm", "--rows", "313"]) == ModelSettings(313)


@pytest.mark.nightly
def test_a_killed_job_pays_again_for_what_was_broken_off_alone():
    program = [sys.executable, "-m", "sparkawait", "demo", "--llm", "--rows", "313"]
    shown = subprocess.run(program, check=True, capture_output=True, text=True, timeout=400).stdout
    assert "started again" in shown
    assert "answers were paid for twice" in shown
    assert "0 of " in shown.splitlines()[-1]
