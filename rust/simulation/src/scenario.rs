// SPDX-License-Identifier: Apache-2.0
//! All that is drawn from one number: a chain, its options, its input, what calls do, and how it ends.

use serde::{Deserialize, Serialize};

use crate::random::Random;

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Numbers that come out even nowhere.
const COUNTS: [usize; 12] = [1, 1, 1, 2, 2, 3, 5, 7, 11, 13, 29, 97];
/// Nanoseconds of what is configured.
const TIMES: [u64; 9] = [
    999,
    7 * MICRO + 1,
    331 * MICRO,
    7 * MILLI,
    13 * MILLI + 1,
    97 * MILLI,
    333_333_333,
    SECOND + 300_000_007,
    3 * SECOND,
];
const PERMITS: [u64; 16] = [1, 2, 3, 3, 6, 7, 9, 11, 13, 59, 60, 61, 97, 100, 333, 1000];
const PERIODS: [u64; 6] = [7 * MILLI, 130 * MILLI, SECOND, SECOND, SECOND, 60 * SECOND];

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
    /// Whether its input comes in parts, of which the rows in flight are carried over.
    pub parts: Option<PartsPlan>,
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
    /// Whether `calls` are branches, be it one.
    pub is_fan_out: bool,
}

/// In which order rows leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as everywhere")]
pub enum Mode {
    Ordered,
    Unordered,
    KeyOrdered,
}

/// What the failure of a row does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as everywhere")]
pub enum Failing {
    Fail,
    Null,
    Drop,
    Capture,
}

/// How a function is called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallPlan {
    /// Calls in flight.
    pub max_concurrency: usize,
    /// Nanoseconds of a row.
    pub timeout: Option<u64>,
    /// Nanoseconds of an attempt.
    pub attempt_timeout: Option<u64>,
    /// Whether an attempt that took too long may be followed by another one.
    pub repeats_timed_out: bool,
    /// Further attempts.
    pub retry: Option<RetryPlan>,
    /// Second calls.
    pub hedge: Option<HedgePlan>,
    /// Destinations.
    pub channels: Option<ChannelsPlan>,
    /// Limits in time.
    pub limits: Vec<LimitPlan>,
    /// What a destination that drops its calls gets.
    pub pause: Option<PausePlan>,
    /// Most calls of a channel, found out by what they come to.
    pub adaptive_limit: Option<(u32, u32)>,
    /// Whether calls per time are found out by refusals.
    pub adaptive_rate: bool,
    /// Retries for each call, in thousandths, and in each second.
    pub retry_budget: Option<(u32, u32)>,
    /// What the failure of a row does.
    pub on_error: Failing,
    /// Whether the function is asked what a row puts out that has timed out.
    pub asks_on_timeout: bool,
    /// What calls do.
    pub script: Script,
    /// What its destination bears: permits in nanoseconds, and a burst. It refuses what is beyond.
    pub hidden: Option<(u64, u64, u64)>,
}

/// Further attempts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in `AsyncRetryStrategy`")]
pub struct RetryPlan {
    pub max_retries: u32,
    pub initial: u64,
    pub maximum: u64,
    pub multiplier: f64,
    pub full_jitter: bool,
}

/// Second calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HedgePlan {
    /// Nanoseconds; `None`: a percentile.
    pub after: Option<u64>,
    /// For each first call.
    pub max_extra: f64,
}

/// Destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in `ChannelConfig`")]
pub struct ChannelsPlan {
    pub exclusive: u32,
    pub floating: u32,
    pub max_per_channel: u32,
    pub max_backlog: usize,
    pub max_backlog_per_channel: u32,
}

/// A limit in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitPlan {
    /// So many ..
    pub permits: u64,
    /// .. in so many nanoseconds.
    pub period: u64,
    /// At once.
    pub burst: u64,
    /// Of a call.
    pub cost: u64,
    /// Whether rows have costs of their own.
    pub is_of_rows: bool,
    /// Whether each channel has its own.
    pub is_per_channel: bool,
}

/// When a destination is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in `PauseConfig`")]
pub struct PausePlan {
    pub after_drops: u32,
    pub initial: u64,
    pub maximum: u64,
    pub refuses: bool,
}

