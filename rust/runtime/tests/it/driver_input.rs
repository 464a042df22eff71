// SPDX-License-Identifier: Apache-2.0
//! How a task takes its input: as much as fits, and no more once it has ended.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::support::{
    BAD_ROW, Task, Told, Turns as _, WATERMARK, WITHOUT_CHANNEL, World, config, echo, limited,
};

/// Lets the turn end whenever a call starts.
fn hang(world: &World, told: Told) {
    if let Told::Call(..) = told {
        world.clock.end_turn();
    }
}

#[test]
fn input_without_rows_finishes_at_once() {
    let mut task = Task::new(config(), echo);
    task.feed(&[]);
    task.feeder.put_end();

    task.finish();

    assert_eq!(task.told(), ["close"]);
}

#[test]
fn rows_of_all_batches_are_called_in_the_order_of_arrival() {
    let mut task = Task::new(config(), echo);
    task.feed(&[1, 2, WATERMARK]);
    task.feed(&[3]);
    task.feeder.put_end();

    assert_eq!(task.run(), ["1=10", "2=20", "3=30"]);
    assert_eq!(task.told(), ["call 1.1", "call 2.1", "call 3.1", "close"]);
}

#[test]
fn no_row_is_taken_while_capacity_is_reached() {
    let (mut operator, driver) = config();
    operator.capacity = NonZeroUsize::MIN;
    let mut task = Task::new((operator, driver), |world: &World, told| {
        hang(world, told);
    });
    task.feed(&[1, 2, 3]);

    task.pause();

    assert_eq!(task.told(), ["call 1.1"]);
    assert_eq!(task.seen.lock().unwrap().elements, 1);
}

#[test]
fn a_policy_that_is_asked_before_each_call_lets_in_all_that_it_has_permits_for() {
    // Of most rates a permit comes at no whole nanosecond.
    let of_a_second = (1..=100).chain((101..=1000).step_by(13)).map(|permits| (permits, 1));
    let of_a_minute = (1..=1000).map(|permits| (permits, 60));
    for (permits, seconds) in of_a_second.chain(of_a_minute) {
        let burst = (permits / seconds).max(1);
        let (mut operator, mut driver) = limited(permits, Duration::from_secs(seconds), burst);
        operator.capacity = NonZeroUsize::new(1200).unwrap();
        operator.max_concurrency = operator.capacity;
        driver.expected_result_bytes = Some(1);
        let mut task = Task::new((operator, driver), hang);
        let burst = u32::try_from(burst).unwrap();
        task.feed(&(1..burst + 9).map(|row| WITHOUT_CHANNEL + row).collect::<Vec<_>>());

        task.pause();

        let called = |row| format!("call {}.1", WITHOUT_CHANNEL + row);
        let expected: Vec<_> = (1..=burst).map(called).collect();
        assert_eq!(task.told(), expected, "{permits} in {seconds} s");
    }
}

#[test]
fn input_is_taken_again_when_a_row_has_left() {
    let (mut operator, driver) = config();
    operator.capacity = NonZeroUsize::MIN;
    let mut task = Task::new((operator, driver), |world: &World, told| match told {
        Told::Call(2, _) => world.clock.end_turn(),
        told => echo(world, told),
    });
    task.feed(&[1, 2, 3]);

    task.pause();

    assert_eq!(task.told(), ["call 1.1", "call 2.1"]);
    assert_eq!(task.seen.lock().unwrap().elements, 2);
}

#[test]
fn feeder_waits_while_the_read_ahead_is_full() {
    const BATCHES: usize = 100;
    let mut task = Task::new(config(), echo);
    let (feeder, seen) = (task.feeder.clone(), Arc::clone(&task.seen));
    let feeding = thread::spawn(move || {
        for batch in 0..BATCHES {
            assert!(feeder.put(vec![1]));
            // Two batches wait, and the task may be about to take one.
            let taken = seen.lock().unwrap().inputs;
            assert!(batch < taken + 3, "batch {batch} is put while {taken} are taken");
        }
        feeder.put_end();
    });

    let rows = task.run();

    feeding.join().unwrap();
    assert_eq!(rows.len(), BATCHES);
}

#[test]
fn feeder_that_waits_is_ended_by_close() {
    let mut task = Task::new(config(), echo);
    task.feed(&[1]);
    task.feed(&[2]);
    let feeder = task.feeder.clone();
    let (starts, started) = channel();
    let feeding = thread::spawn(move || {
        starts.send(()).unwrap();
        feeder.put(vec![3])
    });
    started.recv().unwrap();

    task.driver.close();

    assert!(!feeding.join().unwrap(), "a closed task wants no more");
    assert_eq!(task.seen.lock().unwrap().inputs, 0);
}

#[test]
fn feeder_is_ended_by_the_end_of_the_task() {
    let mut task = Task::new(config(), echo);
    task.feeder.put_end();
    task.finish();

    assert!(!task.feeder.put(vec![1]));
}

#[test]
fn failure_of_the_input_follows_what_was_emitted_before_it() {
    let mut task = Task::new(config(), |world: &World, told| match told {
        Told::Call(2, _) => world.clock.end_turn(),
        told => echo(world, told),
    });
    task.feed(&[1, 2]);
    task.pause();

    task.feeder.put_failure("disk is gone".to_owned());

    assert_eq!(task.output(), ["1=10"]);
    assert_eq!(task.failure(), "disk is gone");
    assert_eq!(task.told(), ["call 1.1", "call 2.1", "cancel", "close"]);
}

#[test]
fn batch_that_does_not_fit_fails_the_task() {
    let mut task = Task::new(config(), echo);
    task.feed(&[1]);
    task.feed(&[2, BAD_ROW]);

    assert_eq!(task.failure(), "bad row");
    assert!(!task.feeder.put(vec![3]));
}

#[test]
fn turn_after_the_failure_is_the_end() {
    let mut task = Task::new(config(), echo);
    task.feeder.put_failure("disk is gone".to_owned());
    task.failure();

    task.finish();
}
