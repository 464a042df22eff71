// SPDX-License-Identifier: Apache-2.0

use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use super::*;
use crate::element::{Key, StreamElement, StreamRecord, Timestamp, Watermark};
use crate::flow::ChannelConfig;
use crate::operator::{
    AttemptId, Completion, Config, EndOfInput, FailurePolicy, OutputMode, Remark, Retry,
};
use crate::policy::{
    AdaptiveLimitConfig, Gcra, LimitConfig, PauseConfig, PolicyConfig, Price, Rate,
};
use crate::retry::AsyncRetryStrategy;

type Operator = AsyncWaitOperator<char, char, &'static str>;

fn at(nanos: u64) -> ProcessingTime {
    ProcessingTime::from_nanos(nanos)
}

/// Capacity 4, 3 calls, at most 2 for one channel, a backlog of 5.
fn operator(mode: OutputMode, change: impl FnOnce(&mut Config)) -> Operator {
    let mut config = Config::new(mode, NonZeroUsize::new(4).unwrap());
    config.max_concurrency = NonZeroUsize::new(3).unwrap();
    config.on_failure = FailurePolicy::Emit;
    config.channels = Some(ChannelConfig { max_per_channel: 2, ..ChannelConfig::floating(3, 5) });
    change(&mut config);
    AsyncWaitOperator::new(config)
}

/// Admits each letter as long as there is room: capitals are of one channel, others of another.
fn put(operator: &mut Operator, letters: &str) -> usize {
    let is_put = |letter: &char| {
        let channel = Some(Key::new(letter.is_uppercase().into()));
        let key = Some(Key::new(u64::from(letter.to_ascii_lowercase())));
        let record = StreamRecord::new(*letter, None);
        operator.free_slots() > 0
            && operator.process_element_on(channel, record, key, at(0)).is_ok()
    };
    letters.chars().take_while(is_put).count()
}

/// The calls that started since the last look.
fn started(operator: &mut Operator) -> (String, Vec<AttemptId>) {
    operator.actions().invoke.drain(..).map(|it| (it.value, it.attempt)).unzip()
}

fn reply(operator: &mut Operator, attempt: AttemptId) {
    let completion = Completion::answered('.', Retry::No);
    operator.handle_completion(attempt, completion, at(1));
}

fn output(operator: &mut Operator) -> String {
    std::iter::from_fn(|| operator.pop_output())
        .map(|element| match element {
            StreamElement::Watermark(_) => '|',
            StreamElement::Record(emitted) => emitted.record.value,
        })
        .collect()
}

#[test]
fn a_channel_at_its_limit_leaves_the_other_permits_to_others() {
    let mut operator = operator(OutputMode::Unordered, |config| {
        config.capacity = NonZeroUsize::new(5).unwrap();
    });

    put(&mut operator, "ABCab");

    let (calls, attempts) = started(&mut operator);
    assert_eq!(calls, "ABa");
    reply(&mut operator, attempts[2]);
    assert_eq!((started(&mut operator).0.as_str(), output(&mut operator).as_str()), ("b", "a"));
}

#[test]
fn rows_that_wait_for_a_credit_take_no_slots_until_the_backlog_is_full() {
    let mut operator = operator(OutputMode::Unordered, |_| {});

    assert_eq!(put(&mut operator, "ABCDEFGHIJ"), 7, "two calls and a backlog of five");

    assert_eq!((operator.free_slots(), operator.queue_size()), (0, 7));
    let (_, attempts) = started(&mut operator);
    reply(&mut operator, attempts[0]);
    assert_eq!(operator.free_slots(), 1);
}

#[test]
fn rows_that_wait_take_slots_once_all_calls_are_in_flight() {
    let mut operator = operator(OutputMode::Unordered, |_| {});

    assert_eq!(put(&mut operator, "ABaCDEFG"), 4, "three calls and one row that waits");

    let (calls, attempts) = started(&mut operator);
    assert_eq!(calls, "ABa");
    reply(&mut operator, attempts[2]);
    output(&mut operator);
    assert_eq!(put(&mut operator, "DbEF"), 2, "D waits as A and B do not end, b has a call");
    assert_eq!(started(&mut operator).0, "b");
}

