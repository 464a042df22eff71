# SPDX-License-Identifier: Apache-2.0
"""The garbage collector runs less often while calls are in flight, and as before after them."""

import gc

import pytest

from sparkawait._worker.address_space import (
    MOST,
    OBJECTS_PER_CALL,
    THRESHOLD,
    collecting_less_often,
)


@pytest.fixture(autouse=True)
def thresholds():
    before = gc.get_threshold()
    gc.set_threshold(700, 11, 12)
    yield
    gc.set_threshold(*before)


def test_the_threshold_is_raised_inside_and_restored_outside():
    with collecting_less_often(100):
        assert gc.get_threshold() == (THRESHOLD, 11, 12)
    assert gc.get_threshold() == (700, 11, 12)


def test_the_threshold_grows_with_the_calls_of_all_users():
    with collecting_less_often(10_000):
        assert gc.get_threshold()[0] == 10_000 * OBJECTS_PER_CALL
        with collecting_less_often(5_000):
            assert gc.get_threshold()[0] == 15_000 * OBJECTS_PER_CALL
    assert gc.get_threshold() == (700, 11, 12)


def test_the_threshold_has_a_bound():
    with collecting_less_often(10_000_000):
        assert gc.get_threshold()[0] == MOST


def test_the_last_user_restores_the_threshold():
    first, second = collecting_less_often(100), collecting_less_often(100)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] == THRESHOLD
    second.__exit__(None, None, None)
    assert gc.get_threshold()[0] == 700


@pytest.mark.parametrize("youngest", [0, THRESHOLD + 1])
def test_a_collector_that_runs_less_often_already_is_left_alone(youngest):
    gc.set_threshold(youngest, 11, 12)
    with collecting_less_often(100):
        assert gc.get_threshold() == (youngest, 11, 12)
    assert gc.get_threshold() == (youngest, 11, 12)


@pytest.mark.parametrize("calls", [100, 10_000])
def test_a_threshold_that_somebody_else_sets_meanwhile_stays(calls):
    with collecting_less_often(calls):
        gc.set_threshold(5000, 11, 12)
        with collecting_less_often(calls):
            assert gc.get_threshold() == (5000, 11, 12)
    assert gc.get_threshold() == (5000, 11, 12)