/// What calls do, of a hundred each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Least nanoseconds of a call.
    pub least: u64,
    /// Most.
    pub most: u64,
    /// Take seventeen times as long.
    pub late: usize,
    /// Are never answered.
    pub never: usize,
    /// Are answered twice.
    pub twice: usize,
    /// Are answered although they were cancelled.
    pub after_cancel: usize,
    /// Fail for good.
    pub fails: usize,
    /// Fail, and may be tried again.
    pub retries: usize,
    /// Fail, and say when.
    pub says_when: usize,
    /// Fail, and ask for a pause.
    pub pauses: usize,
    /// Return what asks for another attempt.
    pub returns_retry: usize,
    /// Return nothing.
    pub nothing: usize,
    /// Return two or three.
    pub several: usize,
}

fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len())]
}

fn maybe<T>(random: &mut Random, cases: usize, make: impl FnOnce(&mut Random) -> T) -> Option<T> {
    random.in_a_hundred(cases).then(|| make(random))
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
        });
        // What a stream carries over has no branches.
        let has_branches = parts.is_none();
        let operators =
            (0..count).map(|_| OperatorPlan::draw(random, fails, has_branches)).collect();
        let end = match random.below(100) {
            _ if parts.is_some() => End::Input,
            0..10 => End::Closed(u32::try_from(random.below(12)).unwrap_or_default()),
            10..14 => End::InputFails(random.below(batches.len() + 1)),
            _ => End::Input,
        };
        Self {
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
        }
        .sound()
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.batches.iter().sum()
    }

    /// Makes it one that ends by itself, and not only after hours.
    #[must_use]
    pub fn sound(mut self) -> Self {
        let rows = self.rows() as u64 * 3 + 10;
        if self.parts.is_some() {
            // Streams have watermarks of Spark's.
            self.operators.iter_mut().for_each(|it| it.watermark = None);
        }
        for plan in self.operators.iter_mut().flat_map(|it| &mut it.calls) {
            let is_bounded = plan.timeout.is_some() || plan.attempt_timeout.is_some();
            if !is_bounded {
                plan.script.never = 0;
            }
            if plan.timeout.is_none() && plan.retry_budget.is_some_and(|it| it.1 == 0) {
                plan.retry_budget = None;
            }
            for limit in &mut plan.limits {
                // Twenty seconds for all rows at the highest price.
                let dearest = if limit.is_of_rows { limit.cost.max(1) * 7 } else { limit.cost };
                let needed = rows * dearest * limit.period / (20 * SECOND);
                limit.permits = limit.permits.max(needed | 1);
            }
        }
        self
    }

    /// What nothing in it takes longer than, as far as the clock goes.
    pub fn longest(&self) -> u64 {
        let mut longest = 20 * SECOND + self.feed_gap + self.consumer_pause;
        for operator in &self.operators {
            longest += operator.buffer_timeout.unwrap_or_default();
            for plan in &operator.calls {
                longest += plan.timeout.unwrap_or_default();
                longest += plan.attempt_timeout.unwrap_or_default();
                longest += plan.script.most * 20;
                longest += plan.retry.map_or(0, |it| it.maximum);
                longest += plan.pause.map_or(0, |it| it.maximum * 2);
                let of_limit =
                    |it: &LimitPlan| it.period * (it.cost.max(1) * 7 + it.burst) / it.permits * 4;
                longest += plan.limits.iter().map(of_limit).sum::<u64>();
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
        }
    }
}

impl CallPlan {
    fn draw(random: &mut Random, fails: bool, capacity: usize) -> Self {
        let timeout = maybe(random, 50, |random| pick(random, &TIMES[2..]));
        let attempt_timeout = maybe(random, 25, |random| {
            let longest = timeout.unwrap_or(u64::MAX);
            pick(random, &TIMES[1..]).min(longest)
        });
        let channels = maybe(random, 35, ChannelsPlan::draw);
        let limits: Vec<LimitPlan> = (0..pick(random, &[0, 0, 0, 1, 1, 2]))
            .map(|_| LimitPlan::draw(random, channels.is_some()))
            .collect();
        let retry = maybe(random, 50, RetryPlan::draw);
        let on_error = [Failing::Null, Failing::Drop, Failing::Capture, Failing::Capture];
        Self {
            max_concurrency: (1 + random.below(capacity)).min(pick(random, &COUNTS)),
            timeout,
            attempt_timeout,
            repeats_timed_out: random.in_a_hundred(75),
            retry,
            hedge: maybe(random, 25, |random| HedgePlan {
                after: maybe(random, 70, |random| pick(random, &TIMES[..6])),
                max_extra: pick(random, &[0.05, 0.3, 1.0]),
            }),
            channels,
            pause: maybe(random, 12, |random| PausePlan {
                after_drops: 1 + u32::try_from(random.below(5)).unwrap_or_default(),
                initial: pick(random, &[7 * MILLI, 333_333_333]),
                maximum: pick(random, &[13 * MILLI + 1, 2 * SECOND]),
                refuses: random.in_a_hundred(40),
            }),
            adaptive_limit: maybe(random, 12, |random| {
                let least = 1 + u32::try_from(random.below(3)).unwrap_or_default();
                (least, least + u32::try_from(random.below(9)).unwrap_or_default())
            }),
            adaptive_rate: random.in_a_hundred(8),
            retry_budget: retry.and_then(|_| {
                maybe(random, 15, |random| (pick(random, &[0, 300, 1000]), pick(random, &[1, 3])))
            }),
            hidden: maybe(random, 15, |random| {
                (pick(random, &TIMES[3..]), 1 + random.next() % 5, 1 + random.next() % 7)
            }),
            limits,
            on_error: if fails { Failing::Fail } else { pick(random, &on_error) },
            asks_on_timeout: timeout.is_some() && random.in_a_hundred(20),
            script: Script::draw(random, timeout.or(attempt_timeout), fails),
        }
    }

