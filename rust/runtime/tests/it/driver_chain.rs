// SPDX-License-Identifier: Apache-2.0
//! Several operators on one thread: each gets what the one before it puts out.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use crate::support::chain::{Chain, Script};
use crate::support::{BAD_RESULT, NO_RESULT, Told, Turns as _, World, config, echo, nanos};
use sparkawait_core::operator::{Config, FailurePolicy, OutputMode, Retry};
use sparkawait_core::policy::WarmUpConfig;
use sparkawait_runtime::{BufferTimeout, DriverConfig};

fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

fn with_capacity(capacity: usize) -> (Config, DriverConfig) {
    let (_, driver) = config();
    (Config::new(OutputMode::Ordered, count(capacity)), driver)
}

/// Lets the turn end once `row` is called, and answers nothing.
fn hang_at(row: u32) -> Script {
    Box::new(move |world, told| {
        if matches!(told, Told::Call(value, _) if value == row) {
            world.clock.end_turn();
        }
    })
}

/// Answers all calls except that of `row`, which ends the turn.
fn echo_until(row: u32) -> Script {
    Box::new(move |world, told| match told {
        Told::Call(value, _) if value == row => world.clock.end_turn(),
        told => echo(world, told),
    })
}

fn chain(first: Script, second: Script) -> Chain {
    Chain::new(vec![(config(), first), (config(), second)])
}

#[test]
fn results_of_one_operator_are_the_rows_of_the_next() {
    let operators = (0..3).map(|_| (config(), Box::new(echo) as Script)).collect();
    let mut chain = Chain::new(operators);
    chain.feed(&[1, 2]);
    chain.feed(&[3]);
    chain.feeder.put_end();

    let (rows, end) = chain.run();

    assert_eq!(
        (rows, end),
        (vec!["100=1000".into(), "200=2000".into(), "300=3000".into()], Ok(()))
    );
    assert_eq!(chain.told(2), ["call 100.1", "call 200.1", "call 300.1", "close"]);
}

#[test]
fn second_operator_begins_with_the_first_row_that_is_completed() {
    let mut chain = chain(echo_until(2), hang_at(10));
    chain.feed(&[1, 2, 3]);

    chain.pause();

    assert_eq!(chain.told(1), ["call 10.1"]);
    assert_eq!(chain.told(0), ["call 1.1", "call 2.1", "call 3.1"]);
}

#[test]
fn operator_whose_next_is_full_keeps_its_rows_and_takes_no_more() {
    let operators: Vec<((Config, DriverConfig), Script)> =
        vec![(with_capacity(2), Box::new(echo)), (with_capacity(1), hang_at(10))];
    let mut chain = Chain::new(operators);
    chain.feed(&[1, 2, 3, 4, 5]);
    chain.pause();
    chain.worlds[0].clock.tick(60_000_000);
    chain.pause();

    assert_eq!(chain.told(0), ["call 1.1", "call 2.1", "call 3.1"], "two of them wait");
    assert_eq!(chain.told(1), ["call 10.1"]);
    let metrics = chain.driver.metrics_reader().read();
    assert_eq!([metrics[0].operator.queue_size, metrics[1].operator.queue_size], [2, 1]);
    assert_eq!(chain.seen[1].lock().unwrap().waiting, 0, "nothing lies between them");
}

#[test]
fn mail_of_an_operator_that_is_full_goes_before_mail_of_those_before_it() {
    let seen = Arc::new(Mutex::new(None));
    let at_second_call = Arc::clone(&seen);
    let first: Arc<Mutex<Option<Arc<Mutex<crate::support::Seen>>>>> = Arc::default();
    let of_first = Arc::clone(&first);
    let second: Script = Box::new(move |world, told| match told {
        Told::Call(10, _) => world.clock.end_turn(),
        Told::Call(20, _) => {
            let first = of_first.lock().unwrap();
            *at_second_call.lock().unwrap() =
                first.as_ref().map(|it| it.lock().unwrap().handled.len());
            world.clock.end_turn();
        }
        _ => {}
    });
    let mut chain = Chain::new(vec![(config(), hang_at(5)), (with_capacity(1), second)]);
    *first.lock().unwrap() = Some(Arc::clone(&chain.seen[0]));
    chain.feed(&[1, 2, 3, 4, 5]);
    chain.pause();
    chain.reply(0, 1);
    chain.reply(0, 2);
    chain.pause();
    assert_eq!(chain.told(1), ["call 10.1"], "which is full now, and 2 waits for it");
    chain.reply(0, 3);
    chain.reply(0, 4);
    chain.reply(1, 10);

    chain.pause();

    assert_eq!(*seen.lock().unwrap(), Some(2), "replies to the first operator that were handled");
}

#[test]
fn rows_without_results_reach_nobody_and_end_with_the_rest() {
    let first: Script = Box::new(|world, told| match told {
        Told::Call(1, attempt) => assert!(world.send(attempt, Ok(NO_RESULT), Retry::No)),
        told => echo(world, told),
    });
    let mut chain = chain(first, Box::new(echo));
    chain.feed(&[1, 2]);
    chain.feeder.put_end();

    assert_eq!(chain.run(), (vec!["20=200".to_owned()], Ok(())));
}

