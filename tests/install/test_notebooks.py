# SPDX-License-Identifier: Apache-2.0
"""The notebooks run in a plain Jupyter into which the wheel was installed."""

import json

import pytest

from tests.meta.repository import ROOT
from tests.support.environments import Environment

pytestmark = [pytest.mark.install, pytest.mark.timeout(300)]

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
RUN = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        print(output.get("text", output), end="")
"""
INTERRUPT = """
import json, pathlib, sys, time
from jupyter_client.manager import start_new_kernel

kernel, client = start_new_kernel()

def told(code, interrupt_when=None):
    id_, shown = client.execute(code), []
    while interrupt_when is not None and not interrupt_when():
        time.sleep(0.1)
    if interrupt_when is not None:
        kernel.interrupt_kernel()
    while True:
        message = client.get_iopub_msg(timeout=120)
        if message["parent_header"].get("msg_id") != id_:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind in ("stream", "error"):
            shown.append(content.get("text") or content["ename"])
        if kind == "status" and content["execution_state"] == "idle":
            return "".join(shown)

first, second = pathlib.Path(sys.argv[1]).read_text().split("# then")
told(first)
calls = pathlib.Path("calls")
shown = [told("out.write.parquet('out')", interrupt_when=calls.exists), told(second)]
print(json.dumps(shown))
kernel.shutdown_kernel(now=True)
"""
CELLS = """
import asyncio, os, time
from pyspark.sql import SparkSession
import sparkawait as sa

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

async def ask(row):
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, b".")
    os.close(log)
    await asyncio.sleep(0.07)
    return {"v": row.id}

path = os.path.abspath("calls")
rows = spark.range(23_000, numPartitions=3)
out = sa.unordered_wait(rows, ask, schema="v long", max_concurrency=7)
# then
while spark.sparkContext.statusTracker().getActiveJobsIds():
    time.sleep(0.1)
before = os.path.getsize(path)
print(spark.range(13, numPartitions=1).count(), before < 23_000, os.path.getsize(path) - before)
"""
KEY = "sk-not-to-be-shown-7c1f"
SHOWN = {
    "batch_enrichment": "calls of 20 ms in",
    "model": "|good|",
    "stream": "|kitchen|",
    "tutorial": "600 rows are complete",
}


@pytest.fixture(scope="module")
def jupyter(installed, tmp_path_factory) -> Environment:
    environment = Environment.venv(tmp_path_factory.mktemp("jupyter") / "venv", beside=installed)
    lock = ROOT / "requirements" / "notebooks.lock"
    environment.install("--require-hashes", "--requirement", lock)
    return environment


@pytest.mark.nightly  # what they show is also in examples of documents, which run for each change
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(jupyter, tmp_path, path):
    ran = jupyter.run(jupyter.python, "-c", RUN, path, cwd=tmp_path, MODEL_KEY=KEY)

    assert ran.returncode == 0, ran.stderr[-3000:]
    assert SHOWN[path.stem] in ran.stdout
    assert KEY not in ran.stdout


@pytest.mark.nightly  # tests/spark/test_interrupts.py tells the same events itself
def test_a_cell_that_is_interrupted_makes_no_further_call(jupyter, tmp_path):
    cells = tmp_path / "cells.py"
    cells.write_text(CELLS)

    ran = jupyter.run(jupyter.python, "-c", INTERRUPT, cells, cwd=tmp_path)

    assert ran.returncode == 0, ran.stderr[-3000:]
    interrupted, behind = json.loads(ran.stdout.splitlines()[-1])
    assert "sparkawait: cancelled 1 job of this cell" in interrupted
    assert behind.endswith("13 True 0\n")


def test_notebooks_are_kept_without_what_they_showed():
    assert [path.stem for path in NOTEBOOKS] == sorted(SHOWN)
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert [cell for cell in code if cell["outputs"] or cell["execution_count"]] == []
