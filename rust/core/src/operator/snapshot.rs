// SPDX-License-Identifier: Apache-2.0
//! What an operator holds, as plain data.

use std::time::Duration;

use super::action::Failure;
use super::earlier_attempts::Uncounted;
use crate::element::{Key, StreamElement, StreamRecord};
use crate::policy::Price;

/// Everything admitted and not emitted, in arrival order, with watermarks in place.
///
/// Counterpart of Flink's `_async_wait_operator_state_`; differs in that it
/// keeps arrival order in every mode, the results of completed records (they
/// are not called again), attempt numbers and the time left.
pub type Snapshot<E, R, F> = Vec<StreamElement<SnapshotRecord<E, R, F>>>;

/// A record of a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord<E, R, F> {
    /// The input.
    pub record: StreamRecord<E>,
    /// Attempts started before the snapshot.
    pub attempts: u32,
    /// How long operators have held it, this one and those that it was restored from.
    pub age: Duration,
    /// How far the record was.
    pub state: SnapshotState<R, F>,
}

/// How far a record was when the snapshot was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotState<R, F> {
    /// No final outcome yet.
    Pending {
        /// Rest of the record's timeout; `None` if it has none. Nothing is left once the function
        /// is asked about it: it is asked again.
        time_left: Option<Duration>,
        /// Rest of the back-off, for a record that was in back-off.
        backoff_left: Option<Duration>,
        /// Whether an attempt was running; it is run again under its number.
        was_running: bool,
        /// What the last attempt that failed came to.
        last_failure: Option<F>,
        /// Attempts that have used up no try.
        uncounted: Uncounted,
    },
    /// Completed but not emitted; it is emitted after a restore without a call.
    Completed(Result<R, Failure<F>>),
}

/// A restored record that waits for a slot.
#[derive(Debug)]
pub(super) struct Replayed<E, R, F> {
    pub(super) record: SnapshotRecord<E, R, F>,
    pub(super) key: Option<Key>,
    pub(super) channel: Option<Key>,
    pub(super) price: Price,
}
