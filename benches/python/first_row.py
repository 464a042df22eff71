# SPDX-License-Identifier: Apache-2.0
"""How long does a newcomer wait, from no virtual environment at all to the first enriched row?

Makes one, installs the wheel by pip as each of them says, and runs the first example of the README,
and the tutorial in Jupyter up to its first rows. Java and pip's cache are present. The wheel is the
one that `SPARKAWAIT_WHEEL` names, or the one in dist/. Goal: less than 60 s.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

from built_wheel import built_wheel
from figures import Figure, Settings, alternate

from tests.meta.repository import ROOT
from tests.meta.test_readme import blocks
from tests.support.environments import Environment

GOAL_SECONDS = 60.0
MOST_ROUNDS = 2
Times = tuple[float, float, float]


def _of_readme(environment: Environment, folder: Path) -> str:
    """Runs the first example of the README; returns what it said."""
    (folder / "example.py").write_text(blocks("README.md", "python run")[0])
    ran = environment.run(environment.python, "example.py", cwd=folder)
    return ran.stderr + ran.stdout


def _of_tutorial(environment: Environment, folder: Path) -> str:
    """Runs the tutorial up to the cell that shows the first rows; returns what it said."""
    notebook = json.loads((ROOT / "examples" / "tutorial.ipynb").read_text(encoding="utf-8"))
    shows = [".show(" in "".join(cell["source"]) for cell in notebook["cells"]]
    notebook["cells"] = notebook["cells"][: shows.index(True) + 1]
    path = folder / "tutorial.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    jupyter = environment.folder / "bin" / "jupyter"
    ran = environment.run(jupyter, "execute", "--inplace", path, cwd=folder, activated=True)
    return ran.stderr + path.read_text(encoding="utf-8")


def _seconds(packages: list[str], run: Callable[[Environment, Path], str], expected: str) -> Times:
    """Returns when the environment, the packages and the rows were there."""
    with tempfile.TemporaryDirectory(prefix="sparkawait-") as name:
        folder = Path(name)
        start = perf_counter()
        environment = Environment.venv(folder / "env")
        made = perf_counter() - start
        environment.install(*packages)
        installed = perf_counter() - start
        if expected not in (said := run(environment, folder)):
            raise RuntimeError(said[-3000:])
        return made, installed, perf_counter() - start


def figures(settings: Settings) -> list[Figure]:
    """Measures both; a first round, which fills pip's cache, is dropped."""
    wheel = f"{built_wheel()}[spark]"
    rounds = alternate(
        min(MOST_ROUNDS, settings.rounds),
        partial(_seconds, [wheel], _of_readme, "|  0|customer 0|    10|"),
        partial(_seconds, [wheel, "jupyter"], _of_tutorial, "|  0| hello 0|"),
    )
    titles = ("the end of the README's first example", "the first rows of the tutorial")
    return [
        Figure(
            f"from an empty environment to {title}",
            "s",
            [end for _, _, end in times],
            "",
            [],
            goal=GOAL_SECONDS,
            of_ratio=False,
            at_most=True,
            details={"made, installed, ran": times},
        )
        for title, times in zip(titles, rounds, strict=True)
    ]
