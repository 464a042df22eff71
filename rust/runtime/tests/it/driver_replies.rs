// SPDX-License-Identifier: Apache-2.0
//! What replies, deadlines and the end of a task do to each other.

use std::num::NonZeroUsize;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::support::chain::{Chain, Script};
use crate::support::{BAD_RESULT, ManualClock, Task, Told, Turns as _, World, config, echo, nanos};
use sparkawait_core::operator::{Config, EndOfInput, FailurePolicy, Handled, OutputMode, Retry};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::DriverConfig;
use sparkawait_runtime::clock::Clock;

/// A timeout of 1000 ns; failed rows are emitted.
fn with_timeout(change: impl FnOnce(&mut Config)) -> (Config, DriverConfig) {
    let (mut operator, driver) = config();
    operator.timeout = Some(nanos(1000));
    operator.on_failure = FailurePolicy::Emit;
    change(&mut operator);
    (operator, driver)
}

#[test]
fn reply_from_another_thread_wakes_the_task() {
    const ROWS: u32 = 200;
    let (calls, called) = channel();
    let (mut operator, driver) = config();
    operator.capacity = NonZeroUsize::MIN;
    let mut task = Task::new((operator, driver), move |world: &World, told| {
        if let Told::Call(value, attempt) = told {
            // Back to the origin: what is left of the turn is an hour, so a lost wake-up shows.
            world.clock.set(0);
            calls.send((world.clone(), value, attempt)).unwrap();
        }
    });
    task.world.clock.set(3_600_000_000_000);
    let answering = thread::spawn(move || {
        for (world, value, attempt) in called.iter().take(ROWS as usize) {
            assert!(world.reply(value, attempt));
        }
    });
    task.feed(&(0..ROWS).collect::<Vec<_>>());
    task.feeder.put_end();

    assert_eq!(task.run().len(), ROWS as usize);
    answering.join().unwrap();
}

/// A clock at each look at which there is another mail, and a nanosecond has passed.
#[derive(Clone, Default)]
struct BusyClock {
    clock: ManualClock,
    world: Arc<OnceLock<World>>,
}

impl Clock for BusyClock {
    fn now(&self) -> ProcessingTime {
        if let Some(world) = self.world.get() {
            world.replies.permit(NonZeroUsize::MAX);
        }
        self.clock.advance(1);
        let now = self.clock.now();
        assert!(now.as_nanos() < 100_000, "mail keeps the task from looking at the time");
        now
    }
}

#[test]
fn mail_without_end_does_not_hold_a_timeout() {
    let clock = BusyClock::default();
    let hang: Script = Box::new(|_, _| {});
    let mut task =
        Chain::with_clock(vec![(with_timeout(|_| {}), hang)], &clock.clock, clock.clone());
    task.feed(&[1]);
    task.feeder.put_end();
    assert!(clock.world.set(task.worlds[0].clone()).is_ok());

    assert_eq!(task.run(), (vec!["1 timed out".to_owned()], Ok(())));
}

#[test]
fn timeout_ends_a_row_and_cancels_its_call() {
    let mut task = Task::new(with_timeout(|_| {}), |world: &World, told| {
        if let Told::Call(..) = told {
            world.clock.advance(1000);
        }
    });
    task.feed(&[1]);
    task.feeder.put_end();

    assert_eq!(task.run(), ["1 timed out"]);
    assert_eq!(task.told(), ["call 1.1", "cancel", "close"]);
}

#[test]
fn a_call_that_waited_for_another_begins_after_that_is_cancelled() {
    let config = with_timeout(|it| {
        it.mode = OutputMode::KeyOrdered;
        (it.timeout, it.attempt_timeout) = (None, it.timeout);
    });
    let mut task = Task::new(config, |world: &World, told| match told {
        Told::Call(1, _) => world.clock.advance(1000),
        told => echo(world, told),
    });
    // Of one key.
    task.feed(&[1, 4]);
    task.feeder.put_end();

    assert_eq!(task.run(), ["1 timed out", "4=40"]);
    assert_eq!(task.told(), ["call 1.1", "cancel", "call 4.1", "close"]);
}

#[test]
fn nothing_times_out_before_its_time() {
    let mut task = Task::new(with_timeout(|_| {}), |world: &World, told| {
        if let Told::Call(..) = told {
            world.clock.tick(1);
        }
    });
    task.feed(&[1]);
    task.feeder.put_end();

    assert_eq!(task.run(), ["1 timed out"]);
    assert!(task.world.clock.nanos() >= 1000);
}

#[test]
fn reply_in_the_mailbox_wins_over_the_deadline_that_has_passed() {
    let mut task = Task::new(with_timeout(|_| {}), |world: &World, told| {
        echo(world, told);
        world.clock.advance(5000);
    });
    task.feed(&[1]);
    task.feeder.put_end();

    assert_eq!(task.run(), ["1=10"]);
    assert_eq!(task.told(), ["call 1.1", "close"]);
}

