# SPDX-License-Identifier: Apache-2.0
"""Tables for the terminal, ``docs/benchmarks.md``, and its data in ``docs/reference``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benches.compare.goals import Goal, goals
from benches.compare.workloads import WORKLOADS

__all__ = ["CHARTS", "FILLED", "fill", "goal_table", "tables", "write"]

CHARTS = {
    "throughput": "Throughput over calls in flight, calls of 1-20 ms",
    "latency": "Latency of a row in order, where 1 % of the calls take 100 times as long",
    "cost": "CPU time of a million rows",
}
"""The charts by the name of their file."""

PAGE_WORKLOADS = {
    "no-op-unordered": "at once",
    "uniform-1000": "1-20 ms, 1 000 at a time",
    "uniform-10000": "1-20 ms, 10 000 at a time",
    "stragglers-ordered": "1 % are slow, in order",
    "http": "HTTP",
    "http-stalled-host": "HTTP, 1 host of 10 hangs",
}
"""The workloads of the page's first table, as its columns are called."""

LATENCY_WORKLOADS = {
    "uniform-1000": "1-20 ms, 1 000 at a time",
    "stragglers-unordered": "1 % are slow",
    "stragglers-ordered": "1 % are slow, in order",
    "half-load": "1-20 ms, half of the load",
    "http": "HTTP",
}
"""The workloads of the page's second table, as its columns are called."""

README_WORKLOADS = {
    "no-op-unordered": "at once",
    "uniform-1000": "1-20 ms",
    "stragglers-ordered": "1 % are slow, in order",
    "http": "HTTP",
}
"""The workloads of the README's table, as its columns are called."""

README_PEERS = (
    *("sparkawait_native", "sparkawait_python", "flink_java", "daft"),
    *("recipe_gather", "ray_data", "recipe_threads", "pyflink"),
)
"""The peers of the README's table: those that most readers know."""

_BEGIN, _END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"

_PAGE = """\
# Benchmarks

Measured on {date} at commit {commit} in {minutes} minutes: sparkawait, Flink's own operator,
PyFlink, Daft, Ray Data, Pathway, and the recipes that people write for PySpark. {rounds} rounds of
sparkawait and Flink, {others} of the others; each number is the median. The machine: {machine}.

Rows a second, one task each:

{summary}

Milliseconds from the start of a call to where the engine has the row, p50 / p99:

{latencies}

An empty cell was not measured: the peer cannot do it, or does not tell. `x Flink`, memory and CPU
are in [all figures](reference/benchmarks.md).

{charts}

## Goals

{goals}

## How it is measured

- Each run is a process in its own virtual environment. Peers take turns: A B, B A, A B.
- A workload is measured again if the rounds of Flink are more than 15 % of their median apart; the
  fastest and the slowest do not count. {noise}
- A process first works on a fifth of the rows, which does not count. Time runs from the first row
  in to the last row out.
- All peers make the same calls: the duration of a call depends on the row's id alone.
- Each peer proves its output: the number of rows, the sums of ids and results, and the order
  where it is promised.
- One task each: `local[1]`, parallelism 1, one actor. The HTTP server is another process on the
  same machine.

To measure it again, run `make bench-compare`; `make bench-compare ARGS=--plan` says what it would
measure, and how long that takes. The commands behind the numbers are with [all
figures](reference/benchmarks.md).
"""

_TABLES = """\
# Benchmarks: all figures

Measured on {date} at commit {commit}, {rounds} rounds of sparkawait and Flink, {others} of the
others. [Benchmarks](../benchmarks.md) sums it up and says how. The machine: {machine}.

- **rows/s**: the median of the rounds, with the smallest and the largest.
- **bound**: the share of Little's bound, calls in flight divided by their mean duration. A peer
  that tells destinations apart may exceed it where one of them hangs.
- **x Flink**, **x gather**: rows a second divided by those of Flink's Java operator, and of
  `asyncio.gather` per batch.
- **CPU**: seconds for a million rows, of the process and all that it started. **memory**: the
  most that they had together.
- **p50**, **p99**, **p99.9**: from the start of a call to where the engine has the row. Ours
  includes the time that an output batch takes to fill, unless the input is paced. In Spark the
  first quarter of a second of a query has the highest, 180 to 300 ms: calls end while the JVM still
  compiles what takes their rows. In runs of 4 s they make the p99; after the first second it is
  55 ms with 1 000 calls at a time. Our HTTP function does not tell when a call began.

```
{commands}
```
"""


def goal_table(document: dict[str, Any]) -> str:
    """Returns a Markdown table of what sparkawait is to reach, and whether it does."""
    lines = [
        _line(("figure", "measured", "to reach", "verdict")),
        _line(("---", "---:", "---:", "---")),
    ]
    return "\n".join([*lines, *(_line(_goal(goal)) for goal in goals(document))])


def _goal(goal: Goal) -> list[str]:
    verdict = {None: "not measured", True: "reached", False: "**missed**"}[goal.is_reached]
    value = f"{_number(goal.value)}{goal.unit}" if goal.value is not None else ""
    beside = f" ({goal.beside})" if goal.beside else ""
    limit = f"{'at most' if goal.at_most else 'at least'} {goal.limit:g}{goal.unit}"
    return [goal.title, f"{value}{beside}", limit, verdict]


