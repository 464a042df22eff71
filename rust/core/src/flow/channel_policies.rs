// SPDX-License-Identifier: Apache-2.0
//! The policies of all channels of a table, and when they are to be asked again.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Duration;

use super::ChannelId;
use super::retry_line::RetryLine;
use super::told_limits::{ToldLimit, ToldLimits};
use crate::element::Key;
use crate::key_hasher::KeyHasher;
use crate::policy::{
    CallPolicy, ChannelPolicy, Charge, Costs, EndedCall, LimitMetrics, OpenRequest, PermitSources,
    PolicyConfig, RateLimits, RetryBudget, record_costs, request_costs,
};
use crate::queue::EntryId;
use crate::time::ProcessingTime;
use crate::timer::DelayedRetries;

/// Policies for each channel that is open, by its number, and the limits that they share.
#[derive(Debug)]
pub(super) struct ChannelPolicies {
    config: PolicyConfig,
    /// Permits of limits that others share.
    sources: Option<Arc<dyn PermitSources>>,
    /// What a call costs of whose record nothing else is known, beside its request.
    usual: Costs,
    /// What a request costs.
    of_request: Costs,
    /// What the record was charged that has started another request, and has no place yet.
    opened: Option<Costs>,
    /// Until when the request that was started last may be filled.
    open_until: Option<ProcessingTime>,
    channels: Vec<Policed>,
    /// Limits that all channels share; with a single channel they are its own.
    gate: Option<Gate>,
    /// When channels that are held are to be looked at; entries of others are dropped lazily.
    wakes: DelayedRetries<ChannelId>,
    /// When records may have tokens that wait for them; entries of others are dropped lazily.
    tokens: DelayedRetries<ChannelId>,
    /// What records cost that do not cost the usual.
    charges: HashMap<EntryId, Charge, BuildHasherDefault<KeyHasher>>,
    /// What the second call of a record was charged, while it has two.
    second_charges: HashMap<EntryId, Charge, BuildHasherDefault<KeyHasher>>,
    /// What replies have said of limits whose calls end soon.
    told: ToldLimits,
    metrics: LimitMetrics,
    /// Channels that are held.
    held: u32,
    /// The last time that it was told of.
    now: ProcessingTime,
}

#[derive(Debug)]
struct Policed {
    policy: ChannelPolicy,
    /// Until when it is held, if it is.
    held_until: Option<ProcessingTime>,
    /// What retries cost, and who waits for that.
    retries: Option<Box<RetryLine>>,
    /// Calls that could start at the time of the last verdict, one after the other.
    starts: u32,
    request: OpenRequest,
}

/// Limits in time that all channels share.
#[derive(Debug)]
struct Gate {
    limits: RateLimits,
    /// Until when nothing may start, if something is to.
    held_until: Option<ProcessingTime>,
}

/// What the policies of a channel say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Most calls in flight.
    pub(super) window: u32,
    /// When the next call may start, if not now.
    pub(super) held_until: Option<ProcessingTime>,
    /// Whether the table is to ask before each call.
    pub(super) is_watching: bool,
    /// For how long at least records fail instead of waiting, if they do.
    pub(super) refuses_for: Option<Duration>,
    /// Since when it is paused, as far as that counts for records that wait.
    pub(super) paused_since: Option<ProcessingTime>,
}

impl ChannelPolicies {
    /// Makes policies for channels that are opened later; `None` if nothing is bounded.
    ///
    /// With `is_single` there will be one channel, whose limits are its own.
    pub(super) fn new(
        config: &PolicyConfig,
        sources: Option<Arc<dyn PermitSources>>,
        max: u32,
        is_single: bool,
    ) -> Option<Box<Self>> {
        let config = config.sound(max);
        if config.is_none() {
            return None;
        }
        Some(Self::with(&config, sources, is_single))
    }

    /// Makes policies that bound nothing as long as nothing asks for it.
    pub(super) fn unbounded() -> Box<Self> {
        Self::with(&PolicyConfig::NONE, None, true)
    }

    fn with(
        config: &PolicyConfig,
        sources: Option<Arc<dyn PermitSources>>,
        is_single: bool,
    ) -> Box<Self> {
        let shared = RateLimits::new(&config.rate_limits, sources.as_deref(), None, |it| {
            !is_single && !it.is_per_channel
        });
        let usual = record_costs(&config.rate_limits);
        let has_gate = !shared.is_empty();
        let gate = || Gate { limits: shared, held_until: None };
        Box::new(Self {
            sources,
            usual,
            of_request: request_costs(&config.rate_limits),
            opened: None,
            open_until: None,
            channels: Vec::new(),
            gate: has_gate.then(gate),
            wakes: DelayedRetries::new(),
            tokens: DelayedRetries::new(),
            charges: HashMap::default(),
            second_charges: HashMap::default(),
            told: ToldLimits::default(),
            metrics: LimitMetrics::default(),
            held: 0,
            now: ProcessingTime::ZERO,
            config: *config,
        })
    }

