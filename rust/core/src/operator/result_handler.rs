// SPDX-License-Identifier: Apache-2.0
//! What a completion or a free permit does to a record.
//!
//! Counterpart of `ResultHandler` and `RetryableResultHandlerDelegator` in
//! Flink's `AsyncWaitOperator`. Every path to a final outcome ends in `conclude`,
//! so "first completion wins" is decided in one place.

use std::time::Duration;

use super::action::{AttemptId, Completion, Emitted, Ended, Failure, Handled, Invocation, Retry};
use super::in_flight::{Calls, LastCall, Phase, Run};
use super::{AsyncWaitOperator, Begins, EndOfInput, FailurePolicy, Outcome, outage_handler};
use crate::policy::CallSign;
use crate::queue::{EntryId, StreamElementQueue};
use crate::retry::mix;
use crate::time::ProcessingTime;

impl<E: Clone, R, F> AsyncWaitOperator<E, R, F> {
    /// Takes the outcome of an attempt, unless it is no longer awaited.
    pub fn handle_completion(
        &mut self,
        attempt: AttemptId,
        completion: Completion<R, F>,
        now: ProcessingTime,
    ) -> Handled {
        let retries = completion.retry != Retry::No
            && self.may_retry(attempt, completion.retry, completion.sign, now);
        if retries {
            self.begin_budget(attempt, completion.sign, now);
        }
        let in_flight = self.queue.get_mut(attempt.entry).filter(|it| it.runs(attempt));
        let Some(in_flight) = in_flight.filter(|_| self.has_single_calls) else {
            return self.handle_any_completion(attempt, completion, now);
        };
        let call = in_flight.end_call(retries);
        let handled = self.end_attempt(attempt, call, completion, now);
        self.start_next(now);
        handled
    }

    /// Does so where it may be that of one of two calls, of a timeout, or be awaited no longer.
    #[inline(never)]
    fn handle_any_completion(
        &mut self,
        attempt: AttemptId,
        completion: Completion<R, F>,
        now: ProcessingTime,
    ) -> Handled {
        let in_flight = self.queue.get_mut(attempt.entry).filter(|it| it.awaits(attempt));
        let Some(in_flight) = in_flight.filter(|_| !self.is_closed) else {
            return Handled::Ignored;
        };
        if in_flight.phase == Phase::TimedOut {
            self.finish(attempt.entry, completion.outcome.map_err(Failure::Function), now);
            self.start_waiting(now);
            return Handled::TimeoutAnswered;
        }
        let asks_for_retry = completion.retry != Retry::No;
        let has_both = in_flight.run().is_some_and(|it| it.calls == Calls::Both);
        if has_both && asks_for_retry {
            return self.leave_to_other(attempt, completion, now);
        }
        let is_answer = completion.outcome.is_ok() && !asks_for_retry;
        let was_called = completion.sign != CallSign::NotCalled;
        self.note_first(attempt, is_answer, was_called, now);
        let attempt = attempt.first();
        let retries = self.may_retry(attempt, completion.retry, completion.sign, now);
        let Some(in_flight) = self.queue.get_mut(attempt.entry) else { return Handled::Ignored };
        let call = in_flight.end_call(retries);
        let handled = self.end_attempt(attempt, call, completion, now);
        self.start_waiting(now);
        handled
    }

    /// Ends an attempt that has no running call any more: with its record, or before another one.
    #[expect(clippy::inline_always, reason = "once per record, from two places")]
    #[inline(always)]
    fn end_attempt(
        &mut self,
        attempt: AttemptId,
        call: LastCall,
        completion: Completion<R, F>,
        now: ProcessingTime,
    ) -> Handled {
        let Run { since, has_begun, .. } = call.run;
        let nanos = now.nanos_since(since);
        self.running -= 1;
        if has_begun != (completion.sign != CallSign::NotCalled) {
            let kind = self.earlier.kind_of(call.run.call_of(attempt));
            self.metrics.correct(kind, has_begun, completion.sign);
        }
        if let Some(channels) = &mut self.channels {
            let (channel, entry) = (call.channel, attempt.entry);
            // One that is divided goes on in its parts.
            let is_over = !matches!(completion.retry, Retry::InPart { .. });
            let number = is_over.then(|| self.earlier.try_of(attempt));
            let made = call.run.call_of(attempt).call();
            channels.observe_attempt(channel, made, number, (since, now), completion.sign);
            if call.is_final {
                channels.forget_price(entry);
                channels.end_call(channel, nanos);
            } else {
                // One that was left out of a call goes on with what was known before.
                if is_over || completion.sign != CallSign::NotCalled {
                    outage_handler::note(
                        channels,
                        &mut self.earlier,
                        &self.config,
                        (channel, attempt),
                        completion.sign,
                        now,
                    );
                }
                channels.finish_call(channel, nanos, now);
            }
        } else if completion.sign.is_reply() {
            self.answered_at = now;
        }
        if !call.is_final {
            self.try_again(attempt, call.run, completion, now);
            return Handled::Retried(nanos);
        }
        let was_retried = attempt.attempt > 1 && self.end_tries(attempt) > 1;
        let outcome = completion.outcome.map_err(|error| match self.config.retry {
            Some(_) if was_retried && self.is_worth_it(completion.retry) => {
                Failure::RetriesExhausted(error)
            }
            _ => Failure::Function(error),
        });
        self.conclude(attempt.entry, outcome, now);
        Handled::Final(nanos)
    }

