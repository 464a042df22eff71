// SPDX-License-Identifier: Apache-2.0
//! The clock of a task.

use std::time::Instant;

use sparkawait_core::ProcessingTime;

/// Where the driver reads the time. Tests give a clock that they move by hand.
pub trait Clock {
    /// Returns the time passed since an origin; never goes back.
    fn now(&self) -> ProcessingTime;
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
}
