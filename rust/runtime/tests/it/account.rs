// SPDX-License-Identifier: Apache-2.0
//! A task that has lost a row says so, and one that would wait for ever fails.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::support::chain::{Chain, Script};
use crate::support::{
    LOST_RESULT, LOST_ROW, ManualClock, NO_RESULT, Numbers, Reply, Scripted, Task, Told, Turns,
    WATERMARK, WITHOUT_CHANNEL, World, config, echo, limited, nanos,
};
use sparkawait_core::operator::{Config, EndOfInput, FailurePolicy, OutputMode, Retry};
use sparkawait_core::policy::{Answer, Ledger, Ledgers, LimitLeft};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::{
    BufferTimeout, ChainedOperator, Driver, DriverConfig, FanOut, Feeder, Mailbox, OperatorChain,
    Turn,
};

/// Turns in which a task is given the time to find that it waits for nothing; each look at the clock
/// is worth most of a turn.
const TURNS: usize = 70;
const TICK: u64 = 99_999_000;

/// Takes turns, some with batches, until one fails.
fn failure_of(task: &mut impl Turns) -> Option<String> {
    (0..TURNS).find_map(|_| task.take_turn().err())
}

fn never(_: &World, _: Told) {}

// --- the account ---

#[test]
fn a_row_that_was_lost_fails_the_task_when_its_input_ends() {
    let (mut operator, driver) = config();
    operator.mode = OutputMode::Unordered;
    operator.max_concurrency = NonZeroUsize::new(7).unwrap();
    let mut task = Task::new((operator, driver), echo);
    task.feed(&[1, WATERMARK, 2, LOST_ROW, 3, WATERMARK]);
    task.feed(&[4, NO_RESULT]);
    task.feeder.put_end();

    assert_eq!(task.output(), ["1=10", "2=20", "3=30", "4=40", "9=90"]);
    let error = task.failure();

    let numbers = "operator 0 (`numbers`) has lost or doubled rows: 6 rows came in and 0 were restored, \
                   but 5 came out, 0 had no result, 0 were dropped. Options: Config {";
    assert!(error.starts_with(numbers), "{error}");
    for option in ["mode: Unordered", "max_concurrency: 7", "max_rows_per_batch: 1000"] {
        assert!(error.contains(option), "{error}");
    }
}

#[test]
fn the_operator_that_lost_a_row_is_named() {
    let second = |world: &World, told: Told| {
        if let Told::Call(row, attempt) = told {
            world.send(attempt, Ok(if row == 20 { LOST_ROW } else { NO_RESULT }), Retry::No);
        }
    };
    let operators: Vec<((Config, DriverConfig), Script)> =
        vec![(config(), Box::new(echo)), (config(), Box::new(second)), (config(), Box::new(echo))];
    let mut chain = Chain::new(operators);
    chain.feed(&[1, 2, 3]);
    chain.feeder.put_end();

    let (rows, end) = chain.run();

    assert_eq!(rows, Vec::<String>::new());
    let error = end.unwrap_err();
    assert!(error.starts_with("operator 2 (`numbers`) has lost"), "{error}");
    assert!(error.contains("1 rows came in and 0 were restored, but 0 came out"), "{error}");
}

#[test]
fn a_row_that_was_lost_between_two_operators_is_missed_by_the_second() {
    let first = |world: &World, told: Told| {
        if let Told::Call(row, attempt) = told {
            world.send(attempt, Ok(if row == 2 { LOST_RESULT } else { row }), Retry::No);
        }
    };
    let operators: Vec<((Config, DriverConfig), Script)> =
        vec![(config(), Box::new(first)), (config(), Box::new(echo))];
    let mut chain = Chain::new(operators);
    chain.feed(&[1, 2, 3]);
    chain.feeder.put_end();

    let (rows, end) = chain.run();

    assert_eq!(rows, ["1=10", "3=30"]);
    let error = end.unwrap_err();
    let numbers = "operator 1 (`numbers`) has lost or doubled rows: the operator before put out 3 rows, \
                   but 2 came in. Options: Config {";
    assert!(error.starts_with(numbers), "{error}");
}

#[test]
fn a_task_that_fails_or_is_closed_has_no_account() {
    let fails = |world: &World, told: Told| {
        if let Told::Call(3, attempt) = told {
            world.fail(attempt, Retry::No);
        } else {
            echo(world, told);
        }
    };
    let mut task = Task::new(config(), fails);
    task.feed(&[1, LOST_ROW, 3]);
    task.feeder.put_end();
    assert_eq!(task.output(), ["1=10"]);
    assert_eq!(task.failure(), "3 is down");

    let mut task = Task::new(config(), never);
    task.feed(&[1, LOST_ROW, 3]);
    task.feeder.put_end();
    task.world.clock.tick(TICK);
    task.pause();
    task.driver.close();
    task.finish();
}

// --- nothing can happen any more ---

/// Branches that never get what they are to do.
struct Swallowing;

impl FanOut<Numbers> for Swallowing {
    fn has_calls(&self) -> bool {
        false
    }

    fn take_calls(&mut self) -> Result<Vec<(usize, Vec<u32>)>, String> {
        Ok(Vec::new())
    }

    fn accept(&mut self, _branch: usize, _output: Vec<String>) -> Result<(), String> {
        Ok(())
    }

