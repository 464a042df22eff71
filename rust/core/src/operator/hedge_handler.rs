// SPDX-License-Identifier: Apache-2.0
//! A second call beside one that is slow: the first of the two answers is the record's.
//!
//! ```text
//!   First --slow, a credit--> Both --an answer of either--> Completed, the other is cancelled
//!                              |
//!                              +--one asks to be tried again--> First or Hedge, the other alone
//! ```
//!
//! The two are one attempt of the record, with the same number and a mark, so that a hedge takes
//! none of its retries. A hedge takes a credit like any call, and goes before records that wait for
//! one, since in a busy job none is ever left over. But records that have two calls never hold all
//! credits, of the operator or of a channel: one is left for others. A hedge that a rate limit did
//! not let start is tried again when it does.

use std::time::Duration;

use super::action::{AttemptId, Completion, Handled, Invocation};
use super::in_flight::{Calls, InFlight, Run};
use super::{AsyncWaitOperator, Begins};
use crate::flow::Next;
use crate::policy::CallSign;
use crate::queue::StreamElementQueue;
use crate::time::ProcessingTime;

/// Slow calls that are looked at when a credit is free, where those of some channels get none.
const LOOKED_AT: usize = 8;

impl<E: Clone, R, F> AsyncWaitOperator<E, R, F> {
    /// Waits until a first call that begins counts as slow.
    #[inline(never)]
    pub(super) fn watch(&mut self, attempt: AttemptId, now: ProcessingTime) {
        let hedging = self.hedging.as_mut().filter(|_| !attempt.is_hedge());
        if let Some(slow) = hedging.and_then(|it| it.delay.on_start(now)) {
            self.timers.hedges.push(slow, attempt);
        }
    }

    /// Puts the calls that count as slow now behind those that wait for a second one.
    pub(super) fn note_slow(&mut self, now: ProcessingTime) {
        if let Some(hedging) = &mut self.hedging {
            hedging.end_wait(now);
        }
        while let Some(attempt) = self.timers.hedges.pop_due(now) {
            if let Some(hedging) = self.hedging.as_mut().filter(|_| !self.is_closed) {
                hedging.slow.push_back(attempt);
            }
        }
    }

    /// Starts second calls, for those that have been slow for longest.
    #[inline(never)]
    pub(super) fn start_hedges(&mut self, now: ProcessingTime) {
        let mut looked_at = 0;
        while self.running < self.window && looked_at < LOOKED_AT {
            let Some(hedging) = &mut self.hedging else { return };
            let Some(attempt) = hedging.slow.pop_front() else { return };
            // One whose time has passed ends as soon as that is looked at.
            let longest = self.config.attempt_timeout.unwrap_or(Duration::MAX);
            let is_late = |it: &InFlight<E>| {
                it.run().is_none_or(|run| now >= it.deadline.min(run.since + longest))
            };
            let in_flight = self.queue.get_mut(attempt.entry);
            let in_flight = in_flight.filter(|it| it.runs_alone(attempt) && !is_late(it));
            let Some(in_flight) = in_flight else { continue };
            let channel = in_flight.channel;
            if !hedging.delay.may_hedge() || !hedging.leaves_one(self.window) {
                return hedging.slow.push_front(attempt);
            }
            if let Some(channels) = &mut self.channels {
                let leaves_one = |calls| hedging.leaves_one_of(channel, calls);
                let again = match channels.try_hedge(channel, attempt.entry, leaves_one, now) {
                    Next::Start(()) => None,
                    Next::WaitUntil(at) => Some(at),
                    // A call has to end first.
                    Next::None => Some(ProcessingTime::NEVER),
                };
                if let Some(again) = again {
                    hedging.put_back(attempt, again);
                    looked_at += 1;
                    continue;
                }
            }
            hedging.delay.on_hedge();
            hedging.pair(attempt.entry, channel, Run::new(self.config.begins, now));
            let value = in_flight.record.value.clone();
            in_flight.run_mut().into_iter().for_each(|it| it.calls = Calls::Both);
            self.running += 1;
            let attempt = attempt.hedge();
            if self.config.begins == Begins::AtOnce {
                self.begin_call(attempt, now);
            }
            self.actions.invoke.push(Invocation { attempt, value });
        }
    }