def tables(document: dict[str, Any]) -> str:
    """Returns a Markdown table for each workload, in their own order, whichever came first."""
    found = []
    places = {workload.name: place for place, workload in enumerate(WORKLOADS)}
    measured = document["workloads"].items()
    for name, workload in sorted(measured, key=lambda it: places.get(it[0], len(places))):
        results = [result for result in document["results"] if result["workload"] == name]
        if results:
            found.append(
                f"## {workload['title']}\n\n{_about(workload)}\n\n{_table(document, results)}"
            )
    return "\n\n".join(found)


def _about(workload: dict[str, Any]) -> str:
    parts = [f"{workload['mode']}, {_number(workload['calls'])} calls in flight"]
    if workload["slots"]:
        parts.append(f"up to {_number(workload['slots'])} rows held where that is another number")
    if workload.get("held"):
        parts.append(f"or results of {workload['held']} where they are bounded by bytes")
    if workload["rows_per_second_bound"]:
        parts.append(f"bound {_number(workload['rows_per_second_bound'])} rows/s")
    return ", ".join(parts) + "."


def _table(document: dict[str, Any], results: Sequence[dict[str, Any]]) -> str:
    header = (
        "peer",
        "rows/s",
        "bound",
        "x Flink",
        "x gather",
        "CPU",
        "memory",
        "start-up",
        "p50",
        "p99",
        "p99.9",
    )
    units = ("", "", "", "", "", "s/M rows", "MB", "s", "ms", "ms", "ms")
    titles = [
        f"{name} ({unit})" if unit else name for name, unit in zip(header, units, strict=True)
    ]
    rows = [_row(document["peers"][result["peer"]], result) for result in _sorted(results)]
    lines = [_line(titles), _line(["---", *["---:"] * (len(titles) - 1)]), *map(_line, rows)]
    return "\n".join(lines)


