# SPDX-License-Identifier: Apache-2.0
"""Draws what `channels` measured: ``python -m benches.python.channels_chart JSON SVG``.

Needs matplotlib, as the charts of `benches.compare` do.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benches.compare.charts import FAINT, new_figure, placeholder, save, set_up

LINES = {
    "nothing stalled": (FAINT, 6.0),
    "with channels": (placeholder("sparkawait_arrow"), 2.0),
    "without channels": (placeholder("flink_java"), 2.0),
}
"""Colour and width of each line."""


def main() -> None:
    """Draws rows a second over time."""
    set_up()
    measured = json.loads(Path(sys.argv[1]).read_text())
    timelines = next(it["details"] for it in measured["figures"] if it["details"])["timelines"]
    figure, axes = new_figure("Rows of nine destinations while the tenth takes 10 s a call", 3.6)
    for name, (colour, width) in LINES.items():
        seconds = range(1, len(timelines[name]) + 1)
        axes.plot(seconds, timelines[name], color=colour, linewidth=width, label=name)
    axes.set(xlabel="seconds", ylabel="rows a second")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, axis="y", linewidth=0.5)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    save(figure, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
