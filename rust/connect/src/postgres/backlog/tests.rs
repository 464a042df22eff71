// SPDX-License-Identifier: Apache-2.0
//! Tests of how rows become queries of one channel.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use proptest::prelude::*;
use sparkawait_arrow::InputRows;
use sparkawait_core::queue::{EntryId, OrderedStreamElementQueue, StreamElementQueue};
use sparkawait_task::function::Call;

use super::*;

const QUERIES: usize = 2;

/// Calls for rows that are numbered from `first`, with the channel of each; none without channels.
struct Source {
    queue: OrderedStreamElementQueue<i64, ()>,
}

impl Source {
    fn new() -> Self {
        let capacity = NonZeroUsize::new(10_000).unwrap();
        Self { queue: OrderedStreamElementQueue::new(capacity) }
    }

    fn calls(&mut self, first: i64, channels: &[Option<u64>], has_channels: bool) -> Calls {
        let end = first + i64::try_from(channels.len()).unwrap();
        let entries: Vec<EntryId> =
            (first..end).map(|it| self.queue.try_put(it).unwrap()).collect();
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
        let column = Arc::new(Int64Array::from_iter_values(first..end));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
        let keys: Vec<Option<Key>> = channels.iter().map(|it| it.map(Key::new)).collect();
        let channels = if has_channels { Arc::from(keys) } else { Arc::from([]) };
        let mut input = InputRows::new(schema);
        let accepted = input
            .accept_with(batch, RecordBatch::new_empty(Arc::new(Schema::empty())), channels, 0)
            .unwrap();
        let calls = entries.into_iter().zip(0..).map(|(entry, row)| Call {
            attempt: AttemptId { entry, attempt: 1 },
            batch: 0,
            row,
        });
        Calls { batches: vec![Arc::clone(input.batch(accepted.batch()))], calls: calls.collect() }
    }
}

/// Bytes of a row.
const WIDTH: usize = 8;

/// Rows that wait, and how they do so.
struct Waiting {
    backlog: Backlog,
    lines: Lines<Segments>,
}

impl Waiting {
    fn new(most: Most, queries: usize) -> Self {
        let backlog = Backlog::new(vec![0], NullArgs::Miss, most);
        Self { backlog, lines: Lines::new(queries) }
    }

    fn add(&mut self, calls: &Calls) -> Result<Unasked, TaskError> {
        self.backlog.add(calls, &mut self.lines)
    }

    fn take(&mut self, free: usize) -> Option<(Option<Key>, Vec<i64>)> {
        let Self { backlog, lines } = self;
        let (channel, keys) = lines.take(free, |rows, queries| backlog.take(rows, queries))?;
        let Keys { attempts, arguments } = keys.unwrap();
        let numbers = arguments[0].as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(attempts.len(), numbers.len());
        Some((channel, numbers))
    }

    fn remove(&mut self, cancelled: &[AttemptId]) {
        self.lines.remove(|rows| rows.remove(cancelled));
    }

    fn is_ready(&self) -> bool {
        self.lines.ready() > 0
    }
}

fn most(rows: usize) -> Most {
    Most { rows, bytes: usize::MAX, row_bytes: usize::MAX }
}

fn waiting(most_rows: usize) -> Waiting {
    Waiting::new(most(most_rows), QUERIES)
}

#[test]
fn without_channels_the_rows_are_spread_over_the_connections_that_are_free() {
    let mut waiting = Waiting::new(most(100), 4);
    waiting.add(&Source::new().calls(0, &[None; 10], false)).unwrap();

    assert_eq!(waiting.take(3), Some((None, vec![0, 1, 2, 3])));
    assert_eq!(waiting.take(2), Some((None, vec![4, 5, 6])));
    assert_eq!(waiting.take(1), Some((None, vec![7, 8, 9])));
    assert!(!waiting.is_ready());
}

#[test]
fn the_rows_of_a_query_are_of_one_channel_and_channels_take_turns() {
    let mut waiting = waiting(3);
    let (a, b) = (Some(1), Some(2));
    let channels = [a, a, b, a, b, None, a, a, a, a];
    waiting.add(&Source::new().calls(0, &channels, true)).unwrap();

    let one = waiting.take(1);
    let others: Vec<_> = (0..3).map(|_| waiting.take(1)).collect();
    assert_eq!(one, Some((None, vec![5])));
    assert_eq!(others[0], Some((a.map(Key::new), vec![0, 1, 3])));
    assert_eq!(others[1], Some((b.map(Key::new), vec![2, 4])));
    assert_eq!(others[2], Some((a.map(Key::new), vec![6, 7, 8])));
}

#[test]
fn a_channel_has_no_more_queries_than_it_may_until_one_has_ended() {
    let mut waiting = waiting(1);
    let channel = Some(Key::new(1));
    waiting.add(&Source::new().calls(0, &[Some(1); 3], true)).unwrap();

    assert_eq!(waiting.take(9), Some((channel, vec![0])));
    assert_eq!(waiting.take(8), Some((channel, vec![1])));
    assert_eq!(waiting.take(7), None);
    waiting.lines.ended(channel);
    assert_eq!(waiting.take(8), Some((channel, vec![2])));
}

