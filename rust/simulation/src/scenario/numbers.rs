// SPDX-License-Identifier: Apache-2.0
//! The numbers that are drawn, and how.

use crate::random::Random;

pub(super) const MICRO: u64 = 1_000;
pub(super) const MILLI: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;

/// Numbers that come out even nowhere.
pub(super) const COUNTS: [usize; 12] = [1, 1, 1, 2, 2, 3, 5, 7, 11, 13, 29, 97];
/// Nanoseconds of what is configured.
pub(super) const TIMES: [u64; 9] = [
    999,
    7 * MICRO + 1,
    331 * MICRO,
    7 * MILLI,
    13 * MILLI + 1,
    97 * MILLI,
    333_333_333,
    SECOND + 300_000_007,
    3 * SECOND,
];
pub(super) const PERMITS: [u64; 16] = [1, 2, 3, 3, 6, 7, 9, 11, 13, 59, 60, 61, 97, 100, 333, 1000];
pub(super) const PERIODS: [u64; 6] = [7 * MILLI, 130 * MILLI, SECOND, SECOND, SECOND, 60 * SECOND];

pub(super) fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len())]
}

pub(super) fn maybe<T>(
    random: &mut Random,
    cases: usize,
    make: impl FnOnce(&mut Random) -> T,
) -> Option<T> {
    random.in_a_hundred(cases).then(|| make(random))
}
