# SPDX-License-Identifier: Apache-2.0
"""What a notebook does before Spark starts, such as setting its key, shows no key.

Whole notebooks run in `tests/install`; this is the part that takes no time.
"""

import json
import re
import subprocess
import sys

import pytest

from tests.meta.repository import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
KEY = "sk-not-to-be-shown-7c1f"
SHOW = """
import ast, sys
for source in sys.argv[1:]:
    # As a kernel does: the last expression of a cell is shown.
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"))
    if last is not None:
        exec(compile(ast.Interactive([last]), "cell", "single"))
"""


def cells_before_spark(path):
    """The code cells before the first one that imports something of Spark's or ours."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            continue
        if re.search(r"^ *(import|from) (pyspark|sparkawait)\b", source, re.MULTILINE):
            return
        yield source


def shown(cells):
    command = [sys.executable, "-c", SHOW, *cells]
    ran = subprocess.run(
        command, env={"MODEL_KEY": KEY}, capture_output=True, text=True, check=True
    )
    return ran.stdout + ran.stderr


def test_a_cell_that_ends_with_its_key_would_be_seen():
    assert KEY in shown(["import os\nos.environ.setdefault('MODEL_KEY', 'x')"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_key_is_shown_before_spark_starts(path):
    assert KEY not in shown(list(cells_before_spark(path)))


def test_the_key_of_the_model_is_set_there():
    (path,) = [it for it in NOTEBOOKS if it.stem == "model"]
    assert any("MODEL_KEY" in cell for cell in cells_before_spark(path))
