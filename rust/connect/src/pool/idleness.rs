// SPDX-License-Identifier: Apache-2.0
//! How long a connection may have been idle: the one rule for all that are kept.

use std::time::Duration;

use tokio::time::Instant;

use super::connection::SWEEP;
use crate::dial::HIGHEST_IDLE;

/// Longest time that a connection is kept without a call, where a lost request must not be sent again and
/// the server does not say how long it keeps connections. Widespread servers do so for 5 seconds.
pub(super) const CAREFUL_IDLE: Duration = Duration::from_secs(4);

/// How long before its server closes it a connection is left alone: a request takes a while to get there.
const MARGIN: Duration = Duration::from_secs(1);

/// For how long a server without a call that may be sent twice is taken for one that gets none.
pub(super) const ONLY_CAREFUL: Duration = Duration::from_secs(60);

/// What a server closes before this was not closed because it was idle.
const SHORTEST_SEEN: Duration = Duration::from_secs(1);

/// For how long it counts that a server closed connections that were idle.
const SEEN_FOR: Duration = Duration::from_secs(5 * 60);

/// What is known of how long a server keeps connections that are idle, and of who uses them.
#[derive(Default)]
pub(super) struct Idleness {
    /// For how long the server says that it keeps them.
    pub(super) announced: Option<Duration>,
    /// For how long it kept one that it closed, at least, and when that was seen.
    pub(super) seen: Option<(Duration, Instant)>,
    /// When a call came last that may be sent twice.
    pub(super) carefree_at: Option<Instant>,
}

impl Idleness {
    /// Returns how long a connection may have been idle for the next call.
    pub(super) fn longest(&self, now: Instant, careful: bool) -> Duration {
        let before = |kept: Duration| match kept.checked_sub(MARGIN) {
            Some(less) if !less.is_zero() => less,
            _ => kept / 2,
        };
        let seen = self.seen.filter(|(_, when)| now < *when + SEEN_FOR).map(|(kept, _)| kept);
        let assumed = if careful { CAREFUL_IDLE } else { HIGHEST_IDLE };
        // A server that closed one later than that may close the next one earlier; one that says how long
        // it keeps them is believed.
        let usual = self.announced.map_or(assumed, before).min(HIGHEST_IDLE);
        seen.map_or(usual, |it| before(it).min(usual))
    }

    /// Whether all calls are ones that must not be sent twice: what is too old for them is too old.
    pub(super) fn is_only_careful(&self, now: Instant) -> bool {
        self.carefree_at.is_none_or(|it| now >= it + ONLY_CAREFUL)
    }

    /// Notes that the server has closed a connection since the last look, which was idle for so long now.
    pub(super) fn note_closed(&mut self, idle: Duration, now: Instant) {
        let kept = idle.saturating_sub(SWEEP);
        if kept >= SHORTEST_SEEN {
            self.seen = Some((kept, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_connection_is_closed_before_its_server_does_so() {
        let now = Instant::now();
        let mut known = Idleness::default();
        let longest = |known: &Idleness, now| {
            [false, true].map(|careful| known.longest(now, careful).as_millis())
        };
        assert_eq!(longest(&known, now), [60_000, 4_000], "nobody has said anything");

        known.seen = Some((Duration::from_millis(2_700), now));
        assert_eq!(longest(&known, now), [1_700; 2], "a request takes a while to get there");
        known.seen = Some((Duration::from_millis(7_700), now));
        assert_eq!(longest(&known, now), [6_700, 4_000], "the next one may be closed earlier");
        known.announced = Some(Duration::from_secs(2));
        assert_eq!(longest(&known, now), [1_000; 2], "the smaller one");
        assert_eq!(longest(&known, now + LONG), [1_000; 2]);

        known.announced = None;
        assert_eq!(
            longest(&known, now + LONG),
            [60_000, 4_000],
            "what was seen long ago is forgotten"
        );
        known.announced = Some(Duration::from_secs(1));
        assert_eq!(longest(&known, now), [500; 2]);
        known.announced = Some(Duration::from_secs(17));
        assert_eq!(longest(&known, now + LONG), [16_000; 2], "it may be longer too");
        known.announced = Some(LONG);
        assert_eq!(longest(&known, now + LONG), [60_000; 2]);
    }

    #[test]
    fn what_was_closed_at_once_was_not_closed_for_being_idle() {
        let (mut known, now) = (Idleness::default(), Instant::now());
        known.note_closed(SHORTEST_SEEN + SWEEP / 2, now);
        assert_eq!(known.longest(now, false), HIGHEST_IDLE);
        known.note_closed(Duration::from_millis(3_700), now);
        assert_eq!(known.longest(now, false), Duration::from_millis(1_700));
    }
}
