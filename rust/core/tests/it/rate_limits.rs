// SPDX-License-Identifier: Apache-2.0
//! An operator whose calls are limited in time, on a manual clock: nobody is too late, and nothing is
//! called too early.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::VecDeque;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::time::Duration;

use sparkawait_core::element::{Key, StreamElement, StreamRecord};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{
    AsyncWaitOperator, AttemptId, Completion, Config, EndOfInput, FailurePolicy, OutputMode,
    Remark, Retry,
};
use sparkawait_core::policy::{
    CallSign, Costs, Gcra, HedgeAfter, HedgeConfig, LimitConfig, PolicyConfig, Price, Rate,
    RequestConfig,
};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::time::ProcessingTime;

const CALL: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);

fn limit(permits: u64, period: Duration, burst: u64) -> LimitConfig {
    let rate = Rate::new(NonZeroU64::new(permits).unwrap(), period).unwrap();
    LimitConfig::new(Gcra::new(rate, NonZeroU64::new(burst).unwrap()))
}

fn policy(limits: &[LimitConfig]) -> PolicyConfig {
    let mut config = PolicyConfig::NONE;
    for (place, limit) in config.limits.iter_mut().zip(limits) {
        *place = Some(*limit);
    }
    config
}

/// Records that all are there at once, and a service that answers after `CALL`.
struct World {
    operator: AsyncWaitOperator<u64, (), ()>,
    config: Config,
    now: ProcessingTime,
    calls: VecDeque<(ProcessingTime, AttemptId, u64)>,
    /// When each call was made, and for which record.
    made: Vec<(Duration, u64)>,
    emitted: Vec<(u64, bool)>,
    /// What a record is.
    price: fn(u64) -> Price,
    channels: u64,
    /// What a call has cost of limit number 0, if it says so.
    actual: Option<fn(u64) -> u64>,
    /// What was taken of it and did not come back, and the most that may be at the start of a call.
    ledger: u64,
    most: fn(Duration) -> u64,
    /// Whether a request begins with a record, if somebody says so.
    requests_of: Option<IsFirst>,
    /// What a call comes to, by record and attempt.
    answer: fn(u64, u32) -> Completion<(), ()>,
}

fn estimate_of(price: Price) -> u64 {
    match price {
        Price::Usual => 1,
        Price::Of(costs) => costs.of(0),
    }
}

fn good(_: u64, _: u32) -> Completion<(), ()> {
    Completion::answered((), Retry::No)
}

impl World {
    fn new(mode: OutputMode, policy: &PolicyConfig, channels: u64) -> Self {
        Self::with(mode, policy, channels, |_| {})
    }

    fn with(
        mode: OutputMode,
        policy: &PolicyConfig,
        channels: u64,
        adapt: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = Config::new(mode, NonZeroUsize::new(800).unwrap());
        config.max_concurrency = NonZeroUsize::new(100).unwrap();
        config.timeout = Some(TIMEOUT);
        config.on_failure = FailurePolicy::Emit;
        config.at_end_of_input = EndOfInput::KeepRetrying;
        config.channels = Some(match channels {
            0 => ChannelConfig::single(*policy),
            _ => ChannelConfig { policy: *policy, ..ChannelConfig::floating(100, 10_000) },
        });
        adapt(&mut config);
        Self {
            operator: AsyncWaitOperator::new(config.clone()),
            config,
            now: ProcessingTime::ZERO,
            calls: VecDeque::new(),
            made: Vec::new(),
            emitted: Vec::new(),
            price: |_| Price::Usual,
            channels,
            actual: None,
            requests_of: None,
            ledger: 0,
            most: |_| u64::MAX,
            answer: good,
        }
    }