    /// Whether anything but the number of calls keeps one from being made.
    pub fn has_policies(&self) -> bool {
        self.channels.is_some()
            || !self.limits.is_empty()
            || self.pause.is_some()
            || self.adaptive_limit.is_some()
            || self.adaptive_rate
            || self.retry_budget.is_some()
            || self.script.pauses > 0
            || self.hidden.is_some()
    }
}

impl RetryPlan {
    fn draw(random: &mut Random) -> Self {
        let initial = pick(random, &[0, 1, 999, 331 * MICRO, 7 * MILLI, 97 * MILLI]);
        let fixed = random.in_a_hundred(50);
        Self {
            max_retries: u32::try_from(random.below(5)).unwrap_or_default(),
            initial,
            maximum: if fixed { initial } else { initial * 7 },
            multiplier: if fixed { 1.0 } else { pick(random, &[1.5, 2.0, 3.7]) },
            full_jitter: random.in_a_hundred(30),
        }
    }
}

impl ChannelsPlan {
    fn draw(random: &mut Random) -> Self {
        let count = |random: &mut Random| u32::try_from(pick(random, &COUNTS)).unwrap_or(1);
        Self {
            exclusive: u32::try_from(random.below(3)).unwrap_or_default(),
            floating: count(random),
            max_per_channel: count(random),
            max_backlog: pick(random, &COUNTS),
            max_backlog_per_channel: pick(random, &[0, 1, 7, u32::MAX]),
        }
    }
}

impl LimitPlan {
    fn draw(random: &mut Random, has_channels: bool) -> Self {
        let (permits, period) = (pick(random, &PERMITS), pick(random, &PERIODS));
        let burst = match random.below(4) {
            0 => 1,
            1 => (permits * SECOND / period).clamp(1, 1000),
            _ => pick(random, &COUNTS) as u64,
        };
        let cost = pick(random, &[1, 1, 1, 1, 2, 3, 7]);
        let is_per_channel = has_channels && random.in_a_hundred(40);
        let is_of_rows = random.in_a_hundred(25);
        Self { permits, period, burst, cost, is_of_rows, is_per_channel }
    }
}

impl Script {
    fn draw(random: &mut Random, bound: Option<u64>, fails: bool) -> Self {
        let most = match bound {
            // Around that of the row, so that some calls are cut off.
            Some(bound) if random.in_a_hundred(70) => (bound / 5 * (1 + random.next() % 6)).max(7),
            _ => pick(random, &[MICRO, 331 * MICRO, 7 * MILLI, 97 * MILLI]),
        };
        let rarely = |random: &mut Random| pick(random, &[0, 0, 0, 5, 20]);
        Self {
            least: pick(random, &[0, most / 13, most]),
            most,
            late: pick(random, &[0, 5, 20]),
            never: rarely(random),
            twice: rarely(random),
            after_cancel: pick(random, &[0, 50, 100]),
            fails: if fails { pick(random, &[0, 1, 3]) } else { rarely(random) },
            retries: if fails { pick(random, &[0, 3]) } else { pick(random, &[0, 5, 30, 80]) },
            says_when: rarely(random),
            pauses: pick(random, &[0, 0, 0, 0, 3, 30]),
            returns_retry: rarely(random),
            nothing: rarely(random),
            several: rarely(random),
        }
    }
}
