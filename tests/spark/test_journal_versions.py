# SPDX-License-Identifier: Apache-2.0
"""One journal for jobs of several versions of Spark, each in a process of its own."""

from __future__ import annotations

import os
import subprocess

import pyarrow.parquet as pq
import pytest

from tests.spark.test_journal_crashes import ROOT, Service
from tests.support.scripted_server import ScriptedServer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.newest_spark,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
]

# Environment, its versions of Java, rows, partitions, mode, and the calls that are left to make.
RUNS = [
    (".venv-spark35", ("8", "21"), 601, 3, "ordered_wait", 601),
    (".venv-spark40", ("17", "21"), 907, 5, "unordered_wait", 306),
    (".venv-spark41", ("17", "21"), 1013, 2, "key_ordered_wait", 106),
    (".venv", ("17", "25"), 1013, 7, "ordered_wait", 0),
    (".venv-spark35", ("8", "21"), 1013, 4, "unordered_wait", 0),
]


def environment(name, javas, seed):
    found = subprocess.run(
        ["tools/java-home", name, *javas], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {
        **os.environ,
        "JAVA_HOME": found.stdout.strip(),
        "PYSPARK_PYTHON": str(ROOT / name / "bin/python"),
        "PYTHONHASHSEED": str(seed),
        "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}",
    }


def test_each_version_of_spark_finds_what_the_others_have_paid_for(tmp_path):
    missing = [name for name, *_ in RUNS if not (ROOT / name / "bin/python").exists()]
    if missing:
        pytest.skip(f"`make {missing[0].replace('.venv', 'test')}` makes {missing[0]}")
    service, folder = Service(), tmp_path / "journal"
    with ScriptedServer(service) as server:
        for run, (name, javas, rows, partitions, mode, calls) in enumerate(RUNS):
            before, out = service.total, tmp_path / f"out{run}"
            numbers = [str(rows), str(partitions), mode]
            program = [ROOT / name / "bin/python", "-m", "tests.spark.journal_program", server.url]
            made = environment(name, javas, 7 * run)
            ended = subprocess.run(
                [*program, *numbers, folder, out],
                cwd=ROOT,
                env=made,
                capture_output=True,
                text=True,
                check=False,
            )
            assert ended.returncode == 0, f"{name}: {ended.stderr[-3000:]}"
            found = sorted((it["id"], it["name"]) for it in pq.read_table(out).to_pylist())
            assert found == [(id_, f"name of {id_}") for id_ in range(rows)], name
            assert service.total - before == calls, name
    assert set(service.calls.values()) == {1}
