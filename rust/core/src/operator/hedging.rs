// SPDX-License-Identifier: Apache-2.0
//! Which calls of an operator are slow, and which have another one beside them.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use super::action::AttemptId;
use crate::flow::ChannelId;
use crate::key_hasher::KeyHasher;
use crate::policy::{HedgeConfig, HedgeDelay};
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// Which calls are slow, and which have another one beside them.
#[derive(Debug)]
pub(super) struct Hedging {
    pub(super) delay: HedgeDelay,
    /// Records with two calls: when the second one started, and where.
    pub(super) pairs: HashMap<EntryId, (ProcessingTime, ChannelId), BuildHasherDefault<KeyHasher>>,
    /// Slow calls that wait for a second one; some have ended since.
    pub(super) slow: VecDeque<AttemptId>,
    /// When limits in time let the first of those start that they do not yet, unless a call ends
    /// before.
    again: ProcessingTime,
}

impl Hedging {
    pub(super) fn new(config: HedgeConfig) -> Self {
        let (pairs, slow) = (HashMap::default(), VecDeque::new());
        Self { delay: HedgeDelay::new(config), pairs, slow, again: ProcessingTime::NEVER }
    }

    #[inline]
    pub(super) fn has_slow(&self) -> bool {
        !self.slow.is_empty()
    }

    /// Puts a slow call behind the others, since nothing lets its second one start before `again`.
    pub(super) fn put_back(&mut self, attempt: AttemptId, again: ProcessingTime) {
        self.slow.push_back(attempt);
        self.again = self.again.min(again);
    }

    /// Returns when slow calls are to be looked at again.
    pub(super) fn next_look(&self) -> Option<ProcessingTime> {
        Some(self.again).filter(|it| *it != ProcessingTime::NEVER && self.has_slow())
    }

    /// Ends the wait for that time if it has come: they are looked at now.
    pub(super) fn end_wait(&mut self, now: ProcessingTime) {
        if self.again <= now {
            self.again = ProcessingTime::NEVER;
        }
    }

    /// Notes that a call begins that has waited since it was started; returns when it is slow.
    pub(super) fn began(
        &mut self,
        attempt: AttemptId,
        now: ProcessingTime,
    ) -> Option<ProcessingTime> {
        if let Some((since, _)) = self.pairs.get_mut(&attempt.entry).filter(|_| attempt.is_hedge())
        {
            *since = now;
        }
        self.delay.slow_at(now)
    }

    /// Whether `calls` bear one record more with two of them.
    pub(super) fn leaves_one(&self, calls: usize, is_of: impl Fn(ChannelId) -> bool) -> bool {
        let pairs = self.pairs.values().filter(|(_, channel)| is_of(*channel)).count();
        2 * (pairs + 1) < calls
    }
}
