// SPDX-License-Identifier: Apache-2.0
//! Rows that outlive a part of the input, in the task and in what is saved of it.
//!
//! Random schedules: parts come, calls are answered or not, tasks are lost with or without the part
//! that they worked on. What leaves is held against what came.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch};
use sparkawait_core::operator::{AttemptId, OutputMode};
use sparkawait_runtime::{AsyncFunction, Patience, Turn};
use sparkawait_task::function::{Calls, Replies, ResultGroup};
use sparkawait_task::saved::SavedOperator;
use sparkawait_task::task::{TaskBuilder, TaskCarry, TaskDriver, TaskFeeder};

use support::random::Random;
use support::{KEYS, column, input, schema, task_config};

mod support;

/// Calls that were not answered, by their rows, and how often each row was called.
#[derive(Default)]
struct World {
    pending: VecDeque<(AttemptId, i64)>,
    calls: BTreeMap<i64, usize>,
    random: Option<Random>,
    /// How many of a hundred calls are answered at once.
    quick: usize,
    /// Calls that may wait; the oldest are answered for the others.
    most: usize,
}

/// Answers some of the calls, as the world wants it.
struct Answering {
    world: Arc<Mutex<World>>,
    replies: Replies,
}

impl Answering {
    fn answer(replies: &Replies, calls: &[(AttemptId, i64)]) {
        if calls.is_empty() {
            return;
        }
        let values = Int64Array::from_iter_values(calls.iter().map(|(_, row)| *row));
        let rows = RecordBatch::try_new(schema(&["result"]), vec![Arc::new(values)]).unwrap();
        let attempts = calls.iter().map(|(attempt, _)| *attempt).collect();
        let group = ResultGroup::one_each(attempts, rows);
        replies.send(group.into());
    }
}

impl AsyncFunction<Calls> for Answering {
    fn invoke(&mut self, calls: Calls) {
        let mut world = self.world.lock().unwrap();
        let mut answered = Vec::new();
        let (quick, most) = (world.quick, world.most);
        let mut random = world.random.take().unwrap();
        for call in &calls.calls {
            let row = column(&calls.batches[call.batch as usize].batch, "row")[call.row as usize];
            *world.calls.entry(row).or_default() += 1;
            if random.in_a_hundred(quick) {
                answered.push((call.attempt, row));
            } else {
                world.pending.push_back((call.attempt, row));
            }
        }
        while world.pending.len() > most {
            answered.extend(world.pending.pop_front());
        }
        world.random = Some(random);
        drop(world);
        Self::answer(&self.replies, &answered);
    }

    fn ask_timeout(&mut self, _calls: Calls) {}

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {}

    fn close(&mut self) {}
}

/// A task that lives for some parts.
struct Live {
    driver: TaskDriver,
    feeder: TaskFeeder,
    replies: Replies,
}

struct Stream {
    mode: OutputMode,
    capacity: usize,
    world: Arc<Mutex<World>>,
}

impl Stream {
    fn start(&self, saved: Vec<SavedOperator>) -> Live {
        self.world.lock().unwrap().pending.clear();
        let mut kept = None;
        let config = task_config(self.mode, self.capacity);
        let world = Arc::clone(&self.world);
        let builder = TaskBuilder::restored(saved.into(), config, |replies| {
            kept = Some(replies.clone());
            Ok(Box::new(Answering { world, replies }) as Box<_>)
        });
        let (driver, feeder) = builder.unwrap().build();
        Live { driver, feeder, replies: kept.unwrap() }
    }
}

impl Live {
    /// Works a part off.
    fn part(&mut self, rows: Vec<RecordBatch>, patience: Patience, stream: &Stream) -> TaskCarry {
        let mut rows = VecDeque::from(rows);
        let mut outputs = Vec::new();
        loop {
            while let Some(batch) = rows.pop_front() {
                if let Err(batch) = self.feeder.put_within(batch, Duration::ZERO) {
                    rows.push_front(batch);
                    break;
                }
                if rows.is_empty() {
                    self.feeder.put_end_of_part(patience);
                }
            }
            match self.driver.take_turn().unwrap() {
                Turn::Output(batch) => outputs.push(batch),
                Turn::Finished => unreachable!("the input has no end"),
                Turn::Paused if self.driver.has_part_ended() => break,
                // A row that is not answered holds up all others.
                Turn::Paused => self.answer_some(stream, usize::MAX),
            }
        }
        let carry = self.driver.carry().unwrap();
        outputs.extend(carry.outputs);
        TaskCarry { outputs, operators: carry.operators }
    }

