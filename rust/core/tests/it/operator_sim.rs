// SPDX-License-Identifier: Apache-2.0
//! The whole operator against its model, for any sequence of what a driver may tell it.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::FileFailurePersistence;
use sparkawait_core::element::{StreamElement, Timestamp, Watermark};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{
    AsyncWaitOperator, AttemptId, Completion, Config, EndOfInput, FailurePolicy, OutputMode,
    Remark, Retry,
};
use sparkawait_core::policy::{
    AdaptiveLimitConfig, CallSign, Gcra, LimitConfig, PauseConfig, PolicyConfig, Price, Rate,
    RetryBudgetConfig,
};
use sparkawait_core::retry::{AsyncRetryStrategy, Jitter};
use sparkawait_core::time::ProcessingTime;

use crate::support::held_model::{key_of, record};
use crate::support::operator_model::{Model, Operator};

/// What a call says.
#[derive(Clone, Copy, Debug)]
struct Answer {
    is_good: bool,
    retry: Retry,
    /// For how long it asks not to be called.
    pause: Option<Duration>,
}

impl Answer {
    fn sign(self) -> CallSign {
        match (self.is_good, self.retry) {
            (true, _) => CallSign::Good,
            (false, Retry::No) => CallSign::Neutral,
            (false, Retry::Yes | Retry::IfRepeatable) => CallSign::Unreachable,
            (false, Retry::After(_)) => CallSign::Overloaded,
            (false, Retry::InPart { .. }) => CallSign::Divided,
        }
    }
}

/// What changes when an operator is restored.
#[derive(Clone, Debug)]
struct Shape {
    mode: OutputMode,
    capacity: NonZeroUsize,
    max_concurrency: NonZeroUsize,
    /// Counts only if there was a timeout before.
    timeout: Duration,
}

/// What a driver does. An operation that is not permitted at its time is left out.
#[derive(Clone, Debug)]
enum Op {
    /// Offers a record with one of three keys, or without one; its channel changes every four.
    Put(u32),
    Watermark(i64),
    /// Answers any call ever started: awaited, answered before, replaced, timed out, cancelled.
    AnswerAny(Index, Answer),
    /// Answers a call that is awaited.
    Answer(Index, Answer),
    /// Time passes, which the operator is not told.
    Advance(u64),
    /// Time passes up to what comes due next.
    AdvanceToTimeout,
    HandleTime,
    Pop,
    PopAll,
    Replay,
    /// Takes a snapshot, and goes on with another operator and another clock.
    Restore(Shape, u64),
    EndInput,
    /// Changes how many calls may be in flight.
    SetWindow(NonZeroUsize),
    Close,
}

fn retries() -> impl Strategy<Value = Retry> {
    prop_oneof![
        2 => Just(Retry::No),
        2 => Just(Retry::Yes),
        1 => Just(Retry::IfRepeatable),
        1 => (0_u64..30).prop_map(|nanos| Retry::After(Duration::from_nanos(nanos))),
        1 => (0_u32..7).prop_map(|records| Retry::InPart { records }),
    ]
}

fn answers() -> impl Strategy<Value = Answer> {
    let pause = (0_u64..30).prop_map(Duration::from_nanos);
    let pause = prop::option::weighted(0.05, pause);
    (any::<bool>(), retries(), pause).prop_map(|(is_good, retry, pause)| Answer {
        is_good,
        retry,
        pause,
    })
}

fn shapes() -> impl Strategy<Value = Shape> {
    let modes = select(vec![OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered]);
    let positive = |range: std::ops::Range<usize>| range.prop_map(|it| it.try_into().unwrap());
    let timeout = (5_u64..40).prop_map(Duration::from_nanos);
    (modes, positive(1..7), positive(1..5), timeout).prop_map(
        |(mode, capacity, max_concurrency, timeout)| Shape {
            mode,
            capacity,
            max_concurrency,
            timeout,
        },
    )
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        24 => (0_u32..4).prop_map(Op::Put),
        6 => (0_i64..9).prop_map(Op::Watermark),
        6 => (any::<Index>(), answers()).prop_map(|(call, answer)| Op::AnswerAny(call, answer)),
        16 => (any::<Index>(), answers()).prop_map(|(call, answer)| Op::Answer(call, answer)),
        6 => (0_u64..12).prop_map(Op::Advance),
        8 => Just(Op::AdvanceToTimeout),
        14 => Just(Op::HandleTime),
        10 => Just(Op::Pop),
        8 => Just(Op::PopAll),
        6 => Just(Op::Replay),
        3 => (shapes(), any::<u32>()).prop_map(|(it, now)| Op::Restore(it, now.into())),
        6 => (1_usize..6).prop_map(|calls| Op::SetWindow(calls.try_into().unwrap())),
        1 => Just(Op::EndInput),
    ]
}

