// SPDX-License-Identifier: Apache-2.0
//! Tests of responses that come to more than a column holds.

use std::num::NonZeroUsize;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field};
use bytes::Bytes;
use http::header::HeaderValue;
use sparkawait_core::queue::{OrderedStreamElementQueue, StreamElementQueue};

use super::*;
use crate::reply_budget::ReplyBudget;

/// Reads arrays of numbers, and a header; a reply has at most `bytes` of it.
fn columns(bytes: usize) -> ResponseColumns {
    making_at_most(bytes, usize::MAX)
}

/// Does so where the numbers come to no more than `most`, at nine bytes each.
fn making_at_most(bytes: usize, most: usize) -> ResponseColumns {
    let schema = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("tag", DataType::Utf8, true),
    ]));
    let (paths, misses) = ([("n".to_owned(), "$".to_owned())], Misses::default());
    let columns =
        ResponseColumns::new(schema, Returns::Json, None, &paths, &[], 0, false, 1, most, misses)
            .unwrap();
    ResponseColumns { most_header_bytes: bytes, ..columns }
}

/// Calls whose responses have so many rows each, and a header of ten bytes.
fn ended(rows: &[usize]) -> Vec<(AttemptId, Outcome)> {
    let budget = ReplyBudget::of_task();
    let mut queue =
        OrderedStreamElementQueue::<(), ()>::new(NonZeroUsize::new(rows.len()).unwrap());
    let of = |rows: &usize| {
        let attempt = AttemptId { entry: queue.try_put(()).unwrap(), attempt: 1 };
        let found = Found {
            status: 200,
            headers: vec![Some(HeaderValue::from_static("0123456789"))],
            body: Bytes::from(format!("[{}]", vec!["1"; *rows].join(","))),
            _share: Arc::new(budget.share()),
        };
        (attempt, Outcome::Found(found))
    };
    rows.iter().map(of).collect()
}

fn replies(columns: &ResponseColumns, ended: Vec<(AttemptId, Outcome)>) -> Vec<ReplyGroup> {
    let mut groups = Vec::new();
    columns.reply("`host`", ended, |group| groups.push(group)).unwrap();
    groups
}

/// The rows of each call of a reply; all have the header.
fn counts(group: &ReplyGroup) -> Vec<u32> {
    let Some(results) = &group.results else { return Vec::new() };
    let tags = results.rows.column(1).as_string::<i32>();
    assert!(tags.iter().all(|tag| tag == Some("0123456789")));
    results.counts.clone().unwrap_or_else(|| vec![1; results.attempts.len()])
}

#[test]
fn responses_whose_headers_are_too_long_together_are_answered_apart() {
    let groups = replies(&columns(30), ended(&[1, 2, 1, 2]));

    assert_eq!(groups.iter().map(counts).collect::<Vec<_>>(), [[1, 2], [1, 2]]);
    assert!(groups.iter().all(|it| it.failures.is_empty()));
}

#[test]
fn a_response_whose_header_is_too_long_for_its_rows_fails_alone() {
    let groups = replies(&columns(30), ended(&[1, 4, 2]));

    assert_eq!(groups.iter().flat_map(counts).collect::<Vec<_>>(), [1, 2]);
    let failures: Vec<_> = groups.iter().flat_map(|it| &it.failures).collect();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].failure.kind, ErrorKind::ResultTooLarge);
    assert!(failures[0].failure.message.starts_with("`host`: a header in `response_headers`"));
}

#[test]
fn what_failed_and_what_missed_is_answered_once_where_others_are_apart() {
    let mut all = ended(&[2, 2, 0, 2]);
    all[3].1 = Outcome::Missed;

    let groups = replies(&columns(20), all);

    let attempts = groups.iter().filter_map(|it| it.results.as_ref());
    assert_eq!(attempts.map(|it| it.attempts.len()).sum::<usize>(), 4);
}

#[test]
fn responses_whose_rows_are_too_many_together_are_answered_apart_and_one_alone_is_told() {
    let (calls, columns) = (ended(&[5, 7, 3, 13, 1, 1]), making_at_most(1000, 9 * 12));
    let attempts: Vec<_> = calls.iter().map(|it| it.0).collect();

    let groups = replies(&columns, calls);

    assert_eq!(groups.iter().map(counts).collect::<Vec<_>>(), [vec![5, 7], vec![3], vec![1, 1]]);
    let failures: Vec<_> = groups.iter().flat_map(|it| &it.failures).collect();
    assert_eq!((failures.len(), failures[0].attempt), (1, attempts[3]));
    assert_eq!(failures[0].failure.kind, ErrorKind::ResultTooLarge);
    assert!(failures[0].failure.message.contains("raise `max_reply_bytes`"));
}
