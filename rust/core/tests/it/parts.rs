// SPDX-License-Identifier: Apache-2.0
//! Calls of several records each, which fail because of some of them: the records are called again in
//! parts, until those at fault are alone. On a manual clock.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, HashMap};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::time::Duration;

use sparkawait_core::element::{Key, StreamElement, StreamRecord};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{
    AsyncWaitOperator, AttemptId, Begins, Completion, Config, Failure, FailurePolicy, OutputMode,
    Remark, Retry,
};
use sparkawait_core::policy::{
    CallSign, Gcra, LimitConfig, PolicyConfig, Rate, RequestConfig, RetryBudgetConfig,
};
use sparkawait_core::queue::EntryId;
use sparkawait_core::retry::{AsyncRetryStrategy, Jitter};
use sparkawait_core::time::ProcessingTime;

const CALL: Duration = Duration::from_millis(7);
const LINGER: Duration = Duration::from_millis(5);
const SECOND: Duration = Duration::from_secs(1);

const fn is_bad(value: u64) -> bool {
    value % 16 == 7
}

/// Records of one channel that wait to go together: those of no part, or of one.
type Line = (ProcessingTime, Vec<(AttemptId, u64)>);

/// An operator, and a function that makes a call of up to `records` of its records.
struct World {
    operator: AsyncWaitOperator<u64, (), u64>,
    records: usize,
    now: ProcessingTime,
    lines: BTreeMap<(u64, u64), Line>,
    channels: u64,
    /// The parts of records, and how many of each have not come back.
    part_of: HashMap<EntryId, u64>,
    missing: BTreeMap<u64, usize>,
    /// The calls that were made, by when they end.
    calls: BTreeMap<(ProcessingTime, usize), Vec<(AttemptId, u64)>>,
    /// When each of them was made, and for which records.
    made: Vec<(ProcessingTime, Vec<u64>)>,
    /// Records that were handed over.
    handed: Vec<ProcessingTime>,
    emitted: Vec<(u64, u32, Result<(), Failure<u64>>)>,
    /// What a record at fault asks for that is alone.
    retry: Retry,
}

impl World {
    fn new(records: u32, adapt: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(OutputMode::Unordered, NonZeroUsize::new(800).unwrap());
        config.timeout = Some(3 * SECOND);
        config.on_failure = FailurePolicy::Emit;
        adapt(&mut config);
        Self {
            operator: AsyncWaitOperator::new(config),
            records: records as usize,
            now: ProcessingTime::ZERO,
            lines: BTreeMap::new(),
            channels: 0,
            part_of: HashMap::new(),
            missing: BTreeMap::new(),
            calls: BTreeMap::new(),
            made: Vec::new(),
            handed: Vec::new(),
            emitted: Vec::new(),
            retry: Retry::No,
        }
    }

    /// Takes what the operator hands over.
    fn start(&mut self) {
        for call in std::mem::take(&mut self.operator.actions().invoke) {
            let part = self.part_of.remove(&call.attempt.entry).unwrap_or_default();
            self.missing.entry(part).and_modify(|it| *it -= 1);
            let place = (part, call.value % self.channels.max(1));
            let line = self.lines.entry(place).or_insert((self.now + LINGER, Vec::new()));
            line.1.push((call.attempt, call.value));
            self.handed.push(self.now);
        }
        self.operator.actions().cancel.clear();
        let (now, most) = (self.now, self.records);
        let is_whole = |part: u64| self.missing.get(&part) == Some(&0);
        let is_due = |((part, _), it): &(&(u64, u64), &Line)| {
            it.0 <= now || it.1.len() >= most || is_whole(*part)
        };
        let due: Vec<_> = self.lines.iter().filter(is_due).map(|it| *it.0).collect();
        for part in due {
            let (since, mut records) = self.lines.remove(&part).unwrap();
            let rest = records.split_off(records.len().min(most));
            if !rest.is_empty() {
                self.lines.insert(part, (since, rest));
            }
            self.operator.remark(records[0].0, Remark::Request, now);
            self.made.push((now, records.iter().map(|it| it.1).collect()));
            self.calls.insert((now + CALL, self.made.len()), records);
        }
    }

