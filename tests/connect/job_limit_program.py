# SPDX-License-Identifier: Apache-2.0
"""A worker of a job that takes part in a limit; prints when its calls begin, and what came out.

``python -m tests.connect.job_limit_program``: reads JSON with ``server``, ``limit`` (its class and
keywords), ``rows``, ``seconds`` of a call, and ``cost``, what a call costs.
"""

import asyncio
import json
import sys
import time

import pyarrow as pa

import sparkawait as sa


class Call(sa.AsyncFunction):
    """Says when it begins and ends."""

    schema = "cost double"

    def __init__(self, seconds, cost):
        self.seconds, self.cost = seconds, cost

    async def async_invoke(self, row):
        tell("+", row["id"])
        await asyncio.sleep(self.seconds)
        tell("-", row["id"])
        return {"cost": self.cost}


def tell(what, number):
    sys.stdout.write(f"{what} {number} {time.monotonic()}\n")
    sys.stdout.flush()


def main() -> None:
    settings = json.load(sys.stdin)
    kind, keywords = settings["limit"]
    limit = getattr(sa, kind)(server=settings["server"], **keywords)
    option = "max_concurrency" if kind == "PerJob" else "rate_limit"
    out = sa.arrow.unordered_wait(
        [pa.record_batch({"id": range(settings["rows"])})],
        Call(settings["seconds"], settings.get("cost", 1.0)),
        on_error="capture",
        timeout=None,
        **{option: limit},
    )
    for batch in out:
        for row in batch.to_pylist():
            error = row["error"]
            sys.stdout.write(f"= {row['id']} {None if error is None else error['kind']}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