    fn start(&mut self) {
        let invoked = std::mem::take(&mut self.operator.actions().invoke);
        for call in invoked {
            if self.requests_of.is_some_and(|it| it(call.value)) {
                self.operator.remark(call.attempt, Remark::Request, self.now);
            }
            let since = self.now.saturating_since(ProcessingTime::ZERO);
            self.made.push((since, call.value));
            self.ledger += estimate_of((self.price)(call.value));
            assert!(self.ledger <= (self.most)(since), "{} at {since:?}", self.ledger);
            self.calls.push_back((self.now + CALL, call.attempt, call.value));
        }
        self.operator.actions().cancel.clear();
    }

    /// Lets `records` records pass; their values count from 0.
    fn run(&mut self, records: u64) {
        let mut next = 0;
        while !self.operator.is_finished() {
            while next < records && self.operator.free_slots() > 0 {
                let channel = (self.channels > 0).then(|| Key::new(next % self.channels.max(1)));
                let (record, price) = (StreamRecord::new(next, None), (self.price)(next));
                let key = Some(Key::new(next % 3));
                let put = self.operator.process_element_for(price, channel, record, key, self.now);
                put.unwrap();
                next += 1;
                self.start();
            }
            if next == records {
                self.operator.end_input(self.now);
            }
            let due = self.operator.poll_timeout();
            let answered = self.calls.front().map(|it| it.0);
            let Some(then) = due.into_iter().chain(answered).min() else { continue };
            self.now = self.now.max(then);
            while self.calls.front().is_some_and(|it| it.0 <= self.now) {
                let (_, attempt, value) = self.calls.pop_front().unwrap();
                if let Some(actual) = self.actual {
                    let remark = Remark::Cost { limit: 0, cost: actual(value) };
                    self.operator.remark(attempt, remark, self.now);
                    self.ledger -= estimate_of((self.price)(value));
                    self.ledger += actual(value);
                }
                let answer = (self.answer)(value, attempt.attempt);
                self.operator.handle_completion(attempt, answer, self.now);
                self.start();
            }
            self.operator.handle_time(self.now);
            self.start();
            while let Some(element) = self.operator.pop_output() {
                let StreamElement::Record(emitted) = element else { continue };
                self.emitted.push((emitted.record.value, emitted.outcome.is_ok()));
            }
        }
    }

    fn failed(&self) -> usize {
        self.emitted.iter().filter(|it| !it.1).count()
    }

    /// The most that was made in any `time`.
    fn most_in(&self, time: Duration, cost: impl Fn(u64) -> u64) -> u64 {
        let in_window = |from: Duration| {
            let made = self.made.iter().filter(|it| it.0 >= from && it.0 < from + time);
            made.map(|it| cost(it.1)).sum()
        };
        self.made.iter().map(|it| in_window(it.0)).max().unwrap_or_default()
    }
}

const MODES: [OutputMode; 3] = [OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered];

#[test]
fn a_job_that_is_slower_than_its_limit_fails_no_record() {
    let slow = policy(&[limit(10, Duration::from_secs(60), 1)]);
    for mode in MODES {
        for channels in [0, 1, 7] {
            let mut world = World::new(mode, &slow, channels);

            world.run(100);

            assert_eq!((world.emitted.len(), world.failed()), (100, 0), "{mode:?} {channels}");
            let starts: Vec<u64> = world.made.iter().map(|it| it.0.as_secs()).collect();
            assert_eq!(starts, (0..100).map(|it| it * 6).collect::<Vec<_>>());
        }
    }
}

#[test]
fn no_second_has_more_calls_than_rate_and_burst_and_none_has_fewer_than_the_rate() {
    for mode in MODES {
        for channels in [0, 5] {
            let mut world = World::new(mode, &policy(&[limit(50, SECOND, 20)]), channels);

            world.run(400);

            assert_eq!((world.emitted.len(), world.failed()), (400, 0));
            let most = world.most_in(SECOND, |_| 1);
            assert!((50..=70).contains(&most), "{most} calls in a second, {mode:?} {channels}");
            let took = world.made.last().unwrap().0;
            assert!(took <= SECOND * (400 - 20) / 50 + CALL, "{took:?} {mode:?} {channels}");
        }
    }
}

