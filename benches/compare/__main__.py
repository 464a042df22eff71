# SPDX-License-Identifier: Apache-2.0
"""Runs the peers in turn and writes ``results.json``, tables, charts and a page to a folder.

``python -m benches.compare [--plan] [--quick] [--peers A,B] [--workloads A,B]``

Nothing that is committed changes unless ``--publish`` says so.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from benches.compare import environment, page, publication
from benches.compare.peer import Job, Peer, all_peers
from benches.compare.plan import (
    ROUNDS,
    SECONDS,
    WARM_UP_SHARE,
    Entry,
    few,
    in_turn,
    plan,
    table,
)
from benches.compare.process import Failure, run
from benches.compare.results import Results, Rounds, load, set_aside
from benches.compare.tree import adopt_orphans
from benches.compare.workloads import WORKLOADS, Workload, by_name
from benches.python import machine

LIMIT_SECONDS = 120.0
LIMIT_FACTOR = 20.0
"""A run may take this many times as long as it would at the rate that its peer can reach."""
QUICK_SECONDS = 0.5
QUICK_ENVIRONMENTS = {"spark", "flink"}
"""Those that ``--quick`` installs; others take part if they are there."""


def main() -> None:
    """Does what the command line asks for."""
    options = _options()
    peers = all_peers()
    if options.list:
        _list(peers)
        return
    path = options.out / ("results-quick.json" if options.quick else "results.json")
    if options.page:
        _write_page(path, options)
        return
    adopt_orphans()
    # So that the processes of a peer are ended when this one is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    chosen = {name: peers[name] for name in options.peers or peers}
    workloads = [by_name(name) for name in options.workloads] or _default_workloads(options.quick)
    if options.plan:
        print(table(plan(list(chosen.values()), workloads, options.rounds, options.seconds)))
        return
    now = datetime.now(timezone.utc)
    results = load(path, _machine(), now) if not options.fresh else Results()
    if not results.document["results"]:
        set_aside(path)
    method = {
        "rounds": options.rounds,
        "rounds_of_others": few(options.rounds),
        "seconds": options.seconds,
        "quick": options.quick,
    }
    commit = machine.commit()
    results.describe(command=_command(), commit=commit, now=now, machine=_machine(), method=method)
    print(", ".join(" ".join(pair) for pair in _machine().items()), flush=True)
    present = _prepare(chosen, results, installs=not options.quick)
    entries = plan(present, workloads, options.rounds, options.seconds)
    print(table(entries), flush=True)
    refused = _measure_all(entries, results, path, now.date().isoformat())
    print(page.tables(results.document), page.goal_table(results.document), sep="\n\n", flush=True)
    if not options.quick:
        _write_page(path, options)
        if refused:
            sys.exit(
                f"refused: {'; '.join(refused)}. Make the machine quiet, and measure again:"
                f' make bench-compare ARGS="--workloads {",".join(refused)}"'
            )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.compare", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="one short round of few workloads: does it run?")
    add("--peers", type=_names, default=[], help="names, with commas between them")
    add("--workloads", type=_names, default=[], help="the same")
    add("--rounds", type=int, default=ROUNDS, help="measured processes of ours and of Flink")
    add("--seconds", type=float, default=SECONDS, help="about how long one works")
    add("--plan", action="store_true", help="measure nothing; print workloads, rounds and minutes")
    add("--fresh", action="store_true", help="join no earlier run; its results.json is set aside")
    add("--page", action="store_true", help="measure nothing; write the page from results.json")
    add("--list", action="store_true", help="list peers and workloads")
    add("--publish", action="store_true", help="also write page, charts and table into --docs")
    add("--out", type=Path, default=Path("benches/out"), help="for results, page and charts")
    add("--docs", type=Path, default=Path("docs"), help="what --publish writes into")
    options = parser.parse_args()
    if options.quick and options.publish:
        parser.error("--quick measures too shortly to be published")
    if options.quick:
        options.rounds, options.seconds = 1, QUICK_SECONDS
    unknown = set(options.peers) - set(all_peers())
    if unknown:
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    return options


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _default_workloads(quick: bool) -> list[Workload]:  # noqa: FBT001 - as on the command line
    return [it for it in WORKLOADS if (it.is_quick if quick else it.is_published)]


def _command() -> str:
    """Returns how to do this again."""
    given = shlex.join(sys.argv[1:])
    return f'make bench-compare ARGS="{given}"' if given else "make bench-compare"


def _machine() -> dict[str, str]:
    """Returns what it runs on; packages are told by the peers."""
    kept = ("cpu", "cores", "load", "system")
    return {name: value for name, value in machine.describe().items() if name in kept}


def _list(peers: dict[str, Peer]) -> None:
    for peer in peers.values():
        print(f"{peer.name:26} {peer.title}: {', '.join(sorted(peer.can))}")
    for workload in WORKLOADS:
        print(f"{workload.name:26} {workload.title}")


def _prepare(chosen: dict[str, Peer], results: Results, *, installs: bool) -> list[Peer]:
    """Makes what the peers need; returns those that can run."""
    present = []
    for peer in chosen.values():
        absent = None
        try:
            _install(peer, installs=installs)
        except environment.NotInstalledError as error:
            absent = str(error)
            print(f"{peer.title} is absent: {absent}", flush=True)
        else:
            present.append(peer)
        results.add_peer(peer, absent)
    return present


def _install(peer: Peer, *, installs: bool) -> None:
    name = peer.environment
    if not installs and name not in QUICK_ENVIRONMENTS and not environment.is_installed(name):
        msg = "not installed; `make bench-compare` does so"
        raise environment.NotInstalledError(msg)
    environment.ensure(name)
    if peer.prepare is not None:
        peer.prepare()


def _measure_all(
    entries: Sequence[Entry], results: Results, path: Path, date: str
) -> dict[str, str]:
    """Measures what is planned; returns which workloads are refused, and why."""
    refused = {}
    for entry in entries:
        began = time.monotonic()
        measured = {peer.name: Rounds() for peer in entry.peers}
        for number, peer in in_turn(entry.peers, entry.rounds):
            if measured[peer.name].failure is None:
                _run_once(peer, entry.workload, entry.seconds, measured[peer.name], number)
        why = results.add(entry.workload, measured, date)
        minutes = (time.monotonic() - began) / 60
        results.document["minutes"] += minutes
        results.save(path)
        print(
            f"{entry.workload.name}: {minutes:.1f} min, planned {entry.minutes():.1f}", flush=True
        )
        if why is not None:
            refused[entry.workload.name] = why
            print(f"{entry.workload.name}: REFUSED: {why}", flush=True)
    return refused


def _run_once(peer: Peer, workload: Workload, seconds: float, taken: Rounds, number: int) -> None:
    rows = peer.rows(workload, seconds)
    job = Job(workload, rows, max(1, round(rows * WARM_UP_SHARE)))
    limit = LIMIT_SECONDS + LIMIT_FACTOR * seconds * workload.stretch
    prefix = f"{workload.name}, {peer.title}, round {number + 1}"
    try:
        run_of_peer = run(peer, job, limit)
    except Failure as failure:
        taken.failure = str(failure)
        print(f"{prefix}: FAILED: {failure}", flush=True)
        return
    taken.runs[number] = run_of_peer
    rate, bound = run_of_peer.rows_per_second, workload.bound()
    share = f", {rate / bound:.1%} of the bound" if bound is not None else ""
    print(f"{prefix}: {rate:,.0f} rows/s{share}", flush=True)
    if number == 0:
        outcome = run_of_peer.outcome
        told = [*outcome.versions.items(), *outcome.settings.items()]
        print(f"    {', '.join(f'{name}: {value}' for name, value in told)}", flush=True)


def _write_page(results: Path, options: argparse.Namespace) -> None:
    """Draws the page beside the results; publishes it if that is asked for."""
    drawn = publication.draw(results, options.out)
    print(f"written: {drawn}", flush=True)
    if options.publish:
        try:
            publication.publish(results, options.out, options.docs)
        except publication.IncompleteError as error:
            sys.exit(f"error: {error}")
        print(f"published: {options.docs / drawn.name}", flush=True)


if __name__ == "__main__":
    main()
