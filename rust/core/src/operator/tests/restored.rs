// SPDX-License-Identifier: Apache-2.0
//! What a record goes on with that was restored.

use super::*;

#[test]
fn a_snapshot_keeps_arrival_order_results_and_the_time_left() {
    let mut source = operator(OutputMode::Unordered, 3, |_| {});
    let attempts = put(&mut source, "ab", 0);
    source.process_watermark(Watermark(Timestamp(1)));
    put(&mut source, "c", 4);
    reply(&mut source, attempts[1], 'B', 5);
    let snapshot = source.snapshot(at(6));
    let config = source.config.clone();

    let mut restored = AsyncWaitOperator::restore(config, snapshot, |_| None, at(100));

    assert_eq!(started(&mut restored).len(), 2);
    assert_eq!(restored.poll_timeout(), Some(at(104)));
    assert_eq!(output(&mut restored), "B");
}

#[test]
fn a_snapshot_fits_into_a_smaller_capacity() {
    let mut source = operator(OutputMode::Ordered, 3, |_| {});
    put(&mut source, "abc", 0);
    let config = Config { capacity: NonZeroUsize::MIN, ..source.config.clone() };

    let mut restored = AsyncWaitOperator::restore(config, source.snapshot(at(0)), |_| None, at(0));
    let mut emitted = String::new();
    while restored.queue_size() > 0 {
        assert!(!restored.has_capacity() && restored.queue_size() == 1);
        let attempt = started(&mut restored)[0];
        reply(&mut restored, attempt, 'x', 1);
        emitted += &output(&mut restored);
        restored.replay(at(1));
    }

    assert_eq!(emitted, "xxx");
}

#[test]
fn a_restored_record_that_finds_no_place_waits_for_one() {
    let mut before = operator(OutputMode::Ordered, 3, |_| {});
    put(&mut before, "abc", 0);
    let snapshot = before.snapshot(at(1));
    let config = operator(OutputMode::Ordered, 1, |_| {}).config;
    let mut restored = Operator::restore(config, snapshot, |_| None, at(1));
    // As if slots were counted otherwise than the queue counts them.
    restored.config.capacity = NonZeroUsize::new(3).unwrap();

    let mut results = String::new();
    for nanos in 2..9 {
        restored.replay(at(nanos));
        for attempt in started(&mut restored) {
            reply(&mut restored, attempt, 'A', nanos);
        }
        results.push_str(&output(&mut restored));
    }

    assert_eq!(results, "AAA");
}

/// An operator that asks about its only record: after a failure, since no retry fits in its time.
fn asking() -> Operator {
    let mut operator = operator(OutputMode::Ordered, 3, |config| {
        retry_twice(config);
        config.asks_on_timeout = true;
    });
    let first = put(&mut operator, "a", 0);
    fail(&mut operator, first[0], Retry::Yes, 8);
    assert_eq!(operator.actions().ask_timeout.drain(..).count(), 1);
    operator
}

#[test]
fn a_restored_record_that_was_asked_about_is_asked_about_again() {
    let source = asking();
    let config = source.config.clone();

    let mut restored = Operator::restore(config, source.snapshot(at(9)), |_| None, at(100));

    assert_eq!(started(&mut restored), []);
    let asked = restored.actions().ask_timeout.pop().unwrap().attempt;
    reply(&mut restored, asked, 'A', 101);
    let Some(StreamElement::Record(emitted)) = restored.pop_output() else { panic!("no output") };
    assert_eq!((emitted.attempts, emitted.outcome), (1, Ok('A')));
}

#[test]
fn a_restored_record_that_was_asked_about_times_out_where_nobody_is_asked() {
    for timeout in [Some(Duration::from_nanos(97)), None] {
        let source = asking();
        let config = Config {
            asks_on_timeout: false,
            on_failure: FailurePolicy::Emit,
            timeout,
            ..source.config.clone()
        };

        let mut restored = Operator::restore(config, source.snapshot(at(9)), |_| None, at(100));

        assert!(restored.actions().is_empty());
        let Some(StreamElement::Record(emitted)) = restored.pop_output() else {
            panic!("no output with {timeout:?}")
        };
        let failure = Failure::ended(Ended::TimedOut, Some("down"));
        assert_eq!((emitted.attempts, emitted.outcome), (1, Err(failure)));
    }
}
