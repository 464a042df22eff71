// SPDX-License-Identifier: Apache-2.0
//! Few calls until somebody wants the rows, and when a batch leaves that nobody has to wait for.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{NO_RESULT, Task, Told, Turns as _, World, config, nanos};
use sparkawait_core::operator::{AttemptId, Config, OutputMode, Retry};
use sparkawait_core::policy::WarmUpConfig;
use sparkawait_runtime::{BufferTimeout, DriverConfig};

const MILLISECOND: u64 = 1_000_000;

/// The calls that wait for an answer, by row.
type Calls = Arc<Mutex<HashMap<u32, AttemptId>>>;

/// The row whose call ends a turn.
type Last = Arc<Mutex<u32>>;

fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

/// Forty calls at most, so five at first; rows leave as they are completed.
fn warming_up() -> (Config, DriverConfig) {
    let (_, driver) = config();
    let warm_up = Some(WarmUpConfig { max_calls: count(40), rows_per_call: NonZeroUsize::MIN });
    (Config::new(OutputMode::Unordered, count(40)), DriverConfig { warm_up, ..driver })
}

/// A task whose calls are answered by the test. A turn ends when the last call that is expected
/// in it has started.
fn answered_by_hand(
    config: (Config, DriverConfig),
    rows: u32,
) -> (Task<impl FnMut(&World, Told) + Send>, Calls, Last) {
    let (calls, last) = (Calls::default(), Last::default());
    let (started, last_of_turn) = (Arc::clone(&calls), Arc::clone(&last));
    let task = Task::new(config, move |world: &World, told| {
        if let Told::Call(row, attempt) = told {
            started.lock().unwrap().insert(row, attempt);
            if row == *last_of_turn.lock().unwrap() {
                world.clock.advance(100 * MILLISECOND);
            }
        }
    });
    task.feed(&(1..=rows).collect::<Vec<_>>());
    (task, calls, last)
}

#[test]
fn all_calls_are_made_100_ms_after_the_first_rows_if_somebody_asks() {
    let (mut task, calls, last) = answered_by_hand(warming_up(), 30);
    *last.lock().unwrap() = 5;
    task.pause();
    assert_eq!(calls.lock().unwrap().len(), 5);

    assert!(task.world.reply(2, calls.lock().unwrap()[&2]));
    assert_eq!(task.output(), ["2=20"], "the first rows leave at once");
    assert_eq!(task.told().len(), 6, "the permit of row 2 was free");

    // The turn ends after 100 ms, so that it is seen whether there will be another one.
    task.world.clock.tick(50 * MILLISECOND);
    task.pause();
    assert_eq!(task.told().len(), 6);
    assert!(!task.driver.is_open());

    task.world.clock.tick(0);
    *last.lock().unwrap() = 30;
    task.pause();
    assert!(task.driver.is_open());
    assert_eq!(task.told().len(), 30);
}

#[test]
fn a_consumer_that_comes_back_late_is_not_made_to_wait_again() {
    let (mut task, calls, last) = answered_by_hand(warming_up(), 30);
    *last.lock().unwrap() = 5;
    task.pause();
    assert!(task.world.reply(1, calls.lock().unwrap()[&1]));
    task.output();

    task.world.clock.advance(100 * MILLISECOND);
    *last.lock().unwrap() = 30;
    task.pause();

    assert_eq!(task.told().len(), 30);
}

#[test]
fn rows_without_results_are_rows_that_nobody_waits_for() {
    let (mut task, calls, last) = answered_by_hand(warming_up(), 30);
    *last.lock().unwrap() = 5;
    task.pause();
    assert!(task.world.send(calls.lock().unwrap()[&1], Ok(NO_RESULT), Retry::No));
    *last.lock().unwrap() = 6;
    task.pause();

    task.world.clock.advance(100 * MILLISECOND);
    *last.lock().unwrap() = 30;
    task.pause();

    assert_eq!(task.told().len(), 30);
}

#[test]
fn first_calls_that_never_end_do_not_hold_the_task_for_ever() {
    let (mut task, _, last) = answered_by_hand(warming_up(), 30);
    *last.lock().unwrap() = 5;
    task.pause();

    task.world.clock.advance(10_000 * MILLISECOND);
    *last.lock().unwrap() = 30;
    task.pause();

    assert_eq!(task.told().len(), 30);
}

#[test]
fn without_a_warm_up_all_calls_are_made_at_once() {
    let (operator, driver) = warming_up();
    let config = (operator, DriverConfig { warm_up: None, ..driver });
    let (mut task, _, last) = answered_by_hand(config, 30);
    *last.lock().unwrap() = 30;

    task.pause();

    assert_eq!(task.told().len(), 30);
    assert!(task.driver.is_open());
}

#[test]
fn a_batch_that_costs_little_leaves_as_soon_as_it_is_waited_for() {
    let (operator, mut driver) = config();
    driver.buffer_timeout = BufferTimeout::Auto { consumer: nanos(1_000) };
    let mut task = Task::new((operator, driver), |world: &World, told| match told {
        // Time passes while the thread has nothing to do.
        Told::Call(row @ (3 | 5), attempt) => {
            world.reply(row, attempt);
            world.clock.tick(100);
        }
        told => crate::support::echo(world, told),
    });
    task.feed(&[1]);
    assert_eq!(task.output(), ["1=10"]);
    let begun = task.world.clock.nanos();

    // The consumer takes 3 us, and something else 1 us that nobody sees.
    task.world.clock.advance(3_000);
    task.feed(&[2, 3]);
    assert_eq!(task.output(), ["2=20", "3=30"]);
    let pause = task.world.clock.nanos() - begun;
    assert!((50 * 4_000..50 * 4_000 + 3_000).contains(&pause), "{pause} ns");

    // It comes back later than that: nothing is kept back.
    task.world.clock.tick(0);
    task.world.clock.advance(MILLISECOND);
    task.feed(&[4]);
    assert_eq!(task.output(), ["4=40"]);
}

#[test]
fn a_batch_is_kept_back_for_100_ms_at_most() {
    let (operator, mut driver) = config();
    driver.buffer_timeout = BufferTimeout::Auto { consumer: Duration::from_secs(1) };
    let mut task = Task::new((operator, driver), |world: &World, told| {
        crate::support::echo(world, told);
        if matches!(told, Told::Call(2, _)) {
            world.clock.advance(99 * MILLISECOND);
            world.clock.tick(100_000);
        }
    });
    task.feed(&[1]);
    assert_eq!(task.output(), ["1=10"]);
    let begun = task.world.clock.nanos();

    task.feed(&[2]);
    assert_eq!(task.output(), ["2=20"]);

    let pause = task.world.clock.nanos() - begun;
    assert!((100 * MILLISECOND..101 * MILLISECOND).contains(&pause), "{pause} ns");
}
