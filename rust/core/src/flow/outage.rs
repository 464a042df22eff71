// SPDX-License-Identifier: Apache-2.0
//! Since when a destination is not there, and for how long records wait for it.

use crate::policy::CallSign;
use crate::time::ProcessingTime;

/// For how long a record waits for a destination that is not there.
///
/// A record that waits in line ages only then: one that waits because a limit is low, or because
/// others are called first, waits for a destination that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitBound {
    /// A destination that was asked for so many nanoseconds without an answer is not there; the
    /// largest number: silence says nothing, because nobody knows how long a call may take.
    pub(crate) silence: u64,
    /// Nanoseconds that a record waits for one.
    pub(crate) most: u64,
    /// Whether a pause counts that the destination asked for. It is there, and says when to come
    /// again, so records wait for that unless somebody said for how long.
    pub(crate) counts_asked: bool,
}

/// Whether one destination is there: two stopwatches, neither touched while no record of the
/// channel waits.
///
/// ```text
///   silent_since --silence--> not there --most--> records that waited since then end
///        ^  an answer
/// ```
///
/// Silence runs while calls are in flight. In a gap, because a limit or another channel has the
/// permits, it stands: nobody was asked, so nobody was silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    /// The last answer, or when something began to wait; later by all gaps since then.
    silent_since: ProcessingTime,
    /// When the last call ended, if none is in flight.
    idle_since: ProcessingTime,
    /// Since when its policies pause it; `NEVER` if they do not.
    pub(super) paused_since: ProcessingTime,
    /// When the records that wait are looked at; `NEVER` if they are not.
    pub(super) looks_at: ProcessingTime,
}

impl Outage {
    pub(super) const NONE: Self = Self {
        silent_since: ProcessingTime::ZERO,
        idle_since: ProcessingTime::ZERO,
        paused_since: ProcessingTime::NEVER,
        looks_at: ProcessingTime::NEVER,
    };

    /// Notes that a record waits where none did.
    pub(super) const fn begin(&mut self, now: ProcessingTime) {
        (self.silent_since, self.idle_since) = (now, now);
    }

    /// Notes the end of a call; `is_last`: no other one is in flight.
    pub(super) const fn note_end(&mut self, sign: CallSign, is_last: bool, now: ProcessingTime) {
        if sign.is_reply() {
            self.silent_since = now;
        }
        if is_last {
            self.idle_since = now;
        }
    }

    /// Notes a call while no other one was in flight.
    pub(super) const fn note_first(&mut self, now: ProcessingTime) {
        let gap = now.nanos_since(self.idle_since);
        self.silent_since = self.silent_since.after_nanos(gap);
    }

    /// Goes on with what is known of the silence of all calls together.
    pub(super) const fn inherit(&mut self, silent_since: ProcessingTime) {
        self.silent_since = silent_since;
    }

    /// Returns when a record has waited too long that has waited since `since`, if nothing changes:
    /// for a destination that is paused, and for one that is silent.
    fn dues(&self, since: ProcessingTime, bound: WaitBound) -> [ProcessingTime; 2] {
        let silent = self.silent_since.after_nanos(bound.silence);
        [self.paused_since, silent].map(|from| from.max(since).after_nanos(bound.most))
    }

    /// Returns whether it has waited too long; `is_asked`: calls are in flight.
    pub(super) fn is_over(
        &self,
        since: ProcessingTime,
        bound: WaitBound,
        is_asked: bool,
        now: ProcessingTime,
    ) -> bool {
        let [paused, silent] = self.dues(since, bound);
        let asked_until = if is_asked { now } else { self.idle_since };
        paused <= now || silent <= asked_until
    }

    /// Returns when to ask that again; `NEVER` if something else happens first.
    pub(super) fn next_look(
        &self,
        since: ProcessingTime,
        bound: WaitBound,
        is_asked: bool,
    ) -> ProcessingTime {
        let [paused, silent] = self.dues(since, bound);
        if is_asked { paused.min(silent) } else { paused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: WaitBound = WaitBound { silence: 7, most: 11, counts_asked: false };

    fn at(nanos: u64) -> ProcessingTime {
        ProcessingTime::from_nanos(nanos)
    }

    fn silent_since(nanos: u64) -> Outage {
        let mut outage = Outage::NONE;
        outage.begin(at(nanos));
        outage
    }

    #[test]
    fn a_record_ages_from_when_its_destination_has_been_silent_for_long() {
        let outage = silent_since(3);

        assert_eq!(outage.next_look(at(2), BOUND, true), at(3 + 7 + 11));
        assert_eq!(outage.next_look(at(13), BOUND, true), at(13 + 11), "it came later");
        assert!(!outage.is_over(at(2), BOUND, true, at(20)));
        assert!(outage.is_over(at(2), BOUND, true, at(21)));
    }

    #[test]
    fn an_answer_begins_anew_and_a_lost_call_does_not() {
        for (sign, due) in [
            (CallSign::Good, 5),
            (CallSign::Neutral, 5),
            (CallSign::Overloaded, 5),
            (CallSign::Unreachable, 3),
            (CallSign::TimedOut, 3),
            (CallSign::CutOff, 3),
            (CallSign::NotCalled, 3),
        ] {
            let mut outage = silent_since(3);
            outage.note_end(sign, false, at(5));
            assert_eq!(outage.next_look(at(0), BOUND, true), at(due + 7 + 11), "{sign:?}");
        }
    }

    #[test]
    fn silence_stands_while_nobody_is_asked() {
        let mut outage = silent_since(3);
        outage.note_end(CallSign::TimedOut, true, at(19));
        assert!(!outage.is_over(at(3), BOUND, false, at(1_000)), "two were left of its wait");
        assert_eq!(outage.next_look(at(3), BOUND, false), ProcessingTime::NEVER);

        outage.note_first(at(1_000));

        assert_eq!(outage.next_look(at(3), BOUND, true), at(1_002));
    }

    #[test]
    fn what_was_over_when_the_last_call_ended_is_over_in_the_gap() {
        let mut outage = silent_since(3);
        outage.note_end(CallSign::TimedOut, true, at(21));

        assert!(outage.is_over(at(3), BOUND, false, at(21)));
        assert!(!outage.is_over(at(11), BOUND, false, at(500)), "it came later");
    }

    #[test]
    fn a_pause_counts_whether_anybody_is_asked_or_not() {
        let mut outage = silent_since(3);
        outage.paused_since = at(4);

        assert_eq!(outage.next_look(at(0), BOUND, false), at(15));
        assert!(outage.is_over(at(0), BOUND, false, at(15)));
    }
}
