// SPDX-License-Identifier: Apache-2.0
//! An operator and a service that reports what is left of its limits; somebody else uses half of
//! them. On a manual clock.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]
#![expect(clippy::cast_precision_loss, reason = "shares of small numbers")]

use std::collections::BinaryHeap;
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use sparkawait_core::element::{Key, StreamElement, StreamRecord};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{
    AsyncWaitOperator, AttemptId, Completion, Config, EndOfInput, FailurePolicy, OutputMode,
    Remark, Retry,
};
use sparkawait_core::policy::{
    CallSign, Costs, Counted, Gcra, LimitConfig, LimitLeft, PolicyConfig, Price, Rate, Renewal,
};
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::time::ProcessingTime;

const MINUTE: u64 = 60_000_000_000;

/// A limit of the service, in thousandths of what it counts.
struct Bucket {
    per_minute: u64,
    renewal: Renewal,
    left: u64,
    /// When it was last looked at, or its window began.
    since: u64,
    granted: u64,
}

impl Bucket {
    const fn new(per_minute: u64, renewal: Renewal) -> Self {
        Self { per_minute, renewal, left: per_minute * 1000, since: 0, granted: 0 }
    }

    fn look(&mut self, now: u64) {
        let whole = self.per_minute * 1000;
        match self.renewal {
            Renewal::AtOnce if now >= self.since + MINUTE => {
                self.left = whole;
                self.since = now / MINUTE * MINUTE;
            }
            Renewal::AtOnce => {}
            Renewal::Evenly => {
                let rest = u128::from(now - self.since) * u128::from(whole) / u128::from(MINUTE);
                self.left = whole.min(self.left + u64::try_from(rest).unwrap());
                self.since = now;
            }
        }
    }

    fn told(&self, counted: Counted, now: u64) -> LimitLeft {
        let missing = u128::from(self.per_minute * 1000 - self.left);
        let nanos = match self.renewal {
            Renewal::AtOnce => self.since + MINUTE - now,
            Renewal::Evenly => {
                let nanos = missing * u128::from(MINUTE) / u128::from(self.per_minute * 1000);
                u64::try_from(nanos).unwrap()
            }
        };
        let renewed_in = Duration::from_nanos(nanos);
        LimitLeft { counted, remaining: self.left / 1000, renewed_in, renewal: self.renewal }
    }

    /// Returns when `cost` is there.
    fn has_again(&self, cost: u64, now: u64) -> Duration {
        let missing = u128::from((cost * 1000).saturating_sub(self.left));
        let nanos = missing * u128::from(MINUTE) / u128::from(self.per_minute * 1000);
        match self.renewal {
            Renewal::AtOnce if missing > 0 => Duration::from_nanos(self.since + MINUTE - now),
            _ => Duration::from_nanos(u64::try_from(nanos).unwrap()),
        }
    }
}

/// What happens next, at a point in time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A call arrives that was made for a record.
    Arrival(AttemptId, u64),
    /// Its answer: whether it is refused, and for how long; and what is left.
    Answer(AttemptId, Option<Duration>, [LimitLeft; 2]),
    /// A call of the other client.
    Other,
}

struct Timed(u64, u64, Event);

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}

/// Numbers without an order.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 24
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }
}

/// A service and its two clients.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    requests: u64,
    tokens: u64,
    /// Tokens of a call.
    call: (u64, u64),
    renewal: Renewal,
    /// Milliseconds of a call.
    takes: (u64, u64),
    minutes: u64,
    /// Among which the records are divided; none with 0.
    channels: u64,
    seed: u64,
}

/// What the run gave.
#[derive(Debug)]
struct Outcome {
    calls: u64,
    refused: u64,
    /// The part of what the scarcer limit had that was used.
    used: f64,
}

impl Case {
    fn costs(self, record: u64) -> u64 {
        let mut random = Random(record ^ self.seed);
        random.next();
        random.between(self.call.0, self.call.1)
    }