    /// Takes `attempt` as the one whose outcome is the record's: cancels the one beside it, and learns
    /// how long the record waited if it was an answer, and `was_called`.
    #[inline(never)]
    pub(super) fn note_first(
        &mut self,
        attempt: AttemptId,
        is_answer: bool,
        was_called: bool,
        now: ProcessingTime,
    ) {
        let run = self.queue.get_mut(attempt.entry).and_then(|it| it.run());
        let Some(Run { calls, since, .. }) = run else { return };
        if is_answer {
            self.metrics.hedges_won += u64::from(attempt.is_hedge());
            // Also of a call that the one beside it was faster than, or slow calls would vanish from
            // what is known.
            let counts = was_called && calls != Calls::Hedge;
            if let Some(hedging) = self.hedging.as_mut().filter(|_| counts) {
                hedging.delay.on_end(now.saturating_since(since));
            }
        }
        if calls == Calls::Both {
            let other = if attempt.is_hedge() { attempt.first() } else { attempt.hedge() };
            self.cut_call(other, CallSign::CutOff, now);
        }
    }

    /// Cancels one of the two calls of a record; the other goes on alone.
    #[inline(never)]
    pub(super) fn cut_call(&mut self, attempt: AttemptId, sign: CallSign, now: ProcessingTime) {
        let was_made = self.give_up(attempt);
        let sign = if was_made { sign } else { CallSign::NotCalled };
        let (_, has_begun) = self.end_one(attempt, sign, now);
        self.count_given_up(attempt, has_begun, was_made);
        if let Some(hedging) = self.hedging.as_mut().filter(|_| !was_made && attempt.is_hedge()) {
            hedging.delay.take_back();
        }
    }

    /// Takes the outcome of one of the two calls of a record that asks to be tried again: the other
    /// one is that already.
    #[inline(never)]
    pub(super) fn leave_to_other(
        &mut self,
        attempt: AttemptId,
        ended: Completion<R, F>,
        now: ProcessingTime,
    ) -> Handled {
        let (took, has_begun) = self.end_one(attempt, ended.sign, now);
        self.metrics.correct(self.earlier.kind_of(attempt), has_begun, ended.sign);
        if let Err(failure) = ended.outcome {
            self.earlier.note_failure(attempt.entry, failure);
        }
        self.start_waiting(now);
        Handled::Retried(took)
    }

    /// Gives the permit of one of the two calls of a record back; returns the nanoseconds
    /// that it ran for, and whether it had begun.
    fn end_one(&mut self, attempt: AttemptId, sign: CallSign, now: ProcessingTime) -> (u64, bool) {
        let second = self.hedging.as_mut().and_then(|it| it.unpair(attempt.entry));
        let (Some(in_flight), Some(second)) = (self.queue.get_mut(attempt.entry), second) else {
            return (0, false);
        };
        let channel = in_flight.channel;
        let Some(run) = in_flight.run_mut() else { return (0, false) };
        let second = Run { calls: Calls::Hedge, since: second.since, has_begun: second.has_begun };
        let Run { since: started, has_begun, .. } = if attempt.is_hedge() {
            run.calls = Calls::First;
            second
        } else {
            std::mem::replace(run, second)
        };
        self.running -= 1;
        if let Some(channels) = &mut self.channels {
            channels.note_answer(channel, sign, now);
            channels.observe_call(channel, attempt.call(), (started, now), sign);
            channels.end_one_of_two(channel);
        }
        (now.nanos_since(started), has_begun)
    }
}

#[cfg(test)]
mod tests;