#[test]
fn reply_that_came_after_the_round_began_wins_over_the_deadline_too() {
    let config = with_timeout(|it| it.max_concurrency = NonZeroUsize::MIN);
    let (feeders, feeder) = channel::<crate::support::TaskFeeder>();
    let mut task = Task::new(config, move |world: &World, told| {
        echo(world, told);
        match told {
            // The next round: the reply of 1, which starts 2, and then more input.
            Told::Call(1, _) => assert!(feeder.recv().unwrap().put(vec![3])),
            Told::Call(2, _) => world.clock.advance(5000),
            _ => {}
        }
    });
    feeders.send(task.feeder.clone()).unwrap();
    task.feed(&[1, 2]);
    task.feeder.put_end();

    assert_eq!(task.run(), ["1=10", "2=20", "3=30"]);
}

#[test]
fn late_reply_is_ignored_and_forgotten() {
    let mut task = Task::new(with_timeout(|_| {}), |world: &World, told| match told {
        Told::Call(..) => world.clock.advance(1000),
        Told::Cancel(attempt) => {
            world.reply(1, attempt);
            world.clock.end_turn();
        }
        _ => {}
    });
    task.feed(&[1]);

    task.pause();

    let seen = task.seen.lock().unwrap();
    assert_eq!((&seen.handled[..], seen.held), (&[Handled::Ignored][..], 0));
}

#[test]
fn second_reply_of_a_call_is_ignored_and_forgotten() {
    let mut task = Task::new(config(), |world: &World, told| match told {
        Told::Call(1, attempt) => {
            world.reply(1, attempt);
            world.send(attempt, Ok(77), Retry::No);
        }
        told => echo(world, told),
    });
    task.feed(&[1, 2]);
    task.feeder.put_end();

    assert_eq!(task.run(), ["1=10", "2=20"]);
    let seen = task.seen.lock().unwrap();
    assert_eq!((seen.handled[1], seen.held), (Handled::Ignored, 0));
}

#[test]
fn failed_attempt_is_repeated_after_its_delay() {
    let strategy = AsyncRetryStrategy::fixed_delay(1, nanos(100));
    let config = with_timeout(|it| {
        it.retry = Some(strategy);
        it.at_end_of_input = EndOfInput::KeepRetrying;
    });
    let mut task = Task::new(config, |world: &World, told| match told {
        Told::Call(_, attempt) if attempt.attempt == 1 => {
            world.fail(attempt, Retry::Yes);
            world.clock.tick(1);
        }
        told => echo(world, told),
    });
    task.feed(&[1]);
    task.feeder.put_end();

    assert_eq!(task.run(), ["1=10"]);
    assert_eq!(task.told(), ["call 1.1", "call 1.2", "close"]);
    assert!(task.world.clock.nanos() >= 100);
}

#[test]
fn function_is_asked_what_a_timeout_emits() {
    let config = with_timeout(|it| it.asks_on_timeout = true);
    let mut task = Task::new(config, |world: &World, told| match told {
        Told::Call(..) => world.clock.advance(1000),
        Told::AskTimeout(_, attempt) => drop(world.send(attempt, Ok(7), Retry::No)),
        _ => {}
    });
    task.feed(&[1]);
    task.feeder.put_end();

    assert_eq!(task.run(), ["1=7"]);
    assert_eq!(task.told(), ["call 1.1", "cancel", "ask 1", "close"]);
}

#[test]
fn reply_that_breaks_its_promise_fails_the_task() {
    let mut task = Task::new(config(), |world: &World, told| match told {
        Told::Call(2, attempt) => drop(world.send(attempt, Ok(BAD_RESULT), Retry::No)),
        told => echo(world, told),
    });
    task.feed(&[1, 2]);

    assert_eq!(task.output(), ["1=10"]);
    assert_eq!(task.failure(), "bad result");
}

#[test]
fn function_that_cannot_go_on_fails_the_task() {
    let mut task = Task::new(config(), |world: &World, told| {
        if let Told::Call(..) = told {
            world.replies.fail("lost its connection".to_owned());
        }
    });
    task.feed(&[1]);

    assert_eq!(task.failure(), "lost its connection");
}

#[test]
fn closed_task_refuses_replies() {
    let mut task = Task::new(config(), |world: &World, told| {
        if let Told::Call(..) = told {
            world.clock.end_turn();
        }
    });
    task.feed(&[1]);
    task.pause();

    task.driver.close();
    task.driver.close();

    assert!(!task.world.replies.send(Vec::new()));
    assert!(!task.world.replies.fail("too late".to_owned()));
    assert_eq!(task.told(), ["call 1.1", "close"]);
    task.finish();
}

#[test]
fn dropped_task_refuses_replies() {
    let task = Task::new(config(), echo);
    let replies = task.world.replies.clone();

    drop(task);

    assert!(!replies.send(Vec::new()));
}
