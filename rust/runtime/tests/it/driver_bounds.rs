// SPDX-License-Identifier: Apache-2.0
//! What a task holds is bounded in bytes, and it goes on all the same.
//!
//! A row of the input has a hundred bytes, a result as many as its number says. With a hundred
//! bytes per batch, four hundred of each may be held.

use crate::support::{Task, Told, Turns as _, World, config, echo};
use sparkawait_core::operator::Config;
use sparkawait_runtime::BufferTimeout;

/// Lets the turn end whenever a call starts, and answers that of the given row.
fn answers(row: u32) -> impl FnMut(&World, Told) + Send {
    move |world, told| {
        let Told::Call(value, attempt) = told else { return };
        if value == row {
            assert!(world.reply(value, attempt));
        }
        world.clock.end_turn();
    }
}

#[test]
fn no_further_batch_is_taken_while_too_many_bytes_of_input_are_held() {
    let (operator, mut driver) = config();
    driver.max_bytes_per_batch = 100;
    for (batches, taken) in [([&[1, 2, 3][..], &[4]], 2), ([&[1, 2, 3, 4], &[5]], 1)] {
        let mut task = Task::new((operator.clone(), driver), answers(0));
        for rows in batches {
            task.feed(rows);
        }

        task.pause();

        assert_eq!(task.seen.lock().unwrap().inputs, taken);
    }
}

#[test]
fn output_that_is_not_full_leaves_when_the_input_waits_for_it() {
    let (operator, mut driver) = config();
    driver.max_bytes_per_batch = 100;
    driver.buffer_timeout = BufferTimeout::Never;
    let mut task = Task::new((operator, driver), echo);
    task.feed(&[1, 2, 3, 4]);
    task.feed(&[5]);
    task.feeder.put_end();

    assert_eq!(task.output(), ["1=10", "2=20", "3=30", "4=40"]);
    assert_eq!(task.output(), ["5=50"]);
}

#[test]
fn the_results_of_calls_in_flight_have_room_by_the_size_of_the_last_ones() {
    let (operator, mut driver) = config();
    driver.max_bytes_per_batch = 100;
    let mut task = Task::new((operator, driver), answers(10));
    task.feed(&[10]);
    task.pause();
    task.feed(&[11, 12, 13, 14, 15, 16]);

    task.pause();

    let told = ["call 10.1", "call 11.1", "call 12.1", "call 13.1", "call 14.1"];
    assert_eq!(task.told(), told, "a hundred bytes each, in four hundred");
}

/// Answers all calls but that of the first row, which is answered when it is asked for again.
fn all_but_the_first(world: &World, told: Told) {
    if let Told::Call(value, attempt) = told {
        if value == 1 {
            world.clock.end_turn();
        } else {
            assert!(world.reply(value, attempt));
        }
    }
}

#[test]
fn completed_rows_are_bounded_by_their_bytes_alone_and_the_head_completes() {
    let (operator, mut driver) = config();
    // Each of the results has 100 bytes, and 128 for its place: 20 of them and no more.
    driver.capacity_bytes = Some(20 * (100 + 128));
    let operator = Config { completed_take_slots: false, ..operator };
    let mut task = Task::new((operator, driver), all_but_the_first);
    task.feed(&[1]);
    task.feed(&[10; 100]);
    task.feeder.put_end();

    task.world.clock.tick(10_000_000);
    (0..10).for_each(|_| task.pause());

    let called = task.told().len();
    assert!((20..=31).contains(&called), "{called} were called, and ten may be in flight");
    let first = task.first_call();
    assert!(task.world.reply(1, first));
    assert_eq!(task.run().len(), 101);
}
