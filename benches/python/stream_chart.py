# SPDX-License-Identifier: Apache-2.0
"""Draws what `stream_stragglers` measured: ``python -m benches.python.stream_chart JSON SVG``.

Needs matplotlib, as the charts of `benches.compare` do.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benches.compare.charts import FAINT, new_figure, placeholder, save, set_up

LINES = {
    "without stragglers": (FAINT, 6.0),
    "with carry_over": (placeholder("sparkawait_arrow"), 2.0),
    "without carry_over": (placeholder("flink_java"), 2.0),
}
"""Colour and width of each line."""


def main() -> None:
    """Draws how long micro-batches take, over time."""
    set_up()
    measured = json.loads(Path(sys.argv[1]).read_text())
    details = next(it["details"] for it in measured["figures"] if it["details"])
    title = "Micro-batches of a stream of which 1 % of the calls take 10 s"
    figure, axes = new_figure(title, 3.6)
    for name, (colour, width) in LINES.items():
        starts, seconds = details["micro-batches"][name]
        axes.plot(starts, seconds, color=colour, linewidth=width, label=name, marker=".")
    axes.set(xlabel="seconds", ylabel="seconds of a micro-batch", yscale="log")
    axes.grid(visible=True, axis="y", linewidth=0.5)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    save(figure, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
