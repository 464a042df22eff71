# SPDX-License-Identifier: Apache-2.0
"""Everything works over Spark Connect, where the driver has no JVM."""

import io
from pathlib import Path

import pyspark
import pytest

from tests.meta.test_readme import blocks

# The first test waits for the whole program, and for a server to start.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
EXPECTED = [[number, 2 * number, f"number {number}"] for number in range(20)]


@pytest.fixture(scope="module")
def results(over_connect):
    return over_connect


def test_a_preview_shows_the_answer_of_one_call(results):
    assert results["preview"] == [
        "http.get for id=7",
        "answered 200 OK, 8 bytes:",
        '  {"n": 3}',
        "columns:",
        "  n: int = 3",
        "1 request",
    ]


def test_the_session_is_one_of_connect(results):
    assert results["class"].startswith("pyspark.sql.connect")


@pytest.mark.parametrize(
    "wait",
    ["ordered", "unordered", "key_ordered", "column", "sql", "stream", "limit", "plain"],
)
def test_every_row_comes_out_once(results, wait):
    assert results[wait] == EXPECTED


def test_rows_outlive_their_micro_batch(results):
    carried = results["carried over"]
    assert carried["meanwhile"] == [number for number in range(20) if number != 7]
    assert carried["in the end"] == EXPECTED
    assert carried["calls"] == list(range(20))
    # Of the first micro-batch: the row at the gate, and on a busy machine others in flight.
    assert 1 <= carried["carried"] <= len(EXPECTED)


@pytest.mark.since_spark(4, 0)
def test_a_query_is_drained_when_no_rows_come(results):
    assert results["carried over"]["drained"] is True


@pytest.mark.since_spark(4, 1)
def test_two_calls_of_a_query_are_carried_over(results):
    carried = results["carried over by two"]
    assert carried["meanwhile"] == [number for number in range(20) if number != 7]
    assert carried["in the end"] == EXPECTED
    assert carried["calls"] == list(range(20))


def test_two_calls_of_a_query_are_refused_where_spark_cannot_carry_them(results):
    refused = results["carried over by two"].get("refused", "")
    is_old = pyspark.__version__ < "4.1"
    assert ("needs Spark 4.0, over Spark Connect 4.1" in refused) == is_old


def test_limits_of_the_job_hold_for_all_tasks_where_the_server_is_of_this_process(results):
    found = results["limits of the job"]
    assert (found["rows"], found["requests"], found["spent"]) == (83, 13, 70)
    assert found["at a time"] <= 2


@pytest.mark.parametrize("call", ["values", "sql with values", "plain values"])
def test_a_function_of_values_is_called_with_them(results, call):
    assert sorted(results[call]) == [[number, number + 1] for number in range(20)]


def test_texts_are_read_in_the_zone_of_the_session(results):
    # Midnight in Kolkata.
    assert results["instants"] == [1_704_047_400] * 3


def test_a_native_function_is_a_column(results):
    # The position in a task, of which there are three.
    assert max(ordinal for _, ordinal in results["native"]) == 6
    assert sorted(number for number, _ in results["native"]) == list(range(20))


def test_an_expression_may_be_the_channel(results):
    assert results["channel"] == EXPECTED
    assert results["wrong channel"].startswith("`channel` cannot be computed: [UNRESOLVED_COLUMN")
    assert "\n" not in results["wrong channel"]


def test_expressions_of_a_chain_are_computed_before_it(results):
    assert results["expressions"] == [[*row, row[0]] for row in EXPECTED]
    assert results["wrong expression"].startswith(
        "`channel` cannot be computed before the first call of the chain"
    )


def test_calls_after_one_another_share_a_worker(results):
    assert results["chain"] == [[*row, row[0]] for row in EXPECTED]


def test_functions_are_called_side_by_side(results):
    assert results["side by side"] == [[*row, row[0]] for row in EXPECTED]


def test_failures_can_be_captured(results):
    succeeded, failed = results["capture"]
    assert succeeded == [0, 0, None]
    assert failed[:2] == [1, None]
    assert failed[2]["kind"] == "user-function-failed"


def test_rows_are_written_once_and_those_that_failed_again(results):
    once = results["written once"]
    assert once["failed"] == [3, 10]
    assert once["calls"] == [list(range(13)), [3, 10, *range(13, 20)]]
    assert once["rows"] == EXPECTED


def test_good_and_failed_rows_are_split_in_each_mode(results):
    at_first, refused, appended, overwritten = results["split"]
    assert at_first == overwritten == [["id", "answer"], 10, 10, "user-function-failed"]
    assert "already exists" in refused
    assert appended == [["id", "answer"], 20, 20, "user-function-failed"]


def test_rows_are_sent_and_counted(results):
    assert results["sent"] == [20, 10, 20, None, 10]


def test_what_was_not_sent_is_written_where_spark_counts_what_it_writes(results):
    if pyspark.__version__ < "4":
        assert "`failed` needs Spark 4.0 on Spark Connect" in results["sent and written"]
    else:
        assert results["sent and written"] == [20, 10, 20, None, 0]


def test_columns_may_have_dots(results):
    assert results["dots"] == ["a.b", "seen"]


def test_wrong_options_are_refused_by_the_call(results):
    assert results["wrong capacity"] == "`capacity` must be an int of at least 1, got 0"


def test_a_second_call_that_is_carried_over_is_refused(results):
    assert "`carry_over` of `same` comes behind `double`" in results["carried over twice"]


def test_metrics_are_refused(results):
    assert "Spark Connect has no accumulators" in results["metrics"]


def test_the_log_has_the_metrics_of_a_task_that_failed(results, tmp_path, monkeypatch):
    """Read as the page about metrics says, of the call that failed and of the one before it."""
    assert "LookupError" in results["failed task"]
    [example] = [block for block in blocks("docs/metrics.md", "python") if "sys.stdin" in block]
    monkeypatch.setattr("sys.stdin", io.StringIO(results["log"]))
    names = {}
    exec(compile(example, "docs/metrics.md", "exec"), names)  # noqa: S102 - our own page

    sums = names["sums"]
    failed, before = sums["fail_at_three", "failed"], sums["call_before", "succeeded"]
    assert failed["failed"] == 1
    assert failed["attempts"] >= 4
    assert before["attempts"] == before["emitted"] == 10
    assert sums["double", "succeeded"]["failed"] == 0


def test_metadata_is_kept(results):
    assert results["metadata"] == {"unit": "m"}
    assert results["event time"] == {"spark.watermarkDelayMs": 5000}