#[test]
fn failure_in_the_first_operator_ends_all_after_what_had_left_the_last() {
    let first: Script = Box::new(|world, told| match told {
        Told::Call(3, _) => world.clock.end_turn(),
        told => echo(world, told),
    });
    let mut chain = chain(first, echo_until(20));
    chain.feed(&[1, 2, 3]);
    chain.pause();

    assert!(chain.worlds[0].fail(chain.attempt(0, 3), Retry::No));

    assert_eq!(chain.run(), (vec!["10=100".to_owned()], Err("3 is down".to_owned())));
    assert_eq!(chain.told(1), ["call 10.1", "call 20.1", "cancel", "close"]);
    assert!(!chain.worlds[1].reply(20, chain.attempt(1, 20)), "nobody takes replies any more");
}

#[test]
fn failure_in_the_last_operator_ends_the_calls_of_all_before_its_output_is_taken() {
    let second: Script = Box::new(|world, told| match told {
        Told::Call(20, attempt) => assert!(world.fail(attempt, Retry::No)),
        told => echo(world, told),
    });
    let mut chain = chain(echo_until(3), second);
    chain.feed(&[1, 2, 3]);

    assert_eq!(chain.output(), ["10=100"]);
    assert_eq!(chain.told(0), ["call 1.1", "call 2.1", "call 3.1", "cancel"]);
    assert_eq!(chain.driver.take_turn().unwrap_err(), "20 is down");
}

#[test]
fn promise_that_one_function_breaks_fails_the_task() {
    let second: Script = Box::new(|world, told| {
        if let Told::Call(_, attempt) = told {
            assert!(world.send(attempt, Ok(BAD_RESULT), Retry::No));
        }
    });
    let mut chain = chain(Box::new(echo), second);
    chain.feed(&[1]);

    assert_eq!(chain.run(), (vec![], Err("bad result".to_owned())));
}

#[test]
fn each_operator_has_its_own_timeout() {
    let (mut first, driver) = config();
    (first.timeout, first.on_failure) = (Some(nanos(1000)), FailurePolicy::Emit);
    let (mut second, _) = config();
    (second.timeout, second.on_failure) = (Some(nanos(5000)), FailurePolicy::Emit);
    let quiet = |_: &World, _: Told| {};
    let scripts: [Script; 2] = [Box::new(quiet), Box::new(quiet)];
    let [one, two] = scripts;
    let mut chain = Chain::new(vec![((first, driver), one), ((second, driver), two)]);
    chain.worlds[0].clock.tick(100);
    chain.feed(&[7]);
    chain.feeder.put_end();

    let (rows, end) = chain.run();

    assert_eq!((rows, end), (vec!["7 timed out".to_owned()], Ok(())));
    let metrics = chain.driver.metrics_reader().read();
    assert_eq!([metrics[0].operator.timeouts, metrics[1].operator.timeouts], [1, 1]);
    assert!(chain.worlds[0].clock.nanos() >= 6000);
}

#[test]
fn output_leaves_as_the_last_operator_says() {
    let (operator, mut one) = config();
    (one.max_rows_per_batch, one.buffer_timeout) = (1, BufferTimeout::After(nanos(1)));
    let (_, mut two) = config();
    two.max_rows_per_batch = 2;
    let operators: Vec<((Config, DriverConfig), Script)> =
        vec![((operator.clone(), one), Box::new(echo)), ((operator, two), Box::new(echo))];
    let mut chain = Chain::new(operators);
    chain.feed(&[1, 2, 3]);
    chain.feeder.put_end();

    assert_eq!(chain.output(), ["10=100", "20=200"]);
    assert_eq!(chain.output(), ["30=300"]);
}

#[test]
fn few_calls_are_made_anywhere_until_rows_have_left_the_last_operator() {
    let (_, driver) = config();
    let warm_up = Some(WarmUpConfig { max_calls: count(40), rows_per_call: count(1) });
    let cold =
        || (Config::new(OutputMode::Unordered, count(40)), DriverConfig { warm_up, ..driver });
    let mut chain = Chain::new(vec![(cold(), Box::new(echo)), (cold(), hang_at(50))]);
    let rows: Vec<u32> = (1..=30).collect();
    chain.feed(&rows);
    chain.pause();
    chain.worlds[0].clock.tick(60_000_000);
    chain.pause();

    assert_eq!([chain.told(0).len(), chain.told(1).len()], [5, 5]);
    assert!(!chain.driver.is_open());

    chain.reply(1, 10);
    assert_eq!(chain.output(), ["10=100"]);
    chain.pause();
    chain.pause();
    assert!(chain.driver.is_open());
}

#[test]
fn close_ends_all_operators() {
    let mut chain = chain(echo_until(2), hang_at(10));
    chain.feed(&[1, 2]);
    chain.pause();

    chain.driver.close();
    chain.driver.close();

    assert_eq!(chain.told(0), ["call 1.1", "call 2.1", "close"]);
    assert_eq!(chain.told(1), ["call 10.1", "close"]);
    assert!(!chain.feeder.put(vec![3]));
}

#[test]
fn a_panic_while_one_function_is_closed_leaves_no_other_open() {
    let refuses = |which: &'static str| -> Script {
        Box::new(move |world, told| match told {
            Told::Close => std::panic::panic_any(which),
            told => echo(world, told),
        })
    };
    let operators = [refuses("first"), refuses("second"), Box::new(echo)];
    let mut chain = Chain::new(operators.into_iter().map(|it| (config(), it)).collect());
    chain.feed(&[1, 2, 3]);

    let closed = catch_unwind(AssertUnwindSafe(|| chain.driver.close()));

    // What it was raised with is told, and the last one could end its calls.
    assert_eq!(closed.unwrap_err().downcast_ref(), Some(&"first"));
    for position in 0..3 {
        assert_eq!(chain.told(position).last().unwrap(), "close", "of function {position}");
    }
}
