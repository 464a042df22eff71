// SPDX-License-Identifier: Apache-2.0
//! For how long nothing could start.

use crate::time::ProcessingTime;

/// A limit that was closed holds those who wait for so long after it has opened: who wakes up late,
/// or gets the credit for its permit a little later, is not slow.
const GRACE: u64 = 1_000_000_000;

/// For how long a limit would have let nobody start.
///
/// A record whose call never started does not age in that time: it is not to blame for a limit
/// that is slower than its input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClosedTime {
    nanos: u64,
    /// Up to when that is counted.
    until: ProcessingTime,
    /// The grace after it was closed last.
    holds_until: ProcessingTime,
}

impl ClosedTime {
    pub(crate) const fn new(now: ProcessingTime) -> Self {
        Self { nanos: 0, until: now, holds_until: ProcessingTime::ZERO }
    }

    /// Returns up to when time was counted: what changes the limit changes it from there on.
    pub(crate) const fn counted_until(&self) -> ProcessingTime {
        self.until
    }

    /// Returns the nanoseconds up to `now`, if the limit has been closed until `ready_at` since it
    /// was counted last.
    pub(crate) fn at(&self, ready_at: ProcessingTime, now: ProcessingTime) -> u64 {
        self.nanos + self.holds_until(ready_at).min(now).nanos_since(self.until)
    }

    /// Counts up to `now` likewise.
    pub(crate) fn count(&mut self, ready_at: ProcessingTime, now: ProcessingTime) {
        self.nanos = self.at(ready_at, now);
        self.holds_until = self.holds_until(ready_at);
        self.until = self.until.max(now);
    }

    fn holds_until(&self, ready_at: ProcessingTime) -> ProcessingTime {
        let is_closed = ready_at > self.until;
        if is_closed { self.holds_until.max(ready_at.after_nanos(GRACE)) } else { self.holds_until }
    }
}
