// SPDX-License-Identifier: Apache-2.0
//! All that is drawn from one number: a chain, its options, its input, what calls do, and how it ends.

use serde::{Deserialize, Serialize};

use sparkawait_core::policy::MAX_LIMITS;

use crate::random::Random;

mod calls;
mod limits;
mod numbers;

pub use calls::{
    CachePlan, CallPlan, ChannelsPlan, Failing, HedgePlan, PausePlan, RetryPlan, Script, StallPlan,
};
pub use limits::{BytesPlan, Cut, LimitPlan, OthersPlan, PoolPlan, PoolUse, RequestsPlan};

use numbers::{COUNTS, MICRO, MILLI, SECOND, TIMES, maybe, pick};

/// A task and its world. Plain data, so that it can be made smaller and kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Of all that is not said here: latencies, what each call does, when mail comes.
    pub seed: u64,
    /// Rows of each batch of the input.
    pub batches: Vec<usize>,
    /// Different keys; one in seven rows has none.
    pub keys: u64,
    /// Different channels, and none.
    pub channels: u64,
    /// The chain.
    pub operators: Vec<OperatorPlan>,
    /// Most nanoseconds between two batches.
    pub feed_gap: u64,
    /// Most nanoseconds that pass at a look at the clock.
    pub jitter: u64,
    /// Most nanoseconds for which the consumer does something else; none: it waits.
    pub consumer_pause: u64,
    /// How it ends.
    pub end: End,
    /// Whether its input comes in parts, with rows in flight carried over between them.
    pub parts: Option<PartsPlan>,
    /// What panics on the thread that drives it.
    #[serde(default)]
    pub panics: Option<PanicPlan>,
    /// Permits that no time brings: budgets, and calls at a time.
    #[serde(default)]
    pub pools: Vec<PoolPlan>,
    /// Whether the page of limits that others take from is full of channels that are long gone.
    #[serde(default)]
    pub is_crowded: bool,
    /// Whether what rows come to is kept before they leave.
    #[serde(default)]
    pub journal: Option<JournalPlan>,
}

/// A journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalPlan {
    /// Nanoseconds after which a commit begins.
    pub interval: u64,
    /// Or bytes.
    pub max_bytes: usize,
    /// Nanoseconds that a commit takes at most.
    pub latency: u64,
    /// Whether it has the rows that were asked for, too.
    pub keeps_input: bool,
    /// Of a hundred rows, how many are known before the first run.
    #[serde(default)]
    pub known: usize,
    /// Whether a row that has failed is known, too.
    #[serde(default)]
    pub keeps_failures: bool,
    /// The number of a commit that fails.
    #[serde(default)]
    pub fails: Option<u64>,
    /// How often the scenario is run again. What a run leaves, the next one knows.
    #[serde(default)]
    pub again: u64,
}

/// A panic on the thread of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PanicPlan {
    /// Where.
    pub place: PanicPlace,
    /// Times that this is passed before.
    pub after: u32,
    /// Whether closing a function panics, too.
    pub again: bool,
}

/// Where something panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PanicPlace {
    /// A function is called.
    Function,
    /// The codec lets go of a batch of the input.
    Codec,
    /// The thread looks at the clock.
    Clock,
}

/// How a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// With its input.
    Input,
    /// It is closed before this turn.
    Closed(u32),
    /// Its input fails instead of having a batch more than these.
    InputFails(usize),
}

/// Parts of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartsPlan {
    /// Batches of a part.
    pub batches: usize,
    /// How long a part is waited for.
    pub linger: u64,
    /// Of a hundred parts, how many are lost after they counted: their task is made of what it saved.
    pub lost: usize,
    /// Of a hundred parts, how many do not count, and come again.
    pub again: usize,
    /// Of a hundred tasks that are lost, how many only end what they held: others, which held nothing,
    /// get the rest of the input, as where a query has another number of shards.
    #[serde(default)]
    pub moved: usize,
}

/// An operator of the chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorPlan {
    /// In which order rows leave.
    pub mode: Mode,
    /// Rows that are held.
    pub capacity: usize,
    /// Whether completed rows count, too.
    pub completed_take_slots: bool,
    /// Rows of an output batch.
    pub max_rows_per_batch: usize,
    /// Nanoseconds until a batch leaves that is not full; `None`: as soon as it is waited for.
    pub buffer_timeout: Option<u64>,
    /// Whether few calls are made at first.
    pub warm_up: bool,
    /// How late a row may be, in microseconds of event time, and rows between watermarks, or 0.
    pub watermark: Option<(u64, usize)>,
    /// Its calls, or those of its functions side by side.
    pub calls: Vec<CallPlan>,
    /// Whether `calls` are branches, even a single one.
    pub is_fan_out: bool,
    /// How large results are; `None`: they are numbers.
    #[serde(default)]
    pub bytes: Option<BytesPlan>,
}

