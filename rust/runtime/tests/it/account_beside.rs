// SPDX-License-Identifier: Apache-2.0
//! A row that is lost between an operator and one of the functions that it calls side by side.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex};

use crate::support::chain::Script;
use crate::support::{ManualClock, Numbers, Reply, Scripted, Told, World, config, echo};
use sparkawait_core::operator::{AttemptId, Completion, Retry};
use sparkawait_core::policy::CallSign;
use sparkawait_runtime::{ChainedOperator, Driver, FanOut, Feeder, Mailbox, OperatorChain, Turn};

/// The row that is lost, and the branch that does not get it.
const LOST: u32 = 2;
const BRANCH: usize = 1;

/// Where it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loses {
    Nothing,
    /// On the way to the branch; the others answer for it.
    CallUnseen,
    /// On the way to the branch.
    Call,
    /// On the way back.
    Output,
    /// Nowhere: it is there twice.
    Doubled,
}

type Calls = Arc<Mutex<Vec<(u32, AttemptId)>>>;

/// Two branches, which get all rows but the one that is lost.
struct Beside {
    calls: Calls,
    loses: Loses,
    /// By row: its attempt, and the answers that are missing.
    waiting: BTreeMap<u32, (AttemptId, usize)>,
}

impl FanOut<Numbers> for Beside {
    fn has_calls(&self) -> bool {
        !self.calls.lock().unwrap().is_empty()
    }

    fn take_calls(&mut self) -> Result<Vec<(usize, Vec<u32>)>, String> {
        let calls = mem::take(&mut *self.calls.lock().unwrap());
        let rows: Vec<u32> = calls.iter().map(|it| it.0).collect();
        for (row, attempt) in calls {
            let is_short = row == LOST && self.loses == Loses::CallUnseen;
            self.waiting.insert(row, (attempt, if is_short { 1 } else { 2 }));
        }
        let mut others = rows.clone();
        match self.loses {
            Loses::Call | Loses::CallUnseen => others.retain(|it| *it != LOST),
            Loses::Doubled => others.extend(rows.iter().filter(|it| **it == LOST)),
            Loses::Nothing | Loses::Output => {}
        }
        let of_branches = [(0, rows), (BRANCH, others)];
        Ok(of_branches.into_iter().filter(|it| !it.1.is_empty()).collect())
    }

    fn accept(&mut self, branch: usize, output: Vec<String>) -> Result<(), String> {
        for text in output {
            let row: u32 = text.split_once('=').unwrap().0.parse().unwrap();
            let is_lost = row == LOST && branch == BRANCH && self.loses == Loses::Output;
            if let Some(waiting) = self.waiting.get_mut(&row).filter(|_| !is_lost) {
                waiting.1 = waiting.1.saturating_sub(1);
            }
        }
        Ok(())
    }

    fn take_reply(&mut self) -> Result<Option<Reply>, String> {
        let mut reply = Reply::new();
        self.waiting.retain(|row, (attempt, missing)| {
            if *missing == 0 {
                let (retry, sign) = (Retry::No, CallSign::Good);
                reply.push((*attempt, Completion { outcome: Ok(row * 10), retry, sign }));
            }
            *missing > 0
        });
        Ok((!reply.is_empty()).then_some(reply))
    }

    fn failure(&self, error: String) -> String {
        error
    }

    fn held_bytes(&self) -> usize {
        0
    }
}

/// Runs a task of three rows and two functions; returns what left, and how it ended.
fn run(loses: Loses) -> (Vec<String>, Result<(), String>) {
    let (mailbox, clock) = (Mailbox::new(), ManualClock::default());
    clock.tick(99_999_000);
    let calls = Calls::default();
    let noted = Arc::clone(&calls);
    let script: Script = Box::new(move |_, told| {
        if let Told::Call(row, attempt) = told {
            noted.lock().unwrap().push((row, attempt));
        }
    });
    let operator = |position: usize, script: Script| {
        let (operator, driver) = config();
        let world = World { clock: clock.clone(), replies: mailbox.reply_sender(position) };
        let function = Scripted::new(script, world);
        ChainedOperator::new(operator, driver, Numbers::default(), function)
    };
    let branches = [operator(1, Box::new(echo)), operator(2, Box::new(echo))];
    let beside = Beside { calls, loses, waiting: BTreeMap::new() };
    let chain = OperatorChain::new(operator(0, script)).fan_out(branches, Box::new(beside));
    let (mut driver, feeder): (_, Feeder<Numbers>) = Driver::new(mailbox, chain, clock.clone());
    assert!(feeder.put(vec![1, LOST, 3]));
    feeder.put_end();
    turns(&mut driver)
}

fn turns(
    driver: &mut Driver<Numbers, Scripted<Script>, ManualClock>,
) -> (Vec<String>, Result<(), String>) {
    let mut rows = Vec::new();
    loop {
        match driver.take_turn() {
            Ok(Turn::Output(batch)) => rows.extend(batch),
            Ok(Turn::Paused) => {}
            Ok(Turn::Finished) => return (rows, Ok(())),
            Err(error) => return (rows, Err(error)),
        }
    }
}

#[test]
fn what_each_of_two_functions_was_called_for_adds_up() {
    assert_eq!(run(Loses::Nothing), (["1=10", "2=20", "3=30"].map(str::to_owned).to_vec(), Ok(())));
}

#[test]
fn a_row_that_one_of_two_functions_never_got_fails_the_task_though_the_other_answered() {
    let (rows, end) = run(Loses::CallUnseen);

    assert_eq!(rows, ["1=10", "2=20", "3=30"]);
    let error = end.unwrap_err();
    let numbers = "operator 2 (`numbers`) has lost or doubled rows: it was called for 3 rows beside \
                   others, but 2 came in, 2 came out, and 3 have their answer. Options: Config {";
    assert!(error.starts_with(numbers), "{error}");
}

#[test]
fn a_row_that_one_of_two_functions_got_twice_fails_the_task() {
    let error = run(Loses::Doubled).1.unwrap_err();

    let numbers = "it was called for 3 rows beside others, but 4 came in, 4 came out";
    assert!(error.contains(numbers), "{error}");
}

#[test]
fn a_task_that_waits_for_a_row_that_is_lost_says_between_whom() {
    let cases = [
        (Loses::Call, "operator 2 (`numbers`)", "but 2 came in, 2 came out, and 2"),
        (Loses::Output, "operator 1 (`numbers`)", "but 3 came in, 3 came out, and 2"),
    ];
    for (loses, operator, numbers) in cases {
        let (_, end) = run(loses);

        let error = end.unwrap_err();
        assert!(error.starts_with("the task would wait for ever"), "{loses:?}: {error}");
        let lost = format!("{operator} has lost or doubled rows: it was called for 3 rows beside");
        assert!(error.contains(&lost) && error.contains(numbers), "{loses:?}: {error}");
    }
}
