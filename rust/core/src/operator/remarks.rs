// SPDX-License-Identifier: Apache-2.0
//! What replies say beside the outcomes of their calls.

use std::num::NonZeroUsize;

use super::AsyncWaitOperator;
use super::action::{AttemptId, Remark};
use super::in_flight::{Calls, Phase, Run};
use crate::element::StreamElement;
use crate::flow::ChannelConfig;
use crate::policy::PolicyConfig;
use crate::queue::{Entry, EntryId, StreamElementQueue};
use crate::time::ProcessingTime;

impl<E: Clone, R, F> AsyncWaitOperator<E, R, F> {
    /// Takes what a reply says beside the outcome of its call, before that is told. Ignored once the
    /// outcome is no longer awaited.
    pub fn remark(&mut self, attempt: AttemptId, remark: Remark, now: ProcessingTime) {
        if attempt.attempt == AttemptId::TIMEOUT || !self.awaits(attempt) {
            return;
        }
        let Some(in_flight) = self.queue.get_mut(attempt.entry) else { return };
        let second = self.hedging.as_ref().and_then(|it| it.second(attempt.entry));
        let second = second.filter(|_| attempt.is_hedge());
        let Some(run) = in_flight.run() else { return };
        let (started, channel) = (second.unwrap_or(run.since), in_flight.channel);
        if self.channels.is_none() && matches!(remark, Remark::Pause(_)) {
            self.make_single_channel(now);
        }
        let Some(channels) = &mut self.channels else { return };
        if second.is_some() {
            channels.turn_calls(attempt.entry);
        }
        match remark {
            Remark::Pause(delay) => channels.pause_until(channel, now + delay, started, now),
            Remark::Request => channels.charge_request(channel, attempt.entry, now),
            Remark::Cost { limit, cost } => channels.settle(attempt.entry, limit, cost),
            Remark::Left { left, is_of_channel } => {
                channels.note_left(attempt.entry, left, is_of_channel);
            }
        }
        if second.is_some() {
            channels.turn_calls(attempt.entry);
        }
    }

    /// Lets those that wait age if their destination does not answer any more, where there are no
    /// channels: from then on they are on one, which knows for how long. To be told of calls from
    /// `started` on that take too long, while the last of them has its permit.
    pub(super) fn note_silence(&mut self, started: ProcessingTime, now: ProcessingTime) {
        if self.channels.is_some() || self.answered_at > started {
            return;
        }
        let any_waits = self.queue.len() > self.running + self.backing_off + self.completed;
        if any_waits && self.config.max_wait().is_some() {
            self.make_single_channel(now);
            if let Some(channels) = &mut self.channels {
                channels.inherit_silence(started, now);
            }
        }
    }

    /// Puts all records on one channel, where there are none: for the first time something bounds
    /// their calls beside their number.
    #[cold]
    pub(super) fn make_single_channel(&mut self, now: ProcessingTime) {
        self.config.channels = Some(ChannelConfig::single(PolicyConfig::NONE));
        let Some(mut channels) = self.config.channel_table() else { return };
        let pending: Vec<EntryId> = self.queue.values().into_iter().filter_map(pending).collect();
        for id in pending {
            let Some(in_flight) = self.queue.get_mut(id) else { continue };
            in_flight.channel = channels.admit(None, in_flight.run().is_some(), now).0;
            match in_flight.phase {
                Phase::Running(Run { calls: Calls::Both, .. }) => {
                    if channels.try_hedge(in_flight.channel, id, |_| true, now).is_err() {
                        debug_assert!(false, "nothing bounds the calls of this channel yet");
                    }
                }
                Phase::Blocked { .. } | Phase::Waiting { .. } | Phase::BackOff { .. } => {
                    channels.suspend(in_flight.channel);
                }
                Phase::Running(_) | Phase::TimedOut | Phase::Completed => {}
            }
        }
        for id in self.waiting.drain(..) {
            if let Some(in_flight) = self.queue.get_mut(id) {
                let (is_retry, since) = (in_flight.attempt > 0, in_flight.waits_since());
                channels.wait(in_flight.channel, id, is_retry, since.unwrap_or(now), now);
            }
        }
        for element in &mut self.replay {
            if let StreamElement::Record(replayed) = element {
                replayed.channel = None;
            }
        }
        if let Some(window) = NonZeroUsize::new(self.window) {
            channels.set_window(window);
        }
        let (attempts, retries) = (self.metrics.attempts, self.metrics.retries);
        channels.note_earlier_calls(attempts.saturating_sub(retries + self.running as u64), now);
        self.channels = Some(channels);
    }
}

/// Returns a record that has no outcome yet.
fn pending<T, R>(element: StreamElement<Entry<'_, T, R>>) -> Option<EntryId> {
    match element {
        StreamElement::Record(entry) if entry.result.is_none() => Some(entry.id),
        StreamElement::Record(_) | StreamElement::Watermark(_) => None,
    }
}
