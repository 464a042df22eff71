// SPDX-License-Identifier: Apache-2.0

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::element::Timestamp;
use crate::policy::{CallSign, HedgeAfter, HedgeConfig, RetryBudgetConfig};
use crate::retry::AsyncRetryStrategy;

mod known;
mod restored;

type Operator = AsyncWaitOperator<char, char, &'static str>;

/// An operator of `capacity` with a timeout of 10 ns, changed by `change`.
fn operator(mode: OutputMode, capacity: usize, change: impl FnOnce(&mut Config)) -> Operator {
    let mut config = Config::new(mode, NonZeroUsize::new(capacity).unwrap());
    config.timeout = Some(Duration::from_nanos(10));
    change(&mut config);
    AsyncWaitOperator::new(config)
}

fn at(nanos: u64) -> ProcessingTime {
    ProcessingTime::from_nanos(nanos)
}

fn retry_twice(config: &mut Config) {
    config.retry = Some(AsyncRetryStrategy::fixed_delay(2, Duration::from_nanos(3)));
}

/// Admits each letter at `nanos`; returns the attempts that started.
fn put(operator: &mut Operator, letters: &str, nanos: u64) -> Vec<AttemptId> {
    for letter in letters.chars() {
        operator.process_element(StreamRecord::new(letter, None), None, at(nanos)).unwrap();
    }
    started(operator)
}

fn started(operator: &mut Operator) -> Vec<AttemptId> {
    operator.actions().invoke.drain(..).map(|it| it.attempt).collect()
}

fn reply(operator: &mut Operator, attempt: AttemptId, result: char, nanos: u64) {
    let completion = Completion::answered(result, Retry::No);
    operator.handle_completion(attempt, completion, at(nanos));
}

fn fail(operator: &mut Operator, attempt: AttemptId, retry: Retry, nanos: u64) {
    let completion = Completion::failed("down", retry, CallSign::Unreachable);
    operator.handle_completion(attempt, completion, at(nanos));
}

/// Removes all output: results, `!` for a failure, `|` for a watermark.
fn output(operator: &mut Operator) -> String {
    std::iter::from_fn(|| operator.pop_output())
        .map(|element| match element {
            StreamElement::Watermark(_) => '|',
            StreamElement::Record(emitted) => emitted.outcome.unwrap_or('!'),
        })
        .collect()
}

#[test]
fn a_record_is_admitted_when_it_can_be_called_and_slots_beyond_hold_completed_ones() {
    let mut operator =
        operator(OutputMode::Unordered, 3, |it| it.max_concurrency = NonZeroUsize::MIN);
    for (nanos, letter) in (0..).zip(["a", "b", "c"]) {
        let call = put(&mut operator, letter, nanos);
        assert_eq!((call.len(), operator.free_slots()), (1, 0), "all calls are made");
        let refused = operator.process_element(StreamRecord::new('x', None), None, at(nanos));
        assert_eq!(refused.unwrap_err().element.value, 'x');
        reply(&mut operator, call[0], 'A', nanos);
    }
    assert_eq!((operator.queue_size(), operator.has_capacity()), (3, false));

    assert_eq!(output(&mut operator), "AAA");

    assert_eq!((operator.free_slots(), put(&mut operator, "d", 9).len()), (1, 1));
    assert_eq!(operator.poll_timeout(), Some(at(19)), "its time began when it was called");
}

#[test]
fn a_record_whose_back_off_is_over_has_the_next_permit() {
    let mut operator = operator(OutputMode::Unordered, 3, |it| {
        retry_twice(it);
        it.max_concurrency = NonZeroUsize::MIN;
    });
    let first = put(&mut operator, "a", 0);
    fail(&mut operator, first[0], Retry::Yes, 1);
    let second = put(&mut operator, "b", 2);
    operator.handle_time(at(4));
    assert_eq!((started(&mut operator).len(), operator.free_slots()), (0, 0));

    reply(&mut operator, second[0], 'B', 5);

    let next = started(&mut operator);
    assert_eq!(
        next.iter().map(|it| (it.entry, it.attempt)).collect::<Vec<_>>(),
        [(first[0].entry, 2)]
    );
    assert!(!operator.has_capacity());
}

