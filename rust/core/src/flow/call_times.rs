// SPDX-License-Identifier: Apache-2.0
//! How long the calls of a destination take.

use crate::time::ProcessingTime;

/// Calls whose durations are remembered.
const REMEMBERED: usize = 15;

/// How long the last calls of a destination took, for their median.
///
/// A call that the end of its record's time cut off took longer than it was let:
/// it counts as one of the median at least. A duration is a byte, three leading
/// bits of it, so that fifteen of them are a channel's share of memory and noting
/// one costs a few steps. Only calls that end while something waits are noted,
/// because nobody else asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTimes {
    /// Nothing, or what [`code`] makes of a duration.
    last: [u8; REMEMBERED],
    /// The place of the next one.
    next: u8,
    /// Whether a call was started as a probe, and none has ended since.
    is_probing: bool,
    /// Whether they are too long for the oldest record that waits, or were when it was looked at.
    is_too_long: bool,
    /// When the last probe started.
    probed_at: ProcessingTime,
}

impl CallTimes {
    /// Knows of no call.
    pub(crate) const fn new() -> Self {
        let (last, next) = ([0; REMEMBERED], 0);
        let (is_probing, is_too_long) = (false, false);
        Self { last, next, is_probing, is_too_long, probed_at: ProcessingTime::ZERO }
    }

    /// Notes a call that was answered.
    ///
    /// The answer to a probe is the only news there is: what was before is forgotten.
    pub(crate) fn note_ended(&mut self, nanos: u64) {
        if self.is_probing {
            *self = Self { probed_at: self.probed_at, ..Self::new() };
        }
        self.push(code(nanos));
    }

    /// Notes a call that was cut off after `nanos`.
    pub(crate) fn note_expired(&mut self, nanos: u64) {
        self.is_probing = false;
        self.push(code(nanos).max(self.median_code()));
    }

    fn push(&mut self, code: u8) {
        if let Some(place) = self.last.get_mut(usize::from(self.next)) {
            *place = code;
        }
        self.next = (self.next + 1) % 15;
    }

    /// Returns the median in nanoseconds, rounded down by a fifth at most; 0 if no call is known.
    pub(crate) fn median(&self) -> u64 {
        duration(self.median_code())
    }

    /// Returns the lower one of the two in the middle if there are as many on both sides.
    fn median_code(&self) -> u8 {
        let mut sorted = self.last;
        sorted.sort_unstable();
        let unknown = sorted.partition_point(|it| *it == 0);
        let known = sorted.get(unknown..).unwrap_or_default();
        known.get(known.len().saturating_sub(1) / 2).copied().unwrap_or_default()
    }

    /// Notes whether the oldest record that waits has too little time left for a call.
    pub(crate) const fn set_too_long(&mut self, is_too_long: bool) {
        self.is_too_long = is_too_long;
    }

    /// Returns whether it has.
    pub(crate) const fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// Returns whether a call may start although it may not end in time, to see whether calls
    /// take as long as they did; no more than one in the time that a call takes.
    pub(crate) fn may_probe(&self, now: ProcessingTime) -> bool {
        now >= self.probed_at.after_nanos(self.median())
    }

    /// Notes that a probe starts.
    pub(crate) fn probe(&mut self, now: ProcessingTime) {
        (self.is_probing, self.probed_at) = (true, now);
    }
}

/// Returns the three leading bits of a duration and their place, in the order of durations.
fn code(nanos: u64) -> u8 {
    let nanos = nanos.max(1);
    let place = nanos.ilog2();
    #[expect(clippy::cast_possible_truncation, reason = "at most 63 x 4 + 3")]
    let code = (place << 2) as u8 | (nanos >> place.saturating_sub(2)) as u8 & 3;
    code
}

/// Returns the shortest duration of a code.
const fn duration(code: u8) -> u64 {
    let (place, bits) = (code >> 2, (code & 3) as u64);
    if place < 2 { bits } else { (4 | bits) << (place - 2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(durations: &[u64]) -> CallTimes {
        let mut times = CallTimes::new();
        for nanos in durations {
            times.note_ended(*nanos);
        }
        times
    }

    #[test]
    fn codes_keep_the_order_and_three_bits_of_durations() {
        let durations = (0..100).chain((0..64).map(|place| (1_u64 << place) - 1)).chain([u64::MAX]);
        for nanos in durations.map(|nanos| nanos.max(1)) {
            let shift = nanos.ilog2().saturating_sub(2);
            assert_eq!(duration(code(nanos)), nanos >> shift << shift);
            assert!(code(nanos) <= code(nanos.saturating_add(1)) && code(nanos) > 0);
        }
    }

    #[test]
    fn the_median_is_of_the_calls_that_are_known() {
        assert_eq!(after(&[]).median(), 0);
        assert_eq!(after(&[7]).median(), 7);
        assert_eq!(after(&[1, 7]).median(), 1);
        assert_eq!(after(&[5, 1, 4]).median(), 4);
    }

    #[test]
    fn the_last_fifteen_calls_count() {
        let mut times = after(&[5; 100]);
        (0..7).for_each(|_| times.note_ended(1));
        assert_eq!(times.median(), 5);
        times.note_ended(1);
        assert_eq!(times.median(), 1);
    }

    #[test]
    fn a_call_that_was_cut_off_soon_says_nothing_of_how_long_calls_take() {
        let mut times = after(&[6, 7, 7]);

        (0..100).for_each(|_| times.note_expired(1));

        assert_eq!(times.median(), 7);
    }

    #[test]
    fn the_answer_to_a_probe_is_all_that_is_known_then() {
        let at = ProcessingTime::from_nanos;
        let mut times = after(&[100; 15]);
        times.probe(at(200));
        assert!(!times.may_probe(at(295)) && times.may_probe(at(296)));

        times.note_ended(3);

        assert_eq!(times.median(), 3);
        assert!(times.may_probe(at(203)));
    }

    #[test]
    fn a_probe_that_expires_changes_nothing() {
        let mut times = after(&[7; 15]);
        times.probe(ProcessingTime::from_nanos(200));

        times.note_expired(2);
        times.note_ended(1);

        assert_eq!(times.median(), 7);
    }
}