    /// Lets a record wait for another attempt, after one whose permit was given back.
    #[inline(never)]
    fn try_again(
        &mut self,
        attempt: AttemptId,
        run: Run,
        ended: Completion<R, F>,
        now: ProcessingTime,
    ) {
        if let Err(failure) = ended.outcome {
            self.earlier.note_failure(attempt.entry, failure);
        }
        match ended.retry {
            Retry::InPart { records } => {
                let was_called = ended.sign != CallSign::NotCalled || self.has_timer(run);
                self.call_in_part(attempt, records, was_called, now);
            }
            retry => self.back_off(attempt, run.since, retry, ended.sign, now),
        }
    }

    /// Whether deadlines of an attempt may be armed.
    const fn has_timer(&self, run: Run) -> bool {
        let is_timed = self.config.attempt_timeout.is_some() || self.hedging.is_some();
        is_timed && !run.is_uncalled()
    }

    /// Lets a record wait for a permit for a call of a part, as one does whose back-off is over.
    ///
    /// One that was left out of a call, and that no timer knows of, has no attempt less: the next call
    /// has its number.
    fn call_in_part(
        &mut self,
        mut attempt: AttemptId,
        records: u32,
        was_called: bool,
        now: ProcessingTime,
    ) {
        match self.queue.get_mut(attempt.entry) {
            // The first attempt keeps its number: of a record without one no failure is kept.
            Some(in_flight) if !was_called && attempt.attempt > 1 => {
                in_flight.attempt -= 1;
                attempt.attempt -= 1;
            }
            _ => self.earlier.note_divided(attempt),
        }
        if let Some(channels) = &mut self.channels {
            channels.note_part(attempt.entry, records);
        }
        self.rest_until(attempt, now);
        self.retry(attempt, now);
    }

    /// Forgets the earlier attempts of a record; returns how many tries it has had.
    #[inline(never)]
    fn end_tries(&mut self, last: AttemptId) -> u32 {
        let number = self.earlier.try_of(last);
        self.earlier.forget(last.entry);
        number
    }

    /// Returns whether another attempt may follow one that ended so: the one place that answers this.
    #[inline(never)]
    pub(super) fn may_retry(
        &mut self,
        attempt: AttemptId,
        retry: Retry,
        sign: CallSign,
        now: ProcessingTime,
    ) -> bool {
        if matches!(retry, Retry::InPart { .. }) {
            return true;
        }
        if !self.is_worth_it(retry) || self.is_draining() {
            return false;
        }
        let Some(strategy) = &self.config.retry else { return false };
        let has_tries = strategy.can_retry(self.earlier.try_of(attempt));
        self.outlasts(attempt, sign, now).unwrap_or(has_tries)
    }

    const fn is_worth_it(&self, retry: Retry) -> bool {
        match retry {
            Retry::No => false,
            Retry::IfRepeatable => self.config.is_repeatable,
            Retry::Yes | Retry::After(_) | Retry::InPart { .. } => true,
        }
    }

