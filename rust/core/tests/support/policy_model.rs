// SPDX-License-Identifier: Apache-2.0
//! What policies change in the model of the operator.
//!
//! The policies are the real ones, which have models of their own: what is modelled is whom they are
//! told of, and that nobody starts or waits against their word.

use sparkawait_core::element::Key;
use sparkawait_core::policy::{CallPolicy, CallSign, ChannelPolicy, EndedCall, PolicyConfig};
use sparkawait_core::time::ProcessingTime;

use super::operator_model::{Held, Model, Operator, State};

impl Model {
    /// The policy of a channel that has had a record.
    pub(super) fn policy(&mut self, channel: Option<Key>) -> Option<&mut ChannelPolicy> {
        let channels = self.config.channels.filter(|it| it.policy != PolicyConfig::NONE)?;
        let mut config = channels.policy;
        if let Some(limit) = &mut config.adaptive_limit {
            limit.max = limit.max.clamp(1, self.most(&channels));
            limit.min = limit.min.clamp(1, limit.max);
            limit.initial = limit.initial.clamp(limit.min, limit.max);
        }
        let now = self.now;
        Some(self.policies.entry(channel).or_insert_with(|| ChannelPolicy::new(&config, now)))
    }

    /// Tells the policy of a record's channel that its call starts.
    pub(super) fn tell_start(&mut self, value: u32) {
        let (channel, now) = (self.channel(value), self.now);
        if let Some(policy) = self.policy(channel) {
            policy.on_start(now, 1);
        }
    }

    /// Tells the policy of a record's channel that its call ends, if one runs.
    pub(super) fn tell_end(&mut self, value: u32, sign: impl FnOnce(&Held) -> CallSign) {
        let (channel, ended) = (self.channel(value), self.now);
        let in_flight = self.running_in(channel);
        let held = self.get_ref(value);
        let State::Running { since: started, .. } = held.state else { return };
        let (sign, charged, cost) = (sign(held), 1, 1);
        if let Some(policy) = self.policy(channel) {
            policy.on_end(&EndedCall { started, ended, in_flight, sign, charged, cost });
        }
    }

    /// Whether the policy of a channel lets no call start at `now` beside those that run.
    pub(super) fn is_held(&self, channel: Option<Key>, running: u32, now: ProcessingTime) -> bool {
        let policy = self.policies.get(&channel);
        policy.is_some_and(|it| it.window(now) <= running || it.ready_at(now, 1) > now)
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
        let ready = |it: &ChannelPolicy| it.ready_at(ProcessingTime::ZERO, 1);
        let known = self.policies.values().map(ready).any(|it| Some(it) == polled);
        assert!(polled == first || known, "{polled:?} is nobody's time, {first:?} is the first");
        assert!(first.is_none_or(|first| polled.is_some_and(|it| it <= first)));
        for held in self.held().filter(|it| it.state == State::Waiting) {
            let channel = self.channel(held.value);
            let Some(policy) = self.policies.get(&channel) else { continue };
            let ready_at = policy.ready_at(self.now, 1);
            if ready_at > self.now && !self.is_blocked(held.value) {
                let wakes = polled.is_some_and(|it| it <= ready_at);
                assert!(wakes, "{} is forgotten at {ready_at:?}", held.value);
            }
        }
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
        assert!(free == 0 || !self.is_held(None, running, self.now), "it would have to wait");
        let may_start = !waits && !self.is_held(None, running, self.handled_at);
        assert!(!may_start || free > 0 || self.free_slots() == 0, "a call may start");
    }
}