def _sorted(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fastest first, failures last."""
    return sorted(
        results,
        key=lambda it: -it["summary"]["rows_per_second"]["median"] if it["summary"] else 1.0,
    )


def _row(peer: dict[str, Any], result: dict[str, Any]) -> list[str]:
    title = f"**{peer['title']}**" if peer["is_ours"] else peer["title"]
    summary = result["summary"]
    if summary is None:
        return [title, f"failed: {_escape(result['failure'])}", *[""] * 9]
    if result["failure"]:
        title += f" (then failed: {_escape(result['failure'])})"
    latency = summary["latency_ms"] or {}
    return [
        title,
        _spread(summary["rows_per_second"]),
        _share(summary["share_of_bound"]),
        *(_ratio(summary["ratio_to"].get(name)) for name in ("flink_java", "recipe_gather")),
        _median(summary["cpu_seconds_per_million_rows"]),
        _median(summary["peak_megabytes"]),
        _median(summary["startup_seconds"]),
        *(_median(latency.get(name)) for name in ("p50", "p99", "p99.9")),
    ]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _spread(value: dict[str, float]) -> str:
    middle = _number(value["median"])
    if value["min"] == value["max"]:
        return middle
    return f"{middle} ({_number(value['min'])}..{_number(value['max'])})"


def _share(value: dict[str, float] | None) -> str:
    return f"{value['median']:.3f}" if value else ""


def _ratio(value: dict[str, float] | None) -> str:
    return _number(value["median"]) if value else ""


def _median(value: dict[str, float] | None) -> str:
    return _number(value["median"]) if value else ""


def _number(value: float) -> str:
    if abs(value) >= 100:  # noqa: PLR2004 - what follows the point says nothing then
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def write(document: dict[str, Any], docs: Path) -> None:
    """Writes ``benchmarks.md`` and its data into a folder that has the charts in ``benchmarks/``.

    A chart that is not there had nothing to show, and is left out.
    """
    told = {
        "date": document["date"],
        "commit": document["commit"],
        "minutes": round(document["minutes"]),
        "machine": ", ".join(f"{name} {value}" for name, value in document["machine"].items()),
        "rounds": document["method"]["rounds"],
        "others": document["method"]["rounds_of_others"],
        "commands": "\n".join(document["commands"]),
    }
    charts = [
        f"![{title}](benchmarks/{name}.svg)"
        for name, title in CHARTS.items()
        if (docs / "benchmarks" / f"{name}.svg").exists()
    ]
    page = _PAGE.format(
        **told,
        summary=_summary(document, PAGE_WORKLOADS, tuple(document["peers"])),
        latencies=_summary(document, LATENCY_WORKLOADS, tuple(document["peers"]), _latency),
        noise=_noise(document),
        charts="\n\n".join(charts),
        goals=goal_table(document),
    )
    parts = [_TABLES.format(**told), tables(document), "## Peers", _peers(document)]
    (docs / "reference").mkdir(exist_ok=True)
    (docs / "benchmarks.md").write_text(page.strip() + "\n")
    text = "\n\n".join(part.strip() for part in parts)
    (docs / "reference" / "benchmarks.md").write_text(text + "\n")


def _noise(document: dict[str, Any]) -> str:
    """Says what else the machine did, as far as it can be seen."""
    workloads = document["workloads"].values()
    loads = [it["load_before"] for it in workloads if it["load_before"] is not None]
    steals = [it["steal"] for it in workloads if it["steal"] is not None]
    if not loads:
        return ""
    return (
        f"The load was {min(loads):.1f} to {max(loads):.1f} when a workload began (the one before"
        f" is a part of it), and other guests of the host took at most {max(steals):.1%} of a run."
    )


def _peers(document: dict[str, Any]) -> str:
    """Returns versions and settings of each peer, and who is absent."""
    lines = []
    for name, peer in document["peers"].items():
        versions = ", ".join(f"{what} {number}" for what, number in peer["versions"].items())
        settings = next(
            (
                it["settings"]
                for it in document["results"]
                if it["peer"] == name and it.get("settings")
            ),
            {},
        )
        told = ", ".join(f"{what}: {value}" for what, value in settings.items())
        absent = f"**absent**: {_escape(peer['absent'])}" if peer["absent"] else versions
        lines.append(f"- **{peer['title']}** (`{name}`): {absent}. {told}".strip())
    return "\n".join(lines)


def fill(root: Path, document: dict[str, Any]) -> None:
    """Writes the figures of `FILLED` between their marks; a page without marks stays as it is."""
    for name, told in FILLED.items():
        path = root / name
        if not path.exists():
            continue
        before, begin, rest = path.read_text().partition(_BEGIN)
        _, end, after = rest.partition(_END)
        if begin and end:
            path.write_text(f"{before}{begin}\n{told(document)}\n{end}{after}")


def _of_readme(document: dict[str, Any]) -> str:
    cores = document["machine"].get("cores")
    told = f"Rows a second on {cores} cores, one task, {document['date']}, {document['commit']}."
    text = f"{_summary(document, README_WORKLOADS, README_PEERS)}\n\n{told}"
    return (
        f"{text} More workloads, and how it is measured: [docs/benchmarks.md](docs/benchmarks.md)."
    )


def _of_tuning(document: dict[str, Any]) -> str:
    peers = {
        "native function": "sparkawait_native",
        "Python function": "sparkawait_python",
        "gather per batch": "recipe_gather",
    }
    summaries = {(it["peer"], it["workload"]): it["summary"] for it in document["results"]}

    def told(peer: str, workload: str, key: str, form: str) -> str:
        value = (summaries.get((peer, workload)) or {}).get(key)
        return format(value["median"], form) if value else ""

    lines = [_line(("calls in flight", *peers)), _line(("---:", *["---:"] * len(peers)))]
    for calls in (100, 1_000, 10_000):
        cells = [told(it, f"uniform-{calls}", "share_of_bound", ".3f") for it in peers.values()]
        lines.append(_line((_number(calls), *cells)))
    native, python = (
        told(peer, "http", "cpu_seconds_per_million_rows", ".0f")
        for peer in ("sparkawait_native", "sparkawait_python")
    )
    table = "\n".join(lines)
    return (
        f"How much of that one task in Spark reaches, with calls of 1 to 20 ms:\n\n{table}\n\n"
        f"A million HTTP lookups take {native} s of CPU with `sa.http`, and {python} s with aiohttp"
        " in a Python function."
    )


FILLED: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "README.md": _of_readme,
    "docs/guides/tuning.md": _of_tuning,
}
"""Pages that have figures of the comparison between marks, and what stands there."""


def _rate(summary: dict[str, Any]) -> str:
    return _median(summary["rows_per_second"])


def _latency(summary: dict[str, Any]) -> str:
    found = summary["latency_ms"]
    return f"{_median(found['p50'])} / {_median(found['p99'])}" if found else ""


def _summary(
    document: dict[str, Any],
    workloads: Mapping[str, str],
    wanted: Collection[str],
    told: Callable[[dict[str, Any]], str] = _rate,
) -> str:
    """Returns a table of what is told of the peers, ours first and then the fastest."""
    summaries = {
        (result["peer"], result["workload"]): result["summary"]
        for result in document["results"]
        if result["summary"]
    }
    cells = {key: told(summary) for key, summary in summaries.items() if key[1] in workloads}
    rates = {
        peer: summary["rows_per_second"]["median"]
        for (peer, workload), summary in summaries.items()
        if workload == "uniform-1000"
    }
    peers = [
        name
        for name in document["peers"]
        if name in wanted and any(cells.get((name, workload)) for workload in workloads)
    ]
    peers.sort(key=lambda name: (not document["peers"][name]["is_ours"], -rates.get(name, 0.0)))
    lines = [_line(("calls", *workloads.values()))]
    lines.append(_line(("---", *["---:"] * len(workloads))))
    for name in peers:
        peer = document["peers"][name]
        title = f"**{peer['title']}**" if peer["is_ours"] else peer["title"]
        lines.append(_line((title, *(cells.get((name, workload), "") for workload in workloads))))
    return "\n".join(lines)
