// SPDX-License-Identifier: Apache-2.0
//! How an operator without channels gets one for all its records.
//!
//! Its calls are bounded by their number alone, until one of three things happens for the first time:
//!
//! | what | who tells | what the channel does about it |
//! |---|---|---|
//! | a reply asks for a pause | [`remark`](AsyncWaitOperator::remark) | holds all calls |
//! | a call is lost that will be tried again, and retries have a budget | [`begin_budget`](AsyncWaitOperator::begin_budget) | counts tokens |
//! | a call gets no answer in time while records wait | [`note_silence`](AsyncWaitOperator::note_silence) | ends what waits for too long |
//!
//! Not at construction, although each of them can happen to any function: a record on a channel costs 15 %
//! more instructions than one without (`core/operator_channels` in `benches/baseline`: 367 without, 422
//! on one), and to most tasks none of them ever happens. What the channel will be is settled then all
//! the same, by `Config::single_channel`. After that there is no difference to an operator that was made
//! with a single channel.

use std::num::NonZeroUsize;

use super::AsyncWaitOperator;
use super::action::AttemptId;
use super::in_flight::{Calls, Phase, Run};
use crate::element::StreamElement;
use crate::flow::Next;
use crate::policy::CallSign;
use crate::queue::{Entry, EntryId, StreamElementQueue};
use crate::time::ProcessingTime;

impl<E: Clone, R, F> AsyncWaitOperator<E, R, F> {
    /// Sees to it that retries are counted from the first one on that costs its destination some.
    ///
    /// To be called while the attempt that asks for it still has its permit.
    #[cold]
    pub(super) fn begin_budget(&mut self, attempt: AttemptId, sign: CallSign, now: ProcessingTime) {
        let is_counted = self.channels.is_some() || self.config.retry_budget.is_none();
        if is_counted || !sign.is_drop() {
            return;
        }
        if attempt.attempt == AttemptId::TIMEOUT || !self.awaits(attempt) {
            return;
        }
        self.make_single_channel(now);
    }

    /// Lets those that wait age if their destination does not answer any more, where there are no
    /// channels: from then on they are on one, which knows for how long. To be told of calls from
    /// `started` on that take too long, while the last of them has its permit.
    pub(super) fn note_silence(&mut self, started: ProcessingTime, now: ProcessingTime) {
        if self.channels.is_some() || self.answered_at > started {
            return;
        }
        let called = self.running - self.hedging.as_ref().map_or(0, |it| it.pairs());
        let any_waits = self.queue.len() > called + self.backing_off + self.completed;
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
        let mut channels = self.config.single_channel();
        let pending: Vec<EntryId> = self.queue.values().into_iter().filter_map(pending).collect();
        let mut uncalled = 0;
        for id in pending {
            let Some(in_flight) = self.queue.get_mut(id) else { continue };
            in_flight.channel = channels.admit(None, in_flight.run().is_some(), now).0;
            uncalled += usize::from(in_flight.run().is_some_and(Run::is_uncalled));
            match in_flight.phase {
                Phase::Running(Run { calls: Calls::Both, .. }) => {
                    let second = channels.try_hedge(in_flight.channel, id, |_| true, now);
                    if second != Next::Start(()) {
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
        let attempts = self.metrics.attempts;
        let further = self.metrics.retries + self.metrics.parts;
        let running = self.running.saturating_sub(uncalled) as u64;
        channels.note_earlier_calls(attempts.saturating_sub(further + running), now);
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