#[test]
fn channels_share_a_limit_in_turn_or_have_one_each() {
    let shared = policy(&[limit(10, SECOND, 1)]);
    let mut world = World::new(OutputMode::Unordered, &shared, 4);
    world.run(80);
    let channels: Vec<u64> = world.made.iter().map(|it| it.1 % 4).collect();
    for turn in channels.chunks(4) {
        let mut turn = turn.to_vec();
        turn.sort_unstable();
        assert_eq!(turn, [0, 1, 2, 3]);
    }

    let own = LimitConfig { is_per_channel: true, ..limit(10, SECOND, 1) };
    let mut world = World::new(OutputMode::Unordered, &policy(&[own]), 4);
    world.run(80);
    assert_eq!(world.failed(), 0);
    assert_eq!(world.most_in(Duration::from_millis(100), |_| 1), 4);
    assert_eq!(world.made.last().unwrap().0, Duration::from_millis(1900));
}

#[test]
fn a_call_waits_for_all_its_limits_and_pays_what_it_costs() {
    let (calls, tokens) = (limit(10, SECOND, 10), limit(100, SECOND, 30));
    for channels in [0, 3] {
        let mut world = World::new(OutputMode::Ordered, &policy(&[calls, tokens]), channels);
        // One in five needs as many tokens as twenty others.
        world.price = |it| Price::Of(Costs::NONE.with(0, 1).with(1, cost(it)));

        world.run(200);

        assert_eq!((world.emitted.len(), world.failed()), (200, 0));
        assert!(world.most_in(SECOND, |_| 1) <= 20);
        // A call above the burst waits for the whole of it.
        assert!(world.most_in(SECOND, cost) <= 100 + 60, "{}", world.most_in(SECOND, cost));
        let all: u64 = (0..200).map(cost).sum();
        let took = u64::try_from(world.made.last().unwrap().0.as_millis()).unwrap();
        assert!(took <= all * 10, "{took} ms for {all} tokens");
    }
}

#[test]
fn each_of_six_limits_is_kept() {
    // By its number each makes another one the slowest of them.
    for slowest in 0..6 {
        let limits: Vec<_> = (0..6)
            .map(|it| if it == slowest { limit(7, SECOND, 3) } else { limit(331, SECOND, 13) })
            .collect();
        for channels in [0, 3] {
            let mut world = World::new(OutputMode::Unordered, &policy(&limits), channels);
            world.run(60);

            assert_eq!((world.emitted.len(), world.failed()), (60, 0));
            let most = world.most_in(SECOND, |_| 1);
            // Three at once, and those that come in a second.
            assert!((9..=10).contains(&most), "{most}: limit {slowest}, {channels} channels");
            let permits = world.operator.limit_metrics(world.now).unwrap().permits;
            assert_eq!(permits, [60; 6]);
        }
    }
}

const fn cost(record: u64) -> u64 {
    if record.is_multiple_of(5) { 60 } else { 3 }
}

#[test]
fn a_retry_pays_and_a_call_that_was_not_made_does_not() {
    let retries = |config: &mut Config| {
        config.retry = Some(AsyncRetryStrategy::fixed_delay(1, Duration::from_millis(1)));
    };
    let slow = policy(&[limit(10, SECOND, 1)]);
    let mut world = World::with(OutputMode::Unordered, &slow, 0, retries);
    world.answer = |_, attempt| match attempt {
        1 => Completion::failed((), Retry::Yes, CallSign::Unreachable),
        _ => Completion::answered((), Retry::No),
    };
    world.run(20);
    assert_eq!((world.failed(), world.made.len()), (0, 40));
    assert!(world.most_in(SECOND, |_| 1) <= 11);

    // Those that turn out not to be calls give their permits back.
    let mut world = World::new(OutputMode::Unordered, &slow, 3);
    world.answer =
        |_, _| Completion { outcome: Ok(()), retry: Retry::No, sign: CallSign::NotCalled };
    world.run(300);
    assert_eq!(world.failed(), 0);
    assert_eq!(world.operator.limit_metrics(world.now).unwrap().permits[0], 0);
}

