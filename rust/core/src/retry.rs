// SPDX-License-Identifier: Apache-2.0
//! When a failed attempt is repeated, and after which delay.

use std::time::Duration;

/// How the computed delay is spread, so that failed calls do not return together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jitter {
    /// The computed delay is used as it is.
    #[default]
    None,
    /// Uniform between zero and the computed delay ("full jitter").
    Full,
}

/// Decides whether an attempt is followed by another one, and how much later.
///
/// Counterpart of Flink's `AsyncRetryStrategies`; differs in that the delay is
/// computed from the attempt number alone. Flink's exponential strategy keeps
/// one "last delay" which all records in flight overwrite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AsyncRetryStrategy {
    /// Further attempts after the first one.
    max_retries: u32,
    /// Delay after the first attempt.
    initial: Duration,
    /// No delay is longer than this.
    maximum: Duration,
    /// Growth of the delay from one attempt to the next; 1 keeps it fixed.
    multiplier: f64,
    /// Applied to every computed delay.
    jitter: Jitter,
}

impl AsyncRetryStrategy {
    /// Waits `delay` before each of `max_retries` further attempts.
    pub fn fixed_delay(max_retries: u32, delay: Duration) -> Self {
        Self { max_retries, initial: delay, maximum: delay, multiplier: 1.0, jitter: Jitter::None }
    }

    /// Waits `initial`, then `multiplier` times longer each time, up to `maximum`.
    ///
    /// A `multiplier` below 1 or not finite counts as 1.
    pub fn exponential_backoff(
        max_retries: u32,
        initial: Duration,
        maximum: Duration,
        multiplier: f64,
        jitter: Jitter,
    ) -> Self {
        let multiplier = if multiplier.is_finite() { multiplier.max(1.0) } else { 1.0 };
        Self { max_retries, initial: initial.min(maximum), maximum, multiplier, jitter }
    }

    /// Returns whether attempt number `attempt` (from 1) may be followed by another one.
    pub fn can_retry(&self, attempt: u32) -> bool {
        attempt <= self.max_retries
    }

    /// Returns the delay after attempt number `attempt` (from 1).
    ///
    /// `random` is 64 uniform bits; only their quotient by 2^64 matters, and
    /// only with [`Jitter::Full`].
    pub fn backoff(&self, attempt: u32, random: u64) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let growth = self.multiplier.powi(exponent);
        let seconds = (self.initial.as_secs_f64() * growth).min(self.maximum.as_secs_f64());
        let delay = match self.jitter {
            // The fixed delay must not pass through a float and lose nanoseconds.
            Jitter::None if growth <= 1.0 => return self.initial,
            Jitter::None => seconds,
            Jitter::Full => seconds * unit_interval(random),
        };
        Duration::try_from_secs_f64(delay).unwrap_or(self.maximum)
    }
}

/// Maps 64 random bits to [0, 1).
#[expect(clippy::cast_precision_loss, reason = "53 bits fit the mantissa")]
fn unit_interval(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

/// Mixes `seed` with two counters into 64 uniform bits (the `SplitMix64` finaliser).
///
/// A pure function instead of a generator: the jitter of one record does not
/// depend on what other records did.
pub fn mix(seed: u64, sequence: u64, attempt: u32) -> u64 {
    let mut z = seed
        ^ sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ u64::from(attempt).wrapping_mul(0xD1B5_4A32_D192_ED03);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exponential(jitter: Jitter) -> AsyncRetryStrategy {
        let (initial, maximum) = (Duration::from_millis(100), Duration::from_secs(2));
        AsyncRetryStrategy::exponential_backoff(10, initial, maximum, 2.0, jitter)
    }

    #[test]
    fn max_retries_of_n_permits_n_further_attempts() {
        let strategy = AsyncRetryStrategy::fixed_delay(10, Duration::from_millis(1));

        assert!(strategy.can_retry(10));
        assert!(!strategy.can_retry(11));
    }

    #[test]
    fn exponential_delays_double_up_to_the_maximum() {
        let strategy = exponential(Jitter::None);

        let delays: Vec<u128> =
            (1..=7).map(|attempt| strategy.backoff(attempt, 0).as_millis()).collect();

        assert_eq!(delays, [100, 200, 400, 800, 1600, 2000, 2000]);
    }

    #[test]
    fn attempt_numbers_beyond_every_range_give_the_maximum() {
        assert_eq!(exponential(Jitter::None).backoff(u32::MAX, 0), Duration::from_secs(2));
    }

    #[test]
    fn full_jitter_stays_between_zero_and_the_computed_delay() {
        let strategy = exponential(Jitter::Full);

        assert_eq!(strategy.backoff(1, 0), Duration::ZERO);
        assert!(strategy.backoff(1, u64::MAX) <= Duration::from_millis(100));
        assert!(strategy.backoff(1, u64::MAX) > Duration::from_millis(99));
    }

    #[test]
    fn sub_millisecond_delays_are_kept() {
        let strategy = AsyncRetryStrategy::fixed_delay(1, Duration::from_nanos(999));

        assert_eq!(strategy.backoff(1, 0), Duration::from_nanos(999));
    }

    #[test]
    fn mixed_bits_differ_by_record_and_by_attempt() {
        assert_ne!(mix(1, 2, 1), mix(1, 3, 1));
        assert_ne!(mix(1, 2, 1), mix(1, 2, 2));
    }
}