    /// Moves a record to back-off, after an attempt that began at `since` and said `sign` of its
    /// destination.
    pub(super) fn back_off(
        &mut self,
        attempt: AttemptId,
        since: ProcessingTime,
        retry: Retry,
        sign: CallSign,
        now: ProcessingTime,
    ) {
        let Some(strategy) = self.config.retry else { return };
        let is_held = self.hold(attempt.entry, sign, now);
        let delay = match retry {
            Retry::After(delay) => delay,
            // Its probe is made when that is due.
            _ if is_held => Duration::ZERO,
            Retry::Yes | Retry::IfRepeatable | Retry::No | Retry::InPart { .. } => {
                // Calls that are made of several records begin at one moment, and end so. They wait
                // alike, and can go together again.
                let origin = match self.config.begins {
                    Begins::AtOnce => attempt.entry.as_u64(),
                    Begins::WhenSaid => since.as_nanos(),
                };
                let random = mix(self.config.seed, origin, attempt.attempt);
                strategy.backoff(self.earlier.failures(attempt), random)
            }
        };
        let Some(in_flight) = self.queue.get_mut(attempt.entry) else { return };
        let due = now + delay;
        if due >= in_flight.deadline && in_flight.deadline != ProcessingTime::NEVER {
            // Nothing could come any more, so its slot is not held until then.
            in_flight.phase = Phase::TimedOut;
            let left = in_flight.deadline.saturating_since(now);
            return self.run_out(attempt.entry, Ended::TooLate { delay, left }, now);
        }
        // A call that was told when to come again costs its destination no more than that.
        let costs_token = !matches!(retry, Retry::After(_)) && sign.is_drop();
        let channel = in_flight.channel;
        self.rest_until(attempt, due);
        let channels = self.channels.as_mut().filter(|_| costs_token);
        if channels.is_some_and(|it| !it.take_token(channel, attempt.entry, now)) {
            return;
        }
        if due > now || !is_held {
            self.timers.back_offs.push(due, attempt);
        } else {
            self.retry(attempt, now);
        }
    }

    /// Lets a record wait for the time of its next attempt.
    pub(super) fn back_off_until(&mut self, attempt: AttemptId, due: ProcessingTime) {
        self.rest_until(attempt, due);
        self.timers.back_offs.push(due, attempt);
    }

    /// Does so without a timer.
    fn rest_until(&mut self, attempt: AttemptId, due: ProcessingTime) {
        let Some(in_flight) = self.queue.get_mut(attempt.entry) else { return };
        if let Some(channels) = self.channels.as_mut().filter(|_| in_flight.run().is_some()) {
            channels.suspend(in_flight.channel);
        }
        in_flight.phase = Phase::BackOff { until: due };
        self.backing_off += 1;
    }

    /// Returns whether every outcome is final because the input has ended.
    pub(super) fn is_draining(&self) -> bool {
        self.input_ended && self.config.at_end_of_input == EndOfInput::LastAttempt
    }

    /// Ends a record that does not run, see [`conclude`](Self::conclude).
    #[inline(never)]
    pub(super) fn finish(&mut self, id: EntryId, outcome: Outcome<R, F>, now: ProcessingTime) {
        let Some(in_flight) = self.queue.get_mut(id) else { return };
        in_flight.phase = Phase::Completed;
        self.earlier.forget(id);
        if let Some(channels) = &mut self.channels {
            channels.forget_price(id);
            channels.leave(in_flight.channel);
        }
        self.conclude(id, outcome, now);
    }

    /// Stores the final outcome of a record, or fails the operator with it.
    ///
    /// The record's phase is set. A record that it unblocks waits for a permit like any other;
    /// `start_waiting` follows when everything that is due has taken effect, so no call starts
    /// for a record without time.
    #[expect(clippy::inline_always, reason = "once per record, where its attempt ends")]
    #[inline(always)]
    fn conclude(&mut self, id: EntryId, outcome: Outcome<R, F>, now: ProcessingTime) {
        let outcome = match outcome {
            Ok(results) => Ok(results),
            Err(failure) => {
                self.metrics.failures += 1;
                if self.config.on_failure == FailurePolicy::FailTask || self.fails_too_often() {
                    return self.fail(id, failure);
                }
                Err(failure)
            }
        };
        self.completed += 1;
        if let Ok(Some(successor)) = self.queue.complete_keyed(id, outcome) {
            // A record that asked for the outcome of its timeout is not started.
            let is_blocked = |phase| matches!(phase, Phase::Blocked { .. });
            if self.queue.get_mut(successor).is_some_and(|it| is_blocked(it.phase)) {
                self.wait_for_permit(successor, now);
            }
        }
    }

    /// Returns whether too many records have failed, the one that fails now included.
    #[inline(never)]
    fn fails_too_often(&self) -> bool {
        let ended = self.metrics.emitted + self.completed as u64 + 1;
        let bears = self.config.fail_after.as_ref();
        bears.is_some_and(|it| it.note_failed(self.metrics.failures, ended))
    }

    /// Fails the operator with a record, whose phase is set.
    fn fail(&mut self, id: EntryId, failure: Failure<F>) {
        let Some(in_flight) = self.queue.get_mut(id) else { return };
        let (record, attempts) = (in_flight.record.clone(), in_flight.attempt);
        self.failed = Some(Emitted { record, attempts, outcome: Err(failure) });
        self.close();
    }