    fn take_reply(&mut self) -> Result<Option<Reply>, String> {
        Ok(None)
    }

    fn failure(&self, error: String) -> String {
        error
    }

    fn held_bytes(&self) -> usize {
        0
    }
}

/// A task whose rows are lost on their way to its branch.
struct Branched {
    driver: Driver<Numbers, Scripted<Script>, ManualClock>,
    feeder: Feeder<Numbers>,
}

impl Branched {
    fn new() -> Self {
        let mailbox = Mailbox::new();
        let clock = ManualClock::default();
        clock.tick(TICK);
        let operator = |position: usize| {
            let (operator, driver) = config();
            let world = World { clock: clock.clone(), replies: mailbox.reply_sender(position) };
            let function = Scripted::new(Box::new(never) as Script, world);
            ChainedOperator::new(operator, driver, Numbers::default(), function)
        };
        let chain = OperatorChain::new(operator(0));
        let chain = chain.fan_out([operator(1)], Box::new(Swallowing));
        let (driver, feeder) = Driver::new(mailbox, chain, clock.clone());
        Self { driver, feeder }
    }
}

impl Turns for Branched {
    fn take_turn(&mut self) -> Result<Turn<Vec<String>>, String> {
        self.driver.take_turn()
    }
}

#[test]
fn rows_that_nothing_can_happen_to_fail_the_task_with_what_each_operator_holds() {
    let mut task = Branched::new();
    assert!(task.feeder.put(vec![1, 2, 3]));
    task.feeder.put_end();

    let error = failure_of(&mut task).unwrap();

    assert!(
        error.starts_with("the task would wait for ever: it holds rows, and no call"),
        "{error}"
    );
    let first = "operator 0 (`numbers`) holds 3 rows of 10: 0 completed, 3 called of ";
    assert!(error.contains(first), "{error}");
    assert!(error.contains("operator 1 (`numbers`) holds 0 rows of 10"), "{error}");
}

#[test]
fn input_that_never_comes_in_is_seen_before_it_ends() {
    let mut task = Branched::new();
    assert!(task.feeder.put((0..13).collect()));

    let error = failure_of(&mut task).unwrap();

    let first = "operator 0 (`numbers`) holds 10 rows of 10: 0 completed, 10 called of ";
    assert!(error.contains(first), "{error}");
    assert!(error.contains("1 batches of input wait; 0 rows of output; 1300 bytes"), "{error}");
}

/// A limit that another process never gives back.
#[derive(Debug)]
struct Shut;

impl Ledger for Shut {
    fn ask(&self, _cost: u64, now: ProcessingTime) -> Answer {
        // A time to ask again, so nobody waits for ever.
        Answer::At(now + Duration::from_secs(3_600))
    }

    fn lower_to(&self, _: &LimitLeft, in_flight: u64, _: ProcessingTime, _: ProcessingTime) -> u64 {
        in_flight
    }

    fn settle(&self, _taken: u64, _actual: u64) {}

    fn drain(&self, _owed: u64, _now: ProcessingTime) {}
}

#[derive(Debug)]
struct AllShut;

impl Ledgers for AllShut {
    fn open(&self, _limit: usize, _channel: Option<u64>) -> Option<Arc<dyn Ledger>> {
        Some(Arc::new(Shut))
    }
}

/// Settings of one limit that others share.
fn shared() -> (Config, DriverConfig) {
    let (mut operator, driver) = limited(3, Duration::from_secs(1), 3);
    operator.ledgers = Some(Arc::new(AllShut));
    (operator, driver)
}

fn retried() -> (Config, DriverConfig) {
    let (mut operator, driver) = config();
    operator.retry = Some(AsyncRetryStrategy::fixed_delay(7, Duration::from_secs(3_600)));
    operator.at_end_of_input = EndOfInput::KeepRetrying;
    operator.on_failure = FailurePolicy::Emit;
    (operator, driver)
}

fn asked() -> (Config, DriverConfig) {
    let (mut operator, driver) = config();
    operator.timeout = Some(nanos(17));
    operator.asks_on_timeout = true;
    (operator, driver)
}

#[test]
fn whoever_waits_for_a_call_a_time_or_input_waits() {
    let fails = |world: &World, told: Told| {
        if let Told::Call(_, attempt) = told {
            world.fail(attempt, Retry::Yes);
        }
    };
    let cases: [(_, _, Script, &[u32], _); 6] = [
        ("a call in flight", config(), Box::new(never), &[1, 2], true),
        ("more rows than calls", config(), Box::new(never), &[1; 23], false),
        ("what a timeout gives", asked(), Box::new(never), &[1], true),
        ("a retry", retried(), Box::new(fails), &[1, 2], true),
        ("a limit", shared(), Box::new(never), &[WITHOUT_CHANNEL], true),
        ("input", config(), Box::new(echo), &[1, 2, WATERMARK], false),
    ];
    for (what, config, script, rows, has_ended) in cases {
        assert_eq!(config.1.buffer_timeout, BufferTimeout::Never);
        let mut task = Task::new(config, script);
        task.world.clock.tick(TICK);
        task.feed(rows);
        if has_ended {
            task.feeder.put_end();
        }
        assert_eq!(failure_of(&mut task), None, "{what}");
    }
}
