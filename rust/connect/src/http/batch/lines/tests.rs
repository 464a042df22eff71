// SPDX-License-Identifier: Apache-2.0
//! Tests of items that wait, on a clock of their own.

use std::num::NonZeroUsize;

use proptest::prelude::*;
use sparkawait_core::queue::{OrderedStreamElementQueue, StreamElementQueue};

use super::*;

fn attempts(count: usize) -> Vec<AttemptId> {
    let mut queue =
        OrderedStreamElementQueue::<(), ()>::new(NonZeroUsize::new(count.max(1)).unwrap());
    (0..count).map(|_| AttemptId { entry: queue.try_put(()).unwrap(), attempt: 1 }).collect()
}

fn most(rows: usize) -> Most {
    let linger = Duration::from_millis(10);
    Most { rows, bytes: 1000, requests: 2, linger, are_named: false }
}

fn item(attempt: AttemptId, bytes: usize, id: &str) -> Item {
    let text = Bytes::from(vec![b'x'; bytes]);
    Item { attempt, text, id: Bytes::copy_from_slice(id.as_bytes()), key: Bytes::new() }
}

fn key(channel: u64) -> LineKey {
    (Some(Key::new(channel)), Bytes::new())
}

fn open(lines: &mut Lines, channel: u64) -> LineId {
    lines.find(&key(channel)).unwrap_or_else(|| lines.open(key(channel), Head::for_test()))
}

/// Sizes of the requests that can be made now.
fn taken(lines: &mut Lines, now: Instant) -> Vec<usize> {
    std::iter::from_fn(|| lines.take(now)).map(|batch| batch.items.len()).collect()
}

#[test]
fn a_full_request_leaves_at_once_and_the_rest_when_the_oldest_has_waited() {
    let (mut lines, start) = (Lines::new(most(2)), Instant::now());
    let line = open(&mut lines, 1);
    for attempt in attempts(3) {
        lines.add(line, item(attempt, 1, ""), start);
    }

    assert_eq!(taken(&mut lines, start), [2]);
    let due = lines.next_due().unwrap();
    assert_eq!(due, start + Duration::from_millis(10));
    lines.expire(due - Duration::from_nanos(1));
    assert!(taken(&mut lines, due - Duration::from_nanos(1)).is_empty());
    lines.expire(due);
    assert_eq!(taken(&mut lines, due), [1]);
    assert_eq!(lines.next_due(), None);
}

#[test]
fn a_request_has_no_more_bytes_than_allowed_but_for_a_single_row() {
    let (mut lines, now) = (Lines::new(most(100)), Instant::now());
    let line = open(&mut lines, 1);
    for (attempt, bytes) in attempts(4).into_iter().zip([600, 300, 200, 5000]) {
        lines.add(line, item(attempt, bytes, ""), now);
    }

    assert_eq!(taken(&mut lines, now), [2, 1]);
    lines.ended(line, now);
    assert_eq!(taken(&mut lines, now), [1]);
}

#[test]
fn a_channel_has_its_requests_and_others_go_on() {
    let (mut lines, now) = (Lines::new(most(1)), Instant::now());
    let (one, other) = (open(&mut lines, 1), open(&mut lines, 2));
    for attempt in attempts(3) {
        lines.add(one, item(attempt, 1, ""), now);
    }
    lines.add(other, item(attempts(1)[0], 1, ""), now);

    let batches: Vec<LineId> = std::iter::from_fn(|| lines.take(now)).map(|it| it.line).collect();
    assert_eq!(batches, [one, other, one]);
    lines.ended(one, now);
    assert_eq!(taken(&mut lines, now), [1]);
}

#[test]
fn lines_of_one_channel_share_its_requests() {
    let (mut lines, now) = (Lines::new(most(1)), Instant::now());
    let ids: Vec<LineId> = ["a", "b", "c"]
        .map(|text| lines.open((None, Bytes::from_static(text.as_bytes())), Head::for_test()))
        .into();
    for (id, attempt) in ids.iter().zip(attempts(3)) {
        lines.add(*id, item(attempt, 1, ""), now);
    }

    assert_eq!(taken(&mut lines, now), [1, 1]);
    lines.ended(ids[0], now);
    assert_eq!(lines.take(now).unwrap().line, ids[2]);
}

