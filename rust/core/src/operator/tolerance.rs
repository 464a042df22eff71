// SPDX-License-Identifier: Apache-2.0
//! Whether too many records of an operator have failed: the one place that says so.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// From how many failed records on an operator fails, although their failures are emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailAfter {
    /// So many have failed ..
    pub failures: u64,
    /// .. and they are this share of all records that have ended, in parts of a million.
    pub per_million: u32,
    /// Of how many records at least the share is looked at once more when all have ended; `None`: it
    /// is not.
    pub at_end_of: Option<u64>,
}

impl FailAfter {
    /// Returns whether it is too many that so many have failed, now that all have ended.
    pub fn is_reached_at_end(&self, failed: u64, ended: u64) -> bool {
        let is_looked_at = self.at_end_of.is_some_and(|least| ended >= least);
        is_looked_at && failed > 0 && self.has_share(failed, ended)
    }

    fn has_share(&self, failed: u64, ended: u64) -> bool {
        u128::from(failed) * 1_000_000 >= u128::from(ended) * u128::from(self.per_million)
    }
}

/// How many records have failed where that was too many, and how many had ended by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// Records that have failed, and those that were refused behind the operator.
    pub failed: u64,
    /// Records that have ended.
    pub ended: u64,
}

/// What an operator bears, and whether that was exceeded.
///
/// It is asked by the operator, and by who takes its output and refuses some of that. So it is shared,
/// and both count.
#[derive(Debug)]
pub struct Tolerance {
    after: FailAfter,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// Of the operator, as of its last failure.
    operator: TooMany,
    /// Records that have left the operator and were refused then.
    refused: u64,
    verdict: Option<TooMany>,
}

impl Tolerance {
    /// Knows of no failure yet.
    pub const fn new(after: FailAfter) -> Self {
        let operator = TooMany { failed: 0, ended: 0 };
        Self { after, known: Mutex::new(Known { operator, refused: 0, verdict: None }) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is told of a failure: so many have failed by now, and as many have ended; returns whether that
    /// is too many.
    pub(super) fn note_failed(&self, failed: u64, ended: u64) -> bool {
        let mut known = self.known();
        known.operator = TooMany { failed, ended };
        self.judge(&mut known, 0).is_some()
    }

    /// Is told that so many more of the records that have `left` are refused; returns whether too many
    /// have failed.
    pub fn note_refused(&self, refused: u64, left: u64) -> Option<TooMany> {
        let mut known = self.known();
        known.refused += refused;
        self.judge(&mut known, left)
    }

    fn judge(&self, known: &mut Known, left: u64) -> Option<TooMany> {
        let TooMany { failed, ended } = known.operator;
        let counts = TooMany { failed: failed + known.refused, ended: ended.max(left) };
        let has_share = self.after.has_share(counts.failed, counts.ended);
        let is_reached = counts.failed >= self.after.failures && has_share;
        known.verdict = known.verdict.or_else(|| is_reached.then_some(counts));
        known.verdict
    }

    /// Returns what was too much while the operator ran, if that was.
    pub fn verdict(&self) -> Option<TooMany> {
        self.known().verdict
    }

    /// Looks at all records of an operator that has ended, and has seen so many of them fail; returns
    /// whether too many have.
    pub fn at_end(&self, failed: u64, ended: u64) -> Option<TooMany> {
        let failed = failed + self.known().refused;
        self.after.is_reached_at_end(failed, ended).then_some(TooMany { failed, ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(failures: u64, per_million: u32) -> Tolerance {
        Tolerance::new(FailAfter { failures, per_million, at_end_of: Some(20) })
    }

    #[test]
    fn records_that_fail_and_those_that_are_refused_are_counted_together() {
        let tolerance = of(13, 0);
        assert!(!tolerance.note_failed(6, 31));
        assert_eq!(tolerance.note_refused(6, 17), None);
        let too_many = Some(TooMany { failed: 13, ended: 47 });
        assert!(tolerance.note_failed(7, 47));
        assert_eq!(tolerance.verdict(), too_many);
        // The first word stands.
        assert_eq!(tolerance.note_refused(1, 50), too_many);
    }

    #[test]
    fn a_share_is_one_of_all_records_that_are_known_to_have_ended() {
        let tolerance = of(3, 100_000);
        assert_eq!(tolerance.note_refused(3, 31), None);
        assert_eq!(tolerance.note_refused(1, 41), None);
        assert_eq!(tolerance.note_refused(1, 43), Some(TooMany { failed: 5, ended: 43 }));
    }

    #[test]
    fn at_the_end_a_share_of_few_failures_is_looked_at_too() {
        let tolerance = of(100, 250_000);
        assert_eq!(tolerance.note_refused(3, 7), None);
        assert_eq!(tolerance.at_end(3, 24), Some(TooMany { failed: 6, ended: 24 }));
        assert_eq!(tolerance.at_end(3, 25), None);
        assert_eq!(tolerance.at_end(19, 19), None);
        assert_eq!(of(1, 0).at_end(0, 31), None);
        assert_eq!(tolerance.verdict(), None);
    }
}
