// SPDX-License-Identifier: Apache-2.0

use std::num::NonZeroUsize;

use super::*;
use crate::element::{Key, Timestamp};

type Ordered = OrderedStreamElementQueue<char, ()>;
type Unordered = UnorderedStreamElementQueue<char, ()>;
type KeyOrdered = KeyOrderedStreamElementQueue<char, ()>;

fn capacity(records: usize) -> NonZeroUsize {
    NonZeroUsize::new(records).unwrap()
}

fn watermark(timestamp: i64) -> Watermark {
    Watermark(Timestamp(timestamp))
}

/// Puts each letter as a record, each digit as a watermark; returns the handles of the letters.
fn put_all(queue: &mut impl StreamElementQueue<char, ()>, elements: &str) -> Vec<EntryId> {
    let mut ids = Vec::new();
    for element in elements.chars() {
        match element.to_digit(10) {
            Some(digit) => queue.put_watermark(watermark(digit.into())),
            None => ids.push(queue.try_put(element).unwrap()),
        }
    }
    ids
}

fn letter_or_digit<T: Copy + Into<char>>(element: StreamElement<T>) -> char {
    match element {
        StreamElement::Record(value) => value.into(),
        StreamElement::Watermark(Watermark(Timestamp(t))) => {
            char::from_digit(u32::try_from(t).unwrap(), 10).unwrap()
        }
    }
}

fn pop_all(queue: &mut impl StreamElementQueue<char, ()>) -> String {
    std::iter::from_fn(|| queue.pop_completed())
        .map(|element| letter_or_digit(element.map(|it| it.value)))
        .collect()
}

fn values(queue: &impl StreamElementQueue<char, ()>) -> String {
    queue.values().into_iter().map(|it| letter_or_digit(it.map(|entry| *entry.value))).collect()
}

#[test]
fn completed_but_unemitted_element_still_holds_its_slot() {
    let mut queue = Ordered::new(NonZeroUsize::MIN);
    let id = queue.try_put('a').unwrap();
    queue.complete(id, ()).unwrap();

    let refused = queue.try_put('b').unwrap_err();

    assert_eq!(refused.element, 'b');
    assert_eq!(refused.to_string(), "stream element queue is full (capacity 1)");
}

#[test]
fn emitting_frees_the_slot() {
    let mut queue = Unordered::new(NonZeroUsize::MIN);
    let id = queue.try_put('a').unwrap();
    queue.complete(id, ()).unwrap();

    assert_eq!(pop_all(&mut queue), "a");

    assert!(queue.try_put('b').is_ok());
}

#[test]
fn completed_element_waits_for_pending_predecessor() {
    let mut queue = Ordered::new(capacity(3));
    let ids = put_all(&mut queue, "abc");
    queue.complete(ids[1], ()).unwrap();

    assert_eq!(pop_all(&mut queue), "");
    queue.complete(ids[0], ()).unwrap();

    assert_eq!(pop_all(&mut queue), "ab");
}

#[test]
fn watermarks_take_no_slot() {
    let mut queue = Ordered::new(capacity(2));
    put_all(&mut queue, "a1b2");

    assert_eq!(queue.len(), 2);
    assert_eq!(values(&queue), "a1b2");
}

#[test]
fn watermarks_without_a_record_between_become_the_later_one() {
    let mut ordered = Ordered::new(capacity(2));
    let mut unordered = Unordered::new(capacity(2));
    put_all(&mut ordered, "a132b");
    put_all(&mut unordered, "a132b");

    assert_eq!(values(&ordered), "a3b");
    assert_eq!(values(&unordered), "a3b");
}

#[test]
fn watermark_on_an_empty_queue_leaves_at_once() {
    let mut ordered = Ordered::new(capacity(1));
    let mut unordered = Unordered::new(capacity(1));
    ordered.put_watermark(watermark(7));
    unordered.put_watermark(watermark(7));

    assert_eq!(pop_all(&mut ordered), "7");
    assert_eq!(pop_all(&mut unordered), "7");
    assert!(ordered.is_empty() && unordered.is_empty());
}

#[test]
fn records_leave_in_completion_order_between_watermarks() {
    let mut queue = Unordered::new(capacity(7));
    let e = put_all(&mut queue, "abc1de2f3g");
    for index in [4, 1, 3, 0] {
        queue.complete(e[index], ()).unwrap();
    }

    assert_eq!(pop_all(&mut queue), "ba");
    queue.complete(e[2], ()).unwrap();

    assert_eq!(pop_all(&mut queue), "c1ed2");
    assert_eq!(values(&queue), "f3g");
}

