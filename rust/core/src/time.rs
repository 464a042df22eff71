// SPDX-License-Identifier: Apache-2.0
//! Processing time as the driver tells it.

use std::ops::Add;
use std::time::Duration;

/// A point on the driver's monotonic clock, in nanoseconds since an origin of
/// its choice.
///
/// 64 bits of nanoseconds last for 584 years, so sub-millisecond durations are
/// kept exactly (Flink truncates to milliseconds, which may disable a timeout).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessingTime(u64);

impl ProcessingTime {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);

    /// A point that is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// Makes a point `nanos` after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time passed since `earlier`, zero if that lies ahead.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl ProcessingTime {
    /// Returns the point `nanos` later; one beyond the clock's range never comes.
    #[inline]
    pub(crate) const fn after_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// Returns the point `nanos` earlier, or the origin.
    pub(crate) const fn before_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_sub(nanos))
    }

    /// Returns the nanoseconds passed since `earlier`, zero if that lies ahead.
    #[inline]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for ProcessingTime {
    type Output = Self;

    /// Saturates: a deadline beyond the clock's range never comes.
    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_an_endless_duration_saturates() {
        let never = ProcessingTime::from_nanos(7) + Duration::MAX;

        assert_eq!(never.as_nanos(), u64::MAX);
    }

    #[test]
    fn time_since_a_later_point_is_zero() {
        let early = ProcessingTime::ZERO;
        let late = early + Duration::from_micros(999);

        assert_eq!(early.saturating_since(late), Duration::ZERO);
        assert_eq!(late.saturating_since(early), Duration::from_micros(999));
    }
}