#[test]
fn beyond_its_own_bound_a_channel_takes_slots_of_the_capacity() {
    let bound = |config: &mut Config| {
        config.channels =
            config.channels.map(|it| ChannelConfig { max_backlog_per_channel: 1, ..it });
    };
    let mut operator = operator(OutputMode::Unordered, bound);

    assert_eq!(put(&mut operator, "ABCDEFGHIJ"), 5, "four slots and one beside them");
}

#[test]
fn a_full_queue_starts_what_waits_when_a_call_ends() {
    let mut operator = operator(OutputMode::Ordered, |config| {
        config.max_concurrency = NonZeroUsize::new(4).unwrap();
        config.channels =
            Some(ChannelConfig { max_per_channel: 1, ..ChannelConfig::floating(4, 1) });
    });
    put(&mut operator, "Aa");
    let (_, first) = started(&mut operator);
    reply(&mut operator, first[1]);
    put(&mut operator, "B");
    assert_eq!(operator.free_slots(), 0, "B has the only place of the backlog");

    reply(&mut operator, first[0]);

    assert_eq!(started(&mut operator).0, "B");
    assert_eq!((output(&mut operator).as_str(), operator.free_slots()), ("Aa", 1));
}

#[test]
fn a_row_in_back_off_gives_its_credit_and_its_slot_away_and_goes_first_afterwards() {
    let mut operator = operator(OutputMode::Unordered, |config| {
        config.retry = Some(AsyncRetryStrategy::fixed_delay(1, Duration::from_nanos(9)));
        config.at_end_of_input = EndOfInput::KeepRetrying;
    });
    put(&mut operator, "ABCD");
    let (_, attempts) = started(&mut operator);

    let down = Completion::failed("down", Retry::Yes, CallSign::Unreachable);
    operator.handle_completion(attempts[0], down, at(1));
    assert_eq!(started(&mut operator).0, "C");
    assert_eq!(operator.free_slots(), 1, "B and C hold two slots of four, one call is left");
    operator.handle_time(at(10));
    reply(&mut operator, attempts[1]);

    assert_eq!(started(&mut operator).0, "A");
}

#[test]
fn a_row_that_waits_for_a_silent_destination_ends_after_its_patience_and_frees_its_place() {
    let mut operator =
        operator(OutputMode::Unordered, |it| it.timeout = Some(Duration::from_nanos(5)));
    put(&mut operator, "ABCDEFG");
    started(&mut operator);

    operator.handle_time(at(5));
    assert_eq!(started(&mut operator).0, "CD", "they have all of their time");
    assert_eq!(operator.actions().cancel.len(), 2);
    assert_eq!(output(&mut operator).len(), 2);
    operator.handle_time(at(9));
    assert_eq!(output(&mut operator), "");
    assert_eq!(operator.poll_timeout(), Some(at(10)));
    operator.handle_time(at(10));

    assert_eq!(started(&mut operator).0, "", "silent for five, and waited for as long");
    assert_eq!((output(&mut operator).len(), operator.free_slots()), (5, 4));
    let (report, _) = operator.channel_report(9, at(10)).unwrap();
    assert_eq!((report.active, report.top[0].credits), (0, 0));
}

#[test]
fn a_row_blocked_by_its_key_asks_for_no_credit() {
    let mut operator = operator(OutputMode::KeyOrdered, |_| {});

    put(&mut operator, "AaBC");

    // `a` has the key of `A`, and B the second credit of the capitals.
    let (calls, attempts) = started(&mut operator);
    assert_eq!(calls, "AB");
    reply(&mut operator, attempts[0]);
    assert_eq!(started(&mut operator).0, "Ca");
}

#[test]
fn watermarks_keep_their_place_among_rows_that_wait() {
    let mut operator = operator(OutputMode::Unordered, |_| {});
    put(&mut operator, "ABC");
    operator.process_watermark(Watermark(Timestamp(1)));
    put(&mut operator, "a");
    let (calls, attempts) = started(&mut operator);
    assert_eq!(calls, "ABa");

    for attempt in attempts {
        reply(&mut operator, attempt);
    }
    assert_eq!(output(&mut operator), "AB");
    let (_, last) = started(&mut operator);
    reply(&mut operator, last[0]);

    assert_eq!(output(&mut operator), "C|a");
}

