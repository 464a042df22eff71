// SPDX-License-Identifier: Apache-2.0
//! When a call is slow enough for a second attempt beside it.

use std::time::Duration;

use crate::time::ProcessingTime;

/// Durations that are remembered at most; half of them are forgotten then.
const REMEMBERED: u32 = 1 << 12;

/// Calls that must end before they have a percentile.
const LEAST: u32 = 20;

/// Calls after which the percentile is looked for again.
const PERIOD: u32 = 32;

/// Second attempts that can be saved up.
const SAVED: f64 = 10.0;

/// When the second attempt starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HedgeAfter {
    /// After a fixed time.
    Time(Duration),
    /// When so much of the calls, 0 to 1, would have been answered.
    Percentile(f64),
}

/// Which calls get a second attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HedgeConfig {
    /// When it starts.
    pub after: HedgeAfter,
    /// How many there may be for each first attempt, 0 to 1.
    pub max_extra: f64,
}

/// How long a call takes before it counts as slow, and how many second attempts are left.
///
/// The percentile is one of the calls that were seen, in steps of an eighth, of
/// which old ones weigh less. A call that was answered by its second attempt is
/// to be noted with the time that the first one had taken until then, or slow
/// calls would vanish from what is known.
#[derive(Clone, Debug)]
pub struct HedgeDelay {
    config: HedgeConfig,
    /// Calls by the three leading bits of their duration.
    counts: Vec<u32>,
    known: u32,
    /// Until the percentile is looked for again.
    countdown: u32,
    percentile: Option<u64>,
    /// Second attempts that were earned.
    saved: f64,
}

impl HedgeDelay {
    /// Knows of no call.
    pub fn new(config: HedgeConfig) -> Self {
        let counts = match config.after {
            HedgeAfter::Time(_) => Vec::new(),
            HedgeAfter::Percentile(_) => vec![0; 512],
        };
        Self { config, counts, known: 0, countdown: 0, percentile: None, saved: 0.0 }
    }

    /// Is told that a first attempt begins; returns when a second one may, if it may at all.
    pub fn on_start(&mut self, now: ProcessingTime) -> Option<ProcessingTime> {
        self.saved = (self.saved + self.config.max_extra.clamp(0.0, 1.0)).min(SAVED);
        match self.config.after {
            HedgeAfter::Time(after) => Some(now + after),
            HedgeAfter::Percentile(_) => Some(now.after_nanos(self.percentile?)),
        }
    }

    /// Returns whether a second attempt was earned.
    pub fn may_hedge(&self) -> bool {
        self.saved >= 1.0
    }

    /// Is told that a second attempt starts.
    pub fn on_hedge(&mut self) {
        self.saved -= 1.0;
    }

    /// Is told that one that was to start does not.
    pub fn take_back(&mut self) {
        self.saved = (self.saved + 1.0).min(SAVED);
    }

    /// Notes how long a first attempt took.
    pub fn on_end(&mut self, took: Duration) {
        let HedgeAfter::Percentile(share) = self.config.after else { return };
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(code(nanos)) {
            *count += 1;
            self.known += 1;
        }
        if self.known >= REMEMBERED {
            self.counts.iter_mut().for_each(|it| *it /= 2);
            self.known = self.counts.iter().sum();
        }
        match self.countdown.checked_sub(1) {
            Some(left) => self.countdown = left,
            None if self.known >= LEAST => {
                self.countdown = PERIOD;
                self.percentile = self.find(share);
            }
            None => {}
        }
    }

    /// Returns a duration that so many of the calls did not exceed.
    fn find(&self, share: f64) -> Option<u64> {
        let wanted = f64::from(self.known) * share.clamp(0.0, 1.0);
        let mut seen = 0.0;
        let place = self.counts.iter().position(|count| {
            seen += f64::from(*count);
            seen >= wanted
        })?;
        // The end of the step: who is within it is not slow.
        Some(duration(place + 1))
    }
}

/// Returns the place of a duration: its highest bit and the three bits behind it.
fn code(nanos: u64) -> usize {
    let nanos = nanos.max(8);
    let place = nanos.ilog2();
    #[expect(clippy::cast_possible_truncation, reason = "three bits")]
    let bits = (nanos >> (place - 3)) as usize & 7;
    (place as usize) << 3 | bits
}

/// Returns the shortest duration of a place.
fn duration(code: usize) -> u64 {
    let (place, bits) = (code >> 3, (code & 7) as u64);
    if place > 63 { u64::MAX } else { (8 | bits) << place.saturating_sub(3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: ProcessingTime = ProcessingTime::from_nanos(1_000);

    fn at_percentile(max_extra: f64) -> HedgeDelay {
        HedgeDelay::new(HedgeConfig { after: HedgeAfter::Percentile(0.95), max_extra })
    }

    #[test]
    fn places_keep_the_order_and_a_duration_lies_in_its_own() {
        let durations =
            (8..2000).chain((3..64).map(|place| (1_u64 << place) + 5)).chain([u64::MAX]);
        for nanos in durations {
            assert!(duration(code(nanos)) <= nanos && nanos <= duration(code(nanos) + 1));
            assert!(duration(code(nanos) + 1) - duration(code(nanos)) <= nanos / 8 + 1);
        }
    }

    #[test]
    fn there_is_no_percentile_of_a_few_calls() {
        let mut delay = at_percentile(0.05);
        (0..19).for_each(|_| delay.on_end(Duration::from_millis(10)));
        assert_eq!(delay.on_start(NOW), None);
        delay.on_end(Duration::from_millis(10));
        let waits = delay.on_start(NOW).unwrap().saturating_since(NOW);
        assert!((Duration::from_millis(10)..Duration::from_micros(11_300)).contains(&waits));
    }

    #[test]
    fn the_percentile_leaves_out_the_tail_and_follows_what_changes() {
        let mut delay = at_percentile(0.05);
        let wait = |delay: &mut HedgeDelay| delay.on_start(NOW).unwrap().saturating_since(NOW);
        for call in 0..1000 {
            delay.on_end(Duration::from_millis(if call % 100 == 0 { 1000 } else { 10 }));
        }
        assert!(wait(&mut delay) < Duration::from_millis(12));
        (0..3 * REMEMBERED).for_each(|_| delay.on_end(Duration::from_millis(50)));
        assert!(wait(&mut delay) >= Duration::from_millis(50));
    }

    #[test]
    fn a_twentieth_of_the_calls_gets_a_second_attempt() {
        let mut delay = at_percentile(0.05);
        let mut hedges = 0;
        for _ in 0..10_000 {
            delay.on_start(NOW);
            if delay.may_hedge() {
                delay.on_hedge();
                hedges += 1;
            }
        }
        assert!((499..=500).contains(&hedges), "{hedges}");
    }

    #[test]
    fn few_are_saved_up() {
        let mut delay = at_percentile(0.5);
        for _ in 0..10_000 {
            delay.on_start(NOW);
        }
        let mut hedges = 0;
        while delay.may_hedge() {
            delay.on_hedge();
            hedges += 1;
        }
        assert_eq!(hedges, 10);
    }

    #[test]
    fn a_fixed_time_needs_no_calls() {
        let after = HedgeAfter::Time(Duration::from_millis(200));
        let mut delay = HedgeDelay::new(HedgeConfig { after, max_extra: 1.0 });
        delay.on_end(Duration::from_secs(9));
        assert_eq!(delay.on_start(NOW), Some(NOW + Duration::from_millis(200)));
    }
}
