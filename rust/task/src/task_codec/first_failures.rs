// SPDX-License-Identifier: Apache-2.0
//! Notices that the first rows of a task all fail alike, as with a key that is wrong: each further
//! call is for nothing.

use sparkawait_core::ErrorKind;

use crate::error::CallFailure;

/// Rows after which it is told.
const ROWS: u64 = 20;

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

#[cfg(test)]
mod tests {
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
}
