// SPDX-License-Identifier: Apache-2.0
//! Rows that go together again: those of requests that were sent, and of their parts.
//!
//! What failed as one is sent again as one. Where the service knows a request by a key, it goes as it was,
//! with the same rows under the same key: for a service that has carried it out it is the same request.
//! Rows that have not come back go along, since the service knows them as part of it. Else their items are
//! made again, and who has not come back stays away. Only what a service said of rows divides a
//! request.
//!
//! Nobody tells of a row that does not come back, since it has timed out, say: what waits for it goes
//! out when it is due.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use sparkawait_core::operator::AttemptId;
use sparkawait_core::queue::EntryId;
use sparkawait_task::function::GROUP_BYTES;

use super::item::Item;
use crate::failure::Failure;
use crate::http::reply::Outgoing;

/// Rows that may be expected back; the oldest companies are forgotten. If their rows come, they go with
/// any others, or fail if only their request could be sent again.
pub(super) const MOST: usize = 1 << 18;

/// Bytes of requests that are kept to be sent again as they were.
pub(super) const MOST_BYTES: usize = 4 * GROUP_BYTES;

/// Bytes that a row of a kept request takes beside its name.
const BYTES_OF_ROW: usize = 128;

/// A request that was sent.
pub(super) struct Sent {
    pub(super) request: Outgoing,
    /// Its rows in their order, without the texts that are in its body.
    pub(super) items: Vec<Item>,
}

/// A request that failed, because of some of its rows or of the state that its service is in.
pub(super) struct Suspicion {
    pub(super) failed: Failure,
    pub(super) sent: Arc<Sent>,
}

/// What rows have in common that go together.
#[derive(Clone)]
pub(super) enum Company {
    /// They are a request, which is sent again as it was.
    Sent(Arc<Sent>),
    /// They were, and it is not known any more.
    Lost,
    /// They were, and another one is made of them.
    Again,
    /// They go in a request of their own.
    Part {
        /// Whether a part of the same request was answered, so that a failure is of its rows.
        is_proven: bool,
    },
    /// The text of the row is halved so often, as it is too long.
    Halved(u32),
    /// Nobody knows whether their request failed because of them.
    Suspected(Arc<Suspicion>),
}

/// The company that a row has come back to.
pub(super) struct Back {
    /// What tells it from others.
    pub(super) number: u64,
    pub(super) company: Company,
    /// Whether all of its rows are back.
    pub(super) is_whole: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Companies(Mutex<Expected>);

/// The rows that may come back.
#[derive(Default)]
pub(super) struct Expected {
    rows: HashMap<EntryId, Place, RandomState>,
    companies: BTreeMap<u64, Rows>,
    /// The companies that hold a request.
    holding: BTreeSet<u64>,
    bytes: usize,
    last: u64,
    /// Whether rows were forgotten that must go with their request.
    has_forgotten: bool,
}

/// Where a row belongs.
#[derive(Clone, Copy)]
struct Place {
    company: u64,
    is_missing: bool,
}

struct Rows {
    company: Company,
    all: Vec<EntryId>,
    /// Those that are still of it.
    left: usize,
    /// Those that are waited for.
    missing: usize,
}

impl Sent {
    /// Returns its rows with the attempts of those that have come back.
    pub(super) fn items_of(&self, back: &[Item]) -> Vec<Item> {
        let back: HashMap<EntryId, AttemptId, RandomState> =
            back.iter().map(|it| (it.attempt.entry, it.attempt)).collect();
        let attempt = |it: &Item| back.get(&it.attempt.entry).copied().unwrap_or(it.attempt);
        self.items.iter().map(|it| Item { attempt: attempt(it), ..it.clone() }).collect()
    }

    fn bytes(&self) -> usize {
        let body = self.request.body.as_ref().map_or(0, bytes::Bytes::len);
        body + self.items.iter().map(|it| BYTES_OF_ROW + it.id.len()).sum::<usize>()
    }
}

impl Companies {
    /// Looks at the rows that may come back; to be asked for once a burst.
    pub(super) fn expected(&self) -> MutexGuard<'_, Expected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Expected {
    /// Expects the rows of these attempts together.
    pub(super) fn expect(&mut self, attempts: &[AttemptId], company: Company) {
        self.add(attempts, company, |_| true);
    }

