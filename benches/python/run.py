# SPDX-License-Identifier: Apache-2.0
"""Runs the benches named on the command line, or all: ``run.py [--quick] [--out DIR] [name ..]``.

Prints one line a figure and writes ``DIR/<name>.json``.
"""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from pathlib import Path
from typing import cast

import machine
from figures import Bench, Figure, Settings

BENCHES = (
    "criterion",
    "operator_rate",
    "operator_latency",
    "operator_options",
    "limited_rate",
    "spark_native",
    "spark_at_once",
    "spark_sleeping",
    "chained",
    "spark_kill",
    "stream_stragglers",
    "stream_cost",
    "few_rows",
    "warm_up",
    "redis_lookup",
    "http_lookup",
    "http_batches",
    "hedging",
    "http_channels",
    "refusals",
    "told_limits",
    "host_rate",
    "postgres_lookup",
    "postgres_channels",
    "worker_memory",
    "large_results",
    "cache_hits",
    "channels",
    "shipping",
)
ALONE = ("first_row",)
"""Runs when it is named only: needs a wheel, and installs packages."""


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description="Benches of sparkawait from Python.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(BENCHES + ALONE)}")
    parser.add_argument("--quick", action="store_true", help="few rows, one round: does it run?")
    parser.add_argument("--out", type=Path, default=Path("benches/out"), help="for the JSON files")
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHES + ALONE)
    if unknown:
        parser.error(f"no such bench: {', '.join(sorted(unknown))}")
    options.out.mkdir(parents=True, exist_ok=True)
    settings = Settings(quick=options.quick)
    print(", ".join(f"{name} {value}" for name, value in machine.describe().items()), flush=True)
    for name in options.names or BENCHES:
        bench = cast("Bench", import_module(name).figures)
        _report(name, bench(settings), options.out)


def _report(name: str, figures: list[Figure], out: Path) -> None:
    for figure in figures:
        print(figure.line(), flush=True)
    report = {"machine": machine.describe(), "figures": [figure.to_json() for figure in figures]}
    (out / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