fn sequences() -> impl Strategy<Value = Vec<Op>> {
    let last = prop_oneof![2 => Just(Op::EndInput), 1 => Just(Op::Close)];
    let tail = prop::collection::vec(prop_oneof![1 => last, 8 => ops()], 0..30);
    (prop::collection::vec(ops(), 0..80), tail).prop_map(|(mut sequence, tail)| {
        sequence.extend(tail);
        sequence
    })
}

fn retry_strategies() -> impl Strategy<Value = AsyncRetryStrategy> {
    let jitter = select(vec![Jitter::None, Jitter::Full]);
    (0_u32..4, 0_u64..6, 1.0..3.0, jitter).prop_map(|(max_retries, initial, multiplier, jitter)| {
        let initial = Duration::from_nanos(initial);
        let maximum = Duration::from_nanos(10);
        AsyncRetryStrategy::exponential_backoff(max_retries, initial, maximum, multiplier, jitter)
    })
}

fn rate_limits() -> impl Strategy<Value = LimitConfig> {
    let period = (1_u64..20).prop_map(Duration::from_nanos);
    (1_u64..4, period, 1_u64..4, 1_u64..3, any::<bool>()).prop_map(
        |(permits, period, burst, cost, is_per_channel)| {
            let rate = Rate::new(permits.try_into().unwrap(), period).unwrap();
            let limit = Gcra::new(rate, burst.try_into().unwrap());
            LimitConfig { cost, is_per_channel, ..LimitConfig::new(limit) }
        },
    )
}

fn policies() -> impl Strategy<Value = PolicyConfig> {
    let limit = (1_u32..4, 1_u32..3, 1_u32..5).prop_map(|(initial, min, max)| {
        AdaptiveLimitConfig { initial, min, max: max.max(min), max_latency: None }
    });
    let nanos = |range: std::ops::Range<u64>| range.prop_map(Duration::from_nanos);
    let pause = (1_u32..4, nanos(2..12), nanos(12..30), 1_u32..4, any::<bool>()).prop_map(
        |(drops, initial, maximum, most, refuses)| {
            let config = PauseConfig::new(Some(drops), most, 7);
            PauseConfig { initial, maximum, refuses, ..config }
        },
    );
    let (limit, pause) = (prop::option::of(limit), prop::option::of(pause));
    let (first, second) = (prop::option::of(rate_limits()), prop::option::of(rate_limits()));
    let is_rate_adaptive = prop::bool::weighted(0.2);
    let budget = prop::option::of(budgets());
    (limit, pause, first, second, is_rate_adaptive, budget).prop_map(
        |(adaptive_limit, pause, first, second, is_rate_adaptive, retry_budget)| PolicyConfig {
            adaptive_limit,
            pause,
            limits: [first, None, None, None, None, second],
            is_rate_adaptive,
            retry_budget,
            requests: None,
        },
    )
}

fn budgets() -> impl Strategy<Value = RetryBudgetConfig> {
    // Tokens come in time, since there may be no timeout; none is ever too old.
    (select(vec![0.0, 0.3, 1.0]), select(vec![10_000_000, 300_000_000])).prop_map(
        |(ratio, min_per_second)| RetryBudgetConfig {
            lasts: Duration::from_secs(1_000_000),
            ..RetryBudgetConfig::new(ratio, min_per_second)
        },
    )
}

fn channels() -> impl Strategy<Value = ChannelConfig> {
    let policy = prop_oneof![Just(PolicyConfig::NONE), policies()];
    let single = policies().prop_map(ChannelConfig::single);
    prop_oneof![
        3 => (spread_channels(), policy).prop_map(|(it, policy)| ChannelConfig { policy, ..it }),
        1 => single,
    ]
}

fn spread_channels() -> impl Strategy<Value = ChannelConfig> {
    let bounds = (1_usize..7, 0_u32..5);
    (0_u32..3, 0_u32..5, 0_u32..5, bounds).prop_map(
        |(exclusive, floating, max_per_channel, (max_backlog, max_backlog_per_channel))| {
            ChannelConfig {
                exclusive,
                floating,
                max_per_channel,
                max_backlog,
                max_backlog_per_channel,
                policy: PolicyConfig::NONE,
                is_single: false,
            }
        },
    )
}