#[test]
fn the_time_of_a_record_stands_while_it_waits_for_a_permit() {
    let mut operator = operator(OutputMode::Unordered, 3, |it| {
        retry_twice(it);
        it.max_concurrency = NonZeroUsize::MIN;
        it.on_failure = FailurePolicy::Emit;
    });
    let first = put(&mut operator, "a", 0);
    fail(&mut operator, first[0], Retry::Yes, 1);
    let second = put(&mut operator, "b", 2);
    operator.handle_time(at(4));

    // Four of its ten nanoseconds had passed when its back-off was over.
    reply(&mut operator, second[0], 'B', 1_000);
    assert_eq!(started(&mut operator).len(), 1);
    operator.handle_time(at(1_005));
    assert_eq!(output(&mut operator), "B");
    assert_eq!(operator.poll_timeout(), Some(at(1_006)));
    operator.handle_time(at(1_006));

    assert_eq!(output(&mut operator), "!");
}

#[test]
fn a_record_whose_key_is_busy_is_admitted_while_a_permit_is_free() {
    let mut operator = operator(OutputMode::KeyOrdered, 3, |it| {
        it.max_concurrency = NonZeroUsize::new(2).unwrap();
    });
    for letter in ['a', 'b', 'c'] {
        let key = Some(Key::new(7));
        operator.process_element(StreamRecord::new(letter, None), key, at(0)).unwrap();
    }
    let first = started(&mut operator);
    assert_eq!((first.len(), operator.queue_size()), (1, 3));

    reply(&mut operator, first[0], 'A', 1);

    assert_eq!((started(&mut operator).len(), operator.in_flight()), (1, 1));
}

#[test]
fn capacity_counts_completed_records_until_they_are_emitted() {
    let mut operator = operator(OutputMode::Ordered, 1, |_| {});
    let first = put(&mut operator, "a", 0);
    reply(&mut operator, first[0], 'A', 1);
    let refused = operator.process_element(StreamRecord::new('b', None), None, at(1));
    assert_eq!(refused.unwrap_err().element.value, 'b');

    assert_eq!(output(&mut operator), "A");

    assert_eq!(put(&mut operator, "b", 2).len(), 1);
}

#[test]
fn a_timeout_cancels_the_call_and_its_late_reply_is_ignored() {
    let mut operator = operator(OutputMode::Ordered, 2, |it| it.on_failure = FailurePolicy::Emit);
    let attempts = put(&mut operator, "a", 0);
    assert_eq!(operator.poll_timeout(), Some(at(10)));

    operator.handle_time(at(10));
    reply(&mut operator, attempts[0], 'A', 11);

    assert_eq!(operator.actions().cancel, attempts);
    assert_eq!(output(&mut operator), "!");
    assert_eq!(operator.metrics(at(11)).timeouts, 1);
}

#[test]
fn a_timeout_that_asks_takes_the_answer_and_nothing_else() {
    let mut operator = operator(OutputMode::Ordered, 1, |it| it.asks_on_timeout = true);
    let attempts = put(&mut operator, "a", 0);
    operator.handle_time(at(10));
    let asked = operator.actions().ask_timeout.pop().unwrap().attempt;

    reply(&mut operator, attempts[0], 'A', 11);
    assert_eq!(output(&mut operator), "");
    reply(&mut operator, asked, '?', 12);

    assert_eq!(output(&mut operator), "?");
}

#[test]
fn a_failed_attempt_is_repeated_after_its_delay_and_keeps_its_slot() {
    let mut operator = operator(OutputMode::Ordered, 1, retry_twice);
    let first = put(&mut operator, "a", 0);

    fail(&mut operator, first[0], Retry::Yes, 1);
    assert!(!operator.has_capacity());
    assert_eq!((operator.in_flight(), operator.pending_retries()), (0, 1));
    assert_eq!(operator.poll_timeout(), Some(at(4)));
    operator.handle_time(at(4));

    assert_eq!(started(&mut operator)[0].attempt, 2);
}