/// In which order rows leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as everywhere")]
pub enum Mode {
    Ordered,
    Unordered,
    KeyOrdered,
}

impl Scenario {
    /// Draws one.
    pub fn draw(seed: u64) -> Self {
        let random = &mut Random(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x5157);
        let batches: Vec<usize> =
            (0..=random.below(5)).map(|_| pick(random, &[0, 1, 2, 3, 7, 13, 31])).collect();
        let count = pick(random, &[1, 1, 1, 2, 2, 3]);
        let fails = random.in_a_hundred(10);
        let parts = maybe(random, 20, |random| PartsPlan {
            batches: 1 + random.below(3),
            linger: pick(random, &[0, MICRO, 7 * MILLI, 331 * MILLI]),
            lost: pick(random, &[0, 20, 60]),
            again: pick(random, &[0, 0, 30]),
            moved: 0,
        });
        // What a stream carries over has no branches: they are refused when the query is planned.
        let has_branches = parts.is_none();
        let operators =
            (0..count).map(|_| OperatorPlan::draw(random, fails, has_branches)).collect();
        let end = match random.below(100) {
            _ if parts.is_some() => End::Input,
            0..10 => End::Closed(u32::try_from(random.below(12)).unwrap_or_default()),
            10..14 => End::InputFails(random.below(batches.len() + 1)),
            _ => End::Input,
        };
        let mut drawn = Self {
            seed: random.next(),
            batches,
            keys: pick(random, &[1, 2, 5, 1000]),
            channels: pick(random, &[1, 2, 3, 7]),
            operators,
            feed_gap: pick(random, &[1, MICRO, 7 * MILLI, SECOND]),
            jitter: pick(random, &[0, 1, MICRO, MILLI]),
            consumer_pause: pick(random, &[0, 0, MICRO, 13 * MILLI, SECOND]),
            end,
            parts,
            panics: None,
            pools: Vec::new(),
            is_crowded: false,
            journal: None,
        };
        drawn.draw_requests(seed);
        drawn.draw_others(seed);
        drawn.draw_bytes(seed);
        drawn.draw_absences(seed);
        drawn.draw_panics(seed);
        drawn.draw_pools(seed);
        drawn.draw_contention(seed);
        drawn.draw_silence(seed);
        drawn.draw_journal(seed);
        drawn.sound()
    }

    /// Draws requests for some functions; all else stays as it was drawn.
    fn draw_requests(&mut self, seed: u64) {
        let random = &mut Random(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ 0x7265_7173);
        for plan in self.calls_mut() {
            let has_channels = plan.channels.is_some();
            plan.requests = maybe(random, 15, |it| RequestsPlan::draw(it, has_channels));
        }
        if self.calls_mut().any(|it| it.requests.is_some_and(|it| it.cut == Cut::AsSaid)) {
            (self.jitter, self.consumer_pause) = (0, 0);
        }
    }

    /// Draws others for some of the limits.
    fn draw_others(&mut self, seed: u64) {
        let random = &mut Random(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ 0x6F74_6865);
        for plan in self.calls_mut().filter(|it| !it.limits.is_empty()) {
            plan.others = maybe(random, 40, OthersPlan::draw);
        }
        self.is_crowded = random.in_a_hundred(10);
    }

    /// Draws how large the results of some operators are, and whether input moves to other shards.
    fn draw_bytes(&mut self, seed: u64) {
        let random = &mut Random(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ 0x6279_7465);
        for operator in &mut self.operators {
            operator.bytes = maybe(random, 25, BytesPlan::draw);
        }
        if let Some(parts) = &mut self.parts {
            parts.moved = pick(random, &[0, 0, 30, 100]);
        }
    }

    /// Draws for how long rows wait for destinations that are not there, and which ones are not.
    fn draw_absences(&mut self, seed: u64) {
        let random = &mut Random(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ 0x6162_7365);
        for plan in self.calls_mut() {
            plan.max_wait = maybe(random, 25, |random| pick(random, &TIMES[2..]));
            plan.stall = maybe(random, 15, StallPlan::draw);
        }
    }