#[test]
fn rows_of_one_name_go_one_after_the_other() {
    let (mut lines, now) = (Lines::new(Most { are_named: true, ..most(3) }), Instant::now());
    let line = open(&mut lines, 1);
    for (attempt, id) in attempts(4).into_iter().zip(["a", "a", "b", "a"]) {
        lines.add(line, item(attempt, 1, id), now);
    }

    let names = |batch: &Batch| batch.items.iter().map(|it| it.id.clone()).collect::<Vec<_>>();
    assert_eq!(names(&lines.take(now).unwrap()), ["a", "b"]);
    assert!(lines.take(now).is_none(), "the others wait for company");
    let due = lines.next_due().unwrap();
    lines.expire(due);
    assert_eq!(names(&lines.take(due).unwrap()), ["a"]);
    lines.ended(line, due);
    assert_eq!(names(&lines.take(due).unwrap()), ["a"]);
}

#[test]
fn what_is_cancelled_is_not_asked_for_and_does_not_hurry_others() {
    let (mut lines, start) = (Lines::new(most(10)), Instant::now());
    let (line, all) = (open(&mut lines, 1), attempts(2));
    lines.add(line, item(all[0], 1, ""), start);
    let later = start + Duration::from_millis(4);
    lines.add(line, item(all[1], 1, ""), later);

    lines.remove(&[all[0]]);

    assert_eq!(lines.next_due(), Some(later + Duration::from_millis(10)));
    lines.remove(&[all[1]]);
    assert_eq!((lines.next_due(), lines.find(&key(1))), (None, None));
}

#[derive(Clone, Debug)]
enum Step {
    Add(u64, usize, u8),
    End,
    Wait(u64),
    Cancel(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_u64, 1..700_usize, 0..4_u8).prop_map(|(line, bytes, id)| Step::Add(line, bytes, id)),
        2 => Just(Step::End),
        2 => (0..15_u64).prop_map(Step::Wait),
        1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
    ]
}

proptest! {
    #[test]
    fn each_item_leaves_once_in_time_and_within_the_bounds(
        steps in prop::collection::vec(step(), 1..120),
        are_named in any::<bool>(),
        rows in 1..5_usize,
    ) {
        let most = Most { rows, are_named, ..most(rows) };
        let (mut lines, mut now) = (Lines::new(most), Instant::now());
        let mut free = attempts(steps.len()).into_iter();
        let mut waiting: Vec<(AttemptId, u64, Instant)> = Vec::new();
        let mut running: Vec<(LineId, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Add(channel, bytes, id) => {
                    let attempt = free.next().unwrap();
                    let line = open(&mut lines, channel);
                    lines.add(line, item(attempt, bytes, &id.to_string()), now);
                    waiting.push((attempt, channel, now));
                }
                Step::End => if let Some((line, _)) = running.pop() {
                    lines.ended(line, now);
                },
                Step::Wait(millis) => now += Duration::from_millis(millis),
                Step::Cancel(index) => if !waiting.is_empty() {
                    let gone = waiting.remove(index.index(waiting.len()));
                    lines.remove(&[gone.0]);
                },
            }
            lines.expire(now);
            while let Some(batch) = lines.take(now) {
                let (_, channel, _) = *waiting.iter().find(|it| it.0 == batch.items[0].attempt).unwrap();
                prop_assert!(batch.items.len() <= rows);
                let bytes: usize = batch.items.iter().map(|it| it.text.len()).sum();
                prop_assert!(bytes <= most.bytes || batch.items.len() == 1);
                let names: HashSet<_> = batch.items.iter().map(|it| &it.id).collect();
                prop_assert!(!are_named || names.len() == batch.items.len());
                for it in &batch.items {
                    let at = waiting.iter().position(|(id, of, _)| *id == it.attempt && *of == channel);
                    prop_assert!(at.is_some(), "taken twice, cancelled, or of another channel");
                    waiting.remove(at.unwrap());
                }
                running.push((batch.line, channel));
            }
            for (_, channel, since) in &waiting {
                let requests = running.iter().filter(|(_, of)| of == channel).count();
                prop_assert!(requests <= most.requests);
                prop_assert!(now < *since + most.linger || requests == most.requests, "left behind");
            }
        }
    }
}
