// SPDX-License-Identifier: Apache-2.0
//! A task on a thread of its own, and what its consumer has of it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::{Arc, Mutex};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use crate::support::{LOST_ROW, NO_RESULT, Task, Told, World, config, echo};
use sparkawait_core::operator::{OutputMode, Retry};
use sparkawait_core::policy::WarmUpConfig;
use sparkawait_runtime::{BufferTimeout, DrivenTask, Settled, Turn};

/// Longer than any wait for another thread that is not to end by itself.
const LONG: Duration = Duration::from_secs(60);

type Handed = Result<Turn<Vec<String>>, String>;

/// What the function was told.
#[derive(Clone)]
struct Calls(Arc<Mutex<Vec<Told>>>);

impl Calls {
    fn count(&self) -> usize {
        let told = self.0.lock().unwrap();
        told.iter().filter(|it| matches!(it, Told::Call(..))).count()
    }

    fn of(&self, wanted: &str) -> usize {
        let told = self.0.lock().unwrap();
        told.iter().filter(|it| it.text() == wanted).count()
    }

    /// Waits until so many calls were made.
    fn wait_for(&self, calls: usize) {
        while self.count() < calls {
            thread::yield_now();
        }
    }
}

/// Drives a task of `rows` on another thread, while `consume` takes its batches, seven rows each.
fn driven<S: FnMut(&World, Told) + Send>(
    script: S,
    rows: &[u32],
    consume: impl FnOnce(&dyn Fn() -> Handed, &dyn Fn(), &Calls),
) -> Calls {
    let (mut operator, mut driver) = config();
    (operator.mode, operator.capacity) = (OutputMode::Ordered, NonZeroUsize::new(5).unwrap());
    (driver.max_rows_per_batch, driver.buffer_timeout) = (7, BufferTimeout::Never);
    let task = Task::new((operator, driver), script);
    task.feed(rows);
    task.feeder.put_end();
    let (calls, task) = (Calls(task.told), DrivenTask::new(task.driver));
    thread::scope(|scope| {
        let thread = scope.spawn(|| task.drive());
        consume(&|| task.take(LONG), &|| task.close(), &calls);
        task.close();
        joined(thread);
    });
    calls
}

fn joined(thread: ScopedJoinHandle<'_, ()>) {
    thread.join().unwrap();
}

/// The rows of the batch that is taken next.
fn batch(take: &dyn Fn() -> Handed) -> Vec<String> {
    loop {
        match take().unwrap() {
            Turn::Output(rows) => return rows,
            Turn::Paused => {}
            Turn::Finished => panic!("the task has ended"),
        }
    }
}

/// All rows up to the end, and the error behind them.
fn rest(take: &dyn Fn() -> Handed) -> (Vec<String>, Option<String>) {
    let mut all = Vec::new();
    loop {
        match take() {
            Ok(Turn::Output(rows)) => all.extend(rows),
            Ok(Turn::Paused) => {}
            Ok(Turn::Finished) => return (all, None),
            Err(error) => return (all, Some(error)),
        }
    }
}

fn results(rows: impl IntoIterator<Item = u32>) -> Vec<String> {
    rows.into_iter().map(|row| format!("{row}={row}0")).collect()
}

#[test]
fn calls_go_on_while_the_consumer_has_a_batch_until_the_next_one_waits_and_another_is_full() {
    let rows: Vec<u32> = (1..=31).collect();
    driven(echo, &rows, |take, _, calls| {
        // A batch that waits, a full one behind it, and five completed rows that hold their slots.
        calls.wait_for(7 + 7 + 5);
        let first = batch(take);
        calls.wait_for(7 + 7 + 7 + 5);
        assert_eq!(first, results(1..=7));
        let (behind, error) = rest(take);

        assert_eq!((behind, error), (results(8..=31), None));
        assert_eq!(calls.count(), 31);
    });
}