    /// Draws what panics in some of the tasks that a thread drives.
    fn draw_panics(&mut self, seed: u64) {
        let random = &mut Random(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ 0x7061_6E69);
        self.panics = maybe(random, 20, |random| PanicPlan {
            place: pick(random, &[PanicPlace::Function, PanicPlace::Codec, PanicPlace::Clock]),
            after: pick(random, &[0, 1, 2, 3, 7, 13, 31, 97]),
            again: random.in_a_hundred(30),
        });
    }

    /// Draws permits that no time brings, and who takes from them.
    fn draw_pools(&mut self, seed: u64) {
        let random = &mut Random(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ 0x706F_6F6C);
        let (rows, count) = (self.rows() as u64, pick(random, &[0, 0, 0, 0, 0, 1, 2, 3]));
        self.pools = (0..count).map(|_| PoolPlan::draw(random, rows)).collect();
        for plan in self.calls_mut() {
            plan.pools = PoolUse::draw_of(random, count);
        }
    }

    /// Draws, for a few tasks, others that always want more of a limit whose rows have costs of their own:
    /// with second calls beside slow ones, and with calls that cost ten times what was thought.
    fn draw_contention(&mut self, seed: u64) {
        let random = &mut Random(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ 0x636F_6E74);
        if !random.in_a_hundred(4) {
            return;
        }
        let is_underpriced = random.in_a_hundred(40);
        self.batches = if is_underpriced { vec![97, 31, 13] } else { vec![31, 13, 7] };
        (self.parts, self.end, self.pools) = (None, End::Input, Vec::new());
        (self.feed_gap, self.consumer_pause) = (1, 0);
        self.operators.truncate(1);
        self.operators[0].calls.truncate(1);
        self.operators[0].capacity = 97;
        self.calls_mut().for_each(|it| it.contend(random, is_underpriced));
    }

    /// Draws, for a few tasks, a destination that never answers, and rows that wait for others of their key.
    fn draw_silence(&mut self, seed: u64) {
        let random = &mut Random(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ 0x7369_6C65);
        if !random.in_a_hundred(3) {
            return;
        }
        self.batches = vec![1, 2, 1, 3, 1, 2, 1];
        (self.parts, self.end, self.pools) = (None, End::Input, Vec::new());
        (self.feed_gap, self.consumer_pause) = (331 * MILLI, 0);
        self.keys = pick(random, &[3, 5]);
        self.operators.truncate(1);
        self.operators[0].calls.truncate(1);
        (self.operators[0].mode, self.operators[0].capacity) = (Mode::KeyOrdered, 97);
        self.operators[0].is_fan_out = false;
        self.calls_mut().for_each(|it| it.fall_silent(random));
    }

    /// Draws a journal for some of the tasks of one call.
    fn draw_journal(&mut self, seed: u64) {
        let random = &mut Random(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ 0x6A6F_7572);
        self.journal = maybe(random, 25, |random| JournalPlan {
            interval: pick(random, &[0, MICRO, 7 * MILLI, 200 * MILLI]),
            max_bytes: pick(random, &[1, 331, 1 << 20]),
            latency: pick(random, &[1, MICRO, 31 * MILLI, SECOND, 31 * SECOND]),
            keeps_input: random.in_a_hundred(30),
            known: pick(random, &[0, 0, 13, 60, 97, 100]),
            keeps_failures: random.in_a_hundred(30),
            fails: maybe(random, 20, |it| pick(it, &[1, 1, 2, 3, 7])),
            again: pick(random, &[0, 0, 1, 2]),
        });
    }

    /// Whether a thread drives it to its end while a consumer takes its output. A stream has the
    /// outputs of its parts, and who closes a task waits for its thread.
    pub fn is_driven(&self) -> bool {
        let is_closed = matches!(self.end, End::Closed(_));
        self.parts.is_none() && !is_closed && self.seed.is_multiple_of(3)
    }

    /// The scenario as it is run again: by another job. Its last run ends with its input, and all is
    /// committed.
    #[must_use]
    pub fn of_run(&self, is_last: bool) -> Self {
        let mut next = self.clone();
        if is_last {
            (next.end, next.panics) = (End::Input, None);
            next.journal.iter_mut().for_each(|it| it.fails = None);
        }
        next
    }

    fn calls_mut(&mut self) -> impl Iterator<Item = &mut CallPlan> {
        self.operators.iter_mut().flat_map(|it| &mut it.calls)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.batches.iter().sum()
    }