#[test]
fn restored_rows_wait_in_their_channels_again() {
    let mut before = operator(OutputMode::Unordered, |_| {});
    put(&mut before, "ABCDa");
    let snapshot = before.snapshot(at(1));

    let place_of = |letter: &char| (Some(Key::new(letter.is_uppercase().into())), Price::Usual);
    let mut after =
        AsyncWaitOperator::restore_on(before.config.clone(), snapshot, place_of, |_| None, at(0));

    assert_eq!(started(&mut after).0, "AaB", "a record of one channel after the other");
    let (report, samples) = after.channel_report(1, at(0)).unwrap();
    assert_eq!((report.top[0].backlog, samples), (2, vec![Some('A')]));
}

/// Limits that follow what is borne, from 2 of at most 3 calls, and a retry after 9 ns.
fn adaptive(config: &mut Config) {
    let adaptive = AdaptiveLimitConfig { initial: 2, min: 1, max: 3, max_latency: None };
    let policy = PolicyConfig { adaptive_limit: Some(adaptive), ..PolicyConfig::NONE };
    config.channels = Some(ChannelConfig { policy, ..ChannelConfig::floating(3, 5) });
    config.timeout = Some(Duration::from_nanos(10));
}

/// The limit of the capitals' channel.
fn limit(operator: &Operator) -> u32 {
    let (report, _) = operator.channel_report(9, at(0)).unwrap();
    report.top.iter().find(|it| it.key == Some(Key::new(1))).unwrap().limit
}

#[test]
fn the_outcome_of_a_call_moves_an_adaptive_limit() {
    for (outcome, retry, sign, expected) in [
        (Ok('.'), Retry::No, CallSign::Good, 3),
        (Ok('.'), Retry::Yes, CallSign::Good, 3),
        (Err("wrong row"), Retry::No, CallSign::Neutral, 2),
        (Err("not yet there"), Retry::Yes, CallSign::Neutral, 2),
        (Err("down"), Retry::Yes, CallSign::Unreachable, 1),
        (Err("down"), Retry::No, CallSign::Unreachable, 1),
        (Err("slow down"), Retry::After(Duration::from_nanos(1)), CallSign::Overloaded, 1),
    ] {
        let mut operator = operator(OutputMode::Unordered, adaptive);
        put(&mut operator, "ABCD");
        let (calls, attempts) = started(&mut operator);
        assert_eq!(calls, "AB");

        operator.handle_completion(attempts[0], Completion { outcome, retry, sign }, at(1));

        assert_eq!(limit(&operator), expected);
        let beside_b = usize::try_from(expected).unwrap() - 1;
        assert_eq!(started(&mut operator).0.len(), beside_b);
    }
}

#[test]
fn a_timeout_of_an_attempt_lowers_an_adaptive_limit() {
    let mut operator = operator(OutputMode::Unordered, |config| {
        adaptive(config);
        config.attempt_timeout = Some(Duration::from_nanos(3));
    });
    put(&mut operator, "AB");
    assert_eq!(started(&mut operator).0, "AB");

    operator.handle_time(at(3));

    assert_eq!(limit(&operator), 1);
}

#[test]
fn a_call_that_got_less_than_half_of_the_time_of_its_row_lowers_no_limit() {
    for (called_again_at, expected) in [(5, 1), (6, 2)] {
        let mut operator = operator(OutputMode::Unordered, |config| {
            adaptive(config);
            config.retry = Some(AsyncRetryStrategy::fixed_delay(1, Duration::ZERO));
        });
        put(&mut operator, "A");
        let (_, attempts) = started(&mut operator);
        let again = Completion { outcome: Ok('.'), retry: Retry::Yes, sign: CallSign::Neutral };
        operator.handle_completion(attempts[0], again, at(called_again_at));
        operator.handle_time(at(called_again_at));
        assert_eq!(started(&mut operator).0, "A");

        operator.handle_time(at(10));

        assert_eq!(limit(&operator), expected);
    }
}

/// One call every 10 ns in each channel.
fn one_in_ten() -> PolicyConfig {
    let rate = Rate::new(NonZeroU64::MIN, Duration::from_nanos(10)).unwrap();
    let limit = Gcra::new(rate, NonZeroU64::MIN);
    PolicyConfig::limited(LimitConfig { is_per_channel: true, ..LimitConfig::new(limit) })
}

