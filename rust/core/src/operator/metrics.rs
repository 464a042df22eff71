// SPDX-License-Identifier: Apache-2.0
//! What an operator counts.

use std::time::Duration;

/// Totals since the operator was built, and levels as of now.
///
/// Every admitted record ends as exactly one of `emitted`, `failed` or
/// `in_flight` (with a failed or closed operator, also `cancelled` calls).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Records taken from the input.
    pub admitted: u64,
    /// Records that left, failed ones included where the policy emits them.
    pub emitted: u64,
    /// Calls started, retries included.
    pub attempts: u64,
    /// Calls started after the first one of a record.
    pub retries: u64,
    /// Calls started beside one that was slow.
    pub hedged: u64,
    /// Those of them whose outcome became the record's.
    pub hedges_won: u64,
    /// Records whose timeout passed.
    pub timeouts: u64,
    /// Records that failed for good.
    pub failures: u64,
    /// Calls cancelled: timed out, in flight at failure or close, or slower than one beside them.
    pub cancelled: u64,
    /// Calls running now.
    pub in_flight: usize,
    /// Records held now, pending and completed.
    pub queue_size: usize,
    /// Age of the oldest record held.
    pub oldest_age: Duration,
}
