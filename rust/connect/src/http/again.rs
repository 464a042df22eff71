// SPDX-License-Identifier: Apache-2.0
//! Requests that are sent again although their call could not do better: over another connection, or
//! with another secret.
//!
//! That is a call more, as its server counts. So the attempt ends, and the operator calls for the row
//! again, at once and without one of its retries: a rate may say when, and the call is counted like any. What
//! the next attempt has to know waits here.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use sparkawait_core::operator::{AttemptId, Retry};
use sparkawait_core::queue::EntryId;

use crate::failure::Failure;

/// So many rows are remembered. Some do not come back: their time is over, or a second call was faster.
const MOST: usize = 1 << 16;

/// What the requests before have shown, for the same row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Earlier {
    /// One went down with a connection that was kept: the next one has a new connection. If that ends, too,
    /// it is the request that ends it.
    pub(super) was_lost: bool,
    /// One was refused, and there is something else to show since then.
    pub(super) has_renewed: bool,
}

/// The rows whose requests are sent again.
#[derive(Debug, Default)]
pub(super) struct SentAgain(HashMap<EntryId, Earlier, RandomState>);

impl SentAgain {
    /// Notes what the next requests of the rows of these attempts have to know.
    pub(super) fn note(&mut self, attempts: &[AttemptId], earlier: Earlier) {
        if self.0.len() + attempts.len() > MOST {
            // They may meet a kept connection once more.
            self.0.clear();
        }
        self.0.extend(attempts.iter().map(|it| (it.entry, earlier)));
    }

    /// Returns what is known for the request of these attempts.
    pub(super) fn take(&mut self, attempts: &[AttemptId]) -> Earlier {
        if self.0.is_empty() {
            return Earlier::default();
        }
        let known = attempts.iter().filter_map(|it| {
            let known = self.0.remove(&it.entry);
            // Another row may have the place of one that did not come back.
            known.filter(|_| it.first().attempt > 1)
        });
        known.fold(Earlier::default(), |one, other| Earlier {
            was_lost: one.was_lost || other.was_lost,
            has_renewed: one.has_renewed || other.has_renewed,
        })
    }
}

impl Failure {
    /// Returns the same for a call that is made again at once, for this row and so many others behind
    /// it.
    #[must_use]
    pub(super) fn that_is_sent_again(self, records: u32) -> Self {
        let retry = Retry::InPart { records };
        Self { retry, sign: retry.sign(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Earlier = Earlier { was_lost: true, has_renewed: false };
    const RENEWED: Earlier = Earlier { was_lost: false, has_renewed: true };

    fn attempt(row: usize, attempt: u32) -> AttemptId {
        AttemptId { entry: EntryId::from_u64(row as u64), attempt }
    }

    #[test]
    fn what_rows_of_one_request_know_is_known_to_it_once() {
        let mut again = SentAgain::default();
        again.note(&[attempt(3, 1)], LOST);
        again.note(&[attempt(5, 1), attempt(7, 1)], RENEWED);

        let of_both = again.take(&[attempt(3, 2), attempt(5, 2).hedge(), attempt(13, 2)]);

        assert_eq!(of_both, Earlier { was_lost: true, has_renewed: true });
        assert_eq!(again.take(&[attempt(3, 3)]), Earlier::default());
        // A new row has the place of one that did not come back.
        assert_eq!(again.take(&[attempt(7, 1)]), Earlier::default());
    }

    #[test]
    fn rows_that_do_not_come_back_are_forgotten() {
        let mut again = SentAgain::default();
        (0..MOST + 13).for_each(|row| again.note(&[attempt(row, 1)], LOST));

        assert!(again.0.len() <= MOST);
        assert_eq!(again.take(&[attempt(MOST + 12, 2)]), LOST);
    }
}
