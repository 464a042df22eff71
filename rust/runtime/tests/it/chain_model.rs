// SPDX-License-Identifier: Apache-2.0
//! Chains of random operators against a model that only counts.
//!
//! The world acts whenever the driver looks at the clock: it feeds a batch, answers a call, lets
//! it fail, or lets time pass. What each operator took and gave is held against its mode.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::support::chain::{Chain, Script};
use crate::support::random::Random;
use crate::support::{ManualClock, Seen, TaskFeeder, Told, World, nanos};
use sparkawait_core::operator::{AttemptId, Config, EndOfInput, FailurePolicy, OutputMode, Retry};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::clock::Clock;
use sparkawait_runtime::{BufferTimeout, DriverConfig, Turn};

const CASES: u64 = 200;

/// A call that was not answered.
#[derive(Clone, Copy, Debug)]
struct Pending {
    position: usize,
    row: u32,
    attempt: AttemptId,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    capacity: usize,
    max_concurrency: usize,
}

/// What the world knows and does.
struct State {
    random: Random,
    clock: ManualClock,
    input: Vec<Vec<u32>>,
    fed: usize,
    feeder: Option<TaskFeeder>,
    worlds: Vec<World>,
    seen: Vec<Arc<Mutex<Seen>>>,
    limits: Vec<Limits>,
    pending: Vec<Pending>,
    closed: Vec<usize>,
    /// Of a hundred calls, how many fail, and how many are never answered.
    failing: usize,
    hanging: usize,
}

impl State {
    fn told(&mut self, position: usize, told: Told) {
        match told {
            Told::Call(row, attempt) | Told::AskTimeout(row, attempt) => {
                if !self.random.in_a_hundred(self.hanging) {
                    self.pending.push(Pending { position, row, attempt });
                }
            }
            Told::Cancel(gone) => {
                self.pending.retain(|it| (it.position, it.attempt) != (position, gone));
            }
            Told::Close => self.closed.push(position),
        }
    }

    /// Does something, and checks what is bounded.
    fn act(&mut self) {
        self.check_bounds();
        if self.random.in_a_hundred(5) {
            // More than any row may take, so that the driver finds deadlines to be due.
            self.clock.advance(60_000_000);
            return;
        }
        self.clock.advance(self.random.next() % 200);
        if self.random.in_a_hundred(25) {
            self.feed();
        } else {
            self.answer();
        }
        // Wakes the driver, so that it never waits in earnest.
        self.worlds[0].replies.send(Vec::new());
    }

    fn feed(&mut self) {
        // Two batches may wait; a third would wait for the thread that is here.
        if self.fed == self.seen[0].lock().unwrap().inputs + 2 {
            return;
        }
        let Some(feeder) = self.feeder.clone() else { return };
        if let Some(rows) = self.input.pop() {
            feeder.put(rows);
            self.fed += 1;
        } else {
            feeder.put_end();
            self.feeder = None;
        }
    }

    fn answer(&mut self) {
        for _ in 0..self.random.below(4) {
            if self.pending.is_empty() {
                return;
            }
            let index = self.random.below(self.pending.len());
            let Pending { position, row, attempt } = self.pending.swap_remove(index);
            let world = &self.worlds[position];
            if self.random.in_a_hundred(self.failing) {
                let retry = if self.random.in_a_hundred(50) { Retry::Yes } else { Retry::No };
                world.fail(attempt, retry);
            } else {
                world.send(attempt, Ok(row + STEP), Retry::No);
            }
        }
    }

    fn check_bounds(&self) {
        for (position, limits) in self.limits.iter().enumerate() {
            let seen = self.seen[position].lock().unwrap();
            let held = seen.admitted.len() - seen.emitted.len();
            assert!(held <= limits.capacity, "operator {position} holds {held} rows");
            if position > 0 {
                assert_eq!(seen.waiting, 0, "rows lie before operator {position}");
            }
            drop(seen);
            let calls = self.pending.iter().filter(|it| it.position == position).count();
            assert!(calls <= limits.max_concurrency, "operator {position} makes {calls} calls");
        }
    }
}

/// A row at the next operator is the row and this, unless it failed: then it is the row.
const STEP: u32 = 1000;

#[derive(Clone)]
struct ActingClock {
    clock: ManualClock,
    state: Arc<Mutex<Option<State>>>,
}

impl Clock for ActingClock {
    fn now(&self) -> ProcessingTime {
        if let Some(state) = lock(&self.state).as_mut() {
            state.act();
        }
        self.clock.now()
    }
}

fn lock(state: &Mutex<Option<State>>) -> MutexGuard<'_, Option<State>> {
    state.lock().unwrap()
}

struct Case {
    chain: Chain<ActingClock>,
    state: Arc<Mutex<Option<State>>>,
    modes: Vec<OutputMode>,
    rows: Vec<u32>,
    fails: bool,
    random: Random,
}

fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

fn operator(random: &mut Random, fails: bool) -> (Config, DriverConfig) {
    let modes = [OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered];
    let mut config = Config::new(modes[random.below(3)], count(1 + random.below(12)));
    config.max_concurrency = count(1 + random.below(config.capacity.get()));
    config.timeout = Some(nanos(50_000_000));
    config.at_end_of_input = EndOfInput::KeepRetrying;
    config.on_failure = if fails { FailurePolicy::FailTask } else { FailurePolicy::Emit };
    config.retry = random.in_a_hundred(50).then(|| AsyncRetryStrategy::fixed_delay(2, nanos(500)));
    let driver = DriverConfig {
        max_rows_per_batch: 1 + random.below(20),
        // A row of input counts a hundred bytes: four batches of it are few rows.
        max_bytes_per_batch: if random.in_a_hundred(30) { 100 } else { 64 << 20 },
        capacity_bytes: None,
        growth: None,
        buffer_timeout: match random.below(3) {
            0 => BufferTimeout::Never,
            1 => BufferTimeout::After(nanos(1000)),
            _ => BufferTimeout::Auto { consumer: nanos(10) },
        },
        target_latency: None,
        warm_up: None,
        expected_result_bytes: None,
    };
    (config, driver)
}