    fn answer_some(&self, stream: &Stream, most: usize) {
        let mut world = stream.world.lock().unwrap();
        let count = world.pending.len().min(most);
        let answered: Vec<_> = world.pending.drain(..count).collect();
        drop(world);
        Answering::answer(&self.replies, &answered);
    }
}

/// Runs a stream of random parts; returns the rows that left, and how often each was called.
fn run(mode: OutputMode, seed: u64) -> (Vec<i64>, i64, BTreeMap<i64, usize>, usize) {
    let mut random = Random(seed);
    let capacity = 1 + random.below(20);
    let world =
        World { quick: random.below(100), most: random.below(capacity), ..World::default() };
    let stream = Stream { mode, capacity, world: Arc::new(Mutex::new(world)) };
    stream.world.lock().unwrap().random = Some(Random(seed ^ 1));
    let (mut left, mut next, mut losses) = (Vec::new(), 0, 0);
    // What a stream keeps: the rows that leave with the next part, and what is not completed.
    let (mut completed, mut saved) = (Vec::new(), Vec::new());
    let mut live = stream.start(Vec::new());
    for part in 0..12 {
        if random.in_a_hundred(25) {
            losses += 1;
            live = stream.start(saved.clone());
        }
        let bounds: Vec<i64> =
            (0..=random.below(3)).map(|_| i64::try_from(random.below(12)).unwrap()).collect();
        let mut batches = Vec::new();
        for rows in bounds {
            batches.push(input(next..next + rows));
            next += rows;
        }
        let patience = if part == 11 {
            stream.world.lock().unwrap().quick = 100;
            live.answer_some(&stream, usize::MAX);
            Patience::Drain
        } else {
            live.answer_some(&stream, random.below(4));
            Patience::Linger(Duration::ZERO)
        };
        let mut carry = live.part(batches.clone(), patience, &stream);
        if random.in_a_hundred(15) {
            // The part did not count, and comes again.
            losses += 1;
            live = stream.start(saved.clone());
            carry = live.part(batches, patience, &stream);
        }
        left.append(&mut completed);
        completed.extend(carry.outputs.iter().flat_map(|it| {
            assert_eq!(column(it, "row"), column(it, "result"));
            column(it, "row")
        }));
        saved = carry.operators;
    }
    left.append(&mut completed);
    let held: usize = saved.iter().map(|it| it.pending + it.completed).sum();
    assert_eq!(held, 0, "a stream that was drained holds nothing");
    let calls = std::mem::take(&mut stream.world.lock().unwrap().calls);
    (left, next, calls, losses)
}

fn check(mode: OutputMode, seed: u64) -> Vec<i64> {
    let (left, count, calls, losses) = run(mode, seed);
    let mut rows = left.clone();
    rows.sort_unstable();
    assert_eq!(rows, (0..count).collect::<Vec<_>>(), "seed {seed}");
    assert!(calls.values().all(|&it| it <= 1 + losses), "seed {seed}");
    if losses == 0 {
        assert!(calls.values().all(|&it| it == 1), "seed {seed}");
    }
    left
}

const CASES: u64 = 15;

#[test]
fn unordered_rows_leave_once() {
    for seed in 0..CASES {
        check(OutputMode::Unordered, seed);
    }
}

#[test]
fn ordered_rows_leave_once_and_in_order() {
    for seed in 0..CASES {
        assert!(check(OutputMode::Ordered, seed).is_sorted(), "seed {seed}");
    }
}

#[test]
fn rows_of_a_key_leave_once_and_in_order() {
    for seed in 0..CASES {
        let rows = check(OutputMode::KeyOrdered, seed);
        for key in 0..KEYS {
            let of_key = rows.iter().filter(|it| **it % KEYS == key);
            assert!(of_key.is_sorted(), "seed {seed}, key {key}");
        }
    }
}

#[test]
fn rows_that_were_restored_are_counted() {
    let world = World { most: 10, random: Some(Random(0)), ..World::default() };
    let stream =
        Stream { mode: OutputMode::Ordered, capacity: 4, world: Arc::new(Mutex::new(world)) };
    let at_once = Patience::Linger(Duration::ZERO);
    let mut live = stream.start(Vec::new());
    let mut saved = live.part(vec![input(0..2)], at_once, &stream).operators;
    for restarts in 1..=3 {
        live = stream.start(saved);
        assert!(live.driver.holds_restored(restarts));
        assert!(!live.driver.holds_restored(restarts + 1));
        saved = live.part(vec![input(0..0)], at_once, &stream).operators;
    }

    assert_eq!(saved[0].rows.iter().map(|it| it.restarts).collect::<Vec<_>>(), [3]);
    assert_eq!((saved[0].pending, saved[0].completed), (2, 0));
}
