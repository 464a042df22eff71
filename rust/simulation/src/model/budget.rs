// SPDX-License-Identifier: Apache-2.0
//! What retries a destination has had, and what it had earned.

use std::collections::{BTreeMap, BTreeSet};

use crate::rules::RULES;
use crate::scenario::CallPlan;
use crate::trace::{Asks, Broken, Checked, Id, Said};

/// What one retry costs.
const RETRY: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// First attempts that ended.
    first: u64,
    /// Others that were answered: their destination is well.
    answered: u64,
    retries: u64,
}

/// The retries of a function whose calls are answered, each by channel; all channels may be known.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    /// What each first attempt earns, and what each microsecond does.
    ratio: u64,
    least: u64,
    began_at: u64,
    counts: BTreeMap<Option<i64>, Counts>,
    /// Rows whose next attempt costs something.
    owing: BTreeSet<Id>,
}

impl Budget {
    /// `None` where there is no budget, or calls end that nobody has answered.
    pub(super) fn new(plan: &CallPlan, has_parts: bool) -> Option<Self> {
        let (ratio, least) = plan.retry_budget?;
        let is_known = plan.is_answered() && !has_parts;
        let (ratio, least) = (u64::from(ratio) * RETRY / 1_000, u64::from(least));
        is_known.then(|| Self {
            ratio,
            least,
            began_at: 0,
            counts: BTreeMap::new(),
            owing: BTreeSet::new(),
        })
    }

    /// The try with this number has ended; what it said is in the mail.
    pub(super) fn ended(&mut self, id: Id, number: u32, channel: Option<i64>, said: Said) {
        let counts = self.counts.entry(channel).or_default();
        // Who says when to come again, or asks for another result, is no worse for it.
        let (is_lost, is_answer) = match said {
            Said::Results { .. } | Said::Failure { asks: Asks::No, .. } => (false, true),
            Said::Failure { after, .. } => (after.is_none(), false),
        };
        counts.first += u64::from(number == 1);
        counts.answered += u64::from(number > 1 && is_answer);
        if is_lost {
            self.owing.insert(id);
        }
    }

    /// A row is called again: that was earned.
    pub(super) fn retry(&mut self, id: Id, channel: Option<i64>, now: u64) -> Checked {
        if !self.owing.remove(&id) {
            return Ok(());
        }
        let counts = self.counts.entry(channel).or_default();
        counts.retries += 1;
        let Counts { first, answered, retries } = *counts;
        let back = if RULES.answered_retry_gives_back { answered } else { 0 };
        let of_time = self.least * (now - self.began_at) / 1_000;
        if retries * RETRY > first * self.ratio + back * RETRY + of_time {
            let what = format!("{counts:?} of channel {channel:?} at {now}");
            return Err(Broken::new("no more retries than were earned", what));
        }
        Ok(())
    }
}
