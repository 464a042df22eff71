// SPDX-License-Identifier: Apache-2.0
//! How large a batch should be, so that a target latency is met.

use std::time::Duration;

/// Bounds and aim of a [`Debloater`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebloaterConfig {
    /// The smallest batch, in rows; at least 1.
    pub min: u32,
    /// The largest batch, in rows; at least `min`.
    pub max: u32,
    /// How long a row should take through all batches in use.
    pub target: Duration,
    /// Smaller changes than this share of the size are not announced, in percent.
    pub threshold_percent: u32,
    /// Weight of the newest measurement is 2 / (samples + 1).
    pub samples: u32,
}

impl DebloaterConfig {
    /// Flink's defaults: a target of 1 s, 25 %, 20 samples.
    pub const fn new(min: u32, max: u32) -> Self {
        let target = Duration::from_secs(1);
        Self { min, max, target, threshold_percent: 25, samples: 20 }
    }
}

/// Follows the measured throughput with the size of batches.
///
/// Counterpart of Flink's `BufferDebloater`, in rows. The size it aims at is
/// `throughput * target / batches in use`: what flows within the target,
/// spread over the batches that a row waits behind. It is announced when it
/// changed enough to matter; the smallest and the largest size are announced
/// once each time they are reached, however near they were.
#[derive(Clone, Debug)]
pub struct Debloater {
    config: DebloaterConfig,
    /// Rows per second, averaged exponentially; `None` before the first measurement.
    throughput: Option<f64>,
    /// The size announced last.
    size: u32,
}

impl Debloater {
    /// Makes a debloater whose size is the largest one.
    pub fn new(config: DebloaterConfig) -> Self {
        let min = config.min.max(1);
        let config = DebloaterConfig { min, max: config.max.max(min), ..config };
        Self { config, throughput: None, size: config.max }
    }

    /// Returns the size announced last.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Takes a measurement: `rows` in `elapsed`, with `in_use` batches on their way.
    ///
    /// Returns the new size if it should be announced. A measurement without time says nothing; no
    /// batch in use counts as one.
    pub fn measure(&mut self, rows: u64, elapsed: Duration, in_use: u32) -> Option<u32> {
        if elapsed.is_zero() {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
        let measured = rows as f64 / elapsed.as_secs_f64();
        let weight = 2.0 / (f64::from(self.config.samples) + 1.0);
        let throughput = self.throughput.map_or(measured, |old| old + weight * (measured - old));
        self.throughput = Some(throughput);
        let wanted = throughput * self.config.target.as_secs_f64() / f64::from(in_use.max(1));
        self.announce(wanted)
    }

    /// Moves to a size, if that is worth telling.
    fn announce(&mut self, wanted: f64) -> Option<u32> {
        let DebloaterConfig { min, max, threshold_percent, .. } = self.config;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to 32 bits; not a number becomes 0"
        )]
        let size = (wanted.clamp(f64::from(min), f64::from(max)) as u32).clamp(min, max);
        if size == self.size {
            return None;
        }
        let change = u64::from(size.abs_diff(self.size)) * 100;
        let is_edge = size == min || size == max;
        if !is_edge && change < u64::from(self.size) * u64::from(threshold_percent) {
            return None;
        }
        self.size = size;
        Some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn debloater(min: u32, max: u32) -> Debloater {
        // One sample: the newest measurement counts alone.
        Debloater::new(DebloaterConfig { samples: 1, ..DebloaterConfig::new(min, max) })
    }

    #[test]
    fn the_size_is_what_flows_within_the_target_over_the_batches_in_use() {
        let mut debloater = debloater(1, 10_000);

        assert_eq!(debloater.measure(1_000, SECOND, 4), Some(250));
        assert_eq!(debloater.size(), 250);
    }

    #[test]
    fn no_batch_in_use_counts_as_one() {
        let (mut none, mut one) = (debloater(1, 10_000), debloater(1, 10_000));

        assert_eq!(none.measure(1_000, SECOND, 0), one.measure(1_000, SECOND, 1));
        assert_eq!(none.size(), 1_000);
    }

    #[test]
    fn a_change_below_the_threshold_is_kept_quiet_and_measured_from_the_announced_size() {
        let mut debloater = debloater(1, 10_000);
        debloater.measure(1_000, SECOND, 1);

        assert_eq!(debloater.measure(1_200, SECOND, 1), None);
        assert_eq!(debloater.measure(1_249, SECOND, 1), None);
        assert_eq!(debloater.measure(1_250, SECOND, 1), Some(1_250));
    }

    #[test]
    fn both_edges_are_announced_once_however_small_the_step() {
        let mut debloater = debloater(100, 1_000);
        assert_eq!(debloater.measure(990, SECOND, 1), None, "1 % below the largest");
        assert_eq!(debloater.measure(700, SECOND, 1), Some(700));
        assert_eq!(debloater.measure(5_000, SECOND, 1), Some(1_000));
        assert_eq!(debloater.measure(9_000, SECOND, 1), None);

        assert_eq!(debloater.measure(120, SECOND, 1), Some(120));
        assert_eq!(debloater.measure(5, SECOND, 1), Some(100));
        assert_eq!(debloater.measure(0, SECOND, 1), None);
    }

    #[test]
    fn the_average_follows_a_step_slowly() {
        let mut debloater = Debloater::new(DebloaterConfig::new(1, 10_000));
        debloater.measure(1_000, SECOND, 1);

        assert_eq!(debloater.measure(2_000, SECOND, 1), None);
        let announced = (0..40).filter_map(|_| debloater.measure(2_000, SECOND, 1));

        assert!((1_500..=2_000).contains(&announced.last().unwrap()));
    }

    #[test]
    fn no_time_and_any_number_are_harmless() {
        let mut debloater = debloater(0, 0);

        assert_eq!(debloater.measure(7, Duration::ZERO, 1), None);
        assert_eq!(debloater.measure(u64::MAX, Duration::from_nanos(1), u32::MAX), None);
        assert_eq!(debloater.size(), 1);
    }
}
