// SPDX-License-Identifier: Apache-2.0
//! A naive model of the operator: a list of what is held, searched from front to back each time.
//!
//! The model decides everything but which of the records that may start does so: that it learns
//! from the operator's actions, and checks that the record was allowed to.

use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroUsize;
use std::time::Duration;

use sparkawait_core::element::{Key, StreamElement, Watermark};
use sparkawait_core::operator::{
    AsyncWaitOperator, AttemptId, Completion, Config, Emitted, EndOfInput, Ended, Failure,
    FailurePolicy, Handled, Metrics, OutputMode, Retry, SnapshotRecord, Uncounted,
};
use sparkawait_core::policy::{CallLimits, CallSign};
use sparkawait_core::retry::{AsyncRetryStrategy, mix};
use sparkawait_core::time::ProcessingTime;

use super::channel_model::Assigned;
use super::held_model::{Held, Outcome, Reply, State, key_of, record};
use super::policy_model::Policed;

pub(crate) type Operator = AsyncWaitOperator<u32, Reply, Reply>;
pub(crate) type Output = StreamElement<Emitted<u32, Reply, Reply>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) config: Config,
    pub(crate) now: ProcessingTime,
    /// Calls that may be in flight now.
    pub(super) window: usize,
    pub(super) line: Vec<StreamElement<Held>>,
    pub(super) replay: VecDeque<StreamElement<SnapshotRecord<u32, Reply, Reply>>>,
    pub(super) input_ended: bool,
    pub(super) is_closed: bool,
    pub(super) failed: Option<Emitted<u32, (), Reply>>,
    pub(super) metrics: Metrics,
    pub(super) readied: usize,
    pub(super) starts: usize,
    /// Calls that each channel has answered, and that it has dropped.
    pub(super) ended: HashMap<Option<Key>, (u64, u64)>,
    /// When each channel replied last; without channels all are one.
    pub(super) replied_at: HashMap<Option<Key>, ProcessingTime>,
    pub(super) assigned: Assigned,
    /// Those of the channels that have had a record.
    pub(super) policies: HashMap<Option<Key>, Policed>,
    /// Pauses that replies asked for: with the first there are policies that nobody asked for.
    pub(super) asked_pauses: usize,
    /// Limits in time that they share.
    pub(super) gate: Option<CallLimits>,
    /// Deadlines that were armed.
    pub(super) armed: usize,
    /// When the operator was told of the time last.
    pub(super) handled_at: ProcessingTime,
    /// Calls that the current operation has to cancel.
    pub(super) cancels: HashSet<AttemptId>,
    /// Records whose timeout the current operation has to ask for.
    pub(super) asks: Vec<u32>,
    /// Set where calls may start and be withdrawn in one operation: a restore that fails.
    pub(super) withdraws_calls: bool,
}

impl Model {
    pub(crate) fn new(config: Config, now: ProcessingTime) -> Self {
        let mut model = Self {
            window: config.max_concurrency.get(),
            config,
            now,
            line: Vec::new(),
            replay: VecDeque::new(),
            input_ended: false,
            is_closed: false,
            failed: None,
            metrics: Metrics::default(),
            readied: 0,
            starts: 0,
            ended: HashMap::new(),
            replied_at: HashMap::new(),
            assigned: HashMap::new(),
            policies: HashMap::new(),
            asked_pauses: 0,
            gate: None,
            armed: 0,
            handled_at: now,
            cancels: HashSet::new(),
            asks: Vec::new(),
            withdraws_calls: false,
        };
        model.gate = model.gate_of();
        model
    }

    pub(crate) fn set_window(&mut self, calls: NonZeroUsize) {
        self.window = calls.min(self.config.max_concurrency).get();
    }

    pub(super) fn held(&self) -> impl Iterator<Item = &Held> {
        self.line.iter().filter_map(|element| match element {
            StreamElement::Record(held) => Some(held),
            StreamElement::Watermark(_) => None,
        })
    }

