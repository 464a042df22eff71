// SPDX-License-Identifier: Apache-2.0
//! A destination that never answers, beside one that does: what is called, what ends without a call
//! and when, and what follows when it is back.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{HashSet, VecDeque};
use std::num::NonZeroUsize;
use std::time::Duration;

use sparkawait_core::element::{Key, StreamElement, StreamRecord};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{
    AsyncWaitOperator, AttemptId, Completion, Config, Ended, Failure, FailurePolicy, OutputMode,
    Retry,
};
use sparkawait_core::policy::PolicyConfig;
use sparkawait_core::time::ProcessingTime;

/// Calls of one channel.
const SHARE: usize = 10;
const TIMEOUT: Duration = Duration::from_secs(5);
/// What a call of a destination takes that answers.
const CALL_MILLIS: u64 = 5;

type Value = (u64, bool);

/// A record for each destination comes every millisecond.
struct World {
    operator: AsyncWaitOperator<Value, (), ()>,
    millis: u64,
    /// Whether there are channels; otherwise a record that finds no permit goes elsewhere.
    channels: bool,
    /// Until when the dead destination is dead.
    dead_until: u64,
    /// Keys of its records; 0 for none.
    keys: u64,
    calls: VecDeque<(u64, AttemptId)>,
    dead_calls: usize,
    lives: usize,
    /// When the records came that were answered by the destination that had been dead.
    answered: Vec<u64>,
    /// When the records came and left that were not called, and for how long they waited.
    given_up: Vec<(u64, u64, Duration)>,
}

impl World {
    fn new(mode: OutputMode, channels: bool, dead_until: u64) -> Self {
        let mut config = Config::new(mode, NonZeroUsize::new(20_000).unwrap());
        config.max_concurrency = NonZeroUsize::new(if channels { 100 } else { SHARE }).unwrap();
        config.timeout = Some(TIMEOUT);
        config.on_failure = FailurePolicy::Emit;
        config.channels = channels.then(|| ChannelConfig {
            exclusive: 2,
            floating: 80,
            max_per_channel: u32::try_from(SHARE).unwrap(),
            max_backlog: 100_000,
            max_backlog_per_channel: 100_000,
            policy: PolicyConfig::NONE,
            is_single: false,
        });
        let keys = if mode == OutputMode::KeyOrdered { 7 } else { 0 };
        let operator = AsyncWaitOperator::new(config);
        Self {
            operator,
            millis: 0,
            channels,
            dead_until,
            keys,
            calls: VecDeque::new(),
            dead_calls: 0,
            lives: 0,
            answered: Vec::new(),
            given_up: Vec::new(),
        }
    }

    fn now(&self) -> ProcessingTime {
        ProcessingTime::ZERO + Duration::from_millis(self.millis)
    }

    fn put(&mut self, is_dead: bool) {
        let record = StreamRecord::new((self.millis, is_dead), None);
        let channel = Some(Key::new(is_dead.into()));
        let key = (self.keys > 0 && is_dead).then(|| Key::new(self.millis % self.keys.max(1)));
        let now = self.now();
        if self.channels || self.operator.has_capacity() {
            self.operator.process_element_on(channel, record, key, now).unwrap();
        }
        self.start();
    }

    fn start(&mut self) {
        for call in self.operator.actions().invoke.drain(..) {
            let (_, is_dead) = call.value;
            if is_dead && self.millis < self.dead_until {
                self.dead_calls += 1;
            } else {
                self.calls.push_back((self.millis + CALL_MILLIS, call.attempt));
            }
        }
        self.operator.actions().cancel.clear();
    }

