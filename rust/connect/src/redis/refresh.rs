// SPDX-License-Identifier: Apache-2.0
//! When a cluster is asked for its nodes: one question at a time, and none right behind another.
//!
//! A storm of redirections so costs a question every now and then, whatever the answers say.

use std::time::Duration;

/// Least time from one question to the next.
const PAUSE: Duration = Duration::from_millis(100);

/// The questions for the nodes of a cluster; times are since any start.
#[derive(Debug, Default)]
pub(super) struct Refresh {
    is_asking: bool,
    /// Whether the nodes may have changed since the last question.
    is_wanted: bool,
    /// Before this, nobody is asked.
    next: Duration,
}

impl Refresh {
    /// Says that the nodes may have changed; returns whether to ask for them now.
    pub(super) fn want(&mut self, now: Duration) -> bool {
        self.is_wanted = true;
        self.is_due(now)
    }

    /// Returns whether to ask now, since it was too early to when they may have changed.
    pub(super) fn is_due(&mut self, now: Duration) -> bool {
        if self.is_asking || !self.is_wanted || now < self.next {
            return false;
        }
        *self = Self { is_asking: true, is_wanted: false, next: now + PAUSE };
        true
    }

    /// Says that the question was answered, or that no answer comes.
    pub(super) fn was_answered(&mut self) {
        self.is_asking = false;
    }

    /// Whether a question was not answered yet.
    pub(super) fn is_asking(&self) -> bool {
        self.is_asking
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_asks_once_at_a_time_and_not_again_at_once() {
        let mut refresh = Refresh::default();
        let mut asked = Vec::new();
        for now in 0..1000 {
            if refresh.want(Duration::from_millis(now)) {
                asked.push(now);
            }
            // An answer takes 30 ms.
            if asked.last().is_some_and(|last| last + 30 <= now) {
                refresh.was_answered();
            }
        }

        assert_eq!(asked, (0..10).map(|it| it * 100).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_too_early_is_asked_later() {
        let mut refresh = Refresh::default();
        assert!(refresh.want(Duration::ZERO));
        assert!(refresh.is_asking() && !refresh.want(PAUSE * 3));

        refresh.was_answered();

        assert!(refresh.is_due(PAUSE * 3));
        refresh.was_answered();
        assert!(!refresh.is_due(PAUSE * 9), "nothing has changed since");
        assert!(refresh.want(PAUSE * 9));
        refresh.was_answered();
        assert!(!refresh.want(PAUSE * 9));
        assert!(refresh.is_due(PAUSE * 10));
    }
}