#[test]
fn a_task_that_has_ended_says_what_became_of_its_rows_and_others_do_not() {
    let drops_13 = |world: &World, told| match told {
        Told::Call(13, attempt) => {
            world.send(attempt, Ok(NO_RESULT), Retry::No);
        }
        told => echo(world, told),
    };
    let task = DrivenTask::new(of_31_rows(drops_13).driver);
    thread::scope(|scope| {
        let thread = scope.spawn(|| task.drive());
        let (rows, error) = rest(&|| task.take(LONG));
        joined(thread);
        assert_eq!((rows.len(), error), (30, None));
    });
    assert_eq!(task.settled(), Some(Settled { input: 31, output: 30, left_out: 1 }));

    let failed = DrivenTask::new(of_31_rows(panics_at_13).driver);
    failed.drive();
    let closed = DrivenTask::new(of_31_rows(echo).driver);
    closed.close();
    assert_eq!((failed.settled(), closed.settled()), (None, None));
}

#[test]
fn a_busy_consumer_is_given_whole_batches() {
    let rows: Vec<u32> = (1..=17).collect();
    driven(echo, &rows, |take, _, calls| {
        calls.wait_for(17);

        assert_eq!(batch(take).len(), 7);
        assert_eq!(batch(take).len(), 7);
        assert_eq!(batch(take), results(15..=17), "what the end of the input left");
    });
}

#[test]
fn a_failure_comes_behind_the_batches_before_it() {
    let fails_at_13 = |world: &World, told| match told {
        Told::Call(13, attempt) => {
            world.fail(attempt, Retry::No);
        }
        told => echo(world, told),
    };
    let rows: Vec<u32> = (1..=29).collect();
    driven(fails_at_13, &rows, |take, _, _| {
        let (all, error) = rest(take);

        assert_eq!(all, results(1..=12));
        assert_eq!(error.unwrap(), "13 is down");
        let (none, again) = rest(take);
        assert_eq!((none, again.unwrap().contains("returned before")), (Vec::new(), true));
    });
}

#[test]
fn a_consumer_that_goes_ends_the_calls_and_the_thread() {
    let calls = driven(
        |_: &World, _| {},
        &[1, 2, 3],
        |_, close, calls| {
            calls.wait_for(3);
            close();
            close();
        },
    );

    assert_eq!(
        (calls.count(), calls.of("close")),
        (3, 1),
        "a function that is closed ends its calls"
    );
}

#[test]
fn a_task_that_no_thread_has_driven_is_closed_all_the_same() {
    let task = Task::new(config(), echo);
    let (calls, task) = (Calls(task.told), DrivenTask::new(task.driver));

    task.close();
    task.drive();

    assert!(matches!(task.take(Duration::ZERO), Ok(Turn::Finished)));
    assert_eq!(calls.of("close"), 1);
}

/// A task of 31 rows, five of them held and seven in a batch.
fn of_31_rows<S: FnMut(&World, Told) + Send>(script: S) -> Task<S> {
    let (mut operator, mut driver) = config();
    (operator.mode, operator.capacity) = (OutputMode::Ordered, NonZeroUsize::new(5).unwrap());
    (driver.max_rows_per_batch, driver.buffer_timeout) = (7, BufferTimeout::Never);
    let task = Task::new((operator, driver), script);
    task.feed(&(1..=31).collect::<Vec<u32>>());
    task.feeder.put_end();
    task
}

/// Drives a task to its end on this thread; then takes all that it has put out, and its error.
fn driven_first<S: FnMut(&World, Told) + Send>(task: Task<S>) -> (Vec<String>, Option<String>) {
    let task = DrivenTask::new(task.driver);
    task.drive();
    let (rows, error) = rest(&|| task.take(Duration::ZERO));
    task.close();
    (rows, error)
}

fn panics_at_13(world: &World, told: Told) {
    match told {
        Told::Call(13, _) => panic!("thirteen"),
        told => echo(world, told),
    }
}

#[test]
fn a_panic_of_the_thread_fails_the_task() {
    // Nobody takes the first batch before the thread has ended.
    let (rows, error) = driven_first(of_31_rows(panics_at_13));

    assert_eq!(rows, results(1..=7));
    let error = error.unwrap();
    assert_eq!(error, "the thread of the task panicked: thirteen; please report this");
}