#[test]
fn retry_after_overrides_the_computed_delay() {
    let mut operator = operator(OutputMode::Ordered, 1, retry_twice);
    let first = put(&mut operator, "a", 0);

    fail(&mut operator, first[0], Retry::After(Duration::from_nanos(7)), 1);

    assert_eq!(operator.poll_timeout(), Some(at(8)));
}

#[test]
fn a_reply_of_an_older_attempt_is_ignored() {
    let mut operator = operator(OutputMode::Ordered, 1, retry_twice);
    let first = put(&mut operator, "a", 0);
    fail(&mut operator, first[0], Retry::Yes, 0);
    operator.handle_time(at(3));
    let second = started(&mut operator);

    reply(&mut operator, first[0], 'X', 4);
    assert_eq!(output(&mut operator), "");
    reply(&mut operator, second[0], 'A', 5);

    assert_eq!(output(&mut operator), "A");
}

#[test]
fn the_last_permitted_attempt_is_final() {
    let mut operator = operator(OutputMode::Ordered, 1, |config| {
        retry_twice(config);
        config.on_failure = FailurePolicy::Emit;
    });
    let mut attempts = put(&mut operator, "a", 0);
    for nanos in [0, 3, 6] {
        operator.handle_time(at(nanos));
        attempts.extend(started(&mut operator));
        fail(&mut operator, *attempts.last().unwrap(), Retry::Yes, nanos);
    }

    assert_eq!(attempts.len(), 3);
    assert_eq!(output(&mut operator), "!");
}

#[test]
fn an_attempt_beyond_its_time_is_cancelled_and_repeated() {
    let mut operator = operator(OutputMode::Ordered, 1, |config| {
        retry_twice(config);
        config.attempt_timeout = Some(Duration::from_nanos(2));
    });
    let first = put(&mut operator, "a", 0);

    operator.handle_time(at(2));
    assert_eq!(operator.actions().cancel, first);
    operator.handle_time(at(5));

    assert_eq!(started(&mut operator)[0].attempt, 2);
}

/// The failures of all output, without their records.
fn failures(operator: &mut Operator) -> Vec<Failure<&'static str>> {
    std::iter::from_fn(|| operator.pop_output())
        .filter_map(|element| match element {
            StreamElement::Watermark(_) => None,
            StreamElement::Record(emitted) => emitted.outcome.err(),
        })
        .collect()
}

#[test]
fn a_timeout_tells_the_last_failure_of_its_record_alone() {
    let mut operator = operator(OutputMode::Ordered, 2, |config| {
        retry_twice(config);
        config.on_failure = FailurePolicy::Emit;
    });
    let attempts = put(&mut operator, "ab", 0);
    fail(&mut operator, attempts[0], Retry::Yes, 1);
    operator.handle_time(at(4));

    operator.handle_time(at(10));

    let expected =
        [Failure::ended(Ended::TimedOut, Some("down")), Failure::ended(Ended::TimedOut, None)];
    assert_eq!(failures(&mut operator), expected);
    assert!(operator.earlier.is_empty());
}

#[test]
fn a_back_off_beyond_the_deadline_holds_no_slot_until_then() {
    let mut operator = operator(OutputMode::Ordered, 1, |config| {
        config.timeout = Some(Duration::from_nanos(50));
        config.on_failure = FailurePolicy::Emit;
        retry_twice(config);
    });
    let call = put(&mut operator, "a", 0);

    fail(&mut operator, call[0], Retry::After(Duration::from_nanos(40)), 10);

    let (delay, left) = (Duration::from_nanos(40), Duration::from_nanos(40));
    assert_eq!(operator.pending_retries(), 0);
    assert_eq!(operator.poll_timeout(), None, "nothing is to come");
    assert_eq!(
        failures(&mut operator),
        [Failure::ended(Ended::TooLate { delay, left }, Some("down"))]
    );
    assert!(operator.has_capacity());
}