fn case(seed: u64) -> Case {
    let mut random = Random(seed);
    let fails = random.in_a_hundred(30);
    let operators: Vec<_> = (0..=random.below(3)).map(|_| operator(&mut random, fails)).collect();
    let (clock, state) = (ManualClock::default(), Arc::<Mutex<Option<State>>>::default());
    let modes = operators.iter().map(|(config, _)| config.mode).collect();
    let limits = operators.iter().map(|(config, _)| Limits {
        capacity: config.capacity.get(),
        max_concurrency: config.max_concurrency.get(),
    });
    let limits = limits.collect();
    let scripts = operators.into_iter().enumerate().map(|(position, config)| {
        let state = Arc::clone(&state);
        let tell = move |_: &World, told| {
            if let Some(state) = lock(&state).as_mut() {
                state.told(position, told);
            }
        };
        (config, Box::new(tell) as Script)
    });
    let acting = ActingClock { clock: clock.clone(), state: Arc::clone(&state) };
    let chain = Chain::with_clock(scripts.collect(), &clock, acting);
    let rows: Vec<u32> = (1..=u32::try_from(random.below(60)).unwrap()).collect();
    let size = 1 + random.below(20);
    let input = rows.chunks(size).rev().map(<[u32]>::to_vec).collect();
    *lock(&state) = Some(State {
        random: random.clone(),
        clock,
        input,
        fed: 0,
        feeder: Some(chain.feeder.clone()),
        worlds: chain.worlds.clone(),
        seen: chain.seen.clone(),
        limits,
        pending: Vec::new(),
        closed: Vec::new(),
        failing: if fails { random.below(4) } else { random.below(30) },
        hanging: random.below(5),
    });
    Case { chain, state, modes, rows, fails, random }
}

/// Returns what left an operator in the order that its mode promises, if it keeps any.
fn check_order(mode: OutputMode, admitted: &[u32], emitted: &[u32]) {
    let of_key = |rows: &[u32], key: u32| -> Vec<u32> {
        rows.iter().copied().filter(|row| row % 3 == key).collect()
    };
    match mode {
        OutputMode::Ordered => assert!(admitted.starts_with(emitted), "order"),
        OutputMode::KeyOrdered => {
            for key in 0..3 {
                let (took, gave) = (of_key(admitted, key), of_key(emitted, key));
                assert!(took.starts_with(&gave), "order of key {key}");
            }
        }
        OutputMode::Unordered => {}
    }
    assert_eq!(counts(emitted).iter().find(|(_, times)| **times > 1), None, "emitted twice");
}

fn counts(rows: &[u32]) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for row in rows {
        *counts.entry(row % STEP).or_default() += 1;
    }
    counts
}

/// The row that a line of the output began as.
fn origin(line: &str) -> u32 {
    let row: u32 = line.split(['=', ' ']).next().unwrap().parse().unwrap();
    row % STEP
}

fn check(case: &Case, output: &[String], has_finished: bool) {
    let seen: Vec<_> = case.chain.seen.iter().map(|it| it.lock().unwrap()).collect();
    for (position, seen) in seen.iter().enumerate() {
        check_order(case.modes[position], &seen.admitted, &seen.emitted);
    }
    for pair in seen.windows(2) {
        let [gave, took] = [&pair[0].emitted, &pair[1].admitted].map(|rows| origins(rows));
        assert!(gave.starts_with(&took), "an operator took other rows than it was given");
        if has_finished {
            assert_eq!(gave, took);
        }
    }
    let mut left: Vec<u32> = output.iter().map(|line| origin(line)).collect();
    left.sort_unstable();
    let is_distinct = left.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(is_distinct, "a row left twice");
    if has_finished {
        assert_eq!(left, case.rows, "rows are missing");
    }
}

fn origins(rows: &[u32]) -> Vec<u32> {
    rows.iter().map(|row| row % STEP).collect()
}

#[test]
fn every_row_passes_once_and_every_mode_keeps_its_order() {
    for seed in 0..CASES {
        let mut case = case(seed);
        let (output, end) = case.chain.run();
        check(&case, &output, end.is_ok());
        assert!(case.fails || end.is_ok(), "seed {seed}: {end:?}");
        let operators = case.modes.len();
        let state = lock(&case.state).take().unwrap();
        assert_eq!(state.closed.len(), operators, "seed {seed}");
        assert!(!state.worlds[0].replies.send(Vec::new()), "seed {seed}: takes replies");
    }
}

#[test]
fn chain_may_be_closed_at_any_time() {
    for seed in 0..CASES {
        let mut case = case(seed);
        let (turns, mut output) = (case.random.below(20), Vec::new());
        for _ in 0..turns {
            match case.chain.driver.take_turn() {
                Ok(Turn::Output(batch)) => output.extend(batch),
                Ok(Turn::Paused) => {}
                Ok(Turn::Finished) | Err(_) => break,
            }
        }
        case.chain.driver.close();

        check(&case, &output, false);
        let state = lock(&case.state).take().unwrap();
        assert_eq!(state.closed.len(), case.modes.len(), "seed {seed}");
        assert!(!case.chain.feeder.put(vec![1]));
    }
}