    /// Ends a call; its records are answered, or called again in halves.
    fn end(&mut self, records: &[(AttemptId, u64)]) {
        let Some(bad) = records.iter().find(|it| is_bad(it.1)).map(|it| it.1) else {
            for (attempt, _) in records {
                let good = Completion::answered((), Retry::No);
                self.operator.handle_completion(*attempt, good, self.now);
            }
            return;
        };
        if let [(attempt, value)] = records {
            let failed = Completion::failed(*value, self.retry, self.retry.sign());
            self.operator.handle_completion(*attempt, failed, self.now);
            return;
        }
        let (one, other) = records.split_at(records.len() / 2);
        for half in [one, other] {
            let part = self.made.len() as u64 * 2 + u64::from(half.as_ptr() == one.as_ptr());
            let part = part << 20 | half[0].1;
            self.part_of.extend(half.iter().map(|it| (it.0.entry, part)));
            self.missing.insert(part, half.len());
            let mut records = u32::try_from(half.len()).unwrap();
            for (attempt, _) in half {
                let retry = Retry::InPart { records: std::mem::take(&mut records) };
                let failed = Completion::failed(bad, retry, retry.sign());
                self.operator.handle_completion(*attempt, failed, self.now);
            }
        }
    }

    /// Lets `records` records pass; their values count from 0.
    fn run(&mut self, records: u64, channels: u64) {
        self.channels = channels;
        let mut next = 0;
        while !self.operator.is_finished() {
            while next < records && self.operator.free_slots() > 0 {
                let channel = (channels > 0).then(|| Key::new(next % channels.max(1)));
                let (record, key) = (StreamRecord::new(next, None), Some(Key::new(next)));
                self.operator.process_element_on(channel, record, key, self.now).unwrap();
                next += 1;
            }
            if next == records {
                self.operator.end_input(self.now);
            }
            self.start();
            let due = self.operator.poll_timeout();
            let of_lines = self.lines.values().map(|it| it.0);
            let ends = self.calls.keys().next().map(|it| it.0);
            let Some(then) = due.into_iter().chain(of_lines).chain(ends).min() else { continue };
            self.now = self.now.max(then);
            while let Some(ends) = self.calls.first_entry()
                && ends.key().0 <= self.now
            {
                let records = ends.remove();
                self.end(&records);
            }
            self.operator.handle_time(self.now);
            while let Some(element) = self.operator.pop_output() {
                let StreamElement::Record(emitted) = element else { continue };
                self.emitted.push((emitted.record.value, emitted.attempts, emitted.outcome));
            }
        }
    }

    /// Checks that exactly the records at fault have failed, each for itself, and that each call of a
    /// record is an attempt.
    fn check(&mut self, records: u64) {
        assert_eq!(self.emitted.len() as u64, records);
        let mut calls: HashMap<u64, u32> = HashMap::new();
        for value in self.made.iter().flat_map(|it| &it.1) {
            *calls.entry(*value).or_default() += 1;
        }
        for (value, attempts, outcome) in &self.emitted {
            let expected = if is_bad(*value) { Err(Failure::Function(*value)) } else { Ok(()) };
            assert_eq!(*outcome, expected, "record {value}");
            assert_eq!(calls[value], *attempts, "record {value}");
        }
        let metrics = self.operator.metrics(self.now);
        assert_eq!(metrics.attempts, self.handed.len() as u64);
        assert_eq!(metrics.parts, self.handed.len() as u64 - records);
        assert_eq!(metrics.retries, 0);
    }
}

fn limited(limit: LimitConfig, records: u32, channels: u64) -> impl FnOnce(&mut Config) {
    let mut policy = PolicyConfig::NONE;
    policy.limits[0] = Some(limit);
    let records = NonZeroU32::new(records).unwrap();
    policy.requests = limit.is_per_request.then_some(RequestConfig { records, linger: LINGER });
    move |config| {
        config.channels = Some(match channels {
            0 => ChannelConfig::single(policy),
            _ => ChannelConfig { policy, ..ChannelConfig::floating(800, 10_000) },
        });
    }
}

fn limit(permits: u64, burst: u64) -> LimitConfig {
    let rate = Rate::new(NonZeroU64::new(permits).unwrap(), SECOND).unwrap();
    LimitConfig::new(Gcra::new(rate, NonZeroU64::new(burst).unwrap()))
}

#[test]
fn each_record_of_a_part_waits_for_its_permit() {
    for channels in [0, 1, 3] {
        let mut world = World::new(64, limited(limit(200, 64), 64, channels));

        world.run(320, channels);

        world.check(320);
        let permits = world.operator.limit_metrics(world.now).unwrap().permits[0];
        assert_eq!(permits, world.handed.len() as u64, "{channels} channels");
        let half = ProcessingTime::ZERO + SECOND / 2;
        let early = world.handed.iter().filter(|it| **it <= half).count();
        assert_eq!(early, 64 + 100, "{channels} channels");
    }
}

