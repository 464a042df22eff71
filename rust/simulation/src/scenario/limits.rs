// SPDX-License-Identifier: Apache-2.0
//! Limits in time, of calls, of requests that are made of several and those that others take from; and
//! how many bytes results may have.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sparkawait_core::policy::{Gcra, Rate, Terms};

use super::numbers::{COUNTS, MICRO, MILLI, PERIODS, PERMITS, SECOND, maybe, pick};
use crate::random::Random;
use crate::trace::choice;

/// A limit in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "options that do not depend on one another")]
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
    /// Whether replies say what calls have really cost.
    #[serde(default)]
    pub is_settled: bool,
    /// Whether replies say how much of it is left.
    #[serde(default)]
    pub is_told: bool,
    /// How many times what they were charged calls have cost, as their replies say; none: it differs.
    #[serde(default)]
    pub times: u64,
}

impl LimitPlan {
    pub(super) fn draw(random: &mut Random, has_channels: bool) -> Self {
        let (permits, period) = (pick(random, &PERMITS), pick(random, &PERIODS));
        let burst = match random.below(4) {
            0 => 1,
            1 => (permits * SECOND / period).clamp(1, 1000),
            _ => pick(random, &COUNTS) as u64,
        };
        let cost = pick(random, &[1, 1, 1, 1, 2, 3, 7]);
        let is_per_channel = has_channels && random.in_a_hundred(40);
        let is_of_rows = random.in_a_hundred(25);
        let is_settled = random.in_a_hundred(40);
        let is_told = random.in_a_hundred(30);
        Self {
            permits,
            period,
            burst,
            cost,
            is_of_rows,
            is_per_channel,
            is_settled,
            is_told,
            times: 0,
        }
    }

    /// The limit as an operator counts it.
    pub fn gcra(&self) -> Gcra {
        let of = |it: u64| NonZeroU64::new(it).unwrap_or(NonZeroU64::MIN);
        let period = Duration::from_nanos(self.period);
        Gcra::new(Rate::new(of(self.permits), period).expect("a period of time"), of(self.burst))
    }

    /// What a limit is that others always want more of.
    pub(super) fn contended(random: &mut Random, is_underpriced: bool) -> Self {
        Self {
            permits: pick(random, &[97, 333, 1000]),
            period: SECOND,
            burst: pick(random, &[1, 7, 29]),
            cost: 1,
            is_of_rows: true,
            is_per_channel: false,
            is_settled: is_underpriced,
            is_told: false,
            times: if is_underpriced { 10 } else { 0 },
        }
    }

    /// What a call is charged.
    pub fn charge(&self, row_cost: u64) -> u64 {
        if self.is_of_rows { row_cost } else { self.cost }
    }

    /// The most that a call is charged.
    pub fn dearest(&self) -> u64 {
        if self.is_of_rows { self.cost.max(1) * 7 } else { self.cost }
    }

    /// The most that a call can have cost: what comes in an hour, the permits or ten bursts.
    pub fn most_cost(&self) -> u64 {
        let of_an_hour = u128::from(self.permits) * 3_600 * u128::from(SECOND);
        let of_an_hour = (of_an_hour / u128::from(self.period)).try_into().unwrap_or(u64::MAX);
        self.permits.max(of_an_hour).max(self.burst.saturating_mul(10))
    }
}

/// How requests are made of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestsPlan {
    /// What requests pay.
    pub limit: LimitPlan,
    /// Most calls of a request.
    pub records: u32,
    /// For how many nanoseconds it waits for others behind its first call.
    pub linger: u64,
    /// What the operator does not know of that.
    pub cut: Cut,
    /// Of a hundred requests for several calls, so many fail; the calls of each half are made again.
    #[serde(default)]
    pub divided: usize,
}

/// How a function cuts its requests, which the operator guesses at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cut {
    /// Just as is said, on a clock that stands still while the operator decides.
    AsSaid,
    /// Of a hundred calls that go along, so many are the first of another request.
    Early(usize),
    /// So many nanoseconds later.
    Late(u64),
}