    fn operator(self) -> AsyncWaitOperator<u64, (), ()> {
        let limit = |per_minute: u64, counted| {
            let period = Duration::from_nanos(MINUTE);
            let rate = Rate::new(NonZeroU64::new(per_minute).unwrap(), period).unwrap();
            let limit = Gcra::new(rate, rate.permits_in(Duration::from_secs(1)));
            Some(LimitConfig { counted: Some(counted), ..LimitConfig::new(limit) })
        };
        let mut policy = PolicyConfig::NONE;
        policy.limits[0] = limit(self.requests, Counted::Requests);
        policy.limits[1] = limit(self.tokens, Counted::Tokens);
        let mut config = Config::new(OutputMode::Unordered, NonZeroUsize::new(100).unwrap());
        config.timeout = Some(Duration::from_secs(600));
        config.on_failure = FailurePolicy::Emit;
        config.at_end_of_input = EndOfInput::KeepRetrying;
        config.retry = Some(AsyncRetryStrategy::fixed_delay(20, Duration::from_millis(100)));
        config.channels = Some(match self.channels {
            0 => ChannelConfig::single(policy),
            _ => ChannelConfig { policy, ..ChannelConfig::floating(100, 1_000) },
        });
        AsyncWaitOperator::new(config)
    }

    fn run(self, tells: bool) -> Outcome {
        let mut world = World::new(self, tells);
        world.push(0, Event::Other);
        while world.now < self.minutes * MINUTE {
            world.go_on();
        }
        // A bucket is full at the beginning.
        let minutes = self.minutes + u64::from(self.renewal == Renewal::Evenly);
        let used = |it: &Bucket| it.granted as f64 / (it.per_minute * minutes) as f64;
        let used = world.buckets.iter().map(used).fold(0.0, f64::max);
        Outcome { calls: world.calls, refused: world.refused, used }
    }
}

struct World {
    case: Case,
    /// Whether replies say what is left.
    tells: bool,
    random: Random,
    operator: AsyncWaitOperator<u64, (), ()>,
    buckets: [Bucket; 2],
    events: BinaryHeap<Timed>,
    number: u64,
    next: u64,
    now: u64,
    calls: u64,
    refused: u64,
}

impl World {
    fn new(case: Case, tells: bool) -> Self {
        let bucket = |per_minute| Bucket::new(per_minute, case.renewal);
        Self {
            case,
            tells,
            random: Random(case.seed),
            operator: case.operator(),
            buckets: [bucket(case.requests), bucket(case.tokens)],
            events: BinaryHeap::new(),
            number: 0,
            next: 0,
            now: 0,
            calls: 0,
            refused: 0,
        }
    }

    fn push(&mut self, nanos: u64, event: Event) {
        self.number += 1;
        self.events.push(Timed(self.now + nanos, self.number, event));
    }

    /// Returns the nanoseconds of so many tenths of a call.
    fn part(&mut self, tenths: u64) -> u64 {
        self.random.between(self.case.takes.0, self.case.takes.1) * 100_000 * tenths
    }

    fn at(&self) -> ProcessingTime {
        ProcessingTime::from_nanos(self.now)
    }