#[test]
fn a_back_off_beyond_the_deadline_asks_for_the_fallback_at_once() {
    let mut operator = operator(OutputMode::Ordered, 1, |config| {
        config.timeout = Some(Duration::from_nanos(50));
        config.asks_on_timeout = true;
        retry_twice(config);
    });
    let call = put(&mut operator, "a", 0);

    fail(&mut operator, call[0], Retry::After(Duration::from_secs(1)), 10);

    let asked: Vec<AttemptId> =
        operator.actions().ask_timeout.drain(..).map(|it| it.attempt).collect();
    assert_eq!(asked.len(), 1);
    reply(&mut operator, asked[0], 'A', 11);
    assert_eq!(output(&mut operator), "A");
}

#[test]
fn an_attempt_that_waits_begins_when_the_function_says_so() {
    let mut operator = operator(OutputMode::Ordered, 1, |config| {
        config.timeout = None;
        config.attempt_timeout = Some(Duration::from_nanos(3));
        config.begins = Begins::WhenSaid;
        config.on_failure = FailurePolicy::Emit;
    });
    let first = put(&mut operator, "a", 0);

    operator.handle_time(at(10));
    assert_eq!((operator.in_flight(), operator.poll_timeout()), (1, None));
    operator.handle_started(first[0], at(10), at(10));
    assert_eq!(operator.poll_timeout(), Some(at(13)));
    operator.handle_time(at(13));

    assert_eq!(failures(&mut operator), [Failure::ended(Ended::AttemptTimedOut, None)]);
    operator.handle_started(first[0], at(14), at(14));
    assert_eq!(operator.poll_timeout(), None);
}

#[test]
fn a_record_that_nobody_is_called_for_has_no_attempt() {
    let mut operator = operator(OutputMode::Ordered, 4, |config| {
        config.begins = Begins::WhenSaid;
        config.on_failure = FailurePolicy::Emit;
        config.hedge =
            Some(HedgeConfig { after: HedgeAfter::Time(Duration::from_nanos(3)), max_extra: 1.0 });
    });
    let calls = put(&mut operator, "abcd", 0);
    operator.handle_started(calls[0], at(1), at(1));
    // Said twice it is one call still.
    operator.handle_started(calls[0], at(2), at(2));
    // An answer that nobody was called for, and one that tells of a call that nothing was said of.
    let known = Completion { sign: CallSign::NotCalled, ..Completion::answered('B', Retry::No) };
    operator.handle_completion(calls[1], known, at(3));
    operator.handle_completion(calls[2], Completion::answered('C', Retry::No), at(3));
    assert_eq!(operator.metrics(at(3)).attempts, 2);
    operator.handle_time(at(10));

    assert_eq!(operator.metrics(at(10)).attempts, 2);
    let attempts = std::iter::from_fn(|| operator.pop_output()).map(|it| match it {
        StreamElement::Record(emitted) => emitted.attempts,
        StreamElement::Watermark(_) => panic!("no watermark came"),
    });
    assert_eq!(attempts.collect::<Vec<_>>(), [1, 1, 1, 0]);
}

#[test]
fn a_call_that_was_not_made_after_all_is_not_counted() {
    let mut operator = operator(OutputMode::Ordered, 2, |config| {
        retry_twice(config);
        config.timeout = None;
    });
    let calls = put(&mut operator, "ab", 0);
    let known =
        |retry| Completion { sign: CallSign::NotCalled, ..Completion::answered('A', retry) };

    operator.handle_completion(calls[0], known(Retry::Yes), at(1));
    operator.handle_time(at(4));
    let again = started(&mut operator);
    assert_eq!((operator.metrics(at(4)).attempts, operator.metrics(at(4)).retries), (2, 1));
    operator.handle_completion(again[0], known(Retry::No), at(5));
    reply(&mut operator, calls[1], 'B', 5);

    assert_eq!((operator.metrics(at(5)).attempts, operator.metrics(at(5)).retries), (1, 0));
}

