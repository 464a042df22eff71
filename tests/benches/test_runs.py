# SPDX-License-Identifier: Apache-2.0
"""How runs of benches/compare are watched, checked and put together."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from benches.compare import page
from benches.compare.calls import TABLE, address_of, blocking_call, coroutine_call, value_of
from benches.compare.charts import adapt, colours
from benches.compare.goals import goals
from benches.compare.observe import TIMED_ROWS, Observer, percentiles
from benches.compare.peer import Job, Outcome, all_peers
from benches.compare.process import Measured, complaints
from benches.compare.results import SCHEMA, Results, Rounds, digest, load, set_aside
from benches.compare.samples import ratios, spread, unrest
from benches.compare.tree import TreeSampler, below, cpu_between
from benches.compare.workloads import KEYS, Workload, by_name
from tests.meta.repository import ROOT

MACHINE = {"cpu": "a fast one"}
NOW = datetime(2026, 11, 21, 9, tzinfo=timezone.utc)


def outcome(count: int, **changes) -> Outcome:
    ids = count * (count - 1) // 2
    proven = Outcome(1, 1_000_000_001, count, id_sum=ids, result_sum=3 * ids + count)
    return replace(proven, **changes)


def measured(rows: int, seconds: float) -> Measured:
    latency = {"p50": 1.0, "p99": 2.0, "p99.9": 3.0}
    done = outcome(rows, latency_ms=latency, settings={"capacity": "7"}, versions={"it": "1.2"})
    return Measured(done, 0.5, seconds, 2.0, 100.0, {})


def results(**rounds: Rounds) -> Results:
    found = Results()
    method = {"rounds": 7, "rounds_of_others": 3}
    found.describe(command="it", commit="c0ffee", now=NOW, machine=MACHINE, method=method)
    for name in rounds:
        found.add_peer(all_peers()[name], None)
    found.add(by_name("uniform-1000"), rounds, "2026-11-21")
    return found


# --- samples


def test_a_spread_is_median_and_extremes():
    assert spread([3.0, 1.0, 2.0]).to_json() == {"median": 2.0, "min": 1.0, "max": 3.0}


def test_ratios_are_taken_round_by_round_where_both_have_one():
    assert ratios({0: 10.0, 1: 30.0, 2: 5.0}, {1: 10.0, 2: 10.0, 3: 1.0}) == [3.0, 0.5]


def test_unrest_is_how_far_samples_are_apart_without_one_hiccup_on_either_side():
    assert unrest([100.0, 117.0]) == pytest.approx(17 / 108.5)
    assert unrest([100.0, 110.0, 90.0, 1.0, 900.0]) == pytest.approx(0.2)
    assert unrest([7.0]) == 0.0


def test_percentiles_are_of_milliseconds_and_never_below_the_share():
    nanoseconds = np.arange(1, 1_001) * 1_000_000
    assert percentiles(nanoseconds) == {"p50": 501.0, "p99": 991.0, "p99.9": 1_000.0}
    assert percentiles(np.array([])) is None


# --- the proof of an output


def test_a_whole_output_is_proven():
    assert complaints(Job(by_name("no-op-ordered"), 10, 0), outcome(10)) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"rows": 9}, "9 rows came out of 10"),
        ({"id_sum": 44}, "their ids sum up to 44"),
        ({"result_sum": 1}, "their results sum up to 1 instead of 145"),
        ({"misplaced": 2}, "2 rows are not in their place"),
        ({"missing": 1}, "1 rows have no result"),
        ({"last_ns": 1}, "it ended before it began"),
    ],
)
def test_what_is_wrong_with_an_output_is_said(changes, complaint):
    found = complaints(Job(by_name("no-op-ordered"), 10, 0), outcome(10, **changes))
    assert found == [complaint]


def test_results_over_http_are_those_of_the_table():
    rows = KEYS + 2
    total = sum(value_of(row % KEYS) for row in range(rows))
    job = Job(by_name("http"), rows, 0)
    assert complaints(job, outcome(rows, result_sum=total)) == []


def test_a_destination_that_stalls_may_leave_rows_without_a_result():
    assert complaints(Job(by_name("http-stall"), 10, 0), outcome(10, missing=1, result_sum=0)) == []


def test_rows_of_a_destination_that_never_answers_have_no_result_and_no_others():
    job = Job(by_name("http-stalled-host"), 20, 0)
    total = sum(value_of(row) for row in range(20) if row % 10)
    assert complaints(job, outcome(20, missing=2, result_sum=total)) == []
    found = complaints(job, outcome(20, missing=3, result_sum=total - value_of(1)))
    assert found == [
        f"their results sum up to {total - value_of(1)} instead of {total}",
        "3 rows have no result instead of 2",
    ]


def test_a_row_is_looked_up_where_its_destination_is():
    address = address_of(by_name("http-stalled-host").service, "http://a:1 http://b:2")
    assert address(10) == f"http://b:2/{TABLE}/10"
    assert address(11) == f"http://a:1/{TABLE}/11"
    only = address_of(by_name("http").service, "http://a:1")
    assert only(10) == f"http://a:1/{TABLE}/10"


def observe(workload: str | Workload, *groups: list[int]) -> Outcome:
    asked = by_name(workload) if isinstance(workload, str) else workload
    observer = Observer(Job(asked, sum(map(len, groups)), 0))
    observer.start()
    for ids in groups:
        observer.emitted(np.array(ids), 3 * np.array(ids) + 1)
    return observer.outcome({}, {})


def test_an_ordered_output_has_every_row_in_its_place():
    assert observe("no-op-ordered", [0, 1], [2, 3]).misplaced == 0
    assert observe("no-op-ordered", [0, 2], [1, 3]).misplaced == 2


def test_an_unordered_output_may_have_any_order():
    assert observe("no-op-unordered", [3, 1], [2, 0]).misplaced == 0


def test_no_row_crosses_a_watermark():
    rows = list(range(200))
    workload = replace(by_name("watermark-1"), watermark_every=100)
    assert observe(workload, rows[:100][::-1], rows[100:][::-1]).misplaced == 0
    assert observe(workload, rows[:99], [100], [99], rows[101:]).misplaced == 2


def test_latencies_run_from_the_start_of_a_call():
    observer = Observer(Job(by_name("uniform-1000"), 2, 0))
    observer.emitted(np.array([0, 1]), np.array([1, 4]), np.array([1, 2]))
    seen = observer.outcome({}, {})
    assert seen.first_ns == 1
    assert seen.latency_ms["p50"] == pytest.approx((seen.last_ns - 1) / 1e6, rel=1e-6)
    assert seen.added_ms["p50"] < seen.latency_ms["p50"]


def test_rows_that_are_handed_over_in_groups_tell_when_they_were_emitted():
    observer = Observer(Job(by_name("no-op-unordered"), 2, 0))
    observer.emitted(
        np.array([0, 1]), np.array([1, 4]), np.array([0, 0]), 0, [1_000_000, 3_000_000]
    )
    assert observer.outcome({}, {}).latency_ms == {"p50": 3.0, "p99": 3.0, "p99.9": 3.0}


def test_of_a_long_output_every_so_many_rows_tell_their_latency():
    observer = Observer(Job(by_name("no-op-unordered"), 3 * TIMED_ROWS, 0))
    # Each third row, over groups of any length, took a millisecond.
    for ids in np.split(np.arange(30), [7, 8, 20]):
        moments = np.where(ids % 3 == 0, 1_000_000, 9_000_000)
        observer.emitted(ids, 3 * ids + 1, np.zeros_like(ids), 0, moments)
    assert observer.outcome({}, {}).latency_ms == {"p50": 1.0, "p99": 1.0, "p99.9": 1.0}


def test_a_function_with_delays_of_its_own_tells_no_added_latency():
    observer = Observer(Job(by_name("uniform-1000"), 1, 0))
    observer.start()
    observer.emitted(np.array([0]), np.array([1]), np.array([1]), delays=False)
    seen = observer.outcome({}, {})
    assert seen.added_ms is None
    assert seen.latency_ms["p50"] > 0
    assert seen.first_ns > 1


async def no_op(row: int):
    return await coroutine_call("no-op-ordered", "")(row)


def test_both_forms_of_a_call_give_the_same():
    coroutine = no_op(5)
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    assert stopped.value.value[0] == blocking_call("no-op-ordered", "")(5)[0] == 16


# --- processes


def test_cpu_time_between_two_moments_is_interpolated():
    samples = [(0, 0.0, 1.0), (100, 1.0, 1.0), (200, 3.0, 1.0)]
    assert cpu_between(samples, 50, 150) == pytest.approx(1.5)
    assert cpu_between(samples, 150, 1_000) == pytest.approx(1.0)
    assert cpu_between([], 0, 1) == 0.0


def test_processes_below_one_are_found_until_they_end():
    program = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        assert process.pid in below(os.getpid())
        process.communicate(b"")
    assert process.pid not in below(os.getpid())


def test_a_last_sample_of_cpu_time_replaces_later_ones():
    sampler = TreeSampler(os.getpid())
    sampler.stop()
    sampler.samples = [(10, 1.0, 5.0), (30, 0.0, 7.0)]
    sampler.add(20, {1: 10_000.0}, 0.0)
    assert [sample[0] for sample in sampler.samples] == [10, 20]
    assert sampler.samples[-1][1] >= 10_000.0
    assert sampler.peak_megabytes == 5.0


def test_cpu_time_of_processes_that_have_ended_stays_in():
    sampler = TreeSampler(os.getpid())
    sampler.stop()
    sampler.samples = []
    sampler.add(10, {-1: 1_000.0, -2: 50.0}, 7.0)
    sampler.add(20, {-2: 70.0}, 5.0)
    first, second = (sample[1] for sample in sampler.samples)
    assert second - first == pytest.approx(20.0)
    assert sampler.peak_megabytes == 7.0


# --- results.json and what is made of it


def test_a_summary_compares_with_the_bound_and_with_the_baselines():
    ours = Rounds({0: measured(10_000, 1.0), 1: measured(10_000, 0.5)})
    flink = Rounds({0: measured(10_000, 2.0), 1: measured(10_000, 2.0)})
    document = results(sparkawait_arrow=ours, flink_java=flink).document
    summary = document["results"][0]["summary"]
    assert summary["rows_per_second"] == {"median": 15_000.0, "min": 10_000.0, "max": 20_000.0}
    assert summary["share_of_bound"]["max"] == pytest.approx(20_000 * 0.0105 / 1_000, rel=1e-5)
    assert summary["ratio_to"] == {"flink_java": {"median": 3.0, "min": 2.0, "max": 4.0}}


def test_a_later_run_replaces_what_it_measures_anew(tmp_path):
    first = results(flink_java=Rounds({0: measured(10, 1.0)}), daft=Rounds({0: measured(10, 1.0)}))
    first.save(tmp_path / "results.json")
    second = load(tmp_path / "results.json", MACHINE, NOW + timedelta(hours=23))
    second.add(by_name("uniform-1000"), {"daft": Rounds({0: measured(10, 2.0)})}, "2026-11-22")
    rates = {
        it["peer"]: it["summary"]["rows_per_second"]["median"] for it in second.document["results"]
    }
    assert rates == {"flink_java": 10.0, "daft": 5.0}


def test_results_of_another_machine_are_not_mixed_in(tmp_path):
    results(daft=Rounds({0: measured(10, 1.0)})).save(tmp_path / "results.json")
    assert load(tmp_path / "results.json", {"cpu": "another"}, NOW).document["results"] == []
    assert load(tmp_path / "missing.json", MACHINE, NOW).document["schema"] == SCHEMA


@pytest.mark.parametrize("later", [timedelta(days=1), timedelta(seconds=-1)])
def test_results_of_another_day_are_not_mixed_in(tmp_path, later):
    results(daft=Rounds({0: measured(10, 1.0)})).save(tmp_path / "results.json")
    assert load(tmp_path / "results.json", MACHINE, NOW + later).document["results"] == []


def test_results_that_nothing_is_added_to_are_set_aside_under_their_date(tmp_path):
    path = tmp_path / "results.json"
    assert set_aside(path) is None
    for name in ("results-2026-11-21.json", "results-2026-11-21-2.json"):
        results(daft=Rounds({0: measured(10, 1.0)})).save(path)
        text = path.read_text()
        assert set_aside(path) == tmp_path / name
        assert not path.exists()
        assert (tmp_path / name).read_text() == text


def test_a_workload_is_refused_if_its_baseline_is_not_steady():
    shaky = {number: measured(1_000 + 40 * number, 1.0) for number in range(7)}
    found = results(flink_java=Rounds(shaky), daft=Rounds({0: measured(10, 1.0)}))
    why = "the rounds of flink_java are 18% apart, more than 15%"
    assert unrest([1_000.0 + 40 * number for number in range(7)]) == pytest.approx(160 / 1_120)
    assert found.document["workloads"]["uniform-1000"]["refused"] is None
    shaky[5] = measured(1_240, 1.0)
    again = found.add(by_name("uniform-1000"), {"flink_java": Rounds(shaky)}, "2026-11-21")
    assert again == found.document["workloads"]["uniform-1000"]["refused"] == why


def test_a_failed_or_absent_baseline_refuses_nothing():
    found = results(flink_java=Rounds(failure="no room"), daft=Rounds({0: measured(10, 1.0)}))
    assert found.document["workloads"]["uniform-1000"]["refused"] is None


def test_a_workload_tells_what_else_the_machine_did():
    runs = {n: replace(measured(10, 1.0), load=0.5 + n, steal=0.03 * n) for n in range(3)}
    about = results(daft=Rounds(runs)).document["workloads"]["uniform-1000"]
    assert (about["load_before"], about["steal"]) == (0.5, 0.06)


def keys_of(value) -> set[str]:
    """Keys at any depth, but for those that are names or words for people."""
    if isinstance(value, list):
        return {key for item in value for key in keys_of(item)}
    if not isinstance(value, dict):
        return set()
    named = {"peers", "workloads"}
    free = {"machine", "method", "settings", "versions", "ratio_to", "requests", "latency_ms"}
    found = set(value)
    for key, item in value.items():
        if key in named:
            found |= {inner for entry in item.values() for inner in keys_of(entry)}
        elif key not in free:
            found |= keys_of(item)
    return found


def test_every_key_of_the_results_is_explained():
    document = results(daft=Rounds({0: measured(10, 1.0)})).document
    readme = (ROOT / "benches" / "README.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"`([\w.]+)`", readme.partition("## `results.json`")[2]))
    assert keys_of(document) - explained == set()


def test_a_table_has_the_fastest_first_and_failures_last():
    document = results(
        daft=Rounds({0: measured(100, 1.0)}),
        sparkawait_arrow=Rounds({0: measured(900, 1.0)}),
        flink_java=Rounds(failure="no | room"),
    ).document
    lines = page.tables(document).splitlines()
    assert lines[0] == "## Calls of 1-20 ms, 1000 at a time"
    assert lines[2] == "unordered, 1 000 calls in flight, bound 95 238 rows/s."
    titles = [line.split(" | ")[0] for line in lines if line.startswith("| ")][2:]
    assert titles == ["| **sparkawait, native function, no Spark**", "| Daft", "| Flink, Java"]
    assert "failed: no \\| room" in lines[-1]


def test_tables_are_in_the_order_of_the_workloads_whichever_was_measured_first():
    found = results(daft=Rounds({0: measured(100, 1.0)}))
    found.add(by_name("no-op-ordered"), {"daft": Rounds({0: measured(100, 1.0)})}, "2026-11-21")
    titles = [it for it in page.tables(found.document).splitlines() if it.startswith("## ")]
    assert titles == [
        "## Calls that return at once, ordered",
        "## Calls of 1-20 ms, 1000 at a time",
    ]


def test_a_goal_is_reached_missed_or_not_measured():
    document = results(
        sparkawait_python=Rounds({0: measured(900, 1.0)}),
        sparkawait_arrow=Rounds({0: measured(10_000, 1.0)}),
        daft=Rounds({0: measured(300, 1.0)}),
        pathway=Rounds({0: measured(100, 1.0)}),
    ).document
    found = {goal.title: goal for goal in goals(document)}
    python = found["Python function, 1-20 ms, by the fastest other with one"]
    assert (python.value, python.beside, python.is_reached) == (3.0, "Daft", True)
    share = found["operator, calls of 1-20 ms, 1000 at a time, of the bound"]
    assert share.value == pytest.approx(0.105)
    assert share.is_reached is False
    assert found["p99 beyond the call at half load"].is_reached is None
    table = page.goal_table(document)
    assert f"| {python.title} | 3 x (Daft) | at least 1 x | reached |" in table
    assert f"| {share.title} | 0.105 | at least 0.95 | **missed** |" in table


def test_the_page_tells_how_and_by_whom(tmp_path):
    found = results(daft=Rounds({0: measured(100, 1.0)}))
    found.add_peer(all_peers()["pathway"], "no wheel for this machine")
    drawn = tmp_path / "benchmarks" / "cost.svg"
    drawn.parent.mkdir()
    drawn.touch()
    page.write(digest(found.document), tmp_path)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "Measured on 2026-11-21 at commit c0ffee in 0 minutes: " in text
    assert "The machine: cpu a fast one" in text
    assert "7 rounds of\nsparkawait and Flink, 3 of the others" in text
    assert "| Daft | 1 / 2 |  |  |  |  |" in text, "p99 beside p50"
    assert "The load was 0.0 to 0.0 when a workload began" in text
    tables = (tmp_path / "reference" / "benchmarks.md").read_text()
    assert "```\nit\n```\n" in tables
    assert "- **Daft** (`daft`): it 1.2. capacity: 7" in tables
    assert "- **Pathway** (`pathway`): **absent**: no wheel for this machine" in tables
    assert [name for name in page.CHARTS if f"benchmarks/{name}.svg" in text] == ["cost"]


def test_the_readme_gets_its_figures_between_its_marks(tmp_path):
    document = results(
        daft=Rounds({0: measured(2_000, 1.0)}), sparkawait_native=Rounds({0: measured(1_000, 1.0)})
    ).document
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- benchmarks: begin -->\nold\n<!-- benchmarks: end -->\nafter\n")
    for _ in range(2):
        page.fill(tmp_path, document)
    lines = readme.read_text().splitlines()
    assert lines[:2] == ["before", "<!-- benchmarks: begin -->"]
    assert lines[4:6] == [
        "| **sparkawait, native function** |  | 1 000 |  |  |",
        "| Daft |  | 2 000 |  |  |",
    ]
    assert lines[-2:] == ["<!-- benchmarks: end -->", "after"]


def test_a_readme_without_marks_is_left_as_it_is(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("as it is <!-- benchmarks: begin -->")
    page.fill(tmp_path, results(daft=Rounds({0: measured(1, 1.0)})).document)
    assert readme.read_text() == "as it is <!-- benchmarks: begin -->"


def test_a_chart_has_colours_for_light_and_for_dark_pages():
    placeholders = list(colours())
    shapes = "".join(f'<path style="stroke: {name}"/>' for name in placeholders)
    svg = adapt(f'<svg width="1">{shapes}</svg>')
    assert svg.startswith('<svg width="1"><style>svg{--c')
    assert "@media(prefers-color-scheme:dark)" in svg
    assert [name for name in placeholders if name in svg] == []
    assert all(pair[0] in svg and pair[1] in svg for pair in colours().values())