    /// Begins anew for a channel, whose number is the next one or was in use before.
    pub(super) fn open(&mut self, id: ChannelId, channel: Option<Key>, now: ProcessingTime) {
        let has_gate = self.gate.is_some();
        let limits = RateLimits::new(
            &self.config.rate_limits,
            self.sources.as_deref(),
            channel.map(Key::as_u64),
            |it| it.is_per_channel || !has_gate,
        );
        let policy = ChannelPolicy::with_limits(&self.config, limits, now);
        let budget = self.config.retry_budget.map(|it| RetryBudget::new(it, now));
        let retries = budget.map(|it| Box::new(RetryLine::new(it)));
        let request = OpenRequest::default();
        let policed = Policed { policy, held_until: None, retries, starts: 1, request };
        match self.channels.get_mut(id.0 as usize) {
            Some(known) => {
                // Nobody who waited there does still, or it would not begin anew.
                let line = known.retries.as_ref().map_or(0, |it| it.waiting());
                self.metrics.release_retries(line as u64, now);
                *known = policed;
            }
            None => self.channels.push(policed),
        }
    }

    // --- calls ---

    /// Tells of a call that starts.
    pub(super) fn on_start(
        &mut self,
        id: ChannelId,
        entry: Option<EntryId>,
        costs: Costs,
        now: ProcessingTime,
    ) {
        if let Some(charge) = entry.and_then(|it| self.charges.get_mut(&it)) {
            charge.begin();
        }
        self.note_request(id, entry, costs, now);
        self.metrics.count(&costs);
        if let Some(gate) = &mut self.gate {
            gate.limits.on_start(now, &costs);
        }
        if let Some(it) = self.channels.get_mut(id.0 as usize) {
            it.policy.on_start(now, &costs);
        }
    }

    /// Tells of a call that ended, and then of what its reply says of limits.
    pub(super) fn on_end(&mut self, id: ChannelId, entry: EntryId, call: &EndedCall) {
        self.metrics.correct(&call.charged, &call.cost);
        if let Some(gate) = &mut self.gate {
            gate.limits.settle(&call.charged, &call.cost);
        }
        if let Some(it) = self.channels.get_mut(id.0 as usize) {
            it.policy.on_end(call);
        }
        for ToldLimit { left, is_of_channel } in self.told.take(entry) {
            if let Some(gate) = self.gate.as_mut().filter(|_| !is_of_channel) {
                gate.limits.tell(&left, call.started, call.ended);
            }
            if let Some(it) = self.channels.get_mut(id.0 as usize) {
                it.policy.tell(&left, call.started, call.ended);
            }
        }
    }

    /// Makes no call of a channel before `until`, because the reply to one said so.
    pub(super) fn pause_until(
        &mut self,
        id: ChannelId,
        until: ProcessingTime,
        started: ProcessingTime,
        now: ProcessingTime,
    ) {
        if let Some(it) = self.channels.get_mut(id.0 as usize) {
            it.policy.pause_until(until, started, now);
        }
    }

    // --- verdicts ---

    /// Asks what holds for a call of a channel now, for which something waits or not.
    pub(super) fn verdict(
        &mut self,
        id: ChannelId,
        costs: &Costs,
        is_awaited: bool,
        counts_asked: bool,
        now: ProcessingTime,
    ) -> Verdict {
        self.now = now;
        let Some(policed) = self.channels.get_mut(id.0 as usize) else {
            return Verdict {
                window: u32::MAX,
                held_until: None,
                is_watching: false,
                refuses_for: None,
                paused_since: None,
            };
        };
        let policy = &mut policed.policy;
        if is_awaited {
            policy.prepare(now, costs);
        }
        let window = policy.window(now);
        let ready_at = policy.ready_at(now, costs);
        let is_watching = self.gate.is_some() || policy.is_watching(now);
        policed.starts = if is_watching { policy.calls(now, costs) } else { u32::MAX };
        if self.config.requests.is_some() {
            // Those that go along with a request, or else the first one of another.
            policed.starts = policed.starts.min(policed.request.places(now).max(1));
        }
        let held_until = (ready_at > now).then_some(ready_at);
        Verdict {
            window,
            held_until,
            is_watching,
            refuses_for: policy.refuses_for(now),
            paused_since: policy.paused_since(counts_asked, now),
        }
    }

    /// Asks for what a call of a channel costs, where others may take it meanwhile.
    pub(super) fn prepare(&mut self, id: ChannelId, costs: &Costs, now: ProcessingTime) {
        if let Some(it) = self.channels.get_mut(id.0 as usize) {
            it.policy.prepare(now, costs);
        }
    }

    /// Notes that a channel is held, or is no longer.
    pub(super) fn note_held(&mut self, is_held: bool, now: ProcessingTime) {
        self.held = if is_held { self.held + 1 } else { self.held.saturating_sub(1) };
        self.note_wait(now);
    }