    /// Expects the rows of a request that is sent with those of these attempts; nobody waits for the
    /// others of it, which may come, too.
    pub(super) fn expect_sent(&mut self, sent: &Arc<Sent>, back: &[AttemptId]) {
        let all: Vec<AttemptId> = sent.items.iter().map(|it| it.attempt).collect();
        let back: Option<BTreeSet<AttemptId>> =
            (back.len() < all.len()).then(|| back.iter().copied().collect());
        let is_missing = |it| back.as_ref().is_none_or(|back| back.contains(&it));
        self.add(&all, Company::Sent(Arc::clone(sent)), is_missing);
    }

    fn add(
        &mut self,
        attempts: &[AttemptId],
        company: Company,
        is_missing: impl Fn(AttemptId) -> bool,
    ) {
        self.last += 1;
        let (number, mut missing) = (self.last, 0);
        for attempt in attempts {
            self.leave(attempt.entry);
            let is_missing = is_missing(*attempt);
            missing += usize::from(is_missing);
            self.rows.insert(attempt.entry, Place { company: number, is_missing });
        }
        if let Company::Sent(sent) = &company {
            self.bytes += sent.bytes();
            self.holding.insert(number);
        }
        let all: Vec<EntryId> = attempts.iter().map(|it| it.entry).collect();
        let left = all.len();
        self.companies.insert(number, Rows { company, all, left, missing });
        self.forget_oldest();
    }

    /// Returns the company that the row of an attempt has come back to, if it is of one.
    pub(super) fn take(&mut self, attempt: AttemptId) -> Option<Back> {
        let row = attempt.entry;
        let Some(place) = self.rows.get_mut(&row) else {
            // It is a row like any other, or one of those.
            let is_in_doubt = self.has_forgotten && attempt.attempt > 1;
            let lost = Back { number: 0, company: Company::Lost, is_whole: true };
            return is_in_doubt.then_some(lost);
        };
        let (number, was_missing) = (place.company, std::mem::take(&mut place.is_missing));
        let rows = self.companies.get_mut(&number)?;
        rows.missing -= usize::from(was_missing);
        let (company, is_whole) = (rows.company.clone(), rows.missing == 0);
        // What was sent is in doubt until it is answered.
        if !matches!(company, Company::Sent(_) | Company::Lost) {
            self.leave(row);
        }
        Some(Back { number, company, is_whole })
    }

    /// Forgets rows whose request is answered for good.
    pub(super) fn forget(&mut self, attempts: &[AttemptId]) {
        for attempt in attempts {
            self.leave(attempt.entry);
        }
    }

    fn leave(&mut self, row: EntryId) {
        let Some(place) = self.rows.remove(&row) else { return };
        let Some(rows) = self.companies.get_mut(&place.company) else { return };
        rows.left -= 1;
        rows.missing -= usize::from(place.is_missing);
        if rows.left == 0 {
            self.release(place.company);
            self.companies.remove(&place.company);
        }
    }

    /// Gives up the request of a company.
    fn release(&mut self, number: u64) {
        if !self.holding.remove(&number) {
            return;
        }
        if let Some(rows) = self.companies.get_mut(&number)
            && let Company::Sent(sent) = std::mem::replace(&mut rows.company, Company::Lost)
        {
            self.bytes -= sent.bytes();
        }
    }

