// SPDX-License-Identifier: Apache-2.0
//! What the log says of limits in time.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use crate::support::{Task, Told, Turns as _, WITHOUT_CHANNEL, World, echo, limited, nanos};
use sparkawait_runtime::log::Log;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_default;

const MINUTE: u64 = 60_000_000_000;

/// A task under a limit of a permit in so many nanoseconds, whose calls turn out to have cost that.
fn task(period: u64, settles: Option<u64>) -> Task<fn(&World, Told)> {
    let task = Task::new(limited(1, nanos(period), 3), echo as fn(&World, Told));
    // A turn is two looks at the clock.
    task.world.clock.tick(60_000_000);
    task.seen.lock().unwrap().settles = settles;
    task.feed(&(1..=7).map(|row| WITHOUT_CHANNEL + row).collect::<Vec<_>>());
    task
}

#[test]
fn a_limit_that_holds_for_long_and_a_call_that_has_cost_too_much_are_told_once() {
    let log = Arc::new(Log::new().unwrap());
    let _log = set_default(log.subscriber(LevelFilter::WARN));
    let mut quick = task(MINUTE / 8, Some(2));
    (0..6).for_each(|_| quick.pause());
    assert_eq!(log.take().0, [], "the next call is due in half a minute");

    let mut slow = task(MINUTE + 7_000_000_000, None);
    (0..6).for_each(|_| slow.pause());
    let mut dear = task(MINUTE / 2, Some(1 << 53));
    (0..6).for_each(|_| dear.pause());

    let texts: Vec<String> = log.take().0.into_iter().map(|line| line.text).collect();
    let [held, held_too, cost] = texts.as_slice() else { panic!("three lines, got {texts:?}") };
    assert!(held.contains("seconds=6") && held.contains("lets no call start"), "{held}");
    // Three calls have paid what comes in an hour each.
    assert!(held_too.contains("seconds=1") && held_too.contains("lets no call"), "{held_too}");
    assert!(cost.contains("more of its rate limit than one call may"), "{cost}");
}
