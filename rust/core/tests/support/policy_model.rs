// SPDX-License-Identifier: Apache-2.0
//! What policies change in the model of the operator.
//!
//! The policies are the real ones, which have models of their own: what is modelled is whom they are
//! told of, and that nobody starts or waits against their word.

use std::collections::VecDeque;
use std::time::Duration;

use sparkawait_core::element::{Key, StreamElement};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{AttemptId, Failure, OutputMode, Refusal, Retry, SnapshotState};
use sparkawait_core::policy::{
    CallPolicy, CallSign, ChannelPolicy, Costs, EndedCall, PolicyConfig, RateGate, RateLimits,
    RetryBudget, usual_costs,
};
use sparkawait_core::time::ProcessingTime;

use super::held_model::{Held, State};
use super::operator_model::{Model, Operator};

/// The policy of a channel, and for how long it was closed.
#[derive(Debug)]
pub(super) struct Policed {
    pub(super) policy: ChannelPolicy,
    /// Nanoseconds up to the last call, and those of the policy and of the gate by then.
    closed: (u64, u64, u64),
    retries: Option<Retries>,
}

/// What retries cost in a channel, and the records that wait for that.
#[derive(Debug)]
struct Retries {
    budget: RetryBudget,
    line: VecDeque<u32>,
}

impl Model {
    /// What bounds calls, if anything does.
    fn policies(&self) -> Option<PolicyConfig> {
        let policy = self.config.channels?.policy;
        (policy != PolicyConfig::NONE || self.asked_pauses > 0).then_some(policy)
    }

    /// Whether calls wait for limits in time.
    pub(super) fn has_rate_limits(&self) -> bool {
        self.policies().is_some_and(|it| it.rate_limits.iter().any(Option::is_some))
    }

    /// What a call costs.
    fn costs(&self) -> Costs {
        self.policies().map_or(Costs::NONE, |it| usual_costs(&it.rate_limits))
    }

    /// The limits that all channels share; those of a single one are its own.
    pub(super) fn gate_of(&self) -> Option<RateGate> {
        let config = self.policies().filter(|_| !self.is_single())?;
        let shared = RateLimits::new(&config.rate_limits, None, None, |it| !it.is_per_channel);
        (!shared.is_empty()).then(|| RateGate::new(shared, self.costs()))
    }

    fn gate_closed(&self, now: ProcessingTime) -> u64 {
        self.gate.as_ref().map_or(0, |it| it.closed_nanos(now))
    }

    /// The operator looks at the channel of a record that might start at once.
    pub(crate) fn offer(&mut self, value: u32) {
        let is_keyed = self.config.mode == OutputMode::KeyOrdered;
        let is_open = !self.is_closed && self.replay.is_empty();
        if is_open && !is_keyed && self.unused_calls() > 0 {
            self.policy(self.channel(value));
        }
    }

    /// The policy of a channel that has had a record.
    pub(super) fn policy(&mut self, channel: Option<Key>) -> Option<&mut ChannelPolicy> {
        let mut config = self.policies()?;
        let channels = self.config.channels?;
        if let Some(limit) = &mut config.adaptive_limit {
            limit.max = limit.max.clamp(1, self.most(&channels));
            limit.min = limit.min.clamp(1, limit.max);
            limit.initial = limit.initial.clamp(limit.min, limit.max);
        }
        let is_single = self.is_single();
        for limit in &mut config.rate_limits {
            *limit = limit.filter(|it| it.is_per_channel || is_single);
        }
        let shared = self.gate_closed(self.now);
        // The only channel is there from the beginning.
        let now = if is_single { ProcessingTime::ZERO } else { self.now };
        let new = || Policed {
            policy: ChannelPolicy::new(&config, now),
            closed: (0, 0, shared),
            retries: config
                .retry_budget
                .map(|it| Retries { budget: RetryBudget::new(it, now), line: VecDeque::new() }),
        };
        Some(&mut self.policies.entry(channel).or_insert_with(new).policy)
    }

    /// For how long limits in time have let nothing start in a channel.
    pub(super) fn closed(&self, channel: Option<Key>) -> u64 {
        self.closed_by(channel, self.now)
    }

    /// The same by a time that is to come, if nothing changes.
    fn closed_by(&self, channel: Option<Key>, now: ProcessingTime) -> u64 {
        let Some(Policed { policy, closed: (total, own, shared), .. }) =
            self.policies.get(&channel)
        else {
            return 0;
        };
        let (own, shared) = (policy.closed_nanos(now) - own, self.gate_closed(now) - shared);
        total + own.max(shared)
    }

