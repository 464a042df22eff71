// SPDX-License-Identifier: Apache-2.0
//! How a task cuts its output, and what it publishes.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::support::{Task, Told, Turns as _, World, config, echo, nanos};
use sparkawait_core::operator::{FailurePolicy, OutputMode, Retry};
use sparkawait_runtime::BufferTimeout;

/// Answers all calls but that of row 2, at which the turn ends.
fn hang_at_two(world: &World, told: Told) {
    match told {
        Told::Call(2, _) => world.clock.end_turn(),
        told => echo(world, told),
    }
}

#[test]
fn full_batch_leaves_at_once_and_the_rest_at_the_end() {
    let (operator, mut driver) = config();
    driver.max_rows_per_batch = 2;
    let mut task = Task::new((operator, driver), echo);
    task.feed(&[1, 2, 3, 4, 5]);
    task.feeder.put_end();

    assert_eq!(task.output(), ["1=10", "2=20"]);
    assert_eq!(task.output(), ["3=30", "4=40"]);
    assert_eq!(task.output(), ["5=50"]);
    task.finish();
}

#[test]
fn rows_beyond_a_full_batch_keep_their_slots() {
    let (mut operator, mut driver) = config();
    operator.capacity = NonZeroUsize::new(3).unwrap();
    driver.max_rows_per_batch = 1;
    let mut task = Task::new((operator, driver), echo);
    task.world.clock.end_turn();
    task.feed(&[1, 2, 3, 4, 5, 6]);

    assert_eq!(task.output(), ["1=10"]);

    let metrics = task.driver.metrics_reader().read().remove(0);
    assert_eq!((metrics.operator.emitted, metrics.operator.queue_size), (1, 3));
    assert_eq!(task.told().len(), 4, "the slot of row 1 is used while the consumer has its batch");
}

#[test]
fn small_batch_leaves_when_it_is_old() {
    let (operator, mut driver) = config();
    driver.buffer_timeout = BufferTimeout::After(nanos(1000));
    let mut task = Task::new((operator, driver), |world: &World, told| match told {
        Told::Call(2, _) => world.clock.tick(100),
        told => echo(world, told),
    });
    task.feed(&[1, 2]);

    assert_eq!(task.output(), ["1=10"]);

    assert!(task.world.clock.nanos() >= 1000);
}

#[test]
fn age_of_a_batch_is_that_of_its_first_row() {
    let (mut operator, mut driver) = config();
    operator.max_concurrency = NonZeroUsize::MIN;
    driver.buffer_timeout = BufferTimeout::After(nanos(1000));
    let mut task = Task::new((operator, driver), |world: &World, told| match told {
        // Row 1 was emitted before, row 2 is emitted after this.
        Told::Call(3, _) => world.clock.advance(500),
        told => echo(world, told),
    });
    task.feed(&[1, 2, 3]);
    task.world.clock.tick(1);

    assert_eq!(task.output(), ["1=10", "2=20"]);
    assert!((1000..1500).contains(&task.world.clock.nanos()));
}

#[test]
fn without_a_buffer_timeout_small_batches_wait_for_the_end() {
    let mut task = Task::new(config(), hang_at_two);
    task.feed(&[1, 2]);
    task.pause();
    task.driver.close();

    assert_eq!(task.output(), ["1=10"]);
    task.finish();
}

#[test]
fn what_was_emitted_before_a_failure_leaves_before_the_error() {
    let mut task = Task::new(config(), |world: &World, told| match told {
        Told::Call(2, attempt) => drop(world.fail(attempt, Retry::No)),
        Told::Call(3, _) => {}
        told => echo(world, told),
    });
    task.feed(&[1, 2, 3]);

    assert_eq!(task.output(), ["1=10"]);
    assert_eq!(task.failure(), "2 is down");

    assert_eq!(task.told()[3..], ["cancel", "close"]);
    task.finish();
}

#[test]
fn output_before_a_failure_is_cut_as_any_other() {
    let (mut operator, mut driver) = config();
    operator.mode = OutputMode::Unordered;
    driver.max_rows_per_batch = 2;
    let mut task = Task::new((operator, driver), |world: &World, told| match told {
        Told::Call(5, attempt) => drop(world.fail(attempt, Retry::No)),
        told => echo(world, told),
    });
    task.feed(&[1, 2, 3, 4, 5]);

    assert_eq!(task.output(), ["1=10", "2=20"]);
    assert_eq!(task.output(), ["3=30", "4=40"]);
    assert_eq!(task.failure(), "5 is down");
}

#[test]
fn failed_rows_are_emitted_where_the_policy_says_so() {
    let (mut operator, driver) = config();
    operator.on_failure = FailurePolicy::Emit;
    let mut task = Task::new((operator, driver), |world: &World, told| match told {
        Told::Call(2, attempt) => drop(world.fail(attempt, Retry::No)),
        told => echo(world, told),
    });
    task.feed(&[1, 2, 3]);
    task.feeder.put_end();

    assert_eq!(task.run(), ["1=10", "2 is down", "3=30"]);
}

#[test]
fn metrics_are_published_at_the_end_of_a_turn() {
    let mut task = Task::new(config(), hang_at_two);
    let reader = task.driver.metrics_reader();
    assert!(reader.read().is_empty());
    task.feed(&[1, 2]);
    task.pause();

    let metrics = reader.read()[0].operator;

    assert_eq!((metrics.admitted, metrics.emitted, metrics.attempts), (2, 1, 2));
    assert_eq!((metrics.in_flight, metrics.queue_size), (1, 1));
    assert_eq!(metrics.oldest_age, Duration::from_secs(1));
}

#[test]
fn metrics_of_a_closed_task_count_its_cancelled_calls() {
    let mut task = Task::new(config(), hang_at_two);
    let reader = task.driver.metrics_reader();
    task.feed(&[1, 2]);
    task.pause();

    task.driver.close();

    let metrics = reader.read()[0].operator;
    assert_eq!((metrics.in_flight, metrics.cancelled), (0, 1));
}

#[test]
fn latency_of_a_call_is_the_time_until_its_answer_is_read() {
    let mut task = Task::new(config(), |world: &World, told| {
        if let Told::Call(value, _) = told {
            world.clock.advance(u64::from(value) * 1000);
        }
        echo(world, told);
    });
    let reader = task.driver.metrics_reader();
    task.feed(&[3]);
    task.feeder.put_end();
    task.run();

    assert_eq!(reader.read()[0].call_latency, [(Duration::from_micros(3), 1)]);
}
