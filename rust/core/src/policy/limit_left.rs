// SPDX-License-Identifier: Apache-2.0
//! What a service says of its limits beside its answers, and what may be asked of it then.

use std::num::NonZeroU64;
use std::time::Duration;

use super::gcra::Rate;
use super::pause::LONGEST_ASKED;
use crate::time::ProcessingTime;

/// What a limit counts, as far as services tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Calls, or something that the service does not name.
    Requests,
    /// Tokens of a language model.
    Tokens,
}

/// How a limit that is used up comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// All of it at once: it is counted in windows of time.
    AtOnce,
    /// Bit by bit, until it is whole: a bucket that is refilled.
    Evenly,
}

/// What is left of a limit of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitLeft {
    /// What it counts.
    pub counted: Counted,
    /// How much of that may still be asked for.
    pub remaining: u64,
    /// When all of it is there again; more than no time.
    pub renewed_in: Duration,
    /// What happens until then.
    pub renewal: Renewal,
}

/// The part of what comes back that is counted on until the service is heard of again: others may
/// have the rest.
const SHARE: u32 = 4;

/// At most this part of a bucket is left in it.
const RESERVED: u64 = 8;

/// How far a service has lowered a limit, until all of it is there again.
///
/// It stands beside the word of the limit and not in it: what is taken lowers both, the next reply may
/// say that more is left, and once the limit is whole again its word alone holds.
///
/// The last word counts, so it errs on the safe side: what is in flight may not be counted yet, and
/// of what comes back between two replies others, who use the limit too, take most. In a bucket some
/// is left for them: it does not run over for that, so nothing is lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lowered {
    /// What was left at `since`, less what was taken after it; below zero if that was more.
    left: i64,
    since: ProcessingTime,
    /// When all of it is there again, and this is over.
    until: ProcessingTime,
    /// What is counted on of a bucket that fills again; of a window all comes back at once.
    comes: Option<Rate>,
    /// What is left in a bucket: as much as comes in a second, or twice what a call costs, but not more
    /// than `most_reserved`.
    reserve: u64,
    most_reserved: u64,
}

impl Lowered {
    /// Makes what is left of a limit that comes back at `rate`. The service has not counted so much yet
    /// that was taken.
    pub(super) fn to(told: &LimitLeft, uncounted: u64, rate: Rate, now: ProcessingTime) -> Self {
        let window = Self {
            left: signed(told.remaining).saturating_sub(signed(uncounted)),
            since: now,
            until: now + told.renewed_in.min(LONGEST_ASKED),
            comes: None,
            reserve: 0,
            most_reserved: 0,
        };
        if told.renewal == Renewal::AtOnce {
            return window;
        }
        let nanos = u64::try_from(told.renewed_in.as_nanos()).unwrap_or(u64::MAX);
        let whole = told.remaining.saturating_add(rate.permits_of(nanos));
        Self {
            comes: Some(rate.slower(SHARE)),
            reserve: rate.permits_of(1_000_000_000),
            most_reserved: whole / RESERVED,
            ..window
        }
    }

    /// Takes what a call is charged, or sets right what one was charged that cost `actual`.
    pub(super) fn settle(&mut self, charged: u64, actual: u64) {
        self.left = self.left.saturating_add(signed(charged)).saturating_sub(signed(actual));
    }

    fn reserve_beside(&self, cost: u64) -> u64 {
        self.reserve.max(cost.saturating_mul(2)).min(self.most_reserved)
    }

    /// Returns when a call that costs `cost` may start; the origin of time if nothing is in its way.
    pub(super) fn ready_at(&self, cost: u64) -> ProcessingTime {
        let wanted = signed(cost.saturating_add(self.reserve_beside(cost)));
        let missing = u64::try_from(wanted.saturating_sub(self.left)).unwrap_or_default();
        match self.comes {
            _ if missing == 0 => ProcessingTime::ZERO,
            None => self.until,
            Some(rate) => rate.after(self.since, missing).min(self.until),
        }
    }

    /// Returns how many calls that cost as much may start now, one after the other: each is
    /// [ready](Self::ready_at) when those before it have taken their part.
    pub(super) fn calls(&self, cost: u64, now: ProcessingTime) -> u64 {
        let Some(cost) = NonZeroU64::new(cost).filter(|_| !self.is_over(now)) else {
            return u64::MAX;
        };
        let back = self.comes.map_or(0, |it| it.permits_of(now.nanos_since(self.since)));
        let left = self.left.saturating_add(signed(back));
        let left = left.saturating_sub(signed(self.reserve_beside(cost.get())));
        u64::try_from(left).unwrap_or_default() / cost
    }

    /// Returns whether all of the limit is there again.
    pub(super) fn is_over(&self, now: ProcessingTime) -> bool {
        now >= self.until
    }
}

fn signed(permits: u64) -> i64 {
    i64::try_from(permits).unwrap_or(i64::MAX)
}
