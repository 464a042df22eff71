// SPDX-License-Identifier: Apache-2.0
//! What a deadline does to a record.
//!
//! Of those that come due at one moment all take effect before any call starts, in the order of
//! [`Timer`].

use super::action::{AttemptId, Ended, Failure, Invocation, Retry};
use super::in_flight::{Calls, InFlight, Phase, Run};
use super::timers::Timer;
use super::{AsyncWaitOperator, Outcome, outage_handler};
use crate::policy::CallSign;
use crate::queue::{AnyStreamElementQueue, EntryId, StreamElementQueue};
use crate::time::ProcessingTime;

impl<E: Clone, R, F> AsyncWaitOperator<E, R, F> {
    /// Lets every deadline and every retry that is due take effect.
    pub fn handle_time(&mut self, now: ProcessingTime) {
        self.expire(now);
        self.start_waiting(now);
    }

    /// Lets what is due take effect, and starts nothing.
    pub(super) fn expire(&mut self, now: ProcessingTime) {
        for timer in Timer::ALL {
            self.fire(timer, now);
        }
    }

    fn fire(&mut self, timer: Timer, now: ProcessingTime) {
        match timer {
            Timer::Record => {
                while let Some((at, id)) = self.timers.records.pop_due_at(now) {
                    // One that was given more time is listed again, behind those that were due before.
                    if self.queue.get_mut(id).is_some_and(|it| it.deadline == at) {
                        self.time_out(id, now);
                    }
                }
            }
            Timer::Attempt => {
                while let Some(attempt) = self.timers.attempts.pop_due(now) {
                    self.time_out_attempt(attempt, now);
                }
            }
            Timer::BackOff => {
                while let Some(attempt) = self.timers.back_offs.pop_due(now) {
                    self.retry(attempt, now);
                }
            }
            Timer::Hedge => self.note_slow(now),
            Timer::Channel => {
                if let Some(channels) = &mut self.channels {
                    channels.handle_time(now);
                    self.hand_out_tokens(now);
                }
            }
        }
    }

    /// Returns when [`handle_time`](Self::handle_time) has something to do.
    pub fn poll_timeout(&mut self) -> Option<ProcessingTime> {
        if self.is_closed {
            return None;
        }
        Timer::ALL.into_iter().filter_map(|timer| self.earliest(timer)).min()
    }

    /// Returns the earliest deadline of a kind; drops those that concern nobody any more.
    fn earliest(&mut self, timer: Timer) -> Option<ProcessingTime> {
        let (timers, queue) = (&mut self.timers, &mut self.queue);
        let held = queue.len();
        match timer {
            Timer::Record => timers.records.next(held, |id, at| can_time_out(queue, id, at)),
            Timer::Attempt => timers.attempts.next(held, |attempt, _| runs(queue, attempt)),
            Timer::BackOff => timers.back_offs.next(|attempt| backs_off(queue, attempt)),
            Timer::Hedge => {
                let slow = timers.hedges.next(held, |attempt, _| runs_alone(queue, attempt));
                let again = self.hedging.as_ref().and_then(|it| it.next_look());
                slow.into_iter().chain(again).min()
            }
            Timer::Channel => self.channels.as_mut().and_then(|it| it.poll_timeout()),
        }
    }

    /// Returns the number of records, attempts and back-offs whose deadline is armed.
    pub fn active_timers(&mut self) -> usize {
        if self.is_closed {
            return 0;
        }
        Timer::ALL.into_iter().map(|timer| self.armed(timer)).sum()
    }

    fn armed(&mut self, timer: Timer) -> usize {
        let (timers, queue) = (&self.timers, &mut self.queue);
        match timer {
            Timer::Record => timers.records.count(|id, at| times_out(queue, id, at)),
            Timer::Attempt => timers.attempts.count(|attempt, _| runs(queue, attempt)),
            Timer::BackOff => self.backing_off,
            Timer::Hedge => timers.hedges.count(|attempt, _| runs_alone(queue, attempt)),
            // A channel that is held is not a record.
            Timer::Channel => 0,
        }
    }

