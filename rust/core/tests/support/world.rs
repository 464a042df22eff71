// SPDX-License-Identifier: Apache-2.0
//! An operator on a manual clock, and destinations that answer as a test says.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use sparkawait_core::element::{Key, StreamElement, StreamRecord};
use sparkawait_core::operator::{
    AsyncWaitOperator, AttemptId, Completion, Config, EndOfInput, Failure, FailurePolicy,
    OutputMode, Remark, Retry,
};
use sparkawait_core::policy::Price;
use sparkawait_core::retry::AsyncRetryStrategy;
use sparkawait_core::time::ProcessingTime;

/// What a call takes unless a test says otherwise.
pub(crate) const CALL: Duration = Duration::from_millis(20);

/// The time at which a world is so old.
pub(crate) fn at(time: Duration) -> ProcessingTime {
    ProcessingTime::ZERO + time
}

/// A call as its destination sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) value: u64,
    /// Values count round the channels.
    pub(crate) channel: u64,
    /// From 1.
    pub(crate) attempt: u32,
    pub(crate) is_hedge: bool,
    pub(crate) at: ProcessingTime,
}

/// What a destination says, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) after: Duration,
    /// `None`: nothing, ever.
    pub(crate) completion: Option<Completion<(), ()>>,
    pub(crate) pause: Option<Duration>,
}

impl Answer {
    pub(crate) fn good() -> Self {
        let completion = Some(Completion::answered((), Retry::No));
        Self { after: CALL, completion, pause: None }
    }
}

/// Settings for 100 calls at a time of records that have 5 s each, and nine retries.
pub(crate) fn config(mode: OutputMode) -> Config {
    Config {
        max_concurrency: NonZeroUsize::new(100).unwrap(),
        timeout: Some(Duration::from_secs(5)),
        on_failure: FailurePolicy::Emit,
        at_end_of_input: EndOfInput::KeepRetrying,
        retry: Some(AsyncRetryStrategy::fixed_delay(9, Duration::from_millis(10))),
        ..Config::new(mode, NonZeroUsize::new(800).unwrap())
    }
}

/// Records that come one after the other, and what happened to them.
pub(crate) struct World<A> {
    pub(crate) operator: AsyncWaitOperator<u64, (), ()>,
    pub(crate) now: ProcessingTime,
    /// Time between records; none: all are there at once.
    pub(crate) gap: Duration,
    pub(crate) made: Vec<Call>,
    /// Value, outcome, and when it left.
    pub(crate) emitted: Vec<(u64, Result<(), Failure<()>>, ProcessingTime)>,
    answers: BTreeMap<(ProcessingTime, usize), (AttemptId, Answer)>,
    channels: u64,
    /// Keys, which go round.
    pub(crate) keys: u64,
    answer: A,
}

impl<A: FnMut(Call) -> Answer> World<A> {
    /// Makes one of so many channels; 0: without.
    pub(crate) fn new(config: Config, channels: u64, answer: A) -> Self {
        Self {
            operator: AsyncWaitOperator::new(config),
            now: ProcessingTime::ZERO,
            gap: Duration::ZERO,
            made: Vec::new(),
            emitted: Vec::new(),
            answers: BTreeMap::new(),
            channels,
            keys: 3 * channels.max(1),
            answer,
        }
    }

    fn channel_of(&self, value: u64) -> u64 {
        value.checked_rem(self.channels).unwrap_or_default()
    }

    fn start(&mut self) {
        let invoked = std::mem::take(&mut self.operator.actions().invoke);
        for call in invoked {
            let (value, attempt) = (call.value, call.attempt);
            let call = Call {
                value,
                channel: self.channel_of(value),
                attempt: attempt.first().attempt,
                is_hedge: attempt.is_hedge(),
                at: self.now,
            };
            let answer = (self.answer)(call);
            self.answers.insert((self.now + answer.after, self.made.len()), (attempt, answer));
            self.made.push(call);
        }
        let cancelled = std::mem::take(&mut self.operator.actions().cancel);
        self.answers.retain(|_, it| !cancelled.contains(&it.0));
    }

    /// Lets `records` records pass; their values count from 0.
    pub(crate) fn run(&mut self, records: u64) {
        self.run_until(records, ProcessingTime::NEVER);
    }

    /// Does so until `end` at most.
    pub(crate) fn run_until(&mut self, records: u64, end: ProcessingTime) {
        let mut next = 0;
        while !self.operator.is_finished() && self.now < end {
            let gap = self.gap;
            let comes_at = |next: u64| at(gap.saturating_mul(u32::try_from(next).unwrap()));
            while next < records && comes_at(next) <= self.now && self.operator.free_slots() > 0 {
                let channel = (self.channels > 0).then(|| Key::new(self.channel_of(next)));
                let (record, key) =
                    (StreamRecord::new(next, None), Some(Key::new(next % self.keys)));
                self.operator.process_element_on(channel, record, key, self.now).unwrap();
                next += 1;
                self.start();
            }
            if next == records {
                self.operator.end_input(self.now);
            }
            let due = self.operator.poll_timeout();
            let answered = self.answers.first_key_value().map(|it| it.0.0);
            let comes = (next < records && self.operator.free_slots() > 0).then(|| comes_at(next));
            let then = [due, answered, comes].into_iter().flatten().min();
            self.now = self.now.max(then.unwrap_or(end).min(end));
            self.answer_due();
            self.operator.handle_time(self.now);
            self.start();
            while let Some(element) = self.operator.pop_output() {
                let StreamElement::Record(it) = element else { continue };
                self.emitted.push((it.record.value, it.outcome, self.now));
            }
        }
    }

    /// Goes on with another operator, which is restored from what this one saves; its calls are lost.
    pub(crate) fn restart(&mut self, config: Config) {
        let snapshot = self.operator.snapshot(self.now);
        let (channels, keys) = (self.channels, self.keys);
        let key = |it: &u64| Some(Key::new(it % keys));
        let place = |it: &u64| {
            let channel = it.checked_rem(channels).map(Key::new);
            (channel, Price::Usual)
        };
        self.operator = AsyncWaitOperator::restore_on(config, snapshot, place, key, self.now);
        self.answers.clear();
        self.start();
    }

    fn answer_due(&mut self) {
        while let Some(entry) = self.answers.first_entry().filter(|it| it.key().0 <= self.now) {
            let (attempt, answer) = entry.remove();
            if let Some(delay) = answer.pause {
                self.operator.remark(attempt, Remark::Pause(delay), self.now);
            }
            if let Some(completion) = answer.completion {
                self.operator.handle_completion(attempt, completion, self.now);
            }
        }
    }

    pub(crate) fn failed(&self) -> usize {
        self.emitted.iter().filter(|it| it.1.is_err()).count()
    }
}
