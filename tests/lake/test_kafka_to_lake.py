# SPDX-License-Identifier: Apache-2.0
"""The page about Kafka, Delta and Iceberg does what it says, with a real broker and real tables.

`make test-lake` runs it on the newest line of Spark that has all three connectors.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkawait.testing import LookupServer
from tests.meta.repository import ROOT
from tests.support.kafka_server import KafkaServer

PAGE = ROOT / "docs" / "guides" / "kafka-to-lake.md"
BLOCK = re.compile(r"^```python (?P<kind>lake|stream)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
JARS = ROOT / "target" / "lake"
CUSTOMERS = {str(n): {"name": f"customer {n}", "tier": "gold"} for n in range(29)}

PROGRAM = Path(__file__).with_name("lake_program.py")

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]


def blocks(kind: str) -> str:
    """Returns the page's code of one kind."""
    text = PAGE.read_text(encoding="utf-8")
    return "\n".join(match["code"] for match in BLOCK.finditer(text) if match["kind"] == kind)


def run(how: str, folder: Path, broker: str, service: str) -> Any:
    """Runs a part of the page; returns what its tables have."""
    session, _, queries = blocks("lake").partition("to_delta = (")
    to_delta, _, to_iceberg = blocks("stream").partition("spark.sql(")
    flowing = to_delta.partition("to_delta = (")[0]
    parts = {
        "session.py": session,
        "tables.py": f"to_delta = ({queries}",
        "delta.py": to_delta,
        "iceberg.py": f"{flowing}spark.sql({to_iceberg}",
    }
    for name, code in parts.items():
        here = code.replace("broker.example.com:9092", broker)
        (folder / name).write_text(here.replace("https://api.example.com", service))
    conf = {
        "spark.jars.ivy": str(JARS / "ivy"),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    options = [f"--conf {key}={value}" for key, value in conf.items()]
    submit = {"PYSPARK_SUBMIT_ARGS": f"--master local[2] {' '.join(options)} pyspark-shell"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), how, broker],
        cwd=folder,
        env=os.environ | submit,
        capture_output=True,
        text=True,
        check=False,
    )
    # What the JVM says at its end is long, and comes behind the reason.
    said = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(said)[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_each_record_of_a_topic_is_in_both_tables_once(tmp_path: Path):
    with (
        KafkaServer(JARS / "kafka") as broker,
        LookupServer({"customers": CUSTOMERS}, latency="1ms") as server,
    ):
        seen = run("twice", tmp_path, broker.address, server.url)
        calls = server.stats()["requests"]
    assert calls == 2 * 401, "each sink calls once for each record"
    for tables, count in zip(seen, (211, 401), strict=True):
        for rows in tables:
            assert [row["order_id"] for row in rows] == list(range(count))
            assert [row["order_id"] for row in rows if not has_its_customer(row)] == []


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_a_stream_that_goes_on_writes_each_record_once_though_its_table_fails(
    tmp_path: Path, sink: str
):
    with (
        KafkaServer(JARS / "kafka") as broker,
        LookupServer({"customers": CUSTOMERS}, latency="2300ms") as server,
    ):
        seen = run(sink, tmp_path, broker.address, server.url)
        calls = server.stats()["requests"]
    assert seen["carried"] > 0, "calls take longer than a micro-batch waits for them"
    assert seen["failure"], "the table refused a micro-batch"
    assert [row["order_id"] for row in seen["rows"]] == list(range(320))
    assert [row["order_id"] for row in seen["rows"] if not has_its_customer(row)] == []
    assert seen["is_empty"]
    assert 320 <= calls <= 320 + 114, "only what came while the table failed is called again"


def has_its_customer(row: dict[str, Any]) -> bool:
    """Two customers of 31 are not known, which is a miss and no failure."""
    found = CUSTOMERS.get(str(row["customer_id"]), {"name": None, "tier": None})
    return row["error"] is None and {"name": row["name"], "tier": row["tier"]} == found
