// SPDX-License-Identifier: Apache-2.0
//! Tests of second calls, on a manual clock.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::element::{Key, StreamElement, StreamRecord};
use crate::flow::ChannelConfig;
use crate::operator::{
    Begins, Config, EndOfInput, Ended, Failure, FailurePolicy, Metrics, OutputMode, Recall, Remark,
    Retry,
};
use crate::policy::{
    AdaptiveLimitConfig, Gcra, HedgeAfter, HedgeConfig, LimitConfig, PolicyConfig, Rate,
    RequestConfig,
};
use crate::retry::AsyncRetryStrategy;

type Operator = AsyncWaitOperator<u32, u32, &'static str>;

const AFTER: u64 = 10;

fn at(nanos: u64) -> ProcessingTime {
    ProcessingTime::from_nanos(nanos)
}

fn config(calls: usize, max_extra: f64) -> Config {
    let calls = NonZeroUsize::new(calls).unwrap();
    Config {
        hedge: Some(HedgeConfig {
            after: HedgeAfter::Time(Duration::from_nanos(AFTER)),
            max_extra,
        }),
        on_failure: FailurePolicy::Emit,
        at_end_of_input: EndOfInput::KeepRetrying,
        ..Config::new(OutputMode::Unordered, calls)
    }
}

/// An operator with some records that were called at 0.
fn operator(config: Config, records: u32) -> Operator {
    let mut operator = Operator::new(config);
    (0..records).for_each(|value| put(&mut operator, value, 0));
    operator
}

fn put(operator: &mut Operator, value: u32, now: u64) {
    let is_single = operator.config.channels.is_some_and(|it| it.is_single);
    let channel = Some(Key::new(u64::from(value % 2) + 1)).filter(|_| !is_single);
    let record = StreamRecord::new(value, None);
    operator.process_element_on(channel, record, None, at(now)).unwrap();
}

fn started(operator: &mut Operator) -> Vec<(u32, AttemptId)> {
    std::mem::take(&mut operator.actions().invoke)
        .into_iter()
        .map(|it| (it.value, it.attempt))
        .collect()
}

fn cancelled(operator: &mut Operator) -> Vec<AttemptId> {
    std::mem::take(&mut operator.actions().cancel)
}

/// Starts the hedges that are due, and returns them.
fn hedges(operator: &mut Operator, now: u64) -> Vec<(u32, AttemptId)> {
    operator.handle_time(at(now));
    let started = started(operator);
    assert!(started.iter().all(|(_, it)| it.is_hedge()));
    started
}

fn answer(operator: &mut Operator, attempt: AttemptId, value: u32, now: u64) -> Handled {
    operator.handle_completion(attempt, Completion::answered(value, Retry::No), at(now))
}

fn fail(operator: &mut Operator, attempt: AttemptId, retry: Retry, now: u64) -> Handled {
    operator.handle_completion(attempt, Completion::failed("failed", retry, retry.sign()), at(now))
}