    /// Puts a record behind those that wait for a permit.
    pub(super) fn wait_for_permit(&mut self, id: EntryId, now: ProcessingTime) {
        let Some(in_flight) = self.queue.get_mut(id) else { return };
        let since = in_flight.waits_since().unwrap_or(now);
        in_flight.phase = Phase::Waiting { since };
        match &mut self.channels {
            None => self.waiting.push_back(id),
            Some(channels) => channels.wait(in_flight.channel, id, false, since, now),
        }
    }

    /// Lets a record wait for an earlier one of its key.
    pub(super) fn block(&mut self, id: EntryId) {
        let Some(in_flight) = self.queue.get_mut(id) else { return };
        let Phase::Waiting { since } = in_flight.phase else { return };
        if let Some(channels) = &mut self.channels {
            channels.suspend(in_flight.channel);
        }
        in_flight.phase = Phase::Blocked { since };
    }

    /// Hands free permits to records that wait.
    #[expect(clippy::inline_always, reason = "once per completion, and mostly nobody waits")]
    #[inline(always)]
    pub(super) fn start_waiting(&mut self, now: ProcessingTime) {
        if self.hedging.as_ref().is_some_and(|it| it.has_slow()) {
            self.start_hedges(now);
        }
        self.start_next(now);
    }

    /// Does so where no record may have two calls.
    #[expect(clippy::inline_always, reason = "once per completion, and mostly nobody waits")]
    #[inline(always)]
    fn start_next(&mut self, now: ProcessingTime) {
        match &self.channels {
            None if self.waiting.is_empty() => {}
            None => self.start_oldest(now),
            Some(channels) if channels.has_ready() => self.start_ready(now),
            Some(_) => {}
        }
    }

    #[inline(never)]
    fn start_oldest(&mut self, now: ProcessingTime) {
        while self.running < self.window
            && let Some(id) = self.waiting.pop_front()
        {
            self.start(id, now);
        }
    }

    /// Starts the next attempt of a record.
    pub(super) fn start(&mut self, id: EntryId, now: ProcessingTime) {
        let Some(in_flight) = self.queue.get_mut(id) else { return };
        let known = in_flight.deadline;
        in_flight.go_on(self.timeout_nanos, now);
        if in_flight.deadline != known {
            self.timers.records.push(in_flight.deadline, id);
        }
        let (attempt, value) = in_flight.begin(id, Run::new(self.config.begins, now));
        self.invoke(attempt, value, now);
    }

    /// Hands a record over to be called for; its permit is taken.
    #[expect(clippy::inline_always, reason = "once per record, from two places")]
    #[inline(always)]
    pub(super) fn invoke(&mut self, attempt: AttemptId, value: E, now: ProcessingTime) {
        self.running += 1;
        if self.config.begins == Begins::AtOnce {
            self.begin_call(attempt, now);
        }
        self.actions.invoke.push(Invocation { attempt, value });
    }

    /// Begins a call, which is an attempt of its record from now on: the one place where it is
    /// counted, and gets its time.
    #[expect(clippy::inline_always, reason = "once per record, from two places")]
    #[inline(always)]
    pub(super) fn begin_call(&mut self, attempt: AttemptId, now: ProcessingTime) {
        self.metrics.begin(self.earlier.kind_of(attempt));
        if let Some(timeout) = self.config.attempt_timeout {
            self.timers.attempts.push(now + timeout, attempt);
        }
        if self.hedging.is_some() {
            self.watch(attempt, now);
        }
    }

    /// Begins the call of a record that was handed over and has waited since, see
    /// [`Begins::WhenSaid`]. It `began` then, and that may be a while ago. To be said once, before its
    /// outcome. One that nobody waits for any more, or behind the end, was made all the same, and is
    /// counted.
    pub fn handle_started(
        &mut self,
        attempt: AttemptId,
        began: ProcessingTime,
        now: ProcessingTime,
    ) {
        if self.config.begins == Begins::AtOnce {
            return;
        }
        let is_open = !self.is_closed;
        let in_flight =
            self.queue.get_mut(attempt.entry).filter(|it| is_open && it.awaits(attempt));
        let Some(run) = in_flight.and_then(|it| it.run_mut()) else {
            return self.metrics.begin(self.earlier.kind_of(attempt));
        };
        let (since, has_begun) = if run.calls == Calls::Both && attempt.is_hedge() {
            let Some(second) = self.hedging.as_mut().and_then(|it| it.second_mut(attempt.entry))
            else {
                return;
            };
            (&mut second.since, &mut second.has_begun)
        } else {
            (&mut run.since, &mut run.has_begun)
        };
        if std::mem::replace(has_begun, true) {
            return;
        }
        *since = began;
        self.begin_call(attempt, now);
    }
}