impl RequestsPlan {
    pub(super) fn draw(random: &mut Random, has_channels: bool) -> Self {
        let limit = LimitPlan::draw(random, has_channels);
        Self {
            limit: LimitPlan { is_of_rows: false, is_settled: false, ..limit },
            records: pick(random, &[1, 2, 3, 7, 13]),
            linger: pick(random, &[0, 999, 331 * MICRO, 7 * MILLI]),
            cut: match random.below(4) {
                0 => Cut::Early(pick(random, &[7, 50, 100])),
                1 => Cut::Late(pick(random, &[1, 331 * MICRO, 13 * MILLI])),
                _ => Cut::AsSaid,
            },
            divided: pick(random, &[0, 0, 20, 60]),
        }
    }
}

/// Somebody else who takes from the first limit of a function, for each channel that has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OthersPlan {
    /// Permits of each call.
    pub cost: u64,
    /// Of ten permits that come, so many are asked for; with more than there are, again and again.
    pub share: u64,
    /// Of a hundred planned calls, this many are not made.
    pub gives_back: usize,
}

impl OthersPlan {
    /// Others who always want more.
    pub const fn greedy(cost: u64) -> Self {
        Self { cost, share: 97, gives_back: 0 }
    }

    pub(super) fn draw(random: &mut Random) -> Self {
        Self {
            cost: pick(random, &[1, 2, 3, 7]),
            share: pick(random, &[1, 3, 5, 9, 13]),
            gives_back: pick(random, &[0, 20, 60]),
        }
    }
}

/// Permits that no time brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolPlan {
    /// So many.
    pub permits: u64,
    /// Whether those of a call come back at its end.
    pub comes_back: bool,
    /// Whether functions have it together, instead of one each.
    pub is_shared: bool,
}

impl PoolPlan {
    pub(super) fn draw(random: &mut Random, rows: u64) -> Self {
        let comes_back = random.in_a_hundred(50);
        let permits = if comes_back {
            pick(random, &[1, 2, 3, 7])
        } else {
            // Some have enough for all rows.
            1 + random.next() % (rows * pick(random, &[1, 4, 20]) + 1)
        };
        Self { permits, comes_back, is_shared: random.in_a_hundred(60) }
    }

    /// The limit as an operator counts it.
    pub fn terms(&self) -> Terms {
        let permits = NonZeroU64::new(self.permits).unwrap_or(NonZeroU64::MIN);
        if self.comes_back { Terms::ComesBack(permits) } else { Terms::Spends(permits) }
    }
}

/// What a function takes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUse {
    /// Which one.
    pub pool: usize,
    /// Permits of a call.
    pub cost: u64,
    /// Whether rows have costs of their own.
    pub is_of_rows: bool,
}

impl PoolUse {
    /// Draws what a function takes of so many pools: of each once, in any order.
    pub(super) fn draw_of(random: &mut Random, pools: usize) -> Vec<Self> {
        let mut order: Vec<usize> = (0..pools).collect();
        if random.in_a_hundred(50) {
            order.reverse();
        }
        order.retain(|_| random.in_a_hundred(75));
        let uses = order.into_iter().map(|pool| Self {
            pool,
            cost: pick(random, &[1, 1, 2, 3]),
            is_of_rows: random.in_a_hundred(25),
        });
        uses.collect()
    }

    /// What a call takes.
    pub fn charge(&self, row_cost: u64) -> u64 {
        if self.is_of_rows { row_cost } else { self.cost }
    }
}

/// Bytes of what the functions of an operator bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BytesPlan {
    /// Most bytes of the text of a result.
    pub size: usize,
    /// Bytes of an output batch.
    pub max_per_batch: usize,
    /// Bytes of rows that are completed and take no slots; `None`: they take some.
    pub capacity: Option<usize>,
    /// What a result is expected to have, as long as none is known.
    pub expected: Option<usize>,
}

impl BytesPlan {
    pub(super) fn draw(random: &mut Random) -> Self {
        Self {
            size: pick(random, &[1, 13, 331, 5_003]),
            max_per_batch: pick(random, &[1, 211, 1_013, 20_011]),
            capacity: maybe(random, 40, |random| pick(random, &[1, 997, 20_011])),
            expected: maybe(random, 30, |random| pick(random, &[0, 7, 1_009])),
        }
    }

    /// What the results that are held may have, those to come included.
    pub fn most(&self) -> usize {
        self.capacity.unwrap_or(4 * self.max_per_batch)
    }

    /// The bytes of the text of a result.
    pub fn of_result(&self, seed: u64, value: i64) -> usize {
        let drawn = choice(seed, usize::MAX - 1, value.cast_unsigned(), 0);
        usize::try_from(drawn % (self.size as u64 + 1)).unwrap_or_default()
    }
}