    /// When the time of a record is over: until its first call it does not age while limits keep its
    /// channel closed.
    pub(super) fn due(&self, held: &Held) -> Option<ProcessingTime> {
        self.due_by(held, self.now)
    }

    /// When that will be, if nothing changes: the first time that says so itself.
    pub(super) fn over(&self, held: &Held) -> Option<ProcessingTime> {
        let first = self.due(held)?;
        let is_over = |at: &ProcessingTime| self.due_by(held, *at).is_some_and(|due| due <= *at);
        if is_over(&first) {
            return Some(first);
        }
        let nanos = first.as_nanos()..self.due_by(held, ProcessingTime::NEVER)?.as_nanos();
        let (mut after, mut by) = (nanos.start, nanos.end);
        while after + 1 < by {
            let middle = after.midpoint(by);
            let is_over = is_over(&ProcessingTime::from_nanos(middle));
            *(if is_over { &mut by } else { &mut after }) = middle;
        }
        Some(ProcessingTime::from_nanos(by))
    }

    fn due_by(&self, held: &Held, now: ProcessingTime) -> Option<ProcessingTime> {
        let is_new = held.attempts == 0 && held.state == State::Waiting;
        let aged_not = self.closed_by(self.channel(held.value), now).saturating_sub(held.closed_at);
        let aged_not = Duration::from_nanos(if is_new { aged_not } else { 0 });
        held.deadline.map(|deadline| deadline + aged_not)
    }

    fn count_closed(&mut self, channel: Option<Key>) {
        let (total, shared, now) = (self.closed(channel), self.gate_closed(self.now), self.now);
        if let Some(policed) = self.policies.get_mut(&channel) {
            policed.closed = (total, policed.policy.closed_nanos(now), shared);
        }
    }

    /// Lets the channel of a record rest whose call is awaited, because its reply asks for that.
    pub(crate) fn pause(&mut self, attempt: AttemptId, value: u32, delay: Duration) {
        if !self.awaits(attempt, value) {
            return;
        }
        let State::Running { since, .. } = self.get_ref(value).state else { return };
        if self.config.channels.is_none() {
            self.make_single();
        }
        self.asked_pauses += 1;
        let (channel, now) = (self.channel(value), self.now);
        self.count_closed(channel);
        if let Some(policy) = self.policy(channel) {
            policy.pause_until(now + delay, since, now);
        }
    }

    /// Puts all records on one channel, where there are none.
    fn make_single(&mut self) {
        let retry_budget = self.config.retry_budget;
        let policy = PolicyConfig { retry_budget, ..PolicyConfig::NONE };
        self.config.channels = Some(ChannelConfig::single(policy));
        self.call_times.clear();
        self.assigned.insert(None, 0);
    }

    /// Counts retries from the first one on that costs its destination some.
    pub(super) fn begin_budget(&mut self, attempt: AttemptId, retry: Retry, sign: CallSign) {
        let is_counted = self.config.channels.is_some() || self.config.retry_budget.is_none();
        if is_counted || !sign.is_drop() || !self.may_retry(attempt, retry) {
            return;
        }
        self.make_single();
        let running = self.held().filter(|it| it.is_running()).count() as u64;
        let ended = self.metrics.attempts.saturating_sub(self.metrics.retries + running);
        let now = self.now;
        let _ = self.policy(None);
        let policed = self.policies.get_mut(&None).and_then(|it| it.retries.as_mut());
        policed.expect("there is a budget").budget.on_earlier_attempts(ended, now);
    }

    /// Fails what waits for a destination that dropped its calls, where nothing is to wait for that.
    pub(super) fn refuse(&mut self, operator: &Operator) {
        let readied = self.readied;
        while let Some((value, rest)) = self.next_refused(operator) {
            let last = self.get(value).last_failure;
            self.finish(value, Err(Failure::refused(Refusal::Paused(rest), last)));
            // The call of a probe, which was not even told of.
            self.withdraws_calls |= self.is_closed;
        }
        // In what order is not said.
        self.tie_ready(readied);
    }

    fn next_refused(&self, operator: &Operator) -> Option<(u32, Duration)> {
        let failed = operator.failure().map(|it| it.record.value);
        let waits = |it: &&Held| it.state == State::Waiting && !self.is_blocked(it.value);
        let mut waiting = self.held().filter(|it| !self.is_closed && waits(it));
        waiting.find_map(|it| {
            let policy = &self.policies.get(&self.channel(it.value))?.policy;
            // What failed the operator may have waited for a probe, whose call is withdrawn then.
            let is_probed = failed.is_some() && policy.window(self.now) == 1;
            let beside = is_probed.then_some(Duration::ZERO);
            let rest = policy.refuses_for(self.now).or(beside)?;
            let is_refused = match failed {
                Some(failed) => failed == it.value,
                // What was given up waits for its timeout.
                None => self.has_time(it) || is_completed(operator, it.value, self.now),
            };
            is_refused.then_some((it.value, rest))
        })
    }