    /// Has the operator call, and does what happens next.
    fn go_on(&mut self) {
        let (case, at) = (self.case, self.at());
        self.operator.handle_time(at);
        while self.operator.free_slots() > 0 {
            let price = Price::Of(Costs::NONE.with(0, 1).with(1, case.costs(self.next)));
            let channel = (case.channels > 0).then(|| Key::new(self.next % case.channels.max(1)));
            let record = StreamRecord::new(self.next, None);
            self.operator.process_element_for(price, channel, record, None, at).unwrap();
            self.next += 1;
        }
        for call in std::mem::take(&mut self.operator.actions().invoke) {
            let way = self.part(1);
            self.push(way, Event::Arrival(call.attempt, call.value));
        }
        self.operator.actions().cancel.clear();
        while let Some(element) = self.operator.pop_output() {
            let StreamElement::Record(emitted) = element else { continue };
            assert!(emitted.outcome.is_ok(), "{}: a record has failed", case.name);
        }
        let due = self.operator.poll_timeout().map_or(u64::MAX, ProcessingTime::as_nanos);
        let then = self.events.peek().map_or(u64::MAX, |it| it.0);
        self.now = self.now.max(then.min(due));
        if then <= self.now
            && let Some(Timed(_, _, event)) = self.events.pop()
        {
            for bucket in &mut self.buckets {
                bucket.look(self.now);
            }
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        let at = self.at();
        match event {
            Event::Arrival(attempt, record) => self.arrive(attempt, record),
            Event::Answer(attempt, refusal, left) => {
                for left in left.into_iter().filter(|it| !it.renewed_in.is_zero()) {
                    let remark = Remark::Left { left, is_of_channel: false };
                    if self.tells {
                        self.operator.remark(attempt, remark, at);
                    }
                }
                let completion = match refusal {
                    None => Completion::answered((), Retry::No),
                    Some(delay) => {
                        self.operator.remark(attempt, Remark::Pause(delay), at);
                        Completion::failed((), Retry::After(delay), CallSign::Overloaded)
                    }
                };
                self.operator.handle_completion(attempt, completion, at);
            }
            Event::Other => {
                let (least, most) = self.case.call;
                let tokens = self.random.between(least, most);
                self.grant([1, tokens]);
                // It asks for half of what the scarcer one has.
                let tokens = MINUTE / self.case.tokens * u64::midpoint(least, most);
                let pause = 2 * (MINUTE / self.case.requests).max(tokens);
                let pause = self.random.between(0, 2 * pause);
                self.push(pause, Event::Other);
            }
        }
    }

    fn arrive(&mut self, attempt: AttemptId, record: u64) {
        self.calls += 1;
        let refusal = self.grant([1, self.case.costs(record)]);
        self.refused += u64::from(refusal.is_some());
        let [requests, tokens] = &self.buckets;
        let left =
            [requests.told(Counted::Requests, self.now), tokens.told(Counted::Tokens, self.now)];
        let way = self.part(if refusal.is_some() { 1 } else { 9 });
        self.push(way, Event::Answer(attempt, refusal, left));
    }

    /// Takes what a call costs; else returns when that is there.
    fn grant(&mut self, costs: [u64; 2]) -> Option<Duration> {
        let waits = self.buckets.iter().zip(costs).map(|(it, cost)| it.has_again(cost, self.now));
        let wait = waits.max().filter(|it| !it.is_zero());
        if wait.is_none() {
            for (bucket, cost) in self.buckets.iter_mut().zip(costs) {
                bucket.left -= cost * 1000;
                bucket.granted += cost;
            }
        }
        wait
    }
}

const CASES: [Case; 6] = [
    Case {
        name: "tokens are scarce",
        requests: 3_000,
        tokens: 600_000,
        call: (200, 1_000),
        renewal: Renewal::Evenly,
        takes: (200, 2_000),
        minutes: 10,
        channels: 0,
        seed: 1,
    },
    Case {
        name: "requests are scarce",
        requests: 600,
        tokens: 2_000_000,
        call: (10, 200),
        renewal: Renewal::Evenly,
        takes: (20, 80),
        minutes: 10,
        channels: 0,
        seed: 2,
    },
    Case {
        name: "few large calls",
        requests: 500,
        tokens: 30_000,
        call: (400, 1_200),
        renewal: Renewal::Evenly,
        takes: (500, 4_000),
        minutes: 20,
        channels: 0,
        seed: 3,
    },
    Case {
        name: "many small calls",
        requests: 60_000,
        tokens: 6_000_000,
        call: (20, 220),
        renewal: Renewal::Evenly,
        takes: (50, 150),
        minutes: 4,
        channels: 3,
        seed: 4,
    },
    Case {
        name: "tokens in windows",
        requests: 3_000,
        tokens: 600_000,
        call: (200, 1_000),
        renewal: Renewal::AtOnce,
        takes: (200, 2_000),
        minutes: 10,
        channels: 0,
        seed: 5,
    },
    Case {
        name: "requests in windows",
        requests: 6_000,
        tokens: 9_000_000,
        call: (10, 200),
        renewal: Renewal::AtOnce,
        takes: (20, 80),
        minutes: 10,
        channels: 2,
        seed: 6,
    },
];

#[test]
fn few_calls_are_refused_and_little_is_left_over_where_somebody_else_uses_half() {
    for case in CASES {
        let outcome = case.run(true);

        let (share, name) = (outcome.refused as f64 / outcome.calls as f64, case.name);
        assert!(share <= 0.01, "{name}: {share} refused of {outcome:?}");
        assert!(outcome.used >= 0.9, "{name}: {outcome:?}");
    }
}

#[test]
fn without_what_the_service_says_many_are_refused() {
    // Of a window they all wait for the end, once one of them was refused.
    for case in CASES.iter().filter(|it| it.renewal == Renewal::Evenly) {
        let outcome = case.run(false);

        let share = outcome.refused as f64 / outcome.calls as f64;
        assert!(share > 0.03, "{}: {share} refused of {outcome:?}", case.name);
    }
}