    /// Makes it one that ends by itself, and not only after hours.
    #[must_use]
    pub fn sound(mut self) -> Self {
        let rows = self.rows() as u64 * 3 + 10;
        let is_one = self.operators.len() == 1 && !self.operators[0].is_fan_out;
        self.journal = self.journal.filter(|_| is_one && self.parts.is_none());
        if self.parts.is_some() {
            // A task that goes on begins with all permits that are its own.
            self.calls_mut().for_each(|it| it.pools.clear());
        }
        let count = self.pools.len();
        self.calls_mut().for_each(|it| it.pools.retain(|it| it.pool < count));
        self.panics = self.panics.filter(|_| self.is_driven());
        if self.parts.is_some() {
            // Streams have watermarks of Spark's.
            self.operators.iter_mut().for_each(|it| it.watermark = None);
        }
        for operator in &mut self.operators {
            // Then bytes bound what is completed, and nothing else does.
            operator.completed_take_slots &= operator.bytes.is_none_or(|it| it.capacity.is_none());
        }
        for plan in self.calls_mut() {
            if plan.cache.is_some() {
                // Its calls are seen behind the cache.
                (plan.requests, plan.others) = (None, None);
                plan.pools.clear();
            }
            let limits = plan.limits.len() + usize::from(plan.requests.is_some());
            plan.pools.truncate(MAX_LIMITS.saturating_sub(limits));
            let is_bounded = plan.timeout.is_some() || plan.attempt_timeout.is_some();
            if !is_bounded {
                // What is not answered would not end.
                (plan.script.never, plan.stall) = (0, None);
            }
            if plan.limits.is_empty() {
                plan.others = None;
            }
            if plan.timeout.is_none() && plan.retry_budget.is_some_and(|it| it.1 == 0) {
                plan.retry_budget = None;
            }
            let of_requests = plan.requests.iter_mut().map(|it| &mut it.limit);
            for limit in plan.limits.iter_mut().chain(of_requests) {
                // Twenty seconds for all rows at the highest price.
                let needed = rows * limit.dearest() * limit.period / (20 * SECOND);
                limit.permits = limit.permits.max(needed | 1);
            }
        }
        self
    }

    /// What nothing in it takes longer than, as far as the clock goes.
    pub fn longest(&self) -> u64 {
        let mut longest = 20 * SECOND + self.feed_gap + self.consumer_pause;
        longest += self.journal.map_or(0, |it| it.interval + it.latency * 2);
        for operator in &self.operators {
            longest += operator.buffer_timeout.unwrap_or_default();
            // The first results are waited for as long as nobody knows how large they are.
            longest += operator.bytes.map_or(0, |_| 11 * SECOND);
            for plan in &operator.calls {
                longest += plan.timeout.unwrap_or_default();
                longest += plan.attempt_timeout.unwrap_or_default();
                longest += plan.script.most * 20;
                longest += plan.retry.map_or(0, |it| it.maximum);
                longest += plan.pause.map_or(0, |it| it.maximum * 2);
                let of_limit =
                    |it: &LimitPlan| it.period * (it.cost.max(1) * 7 + it.burst) / it.permits * 4;
                // Costs of an hour each.
                let settled = plan.limits.iter().filter(|it| it.is_settled).count() as u64;
                longest += settled * 200_000 * SECOND;
                let of_requests = plan.requests.iter().map(|it| &it.limit);
                longest += plan.limits.iter().chain(of_requests).map(of_limit).sum::<u64>();
                // Others have a half of what comes, and go first.
                longest += plan.others.map_or(0, |_| 60 * SECOND);
                longest += plan.hidden.map_or(0, |it| it.0) + 10 * SECOND;
                longest += plan.retry_budget.map_or(0, |_| 120 * SECOND);
            }
        }
        longest * 2
    }
}

impl OperatorPlan {
    fn draw(random: &mut Random, fails: bool, has_branches: bool) -> Self {
        let mode = pick(random, &[Mode::Ordered, Mode::Unordered, Mode::KeyOrdered]);
        let is_fan_out = has_branches && random.in_a_hundred(25);
        let count = if is_fan_out { 1 + random.below(3) } else { 1 };
        let capacity = pick(random, &COUNTS);
        Self {
            mode,
            capacity,
            completed_take_slots: random.in_a_hundred(70),
            max_rows_per_batch: pick(random, &[1, 2, 7, 13, 8192]),
            buffer_timeout: maybe(random, 40, |random| pick(random, &[0, 999, 7 * MILLI, SECOND])),
            warm_up: random.in_a_hundred(15),
            watermark: maybe(random, 40, |random| {
                (pick(random, &[0, 7, 1009]), pick(random, &[0, 1, 3, 7]))
            }),
            calls: (0..count).map(|_| CallPlan::draw(random, fails, capacity)).collect(),
            is_fan_out,
            bytes: None,
        }
    }
}
