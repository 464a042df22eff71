// SPDX-License-Identifier: Apache-2.0
//! Whole tasks in simulation: those that broke a rule once, and others.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fs;
use std::num::NonZero;
use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use sparkawait_simulation::limits::Bucket;
use sparkawait_simulation::order::Order;
use sparkawait_simulation::run::run;
use sparkawait_simulation::scenario::{Mode, Scenario};
use sparkawait_simulation::shrink::shrink;
use sparkawait_simulation::trace;

const SECOND: u64 = 1_000_000_000;

/// The seeds that are run each time, unless `SEEDS` names others.
const SEEDS: Range<u64> = 0..1_500;

/// Seeds beside those that nobody has run before.
const FRESH: u64 = 2_000;

fn named_seeds() -> Option<Range<u64>> {
    let named = std::env::var("SEEDS").ok()?;
    let (first, end) = named.split_once("..")?;
    Some(first.parse().unwrap()..end.parse().unwrap())
}

/// Seeds by the time, or by the number `FRESH_SEEDS`: in CI each commit has its own.
fn fresh_seeds() -> Range<u64> {
    let fixed = std::env::var("FRESH_SEEDS").ok().and_then(|it| it.parse().ok());
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let number: u64 = fixed.unwrap_or_else(|| u64::from(since.subsec_nanos()) ^ since.as_secs());
    let first = SEEDS.end + number % 1_000_000_007;
    first..first + FRESH
}

/// Runs scenarios; returns what the first one broke.
fn first_broken(mut seeds: impl Iterator<Item = u64>) -> Option<(u64, String)> {
    seeds.find_map(|seed| Some((seed, run(&Scenario::draw(seed)).broken?.to_string())))
}

#[test]
fn scenarios_that_broke_a_rule_once_break_none() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let scenario: Scenario = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let broken = run(&scenario).broken.map(|it| it.to_string());
        assert_eq!(broken, None, "{}", path.display());
        names.push(path);
    }
    assert!(names.len() >= 3, "{names:?}");
}

#[test]
fn no_scenario_breaks_a_rule() {
    check(named_seeds().unwrap_or(SEEDS));
}

#[test]
fn no_scenario_that_nobody_has_seen_breaks_a_rule() {
    if named_seeds().is_none() {
        check(fresh_seeds());
    }
}

fn check(seeds: Range<u64>) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let broken = thread::scope(|scope| {
        let of = |first: usize| seeds.clone().skip(first).step_by(threads);
        let workers = (0..threads).map(|it| {
            let seeds = of(it);
            scope.spawn(move || first_broken(seeds))
        });
        let workers: Vec<_> = workers.collect();
        workers.into_iter().filter_map(|it| it.join().unwrap()).min()
    });
    let Some((seed, broken)) = broken else { return };
    let least = serde_json::to_string(&shrink(&Scenario::draw(seed))).unwrap();
    let again = format!("make simulate SEEDS={seed}..{}", seed + 1);
    panic!("seed {seed}: {broken}\nrun again by: {again}\nto be kept in `regressions`: {least}");
}

#[test]
fn a_seed_has_the_same_events_each_time() {
    for seed in 0..60 {
        let scenario = Scenario::draw(seed);
        let (first, second) = (run(&scenario), run(&scenario));
        assert_eq!(first.events, second.events, "seed {seed}");
    }
}

#[test]
fn a_scenario_is_kept_as_text() {
    for seed in 0..100 {
        let scenario = Scenario::draw(seed);
        let text = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str::<Scenario>(&text).unwrap(), scenario, "seed {seed}");
    }
}

#[test]
fn a_limit_of_three_a_second_is_counted_to_the_nanosecond() {
    let mut bucket = Bucket::new(3, SECOND, 2);
    assert!(bucket.take(1, 7) && bucket.take(1, 7));
    assert!(!bucket.clone().take(1, 7 + SECOND / 3), "a third of a nanosecond too early");
    assert!(bucket.take(1, 7 + SECOND / 3 + 1));
    // What costs more than the burst waits for all of it, and the rest is owed.
    assert!(!bucket.clone().take(5, SECOND));
    assert!(bucket.take(5, 7 + SECOND));
    assert!(!bucket.clone().take(1, 7 + 2 * SECOND));
    assert!(bucket.take(1, 7 + 7 * SECOND / 3 + 1));
}

#[test]
fn rows_out_of_order_are_seen() {
    let mut scenario = Scenario::draw(0);
    scenario.operators.truncate(1);
    (scenario.operators[0].mode, scenario.batches) = (Mode::Ordered, vec![13]);
    let mut order = Order::new(&scenario);
    let path = |row| trace::Path { row, key: None, channel: None, cost: 1, values: Vec::new() };
    assert!(order.left(&path(2)).is_ok() && order.left(&path(2)).is_ok());
    assert!(order.left(&path(1)).is_err());
}