#[test]
fn the_duration_of_a_call_is_counted_from_its_start() {
    let mut operator = operator(OutputMode::Ordered, 1, |config| config.begins = Begins::WhenSaid);
    let first = put(&mut operator, "a", 0);
    operator.handle_started(first[0], at(10), at(10));

    let completion = Completion::answered('A', Retry::No);
    let handled = operator.handle_completion(first[0], completion, at(12));

    assert_eq!(handled, Handled::Final(2));
}

#[test]
fn an_attempt_that_took_too_long_is_the_last_one_where_a_second_call_does_harm() {
    let mut operator = operator(OutputMode::Ordered, 2, |config| {
        retry_twice(config);
        config.attempt_timeout = Some(Duration::from_nanos(3));
        config.is_repeatable = false;
        config.on_failure = FailurePolicy::Emit;
    });
    let calls = put(&mut operator, "ab", 0);

    // What says of itself that it may be tried again is.
    fail(&mut operator, calls[0], Retry::Yes, 1);
    operator.handle_time(at(3));
    assert_eq!(operator.pending_retries(), 1);
    operator.handle_time(at(4));
    let again = started(&mut operator);
    assert_eq!(again, [AttemptId { entry: calls[0].entry, attempt: 2 }]);
    operator.handle_time(at(9));

    assert_eq!(started(&mut operator), []);
    let found = failures(&mut operator);
    assert_eq!(
        found,
        [
            Failure::ended(Ended::AttemptTimedOut, Some("down")),
            Failure::ended(Ended::AttemptTimedOut, None)
        ]
    );
}

#[test]
fn what_may_have_been_carried_out_is_called_again_only_where_that_does_no_harm() {
    for is_repeatable in [true, false] {
        let mut operator = operator(OutputMode::Ordered, 2, |config| {
            retry_twice(config);
            config.is_repeatable = is_repeatable;
            config.on_failure = FailurePolicy::Emit;
        });
        let calls = put(&mut operator, "ab", 0);

        fail(&mut operator, calls[0], Retry::IfRepeatable, 1);
        fail(&mut operator, calls[1], Retry::Yes, 1);

        assert_eq!(operator.pending_retries(), if is_repeatable { 2 } else { 1 });
        let expected = if is_repeatable { vec![] } else { vec![Failure::Function("down")] };
        assert_eq!(failures(&mut operator), expected);
    }
}

#[test]
fn retries_are_counted_from_the_first_one_on() {
    let mut operator = operator(OutputMode::Unordered, 40, |config| {
        config.retry = Some(AsyncRetryStrategy::fixed_delay(3, Duration::from_nanos(1)));
        config.retry_budget = Some(RetryBudgetConfig::new(0.2, 0));
        config.on_failure = FailurePolicy::Emit;
    });
    let calls = put(&mut operator, &"a".repeat(34), 0);
    let (bad, good) = calls.split_at(11);
    for it in good {
        reply(&mut operator, *it, 'A', 1);
    }
    assert!(operator.limit_metrics(at(1)).is_none(), "nothing bounds calls that succeed");

    for it in bad {
        fail(&mut operator, *it, Retry::Yes, 2);
    }
    operator.handle_time(at(3));

    // A fifth of the 23 that succeeded and of the 11 that failed.
    assert_eq!(started(&mut operator).len(), 6);
    let metrics = operator.limit_metrics(at(3)).unwrap();
    assert_eq!((metrics.retries_held, metrics.retries_waiting), (6, 5));
}

#[test]
fn a_last_attempt_beyond_its_time_tells_the_failure_before_it() {
    let mut operator = operator(OutputMode::Ordered, 1, |config| {
        config.retry = Some(AsyncRetryStrategy::fixed_delay(1, Duration::from_nanos(1)));
        config.attempt_timeout = Some(Duration::from_nanos(3));
        config.on_failure = FailurePolicy::Emit;
    });
    let first = put(&mut operator, "a", 0);
    fail(&mut operator, first[0], Retry::Yes, 1);
    operator.handle_time(at(2));

    operator.handle_time(at(5));

    assert_eq!(failures(&mut operator), [Failure::ended(Ended::AttemptTimedOut, Some("down"))]);
    assert!(operator.earlier.is_empty());
}

