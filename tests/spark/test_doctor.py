# SPDX-License-Identifier: Apache-2.0
"""The doctor finds nothing where all is well, and says what is in the way where it is not."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyspark
import pytest

import sparkawait as sa

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
CALLS = ["Python function", "native function", "column function"]


def examined(*arguments, **variables):
    """Runs the program and returns its exit status and findings."""
    ran = subprocess.run(
        [sys.executable, "-m", "sparkawait", "doctor", "--json", *arguments],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout, ran.stderr[-3000:]
    return ran.returncode, json.loads(ran.stdout)["findings"]


def of(findings, place):
    return {it["subject"]: it["text"] for it in findings if it["place"] == place}


def problems(findings):
    return [it for it in findings if it["status"] == "problem"]


@pytest.mark.nightly  # it starts a Spark of its own
def test_a_local_spark_is_well():
    status, findings = examined("--master", "local[1]")

    assert problems(findings) == []
    assert status == 0
    assert of(findings, "executors")["sparkawait"] == sa.__version__
    assert f"Spark {pyspark.__version__}" in of(findings, "session")["settings"]
    assert list(of(findings, "calls in executors")) == CALLS


@pytest.mark.newest_spark
@pytest.mark.nightly
def test_spark_connect_is_well():
    pytest.importorskip("grpc")
    # On a free port; a server that PySpark starts always takes the same one otherwise.
    status, findings = examined("--remote", "local[1]", SPARK_TESTING="1")

    assert problems(findings) == []
    assert status == 0
    assert list(of(findings, "calls in executors")) == CALLS


def test_a_missing_java_is_said_before_spark_is_started():
    status, findings = examined(JAVA_HOME="/nowhere")

    assert status == 1
    [problem] = problems(findings)
    assert problem["subject"] == "Java"
    assert "JAVA_HOME, /nowhere, has no bin/java" in problem["text"]
    left_out = [it["place"] for it in findings if it["status"] == "not checked"]
    assert left_out == ["session", "executors", "calls in executors"]


@pytest.mark.newest_spark
@pytest.mark.nightly
@pytest.mark.parametrize("there", ["9.9.9", None])
def test_workers_with_another_sparkawait_or_none_are_found(tmp_path, there):
    if there is not None:
        package = tmp_path / "packages" / "sparkawait"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"__version__ = '{there}'\n")
    # No .pth is read with -S, by which the sparkawait under test is found.
    packages = sysconfig.get_path("purelib")
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\nPYTHONPATH={tmp_path / 'packages'}:$PYTHONPATH:{packages}"
        f' exec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    status, findings = examined(
        "--master", "local[1]", PYSPARK_PYTHON=str(python), PYTHONPATH="", SPARK_NOTE="s3cret"
    )

    assert status == 1
    [problem] = problems(findings)
    assert (problem["place"], problem["subject"]) == ("executors", "sparkawait")
    if there is None:
        assert "No module named 'sparkawait'" in problem["text"]
    else:
        assert f"{there}, and the driver has {sa.__version__}" in problem["text"]
    assert "s3cret" not in json.dumps(findings)
    assert findings[-1]["status"] == "not checked"