fn configs() -> impl Strategy<Value = Config> {
    let has_timeout = prop::bool::weighted(0.7);
    let attempt_timeout = prop::option::of((1_u64..12).prop_map(Duration::from_nanos));
    let retry = prop::option::weighted(0.7, retry_strategies());
    let on_failure =
        prop_oneof![3 => Just(FailurePolicy::Emit), 1 => Just(FailurePolicy::FailTask)];
    let at_end = select(vec![EndOfInput::LastAttempt, EndOfInput::KeepRetrying]);
    let max_wait = prop::option::weighted(0.3, (1_u64..60).prop_map(Duration::from_nanos));
    let channels = prop::option::of(channels());
    let bounds = (channels, prop::option::of(budgets()), any::<bool>(), max_wait);
    let rest = (any::<bool>(), any::<u64>(), on_failure, at_end, bounds);
    (shapes(), has_timeout, attempt_timeout, retry, rest).prop_map(
        |(shape, has_timeout, attempt_timeout, retry, rest)| Config {
            max_concurrency: shape.max_concurrency,
            timeout: has_timeout.then_some(shape.timeout),
            attempt_timeout,
            retry,
            asks_on_timeout: rest.0,
            seed: rest.1,
            on_failure: rest.2,
            at_end_of_input: rest.3,
            channels: rest.4.0,
            // Of channels it is a part of what bounds these.
            retry_budget: rest.4.1.filter(|_| rest.4.0.is_none()),
            is_repeatable: rest.4.2,
            max_wait: rest.4.3,
            ..Config::new(shape.mode, shape.capacity)
        },
    )
}

/// The operator and its model, side by side.
struct Simulation {
    operator: Operator,
    model: Model,
    /// Every call and every question of this operator, with the record's value.
    calls: Vec<(AttemptId, u32)>,
    /// Records offered.
    offered: u32,
    admitted: HashSet<u32>,
    emitted: HashSet<u32>,
    input_ended: bool,
}