    /// Tells the policies of a record that its call starts.
    pub(super) fn tell_start(&mut self, value: u32) {
        let (channel, now, costs) = (self.channel(value), self.now, self.costs());
        self.count_closed(channel);
        if let Some(gate) = &mut self.gate {
            gate.on_start(now, &costs);
        }
        if let Some(policy) = self.policy(channel) {
            policy.on_start(now, &costs);
        }
    }

    /// Tells the policies of a record that its call ends, if one runs.
    pub(super) fn tell_end(&mut self, value: u32, sign: impl FnOnce(&Held) -> CallSign) {
        let (channel, ended) = (self.channel(value), self.now);
        let in_flight = self.running_in(channel);
        let held = self.get_ref(value);
        let State::Running { since: started, .. } = held.state else { return };
        let (sign, charged) = (sign(held), self.costs());
        let cost = if sign == CallSign::NotCalled { Costs::NONE } else { charged };
        self.count_closed(channel);
        if let Some(gate) = &mut self.gate {
            gate.settle(&charged, &cost, ended);
        }
        if let Some(policy) = self.policy(channel) {
            policy.on_end(&EndedCall { started, ended, in_flight, sign, charged, cost });
        }
        self.earn(value, sign);
    }

    // --- what retries cost ---

    /// Notes the end of the present attempt of a record.
    fn earn(&mut self, value: u32, sign: CallSign) {
        let (now, is_first) = (self.now, self.get_ref(value).attempts == 1);
        let Some(retries) = self.retries(value) else { return };
        if is_first && sign != CallSign::NotCalled {
            retries.budget.on_first_attempt(now);
        } else if !is_first && sign.is_answer() {
            retries.budget.on_answered_retry(now);
        }
    }

    /// Takes a token for a record, which waits in line otherwise.
    pub(super) fn take_token(&mut self, value: u32) -> bool {
        let now = self.now;
        let Some(retries) = self.retries(value) else { return true };
        let is_first = retries.line.is_empty();
        let has_token = is_first && retries.budget.try_retry(now);
        if !has_token {
            retries.line.push_back(value);
        }
        has_token
    }

    fn retries(&mut self, value: u32) -> Option<&mut Retries> {
        let channel = self.channel(value);
        self.policies.get_mut(&channel).and_then(|it| it.retries.as_mut())
    }

    /// The records that wait for a token.
    pub(super) fn without_token(&self) -> impl Iterator<Item = &Held> {
        let lacks = |it: &&Held| matches!(it.state, State::BackOff { lacks_token: true, .. });
        self.held().filter(move |it| !self.is_closed && lacks(it))
    }

    /// Lets records go on for which there are tokens.
    pub(super) fn hand_out_tokens(&mut self) {
        let (now, is_draining) = (self.now, self.is_draining());
        let lacking: Vec<u32> = self.without_token().map(|it| it.value).collect();
        let mut served = Vec::new();
        for retries in self.policies.values_mut().filter_map(|it| it.retries.as_mut()) {
            while retries.ready_at(now) <= now
                && let Some(value) = retries.line.pop_front()
            {
                // Others have timed out since, and leave the token to the next one.
                if lacking.contains(&value) && retries.budget.try_retry(now) {
                    served.push(value);
                }
            }
        }
        for value in served {
            let held = self.get(value);
            held.state = match held.state {
                State::BackOff { due, .. } if due > now && !is_draining => {
                    State::BackOff { due, lacks_token: false }
                }
                _ => State::Waiting,
            };
        }
    }

    /// Whether it is when there are tokens, or was.
    fn is_time_of_tokens(&self, time: ProcessingTime) -> bool {
        let retries = self.policies.values().filter_map(|it| it.retries.as_ref());
        let mut times = retries.map(|it| it.ready_at(self.now));
        times.any(|it| time <= self.now || time == it)
    }

