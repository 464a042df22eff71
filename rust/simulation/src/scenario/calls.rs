// SPDX-License-Identifier: Apache-2.0
//! How a function is called: its options, the cache in front of it, and what its calls do.

use serde::{Deserialize, Serialize};

use super::limits::{LimitPlan, OthersPlan, PoolUse, RequestsPlan};
use super::numbers::{COUNTS, MICRO, MILLI, SECOND, TIMES, maybe, pick};
use crate::random::Random;

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
    /// Nanoseconds for which a row waits for a destination that is not there.
    #[serde(default)]
    pub max_wait: Option<u64>,
    /// When destinations stand still.
    #[serde(default)]
    pub stall: Option<StallPlan>,
    /// Whether an attempt that took too long may be followed by another one.
    pub is_repeatable: bool,
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
    /// The cache in front of it.
    #[serde(default)]
    pub cache: Option<CachePlan>,
    /// How it makes requests for several calls each, where a limit counts those.
    #[serde(default)]
    pub requests: Option<RequestsPlan>,
    /// Who else takes from its first limit.
    #[serde(default)]
    pub others: Option<OthersPlan>,
    /// What it takes of the pools of permits, in the order in which it asks.
    #[serde(default)]
    pub pools: Vec<PoolUse>,
}

/// When destinations stand still: calls that begin then are not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallPlan {
    /// Nanoseconds on the clock.
    pub from: u64,
    /// Nanoseconds; the largest number: for ever.
    pub lasts: u64,
    /// The channel; `None`: all.
    pub channel: Option<i64>,
}

impl StallPlan {
    pub(super) fn draw(random: &mut Random) -> Self {
        Self {
            from: pick(random, &[0, 7 * MILLI, SECOND]),
            lasts: pick(random, &[97 * MILLI, 3 * SECOND + 1, u64::MAX]),
            channel: maybe(random, 60, |random| i64::try_from(random.below(3)).unwrap_or(0)),
        }
    }

