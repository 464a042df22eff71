# SPDX-License-Identifier: Apache-2.0
"""How long does a newcomer wait, from no virtual environment at all to the first enriched row?

Makes one, installs the wheel with `[spark]` by pip, and runs the first example of the README to its
end, with Java and pip's cache present. The wheel is the one that `SPARKAWAIT_WHEEL` names, or the
one in dist/. Goal: less than 60 s.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter

from built_wheel import built_wheel
from figures import Figure, Settings, alternate

from tests.meta.test_readme import blocks
from tests.support.environments import Environment

SHOWN = "|  0|customer 0|    10|"
GOAL_SECONDS = 60.0
MOST_ROUNDS = 2


def _seconds(wheel: Path) -> tuple[float, float, float]:
    """Returns when the environment, the packages and the rows were there."""
    with tempfile.TemporaryDirectory(prefix="sparkawait-") as name:
        folder = Path(name)
        (folder / "example.py").write_text(blocks("README.md", "python run")[0])
        start = perf_counter()
        environment = Environment.venv(folder / "env")
        made = perf_counter() - start
        environment.install(f"{wheel}[spark]")
        installed = perf_counter() - start
        ran = environment.run(environment.python, "example.py", cwd=folder)
        if SHOWN not in ran.stdout:
            raise RuntimeError(ran.stderr[-3000:])
        return made, installed, perf_counter() - start


def figures(settings: Settings) -> list[Figure]:
    """Measures it; a first round, which fills pip's cache, is dropped."""
    wheel = built_wheel()
    [rounds] = alternate(min(MOST_ROUNDS, settings.rounds), lambda: _seconds(wheel))
    return [
        Figure(
            "from an empty environment to the end of the first example",
            "s",
            [end for _, _, end in rounds],
            "",
            [],
            goal=GOAL_SECONDS,
            of_ratio=False,
            at_most=True,
            details={"made, installed, ran": rounds},
        )
    ]
