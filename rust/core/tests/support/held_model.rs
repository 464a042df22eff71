// SPDX-License-Identifier: Apache-2.0
//! A record of the model of the operator, and what its value tells of it.

use std::time::Duration;

use sparkawait_core::element::{Key, StreamRecord, Timestamp};
use sparkawait_core::operator::{
    AttemptId, Failure, NotCalled, SnapshotRecord, SnapshotState, TooLate,
};
use sparkawait_core::queue::EntryId;
use sparkawait_core::time::ProcessingTime;

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

/// The failure without a word about calls that take too long: the model does not know which
/// records the operator has looked at.
pub(crate) fn plain(failure: Failure<Reply>) -> Failure<Reply> {
    match failure {
        Failure::NotCalled(it) if matches!(it.0, NotCalled::TooLate(TooLate::Call(_))) => {
            Failure::TimedOut(it.1)
        }
        other => other,
    }
}

pub(crate) fn plain_record(
    record: SnapshotRecord<u32, Reply, Reply>,
) -> SnapshotRecord<u32, Reply, Reply> {
    let state = match record.state {
        SnapshotState::Completed(outcome) => SnapshotState::Completed(outcome.map_err(plain)),
        pending @ SnapshotState::Pending { .. } => pending,
    };
    SnapshotRecord { state, ..record }
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
    pub(super) deadline: Option<ProcessingTime>,
    /// When that is looked at, and what tells equal times apart.
    pub(super) armed: Option<(ProcessingTime, usize)>,
    /// For how long limits in time had kept its channel closed when it came.
    pub(super) closed_at: u64,
    pub(super) state: State,
    /// Of the last attempt that failed.
    pub(super) last_failure: Option<Reply>,
    /// Its place in the order in which records became ready to leave.
    pub(super) ready: Option<usize>,
}

impl Held {
    pub(super) fn has_deadline(&self) -> bool {
        matches!(self.state, State::Waiting | State::Running { .. } | State::BackOff { .. })
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

    pub(super) fn snapshot(
        &self,
        due: Option<ProcessingTime>,
        now: ProcessingTime,
    ) -> SnapshotRecord<u32, Reply, Reply> {
        let state = match &self.state {
            State::Final(outcome) => SnapshotState::Completed(outcome.clone()),
            state => SnapshotState::Pending {
                time_left: match state {
                    State::Asked => Some(Duration::ZERO),
                    _ => due.map(|due| due.saturating_since(now)),
                },
                backoff_left: match state {
                    State::BackOff { due, .. } => Some(due.saturating_since(now)),
                    _ => None,
                },
                was_running: self.is_running(),
                last_failure: self.last_failure,
            },
        };
        SnapshotRecord { record: record(self.value), attempts: self.attempts, state }
    }
}