impl Simulation {
    fn new(config: Config) -> Self {
        let now = ProcessingTime::from_nanos(5);
        Self {
            operator: AsyncWaitOperator::new(config.clone()),
            model: Model::new(config, now),
            calls: Vec::new(),
            offered: 0,
            admitted: HashSet::new(),
            emitted: HashSet::new(),
            input_ended: false,
        }
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Put(key) if !self.input_ended => self.put(*key),
            Op::Watermark(timestamp) if !self.input_ended => {
                self.operator.process_watermark(Watermark(Timestamp(*timestamp)));
                self.model.put_watermark(Watermark(Timestamp(*timestamp)));
            }
            Op::AnswerAny(call, answer) if !self.calls.is_empty() => {
                self.answer(*call.get(&self.calls), *answer);
            }
            Op::Answer(call, answer) => {
                let awaited = self.awaited();
                if !awaited.is_empty() {
                    self.answer(*call.get(&awaited), *answer);
                }
            }
            Op::Advance(nanos) => self.model.now = self.model.now + Duration::from_nanos(*nanos),
            Op::AdvanceToTimeout => {
                let next = self.operator.poll_timeout().unwrap_or_default();
                self.model.now = self.model.now.max(next);
            }
            Op::HandleTime => self.handle_time(),
            Op::Pop => drop(self.pop()),
            Op::PopAll => while self.pop() {},
            Op::Replay => self.replay(),
            Op::Restore(shape, now) if self.operator.failure().is_none() => {
                self.restore(shape, ProcessingTime::from_nanos(*now));
            }
            Op::EndInput => self.end_input(),
            Op::SetWindow(calls) => {
                self.operator.set_window(*calls, self.model.now);
                self.model.set_window(*calls);
            }
            Op::Close => {
                self.operator.close();
                self.model.close();
            }
            Op::Put(_) | Op::Watermark(_) | Op::AnswerAny(..) | Op::Restore(..) => {}
        }
        self.settle();
    }

    /// Carries out the actions and compares.
    fn settle(&mut self) {
        let actions = std::mem::take(self.operator.actions());
        let started = actions.invoke.iter().chain(&actions.ask_timeout);
        self.calls.extend(started.map(|it| (it.attempt, it.value)));
        self.model.learn(actions, &self.operator);
        self.model.check(&mut self.operator);
        for &(attempt, value) in &self.calls {
            assert_eq!(self.operator.awaits(attempt), self.model.awaits(attempt, value));
        }
    }

    fn put(&mut self, key: u32) {
        let value = self.offered * 4 + key;
        self.offered += 1;
        // What a policy says now was said of the time that the operator knows.
        let is_admitted = if self.model.is_single() {
            self.operator.has_capacity()
        } else {
            self.model.accepts()
        };
        self.model.offer(value);
        let (operator, now) = (&mut self.operator, self.model.now);
        let channel = self.model.channel(value);
        let put = operator.process_element_on(channel, record(value), key_of(value), now);
        assert_eq!(
            put.map_err(|full| full.element),
            is_admitted.then_some(()).ok_or(record(value))
        );
        if is_admitted {
            self.model.put(value);
            self.admitted.insert(value);
        }
    }

    fn awaited(&self) -> Vec<(AttemptId, u32)> {
        let calls = self.calls.iter().copied();
        calls.filter(|(attempt, value)| self.model.awaits(*attempt, *value)).collect()
    }

    fn answer(&mut self, (attempt, value): (AttemptId, u32), answer: Answer) {
        let reply = (value, attempt.attempt);
        let outcome = if answer.is_good { Ok(reply) } else { Err(reply) };
        let completion = Completion { outcome, retry: answer.retry, sign: answer.sign() };
        if let Some(delay) = answer.pause {
            self.model.pause(attempt, value, delay);
            self.operator.remark(attempt, Remark::Pause(delay), self.model.now);
        }
        let expected = self.model.complete(attempt, value, completion);
        let handled = self.operator.handle_completion(attempt, completion, self.model.now);
        assert_eq!(handled, expected);
    }

    fn handle_time(&mut self) {
        self.operator.handle_time(self.model.now);
        self.model.handle_time();
    }

    fn pop(&mut self) -> bool {
        let output = self.operator.pop_output();
        let value = match &output {
            Some(StreamElement::Record(emitted)) => Some(emitted.record.value),
            Some(StreamElement::Watermark(_)) | None => None,
        };
        assert_eq!(output, self.model.pop(value));
        if let Some(StreamElement::Record(emitted)) = &output {
            assert!(self.emitted.insert(emitted.record.value), "{emitted:?} leaves twice");
        }
        output.is_some()
    }

    fn replay(&mut self) {
        self.operator.replay(self.model.now);
        self.model.admit_replayed();
    }

    fn end_input(&mut self) {
        self.input_ended = true;
        self.operator.end_input(self.model.now);
        self.model.end_input();
    }

    fn restore(&mut self, shape: &Shape, now: ProcessingTime) {
        let snapshot = self.operator.snapshot(self.model.now);
        assert_eq!(snapshot, self.model.snapshot());
        let Shape { mode, capacity, max_concurrency, timeout } = *shape;
        let old = self.model.config.clone();
        let timeout = old.timeout.map(|_| timeout);
        let config = Config { mode, capacity, max_concurrency, timeout, ..old };
        self.calls.clear();
        self.model = Model::restore(config.clone(), snapshot.clone(), now);
        let (model, key_of) = (&self.model, |it: &u32| key_of(*it));
        let place_of = |it: &u32| (model.channel(*it), Price::Usual);
        self.operator = AsyncWaitOperator::restore_on(config, snapshot, place_of, key_of, now);
        self.settle();
        if self.input_ended {
            self.end_input();
        }
    }

    /// Ends the input; then all that is held ends, too.
    fn finish(&mut self, waits_for_answers: bool) {
        self.run(&Op::EndInput);
        for step in 0.. {
            if self.operator.is_finished() {
                return;
            }
            assert!(step < 10_000, "what is held does not end");
            self.run(&Op::PopAll);
            self.run(&Op::Replay);
            let answers = self.awaited();
            let is_bounded = self.model.config.timeout.is_some();
            let is_asked = answers.iter().any(|(attempt, _)| attempt.attempt == AttemptId::TIMEOUT);
            if !answers.is_empty() && (waits_for_answers || is_asked || !is_bounded) {
                for call in answers {
                    self.answer(call, Answer { is_good: true, retry: Retry::No, pause: None });
                    self.settle();
                }
            } else if !self.operator.has_output() && !self.operator.is_finished() {
                self.operator.poll_timeout().expect("something will happen");
                self.run(&Op::AdvanceToTimeout);
                self.run(&Op::HandleTime);
            }
        }
    }

    /// Each admitted record has left, or is held by an operator that was closed or has failed.
    fn account(&mut self) {
        let held: HashSet<u32> = self.model.values().into_iter().collect();
        assert!(held.is_disjoint(&self.emitted));
        assert_eq!(&held | &self.emitted, self.admitted);
        let is_failed = self.operator.take_failure().is_some();
        assert!(held.is_empty() || self.model.is_closed());
        assert!(!is_failed || self.model.config.on_failure == FailurePolicy::FailTask);
    }
}

/// Fewer or more cases by the environment variable `PROPTEST_CASES`.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|it| it.parse().ok());
    let file = FileFailurePersistence::Direct("proptest-regressions/operator_sim.txt");
    ProptestConfig {
        cases: cases.unwrap_or(5_000),
        failure_persistence: Some(Box::new(file)),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_sequence_of_operations_agrees_with_the_model(
        config in configs(),
        sequence in sequences(),
        waits_for_answers in any::<bool>(),
    ) {
        let mut simulation = Simulation::new(config);
        for op in &sequence {
            simulation.run(op);
        }
        simulation.finish(waits_for_answers);
        simulation.account();
    }
}