#[test]
fn a_call_is_settled_by_what_it_really_cost() {
    let mut operator = World::new(OutputMode::Unordered, &policy(&[limit(10, SECOND, 10)]), 0);
    let (operator, now) = (&mut operator.operator, ProcessingTime::ZERO);
    for value in 0..2 {
        operator.process_element(StreamRecord::new(value, None), None, now).unwrap();
    }
    let calls = std::mem::take(&mut operator.actions().invoke);
    for (call, cost) in calls.iter().zip([9, 0]) {
        operator.remark(call.attempt, Remark::Cost { limit: 0, cost }, now);
        operator.handle_completion(call.attempt, good(0, 1), now);
    }
    assert_eq!(operator.free_slots(), 1, "10 permits less 9");
    assert_eq!(operator.limit_metrics(now).unwrap().permits[0], 9);
}

#[test]
fn a_call_that_was_not_sent_gives_its_permits_back_though_it_failed() {
    let limits = [limit(7, SECOND, 7), limit(11, SECOND, 11)];
    let mut world = World::new(OutputMode::Unordered, &policy(&limits), 0);
    let (operator, now) = (&mut world.operator, ProcessingTime::ZERO);
    for value in 0..5 {
        operator.process_element(StreamRecord::new(value, None), None, now).unwrap();
    }

    for call in std::mem::take(&mut operator.actions().invoke) {
        if call.value != 3 {
            operator.remark(call.attempt, Remark::NotSent, now);
        }
        let ended = Completion::failed((), Retry::No, CallSign::Unreachable);
        operator.handle_completion(call.attempt, ended, now);
    }

    let metrics = operator.limit_metrics(now).unwrap();
    assert_eq!(metrics.permits[..2], [1, 1], "of the one that may have been carried out");
}

#[test]
fn a_call_that_is_said_to_have_cost_more_than_one_may_pays_what_one_may() {
    let mut world = World::new(OutputMode::Unordered, &policy(&[limit(7, SECOND, 7)]), 0);
    let (operator, now) = (&mut world.operator, ProcessingTime::ZERO);
    operator.process_element(StreamRecord::new(3, None), None, now).unwrap();
    let call = operator.actions().invoke.pop().unwrap().attempt;

    operator.remark(call, Remark::Cost { limit: 0, cost: 1 << 53 }, now);
    operator.handle_completion(call, good(0, 1), now);

    let metrics = operator.limit_metrics(now).unwrap();
    assert_eq!((metrics.permits[0], metrics.cut_costs), (7 * 3_600, 1));
    let hour = Duration::from_secs(3_600);
    assert!(metrics.longest_hold.abs_diff(hour) < 2 * SECOND, "{metrics:?}");
    operator.handle_time(now + hour + SECOND);
    assert_eq!(operator.free_slots(), 7);
}

/// Has a world put its records together as their requests are: by ten, or after 5 ms.
fn by_request(bucket: LimitConfig, channels: u64) -> World {
    let mut policy = policy(&[LimitConfig { is_per_request: true, ..bucket }]);
    let records = NonZeroU32::new(10).unwrap();
    policy.requests = Some(RequestConfig { records, linger: Duration::from_millis(5) });
    World::new(OutputMode::Unordered, &policy, channels)
}

/// Whether a request begins with a record.
type IsFirst = fn(u64) -> bool;

