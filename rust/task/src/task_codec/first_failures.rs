// SPDX-License-Identifier: Apache-2.0
//! Notices that the first rows of a task all fail alike, as with a key that is wrong, or find nothing,
//! as with an address that is wrong: each further call is for nothing.

use sparkawait_core::ErrorKind;

use crate::error::CallFailure;
use crate::function::{Known, ResultGroup};

/// Rows after which it is told.
pub(super) const ROWS: u64 = 20;

/// The failures that a task begins with.
#[derive(Debug, Default)]
pub(super) struct FirstFailures {
    rows: u64,
    first: Option<(ErrorKind, Option<u16>, String)>,
    is_over: bool,
}

impl FirstFailures {
    /// Takes a failure for good of a row before which `left` rows have left; returns whether it is
    /// the one after which all of them are known to be alike.
    pub(super) fn add(&mut self, failure: &CallFailure, left: u64) -> bool {
        let CallFailure { kind, status, summary, .. } = failure;
        let is_alike = match &self.first {
            None => true,
            Some((first, of_first, said)) => first == kind && of_first == status && said == summary,
        };
        if self.is_over || left != self.rows || !is_alike {
            self.end();
            return false;
        }
        self.first.get_or_insert_with(|| (*kind, *status, summary.clone()));
        self.rows += 1;
        let is_told = self.rows == ROWS;
        if is_told {
            self.end();
        }
        is_told
    }

    /// Looks no further.
    pub(super) fn end(&mut self) {
        *self = Self { is_over: true, ..Self::default() };
    }
}

/// The misses that a task begins with.
#[derive(Debug, Default)]
pub(super) struct FirstMisses {
    rows: u64,
    is_over: bool,
}

impl FirstMisses {
    /// Takes the results of some calls; returns whether they are those after which so many have found
    /// nothing, and no other has been answered.
    pub(super) fn add(&mut self, group: &ResultGroup) -> bool {
        if self.is_over {
            return false;
        }
        for index in 0..group.attempts.len() {
            let is = |flags: &Option<Vec<bool>>| flags.as_ref().is_some_and(|it| it[index]);
            let was_known = match &group.known {
                Known::None => false,
                Known::All => true,
                Known::Each(known) => known[index],
            };
            // Nobody was asked, or is asked again.
            if was_known || is(&group.retries) {
                continue;
            }
            self.rows += 1;
            self.is_over = !is(&group.misses) || self.rows == ROWS;
            if self.is_over {
                return is(&group.misses);
            }
        }
        false
    }

    /// Looks no further.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{RecordBatch, RecordBatchOptions};
    use arrow::datatypes::Schema;
    use sparkawait_core::operator::AttemptId;
    use sparkawait_core::queue::EntryId;

    use super::*;

    fn failure(status: u16) -> CallFailure {
        let (message, summary) = ("of a row".to_owned(), format!("answered {status}"));
        let kind = ErrorKind::Unauthorized;
        CallFailure { kind, message, summary, raised: None, status: Some(status) }
    }

    #[test]
    fn the_first_twenty_that_fail_alike_are_told_once() {
        let mut first = FirstFailures::default();
        let told: Vec<_> = (0..50).map(|left| first.add(&failure(401), left)).collect();
        assert!(told[19]);
        assert_eq!(told.iter().filter(|it| **it).count(), 1);
    }

    #[test]
    fn a_row_that_did_not_fail_so_ends_it() {
        let mut other = FirstFailures::default();
        assert!(!(0..50).any(|left| other.add(&failure(if left == 7 { 403 } else { 401 }), left)));
        let mut good = FirstFailures::default();
        assert!(!(0..50).any(|left| good.add(&failure(401), left + u64::from(left >= 13))));
    }

    /// Some calls, each with a row: whether it is one of nulls.
    fn calls(misses: &[bool]) -> ResultGroup {
        let attempt = |index| AttemptId { entry: EntryId::from_u64(index), attempt: 1 };
        let options = RecordBatchOptions::new().with_row_count(Some(misses.len()));
        let rows = RecordBatch::try_new_with_options(Schema::empty().into(), vec![], &options);
        ResultGroup {
            misses: misses.contains(&true).then(|| misses.to_vec()),
            ..ResultGroup::one_each((0..misses.len() as u64).map(attempt).collect(), rows.unwrap())
        }
    }

    #[test]
    fn the_first_twenty_that_find_nothing_are_told_once() {
        let told = |groups: &[&[bool]]| {
            let mut first = FirstMisses::default();
            groups.iter().filter(|it| first.add(&calls(it))).count()
        };
        assert_eq!(told(&[&[true; 13], &[true; 6]]), 0);
        assert_eq!(told(&[&[true; 13], &[true; 7], &[true; 31]]), 1);
        assert_eq!(told(&[&[true; 13], &[false], &[true; 31]]), 0);
        assert_eq!(told(&[&[true, true, false, true], &[true; 31]]), 0);
        let mut first = FirstMisses::default();
        assert!(!first.add(&ResultGroup { known: Known::All, ..calls(&[true; 31]) }));
        assert!(!first.add(&ResultGroup { retries: Some(vec![true; 31]), ..calls(&[true; 31]) }));
        assert!(first.add(&calls(&[true; 31])));
    }
}
