// SPDX-License-Identifier: Apache-2.0
//! A record between admission and emission.

use std::time::Duration;

use super::action::AttemptId;
use super::config::Begins;
use crate::element::StreamRecord;
use crate::flow::ChannelId;
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// What a record that is not completed waits for, with the time that belongs to that.
///
/// The time is in the variants, and not beside them: of one that waits it is when that began, of an
/// attempt when it was called, of a back-off when it ends. As one field it would be read as the wrong
/// one of these wherever a phase changes in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The completion of an earlier record of its key.
    Blocked { since: ProcessingTime },
    /// A concurrency permit, or a credit of its channel. One that was blocked has waited since then.
    Waiting { since: ProcessingTime },
    /// The outcome of the current attempt; holds a permit.
    Running(Run),
    /// The time of its next attempt.
    BackOff { until: ProcessingTime },
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

/// An attempt that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) calls: Calls,
    /// When its first call began, or was handed over if it has not; of one whose second call runs
    /// alone, that one.
    pub(super) since: ProcessingTime,
    /// Whether that call has begun. Else the record calls nobody: see [`Begins`].
    pub(super) has_begun: bool,
}

impl Run {
    /// Makes the run of a record that is handed over now.
    #[inline]
    pub(super) const fn new(begins: Begins, now: ProcessingTime) -> Self {
        Self { calls: Calls::First, since: now, has_begun: matches!(begins, Begins::AtOnce) }
    }

    /// Returns the call of an attempt that it has; of two, the first one.
    #[inline]
    pub(super) const fn call_of(self, attempt: AttemptId) -> AttemptId {
        if matches!(self.calls, Calls::Hedge) { attempt.hedge() } else { attempt }
    }

    /// Whether it is one that nobody has called for so far.
    pub(super) const fn is_uncalled(self) -> bool {
        matches!(self.calls, Calls::First) && !self.has_begun
    }
}

/// The call that an attempt ended with.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastCall {
    pub(super) channel: ChannelId,
    pub(super) run: Run,
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
    /// Attempts started.
    pub(super) attempt: u32,
    /// When an operator first admitted it, in nanoseconds; negative if another one did so before the
    /// origin of the clock.
    admitted_at: i64,
    /// End of the record's timeout, if it does not wait; `NEVER` without one, and before its first call.
    pub(super) deadline: ProcessingTime,
    /// Its destination; means nothing without channels.
    pub(super) channel: ChannelId,
}

fn admitted(now: ProcessingTime, age: Duration) -> i64 {
    signed(now.as_nanos()).saturating_sub(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX))
}

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

impl<E: Clone> InFlight<E> {
    /// Begins the next attempt; returns what it is called and the value to call for.
    #[inline]
    pub(super) fn begin(&mut self, id: EntryId, run: Run) -> (AttemptId, E) {
        self.phase = Phase::Running(run);
        self.attempt += 1;
        (AttemptId { entry: id, attempt: self.attempt }, self.record.value.clone())
    }
}

impl<E> InFlight<E> {
    /// Admits a record; with `run` its first attempt runs.
    #[inline]
    pub(super) fn new(
        record: StreamRecord<E>,
        run: Option<Run>,
        channel: ChannelId,
        timeout_nanos: u64,
        now: ProcessingTime,
    ) -> Self {
        let (phase, deadline) = match run {
            Some(run) => (Phase::Running(run), now.after_nanos(timeout_nanos)),
            None => (Phase::Waiting { since: now }, ProcessingTime::NEVER),
        };
        let attempt = u32::from(run.is_some());
        Self {
            record,
            phase,
            attempt,
            admitted_at: admitted(now, Duration::ZERO),
            deadline,
            channel,
        }
    }

    /// Admits a record that waits for a call, which operators have held for `age`.
    pub(super) fn restored(
        record: StreamRecord<E>,
        attempt: u32,
        channel: ChannelId,
        age: Duration,
        now: ProcessingTime,
    ) -> Self {
        Self {
            record,
            phase: Phase::Waiting { since: now },
            attempt,
            admitted_at: admitted(now, age),
            deadline: ProcessingTime::NEVER,
            channel,
        }
    }

