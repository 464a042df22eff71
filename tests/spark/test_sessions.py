# SPDX-License-Identifier: Apache-2.0
"""Times are those of the session that runs the query, in whatever thread it does."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.spark import sessions_seen
from tests.spark.sessions_seen import FIRST, LATER, ROWS, SECOND, TEXT

# The first test waits for the whole program, and for a server to start.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PLACES = {
    "main": FIRST,
    "thread": FIRST,
    "pool": FIRST,
    "heir": FIRST,
    "first again": FIRST,
    "second": SECOND,
    "second in a thread": SECOND,
    "sql": LATER,
    "sql in a thread": LATER,
}
"""Where a query is run, and the zone of its session."""


@pytest.fixture(scope="module", params=["classic", "connect"])
def results(request):
    """What came out of the program, which is run once for all tests."""
    if request.param == "connect":
        return request.getfixturevalue("over_connect")["sessions"]
    return sessions_seen.results(request.getfixturevalue("spark"))


@pytest.mark.parametrize("place", PLACES)
def test_each_kind_of_function_reads_a_time_as_spark_does(results, place):
    if place == "heir" and place not in results:
        pytest.skip("Spark Connect has no threads that inherit before Spark 4.0")
    noon = datetime.fromisoformat(TEXT).replace(tzinfo=ZoneInfo(PLACES[place]))
    expected = [[TEXT, int(noon.timestamp()), TEXT]] * ROWS
    assert results[place] == dict.fromkeys(results[place], expected)
    assert len(results[place]) >= 2


def test_the_word_timestamp_means_the_same_in_each_thread(results):
    assert results["word"] == ["struct<at:timestamp_ntz,wall:timestamp_ntz>"] * 3


def test_a_limit_of_the_job_is_known_in_each_thread(results):
    assert results["limited"] == list(range(ROWS))