    fn note_wait(&mut self, now: ProcessingTime) {
        let is_shut = self.gate.as_ref().is_some_and(|it| it.held_until.is_some());
        self.metrics.wait(self.held > 0 || is_shut, now);
    }

    /// Returns how many calls of a channel could start at the time of the last verdict.
    pub(super) fn starts(&self, id: ChannelId) -> u32 {
        self.channels.get(id.0 as usize).map_or(u32::MAX, |it| it.starts)
    }

    /// Returns whether a call that costs as much passes the limits that channels share, whoever
    /// waits for them.
    pub(super) fn is_free(&self, costs: &Costs) -> bool {
        self.gate.as_ref().is_none_or(|it| it.limits.is_free(costs))
    }

    /// Returns whether records of some channels may go along with a request that was paid for.
    pub(super) fn has_open_request(&self, now: ProcessingTime) -> bool {
        self.open_until.is_some_and(|it| now <= it)
    }

    /// Returns whether those of this one may.
    pub(super) fn may_go_along(&self, id: ChannelId, now: ProcessingTime) -> bool {
        self.channels.get(id.0 as usize).is_some_and(|it| it.request.places(now) > 0)
    }

    /// Returns when the limits that channels share let a call start, if not now; they are asked
    /// again then if something waits.
    pub(super) fn opens_at(
        &mut self,
        costs: &Costs,
        now: ProcessingTime,
    ) -> Option<ProcessingTime> {
        // Others may wait for what this call does not need.
        let gate = self.gate.as_mut().filter(|it| !it.limits.is_free(costs))?;
        gate.limits.prepare(now, costs);
        let ready_at = gate.limits.ready_at(now, costs);
        let was_shut = gate.held_until.is_some();
        gate.held_until = (ready_at > now).then_some(ready_at);
        let held_until = gate.held_until;
        self.metrics.hold(ready_at, now);
        if held_until.is_some() != was_shut {
            self.note_wait(now);
        }
        held_until
    }

    /// Ends the wait for the limits that channels share once its time has come. Whoever starts next
    /// asks them again; that may be later, while all calls are in flight.
    pub(super) fn end_wait(&mut self, now: ProcessingTime) {
        let Some(gate) = &mut self.gate else { return };
        if gate.held_until.is_some_and(|it| it <= now) {
            gate.held_until = None;
            self.note_wait(now);
        }
    }

    /// Notes until when a channel is held.
    pub(super) fn hold(&mut self, id: ChannelId, until: Option<ProcessingTime>) {
        let Some(it) = self.channels.get_mut(id.0 as usize) else { return };
        if it.held_until == until {
            return;
        }
        it.held_until = until;
        if let Some(until) = until.filter(|it| *it != ProcessingTime::NEVER) {
            self.metrics.hold(until, self.now);
            self.wakes.push(until, id);
        }
    }

    /// Returns when a channel is to be looked at; with `has_ready` also when something may start
    /// that waits for nothing but the limits that channels share.
    pub(super) fn next_wake(&mut self, has_ready: bool) -> Option<ProcessingTime> {
        let channels = &self.channels;
        let wake = self.wakes.next_at(|id, at| is_held_until(channels, id, at));
        let token = self.tokens.next_at(|id, at| has_tokens_at(channels, id, at));
        let gate = self.gate.as_ref().and_then(|it| it.held_until).filter(|_| has_ready);
        [wake, token, gate].into_iter().flatten().min()
    }

    /// Returns a channel whose time has come.
    pub(super) fn pop_due(&mut self, now: ProcessingTime) -> Option<ChannelId> {
        while let Some((at, id)) = self.wakes.pop_due_at(now) {
            if is_held_until(&self.channels, id, at) {
                return Some(id);
            }
        }
        None
    }

    /// Returns whether a channel has nothing to remember but what it found out about its destination.
    pub(super) fn may_forget(&self, id: ChannelId) -> bool {
        self.channels.get(id.0 as usize).is_none_or(|it| it.policy.is_settled(self.now))
    }

    /// Forgets all but the first `channels` channels, and gives their memory back.
    pub(super) fn truncate(&mut self, channels: usize) {
        self.channels.truncate(channels);
        self.channels.shrink_to(2 * channels);
    }

    /// Returns what was taken so far.
    pub(super) const fn metrics(&self) -> &LimitMetrics {
        &self.metrics
    }
}

fn has_tokens_at(channels: &[Policed], id: ChannelId, at: ProcessingTime) -> bool {
    let line = channels.get(id.0 as usize).and_then(|it| it.retries.as_ref());
    line.is_some_and(|it| it.wakes_at == Some(at))
}

fn is_held_until(channels: &[Policed], id: ChannelId, at: ProcessingTime) -> bool {
    channels.get(id.0 as usize).is_some_and(|it| it.held_until == Some(at))
}

mod record_costs;
mod retry_tokens;
