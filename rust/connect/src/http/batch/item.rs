// SPDX-License-Identifier: Apache-2.0
//! What a request says for one row.

use bytes::Bytes;
use sparkawait_core::operator::AttemptId;

/// The item of one row.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) attempt: AttemptId,
    /// What the request says for the row.
    pub(super) text: Bytes,
    /// What the item of the reply names the row by; empty if it does not.
    pub(super) id: Bytes,
    /// What the row adds to the idempotency key of its request.
    pub(super) key: Bytes,
}

impl Item {
    /// Makes the item of a row whose request is there.
    pub(super) fn of_sent(attempt: AttemptId) -> Self {
        Self { attempt, text: Bytes::new(), id: Bytes::new(), key: Bytes::new() }
    }
}
