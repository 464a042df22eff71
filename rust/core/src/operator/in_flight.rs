// SPDX-License-Identifier: Apache-2.0
//! A record between admission and emission.

use std::time::Duration;

use super::action::AttemptId;
use crate::element::StreamRecord;
use crate::flow::ChannelId;
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// What a record that is not completed waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The completion of an earlier record of its key.
    Blocked,
    /// A concurrency permit, or a credit of its channel.
    Waiting,
    /// The outcome of the current attempt; holds a permit.
    Running,
    /// The time of its next attempt.
    BackOff,
    /// What the function says of its timeout.
    TimedOut,
    /// Its emission.
    Completed,
}

/// Which calls of a record run, while any does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// The one of its attempt.
    First,
    /// That, and the second one beside it.
    Both,
    /// The second one alone: the first has ended, and asked for another attempt.
    Hedge,
}

/// The call that an attempt ended with.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastCall {
    pub(super) channel: ChannelId,
    pub(super) since: ProcessingTime,
    /// Whether its record ends with it, too.
    pub(super) is_final: bool,
}

/// A record with the state of its attempts.
///
/// ```text
///   Blocked --> Waiting --> Running --> Completed
///                  ^           |            ^
///                  |           v            |
///                  +------- BackOff      TimedOut   (from every state on its left)
/// ```
#[derive(Debug)]
pub(super) struct InFlight<E> {
    pub(super) record: StreamRecord<E>,
    pub(super) phase: Phase,
    /// Of its attempt, while that runs.
    pub(super) calls: Calls,
    /// Attempts started.
    pub(super) attempt: u32,
    pub(super) admitted_at: ProcessingTime,
    /// End of the record's timeout, if it does not wait; `NEVER` without one, and before its first call.
    pub(super) deadline: ProcessingTime,
    /// Its destination; means nothing without channels.
    pub(super) channel: ChannelId,
    /// When its phase began; of a back-off when it ends. One that is blocked and then waits has waited
    /// since it was blocked.
    pub(super) since: ProcessingTime,
}

impl<E: Clone> InFlight<E> {
    /// Begins the next attempt; returns what it is called and the value to call for.
    #[inline]
    pub(super) fn begin(&mut self, id: EntryId, now: ProcessingTime) -> (AttemptId, E) {
        self.phase = Phase::Running;
        self.calls = Calls::First;
        self.attempt += 1;
        self.since = now;
        (AttemptId { entry: id, attempt: self.attempt }, self.record.value.clone())
    }
}

impl<E> InFlight<E> {
    /// Admits a record; with `starts` its first attempt runs.
    #[inline]
    pub(super) fn new(
        record: StreamRecord<E>,
        starts: bool,
        channel: ChannelId,
        timeout_nanos: u64,
        now: ProcessingTime,
    ) -> Self {
        let deadline = if starts { now.after_nanos(timeout_nanos) } else { ProcessingTime::NEVER };
        Self {
            record,
            phase: if starts { Phase::Running } else { Phase::Waiting },
            calls: Calls::First,
            attempt: u32::from(starts),
            admitted_at: now,
            deadline,
            channel,
            since: now,
        }
    }

    /// Lets its time run on, which stands while it waits; for the first call it begins.
    pub(super) const fn go_on(&mut self, timeout_nanos: u64, now: ProcessingTime) {
        self.deadline = if self.deadline.as_nanos() == ProcessingTime::NEVER.as_nanos() {
            now.after_nanos(timeout_nanos)
        } else {
            self.deadline.after_nanos(now.nanos_since(self.since))
        };
    }

    /// Returns whether its time runs.
    pub(super) const fn ages(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::BackOff)
    }

    /// Returns what its time has left; nothing where there is no bound, or it was never called.
    pub(super) fn time_left(&self, now: ProcessingTime) -> Option<Duration> {
        let until = if self.ages() { now } else { self.since };
        (self.deadline != ProcessingTime::NEVER).then(|| self.deadline.saturating_since(until))
    }

    /// Ends the call that runs, the only one that is left; with `retries` another attempt follows.
    #[inline]
    pub(super) fn end_call(&mut self, retries: bool) -> LastCall {
        if !retries {
            self.phase = Phase::Completed;
        }
        LastCall { channel: self.channel, since: self.since, is_final: !retries }
    }

    /// Returns whether `attempt` is its attempt, which runs.
    #[inline]
    pub(super) fn runs(&self, attempt: AttemptId) -> bool {
        self.phase == Phase::Running && self.attempt == attempt.attempt
    }

    /// Whether `attempt` is the second one beside its attempt.
    fn is_hedged_by(&self, attempt: AttemptId) -> bool {
        attempt.is_hedge() && attempt.first().attempt == self.attempt
    }

    /// Returns the attempts of which calls run.
    pub(super) fn running(&self, id: EntryId) -> impl Iterator<Item = AttemptId> + use<E> {
        let attempt = AttemptId { entry: id, attempt: self.attempt };
        let is_running = self.phase == Phase::Running;
        let first = (is_running && self.calls != Calls::Hedge).then_some(attempt);
        let hedge = (is_running && self.calls != Calls::First).then_some(attempt.hedge());
        first.into_iter().chain(hedge)
    }

    /// Returns whether the outcome of `attempt` is awaited.
    pub(super) fn awaits(&self, attempt: AttemptId) -> bool {
        match self.phase {
            Phase::Running if attempt.attempt == self.attempt => self.calls != Calls::Hedge,
            Phase::Running => self.calls != Calls::First && self.is_hedged_by(attempt),
            Phase::TimedOut => attempt.attempt == AttemptId::TIMEOUT,
            _ => false,
        }
    }
}
