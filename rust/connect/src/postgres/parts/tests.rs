// SPDX-License-Identifier: Apache-2.0
//! Tests of finding the rows at fault, against a server that is a set of rows.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use proptest::collection::btree_set;
use proptest::prelude::*;
use sparkawait_core::operator::AttemptId;
use sparkawait_core::queue::{EntryId, OrderedStreamElementQueue, StreamElementQueue};

use super::*;

/// How far a query that fails says it got.
#[derive(Clone, Copy, Debug)]
enum Says {
    /// To the last row that it found.
    Truth,
    Nothing,
    /// Always the same, which is mostly wrong.
    Always(usize),
}

/// What happened to the rows.
#[derive(Debug, Default)]
struct Outcome {
    answered: BTreeSet<usize>,
    failed: BTreeSet<usize>,
    /// Rows that were left when there was no more patience.
    given_up: BTreeSet<usize>,
    queries: usize,
    /// Queries that failed.
    failures: usize,
}

/// Keys of `rows` calls without arguments, and the number of each call.
fn keys(rows: usize) -> Keys {
    let capacity = NonZeroUsize::new(rows.max(1)).unwrap();
    let mut queue: OrderedStreamElementQueue<usize, ()> = OrderedStreamElementQueue::new(capacity);
    let entries: Vec<EntryId> = (0..rows).map(|it| queue.try_put(it).unwrap()).collect();
    let attempts = entries.into_iter().map(|entry| AttemptId { entry, attempt: 1 }).collect();
    Keys { attempts, arguments: Vec::new() }
}

fn look_for(rows: usize, poison: &BTreeSet<usize>, says: Says, patience: bool) -> Outcome {
    let all = keys(rows);
    let number = |attempt: &AttemptId| all.attempts.iter().position(|it| it == attempt).unwrap();
    let numbers = |keys: &Keys| keys.attempts.iter().map(number).collect::<Vec<_>>();
    let mut parts = Parts::new(all.clone());
    let mut outcome = Outcome::default();
    while let Some(part) = parts.next() {
        let rows = numbers(&part);
        outcome.queries += 1;
        let Some(bad) = rows.iter().position(|row| poison.contains(row)) else {
            outcome.answered.extend(rows);
            parts.answered();
            continue;
        };
        outcome.failures += 1;
        if rows.len() == 1 {
            assert!(outcome.failed.insert(rows[0]), "asked for twice: {rows:?}");
        } else {
            parts.split(
                &part,
                match says {
                    Says::Truth => Some(bad.saturating_sub(1)),
                    Says::Nothing => None,
                    Says::Always(row) => Some(row),
                },
            );
        }
        if !parts.failed() && patience {
            outcome.given_up = parts.rest().flat_map(|part| numbers(&part)).collect();
            return outcome;
        }
    }
    outcome
}

fn says() -> impl Strategy<Value = Says> {
    prop_oneof![Just(Says::Truth), Just(Says::Nothing), (0..1200_usize).prop_map(Says::Always)]
}

proptest! {
    #[test]
    fn exactly_the_rows_at_fault_fail(
        rows in 1..300_usize, poison in btree_set(0..300_usize, 0..20), says in says()
    ) {
        let poison: BTreeSet<usize> = poison.into_iter().filter(|it| *it < rows).collect();
        let outcome = look_for(rows, &poison, says, false);

        prop_assert_eq!(&outcome.failed, &poison);
        prop_assert_eq!(outcome.answered.len() + poison.len(), rows);
        prop_assert!(outcome.answered.is_disjoint(&poison));
    }

    #[test]
    fn with_patience_every_row_has_one_outcome(
        rows in 1..300_usize, poison in btree_set(0..300_usize, 0..300), says in says()
    ) {
        let outcome = look_for(rows, &poison, says, true);

        let Outcome { answered, failed, given_up, .. } = &outcome;
        prop_assert_eq!(answered.len() + failed.len() + given_up.len(), rows);
        prop_assert!(failed.is_subset(&poison) && answered.is_disjoint(&poison));
        prop_assert!(given_up.is_disjoint(answered) && given_up.is_disjoint(failed));
        // Each query that fails takes one off, each that is answered adds two.
        let first = 2 * (rows.ilog2() as usize + 1);
        prop_assert!(outcome.failures <= first + 2 * (outcome.queries - outcome.failures));
    }

    #[test]
    fn one_row_at_fault_takes_no_more_rounds_than_halving(
        rows in 2..1200_usize, row in 0..1200_usize, says in says()
    ) {
        let outcome = look_for(rows, &BTreeSet::from([row % rows]), says, true);

        let rounds = (rows - 1).ilog2() as usize + 2;
        prop_assert_eq!(outcome.answered.len(), rows - 1);
        prop_assert!(outcome.failures <= rounds, "{} of {}", outcome.failures, rounds);
        prop_assert!(outcome.queries <= 5 * rounds);
    }
}

#[test]
fn a_server_that_answers_in_order_shows_where_the_row_is() {
    for row in [0, 1, 2, 500, 998, 999] {
        let outcome = look_for(1000, &BTreeSet::from([row]), Says::Truth, true);

        assert!(outcome.failures == 2 && outcome.queries <= 7, "{row}: {}", outcome.queries);
    }
}

#[test]
fn rows_that_are_all_at_fault_are_given_up_soon() {
    let poison = (0..1000).collect();
    for says in [Says::Truth, Says::Nothing, Says::Always(0)] {
        let outcome = look_for(1000, &poison, says, true);

        assert_eq!((outcome.queries, outcome.failures), (20, 20), "{says:?}");
    }
}