type Emitted = (u32, Result<u32, Failure<&'static str>>);

fn emitted(operator: &mut Operator) -> Vec<Emitted> {
    let next = || operator.pop_output();
    let records = std::iter::from_fn(next).filter_map(|element| match element {
        StreamElement::Record(it) => Some((it.record.value, it.outcome)),
        StreamElement::Watermark(_) => None,
    });
    records.collect()
}

fn metrics(operator: &mut Operator) -> Metrics {
    operator.metrics(at(0))
}

#[test]
fn the_first_answer_wins_and_the_other_call_is_cancelled() {
    for hedge_wins in [false, true] {
        let mut operator = operator(config(4, 1.0), 1);
        let [(_, first)] = started(&mut operator)[..] else { panic!("one call") };
        assert_eq!(operator.poll_timeout(), Some(at(AFTER)));
        assert_eq!(hedges(&mut operator, AFTER - 1), []);
        let [(0, hedge)] = hedges(&mut operator, AFTER)[..] else { panic!("one hedge") };
        assert_eq!((operator.in_flight(), hedge.first()), (2, first));
        assert!(operator.awaits(first) && operator.awaits(hedge));

        let (winner, loser) = if hedge_wins { (hedge, first) } else { (first, hedge) };
        let took = if hedge_wins { 5 } else { AFTER + 5 };
        assert_eq!(answer(&mut operator, winner, 7, AFTER + 5), Handled::Final(took));
        assert_eq!(cancelled(&mut operator), [loser]);
        assert_eq!(answer(&mut operator, loser, 8, AFTER + 6), Handled::Ignored);
        assert_eq!(emitted(&mut operator), [(0, Ok(7))]);
        assert_eq!((operator.in_flight(), operator.poll_timeout()), (0, None));
        let metrics = metrics(&mut operator);
        assert_eq!((metrics.attempts, metrics.hedged, metrics.retries), (2, 1, 0));
        assert_eq!(metrics.hedges_won, u64::from(hedge_wins));
    }
}

#[test]
fn a_call_that_asks_to_be_tried_again_leaves_it_to_the_other() {
    for hedge_fails in [false, true] {
        let retry = Some(AsyncRetryStrategy::fixed_delay(1, Duration::from_nanos(3)));
        let mut operator = operator(Config { retry, ..config(4, 1.0) }, 1);
        let first = started(&mut operator)[0].1;
        let hedge = hedges(&mut operator, AFTER)[0].1;
        let (loser, other) = if hedge_fails { (hedge, first) } else { (first, hedge) };

        assert!(matches!(fail(&mut operator, loser, Retry::Yes, 15), Handled::Retried(_)));
        assert_eq!((operator.in_flight(), operator.pending_retries()), (1, 0));
        assert!(operator.awaits(other) && !operator.awaits(loser));
        assert!(matches!(fail(&mut operator, other, Retry::Yes, 16), Handled::Retried(_)));
        assert_eq!((operator.in_flight(), operator.pending_retries()), (0, 1));
        operator.handle_time(at(19));
        let second = started(&mut operator)[0].1;
        assert_eq!(second.attempt, 2, "a hedge is not a retry");
        answer(&mut operator, second, 7, 20);
        assert_eq!(emitted(&mut operator), [(0, Ok(7))]);
        assert_eq!(metrics(&mut operator).retries, 1);
    }
}

#[test]
fn a_failure_for_good_is_an_answer() {
    let mut operator = operator(config(4, 1.0), 1);
    let first = started(&mut operator)[0].1;
    let hedge = hedges(&mut operator, AFTER)[0].1;

    assert!(matches!(fail(&mut operator, hedge, Retry::No, 15), Handled::Final(_)));
    assert_eq!(cancelled(&mut operator), [first]);
    assert_eq!(emitted(&mut operator), [(0, Err(Failure::Function("failed")))]);
    assert_eq!(metrics(&mut operator).hedges_won, 0);
}

#[test]
fn a_record_that_times_out_loses_both_calls() {
    let timeout = Some(Duration::from_nanos(30));
    let mut operator = operator(Config { timeout, ..config(4, 1.0) }, 1);
    let first = started(&mut operator)[0].1;
    let hedge = hedges(&mut operator, AFTER)[0].1;

    operator.handle_time(at(30));

    assert_eq!(cancelled(&mut operator), [hedge, first]);
    assert_eq!((operator.in_flight(), metrics(&mut operator).cancelled), (0, 2));
    assert_eq!(emitted(&mut operator), [(0, Err(Failure::ended(Ended::TimedOut, None)))]);
}

#[test]
fn a_call_that_never_began_is_not_counted_as_cancelled() {
    let config = Config { begins: Begins::WhenSaid, ..config(4, 1.0) };
    let both = |ends: fn(&mut Operator, AttemptId)| {
        let mut operator = operator(config.clone(), 1);
        let first = started(&mut operator)[0].1;
        operator.handle_started(first, at(0), at(0));
        let hedge = hedges(&mut operator, AFTER)[0].1;
        ends(&mut operator, first);
        (cancelled(&mut operator), hedge, metrics(&mut operator).cancelled)
    };

    let (told, hedge, counted) = both(|operator, first| {
        answer(operator, first, 7, 13);
    });
    assert_eq!((told, counted), (vec![hedge], 0));
    let (told, _, counted) = both(|operator, _| operator.close());
    assert_eq!((told.len(), counted), (2, 1));
}

#[test]
fn each_of_the_calls_has_the_time_of_an_attempt() {
    let attempt_timeout = Some(Duration::from_nanos(20));
    let mut operator = operator(Config { attempt_timeout, ..config(4, 1.0) }, 1);
    let first = started(&mut operator)[0].1;
    let hedge = hedges(&mut operator, AFTER)[0].1;

    operator.handle_time(at(20));
    assert_eq!(cancelled(&mut operator), [first]);
    assert_eq!((operator.in_flight(), operator.poll_timeout()), (1, Some(at(30))));
    operator.handle_time(at(30));
    assert_eq!(cancelled(&mut operator), [hedge]);
    assert_eq!(emitted(&mut operator), [(0, Err(Failure::ended(Ended::AttemptTimedOut, None)))]);
}

#[test]
fn a_hedge_goes_before_new_records_and_leaves_one_credit_to_others() {
    let mut operator = operator(config(4, 1.0), 4);
    let calls = started(&mut operator);
    assert_eq!(hedges(&mut operator, AFTER), [], "no credit is free");

    answer(&mut operator, calls[0].1, 0, 11);
    assert_eq!(started(&mut operator).len(), 1, "before a new record");
    assert!(!operator.has_capacity());
    answer(&mut operator, calls[2].1, 0, 12);
    // Two records with two calls would hold all four.
    assert_eq!(started(&mut operator), []);
    emitted(&mut operator);
    assert!(operator.has_capacity());
    for calls in [1, 2] {
        let mut operator = self::operator(config(calls, 1.0), 1);
        assert_eq!(started(&mut operator).len(), 1);
        assert_eq!(hedges(&mut operator, AFTER), [], "{calls}");
    }
}

#[test]
fn so_many_calls_of_all_are_hedges_and_no_more() {
    let mut operator = operator(config(1000, 0.05), 500);
    started(&mut operator);

    // All are slow; ten were saved up.
    assert_eq!(hedges(&mut operator, AFTER).len(), 10);
}

#[test]
fn close_cancels_both_calls() {
    let mut operator = operator(config(4, 1.0), 1);
    let first = started(&mut operator)[0].1;
    let hedge = hedges(&mut operator, AFTER)[0].1;

    operator.close();

    assert_eq!(cancelled(&mut operator), [first, hedge]);
    assert_eq!(answer(&mut operator, hedge, 1, 12), Handled::Ignored);
}

#[test]
fn a_snapshot_knows_of_one_attempt() {
    let mut operator = operator(config(4, 1.0), 1);
    started(&mut operator);
    hedges(&mut operator, AFTER);

    let snapshot = operator.snapshot(at(11));
    let mut restored = Operator::restore(config(4, 1.0), snapshot, |_| None, at(0));

    let [(0, attempt)] = started(&mut restored)[..] else { panic!("one call") };
    assert_eq!(attempt.attempt, 1);
}

#[test]
fn a_call_counts_from_when_it_says_that_it_begins() {
    let mut operator = operator(Config { begins: Begins::WhenSaid, ..config(4, 1.0) }, 1);
    let first = started(&mut operator)[0].1;
    assert_eq!(operator.poll_timeout(), None);

    operator.handle_started(first, at(100), at(100));
    assert_eq!(operator.poll_timeout(), Some(at(100 + AFTER)));
    let hedge = hedges(&mut operator, 100 + AFTER)[0].1;
    operator.handle_started(hedge, at(115), at(115));
    assert_eq!(answer(&mut operator, hedge, 1, 120), Handled::Final(5));
}

#[test]
fn what_waits_behind_pairs_ages_once_nothing_answers() {
    let lost = || Completion::failed("lost", Retry::Yes, CallSign::Unreachable);
    let mut operator = operator(
        Config {
            attempt_timeout: Some(Duration::from_nanos(100)),
            max_wait: Some(Duration::from_nanos(7)),
            retry: Some(AsyncRetryStrategy::fixed_delay(3, Duration::from_nanos(11))),
            ..config(3, 1.0)
        },
        2,
    );
    let [_, (1, second)] = started(&mut operator)[..] else { panic!("two calls") };
    operator.handle_completion(second, lost(), at(5));
    let [(0, _)] = hedges(&mut operator, AFTER)[..] else { panic!("one hedge") };
    put(&mut operator, 2, 12);
    // The retry of the one that was lost has no permit: two calls of one record run, and one of another.
    operator.handle_time(at(16));
    assert_eq!((started(&mut operator).len(), operator.in_flight()), (1, 3));
    assert!(operator.channels.is_none());

    operator.handle_time(at(100));

    assert!(
        operator.channels.is_some(),
        "they are on a channel, which knows for how long they wait"
    );
}

fn with_channels(max_per_channel: u32, policy: &PolicyConfig) -> Config {
    let channels =
        ChannelConfig { max_per_channel, policy: *policy, ..ChannelConfig::floating(8, 100) };
    Config { channels: Some(channels), ..config(8, 1.0) }
}

#[test]
fn a_hedge_takes_a_credit_of_its_channel_before_those_that_wait() {
    let mut operator = operator(with_channels(4, &PolicyConfig::NONE), 14);
    let calls = started(&mut operator);
    assert_eq!(calls.len(), 8);
    assert_eq!(hedges(&mut operator, AFTER), []);

    answer(&mut operator, calls[0].1, 0, 11);

    // Of the channel that has a credit.
    let [(value, hedge)] = started(&mut operator)[..] else { panic!("one call") };
    assert!(hedge.is_hedge() && value % 2 == 0);
    // A second pair of this channel would hold all four of its credits.
    answer(&mut operator, calls[4].1, 0, 12);
    let [(value, next)] = started(&mut operator)[..] else { panic!("one call") };
    assert!(!next.is_hedge() && value % 2 == 0);
}

#[test]
fn a_hedge_that_waits_for_a_limit_starts_when_that_lets_it() {
    for (is_per_channel, is_single) in [(false, false), (true, false), (false, true)] {
        let rate = Rate::new(NonZeroU64::MIN, Duration::from_nanos(100)).unwrap();
        let burst = NonZeroU64::new(if is_per_channel { 1 } else { 2 }).unwrap();
        let limit = LimitConfig::new(Gcra::new(rate, burst));
        let policy = PolicyConfig::limited(LimitConfig { is_per_channel, ..limit });
        let mut config = with_channels(4, &policy);
        if is_single {
            config.channels = Some(ChannelConfig::single(policy));
        }
        let mut operator = operator(config, 2);
        assert_eq!(started(&mut operator).len(), 2);

        assert_eq!(hedges(&mut operator, AFTER), []);

        let mut begun = 0;
        while begun < 2 {
            let next = operator.poll_timeout().expect("a second call waits").as_nanos();
            assert!(next > AFTER && next <= 200, "per channel: {is_per_channel}, at {next}");
            begun += hedges(&mut operator, next).len();
        }
        // Who hands records to a single channel waits for its limit outside.
        assert!(is_single || operator.poll_timeout().is_none());
    }
}

#[test]
fn nothing_is_hedged_while_the_limit_of_its_channel_shrinks() {
    let limit = AdaptiveLimitConfig { initial: 8, min: 1, max: 8, max_latency: None };
    let policy = PolicyConfig { adaptive_limit: Some(limit), ..PolicyConfig::NONE };
    let mut operator = operator(with_channels(8, &policy), 6);
    let calls = started(&mut operator);

    fail(&mut operator, calls[0].1, Retry::After(Duration::from_secs(1)), 5);

    assert_eq!(hedges(&mut operator, AFTER).iter().filter(|(it, _)| it % 2 == 0).count(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Put,
    Answer(prop::sample::Index, u8),
    Wait(u64),
    Pop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Put),
        4 => (any::<prop::sample::Index>(), 0..4_u8).prop_map(|(call, how)| Step::Answer(call, how)),
        3 => (0..15_u64).prop_map(Step::Wait),
        1 => Just(Step::Pop),
    ]
}

proptest! {
    /// Of each record at most two calls run, each call ends once, no credit is lost, and whatever is
    /// answered first is what leaves.
    #[test]
    fn pairs_keep_to_their_rules(
        steps in prop::collection::vec(step(), 1..150),
        has_channels in any::<bool>(),
        has_timeouts in any::<bool>(),
        calls in 1..7_usize,
        max_extra in 0.0..1.0_f64,
    ) {
        let mut config = config(calls, max_extra);
        config.retry = Some(AsyncRetryStrategy::fixed_delay(2, Duration::from_nanos(4)));
        if has_timeouts {
            config.timeout = Some(Duration::from_nanos(60));
            config.attempt_timeout = Some(Duration::from_nanos(25));
        }
        if has_channels {
            let most = u32::try_from(calls).unwrap();
            config.channels = Some(ChannelConfig::floating(most, 5));
        }
        let mut operator = Operator::new(config);
        let (mut now, mut next) = (0, 0);
        let mut running: Vec<(AttemptId, u32)> = Vec::new();
        let (mut hedged, mut first_calls) = (0_u32, 0_u32);
        let mut ended = std::collections::HashSet::new();
        let finishing = std::iter::repeat_n(Step::Wait(100), 8).chain([Step::Pop]);
        for step in steps.into_iter().chain(finishing) {
            match step {
                Step::Put => if operator.has_capacity() {
                    put(&mut operator, next, now);
                    next += 1;
                },
                Step::Answer(call, how) => if !running.is_empty() {
                    let (attempt, value) = running.swap_remove(call.index(running.len()));
                    prop_assert!(operator.awaits(attempt));
                    let handled = match how {
                        0 => fail(&mut operator, attempt, Retry::Yes, now),
                        1 => fail(&mut operator, attempt, Retry::No, now),
                        _ => answer(&mut operator, attempt, value, now),
                    };
                    prop_assert!(handled != Handled::Ignored);
                    prop_assert!(!operator.awaits(attempt));
                },
                Step::Wait(nanos) => now += nanos,
                Step::Pop => {
                    for (value, outcome) in emitted(&mut operator) {
                        prop_assert!(ended.insert(value), "leaves twice");
                        prop_assert!(outcome.is_err() || outcome == Ok(value));
                    }
                }
            }
            operator.handle_time(at(now));
            let actions = std::mem::take(operator.actions());
            for it in actions.invoke {
                running.push((it.attempt, it.value));
                hedged += u32::from(it.attempt.is_hedge());
                first_calls += u32::from(!it.attempt.is_hedge());
            }
            for attempt in actions.cancel {
                prop_assert!(running.iter().any(|it| it.0 == attempt), "cancelled what did not run");
                running.retain(|it| it.0 != attempt);
            }
            prop_assert_eq!(operator.in_flight(), running.len());
            prop_assert!(running.len() <= calls);
            for (attempt, value) in &running {
                prop_assert!(operator.awaits(*attempt));
                prop_assert!(running.iter().filter(|it| it.1 == *value).count() <= 2);
            }
            let pairs = running.iter().filter(|it| it.0.is_hedge()).filter(|hedge| {
                running.iter().any(|it| it.0 == hedge.0.first())
            });
            prop_assert!(pairs.count() * 2 < calls.max(1));
            prop_assert!(f64::from(hedged) <= max_extra * f64::from(first_calls) + 1e-9);
        }
        operator.end_input(at(now));
        let mut rounds = 0;
        while !operator.is_finished() {
            for (attempt, value) in std::mem::take(&mut running) {
                answer(&mut operator, attempt, value, now);
            }
            now += 5;
            operator.handle_time(at(now));
            let actions = std::mem::take(operator.actions());
            running.extend(actions.invoke.iter().map(|it| (it.attempt, it.value)));
            running.retain(|it| !actions.cancel.contains(&it.0));
            for (value, _) in emitted(&mut operator) {
                prop_assert!(ended.insert(value), "leaves twice");
            }
            rounds += 1;
            prop_assert!(rounds < 1000, "never ends");
        }
        prop_assert_eq!(ended.len(), next as usize);
        prop_assert_eq!((operator.in_flight(), operator.active_timers()), (0, 0));
    }
}

/// Each call takes three permits, or each is a request that does.
fn limited(requests: Option<RequestConfig>) -> Config {
    let rate = Rate::new(NonZeroU64::new(97).unwrap(), Duration::from_nanos(7)).unwrap();
    let limit = LimitConfig::new(Gcra::new(rate, NonZeroU64::new(29).unwrap()));
    let limit = LimitConfig { cost: 3, is_per_request: requests.is_some(), ..limit };
    let mut policy = PolicyConfig { requests, ..PolicyConfig::NONE };
    policy.limits[0] = Some(limit);
    Config { channels: Some(ChannelConfig::single(policy)), ..config(4, 1.0) }
}

fn by_request() -> Config {
    limited(Some(RequestConfig { records: NonZeroU32::MIN, linger: Duration::ZERO }))
}

#[test]
fn each_of_two_calls_has_paid_for_its_own_request() {
    // Which of them are made, which answers, and whether the other one asks for another call before.
    for case in 0..16 {
        let [of_first, of_hedge, hedge_wins, retries] = [1, 2, 4, 8].map(|bit| case & bit > 0);
        let mut operator = operator(by_request(), 1);
        let [(_, first)] = started(&mut operator)[..] else { panic!("one call") };
        if of_first {
            operator.remark(first, Remark::Request, at(1));
        }
        let [(0, hedge)] = hedges(&mut operator, AFTER)[..] else { panic!("one hedge") };
        if of_hedge {
            operator.remark(hedge, Remark::Request, at(AFTER));
        }
        let (winner, loser) = if hedge_wins { (hedge, first) } else { (first, hedge) };
        if retries {
            fail(&mut operator, loser, Retry::Yes, AFTER + 3);
        }
        answer(&mut operator, winner, 7, AFTER + 5);

        let paid = operator.limit_metrics(at(AFTER + 5)).unwrap().permits[0];
        let made = u64::from(of_first) + u64::from(of_hedge);
        assert_eq!(paid, 3 * made, "{of_first} {of_hedge} {hedge_wins} {retries}");
    }
}

#[test]
fn a_second_call_that_nobody_has_seen_when_the_answer_comes_was_not_made() {
    for (begins, of) in [
        (Begins::AtOnce, limited(None)),
        (Begins::WhenSaid, limited(None)),
        (Begins::AtOnce, by_request()),
    ] {
        let mut operator = operator(Config { begins, ..of }, 1);
        let [(_, first)] = started(&mut operator)[..] else { panic!("one call") };
        operator.handle_started(first, at(0), at(0));
        operator.remark(first, Remark::Request, at(1));
        operator.handle_time(at(AFTER));
        assert_eq!(operator.in_flight(), 2);

        answer(&mut operator, first, 7, AFTER);

        assert_eq!((started(&mut operator), cancelled(&mut operator)), (vec![], vec![]));
        let metrics = metrics(&mut operator);
        assert_eq!((metrics.attempts, metrics.hedged, metrics.cancelled), (1, 0, 0));
        assert_eq!(metrics.in_flight, 0);
        assert_eq!(operator.limit_metrics(at(AFTER)).unwrap().permits[0], 3);
    }
}

#[test]
fn what_a_second_call_has_used_up_that_was_not_made_is_for_another_one() {
    // Two records earn one.
    let mut operator = operator(config(5, 0.5), 2);
    let [(_, first), _] = started(&mut operator)[..] else { panic!("two calls") };
    operator.handle_time(at(AFTER));
    assert_eq!(operator.in_flight(), 3);

    answer(&mut operator, first, 7, AFTER);

    let [(value, hedge)] = started(&mut operator)[..] else { panic!("one call") };
    assert!(value == 1 && hedge.is_hedge());
}

/// The calls that wait for a function.
#[derive(Debug, Default)]
struct Waiting(Mutex<Vec<AttemptId>>);

impl Recall for Waiting {
    fn take_back(&self, call: AttemptId) -> bool {
        let mut waiting = self.0.lock().unwrap();
        let place = waiting.iter().position(|it| *it == call);
        place.map(|it| waiting.remove(it)).is_some()
    }
}

#[test]
fn a_call_that_its_function_has_not_seen_is_taken_back_and_was_not_made() {
    for (begins, has_seen) in
        [Begins::AtOnce, Begins::WhenSaid].into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let waiting = Arc::new(Waiting::default());
        let recall = Some(Arc::clone(&waiting) as Arc<dyn Recall>);
        let mut operator = operator(Config { begins, recall, ..limited(None) }, 1);
        let [(_, first)] = started(&mut operator)[..] else { panic!("one call") };
        operator.handle_started(first, at(0), at(0));
        let [(_, hedge)] = hedges(&mut operator, AFTER)[..] else { panic!("one hedge") };
        if !has_seen {
            waiting.0.lock().unwrap().push(hedge);
        }

        answer(&mut operator, first, 7, AFTER + 1);

        let recalled = std::mem::take(&mut operator.actions().recalled);
        let told = if has_seen { (vec![], vec![hedge]) } else { (vec![hedge], vec![]) };
        assert_eq!((recalled, cancelled(&mut operator)), told);
        let has_begun = u64::from(has_seen && begins == Begins::AtOnce);
        let metrics = metrics(&mut operator);
        let counted = (metrics.attempts, metrics.hedged, metrics.cancelled);
        assert_eq!(counted, (1 + has_begun, has_begun, has_begun));
        let paid = operator.limit_metrics(at(AFTER + 1)).unwrap().permits[0];
        assert_eq!(paid, 3 * (1 + u64::from(has_seen)));
    }
}

