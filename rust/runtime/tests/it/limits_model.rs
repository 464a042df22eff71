// SPDX-License-Identifier: Apache-2.0
//! Tasks with random limits in time: every row that goes in comes out, and no window has more than
//! the limit lets pass.
//!
//! The world acts whenever the driver looks at the clock: it feeds a batch, answers a call or lets
//! it fail, and lets time pass.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::support::chain::{Chain, Script};
use crate::support::random::Random;
use crate::support::{
    ManualClock, TaskFeeder, Told, WITHOUT_CHANNEL, World, config, cost_of, nanos,
};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{AttemptId, Config, EndOfInput, FailurePolicy, OutputMode, Retry};
use sparkawait_core::policy::{
    Counted, Gcra, HedgeAfter, HedgeConfig, LimitConfig, LimitLeft, PolicyConfig, Rate, Renewal,
};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::DriverConfig;
use sparkawait_runtime::clock::Clock;

const CASES: u64 = 600;

/// What a task is made of.
#[derive(Clone, Copy, Debug)]
struct Plan {
    permits: u64,
    period: u64,
    burst: u64,
    /// What each call costs; `None`: each row has a cost.
    cost: Option<u64>,
    rows: u32,
    /// Whether rows have channels, and each of them a limit of its own.
    channels: Option<bool>,
    tells: Option<LimitLeft>,
}

impl Plan {
    fn new(random: &mut Random) -> Self {
        let bucket = |random: &mut Random| LimitLeft {
            counted: Counted::Requests,
            remaining: random.next() % 20,
            renewed_in: nanos(1 + random.next() % 30_000),
            renewal: if random.in_a_hundred(50) { Renewal::Evenly } else { Renewal::AtOnce },
        };
        Self {
            permits: 1 + random.next() % 100,
            period: 1 + random.next() % 100_000,
            burst: 1 + random.next() % 23,
            cost: (!random.in_a_hundred(30)).then(|| 1 + random.next() % 7),
            rows: 1 + u32::try_from(random.below(40)).unwrap(),
            channels: random.in_a_hundred(40).then(|| random.in_a_hundred(50)),
            tells: random.in_a_hundred(40).then(|| bucket(random)),
        }
    }

    fn policy(&self) -> PolicyConfig {
        let rate = Rate::new(NonZeroU64::new(self.permits).unwrap(), nanos(self.period)).unwrap();
        let limit = Gcra::new(rate, NonZeroU64::new(self.burst).unwrap());
        PolicyConfig::limited(LimitConfig {
            cost: self.cost.unwrap_or(1),
            is_per_channel: self.channels == Some(true),
            counted: Some(Counted::Requests),
            ..LimitConfig::new(limit)
        })
    }

    fn operator(&self, random: &mut Random) -> (Config, DriverConfig) {
        let modes = [OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered];
        let (mut operator, mut driver) = config();
        operator.mode = modes[random.below(3)];
        operator.capacity = NonZeroUsize::new(1 + random.below(40)).unwrap();
        let calls = 1 + random.below(operator.capacity.get());
        operator.max_concurrency = NonZeroUsize::new(calls).unwrap();
        operator.completed_take_slots = random.in_a_hundred(70);
        operator.at_end_of_input = EndOfInput::KeepRetrying;
        operator.on_failure = FailurePolicy::Emit;
        let retries = random.in_a_hundred(50);
        operator.retry = retries.then(|| AsyncRetryStrategy::fixed_delay(3, nanos(700)));
        operator.hedge = random
            .in_a_hundred(40)
            .then(|| HedgeConfig { after: HedgeAfter::Time(nanos(900)), max_extra: 0.5 });
        let policy = self.policy();
        let channels = if self.channels.is_none() {
            ChannelConfig::single(policy)
        } else {
            let calls = u32::try_from(calls).unwrap();
            ChannelConfig { policy, ..ChannelConfig::floating(calls, 1 + random.below(20)) }
        };
        operator.channels = Some(channels);
        driver.max_rows_per_batch = 1 + random.below(20);
        (operator, driver)
    }

    fn rows(&self) -> Vec<u32> {
        let first = if self.channels.is_some() { 0 } else { WITHOUT_CHANNEL };
        (first + 1..=first + self.rows).collect()
    }

    /// Checks that no time has more calls than the limit lets start.
    fn check_windows(&self, calls: &[(u64, u32)]) {
        for from in 0..calls.len() {
            let mut taken = 0;
            for (at, row) in &calls[from..] {
                taken += self.cost.unwrap_or_else(|| cost_of(*row)).min(self.burst);
                let time = u128::from(at - calls[from].0);
                let most = u128::from(self.burst) * u128::from(self.period)
                    + u128::from(self.permits) * time;
                assert!(u128::from(taken) * u128::from(self.period) <= most, "{self:?}: {calls:?}");
            }
        }
    }
}

