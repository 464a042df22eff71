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


def test_notebooks_are_kept_without_what_they_showed():
    assert [path.stem for path in NOTEBOOKS] == sorted(SHOWN)
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert [cell for cell in code if cell["outputs"] or cell["execution_count"]] == []
