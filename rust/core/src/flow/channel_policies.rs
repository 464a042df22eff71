// SPDX-License-Identifier: Apache-2.0
//! The policies of all channels of a table, and when they are to be asked again.

use super::ChannelId;
use crate::policy::{CallPolicy, ChannelPolicy, EndedCall, PolicyConfig};
use crate::time::ProcessingTime;
use crate::timer::DelayedRetries;

/// What a call costs that a table lets start: it counts calls.
pub(super) const COST: u64 = 1;

/// Policies for each channel that is open, by its number.
#[derive(Debug)]
pub(super) struct ChannelPolicies {
    config: PolicyConfig,
    channels: Vec<Policed>,
    /// When channels that are held are to be looked at; entries of others are dropped lazily.
    wakes: DelayedRetries<ChannelId>,
}

#[derive(Debug)]
struct Policed {
    policy: ChannelPolicy,
    /// Until when it is held, if it is.
    held_until: Option<ProcessingTime>,
}

/// What the policies of a channel say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Most calls in flight.
    pub(super) window: u32,
    /// When the next call may start, if not now.
    pub(super) held_until: Option<ProcessingTime>,
    /// Whether the table is to ask before each call.
    pub(super) is_watching: bool,
}

impl ChannelPolicies {
    /// Makes policies for channels that are opened later; `None` if nothing is bounded.
    pub(super) fn new(config: PolicyConfig, max: u32) -> Option<Box<Self>> {
        let config = config.sound(max);
        let it = || Self { config, channels: Vec::new(), wakes: DelayedRetries::new() };
        (!config.is_none()).then(|| Box::new(it()))
    }

    /// Begins anew for a channel, whose number is the next one or was in use before.
    pub(super) fn open(&mut self, id: ChannelId, now: ProcessingTime) {
        let policy = ChannelPolicy::new(&self.config, now);
        let policed = Policed { policy, held_until: None };
        match self.channels.get_mut(id.0 as usize) {
            Some(known) => *known = policed,
            None => self.channels.push(policed),
        }
    }

    pub(super) fn on_start(&mut self, id: ChannelId, now: ProcessingTime) {
        if let Some(it) = self.channels.get_mut(id.0 as usize) {
            it.policy.on_start(now, COST);
        }
    }

    pub(super) fn on_end(&mut self, id: ChannelId, call: &EndedCall) {
        if let Some(it) = self.channels.get_mut(id.0 as usize) {
            it.policy.on_end(call);
        }
    }

    /// Asks what holds for a channel now.
    pub(super) fn verdict(&self, id: ChannelId, now: ProcessingTime) -> Verdict {
        let Some(Policed { policy, .. }) = self.channels.get(id.0 as usize) else {
            return Verdict { window: u32::MAX, held_until: None, is_watching: false };
        };
        let window = policy.window(now);
        let ready_at = policy.ready_at(now, COST);
        let is_watching = policy.is_watching(now);
        Verdict { window, held_until: (ready_at > now).then_some(ready_at), is_watching }
    }

    /// Notes until when a channel is held.
    pub(super) fn hold(&mut self, id: ChannelId, until: Option<ProcessingTime>) {
        let Some(it) = self.channels.get_mut(id.0 as usize) else { return };
        if it.held_until == until {
            return;
        }
        it.held_until = until;
        if let Some(until) = until.filter(|it| *it != ProcessingTime::NEVER) {
            self.wakes.push(until, id);
        }
    }

    /// Returns when a channel is to be looked at.
    pub(super) fn next_wake(&mut self) -> Option<ProcessingTime> {
        let channels = &self.channels;
        self.wakes.next_at(|id, at| is_held_until(channels, id, at))
    }

    /// Returns a channel whose time has come.
    pub(super) fn pop_due(&mut self, now: ProcessingTime) -> Option<ChannelId> {
        while let Some((at, id)) = self.wakes.pop_due_at(now) {
            if is_held_until(&self.channels, id, at) {
                return Some(id);
            }
        }
        None
    }

    /// Forgets all but the first `channels` channels, and gives their memory back.
    pub(super) fn truncate(&mut self, channels: usize) {
        self.channels.truncate(channels);
        self.channels.shrink_to(2 * channels);
    }
}

fn is_held_until(channels: &[Policed], id: ChannelId, at: ProcessingTime) -> bool {
    channels.get(id.0 as usize).is_some_and(|it| it.held_until == Some(at))
}
