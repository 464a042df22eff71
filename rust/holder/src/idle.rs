// SPDX-License-Identifier: Apache-2.0
//! How long a task waits for the next part of its input before it is given up.

use std::time::{Duration, Instant};

/// A task waits so often as long as its parts are apart.
const GAPS: u32 = 2;

/// Parts that are further apart than this find another task.
const MOST_GAP: Duration = Duration::from_secs(60 * 60);

/// The time between two parts.
///
/// Nobody says how often a query runs its micro-batches, so it is taken from those that there were.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    /// Since when nobody brings a part.
    since: Option<Instant>,
    /// How far apart parts were before the task was made.
    before: Duration,
    /// The longest time between two of its own.
    longest: Option<Duration>,
}

impl Idle {
    /// Makes that of a task which is made so long after the last part of the one before it.
    pub(crate) const fn new(before: Duration) -> Self {
        Self { since: None, before, longest: None }
    }

    /// Notes that somebody brings a part.
    pub(crate) fn begin(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.longest = self.longest.max(Some(now.saturating_duration_since(since)));
        }
    }

    /// Notes that the part has ended, or was left.
    pub(crate) const fn end(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// Tells whether no part has come for `hold`, or for as long as may lie between two.
    pub(crate) fn is_over(&self, now: Instant, hold: Duration) -> bool {
        let gap = self.longest.unwrap_or(self.before).min(MOST_GAP);
        self.since.is_some_and(|it| now.saturating_duration_since(it) >= hold.max(gap * GAPS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(60);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn task_is_held_for_as_long_as_its_parts_are_apart() {
        let start = Instant::now();
        for (trigger, held) in [(1, 60), (75, 150), (600, 1200), (7200, 7200)] {
            let mut idle = Idle::new(Duration::ZERO);
            idle.end(start);
            // One that looks at it meanwhile finds it in time once.
            idle.begin(start + seconds(trigger));
            assert!(!idle.is_over(start + seconds(100_000), HOLD), "somebody uses it");
            let end = start + seconds(trigger + 1);
            idle.end(end);

            assert!(!idle.is_over(end + seconds(held - 1), HOLD), "a trigger of {trigger} s");
            assert!(idle.is_over(end + seconds(held), HOLD), "a trigger of {trigger} s");
        }
    }

    #[test]
    fn task_that_has_taken_over_waits_as_long_as_the_trigger_was() {
        let start = Instant::now();
        let mut idle = Idle::new(seconds(75));
        idle.end(start);

        assert!(!idle.is_over(start + seconds(149), HOLD));
        assert!(idle.is_over(start + seconds(150), HOLD));
        // What it sees itself counts more than a query that was stopped for long.
        idle.begin(start + seconds(5));
        idle.end(start + seconds(6));
        assert!(idle.is_over(start + seconds(66), HOLD));
    }

    #[test]
    fn part_that_is_brought_again_does_not_shorten_the_time() {
        let start = Instant::now();
        let mut idle = Idle::new(Duration::ZERO);
        idle.end(start);
        idle.begin(start + seconds(100));
        idle.end(start + seconds(101));
        idle.begin(start + seconds(102));
        idle.end(start + seconds(103));

        assert!(!idle.is_over(start + seconds(302), HOLD));
        assert!(idle.is_over(start + seconds(303), HOLD));
    }
}