    /// Lives until `millis`; `both` destinations have records, or the dead one alone.
    fn run(&mut self, millis: u64, both: bool) {
        while self.millis < millis {
            self.put(true);
            if both {
                self.put(false);
            }
            self.millis += 1;
            let now = self.now();
            while let Some((due, attempt)) = self.calls.front().copied()
                && due <= self.millis
            {
                self.calls.pop_front();
                let completion = Completion::answered((), Retry::No);
                self.operator.handle_completion(attempt, completion, now);
            }
            self.operator.handle_time(now);
            self.start();
            while let Some(element) = self.operator.pop_output() {
                let StreamElement::Record(emitted) = element else { continue };
                let (came, is_dead) = emitted.record.value;
                match (emitted.outcome, is_dead) {
                    (Ok(()), true) => self.answered.push(came),
                    (Ok(()), false) => self.lives += 1,
                    (Err(Failure::Ended(why)), true) => match why.0 {
                        Ended::Unavailable { waited, .. } => {
                            self.given_up.push((came, self.millis, waited));
                        }
                        Ended::TimedOut | Ended::AttemptTimedOut => {}
                        why => unreachable!("{why:?}"),
                    },
                    (Err(_), true) => {}
                    (Err(failure), false) => unreachable!("{failure:?} where all is well"),
                }
            }
        }
    }
}

#[test]
fn a_dead_destination_is_called_anew_as_its_calls_end_and_no_more() {
    for mode in [OutputMode::Ordered, OutputMode::Unordered] {
        let mut world = World::new(mode, true, u64::MAX);

        world.run(12_000, true);

        assert_eq!(world.dead_calls, 3 * SHARE, "{mode:?}: at 0 s, 5 s and 10 s");
        if mode == OutputMode::Unordered {
            assert_eq!(
                world.lives,
                12_000 - usize::try_from(CALL_MILLIS).unwrap() + 1,
                "the others notice nothing"
            );
        }
    }
}

#[test]
fn without_channels_no_record_comes_in_that_would_wait() {
    let mut world = World::new(OutputMode::Unordered, false, 12_000);

    world.run(12_000, false);
    assert_eq!((world.dead_calls, world.operator.queue_size()), (3 * SHARE, SHARE));
    world.run(40_000, false);

    // Those that wait outside are answered, all but the calls that ran into the recovery.
    let answered = world.answered.iter().filter(|it| (15_000..39_990).contains(*it)).count();
    assert_eq!(answered, 24_990);
}

#[test]
fn a_record_ends_when_it_has_waited_for_a_destination_that_was_silent_for_its_timeout() {
    let mut world = World::new(OutputMode::Unordered, true, u64::MAX);

    world.run(14_000, true);

    // Silent from the first call on, so not there after 5 s; then a record waits for 5 s more.
    let late = world.given_up.iter().filter(|(came, left, _)| *left != (came + 5_000).max(10_010));
    assert_eq!(late.take(3).collect::<Vec<_>>(), Vec::<&(u64, u64, Duration)>::new());
    let waited = |it: &(u64, u64, Duration)| it.2.as_millis() == u128::from(it.1 - it.0);
    assert!(world.given_up.iter().all(waited), "it says for how long");
    // All that came up to 9 s.
    assert_eq!(world.given_up.len() + world.dead_calls, 9_001);
}

#[test]
fn records_of_a_key_end_together_and_not_one_after_the_other() {
    for channels in [true, false] {
        let mut world = World::new(OutputMode::KeyOrdered, channels, u64::MAX);

        world.run(29_900, true);

        // One call for each of seven keys in 5 s, and another one as long as nobody knows it is dead.
        assert_eq!(world.dead_calls, 7 * 6, "channels: {channels}");
        let late = world
            .given_up
            .iter()
            .filter(|(came, left, _)| *left > (came + 5_000).max(10_010) + 5_000);
        assert_eq!(late.take(3).collect::<Vec<_>>(), Vec::<&(u64, u64, Duration)>::new());
        assert!(!channels || world.given_up.len() > 19_000, "{}", world.given_up.len());
    }
}

#[test]
fn a_destination_that_recovers_is_called_as_before() {
    for mode in [OutputMode::Unordered, OutputMode::KeyOrdered] {
        let mut world = World::new(mode, true, 12_000);

        world.run(60_000, true);

        let answered: HashSet<u64> = world.answered.iter().copied().collect();
        let lost: Vec<u64> = (10_011..39_900).filter(|it| !answered.contains(it)).take(9).collect();
        // The last calls that found it dead were made at 10 s, and ended at 15 s.
        let most = if mode == OutputMode::KeyOrdered { 7 } else { 0 };
        assert!(lost.len() <= most, "{mode:?}: {lost:?}");
    }
}