#[test]
fn a_record_that_succeeds_at_last_forgets_its_failures() {
    let mut operator = operator(OutputMode::Ordered, 1, retry_twice);
    let first = put(&mut operator, "a", 0);
    fail(&mut operator, first[0], Retry::Yes, 1);
    operator.handle_time(at(4));
    let second = started(&mut operator);

    reply(&mut operator, second[0], 'A', 5);

    assert_eq!(output(&mut operator), "A");
    assert!(operator.earlier.is_empty());
}

#[test]
fn a_failure_lets_out_what_completed_before_it_and_cancels_the_rest() {
    let mut operator = operator(OutputMode::Ordered, 4, |_| {});
    let attempts = put(&mut operator, "abcd", 0);
    reply(&mut operator, attempts[0], 'A', 1);
    reply(&mut operator, attempts[2], 'C', 1);

    fail(&mut operator, attempts[1], Retry::No, 2);

    assert_eq!(operator.actions().cancel, [attempts[3]]);
    assert_eq!(output(&mut operator), "A");
    assert!(operator.is_finished());
    assert_eq!(operator.failure().unwrap().record.value, 'b');
}

#[test]
fn a_closed_operator_lets_back_offs_be() {
    let mut operator = operator(OutputMode::Ordered, 2, retry_twice);
    let attempts = put(&mut operator, "ab", 0);
    for attempt in attempts {
        fail(&mut operator, attempt, Retry::Yes, 1);
    }
    operator.close();

    operator.handle_time(at(9));
    operator.end_input(at(9));

    assert_eq!(operator.pending_retries(), 0);
    assert!(operator.actions().is_empty());
}

#[test]
fn end_of_input_fires_delayed_retries_at_once_and_their_outcome_is_final() {
    let mut operator = operator(OutputMode::Ordered, 2, |config| {
        retry_twice(config);
        config.on_failure = FailurePolicy::Emit;
    });
    let attempts = put(&mut operator, "ab", 0);
    fail(&mut operator, attempts[0], Retry::Yes, 1);

    operator.end_input(at(1));
    let last = started(&mut operator);
    assert_eq!((last.len(), last[0].attempt), (1, 2));
    fail(&mut operator, last[0], Retry::Yes, 2);
    reply(&mut operator, attempts[1], 'B', 2);

    assert_eq!(output(&mut operator), "!B");
    assert!(operator.is_finished());
}

#[test]
fn a_finite_input_may_keep_its_retries() {
    let mut operator = operator(OutputMode::Ordered, 1, |config| {
        retry_twice(config);
        config.at_end_of_input = EndOfInput::KeepRetrying;
    });
    let attempts = put(&mut operator, "a", 0);
    operator.end_input(at(0));

    fail(&mut operator, attempts[0], Retry::Yes, 1);

    assert_eq!(operator.pending_retries(), 1);
    assert!(!operator.is_finished());
}

#[test]
fn a_key_is_served_by_one_call_at_a_time() {
    let mut operator = operator(OutputMode::KeyOrdered, 3, |_| {});
    for letter in "abc".chars() {
        let key = Some(Key::new(u64::from(letter == 'c')));
        operator.process_element(StreamRecord::new(letter, None), key, at(0)).unwrap();
    }
    let first = started(&mut operator);
    assert_eq!(first.len(), 2);

    reply(&mut operator, first[1], 'C', 1);
    reply(&mut operator, first[0], 'A', 1);
    let second = started(&mut operator);
    reply(&mut operator, second[0], 'B', 1);

    assert_eq!(output(&mut operator), "CAB");
}