    /// Whether a call that begins then is not answered.
    pub fn holds(&self, channel: Option<i64>, now: u64) -> bool {
        let is_of_it = self.channel.is_none_or(|it| channel == Some(it));
        is_of_it && now.checked_sub(self.from).is_some_and(|it| it < self.lasts)
    }
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

/// When a destination is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in `PauseConfig`")]
pub struct PausePlan {
    pub after_drops: u32,
    pub initial: u64,
    pub maximum: u64,
    pub refuses: bool,
}

impl CallPlan {
    pub(super) fn draw(random: &mut Random, fails: bool, capacity: usize) -> Self {
        let timeout = maybe(random, 50, |random| pick(random, &TIMES[2..]));
        let cache = maybe(random, 20, CachePlan::draw);
        // Two calls of a key are what is hard about a cache.
        let of_pairs = if cache.is_some() { 55 } else { 25 };
        let attempt_timeout = maybe(random, of_pairs, |random| {
            let longest = timeout.unwrap_or(u64::MAX);
            pick(random, &TIMES[1..]).min(longest)
        });
        let channels = maybe(random, 35, ChannelsPlan::draw);
        let limits: Vec<LimitPlan> = (0..pick(random, &[0, 0, 0, 1, 1, 2, 5]))
            .map(|_| LimitPlan::draw(random, channels.is_some()))
            .collect();
        let retry = maybe(random, 50, RetryPlan::draw);
        let on_error = [Failing::Null, Failing::Drop, Failing::Capture, Failing::Capture];
        Self {
            max_concurrency: (1 + random.below(capacity)).min(pick(random, &COUNTS)),
            timeout,
            attempt_timeout,
            max_wait: None,
            stall: None,
            is_repeatable: random.in_a_hundred(75),
            retry,
            hedge: maybe(random, of_pairs, |random| HedgePlan {
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
            cache,
            requests: None,
            others: None,
            pools: Vec::new(),
            on_error: if fails { Failing::Fail } else { pick(random, &on_error) },
            asks_on_timeout: timeout.is_some() && random.in_a_hundred(20),
            script: Script::draw(random, timeout.or(attempt_timeout), fails),
        }
    }

    /// Lets others always want more of its only limit.
    pub(super) fn contend(&mut self, random: &mut Random, is_underpriced: bool) {
        (self.cache, self.requests, self.channels, self.hidden) = (None, None, None, None);
        (self.pause, self.adaptive_limit, self.retry_budget, self.stall) = (None, None, None, None);
        (self.attempt_timeout, self.max_wait, self.adaptive_rate) = (None, None, false);
        self.timeout = (!is_underpriced).then_some(3 * SECOND);
        self.pools.clear();
        self.limits = vec![LimitPlan::contended(random, is_underpriced)];
        self.others = Some(OthersPlan::greedy(pick(random, &[1, 2, 3, 7])));
        self.max_concurrency = pick(random, &[3, 5, 7, 13]);
        self.retry = None;
        self.hedge = (!is_underpriced).then(|| HedgePlan {
            after: Some(pick(random, &[7 * MILLI, 97 * MILLI])),
            max_extra: 1.0,
        });
        // A second call is to help where one is slow, until then.
        let never = if is_underpriced { 0 } else { 13 };
        self.script =
            Script { least: MILLI, most: 7 * MILLI, late: 0, never, pauses: 0, ..self.script };
    }

    /// Lets its destination never answer, with second calls beside all first ones.
    pub(super) fn fall_silent(&mut self, random: &mut Random) {
        (self.cache, self.requests, self.channels, self.hidden) = (None, None, None, None);
        (self.pause, self.adaptive_limit, self.retry_budget, self.others) =
            (None, None, None, None);
        (self.attempt_timeout, self.adaptive_rate) = (None, false);
        (self.limits, self.pools) = (Vec::new(), Vec::new());
        self.timeout = Some(SECOND + 300_000_007);
        self.max_wait = Some(pick(random, &[MILLI, 13 * MILLI + 1, 97 * MILLI]));
        self.max_concurrency = pick(random, &[7, 13]);
        self.hedge = Some(HedgePlan { after: Some(7 * MILLI), max_extra: 1.0 });
        self.stall = Some(StallPlan { from: 0, lasts: u64::MAX, channel: None });
        self.script.pauses = 0;
    }

    /// Its limits, without a bound where others take from one: what is settled is theirs, too.
    pub fn own_limits(&self) -> Vec<LimitPlan> {
        let mut limits = self.limits.clone();
        if let (Some(first), Some(_)) = (limits.first_mut(), self.others) {
            (first.burst, first.is_settled) = (1 << 40, false);
        }
        limits
    }

    /// Whether each of its calls ends with an answer that counts.
    pub fn is_answered(&self) -> bool {
        self.timeout.is_none()
            && self.attempt_timeout.is_none()
            && self.hedge.is_none()
            && self.cache.is_none()
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
            || self.requests.is_some()
            || !self.pools.is_empty()
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

/// The times of entries, in nanoseconds.
const EXPIRIES: [u64; 7] =
    [1, 999, 331 * MICRO, 7 * MILLI + 1, 97 * MILLI, SECOND + 300_000_007, 61 * SECOND];

/// A cache, whose keys are those of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePlan {
    /// Most keys.
    pub max_rows: Option<u64>,
    /// Nanoseconds after an entry was made.
    pub after_write: Option<u64>,
    /// Nanoseconds after it was used last.
    pub after_access: Option<u64>,
    /// Whether it is remembered that a key has no result.
    pub keeps_missing: bool,
    /// Whether the channel belongs to the key.
    pub by_channel: bool,
}

impl CachePlan {
    pub(super) fn draw(random: &mut Random) -> Self {
        Self {
            max_rows: maybe(random, 30, |random| pick(random, &COUNTS) as u64),
            after_write: maybe(random, 50, |random| pick(random, &EXPIRIES)),
            after_access: maybe(random, 30, |random| pick(random, &EXPIRIES)),
            keeps_missing: random.in_a_hundred(50),
            by_channel: random.in_a_hundred(30),
        }
    }
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

impl Script {
    pub(super) fn draw(random: &mut Random, bound: Option<u64>, fails: bool) -> Self {
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
