// SPDX-License-Identifier: Apache-2.0
//! The clock of a task.

use std::time::{Duration, Instant};

use sparkawait_core::ProcessingTime;

use crate::parker::Parker;

/// Where the driver reads the time. Tests give a clock that they move by hand.
pub trait Clock {
    /// Returns the time passed since an origin; never goes back.
    fn now(&self) -> ProcessingTime;

    /// Returns the time of a moment that has passed by `now`, which was read before. A clock that is moved by
    /// hand has no such moments, and to read it again may move it.
    fn at(&self, _moment: Instant, now: ProcessingTime) -> ProcessingTime {
        now
    }

    /// Waits for a wake-up, for `timeout` at most. A clock that is moved by hand lets time pass instead.
    fn park(&self, parker: &Parker, timeout: Duration) {
        parker.park(timeout);
    }
}

/// The operating system's monotonic clock, from the moment of its creation.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// Starts at zero.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> ProcessingTime {
        ProcessingTime::ZERO + self.origin.elapsed()
    }

    fn at(&self, moment: Instant, now: ProcessingTime) -> ProcessingTime {
        now.min(ProcessingTime::ZERO + moment.saturating_duration_since(self.origin))
    }
}
