// SPDX-License-Identifier: Apache-2.0
//! What replies say beside the outcomes of their calls.

use super::AsyncWaitOperator;
use super::action::{AttemptId, Remark};
use crate::queue::StreamElementQueue;
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
        let (started, channel) = (second.map_or(run.since, |it| it.since), in_flight.channel);
        if self.channels.is_none() && matches!(remark, Remark::Pause(_)) {
            self.make_single_channel(now);
        }
        let Some(channels) = &mut self.channels else { return };
        let call = attempt.call();
        match remark {
            Remark::Pause(delay) => channels.pause_until(channel, now + delay, started, now),
            Remark::NotSent => channels.give_back(call),
            Remark::Request => channels.charge_request(channel, call, now),
            Remark::Cost { limit, cost } => channels.settle(call, limit, cost),
            Remark::Left { left, is_of_channel } => channels.note_left(call, left, is_of_channel),
        }
    }
}
