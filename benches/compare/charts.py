# SPDX-License-Identifier: Apache-2.0
"""The charts: ``python -m benches.compare.charts RESULTS FOLDER``, where matplotlib is installed.

Each is one SVG for light and for dark pages: matplotlib draws in placeholder colours, which become
CSS variables that a media query sets. That works inside an image element too.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches.compare.page import CHARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "FAINT",
    "INK",
    "PEERS",
    "adapt",
    "colours",
    "new_figure",
    "placeholder",
    "save",
    "set_up",
]

Document = dict[str, Any]

INK, FAINT = "#010101", "#020202"
"""Placeholders for text and for grid lines."""

_INK = ("#24292f", "#e6edf3")
_FAINT = ("#d0d7de", "#3d444d")

# Light and dark, told apart by people who see fewer colours, and by line style beside that.
PEERS: dict[str, tuple[str, str, str]] = {
    "sparkawait_arrow": ("#0b5fa5", "#58a6ff", "-"),
    "sparkawait_native": ("#0b5fa5", "#58a6ff", "--"),
    "sparkawait_arrow_python": ("#0b8484", "#39c5bb", "-"),
    "sparkawait_python": ("#0b8484", "#39c5bb", "--"),
    "flink_java": ("#c2410c", "#ff9e64", "-"),
    "pyflink": ("#c2410c", "#ff9e64", ":"),
    "daft": ("#8250df", "#bc8cff", "-"),
    "ray_data": ("#9a6700", "#e3b341", "-"),
    "pathway": ("#bf3989", "#f778ba", "-"),
    "recipe_gather": ("#57606a", "#9ea7b3", "-"),
    "recipe_window": ("#57606a", "#9ea7b3", "--"),
    "recipe_threads": ("#57606a", "#9ea7b3", ":"),
    "recipe_concurrency_level": ("#57606a", "#9ea7b3", "-."),
}
_OTHER = ("#57606a", "#9ea7b3", "-")

CAPACITIES = ("uniform-100", "uniform-1000", "uniform-10000")
TAIL = "stragglers-ordered"
COST = "uniform-1000"


def colours() -> dict[str, tuple[str, str]]:
    """Returns what each placeholder stands for on a light and on a dark page."""
    found = {INK: _INK, FAINT: _FAINT}
    return found | {placeholder(name): (light, dark) for name, (light, dark, _) in PEERS.items()}


def placeholder(peer: str) -> str:
    """Returns the colour that stands for a peer's until the pages' kinds are told apart."""
    names = list(PEERS)
    return f"#0300{names.index(peer):02x}" if peer in PEERS else FAINT


def adapt(svg: str) -> str:
    """Replaces the placeholders by variables, and says what they are on both kinds of page."""
    pairs = colours()
    for placeholder in pairs:
        svg = re.sub(re.escape(placeholder), f"var(--c{placeholder[1:]})", svg, flags=re.IGNORECASE)
    light, dark = (
        "".join(f"--c{name[1:]}:{values[shade]};" for name, values in pairs.items())
        for shade in (0, 1)
    )
    style = f"<style>svg{{{light}}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}</style>"
    return re.sub(r"(<svg\b[^>]*>)", lambda found: found.group(1) + style, svg, count=1)


def main() -> None:
    """Draws all charts that have something to show, and removes the others."""
    set_up()
    document = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    draw = {"throughput": _throughput, "latency": _latency, "cost": _cost}
    for name, title in CHARTS.items():
        path = folder / f"{name}.svg"
        if figure := draw[name](document, title):
            save(figure, path)
        else:
            path.unlink(missing_ok=True)


def set_up() -> None:
    """Has matplotlib write SVG in placeholder colours."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams |= {
        "svg.fonttype": "none",
        "svg.hashsalt": "sparkawait",
        "font.family": "sans-serif",
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": FAINT,
        "xtick.color": INK,
        "ytick.color": INK,
        "grid.color": FAINT,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }


def save(figure: Figure, path: Path) -> None:
    """Writes a chart for light and for dark pages."""
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    path.write_text(adapt(path.read_text()))