#[test]
fn a_record_that_times_out_before_its_function_has_seen_it_was_not_called() {
    let waiting = Arc::new(Waiting::default());
    let recall = Some(Arc::clone(&waiting) as Arc<dyn Recall>);
    let timeout = Some(Duration::from_nanos(AFTER - 3));
    let mut operator = operator(Config { timeout, recall, ..limited(None) }, 1);
    waiting.0.lock().unwrap().extend(started(&mut operator).iter().map(|it| it.1));

    operator.handle_time(at(AFTER));

    let Some(StreamElement::Record(ended)) = operator.pop_output() else { panic!("one record") };
    assert_eq!((ended.attempts, ended.outcome), (0, Err(Failure::ended(Ended::TimedOut, None))));
    let metrics = metrics(&mut operator);
    assert_eq!((metrics.attempts, metrics.cancelled, metrics.timeouts), (0, 0, 1));
    assert_eq!(operator.limit_metrics(at(AFTER)).unwrap().permits[0], 0);
}

#[test]
fn calls_that_nobody_has_seen_at_the_end_were_not_made() {
    let mut operator = operator(config(5, 1.0), 2);
    let [(_, seen), _] = started(&mut operator)[..] else { panic!("two calls") };
    operator.handle_time(at(AFTER));
    put(&mut operator, 2, AFTER);
    assert_eq!(operator.in_flight(), 5);

    operator.close();

    assert_eq!((started(&mut operator), cancelled(&mut operator).len()), (vec![], 2));
    let metrics = metrics(&mut operator);
    assert_eq!((metrics.attempts, metrics.hedged, metrics.cancelled), (2, 0, 2));
    assert!(!operator.awaits(seen));
}

#[test]
fn each_of_two_calls_has_its_own_cost() {
    for hedge_wins in [false, true] {
        let mut operator = operator(limited(None), 1);
        let [(_, first)] = started(&mut operator)[..] else { panic!("one call") };
        let [(0, hedge)] = hedges(&mut operator, AFTER)[..] else { panic!("one hedge") };
        operator.remark(first, Remark::Cost { limit: 0, cost: 5 }, at(AFTER + 3));
        operator.remark(hedge, Remark::Cost { limit: 0, cost: 11 }, at(AFTER + 3));
        let (winner, loser) = if hedge_wins { (hedge, first) } else { (first, hedge) };
        fail(&mut operator, loser, Retry::Yes, AFTER + 3);
        answer(&mut operator, winner, 7, AFTER + 3);

        let paid = operator.limit_metrics(at(AFTER + 5)).unwrap().permits[0];
        assert_eq!(paid, 5 + 11, "{hedge_wins}");
    }
}
