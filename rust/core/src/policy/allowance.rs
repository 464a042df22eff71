// SPDX-License-Identifier: Apache-2.0
//! What may be asked of a service that says how much of its limit is left.

use std::num::NonZeroU64;

use super::gcra::Rate;
use super::limit_left::{LimitLeft, Renewal};
use super::pause::LONGEST_ASKED;
use crate::time::ProcessingTime;

/// The part of what comes back that is counted on until the service is heard of again: others may
/// have the rest.
const SHARE: u32 = 4;

/// At most this part of a bucket is left in it.
const RESERVED: u64 = 8;

/// What may be asked of a service that says how much of its limit is left, until all of it is there
/// again.
///
/// The last word counts, so it errs on the safe side: what is in flight may not be counted yet, and
/// of what comes back between two replies others, who use the limit too, take most. In a bucket some
/// is left for them: it does not run over for that, so nothing is lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// What was left at `since`, less what was taken after it; below zero if that was more.
    left: i64,
    since: ProcessingTime,
    /// When all of it is there again, and this is over.
    until: ProcessingTime,
    /// How it comes back until then; all at once if nothing is known of it.
    refill: Option<Refill>,
}

/// How a bucket is filled again.
#[derive(Clone, Copy, Debug)]
struct Refill {
    /// What is counted on.
    rate: Rate,
    /// What is left in it: as much as comes in a second.
    reserve: u64,
    most_reserved: u64,
}

impl Refill {
    fn new(told: &LimitLeft, rate: Rate) -> Self {
        let nanos = u64::try_from(told.renewed_in.as_nanos()).unwrap_or(u64::MAX);
        let whole = told.remaining.saturating_add(rate.permits_of(nanos));
        let most_reserved = whole / RESERVED;
        let of_a_second = rate.permits_of(1_000_000_000);
        let reserve = of_a_second.min(most_reserved);
        Self { rate: rate.slower(SHARE), reserve, most_reserved }
    }

    /// Returns what is left in it by a call that costs `cost`: two more like it at least.
    fn reserve_beside(&self, cost: u64) -> u64 {
        self.reserve.max(cost.saturating_mul(2)).min(self.most_reserved)
    }
}

impl Allowance {
    /// Makes what is left of a limit that comes back at `rate`, while calls that may not be counted
    /// yet take `in_flight`.
    pub(super) fn new(told: &LimitLeft, in_flight: u64, rate: Rate, now: ProcessingTime) -> Self {
        let refills = told.renewal == Renewal::Evenly;
        Self {
            left: signed(told.remaining).saturating_sub(signed(in_flight)),
            since: now,
            until: now + told.renewed_in.min(LONGEST_ASKED),
            refill: refills.then(|| Refill::new(told, rate)),
        }
    }

    /// Takes what a call is charged.
    pub(super) fn take(&mut self, cost: u64) {
        self.left = self.left.saturating_sub(signed(cost));
    }

    /// Settles a call that was charged `charged` and cost `actual`.
    pub(super) fn settle(&mut self, charged: u64, actual: u64) {
        self.left = self.left.saturating_add(signed(charged)).saturating_sub(signed(actual));
    }

    /// Returns when a call that costs `cost` may start; the origin of time if nothing is in its way.
    pub(super) fn ready_at(&self, cost: u64) -> ProcessingTime {
        let reserve = self.refill.map_or(0, |it| it.reserve_beside(cost));
        let wanted = signed(cost.saturating_add(reserve));
        let missing = u64::try_from(wanted.saturating_sub(self.left)).unwrap_or_default();
        match self.refill {
            _ if missing == 0 => ProcessingTime::ZERO,
            None => self.until,
            Some(refill) => refill.rate.after(self.since, missing).min(self.until),
        }
    }

    /// Returns how many calls that cost as much may start now, one after the other: each is
    /// [ready](Self::ready_at) when those before it have taken their part.
    pub(super) fn calls(&self, cost: u64, now: ProcessingTime) -> u64 {
        let Some(cost) = NonZeroU64::new(cost).filter(|_| !self.is_over(now)) else {
            return u64::MAX;
        };
        let left = self.refill.map_or(self.left, |it| {
            let back = it.rate.permits_of(now.nanos_since(self.since));
            let reserve = it.reserve_beside(cost.get());
            self.left.saturating_add(signed(back)).saturating_sub(signed(reserve))
        });
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