def _summaries(document: Document, workload: str) -> dict[str, Document]:
    """Returns the summaries of a workload by peer, in the order of peers."""
    found = {
        result["peer"]: result["summary"]
        for result in document["results"]
        if result["workload"] == workload and result["summary"]
    }
    return {peer: found[peer] for peer in document["peers"] if peer in found}


def new_figure(title: str, height: float = 4.8) -> tuple[Figure, Axes]:
    """Returns an empty chart with a title; `height` is in inches."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.5, height), layout="constrained")
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_axisbelow(True)
    return figure, axes


def _throughput(document: Document, title: str) -> Figure | None:
    if not any(_summaries(document, workload) for workload in CAPACITIES):
        return None
    figure, axes = new_figure(title)
    bounds: list[tuple[int, float]] = []
    lines: dict[str, list[tuple[int, float]]] = {}
    for workload in CAPACITIES:
        about = document["workloads"].get(workload)
        if about is None:
            continue
        bounds.append((about["calls"], about["rows_per_second_bound"]))
        for peer, summary in _summaries(document, workload).items():
            point = (about["calls"], summary["rows_per_second"]["median"])
            lines.setdefault(peer, []).append(point)
    if bounds:
        axes.plot(*zip(*bounds, strict=True), color=FAINT, linewidth=6, label="Little's bound")
    for peer, points in lines.items():
        style = PEERS.get(peer, _OTHER)[2]
        label = document["peers"][peer]["title"]
        axes.plot(
            *zip(*points, strict=True),
            style,
            color=placeholder(peer),
            marker="o",
            markersize=3.5,
            label=label,
        )
    axes.set(xscale="log", yscale="log", xlabel="calls in flight", ylabel="rows a second")
    axes.grid(visible=True, linewidth=0.5)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    return figure


def _latency(document: Document, title: str) -> Figure | None:
    found = {
        peer: summary["latency_ms"]
        for peer, summary in _summaries(document, TAIL).items()
        if summary["latency_ms"]
    }
    if not found:
        return None
    names = sorted(found, key=lambda peer: -found[peer]["p99"]["median"])
    figure, axes = new_figure(title, 1.6 + 0.32 * len(names))
    for place, peer in enumerate(names):
        values = [found[peer][share]["median"] for share in ("p50", "p99", "p99.9")]
        colour = placeholder(peer)
        axes.plot([values[0], values[-1]], [place, place], color=colour, linewidth=2)
        for value, marker in zip(values, ("o", "s", "D"), strict=True):
            axes.plot([value], [place], marker, color=colour, markersize=6)
    for marker, share in zip(("o", "s", "D"), ("p50", "p99", "p99.9"), strict=True):
        axes.plot([], [], marker, color=INK, label=share)
    titles = [document["peers"][peer]["title"] for peer in names]
    axes.set_yticks(range(len(names)), labels=titles)
    axes.set(xscale="log", xlabel="milliseconds from the start of a call to the row's emission")
    axes.grid(visible=True, axis="x", linewidth=0.5)
    figure.legend(frameon=False, fontsize=8, ncols=3, loc="outside lower right")
    return figure


def _cost(document: Document, title: str) -> Figure | None:
    found = _summaries(document, COST)
    if not found:
        return None
    key = "cpu_seconds_per_million_rows"
    names = sorted(found, key=lambda peer: -found[peer][key]["median"])
    figure, axes = new_figure(
        f"{title}, calls of 1-20 ms, 1 000 at a time", 1.6 + 0.32 * len(names)
    )
    values = [found[peer][key]["median"] for peer in names]
    # Points, as the length of a bar says nothing on a logarithmic scale.
    for place, (peer, value) in enumerate(zip(names, values, strict=True)):
        axes.plot([value], [place], "o", color=placeholder(peer), markersize=8)
        axes.annotate(
            f"{value:.3g}", (value, place), (8, -3), textcoords="offset points", fontsize=8
        )
    titles = [document["peers"][peer]["title"] for peer in names]
    axes.set_yticks(range(len(names)), labels=titles)
    axes.margins(x=0.1)
    axes.set(xscale="log", xlabel="CPU seconds")
    axes.grid(visible=True, axis="x", linewidth=0.5)
    return figure


if __name__ == "__main__":
    main()
