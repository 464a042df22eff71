// SPDX-License-Identifier: Apache-2.0
//! What policies change in the model of the operator.
//!
//! The policies are the real ones, which have models of their own: what is modelled is whom they are
//! told of, and that nobody starts or waits against their word.

use std::collections::VecDeque;
use std::time::Duration;

use sparkawait_core::element::{Key, StreamElement};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{
    AttemptId, Ended, Failure, Invocation, OutputMode, Retry, SnapshotState,
};
use sparkawait_core::policy::{
    CallLimits, CallSign, Costs, EndedCall, Line, PolicyConfig, RetryBudget, usual_costs,
};
use sparkawait_core::time::ProcessingTime;

use super::held_model::{Held, State};
use super::operator_model::{Model, Operator};

/// The policy of a channel, and what its retries cost.
#[derive(Debug)]
pub(super) struct Policed {
    pub(super) policy: CallLimits,
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

    /// What a call costs.
    fn costs(&self) -> Costs {
        self.policies().map_or(Costs::NONE, |it| usual_costs(&it.limits))
    }

    /// The limits that all channels share; those of a single one are its own.
    pub(super) fn gate_of(&self) -> Option<CallLimits> {
        let config = self.policies().filter(|_| !self.is_single())?;
        let shared = CallLimits::in_time(&config.limits, None, None, |it| !it.is_per_channel);
        (!shared.is_empty()).then_some(shared)
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
    pub(super) fn policy(&mut self, channel: Option<Key>) -> Option<&mut CallLimits> {
        let mut config = self.policies()?;
        let channels = self.config.channels?;
        if let Some(limit) = &mut config.adaptive_limit {
            limit.max = limit.max.clamp(1, self.most(&channels));
            limit.min = limit.min.clamp(1, limit.max);
            limit.initial = limit.initial.clamp(limit.min, limit.max);
        }
        let is_single = self.is_single();
        for limit in &mut config.limits {
            *limit = limit.filter(|it| it.is_per_channel || is_single);
        }
        // The only channel is there from the beginning.
        let now = if is_single { ProcessingTime::ZERO } else { self.now };
        let new = || Policed {
            policy: CallLimits::new(&config, now),
            retries: config
                .retry_budget
                .map(|it| Retries { budget: RetryBudget::new(it, now), line: VecDeque::new() }),
        };
        Some(&mut self.policies.entry(channel).or_insert_with(new).policy)
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
        if let Some(policy) = self.policy(channel) {
            policy.pause_until(now + delay, since, now);
        }
    }

    /// Puts all records on one channel, where there are none.
    fn make_single(&mut self) {
        let retry_budget = self.config.retry_budget;
        let policy = PolicyConfig { retry_budget, ..PolicyConfig::NONE };
        self.config.channels = Some(ChannelConfig::single(policy));
        self.assigned.insert(None, 0);
        let running = self.held().filter(|it| it.is_running()).count() as u64;
        let ended = self
            .metrics
            .attempts
            .saturating_sub(self.metrics.retries + self.metrics.parts + running);
        let now = self.now;
        let _ = self.policy(None);
        if let Some(it) = self.policies.get_mut(&None).and_then(|it| it.retries.as_mut()) {
            it.budget.on_earlier_attempts(ended, now);
        }
    }

    /// Puts those that wait on one channel once their destination has been silent.
    pub(super) fn note_silence(&mut self, started: ProcessingTime) {
        let replied_at = self.replied_at.get(&None).copied().unwrap_or_default();
        let is_bounded = self.config.max_wait.or(self.config.timeout).is_some();
        let waits = |it: &Held| matches!(it.state, State::Waiting | State::Asked);
        let any_waits = self.held().any(waits);
        let is_silent = self.config.channels.is_none() && replied_at <= started;
        if is_silent && any_waits && is_bounded {
            self.make_single();
        }
    }

    /// Counts retries from the first one on that costs its destination some.
    pub(super) fn begin_budget(&mut self, value: u32, retry: Retry, sign: CallSign) {
        let is_counted = self.config.channels.is_some() || self.config.retry_budget.is_none();
        if is_counted || !sign.is_drop() || !self.may_retry(value, retry, sign) {
            return;
        }
        self.make_single();
    }

    /// Fails what is not to wait any longer.
    pub(super) fn give_up(&mut self, operator: &Operator, asked: &mut Vec<Invocation<u32>>) {
        loop {
            self.refuse(operator);
            if !self.lose_patience(operator, asked) {
                return;
            }
        }
    }

    /// Fails a record that has waited too long as the operator says, which is checked.
    fn lose_patience(&mut self, operator: &Operator, asked: &mut Vec<Invocation<u32>>) -> bool {
        if self.is_closed {
            return false;
        }
        let waits = |it: &&Held| it.waits() && !self.is_blocked(it.value);
        let waiting: Vec<u32> = self.held().filter(waits).map(|it| it.value).collect();
        if self.config.asks_on_timeout {
            asked.retain(|it| !self.asks.contains(&it.value));
            let next = asked.iter().position(|it| waiting.contains(&it.value));
            let Some(value) = next.map(|it| asked.remove(it).value) else { return false };
            self.check_patience(value);
            self.run_out(value, Ended::TimedOut);
            return true;
        }
        let gave_up = waiting.into_iter().find_map(|value| {
            let why = not_called(operator, value, self.now)?;
            matches!(why, Ended::Unavailable { .. }).then_some((value, why))
        });
        let Some((value, why)) = gave_up else { return false };
        self.check_patience(value);
        let has_waited = self.now.saturating_since(self.patient_since(value));
        assert!(matches!(why, Ended::Unavailable { waited, .. } if waited == has_waited));
        self.run_out(value, why);
        self.withdraws_calls |= self.is_closed;
        true
    }

    /// Checks that a record has waited for as long as it should for a destination that is not there.
    fn check_patience(&self, value: u32) {
        let (held, channel, now) = (self.get_ref(value), self.channel(value), self.now);
        let most = self.config.max_wait.or(self.config.timeout).expect("there is a bound");
        let is_long = |since: ProcessingTime| now.saturating_since(since) >= most;
        assert!(is_long(self.patient_since(value)), "{held:?} has not waited for {most:?}");
        let policy = self.policies.get(&channel).map(|it| &it.policy);
        let paused = policy.and_then(|it| it.paused_since(self.config.max_wait.is_some(), now));
        let replied_at = self.replied_at.get(&channel).copied().unwrap_or_default();
        let silence = self.config.timeout.map(|it| replied_at + it);
        let is_gone = paused.is_some_and(is_long) || silence.is_some_and(is_long);
        assert!(is_gone, "{channel:?} replied at {replied_at:?}, paused: {paused:?}, at {now:?}");
    }

    /// Fails what waits for a destination that dropped its calls, where nothing is to wait for that.
    pub(super) fn refuse(&mut self, operator: &Operator) {
        let readied = self.readied;
        while let Some((value, rest)) = self.next_refused(operator) {
            let last = self.get(value).last_failure;
            self.finish(value, Err(Failure::ended(Ended::Refused { rest }, last)));
            // The call of a probe, which was not even told of.
            self.withdraws_calls |= self.is_closed;
        }
        // In what order is not said.
        self.tie_ready(readied);
    }

    fn next_refused(&self, operator: &Operator) -> Option<(u32, Duration)> {
        let is_refusal = |it: &Failure<_>| matches!(it, Failure::Ended(it) if matches!(it.0, Ended::Refused { .. }));
        let failed = operator.failure().filter(|it| it.outcome.as_ref().is_err_and(is_refusal));
        let failed = failed.map(|it| it.record.value);
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
                None => true,
            };
            is_refused.then_some((it.value, rest))
        })
    }

    /// Tells the policies of a record that its call starts.
    pub(super) fn tell_start(&mut self, value: u32) {
        let (channel, now, costs) = (self.channel(value), self.now, self.costs());
        if let Some(gate) = &mut self.gate {
            gate.on_start(now, &costs, Line::Records);
        }
        if let Some(policy) = self.policy(channel) {
            policy.on_start(now, &costs, Line::Records);
        }
    }

    /// Tells the policies of a record that its call ends, if one runs; one that is divided goes on in its
    /// parts.
    pub(super) fn tell_end(
        &mut self,
        value: u32,
        is_divided: bool,
        sign: impl FnOnce(&Held) -> CallSign,
    ) {
        let (channel, ended) = (self.channel(value), self.now);
        let in_flight = self.running_in(channel);
        let held = self.get_ref(value);
        let State::Running { since: started, .. } = held.state else { return };
        let (sign, charged) = (sign(held), self.costs());
        let cost = if sign == CallSign::NotCalled { Costs::NONE } else { charged };
        if sign.is_reply() {
            self.replied_at.insert(channel, ended);
        }
        let call = EndedCall { started, ended, in_flight, sign, charged, cost };
        if let Some(gate) = &mut self.gate {
            gate.on_end(&call);
        }
        if let Some(policy) = self.policy(channel) {
            policy.on_end(&call);
        }
        self.count_end(value, sign);
        if !is_divided {
            self.earn(value, sign);
        }
    }

    // --- what retries cost ---

    /// Notes the end of the present try of a record.
    fn earn(&mut self, value: u32, sign: CallSign) {
        let (now, is_first) = (self.now, self.get_ref(value).tries() == 1);
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
                _ => {
                    held.waits_since = now;
                    State::Waiting
                }
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
        let is_late = |it: &CallLimits| it.ready_at(now, &costs, Line::Records) > now;
        policed.is_some_and(|Policed { policy: it, .. }| it.window(now) <= running || is_late(it))
            || self.gate.as_ref().is_some_and(|it| it.ready_at(now, &costs, Line::Records) > now)
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
        let ready = |it: &Policed| it.policy.ready_at(zero, &costs, Line::Records);
        let gate = self.gate.iter().map(|it| it.ready_at(zero, &costs, Line::Records));
        let known = self.policies.values().map(ready).chain(gate).any(|it| Some(it) == polled)
            || polled.is_some_and(|it| self.is_time_of_adaptive_rate(it))
            || polled.is_some_and(|it| self.is_time_of_tokens(it));
        let looks =
            self.held().any(Held::waits) && self.config.max_wait.or(self.config.timeout).is_some();
        assert!(
            polled == first || known || looks,
            "{polled:?} is nobody's time, {first:?} is the first"
        );
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
            let ready_at = policed.policy.ready_at(self.now, &costs, Line::Records);
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
        let mut times =
            self.policies.values().map(|it| it.policy.ready_at(self.now, &costs, Line::Records));
        let is_adaptive = self.policies().is_some_and(|it| it.is_rate_adaptive);
        is_adaptive && (time <= self.now || times.any(|it| near(it, time)))
    }

    /// Checks how many records the operator would take; exactly, where it need not ask a policy.
    pub(super) fn check_slots(&self, operator: &Operator) {
        let free = operator.free_slots();
        assert_eq!(operator.has_capacity(), free > 0);
        if !self.is_single() {
            return assert_eq!(free, self.free_slots());
        }
        assert!(free <= self.free_slots());
        let waits = self.held().any(|it| it.state == State::Waiting && !self.is_blocked(it.value));
        let running = self.running_in(None);
        let may_pause =
            self.policies().is_some_and(|it| it.pause.is_some()) || self.asked_pauses > 0;
        assert!(!waits || free == 0 || may_pause, "those that wait go first");
        let refuses = may_pause;
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

/// Why a record is not called that the operator does not call, as it says.
fn not_called(operator: &Operator, value: u32, now: ProcessingTime) -> Option<Ended> {
    let failed = operator.failure().filter(|it| it.record.value == value);
    let failed = failed.and_then(|it| it.outcome.clone().err());
    let failed = failed.or_else(|| {
        operator.snapshot(now).into_iter().find_map(|element| match element {
            StreamElement::Record(it) if it.record.value == value => match it.state {
                SnapshotState::Completed(outcome) => outcome.err(),
                SnapshotState::Pending { .. } => None,
            },
            _ => None,
        })
    });
    match failed? {
        Failure::Ended(why) => Some(why.0),
        _ => None,
    }
}

/// Whether they differ by no more than what rounding does.
fn near(a: ProcessingTime, b: ProcessingTime) -> bool {
    a.as_nanos().abs_diff(b.as_nanos()) <= 4
}
