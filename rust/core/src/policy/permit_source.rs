// SPDX-License-Identifier: Apache-2.0
//! Permits of a limit that others take from, too.

use std::fmt;

use crate::time::ProcessingTime;

/// A limit in time whose state is elsewhere, because other tasks take from it.
///
/// Times are those of the caller.
pub trait PermitSource: fmt::Debug + Send + Sync {
    /// Takes `cost`, to be used at the time that is returned: now, or when its turn comes.
    ///
    /// # Errors
    ///
    /// The time at which to ask again; nothing was taken.
    fn reserve(&self, cost: u64, now: ProcessingTime) -> Result<ProcessingTime, ProcessingTime>;

    /// Corrects the cost of a call that had taken `taken`: what was too much comes back.
    fn settle(&self, taken: u64, actual: u64);

    /// Takes everything that could be taken now, and `owed` of what comes.
    fn drain(&self, owed: u64, now: ProcessingTime);
}
