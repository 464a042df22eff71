// SPDX-License-Identifier: Apache-2.0
//! What channels change in the model of the operator.

use std::collections::{HashMap, HashSet};

use sparkawait_core::element::Key;
use sparkawait_core::flow::ChannelConfig;

use super::held_model::{Held, State};
use super::operator_model::{Model, Operator};

/// The channel of the record with the given value; one in four has none.
fn channel_of(value: u32) -> Option<Key> {
    (value / 4 % 4 != 3).then_some(Key::new(u64::from(value / 4 % 4)))
}

/// The exclusive credits of each active channel.
pub(super) type Assigned = HashMap<Option<Key>, u32>;

impl Model {
    /// The channel of a record; all are of one if there is but one.
    pub(crate) fn channel(&self, value: u32) -> Option<Key> {
        channel_of(value).filter(|_| !self.is_single())
    }

    pub(crate) fn is_single(&self) -> bool {
        self.config.channels.is_some_and(|it| it.is_single)
    }

    fn max_concurrency(&self) -> u32 {
        u32::try_from(self.config.max_concurrency.get()).unwrap()
    }

    /// Calls that could be in flight beside those that are.
    pub(super) fn unused_calls(&self) -> usize {
        self.window.saturating_sub(self.held().filter(|it| it.is_running()).count())
    }

    /// Calls of one channel when all permits are given out.
    pub(super) fn most(&self, channels: &ChannelConfig) -> u32 {
        channels.max_per_channel.clamp(1, self.max_concurrency())
    }

    /// Calls of one channel now: its part of the window is that of what it may hold of all permits.
    fn limit(&self, channels: &ChannelConfig) -> u32 {
        let (most, max) = (self.most(channels), self.max_concurrency());
        let window = u32::try_from(self.window).unwrap();
        if window == max {
            return most;
        }
        let may_hold = most.min(channels.exclusive + self.floating(channels));
        (may_hold * window / max).max(1)
    }

    /// Checks that the channel of a record that starts has fewer calls than it may have.
    pub(super) fn check_share(&self, value: u32) {
        let Some(channels) = self.config.channels else { return };
        let running = self.running_in(self.channel(value));
        assert!(running < self.limit(&channels), "{value} starts beside {running} of its channel");
        self.check_policy(value, running);
    }

    fn floating(&self, channels: &ChannelConfig) -> u32 {
        channels.floating.clamp(1, self.max_concurrency())
    }

    /// Records of a channel that are admitted and have no outcome yet.
    fn unfinished(&self, channel: Option<Key>) -> impl Iterator<Item = &Held> {
        let is_unfinished = |it: &&Held| !matches!(it.state, State::Final(_) | State::Failed);
        self.held().filter(move |it| self.channel(it.value) == channel).filter(is_unfinished)
    }

    pub(super) fn running_in(&self, channel: Option<Key>) -> u32 {
        let running = self.unfinished(channel).filter(|it| it.is_running());
        u32::try_from(running.count()).unwrap()
    }

    fn pending_in(&self, channel: Option<Key>) -> usize {
        let is_pending = |it: &&Held| matches!(it.state, State::Waiting | State::BackOff { .. });
        self.unfinished(channel).filter(is_pending).count()
    }

    fn channels(&self) -> HashSet<Option<Key>> {
        self.held().map(|it| self.channel(it.value)).collect()
    }

    /// Slots that are free for another record.
    pub(super) fn slots(&self) -> usize {
        let (capacity, held) = (self.config.capacity.get(), self.held().count());
        let spread = self.config.channels.filter(|it| !it.is_single);
        let Some(channels) = spread else { return capacity - held };
        let bound = channels.max_backlog_per_channel as usize;
        let sheltered = self.channels().into_iter().map(|it| self.pending_in(it).min(bound));
        let sheltered: usize = sheltered.sum();
        let free_backlog = channels.max_backlog.saturating_sub(sheltered);
        let beside_the_backlog = (capacity + sheltered).saturating_sub(held);
        // Beyond the capacity there is room for calls that what waits cannot make.
        let most = capacity.saturating_sub(held).max(self.unused_calls());
        beside_the_backlog.min(most).min(free_backlog)
    }

    /// Whether a record is admitted, even if the operator should not be asked.
    pub(crate) fn accepts(&self) -> bool {
        let spread = self.config.channels.filter(|it| !it.is_single);
        let Some(channels) = spread else { return self.free_slots() > 0 };
        let is_open = !self.is_closed && self.replay.is_empty();
        is_open && self.held().count() < self.config.capacity.get() + channels.max_backlog
    }

    /// Gives the channel of an admitted record its own credits, if it was idle.
    pub(super) fn activate_channel(&mut self, value: u32) {
        let Some(channels) = self.config.channels else { return };
        let channel = self.channel(value);
        let exclusive = self.max_concurrency() - self.floating(&channels);
        let unassigned = exclusive - self.assigned.values().sum::<u32>();
        let now = self.now;
        let window = self.policy(channel).map_or(u32::MAX, |it| it.window(now));
        let own = channels.exclusive.min(unassigned).min(self.limit(&channels)).min(window);
        self.assigned.entry(channel).or_insert(own);
    }

    /// Takes the credits of the channel of a final record, if that was its last.
    pub(super) fn retire_channel(&mut self, value: u32) {
        let channel = self.channel(value);
        if self.unfinished(channel).next().is_none() {
            self.assigned.remove(&channel);
        }
    }

    /// Checks that no record waits for a credit that is free.
    pub(super) fn check_credits(&self) {
        let Some(channels) = self.config.channels.filter(|_| !self.is_closed) else { return };
        let own = |channel: Option<Key>| self.assigned.get(&channel).copied().unwrap_or(0);
        let lent =
            self.channels().into_iter().map(|it| self.running_in(it).saturating_sub(own(it)));
        let lent: u32 = lent.sum();
        assert!(lent <= self.floating(&channels), "{lent} credits are lent");
        for channel in self.channels() {
            let running = self.running_in(channel);
            assert!(running <= self.most(&channels), "{running} calls of {channel:?}");
            let may_start = |it: &&Held| it.state == State::Waiting && !self.is_blocked(it.value);
            let waits = self.unfinished(channel).any(|it| may_start(&it));
            let has_credit = running < own(channel) || lent < self.floating(&channels);
            let is_limited = running >= self.limit(&channels)
                || self.running() >= self.window
                || self.is_held(channel, running, self.handled_at);
            assert!(!waits || is_limited || !has_credit, "a credit of {channel:?} is free");
        }
    }

    /// Compares what the operator says of its channels.
    pub(super) fn check_report(&self, operator: &Operator) {
        let report = operator.channel_report(usize::MAX, self.now);
        assert_eq!(report.is_some(), self.config.channels.is_some_and(|it| !it.is_single));
        let Some((report, samples)) = report.filter(|_| !self.is_closed) else { return };
        assert_eq!(report.active, self.assigned.len());
        for (channel, sample) in report.top.iter().zip(samples) {
            assert_eq!(channel.in_flight, self.running_in(channel.key));
            assert_eq!(channel.backlog as usize, self.pending_in(channel.key));
            let is_active = self.assigned.contains_key(&channel.key);
            assert_eq!(sample.map(|it| self.channel(it)), is_active.then_some(channel.key));
        }
    }
}