#[test]
fn records_go_along_with_a_request_that_one_of_them_has_paid_for() {
    // Every tenth record of each channel.
    let cases: [(u64, IsFirst); 2] =
        [(0, |it| it.is_multiple_of(10)), (4, |it| (it / 4).is_multiple_of(10))];
    for (channels, is_first) in cases {
        let mut world = by_request(limit(100, SECOND, 2), channels);
        world.requests_of = Some(is_first);

        world.run(200);

        assert_eq!((world.emitted.len(), world.failed()), (200, 0));
        let all = world.operator.limit_metrics(world.now).unwrap().permits[0];
        // 50 records of a channel make five requests.
        assert_eq!(all, 20, "{channels} channels");
        // Two at once, and then one each 10 ms.
        let last = world.made.last().unwrap().0;
        assert!(last >= Duration::from_millis(10) * 17, "{last:?}");
        let most = world.most_in(Duration::from_millis(10), |_| 1);
        assert!(most <= 30, "{most} of {channels} channels, {:?}", &world.made[..60]);
    }
}

#[test]
fn records_go_along_with_a_request_that_costs_more_than_the_burst() {
    let dear = LimitConfig { cost: 5, ..limit(100, SECOND, 1) };
    for channels in [0, 4] {
        let mut world = by_request(dear, channels);
        world.requests_of = Some(if channels == 0 {
            |it| it.is_multiple_of(10)
        } else {
            |it| (it / 4).is_multiple_of(10)
        });

        world.run(80);

        assert_eq!((world.emitted.len(), world.failed()), (80, 0));
        assert_eq!(world.operator.limit_metrics(world.now).unwrap().permits[0], 40);
    }
}

#[test]
fn requests_that_are_made_beyond_those_paid_for_are_charged_and_others_come_back() {
    // Twice as many as were guessed.
    let mut world = by_request(limit(100, SECOND, 2), 0);
    world.requests_of = Some(|it| it % 5 == 0);
    world.run(200);
    assert_eq!(world.operator.limit_metrics(world.now).unwrap().permits[0], 40);
    assert!(world.made.last().unwrap().0 >= Duration::from_millis(10) * 34);

    // None at all: nobody was called.
    let mut world = by_request(limit(100, SECOND, 2), 0);
    world.requests_of = Some(|_| false);
    world.run(200);
    assert_eq!(
        (world.failed(), world.operator.limit_metrics(world.now).unwrap().permits[0]),
        (0, 0)
    );
}

type Amount = fn(u64) -> u64;

