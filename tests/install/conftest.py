# SPDX-License-Identifier: Apache-2.0
"""A wheel, and an environment into which it was installed as a user does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.repository import ROOT
from tests.support.environments import Environment


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> str:
    """A wheel of what is in this repository, built for development unless one was named."""
    named = os.environ.get("SPARKAWAIT_WHEEL")
    if named:
        return str(Path(named).resolve())
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "maturin", "build", "--quiet", "--out", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    [built] = folder.glob("*.whl")
    return str(built)


@pytest.fixture(scope="session")
def installed(tmp_path_factory, wheel) -> Environment:
    """An environment into which nothing went but `sparkawait[spark]`."""
    environment = Environment.venv(tmp_path_factory.mktemp("venv") / "venv")
    environment.install(f"{wheel}[spark]")
    return environment