    /// Returns how long operators have held it.
    pub(super) fn age(&self, now: ProcessingTime) -> Duration {
        let age = signed(now.as_nanos()).saturating_sub(self.admitted_at);
        Duration::from_nanos(u64::try_from(age).unwrap_or_default())
    }

    /// Returns since when it has waited for its key or in line, if it does.
    pub(super) const fn waits_since(&self) -> Option<ProcessingTime> {
        match self.phase {
            Phase::Blocked { since } | Phase::Waiting { since } => Some(since),
            _ => None,
        }
    }

    /// Returns its attempt, if one runs.
    pub(super) const fn run(&self) -> Option<Run> {
        match self.phase {
            Phase::Running(run) => Some(run),
            _ => None,
        }
    }

    /// Does as [`run`](Self::run) for one who changes it.
    pub(super) const fn run_mut(&mut self) -> Option<&mut Run> {
        match &mut self.phase {
            Phase::Running(run) => Some(run),
            _ => None,
        }
    }

    /// Lets its time run on, which stands while it waits; for the first call it begins.
    pub(super) const fn go_on(&mut self, timeout_nanos: u64, now: ProcessingTime) {
        self.deadline = match self.waits_since() {
            _ if self.deadline.as_nanos() == ProcessingTime::NEVER.as_nanos() => {
                now.after_nanos(timeout_nanos)
            }
            Some(since) => self.deadline.after_nanos(now.nanos_since(since)),
            None => self.deadline,
        };
    }

    /// Returns whether it waits for the time of its next attempt.
    pub(super) const fn backs_off(&self) -> bool {
        matches!(self.phase, Phase::BackOff { .. })
    }

    /// Returns whether its time runs.
    pub(super) const fn ages(&self) -> bool {
        matches!(self.phase, Phase::Running(_) | Phase::BackOff { .. })
    }

    /// Returns what its time has left; nothing where there is no bound, or it was never called.
    pub(super) fn time_left(&self, now: ProcessingTime) -> Option<Duration> {
        let until = self.waits_since().unwrap_or(now);
        (self.deadline != ProcessingTime::NEVER).then(|| self.deadline.saturating_since(until))
    }

    /// Ends the call that runs, the only one that is left; with `retries` another attempt follows.
    #[inline]
    pub(super) fn end_call(&mut self, retries: bool) -> LastCall {
        let run = self.run();
        debug_assert!(run.is_some(), "no call of it runs");
        if !retries {
            self.phase = Phase::Completed;
        }
        let run = run.unwrap_or(Run::new(Begins::AtOnce, ProcessingTime::ZERO));
        LastCall { channel: self.channel, run, is_final: !retries }
    }

    /// Returns whether `attempt` is its attempt, which runs.
    #[inline]
    pub(super) fn runs(&self, attempt: AttemptId) -> bool {
        matches!(self.phase, Phase::Running(_)) && self.attempt == attempt.attempt
    }

    /// Whether `attempt` is the second one beside its attempt.
    fn is_hedged_by(&self, attempt: AttemptId) -> bool {
        attempt.is_hedge() && attempt.first().attempt == self.attempt
    }

    /// Returns the attempts that have running calls.
    pub(super) fn running(&self, id: EntryId) -> impl Iterator<Item = AttemptId> + use<E> {
        let attempt = AttemptId { entry: id, attempt: self.attempt };
        let runs = |but: Calls| self.run().is_some_and(|it| it.calls != but);
        let first = runs(Calls::Hedge).then_some(attempt);
        let hedge = runs(Calls::First).then_some(attempt.hedge());
        first.into_iter().chain(hedge)
    }

    /// Returns whether the outcome of `attempt` is awaited.
    pub(super) fn awaits(&self, attempt: AttemptId) -> bool {
        match self.phase {
            Phase::Running(run) if attempt.attempt == self.attempt => run.calls != Calls::Hedge,
            Phase::Running(run) => run.calls != Calls::First && self.is_hedged_by(attempt),
            Phase::TimedOut => attempt.attempt == AttemptId::TIMEOUT,
            _ => false,
        }
    }

    /// Returns whether `attempt` runs, and has no second one beside it.
    pub(super) fn runs_alone(&self, attempt: AttemptId) -> bool {
        self.runs(attempt) && self.run().is_some_and(|it| it.calls == Calls::First)
    }
}
