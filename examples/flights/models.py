# SPDX-License-Identifier: Apache-2.0
"""``sparkawait demo --llm``: jokes that a package brings are classified, and paid for once.

A server in this process stands for the model, with limits of requests and tokens. The job runs in a
child, which is killed in the middle and started again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sparkawait._flights.settings import DemoError
from sparkawait.exceptions import how_to_install

RPM, TPM = 3_000, 150_000
PRICE = {"input": 0.4, "output": 1.6}
TOPICS = ("languages", "people", "machines")
_LONGEST = 300.0


@dataclass(frozen=True)
class ModelSettings:
    """The options of ``sparkawait demo --llm``."""

    rows: int = 400


def run(settings: ModelSettings) -> bool:
    """Runs the demo and prints what was measured; returns whether nothing was paid for twice.

    Raises:
        DemoError: If a package is missing, or the job fails.
    """
    missing = [it for it in ("pyspark", "pandas", "pyjokes") if find_spec(it) is None]
    if missing:
        raise DemoError(f"`demo --llm` needs {', '.join(missing)}; {how_to_install('demo')}")
    from sparkawait.testing import ModelServer

    shares = {"429": 0.02, "529": 0.01, "refusal": 0.01}
    with (
        tempfile.TemporaryDirectory() as folder,
        ModelServer(_answer, rpm=RPM, tpm=TPM, latency="400ms", faults=shares) as server,
    ):
        job = [sys.executable, "-m", __name__, server.base_url, folder, str(settings.rows)]
        began = time.monotonic()
        _tell(f"{settings.rows} jokes, a model with {RPM} requests and {TPM} tokens in a minute")
        with _started(job) as child:
            while server.stats()["answered"] < settings.rows // 2 and child.poll() is None:
                time.sleep(0.1)
            os.killpg(child.pid, signal.SIGKILL)
        killed = server.stats()["answered"]
        _tell(f"killed after {killed} answers; started again")
        with _started(job) as child:
            if child.wait(_LONGEST) != 0:
                raise DemoError("the job has failed; what Spark says is above")
        return _report(server.stats(), settings.rows, killed, time.monotonic() - began)


def _report(stats: dict[str, int], rows: int, killed: int, seconds: float) -> bool:
    tokens = stats["input_tokens"], stats["output_tokens"]
    cost = (tokens[0] * PRICE["input"] + tokens[1] * PRICE["output"]) / 1e6
    refused = stats["refused_requests"] + stats["refused_tokens"]
    twice = stats["answered"] - rows
    _tell(f"{seconds:.0f} s, {stats['answered']} answers: {tokens[0]} tokens in, {tokens[1]} out")
    _tell(f"cost {cost:.4f}; {max(twice, 0)} answers were paid for twice: the kill broke them off")
    _tell(f"{refused} of {stats['requests']} requests were beyond the limits")
    return 0 <= twice <= killed


def _tell(line: str) -> None:
    print(f"sparkawait demo: {line}", flush=True)


def _started(job: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(job, start_new_session=True)  # noqa: S603 - this very program


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    said = request["messages"][-1]["content"].lower()
    topic = "languages" if any(it in said for it in ("python", "java", "c++", "code")) else "people"
    return {"topic": "machines" if "computer" in said else topic, "stars": 1 + len(said) % 5}


def _job(base_url: str, folder: str, rows: int) -> None:
    """The job: what a user would write."""
    import pyjokes
    from pyspark.sql import SparkSession

    import sparkawait as sa

    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    jokes = pyjokes.get_jokes(language="en", category="all")
    # Each with its number, as real texts are seldom equal.
    texts = [(n, f"{jokes[n % len(jokes)]} ({n})") for n in range(rows)]
    frame = spark.createDataFrame(texts, "id long, joke string")
    ask = sa.llm.chat(
        "What is this joke about? {joke}",
        "topic string not null, stars int",
        model="some-model",
        base_url=base_url,
        client=sa.http.Client(proxy=False),
        rpm=RPM,
        tpm=TPM,
        price=PRICE,
        also=["usage"],
    )
    path = str(Path(folder) / "topics")
    sa.write_once(frame, ask, path, key="id", chunk=100, on_error="capture", max_concurrency=50)
    found = spark.read.parquet(path)
    found.groupBy("topic", "error.kind").agg({"id": "count", "cost": "sum"}).show()
    spark.stop()


if __name__ == "__main__":
    _job(sys.argv[1], sys.argv[2], int(sys.argv[3]))
