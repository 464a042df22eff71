// SPDX-License-Identifier: Apache-2.0
//! Which calls of an operator are slow, and which have another one beside them.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use super::action::AttemptId;
use super::in_flight::Run;
use crate::flow::ChannelId;
use crate::key_hasher::KeyHasher;
use crate::policy::{HedgeConfig, HedgeDelay};
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// The second call of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Second {
    channel: ChannelId,
    /// As of a first one, see [`Run`].
    pub(super) since: ProcessingTime,
    pub(super) has_begun: bool,
}

/// Which calls are slow, and which have another one beside them.
#[derive(Debug)]
pub(super) struct Hedging {
    pub(super) delay: HedgeDelay,
    /// The second calls of records with two.
    pairs: HashMap<EntryId, Second, BuildHasherDefault<KeyHasher>>,
    /// How many of them there are of each channel, by its number.
    pairs_of: Vec<u32>,
    /// Slow calls that wait for a second one; some have ended since.
    pub(super) slow: VecDeque<AttemptId>,
    /// When limits in time let the first of those start that they do not yet, unless a call ends
    /// before.
    again: ProcessingTime,
}

impl Hedging {
    pub(super) fn new(config: HedgeConfig) -> Self {
        Self {
            delay: HedgeDelay::new(config),
            pairs: HashMap::default(),
            pairs_of: Vec::new(),
            slow: VecDeque::new(),
            again: ProcessingTime::NEVER,
        }
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

    /// Returns when to look at slow calls again.
    pub(super) fn next_look(&self) -> Option<ProcessingTime> {
        Some(self.again).filter(|it| *it != ProcessingTime::NEVER && self.has_slow())
    }

    /// Ends the wait for that time if it has come: they are looked at now.
    pub(super) fn end_wait(&mut self, now: ProcessingTime) {
        if self.again <= now {
            self.again = ProcessingTime::NEVER;
        }
    }

    /// Notes that a second call is handed over, in the state of `run`.
    pub(super) fn pair(&mut self, entry: EntryId, channel: ChannelId, run: Run) {
        let place = channel.0 as usize;
        self.pairs_of.resize(self.pairs_of.len().max(place + 1), 0);
        self.pairs_of[place] += 1;
        let Run { since, has_begun, .. } = run;
        self.pairs.insert(entry, Second { channel, since, has_begun });
    }

    /// Notes that one of the two calls of a record has ended; returns the second one.
    pub(super) fn unpair(&mut self, entry: EntryId) -> Option<Second> {
        let second = self.pairs.remove(&entry)?;
        self.pairs_of[second.channel.0 as usize] -= 1;
        Some(second)
    }

    /// Returns the second call of a record, if it has two.
    pub(super) fn second(&self, entry: EntryId) -> Option<Second> {
        self.pairs.get(&entry).copied()
    }

    /// Does as [`second`](Self::second) for one who changes it.
    pub(super) fn second_mut(&mut self, entry: EntryId) -> Option<&mut Second> {
        self.pairs.get_mut(&entry)
    }

    /// Returns how many records have two calls.
    pub(super) fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Whether `calls` bear one record more with two of them.
    pub(super) fn leaves_one(&self, calls: usize) -> bool {
        2 * (self.pairs.len() + 1) < calls
    }

    /// Whether `calls` of a channel do.
    pub(super) fn leaves_one_of(&self, channel: ChannelId, calls: usize) -> bool {
        let pairs = self.pairs_of.get(channel.0 as usize).copied().unwrap_or_default();
        2 * (pairs as usize + 1) < calls
    }
}