    /// Ends a record whose time has passed: cancels its attempt, asks or fails.
    fn time_out(&mut self, id: EntryId, now: ProcessingTime) {
        let Some(in_flight) = self.queue.get_mut(id).filter(|_| !self.is_closed) else { return };
        // One that waits has the rest of its time when it goes on, and is listed again then.
        if !in_flight.ages() || in_flight.deadline > now {
            return;
        }
        let mut run = in_flight.run();
        let begun = in_flight.deadline.before_nanos(self.timeout_nanos);
        self.note_silence(begun, now);
        let Some(in_flight) = self.queue.get_mut(id) else { return };
        let mut was_made = true;
        if let Some(run) = &mut run {
            let attempt = AttemptId { entry: id, attempt: in_flight.attempt };
            if run.calls == Calls::Both {
                self.cut_call(attempt.hedge(), CallSign::CutOff, now);
            }
            let call = run.call_of(attempt);
            was_made = self.give_up(call);
            self.running -= 1;
            self.count_given_up(call, run.has_begun, was_made);
            run.has_begun &= was_made;
        } else {
            self.backing_off -= 1;
        }
        if let Some(in_flight) = self.queue.get_mut(id) {
            in_flight.phase = Phase::TimedOut;
        }
        if self.channels.is_some() {
            self.time_out_in_channel(id, run, was_made, now);
        }
        if run.is_some_and(Run::is_uncalled)
            && let Some(in_flight) = self.queue.get_mut(id)
        {
            in_flight.attempt -= 1;
        }
        self.run_out(id, Ended::TimedOut, now);
    }

    /// Has a call cancelled whose outcome no longer matters; returns whether it was made. One that the
    /// function has not seen is not: its limits get back what it took, as [`CallSign::NotCalled`] says.
    pub(super) fn give_up(&mut self, call: AttemptId) -> bool {
        if self.actions.take_back(call) {
            return false;
        }
        let is_recalled = self.config.recall.as_ref().is_some_and(|it| it.take_back(call));
        let told = if is_recalled { &mut self.actions.recalled } else { &mut self.actions.cancel };
        told.push(call);
        !is_recalled
    }

    /// Counts a call that was [given up](Self::give_up).
    pub(super) fn count_given_up(&mut self, call: AttemptId, has_begun: bool, was_made: bool) {
        if was_made {
            self.metrics.cancelled += u64::from(has_begun);
        } else {
            let kind = self.earlier.kind_of(call);
            self.metrics.correct(kind, has_begun, CallSign::NotCalled);
        }
    }

    /// Ends a record that has no time left before it is called.
    pub(super) fn end_untimely(&mut self, id: EntryId, now: ProcessingTime) {
        let Some(in_flight) = self.queue.get_mut(id) else { return };
        in_flight.phase = Phase::TimedOut;
        if let Some(channels) = &mut self.channels {
            channels.resume(in_flight.channel);
        }
        self.run_out(id, Ended::TimedOut, now);
    }

    /// Asks what a record shall emit that has no time left, or fails it. Its phase is set.
    pub(super) fn run_out(&mut self, id: EntryId, why: Ended, now: ProcessingTime) {
        self.metrics.timeouts += 1;
        if !self.config.asks_on_timeout {
            let last = self.earlier.forget(id);
            return self.finish(id, Err(Failure::ended(why, last)), now);
        }
        let Some(in_flight) = self.queue.get_mut(id) else { return };
        let value = in_flight.record.value.clone();
        let attempt = AttemptId { entry: id, attempt: AttemptId::TIMEOUT };
        self.actions.ask_timeout.push(Invocation { attempt, value });
    }

    /// Ends an attempt that took too long; the record may get another one.
    fn time_out_attempt(&mut self, attempt: AttemptId, now: ProcessingTime) {
        let in_flight = self.queue.get_mut(attempt.entry).filter(|it| it.awaits(attempt));
        let run = in_flight.filter(|_| !self.is_closed).and_then(|it| it.run());
        let Some(Run { calls, since, .. }) = run else { return };
        self.note_silence(since, now);
        let repeats = self.may_retry(attempt.first(), Retry::IfRepeatable, CallSign::TimedOut, now);
        if repeats {
            self.begin_budget(attempt, CallSign::TimedOut, now);
        }
        if calls == Calls::Both {
            // The other one may still be answered.
            return self.cut_call(attempt, CallSign::TimedOut, now);
        }
        let was_made = self.give_up(attempt);
        self.running -= 1;
        self.count_given_up(attempt, true, was_made);
        let (call, attempt) = (attempt.call(), attempt.first());
        let in_flight = self.queue.get_mut(attempt.entry);
        if let (Some(in_flight), Some(channels)) = (in_flight, &mut self.channels) {
            let (channel, number) = (in_flight.channel, Some(self.earlier.try_of(attempt)));
            let sign = if was_made { CallSign::TimedOut } else { CallSign::NotCalled };
            channels.observe_attempt(channel, call, number, (since, now), sign);
            if repeats {
                outage_handler::note(
                    channels,
                    &mut self.earlier,
                    &self.config,
                    (channel, attempt),
                    sign,
                    now,
                );
            }
            channels.finish_call(channel, now.nanos_since(since), now);
        }
        if repeats {
            self.back_off(attempt, since, Retry::IfRepeatable, CallSign::TimedOut, now);
        } else {
            self.metrics.timeouts += 1;
            let last = self.earlier.forget(attempt.entry);
            self.finish(attempt.entry, Err(Failure::ended(Ended::AttemptTimedOut, last)), now);
        }
    }