#[test]
fn a_query_has_no_more_bytes_than_it_may_unless_it_is_of_one_row() {
    let mut source = Source::new();
    let mut waiting = Waiting::new(Most { bytes: 3 * WIDTH, ..most(100) }, 100);
    waiting.add(&source.calls(0, &[None; 2], false)).unwrap();
    waiting.add(&source.calls(2, &[None; 6], false)).unwrap();

    let queries: Vec<_> = (0..3).map(|_| waiting.take(1).unwrap().1).collect();
    assert_eq!(queries, [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]]);
    assert!(!waiting.is_ready());

    let mut waiting = Waiting::new(Most { bytes: 1, ..most(100) }, 100);
    waiting.add(&source.calls(8, &[None; 2], false)).unwrap();
    assert_eq!(waiting.take(1), Some((None, vec![8])));
    assert_eq!(waiting.take(1), Some((None, vec![9])));
}

#[test]
fn a_burst_that_is_too_large_is_copied_in_pieces() {
    let mut waiting = Waiting::new(Most { bytes: 2 * WIDTH, ..most(100) }, 100);
    waiting.add(&Source::new().calls(0, &[Some(1), Some(2), Some(1), Some(1)], true)).unwrap();

    let segments = |channel| waiting.lines.of(Some(Key::new(channel))).segments.iter();
    assert_eq!(segments(1).map(Keys::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(segments(2).map(Keys::len).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_row_whose_arguments_fit_no_message_is_not_asked_for() {
    let calls = Source::new().calls(0, &[None; 2], false);
    let mut waiting = Waiting::new(Most { row_bytes: WIDTH - 1, ..most(100) }, 100);

    let unasked = waiting.add(&calls).unwrap();

    let attempts = calls.calls.iter().map(|it| it.attempt).collect();
    assert_eq!(unasked, Unasked { null_keys: Vec::new(), too_large: attempts });
    assert!(!waiting.is_ready());
}

#[test]
fn what_is_cancelled_leaves_and_takes_the_turn_of_its_channel_along() {
    let mut waiting = waiting(10);
    let calls = Source::new().calls(0, &[Some(1), Some(2), Some(2)], true);
    waiting.add(&calls).unwrap();

    waiting.remove(&[0, 1].map(|it: usize| calls.calls[it].attempt));

    assert_eq!(waiting.take(1), Some((Some(Key::new(2)), vec![2])));
    assert!(!waiting.is_ready());
}

/// What happens to the rows of a lookup.
#[derive(Clone, Debug)]
enum Event {
    Add(Vec<Option<u64>>),
    Take(usize),
    End(usize),
    Cancel(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let channel = prop_oneof![Just(None), (1..5_u64).prop_map(Some)];
    prop_oneof![
        proptest::collection::vec(channel, 1..20).prop_map(Event::Add),
        (1..5_usize).prop_map(Event::Take),
        (0..8_usize).prop_map(Event::End),
        (1..4_usize).prop_map(Event::Cancel),
    ]
}

proptest! {
    #[test]
    fn each_row_is_in_one_query_of_its_channel_in_order(
        events in proptest::collection::vec(event(), 1..60),
        bytes in prop_oneof![Just(usize::MAX), 1..100_usize],
    ) {
        let (mut source, mut waiting) = (Source::new(), waiting(7));
        waiting.backlog.most.bytes = bytes;
        // The channel of each row that waits, with its call, by its number.
        let mut rows: Vec<(i64, Option<Key>, AttemptId)> = Vec::new();
        let (mut queries, mut count): (Vec<Option<Key>>, i64) = (Vec::new(), 0);
        for event in events {
            match event {
                Event::Add(channels) => {
                    let calls = source.calls(count, &channels, true);
                    for (call, channel) in calls.calls.iter().zip(&channels) {
                        rows.push((count, channel.map(Key::new), call.attempt));
                        count += 1;
                    }
                    waiting.add(&calls).unwrap();
                }
                Event::Take(free) => {
                    let may = |channel: &Option<Key>| {
                        queries.iter().filter(|it| *it == channel).count() < QUERIES
                    };
                    let is_any = rows.iter().any(|(_, channel, _)| may(channel));
                    prop_assert_eq!(waiting.is_ready(), is_any);
                    let found = waiting.take(free);
                    prop_assert_eq!(found.is_some(), is_any);
                    let Some((channel, numbers)) = found else { continue };
                    prop_assert!(may(&channel) && !numbers.is_empty() && numbers.len() <= 7);
                    let of_channel = rows.iter().filter(|(_, of, _)| *of == channel);
                    let oldest: Vec<i64> =
                        of_channel.take(numbers.len()).map(|(number, ..)| *number).collect();
                    prop_assert_eq!(&numbers, &oldest);
                    rows.retain(|(number, ..)| !numbers.contains(number));
                    queries.push(channel);
                }
                Event::End(index) => {
                    if index < queries.len() {
                        waiting.lines.ended(queries.swap_remove(index));
                    }
                }
                Event::Cancel(step) => {
                    let gone = rows.iter().step_by(step).map(|(.., attempt)| *attempt);
                    let gone: BTreeSet<AttemptId> = gone.collect();
                    rows.retain(|(.., attempt)| !gone.contains(attempt));
                    waiting.remove(&gone.into_iter().collect::<Vec<_>>());
                }
            }
        }
    }
}