#[test]
fn the_request_of_a_part_waits_for_its_permit() {
    for channels in [0, 3] {
        let of_requests = LimitConfig { is_per_request: true, ..limit(50, 7) };
        let mut world = World::new(64, limited(of_requests, 64, channels));

        world.run(641, channels);

        world.check(641);
        let permits = world.operator.limit_metrics(world.now).unwrap().permits[0];
        assert_eq!(permits, world.made.len() as u64, "{channels} channels");
        let mut made = 0;
        for (at, _) in &world.made {
            made += 1;
            let may = 7 + at.as_nanos() / 20_000_000;
            assert!(made <= may, "{made} requests at {at:?}, {channels} channels");
        }
        assert!(world.made.len() > 300, "{} requests", world.made.len());
    }
}

#[test]
fn a_part_takes_no_retry_and_no_token_and_its_record_ends_for_itself() {
    let mut world = World::new(64, |config| {
        config.retry = Some(AsyncRetryStrategy::fixed_delay(2, Duration::from_millis(1)));
        config.retry_budget = Some(RetryBudgetConfig::new(0.0, 0));
        config.at_end_of_input = sparkawait_core::operator::EndOfInput::KeepRetrying;
    });
    world.retry = Retry::After(Duration::from_millis(1));

    world.run(64, 0);

    for (value, attempts, outcome) in &world.emitted {
        if is_bad(*value) {
            assert_eq!(*outcome, Err(Failure::RetriesExhausted(*value)));
            // 64, 32, .. 1; and the four of them together, 2, 1, twice.
            assert_eq!(*attempts, 7 + 2 * 3);
        } else {
            assert_eq!(*outcome, Ok(()));
        }
    }
    let metrics = world.operator.metrics(world.now);
    // Two of each of the four; all else of what was handed over was first, or in a part.
    assert_eq!(metrics.retries, 2 * 4);
    assert_eq!(metrics.parts, world.handed.len() as u64 - 64 - 2 * 4);
}

#[test]
fn an_answer_to_a_part_gives_no_token_back() {
    let mut policy = PolicyConfig::NONE;
    policy.retry_budget = Some(RetryBudgetConfig::new(0.0, 0));
    let mut world = World::new(64, |config| {
        config.channels = Some(ChannelConfig::single(policy));
        config.retry = Some(AsyncRetryStrategy::fixed_delay(2, Duration::from_millis(1)));
        config.asks_on_timeout = false;
    });
    world.operator.process_element(StreamRecord::new(1, None), None, world.now).unwrap();
    let call = world.operator.actions().invoke.pop().unwrap().attempt;
    let again = Retry::InPart { records: 1 };
    let failed = Completion::failed(1, again, again.sign());
    world.operator.handle_completion(call, failed, world.now);
    let call = world.operator.actions().invoke.pop().unwrap().attempt;
    world.operator.handle_completion(call, Completion::answered((), Retry::No), world.now);

    // Nothing was earned, so another record has no retry.
    world.operator.process_element(StreamRecord::new(2, None), None, world.now).unwrap();
    let call = world.operator.actions().invoke.pop().unwrap().attempt;
    let lost = Completion::failed(2, Retry::Yes, CallSign::Unreachable);
    world.operator.handle_completion(call, lost, world.now);
    world.operator.handle_time(world.now + SECOND);
    assert!(world.operator.actions().invoke.is_empty());
    assert_eq!(world.operator.pending_retries(), 1);
}

