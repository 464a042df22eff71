// SPDX-License-Identifier: Apache-2.0
//! A record of the model of the operator, and what its value tells of it.

use std::time::Duration;

use sparkawait_core::element::{Key, StreamRecord, Timestamp};
use sparkawait_core::operator::{AttemptId, Failure, SnapshotRecord, SnapshotState, Uncounted};
use sparkawait_core::queue::EntryId;
use sparkawait_core::time::ProcessingTime;

use super::outage_model::HeldOutage;

/// What an attempt came to: the record's value and the attempt's number.
pub(crate) type Reply = (u32, u32);
pub(crate) type Outcome = Result<Reply, Failure<Reply>>;

/// The record with the given value, which tells its key and its event time.
pub(crate) fn record(value: u32) -> StreamRecord<u32> {
    StreamRecord::new(value, value.is_multiple_of(2).then_some(Timestamp(value.into())))
}

pub(crate) fn key_of(value: u32) -> Option<Key> {
    (value % 4 != 3).then_some(Key::new(u64::from(value % 4)))
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// For a permit or a credit, or for an earlier record of its key.
    Waiting,
    Running {
        since: ProcessingTime,
        /// Counts the starts of all calls.
        number: usize,
    },
    BackOff {
        due: ProcessingTime,
        /// Whether it waits for a token of the retry budget, too.
        lacks_token: bool,
    },
    /// The function is asked what the timeout shall emit.
    Asked,
    Final(Outcome),
    /// The record that failed the operator.
    Failed,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) value: u32,
    /// Known since the first action that names it.
    pub(super) id: Option<EntryId>,
    pub(super) attempts: u32,
    pub(super) admitted_at: ProcessingTime,
    /// How long it was held before it was restored.
    pub(super) age_before: Duration,
    pub(super) deadline: Option<ProcessingTime>,
    /// What tells it from others with the same deadline.
    pub(super) armed: usize,
    /// Since when it waits, if it does.
    pub(super) waits_since: ProcessingTime,
    pub(super) state: State,
    /// Of the last attempt that failed.
    pub(super) last_failure: Option<Reply>,
    /// Attempts that have used up no try.
    pub(super) uncounted: Uncounted,
    /// Its last attempts, if they were dropped.
    pub(super) outage: Option<HeldOutage>,
    /// Its place in the order in which records became ready to leave.
    pub(super) ready: Option<usize>,
}

impl Held {
    pub(super) fn age(&self, now: ProcessingTime) -> Duration {
        now.saturating_since(self.admitted_at) + self.age_before
    }

    /// Whether its time runs.
    pub(super) fn ages(&self) -> bool {
        matches!(self.state, State::Running { .. } | State::BackOff { .. })
    }

    pub(super) fn waits(&self) -> bool {
        self.state == State::Waiting
    }

    /// Lets it wait for a permit.
    pub(super) fn wait(&mut self, now: ProcessingTime) {
        (self.state, self.waits_since) = (State::Waiting, now);
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    pub(super) fn is_final(&self) -> bool {
        matches!(self.state, State::Final(_))
    }

    /// When its attempt has taken too long, with what tells equal times apart.
    pub(super) fn attempt_deadline(
        &self,
        timeout: Option<Duration>,
    ) -> Option<(ProcessingTime, usize)> {
        match self.state {
            State::Running { since, number } => Some((since + timeout?, number)),
            _ => None,
        }
    }

    pub(super) fn attempt(&self) -> AttemptId {
        AttemptId { entry: self.id.expect("a call was seen"), attempt: self.attempts }
    }

    /// The number of the try that its attempt is of.
    pub(super) fn tries(&self) -> u32 {
        self.attempts - self.uncounted.count
    }

    pub(super) fn snapshot(
        &self,
        uncounted: Uncounted,
        now: ProcessingTime,
    ) -> SnapshotRecord<u32, Reply, Reply> {
        let until = if self.waits() { self.waits_since } else { now };
        let state = match &self.state {
            State::Final(outcome) => SnapshotState::Completed(outcome.clone()),
            state => SnapshotState::Pending {
                time_left: match state {
                    State::Asked => Some(Duration::ZERO),
                    _ => self.deadline.map(|it| it.saturating_since(until)),
                },
                backoff_left: match state {
                    State::BackOff { due, .. } => Some(due.saturating_since(now)),
                    _ => None,
                },
                was_running: self.is_running(),
                last_failure: self.last_failure,
                uncounted,
            },
        };
        let (attempts, age) = (self.attempts, self.age(now));
        SnapshotRecord { record: record(self.value), attempts, age, state }
    }
}
