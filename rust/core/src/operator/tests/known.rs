// SPDX-License-Identifier: Apache-2.0
//! Records whose outcome is known when they come.

use std::num::NonZeroU64;

use super::*;
use crate::flow::ChannelConfig;
use crate::policy::{Gcra, LimitConfig, PolicyConfig, Rate};

/// Admits a record with a result that is known; tells whether there was a slot.
fn put_known(operator: &mut Operator, letter: char, key: Option<u64>, nanos: u64) -> bool {
    let record = StreamRecord::new(letter, None);
    let places = (None, key.map(Key::new));
    let known = (Ok(letter.to_ascii_uppercase()), 2);
    operator.process_completed(record, places, known, at(nanos)).is_ok()
}

#[test]
fn a_known_record_takes_no_permit_and_keeps_its_place() {
    let mut operator =
        operator(OutputMode::Ordered, 3, |it| it.max_concurrency = NonZeroUsize::MIN);
    let call = put(&mut operator, "a", 0);

    assert!(put_known(&mut operator, 'b', None, 1));
    assert!(put_known(&mut operator, 'c', None, 1));
    assert!(!put_known(&mut operator, 'd', None, 1), "there is no slot");

    assert!(operator.actions().is_empty());
    assert_eq!((operator.in_flight(), operator.attempts()), (1, 1));
    assert_eq!(output(&mut operator), "");
    reply(&mut operator, call[0], 'A', 2);
    assert_eq!(output(&mut operator), "ABC");
}

#[test]
fn a_known_record_waits_for_those_of_its_key() {
    let mut operator = operator(OutputMode::KeyOrdered, 5, |_| {});
    let record = StreamRecord::new('a', None);
    operator.process_element(record, Some(Key::new(7)), at(0)).unwrap();
    let call = started(&mut operator);

    assert!(put_known(&mut operator, 'b', Some(7), 1));
    assert!(put_known(&mut operator, 'c', Some(8), 1));

    assert_eq!(output(&mut operator), "C");
    reply(&mut operator, call[0], 'A', 2);
    assert_eq!(output(&mut operator), "AB");
}

#[test]
fn a_known_record_takes_no_permit_of_a_limit() {
    let mut operator = operator(OutputMode::Unordered, 5, |it| {
        let rate = Rate::new(NonZeroU64::MIN, Duration::from_nanos(100)).unwrap();
        let limit = LimitConfig::new(Gcra::new(rate, NonZeroU64::MIN));
        it.channels = Some(ChannelConfig::single(PolicyConfig::limited(limit)));
    });

    for letter in "abc".chars() {
        assert!(put_known(&mut operator, letter, None, 0));
    }

    assert_eq!(output(&mut operator), "ABC");
    assert_eq!(put(&mut operator, "d", 1).len(), 1, "the permit is there");
}

#[test]
fn a_known_failure_counts_as_one_and_nothing_is_taken_behind_the_end() {
    let mut operator = operator(OutputMode::Ordered, 3, |it| it.on_failure = FailurePolicy::Emit);
    let failed = (Err(Failure::Function("down")), 4);
    let record = StreamRecord::new('a', None);
    operator.process_completed(record, (None, None), failed, at(0)).unwrap();

    assert_eq!(output(&mut operator), "!");
    assert_eq!(operator.metrics(at(0)).failures, 1);

    operator.close();
    assert!(!put_known(&mut operator, 'b', None, 1));
}