/// Has nine records fail or run out of time that are called for by threes, from the instants 0, 7 and 14
/// on; returns when each is called again.
fn called_again(fails_at: Option<u64>) -> Vec<ProcessingTime> {
    let at = ProcessingTime::from_nanos;
    let mut config = Config::new(OutputMode::Unordered, NonZeroUsize::new(9).unwrap());
    config.timeout = None;
    config.begins = Begins::WhenSaid;
    config.attempt_timeout = Some(Duration::from_nanos(31));
    config.retry =
        Some(AsyncRetryStrategy::exponential_backoff(3, SECOND, SECOND, 1.0, Jitter::Full));
    let mut operator = AsyncWaitOperator::<u64, (), u64>::new(config);
    for value in 0..9 {
        operator.process_element(StreamRecord::new(value, None), None, at(0)).unwrap();
    }
    let calls: Vec<AttemptId> = operator.actions().invoke.drain(..).map(|it| it.attempt).collect();
    for (index, call) in calls.iter().enumerate() {
        let began = at(7 * (index as u64 / 3));
        operator.handle_started(*call, began, began);
    }
    for call in calls.iter().filter(|_| fails_at.is_some()) {
        let failed = Completion::failed(0, Retry::Yes, CallSign::Unreachable);
        operator.handle_completion(*call, failed, at(fails_at.unwrap_or_default()));
    }
    let mut again = vec![ProcessingTime::NEVER; 9];
    while let Some(due) = operator.poll_timeout().filter(|it| *it < at(2_000_000_000)) {
        operator.handle_time(due);
        for invocation in operator.actions().invoke.drain(..) {
            let index = usize::try_from(invocation.value).unwrap();
            if again[index] == ProcessingTime::NEVER {
                again[index] = due;
            }
        }
    }
    again
}

#[test]
fn records_whose_calls_began_together_are_called_again_together() {
    for fails_at in [Some(15), None] {
        let again = called_again(fails_at);

        assert!(again.chunks(3).all(|it| it[0] == it[1] && it[1] == it[2]), "{again:?}");
        assert!(again[0] != again[3] && again[3] != again[6], "{again:?}");
        assert!(again.iter().all(|it| *it > ProcessingTime::from_nanos(40)), "{again:?}");
    }
}

/// Has eight records called for together, which fails; then one after the other alone, while the others
/// are left out. Each call takes 7 ns.
#[test]
fn one_that_is_called_for_alone_has_all_the_time_of_an_attempt_and_those_left_out_have_none() {
    for (begins, attempt_timeout) in [(Begins::WhenSaid, Some(13)), (Begins::AtOnce, None)] {
        let mut config = Config::new(OutputMode::Unordered, NonZeroUsize::new(8).unwrap());
        config.timeout = None;
        config.begins = begins;
        config.attempt_timeout = attempt_timeout.map(Duration::from_nanos);
        config.on_failure = FailurePolicy::Emit;
        let mut operator = AsyncWaitOperator::<u64, (), u64>::new(config);
        let mut now = ProcessingTime::ZERO;
        for value in 0..8 {
            operator.process_element(StreamRecord::new(value, None), None, now).unwrap();
        }
        let mut calls: HashMap<u64, u32> = HashMap::new();
        // All; then three alone, and the last of them takes too long if there is a bound; then the rest.
        for (called, takes) in [(8, 7), (1, 7), (1, 7), (1, 17), (5, 7)] {
            let handed: Vec<_> = operator.actions().invoke.drain(..).collect();
            let (asked, left_out) = handed.split_at(called);
            for call in asked {
                *calls.entry(call.value).or_default() += 1;
                operator.handle_started(call.attempt, now, now);
            }
            now = now + Duration::from_nanos(takes);
            operator.handle_time(now);
            assert_eq!(
                std::mem::take(&mut operator.actions().cancel).len(),
                usize::from(takes == 17 && attempt_timeout.is_some()),
                "nobody else has run out of time"
            );
            let part = |records| Retry::InPart { records };
            for (index, call) in asked.iter().enumerate() {
                let ended = match called {
                    8 if index == 0 => Completion::failed(0, part(8), CallSign::Divided),
                    8 => Completion::failed(0, part(0), CallSign::Divided),
                    1 => Completion::failed(call.value, Retry::No, CallSign::Neutral),
                    _ => Completion::answered((), Retry::No),
                };
                operator.handle_completion(call.attempt, ended, now);
            }
            let mut records = u32::try_from(left_out.len()).unwrap();
            for call in left_out {
                let again = part(std::mem::take(&mut records));
                let ended = Completion::failed(0, again, CallSign::NotCalled);
                operator.handle_completion(call.attempt, ended, now);
            }
        }
        let mut count = 0;
        while let Some(StreamElement::Record(emitted)) = operator.pop_output() {
            count += 1;
            assert_eq!(emitted.attempts, calls[&emitted.record.value], "{emitted:?}");
            assert_eq!(emitted.outcome.is_ok(), emitted.record.value > 2);
        }
        assert_eq!(count, 8);
        let metrics = operator.metrics(now);
        assert_eq!((metrics.attempts, metrics.parts, metrics.retries), (16, 8, 0), "{begins:?}");
    }
}
