// SPDX-License-Identifier: Apache-2.0
//! Rows of requests that have failed, which the operator calls for again in parts.
//!
//! Nobody tells of a row that does not come back, since it has timed out, say: what waits for it goes
//! out when it is due.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use sparkawait_core::operator::AttemptId;
use sparkawait_core::queue::EntryId;

/// Rows that may be expected back; the oldest parts are forgotten, and go with any others if they come.
const MOST: usize = 65_536;

/// The part of a request that a row has come back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// What tells it from others.
    pub(super) number: u64,
    /// Rows of it that have not come back yet.
    pub(super) missing: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Divided(Mutex<Expected>);

/// The rows that may come back.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// The numbers of their parts.
    rows: HashMap<EntryId, u64, RandomState>,
    parts: BTreeMap<u64, Rows>,
    last: u64,
}

#[derive(Debug)]
struct Rows {
    all: Vec<EntryId>,
    missing: usize,
}

impl Divided {
    /// Looks at the rows that may come back; to be asked for once a burst.
    pub(super) fn expected(&self) -> MutexGuard<'_, Expected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Expected {
    /// Expects the rows of these attempts, which have ended, together.
    pub(super) fn add(&mut self, attempts: &[AttemptId]) {
        self.last += 1;
        let all: Vec<EntryId> = attempts.iter().map(|it| it.entry).collect();
        for row in &all {
            self.leave(*row);
            self.rows.insert(*row, self.last);
        }
        let missing = all.len();
        self.parts.insert(self.last, Rows { all, missing });
        while self.rows.len() > MOST
            && let Some((number, forgotten)) = self.parts.pop_first()
        {
            for row in forgotten.all {
                if self.rows.get(&row) == Some(&number) {
                    self.rows.remove(&row);
                }
            }
        }
    }

    /// Returns the part that the row of an attempt has come back to, if it is of one.
    pub(super) fn take(&mut self, attempt: AttemptId) -> Option<Part> {
        if self.rows.is_empty() { None } else { self.leave(attempt.entry) }
    }

    fn leave(&mut self, row: EntryId) -> Option<Part> {
        let number = self.rows.remove(&row)?;
        let rows = self.parts.get_mut(&number)?;
        rows.missing -= 1;
        let missing = rows.missing;
        if missing == 0 {
            self.parts.remove(&number);
        }
        Some(Part { number, missing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(rows: std::ops::Range<usize>, attempt: u32) -> Vec<AttemptId> {
        let of = |row| AttemptId { entry: EntryId::from_u64(row as u64), attempt };
        rows.map(of).collect()
    }

    #[test]
    fn a_row_comes_back_to_its_last_part_and_to_none_after_that() {
        let mut expected = Expected::default();
        expected.add(&attempts(0..3, 1));
        expected.add(&attempts(2..4, 2));

        let back = attempts(0..5, 3).into_iter().map(|it| expected.take(it));

        let part = |number, missing| Some(Part { number, missing });
        assert_eq!(
            back.collect::<Vec<_>>(),
            [part(1, 1), part(1, 0), part(2, 1), part(2, 0), None]
        );
        assert!(expected.rows.is_empty() && expected.parts.is_empty());
    }

    #[test]
    fn parts_whose_rows_do_not_come_back_are_forgotten_oldest_first() {
        let mut expected = Expected::default();
        for part in 0..MOST / 13 + 7 {
            expected.add(&attempts(13 * part..13 * (part + 1), 1));
        }

        assert!(expected.rows.len() <= MOST);
        assert_eq!(expected.take(attempts(0..1, 2)[0]), None);
        let last = attempts(13 * (MOST / 13)..13 * (MOST / 13) + 1, 2)[0];
        assert_eq!(expected.take(last).map(|it| it.missing), Some(12));
    }
}