#[test]
fn values_list_arrival_order_after_slots_were_reused() {
    let mut queue = Unordered::new(capacity(3));
    let ids = put_all(&mut queue, "ab1");
    queue.complete(ids[0], ()).unwrap();
    assert_eq!(pop_all(&mut queue), "a");
    put_all(&mut queue, "c2d");

    assert_eq!(values(&queue), "b1c2d");
}

#[test]
fn second_completion_is_refused_and_the_first_result_stands() {
    let mut queue = OrderedStreamElementQueue::new(NonZeroUsize::MIN);
    let id = queue.try_put('a').unwrap();
    queue.complete(id, 1).unwrap();

    assert_eq!(queue.complete(id, 2), Err(NotPending));
    let emitted = queue.pop_completed();
    assert_eq!(emitted, Some(StreamElement::Record(Completed { value: 'a', result: 1 })));
}

#[test]
fn completion_of_an_emitted_element_is_refused() {
    let mut ordered = Ordered::new(NonZeroUsize::MIN);
    let mut unordered = Unordered::new(NonZeroUsize::MIN);
    let id = put_all(&mut ordered, "a")[0];
    ordered.complete(id, ()).unwrap();
    pop_all(&mut ordered);
    let other = put_all(&mut unordered, "a")[0];
    unordered.complete(other, ()).unwrap();
    pop_all(&mut unordered);
    put_all(&mut unordered, "b");

    assert_eq!(ordered.complete(id, ()), Err(NotPending));
    assert_eq!(unordered.complete(other, ()), Err(NotPending));
}

#[test]
fn a_record_waits_for_the_pending_record_of_its_key() {
    let mut queue = KeyOrdered::new(capacity(4));
    let (first, start) = queue.try_put_keyed('a', Some(Key::new(1))).unwrap();
    assert_eq!(start, Start::Now);
    let (second, start) = queue.try_put_keyed('b', Some(Key::new(1))).unwrap();
    assert_eq!(start, Start::Blocked);

    assert_eq!(queue.complete_keyed(first, ()).unwrap(), Some(second));
    assert_eq!(queue.complete_keyed(second, ()).unwrap(), None);

    assert_eq!(pop_all(&mut queue), "ab");
    assert_eq!(queue.try_put_keyed('c', Some(Key::new(1))).unwrap().1, Start::Now);
}

#[test]
fn keys_and_records_without_key_do_not_block_one_another() {
    let mut queue = KeyOrdered::new(capacity(4));

    for key in [Some(Key::new(1)), Some(Key::new(2)), None, None] {
        assert_eq!(queue.try_put_keyed('a', key).unwrap().1, Start::Now);
    }
}

#[test]
fn a_blocked_record_starts_across_a_watermark_but_leaves_behind_it() {
    let mut queue = KeyOrdered::new(capacity(4));
    put_all(&mut queue, "z");
    let (first, _) = queue.try_put_keyed('a', Some(Key::new(1))).unwrap();
    queue.put_watermark(watermark(1));
    let (second, _) = queue.try_put_keyed('b', Some(Key::new(1))).unwrap();

    assert_eq!(queue.complete_keyed(first, ()).unwrap(), Some(second));
    queue.complete_keyed(second, ()).unwrap();

    assert_eq!(pop_all(&mut queue), "a");
    assert_eq!(values(&queue), "z1b");
}

#[test]
fn a_blocked_record_that_is_completed_waits_for_its_predecessor() {
    let mut queue = KeyOrdered::new(capacity(4));
    let [a, b, c] = ['a', 'b', 'c'].map(|it| queue.try_put_keyed(it, Some(Key::new(1))).unwrap().0);

    assert_eq!(queue.complete_keyed(b, ()).unwrap(), None);
    assert!(queue.complete_keyed(b, ()).is_err());
    assert_eq!(pop_all(&mut queue), "");

    assert_eq!(queue.complete_keyed(a, ()).unwrap(), Some(c));
    assert_eq!(pop_all(&mut queue), "ab");
}

#[test]
fn values_can_be_replaced_where_they_stand() {
    fn replaced(mut queue: impl StreamElementQueue<char, ()>) -> String {
        let ids = put_all(&mut queue, "ab1cd");
        queue.complete(ids[0], ()).unwrap();
        queue.complete(ids[2], ()).unwrap();
        queue.values_mut().for_each(char::make_ascii_uppercase);
        queue.complete(ids[1], ()).unwrap();
        queue.complete(ids[3], ()).unwrap();
        pop_all(&mut queue)
    }

    assert_eq!(replaced(Ordered::new(capacity(9))), "AB1CD");
    assert_eq!(replaced(Unordered::new(capacity(9))), "AB1CD");
    assert_eq!(replaced(KeyOrdered::new(capacity(9))), "AB1CD");
    let any = AnyStreamElementQueue::<char, ()>::Unordered(Unordered::new(capacity(9)));
    assert_eq!(replaced(any), "AB1CD");
}