    /// Whether policies let no call of a channel start at `now` beside those that run.
    pub(super) fn is_held(&self, channel: Option<Key>, running: u32, now: ProcessingTime) -> bool {
        let (policed, costs) = (self.policies.get(&channel), self.costs());
        let is_late = |it: &ChannelPolicy| it.ready_at(now, &costs) > now;
        policed.is_some_and(|Policed { policy: it, .. }| it.window(now) <= running || is_late(it))
            || self.gate.as_ref().is_some_and(|it| it.ready_at(&costs, now) > now)
    }

    /// Checks that the policy of a record's channel lets its call start.
    pub(super) fn check_policy(&self, value: u32, running: u32) {
        let is_held = self.is_held(self.channel(value), running, self.now);
        assert!(!is_held, "{value} starts against the word of its policy");
    }

    /// Checks when the operator wants to be told of the time; `times` are those of its records.
    pub(super) fn check_timeout(&self, operator: &mut Operator, times: &[ProcessingTime]) {
        let polled = operator.poll_timeout();
        let first = times.iter().copied().min();
        if self.is_closed {
            return assert_eq!(polled, None);
        }
        let (costs, zero) = (self.costs(), ProcessingTime::ZERO);
        let ready = |it: &Policed| it.policy.ready_at(zero, &costs);
        let gate = self.gate.iter().map(|it| it.ready_at(&costs, zero));
        let known = self.policies.values().map(ready).chain(gate).any(|it| Some(it) == polled)
            || polled.is_some_and(|it| self.is_time_of_adaptive_rate(it))
            || polled.is_some_and(|it| self.is_time_of_tokens(it));
        assert!(polled == first || known, "{polled:?} is nobody's time, {first:?} is the first");
        assert!(first.is_none_or(|first| polled.is_some_and(|it| it <= first)));
        for held in self.without_token() {
            let retries = self.policies.get(&self.channel(held.value)).unwrap().retries.as_ref();
            let token_at = retries.unwrap().ready_at(self.now);
            let wakes = polled.is_some_and(|it| it <= token_at);
            assert!(wakes, "{} is forgotten at {token_at:?}", held.value);
        }
        for held in self.held().filter(|it| it.state == State::Waiting) {
            let channel = self.channel(held.value);
            let Some(policed) = self.policies.get(&channel) else { continue };
            let ready_at = policed.policy.ready_at(self.now, &costs);
            if ready_at > self.now && !self.is_blocked(held.value) {
                let wakes = polled.is_some_and(|it| it <= ready_at || near(it, ready_at));
                assert!(wakes, "{} is forgotten at {ready_at:?}", held.value);
            }
        }
    }

    /// Whether it is when an adaptive rate lets a call start, or was: it counts in parts of seconds,
    /// so the time depends a little on when it was asked.
    fn is_time_of_adaptive_rate(&self, time: ProcessingTime) -> bool {
        let costs = self.costs();
        let mut times = self.policies.values().map(|it| it.policy.ready_at(self.now, &costs));
        let is_adaptive = self.policies().is_some_and(|it| it.is_rate_adaptive);
        is_adaptive && (time <= self.now || times.any(|it| near(it, time)))
    }

    /// Checks how many records the operator would take; exactly, where no policy is to be asked.
    pub(super) fn check_slots(&self, operator: &Operator) {
        let free = operator.free_slots();
        assert_eq!(operator.has_capacity(), free > 0);
        if !self.is_single() {
            return assert_eq!(free, self.free_slots());
        }
        assert!(free <= self.free_slots());
        let waits = self.held().any(|it| it.state == State::Waiting && !self.is_blocked(it.value));
        let running = self.running_in(None);
        assert!(!waits || free == 0, "those that wait go first");
        let refuses = self.policies().and_then(|it| it.pause).is_some_and(|it| it.refuses);
        let is_held = self.is_held(None, running, self.now);
        assert!(free == 0 || refuses || !is_held, "it would have to wait");
        let may_start = !waits && !self.is_held(None, running, self.handled_at);
        assert!(!may_start || free > 0 || self.free_slots() == 0, "a call may start");
    }
}

impl Retries {
    fn ready_at(&self, now: ProcessingTime) -> ProcessingTime {
        let mut budget = self.budget;
        budget.ready_at(now)
    }
}

fn is_completed(operator: &Operator, value: u32, now: ProcessingTime) -> bool {
    operator.snapshot(now).iter().any(|element| match element {
        StreamElement::Record(it) => {
            it.record.value == value && matches!(it.state, SnapshotState::Completed(_))
        }
        StreamElement::Watermark(_) => false,
    })
}

/// Whether they differ by no more than what rounding does.
fn near(a: ProcessingTime, b: ProcessingTime) -> bool {
    a.as_nanos().abs_diff(b.as_nanos()) <= 4
}
