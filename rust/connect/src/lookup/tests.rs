// SPDX-License-Identifier: Apache-2.0
//! Tests of replies to lookups.

use arrow::array::record_batch;
use sparkawait_core::operator::Retry;
use sparkawait_core::queue::EntryId;

use super::*;
use crate::failure::service_failure;

fn attempts(count: usize) -> Vec<AttemptId> {
    use std::num::NonZeroUsize;

    use sparkawait_core::queue::{OrderedStreamElementQueue, StreamElementQueue};

    let capacity = NonZeroUsize::new(count.max(1)).unwrap();
    let mut queue: OrderedStreamElementQueue<usize, ()> = OrderedStreamElementQueue::new(capacity);
    let entries: Vec<EntryId> = (0..count).map(|it| queue.try_put(it).unwrap()).collect();
    entries.into_iter().map(|entry| AttemptId { entry, attempt: 1 }).collect()
}

fn bad(row: usize) -> (usize, CallFailure) {
    (row, service_failure(format!("row {row}"), "bad row"))
}

#[test]
fn a_miss_has_a_row_of_nulls_only_in_a_left_join() {
    let calls = attempts(1);
    for (how, has_row) in [(How::Left, true), (How::Inner, false)] {
        let mut reply = LookupReply::new(Misses { how, ..Misses::default() }, 1);

        assert_eq!(reply.missed(calls[0]), has_row);
        assert_eq!(reply.null_key(calls[0]), has_row);
    }
}

#[test]
fn only_misses_ask_for_a_retry_and_null_keys_do_not() {
    let calls = attempts(3);
    let mut reply =
        LookupReply::new(Misses { how: How::Inner, retry: true, ..Misses::default() }, 3);
    reply.found(calls[0], 1);
    reply.missed(calls[1]);
    reply.null_key(calls[2]);

    let group = reply.finish(record_batch!(("x", Int64, [1])).unwrap()).results.unwrap();

    assert_eq!(group.retries, Some(vec![false, true, false]));
    assert_eq!(group.counts, Some(vec![1, 0, 0]));
}

#[test]
fn calls_with_a_bad_row_fail_and_the_others_keep_their_rows() {
    let calls = attempts(3);
    let mut reply = LookupReply::new(Misses::default(), 3);
    reply.found(calls[0], 2);
    reply.found(calls[1], 2);
    reply.found(calls[2], 1);
    let rows = record_batch!(("x", Int64, [1, 2, 3, 4, 5])).unwrap();

    let group = reply.finish_without(&rows, vec![bad(2), bad(3)]).unwrap();

    assert_eq!(group.failures.len(), 1);
    assert_eq!((group.failures[0].attempt, group.failures[0].retry), (calls[1], Retry::No));
    assert_eq!(group.failures[0].failure.message, "row 2");
    let results = group.results.unwrap();
    assert_eq!(results.attempts, [calls[0], calls[2]]);
    assert_eq!(results.counts, Some(vec![2, 1]));
    assert_eq!(results.rows, record_batch!(("x", Int64, [1, 2, 5])).unwrap());
}

#[test]
fn one_row_for_each_call_needs_no_counts() {
    let calls = attempts(2);
    let mut reply = LookupReply::new(Misses::default(), 2);
    reply.found(calls[0], 1);
    reply.missed(calls[1]);
    let rows = record_batch!(("x", Int64, [Some(1), None])).unwrap();

    assert_eq!(reply.finish(rows).results.unwrap().counts, None);
}

#[test]
fn what_is_shown_of_a_reply_has_no_values() {
    let calls = attempts(2);
    let mut reply = LookupReply::new(Misses::default(), 2);
    reply.found(calls[0], 1);
    reply.failed(calls[1], service_failure("value 987654321", "bad value"));

    let group = reply.finish(record_batch!(("x", Int64, [987_654_321])).unwrap());

    let shown = format!("{group:?}");
    assert!(shown.contains("rows: 1") && shown.contains("bad value"), "{shown}");
    assert!(!shown.contains("987654321"), "{shown}");
}
