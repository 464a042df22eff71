# SPDX-License-Identifier: Apache-2.0
"""What the peers of benches/compare are asked to do, and who takes part."""

import math
from statistics import mean

import pytest

from benches.compare.environment import lock_of
from benches.compare.peer import Job, all_peers
from benches.compare.plan import ROUNDS, SECONDS, in_turn, plan, table, turns
from benches.compare.workloads import TABLE_SIZE, WORKLOADS, Delays, by_name


def test_a_call_takes_as_long_in_every_process():
    delays = Delays("uniform", 1, 20)
    assert delays.table() == Delays("uniform", 1, 20).table()
    assert delays.table()[:3] == pytest.approx((0.013567, 0.001354, 0.01369), abs=1e-9)


def test_a_table_has_the_mean_of_its_distribution():
    assert Delays("uniform", 1, 20).mean() == pytest.approx(0.0105, rel=1e-6)
    assert Delays("constant", 10).mean() == pytest.approx(0.01)
    expected = 0.005 * math.exp(0.5**2 / 2)
    assert Delays("log_normal", 5, 0.5).mean() == pytest.approx(expected, rel=0.01)


def test_a_share_of_the_calls_straggles():
    delays = Delays("constant", 10, stragglers=0.01, factor=100)
    slow = [seconds for seconds in delays.table() if seconds > 0.5]
    assert len(slow) == round(0.01 * TABLE_SIZE)
    assert mean(slow) == pytest.approx(1.0)


def test_the_bound_is_calls_by_mean_duration():
    assert by_name("uniform-1000").bound() == pytest.approx(1_000 / 0.0105, rel=1e-5)
    assert by_name("http").bound() == pytest.approx(100 / 0.005)
    assert by_name("no-op-ordered").bound() is None


def test_a_rate_limit_below_the_bound_takes_its_place():
    assert by_name("http-429").bound() == 2_000


def test_calls_that_are_never_answered_take_their_timeout():
    assert by_name("http-stall").mean_seconds() == pytest.approx(0.999 * 0.005 + 0.001 * 1.0)
    assert by_name("http-stalled-host").mean_seconds() == pytest.approx(0.9 * 0.005 + 0.1 * 1.0)


def test_a_peer_that_the_bound_does_not_hold_for_says_its_own_rate():
    workload = by_name("http-stalled-host")
    ours, flink = all_peers()["sparkawait_native"], all_peers()["flink_java"]
    assert flink.rows(workload, 1.0) == round(workload.bound() * workload.stretch)
    assert ours.rows(workload, 1.0) == ours.rates[workload.name] * workload.stretch


def test_an_unknown_workload_is_named():
    with pytest.raises(ValueError, match="no such workload: `no-po`; there are no-op-unordered, "):
        by_name("no-po")


def test_workloads_have_names_of_their_own():
    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)


def test_a_job_survives_the_way_to_another_process():
    job = Job(by_name("http"), 1_000, 100, "http://127.0.0.1:1")
    assert Job.from_json(job.to_json()) == job


# The files of peers are imported here without what their environments have.
@pytest.mark.parametrize("name", all_peers())
def test_a_peer_is_named_after_its_file_and_has_locked_packages(name):
    peer = all_peers()[name]
    assert peer.name == name
    lines = lock_of(peer.environment).read_text().splitlines()
    packages = [line for line in lines if "==" in line]
    assert packages
    assert all(line.endswith("\\") for line in packages), "a package without a hash"


def test_peers_that_are_ours_come_first():
    ours = [peer.is_ours for peer in all_peers().values()]
    assert ours == sorted(ours, reverse=True)
    assert any(ours)


def test_every_workload_has_a_peer_that_is_ours_and_one_that_is_not():
    takers = {w.name: [p for p in all_peers().values() if p.takes(w)] for w in WORKLOADS}
    assert {name for name, peers in takers.items() if not any(p.is_ours for p in peers)} == set()
    assert {name for name, peers in takers.items() if all(p.is_ours for p in peers)} == set()


def test_rows_follow_the_bound_and_what_a_peer_reaches():
    flink = all_peers()["flink_java"]
    pathway = all_peers()["pathway"]
    assert flink.rows(by_name("uniform-1000"), 2) == round(2 * by_name("uniform-1000").bound())
    assert flink.rows(by_name("no-op-ordered"), 2) == 2 * flink.rows_per_second
    assert pathway.rows(by_name("uniform-1000"), 2) == 2 * pathway.rows_per_second
    slow = by_name("stragglers-ordered")
    assert pathway.rows(slow, 2) == 2 * slow.stretch * slow.reach
    assert flink.rows(slow, 2) == 2 * slow.stretch * flink.rates[slow.name]
    assert flink.rows(by_name("half-load"), 2) == round(by_name("uniform-1000").bound())


# --- the plan


def test_the_page_is_measured_within_90_minutes():
    entries = plan(list(all_peers().values()), published(), ROUNDS, SECONDS)
    assert sum(entry.minutes() for entry in entries) <= 90
    assert len(entries) == len(published())


def published():
    return [workload for workload in WORKLOADS if workload.is_published]


def test_ours_and_flink_have_all_rounds_and_the_others_some_over_the_same_time():
    peers = all_peers()
    assert turns(peers["sparkawait_native"], 7) == turns(peers["flink_java"], 7) == list(range(7))
    assert turns(peers["daft"], 7) == [0, 3, 6]
    assert turns(peers["daft"], 1) == turns(peers["flink_java"], 1) == [0]


def test_neither_of_a_pair_is_always_the_first():
    pair = [all_peers()[name] for name in ("sparkawait_arrow", "flink_java", "daft")]
    order = [(number, peer.name) for number, peer in in_turn(pair, 3)]
    assert order == [
        (0, "sparkawait_arrow"),
        (0, "flink_java"),
        (0, "daft"),
        (1, "flink_java"),
        (1, "sparkawait_arrow"),
        (2, "sparkawait_arrow"),
        (2, "flink_java"),
    ]


def test_a_workload_may_be_of_some_peers_alone():
    entries = plan(list(all_peers().values()), [by_name("half-load")], 7, 2.5)
    assert {peer.name for peer in entries[0].peers} == {"sparkawait_arrow_python", "flink_java"}
    assert plan([all_peers()["daft"]], [by_name("half-load")], 7, 2.5) == []


def test_the_plan_tells_processes_and_minutes():
    peers = [all_peers()[name] for name in ("sparkawait_arrow_python", "flink_java")]
    entries = plan(peers, [by_name("half-load")], 7, 2.5)
    # Starting takes 1.5 s and 5.5 s; then 2.5 s, and a fifth of it to warm up.
    minutes = (7 * (1.5 + 3) + 7 * (5.5 + 3)) / 60
    assert entries[0].minutes() == pytest.approx(minutes, rel=1e-4)
    first, last = table(entries).splitlines()[1:]
    assert first.split()[:3] == ["half-load", "14", "1.5"]
    assert first.endswith("sparkawait_arrow_python 7, flink_java 7")
    assert last.split() == ["all", "1.5"]