/// What the world knows and does.
struct State {
    random: Random,
    clock: ManualClock,
    input: Vec<Vec<u32>>,
    feeder: Option<TaskFeeder>,
    fed: usize,
    taken: Box<dyn Fn() -> usize + Send>,
    world: World,
    pending: Vec<(u32, AttemptId)>,
    /// When calls started, and for which rows.
    calls: Vec<(u64, u32)>,
}

impl State {
    fn told(&mut self, told: Told) {
        match told {
            Told::Call(row, attempt) => {
                self.calls.push((self.clock.nanos(), row));
                self.pending.push((row, attempt));
            }
            Told::Cancel(gone) => self.pending.retain(|it| it.1 != gone),
            Told::AskTimeout(..) | Told::Close => {}
        }
    }

    fn act(&mut self) {
        let time = if self.random.in_a_hundred(10) { 20_000 } else { 300 };
        self.clock.advance(self.random.next() % time);
        if self.random.in_a_hundred(30) {
            self.feed();
        }
        for _ in 0..self.random.below(4).min(self.pending.len()) {
            let index = self.random.below(self.pending.len());
            let (row, attempt) = self.pending.swap_remove(index);
            if self.random.in_a_hundred(15) {
                self.world.fail(attempt, Retry::Yes);
            } else {
                self.world.reply(row, attempt);
            }
        }
        // Wakes the driver, so that it never waits in earnest.
        self.world.replies.send(Vec::new());
    }

    fn feed(&mut self) {
        // Two batches may wait; a third would wait for the thread that is here.
        if self.fed == (self.taken)() + 2 {
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
}

type Shared = Arc<Mutex<Option<State>>>;

fn lock(state: &Shared) -> MutexGuard<'_, Option<State>> {
    state.lock().unwrap()
}

#[derive(Clone)]
struct ActingClock(ManualClock, Shared);

impl Clock for ActingClock {
    fn now(&self) -> ProcessingTime {
        if let Some(state) = lock(&self.1).as_mut() {
            state.act();
        }
        self.0.now()
    }
}

/// What happened to a task.
struct Run {
    mode: OutputMode,
    /// The rows of its output.
    rows: Vec<u32>,
    /// When calls started, and for which rows.
    calls: Vec<(u64, u32)>,
}

/// Runs a task to its end.
fn run(plan: &Plan, mut random: Random) -> Run {
    let (clock, state) = (ManualClock::default(), Shared::default());
    let its = Arc::clone(&state);
    let tell = move |_: &World, told| {
        if let Some(state) = lock(&its).as_mut() {
            state.told(told);
        }
    };
    let operator = plan.operator(&mut random);
    let mode = operator.0.mode;
    let operators = vec![(operator, Box::new(tell) as Script)];
    let acting = ActingClock(clock.clone(), Arc::clone(&state));
    let mut chain = Chain::with_clock(operators, &clock, acting);
    let seen = Arc::clone(&chain.seen[0]);
    {
        let mut seen = seen.lock().unwrap();
        (seen.tells, seen.has_prices) = (plan.tells, plan.cost.is_none());
    }
    let size = 1 + random.below(30);
    *lock(&state) = Some(State {
        random,
        clock,
        input: plan.rows().chunks(size).rev().map(<[u32]>::to_vec).collect(),
        feeder: Some(chain.feeder.clone()),
        fed: 0,
        taken: Box::new(move || seen.lock().unwrap().inputs),
        world: chain.worlds[0].clone(),
        pending: Vec::new(),
        calls: Vec::new(),
    });
    let (output, end) = chain.run();
    // The number of free slots is a hint; if it were wrong, rows would be tried again and again.
    assert_eq!(chain.seen[0].lock().unwrap().put_back, 0, "{plan:?}");
    assert_eq!(end, Ok(()), "{plan:?}");
    let state = lock(&state).take().unwrap();
    // A line of the output begins with its row.
    let origin = |line: &String| line.split(['=', ' ']).next().unwrap().parse().unwrap();
    Run { mode, rows: output.iter().map(origin).collect(), calls: state.calls }
}

#[test]
fn every_row_that_goes_into_a_limited_task_comes_out() {
    for seed in 0..CASES {
        let mut random = Random(seed);
        let plan = Plan::new(&mut random);
        let Run { mode, mut rows, calls } = run(&plan, random);
        if mode != OutputMode::Ordered {
            rows.sort_unstable();
        }
        assert_eq!(rows, plan.rows(), "seed {seed}: {plan:?}");
        if plan.channels != Some(true) {
            plan.check_windows(&calls);
        }
    }
}