    fn held_mut(&mut self) -> impl Iterator<Item = &mut Held> {
        self.line.iter_mut().filter_map(|element| match element {
            StreamElement::Record(held) => Some(held),
            StreamElement::Watermark(_) => None,
        })
    }

    pub(super) fn get(&mut self, value: u32) -> &mut Held {
        self.held_mut().find(|it| it.value == value).expect("the record is held")
    }

    pub(super) fn get_ref(&self, value: u32) -> &Held {
        self.held().find(|it| it.value == value).expect("the record is held")
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn is_draining(&self) -> bool {
        self.input_ended && self.config.at_end_of_input == EndOfInput::LastAttempt
    }

    pub(super) fn running(&self) -> usize {
        if self.is_closed { 0 } else { self.held().filter(|it| it.is_running()).count() }
    }

    fn same_key(&self, value: u32, other: u32) -> bool {
        let is_keyed = self.config.mode == OutputMode::KeyOrdered && key_of(value).is_some();
        is_keyed && key_of(value) == key_of(other)
    }

    /// Whether an earlier record of the same key is pending.
    pub(super) fn is_blocked(&self, value: u32) -> bool {
        let mut earlier = self.held().take_while(|it| it.value != value);
        earlier.any(|it| self.same_key(value, it.value) && !it.is_final())
    }

    pub(crate) fn free_slots(&self) -> usize {
        let is_open = !self.is_closed && self.replay.is_empty();
        match self.config.channels {
            _ if !is_open => 0,
            Some(channels) if !channels.is_single => self.slots(),
            _ => self.slots().min(self.unused_calls()),
        }
    }

    pub(crate) fn put(&mut self, value: u32) {
        self.metrics.admitted += 1;
        self.push(value, 0, Duration::ZERO);
    }

    pub(super) fn push(&mut self, value: u32, attempts: u32, age_before: Duration) {
        let (admitted_at, state) = (self.now, State::Waiting);
        let (id, last_failure, ready) = (None, None, None);
        self.line.push(StreamElement::Record(Held {
            value,
            id,
            attempts,
            admitted_at,
            age_before,
            deadline: None,
            armed: 0,
            waits_since: self.now,
            state,
            last_failure,
            uncounted: Uncounted::default(),
            outage: None,
            ready,
        }));
        self.activate_channel(value);
    }

    pub(crate) fn put_watermark(&mut self, watermark: Watermark) {
        if self.is_closed {
            return;
        }
        if !self.replay.is_empty() {
            return self.replay.push_back(StreamElement::Watermark(watermark));
        }
        self.append_watermark(watermark);
    }

    pub(super) fn append_watermark(&mut self, watermark: Watermark) {
        match self.line.last_mut() {
            Some(StreamElement::Watermark(last)) => *last = watermark.max(*last),
            _ => self.line.push(StreamElement::Watermark(watermark)),
        }
    }

    /// Whether the outcome of an attempt of the record is awaited.
    pub(crate) fn awaits(&self, attempt: AttemptId, value: u32) -> bool {
        let held = self.held().find(|it| it.value == value).filter(|_| !self.is_closed);
        held.is_some_and(|held| match held.state {
            State::Running { .. } => held.attempts == attempt.attempt,
            State::Asked => attempt.attempt == AttemptId::TIMEOUT,
            _ => false,
        })
    }

    pub(crate) fn complete(
        &mut self,
        attempt: AttemptId,
        value: u32,
        completion: Completion<Reply, Reply>,
    ) -> Handled {
        if !self.awaits(attempt, value) {
            return Handled::Ignored;
        }
        let State::Running { since, .. } = self.get(value).state else {
            self.finish(value, completion.outcome.map_err(Failure::Function));
            return Handled::TimeoutAnswered;
        };
        let nanos = self.now.as_nanos() - since.as_nanos();
        self.begin_budget(value, completion.retry, completion.sign);
        let is_divided = matches!(completion.retry, Retry::InPart { .. });
        self.doubt(value, completion.retry, completion.sign);
        self.tell_end(value, is_divided, |_| completion.sign);
        if self.back_off(value, completion.retry, completion.sign, completion.outcome.err()) {
            return Handled::Retried(nanos);
        }
        let may_retry = self.is_worth_it(completion.retry) && self.config.retry.is_some();
        let is_exhausted = may_retry && self.get(value).tries() > 1;
        let failure = if is_exhausted { Failure::RetriesExhausted } else { Failure::Function };
        self.finish(value, completion.outcome.map_err(failure));
        Handled::Final(nanos)
    }

    pub(super) const fn is_worth_it(&self, retry: Retry) -> bool {
        match retry {
            Retry::No => false,
            Retry::IfRepeatable => self.config.is_repeatable,
            Retry::Yes | Retry::After(_) | Retry::InPart { .. } => true,
        }
    }

    /// Whether an attempt that ended so is followed by another one.
    pub(super) fn may_retry(&self, value: u32, retry: Retry, sign: CallSign) -> bool {
        let tries = self.get_ref(value).tries();
        let has_tries = |it: AsyncRetryStrategy| {
            self.outlasts(value, sign).unwrap_or_else(|| it.can_retry(tries))
        };
        let can_retry = self.config.retry.is_some_and(has_tries);
        self.is_worth_it(retry) && can_retry && !self.is_draining()
    }

    /// Lets a record wait for a call of a part, as if its back-off were over.
    fn call_in_part(&mut self, value: u32, failure: Option<Reply>) {
        let now = self.now;
        let held = self.get(value);
        held.last_failure = failure.or(held.last_failure);
        held.uncounted.count += 1;
        held.uncounted.last_divided = held.attempts;
        held.state = State::BackOff { due: now, lacks_token: false };
        if held.deadline.is_some_and(|it| it <= now) {
            self.time_out(value);
        } else {
            held.wait(now);
        }
    }

    pub(super) fn back_off(
        &mut self,
        value: u32,
        retry: Retry,
        sign: CallSign,
        failure: Option<Reply>,
    ) -> bool {
        let (seed, now, attempt) = (self.config.seed, self.now, self.get(value).attempt());
        if matches!(retry, Retry::InPart { .. }) {
            self.call_in_part(value, failure);
            return true;
        }
        let Some(strategy) = self.config.retry else { return false };
        if !self.may_retry(value, retry, sign) {
            return false;
        }
        let is_held = self.note_outage(value, sign);
        let failures = self.failures(value);
        let delay = match retry {
            _ if is_held => Self::held_delay(retry),
            Retry::After(delay) => delay,
            Retry::No | Retry::IfRepeatable | Retry::Yes | Retry::InPart { .. } => {
                let random = mix(seed, attempt.entry.as_u64(), attempt.attempt);
                strategy.backoff(failures, random)
            }
        };
        let held = self.get(value);
        held.last_failure = failure.or(held.last_failure);
        match held.deadline {
            Some(deadline) if now + delay >= deadline => {
                let left = deadline.saturating_since(now);
                self.run_out(value, Ended::TooLate { delay, left });
            }
            _ => {
                let costs_token = !matches!(retry, Retry::After(_)) && sign.is_drop();
                let lacks_token = costs_token && !self.take_token(value);
                let held = self.get(value);
                held.state = State::BackOff { due: now + delay, lacks_token };
                if is_held && delay.is_zero() && !lacks_token {
                    held.wait(now);
                }
            }
        }
        true
    }

    pub(super) fn finish(&mut self, value: u32, outcome: Outcome) {
        self.metrics.failures += u64::from(outcome.is_err());
        match outcome {
            Err(failure) if self.config.on_failure == FailurePolicy::FailTask => {
                let (record, attempts) = (record(value), self.get(value).attempts);
                self.failed = Some(Emitted { record, attempts, outcome: Err(failure) });
                self.get(value).state = State::Failed;
                return self.close();
            }
            outcome => self.get(value).state = State::Final(outcome),
        }
        self.retire_channel(value);
        self.make_ready(value);
    }

    /// Makes a final record ready to leave unless it is blocked, and then those behind it.
    fn make_ready(&mut self, value: u32) {
        if self.is_blocked(value) {
            return;
        }
        let chain = self.held().skip_while(|it| it.value != value);
        let chain = chain.filter(|it| it.value == value || self.same_key(value, it.value));
        let ready: Vec<u32> = chain.take_while(|it| it.is_final()).map(|it| it.value).collect();
        for value in ready {
            self.readied += 1;
            self.get(value).ready = Some(self.readied);
        }
    }

    pub(super) fn run_out(&mut self, value: u32, why: Ended) {
        self.metrics.timeouts += 1;
        if self.config.asks_on_timeout {
            self.get(value).state = State::Asked;
            self.asks.push(value);
        } else {
            let last = self.get(value).last_failure;
            self.finish(value, Err(Failure::ended(why, last)));
        }
    }

    pub(super) fn cancel(&mut self, value: u32) {
        if self.get(value).is_running() {
            let attempt = self.get(value).attempt();
            self.cancels.insert(attempt);
            self.metrics.cancelled += 1;
        }
    }

    pub(crate) fn end_input(&mut self) {
        self.input_ended = true;
        if self.is_draining() {
            self.end_back_offs(ProcessingTime::from_nanos(u64::MAX));
        }
    }

    /// Ends the back-offs that are due at `now`.
    pub(super) fn end_back_offs(&mut self, now: ProcessingTime) {
        if self.is_closed {
            return;
        }
        let is_over = |held: &&Held| matches!(held.state, State::BackOff { due, lacks_token: false } if due <= now);
        let over: Vec<u32> = self.held().filter(is_over).map(|it| it.value).collect();
        let (now, readied) = (self.now, self.readied);
        for value in over {
            let held = self.get(value);
            if held.deadline.is_some_and(|it| it <= now) {
                self.time_out(value);
            } else {
                held.wait(now);
            }
        }
        // Those that were hurried and had no time left end in the order of their back-offs.
        self.tie_ready(readied);
    }

    pub(crate) fn close(&mut self) {
        if !self.is_closed {
            let values: Vec<u32> = self.held().map(|it| it.value).collect();
            for value in values {
                self.cancel(value);
            }
            self.asks.clear();
            self.is_closed = true;
        }
    }

    /// The index of the element that leaves next; the record `choice` if it is one of those that
    /// became ready together.
    pub(super) fn next(&self, choice: Option<u32>) -> Option<usize> {
        let is_ordered = self.config.mode == OutputMode::Ordered;
        match self.line.first()? {
            StreamElement::Watermark(_) => return Some(0),
            StreamElement::Record(held) if is_ordered => return held.is_final().then_some(0),
            StreamElement::Record(_) => {}
        }
        let records = self.line.iter().map_while(|element| match element {
            StreamElement::Record(held) => Some(held),
            StreamElement::Watermark(_) => None,
        });
        let ready = records.enumerate().filter_map(|(index, held)| {
            let is_first = self.held().take_while(|it| it.value != held.value);
            let is_first = !is_first.into_iter().any(|it| self.same_key(it.value, held.value));
            let is_chosen = is_first && choice == Some(held.value);
            Some(((held.ready?, !is_chosen, !is_first), index))
        });
        ready.min().map(|(_, index)| index)
    }

    /// Lets what became ready since so many had leave in any order.
    pub(super) fn tie_ready(&mut self, readied: usize) {
        for held in self.held_mut() {
            held.ready = held.ready.map(|it| it.min(readied + 1));
        }
    }

    pub(crate) fn pop(&mut self, choice: Option<u32>) -> Option<Output> {
        let element = self.line.remove(self.next(choice)?);
        self.metrics.emitted += u64::from(matches!(element, StreamElement::Record(_)));
        Some(element.map(|held| match held.state {
            State::Final(outcome) => {
                Emitted { record: record(held.value), attempts: held.attempts, outcome }
            }
            state => unreachable!("a record in {state:?} leaves"),
        }))
    }
}
