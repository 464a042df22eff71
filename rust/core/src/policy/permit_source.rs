// SPDX-License-Identifier: Apache-2.0
//! Permits of a limit that others take from, too.

use std::fmt;

use super::limit_left::LimitLeft;
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

    /// Learns from the reply to a call that started at `started` what is `left` for all. The service may
    /// not have counted then what the calls `in_flight` of the caller take, or others have
    /// taken since that start: so much is returned. It lowers the limit for all that take from it, and
    /// never raises it.
    fn lower_to(
        &self,
        left: &LimitLeft,
        in_flight: u64,
        started: ProcessingTime,
        now: ProcessingTime,
    ) -> u64;

    /// Takes everything that could be taken now, and `owed` of what comes.
    fn drain(&self, owed: u64, now: ProcessingTime);
}