    /// Keeps to the bounds; what was added last stays.
    fn forget_oldest(&mut self) {
        while self.bytes > MOST_BYTES
            && let Some(oldest) = self.holding.first().copied().filter(|it| *it < self.last)
        {
            self.release(oldest);
        }
        while self.rows.len() > MOST
            && let Some(oldest) = self.companies.keys().next().copied().filter(|it| *it < self.last)
        {
            let company = self.companies.get(&oldest).map(|it| &it.company);
            self.has_forgotten |= matches!(company, Some(Company::Sent(_) | Company::Lost));
            self.release(oldest);
            for row in self.companies.remove(&oldest).into_iter().flat_map(|it| it.all) {
                if self.rows.get(&row).is_some_and(|it| it.company == oldest) {
                    self.rows.remove(&row);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const PART: Company = Company::Part { is_proven: false };

    fn attempts(rows: std::ops::Range<usize>, attempt: u32) -> Vec<AttemptId> {
        let of = |row| AttemptId { entry: EntryId::from_u64(row as u64), attempt };
        rows.map(of).collect()
    }

    fn sent(attempts: &[AttemptId], body: usize) -> Arc<Sent> {
        let none = Bytes::new();
        let item = |it: &AttemptId| Item {
            attempt: *it,
            text: none.clone(),
            id: none.clone(),
            key: none.clone(),
            halvings: 0,
        };
        let body = Some(Bytes::from(vec![b'x'; body]));
        let request = Outgoing { body, ..Outgoing::for_test() };
        Arc::new(Sent { request, items: attempts.iter().map(item).collect() })
    }

    /// The number of the company of each, and whether it is whole with it.
    fn back(expected: &mut Expected, attempts: &[AttemptId]) -> Vec<Option<(u64, bool)>> {
        let back = |it: &AttemptId| expected.take(*it).map(|it| (it.number, it.is_whole));
        attempts.iter().map(back).collect()
    }

    #[test]
    fn a_row_comes_back_to_its_last_part_and_to_none_after_that() {
        let mut expected = Expected::default();
        expected.expect(&attempts(0..3, 1), PART);
        expected.expect(&attempts(2..4, 2), PART);

        let found = back(&mut expected, &attempts(0..5, 3));

        let of = |number, is_whole| Some((number, is_whole));
        assert_eq!(found, [of(1, false), of(1, true), of(2, false), of(2, true), None]);
        assert!(expected.rows.is_empty() && expected.companies.is_empty());
    }

    #[test]
    fn a_row_of_what_was_sent_comes_back_to_it_until_it_is_answered() {
        let mut expected = Expected::default();
        let all = attempts(0..3, 1);
        expected.expect_sent(&sent(&all, 7), &all);

        let of = |is_whole| Some((1, is_whole));
        assert_eq!(back(&mut expected, &all[..2]), [of(false), of(false)]);
        // A second attempt beside the first one.
        assert_eq!(back(&mut expected, &all[1..]), [of(false), of(true)]);
        expected.forget(&all[..1]);
        assert_eq!(back(&mut expected, &attempts(0..2, 2)), [None, of(true)]);

        expected.forget(&all);
        assert!(expected.rows.is_empty() && expected.companies.is_empty());
        assert!(expected.bytes == 0 && expected.holding.is_empty());
    }

    #[test]
    fn a_request_that_is_sent_without_some_rows_waits_for_them_no_more() {
        let mut expected = Expected::default();
        let all = attempts(0..3, 1);
        let sent = sent(&all, 7);
        expected.expect_sent(&sent, &all);
        let items =
            sent.items_of(&[Item { attempt: attempts(1..2, 5)[0], ..sent.items[0].clone() }]);
        assert_eq!(
            items.iter().map(|it| it.attempt.attempt).collect::<Vec<_>>(),
            [1, 5, 1],
            "the others are known by their last attempts"
        );

        expected.expect_sent(&sent, &all[1..2]);

        assert_eq!(back(&mut expected, &attempts(1..2, 2)), [Some((2, true))]);
        // They go along if they come.
        assert_eq!(back(&mut expected, &attempts(2..3, 2)), [Some((2, true))]);
    }

    #[test]
    fn rows_whose_request_is_too_much_to_be_kept_are_told_so() {
        let mut expected = Expected::default();
        for number in 0..5 {
            let all = attempts(number..number + 1, 1);
            expected.expect_sent(&sent(&all, MOST_BYTES / 4), &all);
        }

        let is_lost = attempts(0..5, 2)
            .into_iter()
            .map(|it| matches!(expected.take(it), Some(Back { company: Company::Lost, .. })));
        assert_eq!(is_lost.collect::<Vec<_>>(), [true, true, false, false, false]);
        assert!(expected.bytes <= MOST_BYTES);
    }

    #[test]
    fn companies_whose_rows_do_not_come_back_are_forgotten_oldest_first() {
        let mut expected = Expected::default();
        for part in 0..MOST / 13 + 7 {
            expected.expect(&attempts(13 * part..13 * (part + 1), 1), PART);
        }

        assert!(expected.rows.len() <= MOST);
        assert!(expected.take(attempts(0..1, 2)[0]).is_none());
        let last = attempts(13 * (MOST / 13)..13 * (MOST / 13) + 1, 2)[0];
        assert_eq!(expected.take(last).map(|it| it.is_whole), Some(false));
    }

    #[test]
    fn a_row_of_a_request_that_was_forgotten_is_told_so_and_a_new_one_is_none() {
        let mut expected = Expected::default();
        for part in 0..MOST / 997 + 7 {
            let all = attempts(997 * part..997 * (part + 1), 1);
            expected.expect_sent(&sent(&all, 7), &all);
        }

        let company = |expected: &mut Expected, row: usize, attempt| {
            let back = expected.take(attempts(row..row + 1, attempt)[0]);
            back.map(|it| it.company)
        };
        assert!(matches!(company(&mut expected, 13, 2), Some(Company::Lost)));
        assert!(company(&mut expected, 13, 1).is_none(), "another row has its place now");
        let last = 997 * (MOST / 997);
        assert!(matches!(company(&mut expected, last, 2), Some(Company::Sent(_))));
    }
}
