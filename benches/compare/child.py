# SPDX-License-Identifier: Apache-2.0
"""The process of a peer: ``python -m benches.compare.child PEER JOB`` prints one JSON report.

Whatever else the peer prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict

from benches.compare.peer import Job, find
from benches.compare.tree import below, megabytes


def main() -> None:
    """Does the job of the command line."""
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, job = sys.argv[1:]
    outcome = find(name).run(Job.from_json(json.loads(job)))
    # The last sample from outside may be older than the last row.
    moment, cpu_seconds = time.monotonic_ns(), below(os.getpid())
    memory = sum(map(megabytes, cpu_seconds))
    seen = {"ns": moment, "cpu_seconds": cpu_seconds, "megabytes": memory}
    json.dump({"outcome": asdict(outcome), "seen": seen}, report)
    report.close()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads and clean-up of a peer that has reported must not keep the next one waiting.
    os._exit(0)


if __name__ == "__main__":
    main()