#[test]
fn a_record_that_waits_for_its_predecessor_has_all_of_its_time() {
    let mut operator =
        operator(OutputMode::KeyOrdered, 2, |it| it.on_failure = FailurePolicy::Emit);
    for letter in ['a', 'b'] {
        operator
            .process_element(StreamRecord::new(letter, None), Some(Key::new(0)), at(0))
            .unwrap();
    }
    assert_eq!(started(&mut operator).len(), 1);

    operator.handle_time(at(10));
    assert_eq!(output(&mut operator), "!");
    assert_eq!(started(&mut operator).len(), 1);
    operator.handle_time(at(19));
    assert_eq!(output(&mut operator), "");
    operator.handle_time(at(20));

    assert_eq!(output(&mut operator), "!");
}

#[test]
fn completed_records_hold_no_slots_where_others_bound_them() {
    for mode in [OutputMode::Ordered, OutputMode::KeyOrdered, OutputMode::Unordered] {
        let mut operator = operator(mode, 2, |it| it.completed_take_slots = false);
        let first = put(&mut operator, "a", 0);
        for (nanos, letter) in (0..).zip(["b", "c", "d", "e"]) {
            let call = put(&mut operator, letter, nanos);
            assert_eq!(operator.free_slots(), 0, "two are not completed");
            reply(&mut operator, call[0], '.', nanos);
        }
        assert_eq!((operator.queue_size(), operator.records_without_slot()), (5, 4));

        reply(&mut operator, first[0], 'A', 5);

        assert_eq!(output(&mut operator).len(), 5);
        assert_eq!((operator.queue_size(), operator.records_without_slot()), (0, 0));
        assert_eq!(operator.free_slots(), 2);
    }
}

#[test]
fn call_that_is_cancelled_before_it_is_carried_out_is_left_out() {
    let mut operator = operator(OutputMode::Unordered, 7, |config| {
        config.on_failure = FailurePolicy::Emit;
    });
    let first = put(&mut operator, "ab", 0);
    for letter in "cde".chars() {
        let nanos = if letter == 'd' { 5 } else { 1 };
        operator.process_element(StreamRecord::new(letter, None), None, at(nanos)).unwrap();
    }

    operator.handle_time(at(12));

    let mut taken = Actions::default();
    operator.actions().swap(&mut taken);
    assert_eq!(taken.invoke.iter().map(|it| it.value).collect::<String>(), "d");
    assert_eq!(taken.cancel, first);
    assert!(operator.actions().is_empty());
}

/// Fails or answers each letter of `outcomes`, one after the other; returns how many took effect.
fn until_it_fails(after: FailAfter, outcomes: &str) -> (String, bool) {
    let mut operator = operator(OutputMode::Unordered, 3, |config| {
        config.on_failure = FailurePolicy::Emit;
        config.fail_after = Some(Arc::new(Tolerance::new(after)));
    });
    let mut out = String::new();
    for outcome in outcomes.chars() {
        let Ok(()) = operator.process_element(StreamRecord::new('a', None), None, at(0)) else {
            break;
        };
        let attempt = started(&mut operator)[0];
        if outcome == '!' {
            fail(&mut operator, attempt, Retry::No, 1);
        } else {
            reply(&mut operator, attempt, outcome, 1);
        }
        out += &output(&mut operator);
        if operator.failure().is_some() {
            break;
        }
    }
    (out, operator.failure().is_some())
}

#[test]
fn an_operator_fails_with_the_failure_that_is_one_too_many() {
    let after = |failures, per_million| FailAfter { failures, per_million, at_end_of: None };
    // The one that fails the operator is not put out.
    assert_eq!(until_it_fails(after(3, 0), "!a!bcd!efg"), ("!a!bcd".into(), true));
    assert_eq!(until_it_fails(after(3, 0), "!a!bcdefg"), ("!a!bcdefg".into(), false));
    // A third of those that have ended: three of ten are too few, four of eleven are not.
    assert_eq!(until_it_fails(after(2, 333_333), "abcdefg!!!!"), ("abcdefg!!!".into(), true));
    assert_eq!(until_it_fails(after(2, 333_333), "!a!"), ("!a".into(), true));
    assert_eq!(until_it_fails(after(1, 1_000_000), "!"), (String::new(), true));
    assert_eq!(until_it_fails(after(1, 1_000_000), "a!!!!"), ("a!!!!".into(), false));
}
