# SPDX-License-Identifier: Apache-2.0
"""How long steps of a query wait for their calls, by how long the query was idle between them."""

import pytest

from sparkawait._worker.step import LEAST, Pace


def lingering(trigger, work, call, *, spark=0.7, batches=13, skipped=1):
    """For how long each step may wait, with a call in each that takes so many seconds."""
    pace, allowed, now, number = Pace(), [], 0.0, 0
    for _ in range(batches):
        allowed.append(pace.begin("run", number, now))
        ended = now + work + min(call, allowed[-1])
        pace.end("run", number, ended)
        # A micro-batch whose trigger has passed begins as soon as the one before has ended.
        late = ended + spark
        now = max(now + trigger, late) + (skipped - 1) * trigger
        number += skipped
    return allowed


@pytest.mark.parametrize("skipped", [1, 7])
@pytest.mark.parametrize("call", [1.0, 3.0, 60.0])
@pytest.mark.parametrize("trigger", [8.0, 13.0])
def test_a_query_that_is_idle_waits_for_about_half_of_its_trigger(trigger, call, skipped):
    first, *others = lingering(trigger, 0.1, call, skipped=skipped)
    assert first == LEAST
    half = trigger / 2
    assert all(half - 1 <= it <= half for it in others[2:])


@pytest.mark.parametrize("trigger", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("work", [0.1, 17.0])
def test_a_query_that_is_never_idle_waits_no_longer_than_it_has_to(trigger, work):
    assert set(lingering(trigger, work, 60.0)) == {LEAST}


def test_a_query_that_is_busy_now_and_then_does_not_go_on_waiting():
    pace = Pace()
    pace.begin("run", 0, 0.0)
    pace.end("run", 0, 0.1)
    assert pace.begin("run", 1, 8.0) > 3
    # It had much to do, and the next one is due.
    pace.end("run", 1, 31.0)
    second = pace.begin("run", 2, 31.7)
    pace.end("run", 2, 62.0)
    assert second > pace.begin("run", 3, 62.7)


def test_shards_of_a_batch_wait_alike_and_the_last_one_counts():
    pace = Pace()
    pace.begin("run", 0, 0.0)
    pace.end("run", 0, 0.1)
    allowed = pace.begin("run", 1, 8.0)
    assert pace.begin("run", 1, 8.3) == allowed
    pace.end("run", 1, 9.0)
    pace.end("run", 1, 11.0)
    assert pace.begin("run", 2, 16.0) == pytest.approx((16.0 - 11.0 + 3.0 - 1.0) / 2, abs=0.3)


def test_another_run_knows_nothing_of_the_one_before():
    pace = Pace()
    for run in ("a", "b"):
        assert pace.begin(run, 7, 0.0) == LEAST
        assert pace.begin(run, 8, 8.0) > LEAST
    assert pace.begin("c", 9, 16.0) == LEAST


def test_a_wait_is_never_longer_than_half_a_minute():
    pace = Pace()
    pace.begin("run", 0, 0.0)
    assert pace.begin("run", 1, 3600.0) == 30.0
