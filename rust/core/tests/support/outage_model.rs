// SPDX-License-Identifier: Apache-2.0
//! What an outage does to records, in the model.

use std::time::Duration;

use sparkawait_core::operator::{Retry, Uncounted};
use sparkawait_core::policy::CallSign;
use sparkawait_core::time::ProcessingTime;

use super::operator_model::Model;

/// The attempts of a record that were dropped since its destination has answered anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldOutage {
    /// Answers and drops of the destination up to the last of them.
    answers: u64,
    drops: u64,
    count: u32,
    is_alone: bool,
    pub(super) since: Option<ProcessingTime>,
}

impl Model {
    /// Whether a circuit breaker holds records.
    fn holds(&self) -> bool {
        let pause = self.config.channels.and_then(|it| it.policy.pause);
        let is_bounded = self.config.max_wait.or(self.config.timeout).is_some();
        is_bounded && pause.is_some_and(|it| it.after_drops.is_some() && !it.refuses)
    }

    fn ended(&self, value: u32) -> (u64, u64) {
        self.ended.get(&self.channel(value)).copied().unwrap_or_default()
    }

    /// Counts the end of a call.
    pub(super) fn count_end(&mut self, value: u32, sign: CallSign) {
        let counts = self.ended.entry(self.channel(value)).or_default();
        counts.0 += u64::from(sign.is_answer());
        counts.1 += u64::from(sign.is_drop());
    }

    /// Whether a record that was dropped is called again because of an outage, whatever tries it has had.
    pub(super) fn outlasts(&self, value: u32, sign: CallSign) -> Option<bool> {
        let outage = self.get_ref(value).outage.filter(|_| sign.is_drop() && self.holds())?;
        if outage.answers != self.ended(value).0 {
            return None;
        }
        let most = self.config.max_wait.or(self.config.timeout).map(|it| it / 4);
        let since = outage.since.filter(|_| outage.is_alone);
        let has_waited = since.zip(most).is_some_and(|(it, most)| self.now >= it + most);
        Some(!(has_waited && self.others_rest(value)))
    }

    fn others_rest(&self, value: u32) -> bool {
        let channel = self.channel(value);
        let rests = |it: &&super::held_model::Held| !it.is_running() && !it.is_final();
        let mut others =
            self.held().filter(rests).filter(|it| self.channel(it.value) == channel).peekable();
        others.peek().is_some() && !others.any(|it| it.waits() && !self.is_blocked(it.value))
    }

    /// A record ends whose destination others wait for; to be asked before that learns of its call.
    pub(super) fn doubt(&mut self, value: u32, retry: Retry, sign: CallSign) {
        let is_divided = matches!(retry, Retry::InPart { .. });
        let ends = self.outlasts(value, sign) == Some(false);
        let may = self.is_worth_it(retry) && self.config.retry.is_some() && !self.is_draining();
        let channel = self.channel(value);
        if let Some(policy) = self.policy(channel).filter(|_| ends && may && !is_divided) {
            policy.doubt();
        }
    }

    /// Notes an attempt that another one follows; returns whether the record waits for a probe.
    pub(super) fn note_outage(&mut self, value: u32, sign: CallSign) -> bool {
        let (answers, drops) = self.ended(value);
        if !self.holds() {
            return false;
        }
        let held = self.get(value);
        if !sign.is_drop() {
            held.outage = None;
            return false;
        }
        let known = held.outage.filter(|it| it.answers == answers);
        let first = HeldOutage { answers, drops, count: 1, is_alone: true, since: None };
        held.outage = Some(known.map_or(first, |it| HeldOutage {
            drops,
            count: it.count + 1,
            is_alone: it.is_alone && it.drops + 1 == drops,
            ..it
        }));
        held.uncounted.count += u32::from(known.is_some());
        let (now, channel, failures) = (self.now, self.channel(value), self.failures(value));
        let is_last = self.config.retry.is_some_and(|it| !it.can_retry(failures));
        let Some(policy) = self.policy(channel) else { return false };
        if is_last && known.is_some() {
            policy.trip(now);
        }
        let is_held = known.is_some() && policy.watch().is_some_and(|it| it.is_left_alone);
        let outage = self.get(value).outage.as_mut().filter(|it| is_held && it.since.is_none());
        if let Some(outage) = outage {
            (outage.since, outage.is_alone) = (Some(now), true);
        }
        is_held
    }

    /// What is saved of a record that is pending: how many attempts belong to an outage that goes on.
    pub(super) fn saved_uncounted(&self, value: u32) -> Uncounted {
        let (held, answers) = (self.get_ref(value), self.ended(value).0);
        let outage = held.outage.filter(|it| self.holds() && it.answers == answers);
        Uncounted { in_outage: outage.map_or(0, |it| it.count), ..held.uncounted }
    }

    /// Goes on with what was saved.
    pub(super) fn restore_uncounted(&mut self, value: u32, saved: Uncounted) {
        let (answers, drops) = self.ended(value);
        let goes_on = self.holds() && saved.in_outage > 0;
        let outage =
            HeldOutage { answers, drops, count: saved.in_outage, is_alone: true, since: None };
        let held = self.get(value);
        held.outage = goes_on.then_some(outage);
        held.uncounted = Uncounted { in_outage: 0, ..saved };
    }

    /// How often it was tried, those attempts included.
    pub(super) fn failures(&self, value: u32) -> u32 {
        let held = self.get_ref(value);
        held.tries() + held.outage.map_or(0, |it| it.count - 1)
    }

    /// Since when it has waited.
    pub(super) fn patient_since(&self, value: u32) -> ProcessingTime {
        let held = self.get_ref(value);
        held.outage.and_then(|it| it.since).unwrap_or(held.waits_since)
    }

    /// The delay before the next attempt.
    pub(super) const fn held_delay(retry: Retry) -> Duration {
        if let Retry::After(delay) = retry { delay } else { Duration::ZERO }
    }
}