#[test]
fn a_panic_of_the_codec_fails_the_task_wherever_it_happens() {
    // Behind so many times that a batch waits, except what happens once.
    let places = [
        ("accept", 0),
        ("next_element", 17),
        ("accept_reply", 2),
        ("emit", 11),
        ("take_output", 1),
    ];
    for (what, times) in places.into_iter().chain([("calls", 2), ("emit", 3)]) {
        let task = of_31_rows(echo);
        task.seen.lock().unwrap().panics = Some((what, times));
        let task = DrivenTask::new(task.driver);
        let (rows, error) = thread::scope(|scope| {
            let thread = scope.spawn(|| task.drive());
            let taken = rest(&|| task.take(LONG));
            joined(thread);
            taken
        });

        assert!(rows.len() < 31 && rows == results(1..=rows.len().try_into().unwrap()), "{what}");
        let text = format!("panicked: {what} of the codec; please report this");
        assert!(error.unwrap().contains(&text), "{what}");
    }
}

#[test]
fn a_second_panic_while_the_functions_are_closed_hides_neither_the_end_nor_the_first_one() {
    let panics_twice = |world: &World, told| match told {
        Told::Close => panic!("close"),
        told => panics_at_13(world, told),
    };
    let task = of_31_rows(panics_twice);
    let feeder = task.feeder.clone();
    let (rows, error) = driven_first(task);

    assert_eq!(rows, results(1..=7));
    assert!(error.unwrap().contains("panicked: thirteen; please report this"));
    assert!(!feeder.put(vec![32]), "the thread that feeds it does not wait for ever");
}

#[test]
fn a_panic_while_the_functions_are_closed_fails_the_task() {
    let panics = |world: &World, told| match told {
        Told::Close => panic!("close"),
        told => echo(world, told),
    };
    driven(panics, &[1, 2, 3], |take, _, _| {
        let (_, error) = rest(take);

        assert!(error.unwrap().contains("panicked: close; please report this"));
    });
}

/// What panics when it is let go of, as what a panic was raised with may.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("it is let go of");
    }
}

#[test]
fn a_thread_that_ends_without_a_word_fails_the_task() {
    let bomb = |world: &World, told| match told {
        Told::Call(13, _) => panic_any(Bomb),
        told => echo(world, told),
    };
    let task = DrivenTask::new(of_31_rows(bomb).driver);
    let ended = catch_unwind(AssertUnwindSafe(|| task.drive()));
    let (rows, error) = rest(&|| task.take(Duration::ZERO));
    task.close();

    assert!(ended.is_err());
    assert_eq!(rows, results(1..=7));
    assert!(error.unwrap().contains("has ended without saying how"));
}

#[test]
fn a_row_that_got_lost_fails_a_driven_task_too() {
    driven(echo, &[1, LOST_ROW, 3], |take, _, _| {
        let (_, error) = rest(take);

        assert!(error.is_some());
    });
}

#[test]
fn a_task_of_few_calls_goes_on_only_while_its_consumer_waits() {
    let (operator, mut driver) = config();
    let count = NonZeroUsize::new(40).unwrap();
    driver.warm_up = Some(WarmUpConfig { max_calls: count, rows_per_call: NonZeroUsize::MIN });
    let mut operator = operator;
    (operator.capacity, operator.max_concurrency) = (count, count);
    let task = Task::new((operator, driver), echo);
    task.feed(&(1..=37).collect::<Vec<u32>>());
    let (calls, task) = (Calls(task.told), DrivenTask::new(task.driver));
    thread::scope(|scope| {
        let thread = scope.spawn(|| task.drive());
        assert_eq!(calls.count(), 0, "nobody has asked");
        let first = batch(&|| task.take(LONG));

        assert!(!first.is_empty() && first.len() <= 5, "{first:?}");
        assert!(!task.is_open());
        task.close();
        joined(thread);
    });
    assert!(calls.count() < 37, "the others were not wanted");
}