    /// Ends a back-off: the next attempt waits for a permit.
    pub(super) fn retry(&mut self, attempt: AttemptId, now: ProcessingTime) {
        let Some(in_flight) = self.queue.get_mut(attempt.entry) else { return };
        if !in_flight.backs_off() || in_flight.attempt != attempt.attempt || self.is_closed {
            return;
        }
        if in_flight.deadline <= now {
            return self.time_out(attempt.entry, now);
        }
        in_flight.phase = Phase::Waiting { since: now };
        self.backing_off -= 1;
        match &mut self.channels {
            None => self.waiting.push_back(attempt.entry),
            Some(channels) => {
                let held_since = self.earlier.held_since(attempt.entry);
                let (is_next, since) = (held_since.is_none(), held_since.unwrap_or(now));
                channels.wait(in_flight.channel, attempt.entry, is_next, since, now);
            }
        }
    }

    /// Lets records go on whose next attempts have waited for tokens that are there now.
    fn hand_out_tokens(&mut self, now: ProcessingTime) {
        let is_last = self.is_draining();
        loop {
            let (queue, Some(channels)) = (&mut self.queue, &mut self.channels) else { return };
            let waits = |id| queue.get_mut(id).is_some_and(|it| it.backs_off());
            let Some(id) = channels.pop_token(now, waits) else { return };
            let Some(in_flight) = queue.get_mut(id) else { continue };
            let Phase::BackOff { until } = in_flight.phase else { continue };
            let attempt = AttemptId { entry: id, attempt: in_flight.attempt };
            if until > now && !is_last {
                self.timers.back_offs.push(until, attempt);
            } else {
                self.retry(attempt, now);
            }
        }
    }

    /// Ends every back-off at once, earliest first.
    pub(super) fn hurry_retries(&mut self, now: ProcessingTime) {
        for attempt in self.timers.back_offs.drain() {
            self.retry(attempt, now);
        }
        self.start_waiting(now);
    }
}

type Queue<E, R, F> = AnyStreamElementQueue<InFlight<E>, Outcome<R, F>>;

/// Returns whether a deadline is that of a record that has one, though its time may stand.
fn can_time_out<E, R, F>(queue: &mut Queue<E, R, F>, id: EntryId, at: ProcessingTime) -> bool {
    let may = |phase| !matches!(phase, Phase::TimedOut | Phase::Completed);
    queue.get_mut(id).is_some_and(|it| it.deadline == at && may(it.phase))
}

/// Returns whether a record times out then, if nothing happens before.
fn times_out<E, R, F>(queue: &mut Queue<E, R, F>, id: EntryId, at: ProcessingTime) -> bool {
    queue.get_mut(id).is_some_and(|it| it.deadline == at && it.ages())
}

fn runs<E, R, F>(queue: &mut Queue<E, R, F>, attempt: AttemptId) -> bool {
    queue.get_mut(attempt.entry).is_some_and(|it| it.awaits(attempt))
}

/// Returns whether an attempt runs that has no second one beside it.
fn runs_alone<E, R, F>(queue: &mut Queue<E, R, F>, attempt: AttemptId) -> bool {
    queue.get_mut(attempt.entry).is_some_and(|it| it.runs_alone(attempt))
}

fn backs_off<E, R, F>(queue: &mut Queue<E, R, F>, attempt: AttemptId) -> bool {
    queue.get_mut(attempt.entry).is_some_and(|it| it.backs_off())
}