/// Numbers without an order.
const fn mixed(record: u64) -> u64 {
    (record + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
}

const fn tokens(record: u64) -> u64 {
    1 + mixed(record) % 100
}

#[test]
fn what_calls_have_cost_is_never_above_the_limit_and_uses_it_up() {
    let cases: [(&str, Amount); 3] = [
        ("less", |it| mixed(it ^ 0x4D) % (tokens(it) + 1)),
        ("less or more", |it| mixed(it ^ 0x4D) % (2 * tokens(it))),
        ("much more", |it| 3 * tokens(it)),
    ];
    // There are few keys, so rows would wait for those.
    let modes = [OutputMode::Ordered, OutputMode::Unordered];
    for ((name, actual), mode) in cases.iter().flat_map(|it| modes.map(|mode| (it, mode))) {
        for channels in [0, 1, 7] {
            let bucket = policy(&[limit(10_000, SECOND, 500)]);
            let mut world = World::new(mode, &bucket, channels);
            world.price = |it| Price::Of(Costs::NONE.with(0, tokens(it)));
            world.actual = Some(*actual);
            // 500 at once, and 10 a millisecond.
            world.most = |since| 500 + u64::try_from(since.as_micros()).unwrap() / 100 + 1;

            world.run(2000);

            assert_eq!((world.emitted.len(), world.failed()), (2000, 0), "{name} {mode:?}");
            let all: u64 = (0..2000).map(actual).sum();
            assert_eq!(world.operator.limit_metrics(world.now).unwrap().permits[0], all);
            let (took, needed) = (world.made.last().unwrap().0, Duration::from_micros(all * 100));
            assert!(took < needed * 20 / 19, "{took:?}, {needed:?} at the rate: {name} {mode:?}");
        }
    }
}

#[test]
fn a_limit_that_reserves_the_usual_learns_it_from_30_calls() {
    let dear = LimitConfig { cost: 331, is_usual: true, ..limit(1_000, SECOND, 331) };
    for channels in [0, 3] {
        let mut world = World::new(OutputMode::Unordered, &policy(&[dear]), channels);
        world.actual = Some(|it| 7 + 2 * (it % 3));

        world.run(200);

        assert_eq!((world.emitted.len(), world.failed()), (200, 0), "channels: {channels}");
        // One at a time as long as each takes the whole burst, and then as many as it is eleven each.
        let starts: Vec<Duration> = world.made.iter().map(|it| it.0).collect();
        assert!(starts[..30].windows(2).all(|it| it[0] + CALL <= it[1]), "{starts:?}");
        let at_once = starts.iter().filter(|it| **it == starts[30]).count();
        assert!((331 / 11 - 2..=331 / 11).contains(&at_once), "{at_once}");
        let all: u64 = (0..200).map(|it| 7 + 2 * (it % 3)).sum();
        assert_eq!(world.operator.limit_metrics(world.now).unwrap().permits[0], all);
    }
}

#[test]
fn of_two_calls_of_a_record_each_costs_what_it_says_and_one_that_is_cut_off_what_it_was_charged() {
    let after = HedgeAfter::Time(CALL);
    let mut world =
        World::with(OutputMode::Unordered, &policy(&[limit(1_000, SECOND, 1_000)]), 0, |it| {
            it.hedge = Some(HedgeConfig { after, max_extra: 1.0 });
        });
    let (operator, start) = (&mut world.operator, ProcessingTime::ZERO);
    let price = Price::Of(Costs::NONE.with(0, 10));
    operator.process_element_for(price, None, StreamRecord::new(0, None), None, start).unwrap();
    operator.handle_time(start + CALL);
    let calls = std::mem::take(&mut operator.actions().invoke);
    assert_eq!(calls.len(), 2);

    let remark = Remark::Cost { limit: 0, cost: 3 };
    operator.remark(calls[1].attempt, remark, start + 2 * CALL);
    operator.handle_completion(calls[1].attempt, good(0, 1), start + 2 * CALL);

    assert_eq!(operator.limit_metrics(start + 2 * CALL).unwrap().permits[0], 10 + 3);
}

#[test]
fn records_that_are_taken_up_again_pay_what_they_cost() {
    let bucket = policy(&[limit(10, SECOND, 30)]);
    let mut before = World::new(OutputMode::Ordered, &bucket, 3).operator;
    let config = World::new(OutputMode::Ordered, &bucket, 3);
    for value in 0..4 {
        let record = StreamRecord::new(value, None);
        let price = Price::Of(Costs::NONE.with(0, 10));
        before.process_element_for(price, None, record, None, ProcessingTime::ZERO).unwrap();
    }
    let snapshot = before.snapshot(ProcessingTime::ZERO);
    let place_of = |_: &u64| (None, Price::Of(Costs::NONE.with(0, 15)));
    let start = ProcessingTime::ZERO;

    let mut after =
        AsyncWaitOperator::restore_on(config.config, snapshot, place_of, |_| None, start);

    assert_eq!(after.actions().invoke.len(), 2);
    assert_eq!(after.limit_metrics(start).unwrap().permits[0], 30);
}

#[test]
fn no_record_times_out_in_the_line_of_a_destination_that_answers() {
    let fast = policy(&[limit(1_000, SECOND, 1_000)]);
    let mut world = World::with(OutputMode::Unordered, &fast, 1, |config| {
        config.max_concurrency = NonZeroUsize::MIN;
        config.channels = config.channels.map(|it| ChannelConfig { max_per_channel: 1, ..it });
    });
    world.run(300);
    // One call at a time, 20 ms each: the last one waits for longer than its timeout of 5 s.
    assert_eq!((world.failed(), world.emitted.len()), (0, 300));
}
