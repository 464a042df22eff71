# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of a workload, as a process of its own: ``python -m .. WORKLOAD``.

Prints its address, and behind it that of a second one that never answers, if there are several
destinations. Serves until standard input ends, then prints its counters.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benches.compare.calls import TABLE, value_of
from benches.compare.environment import ROOT
from benches.compare.workloads import KEYS, Workload, by_name

__all__ = ["serving"]


@contextmanager
def serving(workload: Workload) -> Iterator[tuple[str, dict[str, int]]]:
    """Gives the address as of `Job`, and a dictionary that has the server's counters afterwards."""
    if workload.service is None:
        yield "", {}
        return
    path = os.pathsep.join([str(ROOT), str(ROOT / "python")])
    process = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "benches.compare.server", workload.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )
    counters: dict[str, int] = {}
    with process:
        try:
            url = process.stdout.readline().strip() if process.stdout else ""
            yield url, counters
            output, _ = process.communicate("", timeout=10)
            counters.update(json.loads(output))
        finally:
            process.kill()


def main() -> None:
    """Serves the workload of the command line."""
    from sparkawait.testing import LookupServer

    service = by_name(sys.argv[1]).service
    if service is None:
        sys.exit(f"`{sys.argv[1]}` calls no server")
    table = {str(key): {"value": value_of(key)} for key in range(KEYS)}
    with ExitStack() as servers:
        server = LookupServer(
            {TABLE: table},
            latency=service.milliseconds / 1e3,
            rate_limit=service.rate_limit,
            stall_rate=service.stall_rate,
        )
        running = [servers.enter_context(server)]
        if service.destinations > 1:
            running.append(servers.enter_context(LookupServer({TABLE: table}, stall_rate=1.0)))
        print(*(it.url for it in running), flush=True)
        sys.stdin.read()
        # Those of the one that answers, but for the calls that none has answered.
        stalled = sum(it.stats()["stalled"] for it in running)
        print(json.dumps(server.stats() | {"stalled": stalled}), flush=True)


if __name__ == "__main__":
    main()