#[test]
fn a_record_whose_channel_has_a_rate_is_called_when_its_time_comes() {
    let mut operator = operator(OutputMode::Unordered, |config| {
        let channels = ChannelConfig::floating(9, 5);
        config.channels = Some(ChannelConfig { policy: one_in_ten(), ..channels });
        config.max_concurrency = NonZeroUsize::new(9).unwrap();
    });
    put(&mut operator, "ABCa");
    assert_eq!(started(&mut operator).0, "Aa", "each channel has a rate of its own");

    for (time, call) in [(10, "B"), (20, "C")] {
        assert_eq!(operator.poll_timeout(), Some(at(time)));
        operator.handle_time(at(time));
        assert_eq!(started(&mut operator).0, call);
    }
    assert_eq!(operator.poll_timeout(), None, "nothing waits any more");
}

#[test]
fn a_record_is_not_looked_at_again_and_again_while_its_channel_is_shut() {
    let mut operator = operator(OutputMode::Unordered, |config| {
        config.max_concurrency = NonZeroUsize::MIN;
        config.timeout = Some(Duration::from_nanos(13));
    });
    put(&mut operator, "AB");
    let (_, attempts) = started(&mut operator);
    // The second one waits for the only call, so looking at it changes nothing.
    operator.remark(attempts[0], Remark::Pause(Duration::from_millis(7)), at(11));
    operator.handle_completion(attempts[0], Completion::answered('.', Retry::No), at(11));

    let mut looks = Vec::new();
    while started(&mut operator).0.is_empty() {
        let time = operator.poll_timeout().unwrap();
        operator.handle_time(time);
        looks.push(time.as_nanos());
        assert!(looks.len() < 7, "{looks:?}");
    }

    assert_eq!(looks, [26, 7_000_011]);
    assert_eq!(operator.metrics(at(7_000_011)).timeouts, 0);
}

#[test]
fn with_one_channel_for_all_a_record_is_admitted_when_the_policy_lets_it() {
    let mut operator = operator(OutputMode::Unordered, |config| {
        config.channels = Some(ChannelConfig::single(one_in_ten()));
        config.timeout = Some(Duration::from_nanos(5));
    });
    for (time, record) in [(0, "A"), (10, "b"), (20, "C")] {
        operator.handle_time(at(time));
        assert_eq!(operator.free_slots(), 1);
        let value = record.chars().next().unwrap();
        operator.process_element(StreamRecord::new(value, None), None, at(time)).unwrap();
        let (calls, attempts) = started(&mut operator);
        assert_eq!((&calls[..], operator.free_slots()), (record, 0));
        operator.process_element(StreamRecord::new('x', None), None, at(time)).unwrap_err();
        operator.handle_completion(attempts[0], Completion::answered('.', Retry::No), at(time));
        // Its timeout would have been over long before: it starts with the permit.
        assert_eq!(operator.poll_timeout(), Some(at(time + 10)));
    }
    assert_eq!(operator.metrics(at(20)).timeouts, 0);
    assert!(operator.channel_report(9, at(20)).is_none());
}

#[test]
fn a_destination_that_is_paused_is_asked_by_one_call_and_then_by_more() {
    let pause =
        PauseConfig { initial: Duration::from_nanos(100), ..PauseConfig::new(Some(2), 3, 7) };
    let mut operator = operator(OutputMode::Unordered, |config| {
        let policy = PolicyConfig { pause: Some(pause), ..PolicyConfig::NONE };
        config.channels = Some(ChannelConfig { policy, ..ChannelConfig::floating(3, 5) });
        config.capacity = NonZeroUsize::new(9).unwrap();
    });
    put(&mut operator, "ABCDEFa");
    let (calls, attempts) = started(&mut operator);
    assert_eq!(calls, "ABC");
    let down = Completion::failed("down", Retry::No, CallSign::Unreachable);
    for attempt in attempts {
        operator.handle_completion(attempt, down, at(1));
    }
    let (calls, _) = started(&mut operator);
    assert_eq!(calls, "a", "the second drop in a row pauses, and others use the credits");

    let probe_at = operator.poll_timeout().unwrap();
    assert!((at(90)..=at(112)).contains(&probe_at), "{probe_at:?}");
    operator.handle_time(probe_at);
    let (calls, probe) = started(&mut operator);
    assert_eq!(calls, "D");
    assert_eq!(operator.poll_timeout(), None, "only the answer matters");
    operator.handle_completion(probe[0], Completion::answered('.', Retry::No), probe_at);

    assert_eq!(started(&mut operator).0, "E");
}
