# SPDX-License-Identifier: Apache-2.0
"""`docs/metrics.md` has every metric, and no other."""

import re

import pyarrow as pa

import sparkawait as sa
import sparkawait.arrow
from sparkawait._plan.resolve import resolve
from sparkawait._worker import metrics as task_metrics
from sparkawait._worker.blocking_calls import HELD
from sparkawait.spark.step import PROGRESS
from tests.meta.repository import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
WRITTEN = re.compile(r"\bset_item\(\s*\"(\w+)\"")
NAMED_BY_USERS = "function.NAME"


def described(heading: str = "") -> list[str]:
    """Returns the names in the tables of the page, or in those below a heading."""
    text = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0] if heading else PAGE
    return re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE)


def test_every_metric_is_described_once_and_none_is_invented():
    sources = (ROOT / "rust" / "python" / "src").glob("**/*.rs")
    written = {name for path in sources for name in WRITTEN.findall(path.read_text("utf-8"))}
    added = {"tasks", "failed_tasks", "percentiles", task_metrics._OPERATORS, NAMED_BY_USERS}
    added |= {f"function.{HELD}"}
    assert sorted(described()) == sorted(written | added)


def test_the_alarms_of_a_stream_are_those_that_its_progress_tells():
    page = (ROOT / "docs" / "guides" / "operate-a-stream.md").read_text(encoding="utf-8")
    alarms = page.partition("## Alarms\n")[2]
    [example] = re.findall(r"^# Row\((.*)\)$", alarms, re.MULTILINE)
    assert re.findall(r"(\w+)=", example) == list(PROGRESS)
    assert re.findall(r"^\| `(\w+)` \|", alarms, re.MULTILINE) == list(PROGRESS)


def test_what_a_task_reports_is_what_is_described():
    class Counting(sa.AsyncFunction):
        schema = "y bigint"

        def open(self, context):
            self.context = context

        async def async_invoke(self, row):
            self.context.add_metric("calls")
            return {"y": row["x"]}

    reports = []
    plan = resolve(
        "unordered",
        Counting(),
        input_schema=pa.schema({"x": pa.int64()}),
        cache=sa.Cache(max_rows=10, key="x"),
        channel="x",
        rate_limit=sa.RateLimit("1000/s"),
    )
    rows = pa.record_batch({"x": [1, 2, 3]})
    list(sparkawait.arrow.run(plan, iter([rows]), on_metrics=reports.append))
    channel = next(iter(reports[-1]["channels"].values()))
    limit = reports[-1]["rate_limits"]["1000/s"]
    names = {*reports[-1], *channel, *limit} - {"function.calls"}
    # Sums have the first ones; the last are of calls without channels, of plain functions and
    # of rows that have failed.
    of_sums = {
        "tasks",
        "failed_tasks",
        "percentiles",
        "operators",
        NAMED_BY_USERS,
        "in_flight_limit",
    }
    of_sums |= {f"function.{HELD}", "failures"}
    assert names == set(described()) - of_sums
    assert reports[-1]["function.calls"] == 3


def test_levels_are_those_that_are_not_added_up():
    assert sorted(described("Levels")) == sorted(task_metrics.GAUGES)
    of_channels = {"calls", "latency", "starved"}
    assert of_channels == set(task_metrics._COUNTS_OF_CHANNELS)
    levels = re.findall(r"^\| `(\w+)` \|.*a level, not in sums", PAGE, re.MULTILINE)
    named_once = {"channels", "other_channels"}
    assert set(described("Channels")) == {*of_channels, *levels, *named_once}
