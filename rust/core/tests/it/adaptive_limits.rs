// SPDX-License-Identifier: Apache-2.0
//! Destinations that bear so many calls and refuse the others, under an operator that finds out.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use proptest::prelude::*;
use sparkawait_core::element::{Key, StreamElement, StreamRecord};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{
    AttemptId, Completion, Config, FailurePolicy, Handled, OutputMode, Retry,
};
use sparkawait_core::policy::{AdaptiveLimitConfig, CallSign, PolicyConfig};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::{AsyncWaitOperator, ProcessingTime};

const TICK: u64 = 1_000;

type Operator = AsyncWaitOperator<(u64, u32), u32, ()>;

/// An operator, and destinations that answer each call in the next tick.
struct Bench {
    operator: Operator,
    /// Calls that each destination bears.
    bears: BTreeMap<u64, usize>,
    now: ProcessingTime,
    admitted: u32,
    emitted: Vec<u32>,
    refused: u32,
}

fn config(adaptive: AdaptiveLimitConfig) -> Config {
    let capacity = NonZeroUsize::new(100).unwrap();
    Config {
        retry: Some(AsyncRetryStrategy::fixed_delay(10_000, Duration::from_nanos(TICK))),
        on_failure: FailurePolicy::Emit,
        channels: Some(ChannelConfig {
            exclusive: 1,
            floating: 97,
            max_per_channel: 50,
            max_backlog: 2_000,
            policy: PolicyConfig { adaptive_limit: Some(adaptive), ..PolicyConfig::NONE },
            ..ChannelConfig::floating(100, 0)
        }),
        ..Config::new(OutputMode::Unordered, capacity)
    }
}

impl Bench {
    fn new(adaptive: AdaptiveLimitConfig, bears: &[(u64, usize)]) -> Self {
        Self {
            operator: AsyncWaitOperator::new(config(adaptive)),
            bears: bears.iter().copied().collect(),
            now: ProcessingTime::ZERO,
            admitted: 0,
            emitted: Vec::new(),
            refused: 0,
        }
    }

    /// Admits records of all destinations in turn while there is room, and up to `most` in all.
    fn admit(&mut self, most: u32) {
        while self.operator.free_slots() > 0 && self.admitted < most {
            let destination = u64::from(self.admitted) % self.bears.len() as u64;
            let record = StreamRecord::new((destination, self.admitted), None);
            let channel = Some(Key::new(destination + 1));
            self.operator.process_element_on(channel, record, None, self.now).unwrap();
            self.admitted += 1;
        }
    }

    /// Answers all calls that run, and lets time pass.
    fn tick(&mut self) {
        let calls = std::mem::take(&mut self.operator.actions().invoke);
        self.now = self.now + Duration::from_nanos(TICK);
        let mut taken = BTreeMap::<u64, usize>::new();
        for call in calls {
            let (destination, number) = call.value;
            let place = taken.entry(destination).or_default();
            *place += 1;
            let is_borne = *place <= self.bears[&destination];
            self.refused += u32::from(!is_borne);
            self.answer(call.attempt, is_borne.then_some(number).ok_or(()));
        }
        self.operator.handle_time(self.now);
        while let Some(element) = self.operator.pop_output() {
            let StreamElement::Record(emitted) = element else { continue };
            self.emitted.push(emitted.outcome.unwrap());
        }
    }

    fn answer(&mut self, attempt: AttemptId, outcome: Result<u32, ()>) {
        let completion = match outcome {
            Ok(number) => Completion::answered(number, Retry::No),
            Err(()) => Completion::failed((), Retry::Yes, CallSign::Overloaded),
        };
        let handled = self.operator.handle_completion(attempt, completion, self.now);
        assert!(!matches!(handled, Handled::Ignored));
    }

    /// The limit and the calls of each destination that is known.
    fn limits(&self) -> BTreeMap<u64, (u32, u32)> {
        let (report, _) = self.operator.channel_report(usize::MAX, self.now).unwrap();
        let destination = |key: Key| key.as_u64() - 1;
        let limits = report.top.iter();
        limits.map(|it| (destination(it.key.unwrap()), (it.limit, it.in_flight))).collect()
    }
}

#[test]
fn each_channel_finds_what_its_destination_bears() {
    let adaptive = AdaptiveLimitConfig { initial: 1, min: 1, max: 50, max_latency: None };
    let mut bench = Bench::new(adaptive, &[(0, 10), (1, usize::MAX)]);
    for _ in 0..100 {
        bench.admit(u32::MAX);
        bench.tick();
    }

    let limits = bench.limits();

    assert!((8..=12).contains(&limits[&0].0), "{limits:?}");
    assert_eq!(limits[&1].0, 50, "as many as one channel may have");
    let share = f64::from(bench.refused) / f64::from(bench.admitted);
    assert!(share < 0.05, "{share} of the calls were refused");
}

#[test]
fn a_fixed_limit_is_what_it_was() {
    let adaptive = AdaptiveLimitConfig { initial: 7, min: 7, max: 7, max_latency: None };
    let mut bench = Bench::new(adaptive, &[(0, 10), (1, 0)]);
    for _ in 0..20 {
        bench.admit(u32::MAX);
        bench.tick();
    }

    assert!(bench.limits().values().all(|(limit, _)| *limit == 7));
}

#[test]
fn a_channel_that_was_forgotten_begins_anew() {
    let adaptive = AdaptiveLimitConfig { initial: 10, min: 1, max: 50, max_latency: None };
    let destinations: Vec<_> = (0..20_000).map(|it| (it, 0)).collect();
    let mut bench = Bench::new(adaptive, &destinations);
    bench.admit(1);
    bench.tick();
    assert_eq!(bench.limits()[&0].0, 9);
    bench.bears.values_mut().for_each(|it| *it = 1);
    while bench.admitted < 20_001 {
        bench.admit(20_001);
        bench.tick();
    }

    // The last record is of the first destination again; it was refused once.
    let limits = bench.limits();

    assert!(limits.len() < 12_000, "{} channels are remembered", limits.len());
    assert!(limits[&0].0 >= 10, "{:?}", limits[&0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_record_leaves_once_and_limits_hold(
        bears in prop::collection::vec(1_usize..60, 1..12),
        (min, initial) in (1_u32..4, 1_u32..60),
    ) {
        let adaptive = AdaptiveLimitConfig { initial, min, max: 60, max_latency: None };
        let bears: Vec<_> = (0..).zip(bears).collect();
        let mut bench = Bench::new(adaptive, &bears);
        for _ in 0..3_000 {
            bench.admit(2_000);
            let mut in_flight = 0;
            for (limit, calls) in bench.limits().values() {
                prop_assert!((min..=50).contains(limit));
                in_flight += calls;
            }
            prop_assert!(in_flight <= 100);
            if bench.emitted.len() == 2_000 {
                break;
            }
            bench.tick();
        }
        bench.emitted.sort_unstable();
        prop_assert!(bench.emitted.iter().copied().eq(0..2_000), "{}", bench.emitted.len());
    }
}
