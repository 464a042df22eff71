// SPDX-License-Identifier: Apache-2.0
//! The policies of all channels of a table, and when to ask them again.

use std::sync::Arc;
use std::time::Duration;

use super::ChannelId;
use super::retry_line::RetryLine;
use super::tickets::{Call, Ticket, Tickets};
use crate::element::Key;
use crate::policy::{
    CallLimits, CallSign, Costs, InPart, Ledgers, LimitMetrics, Line, OpenRequest, PolicyConfig,
    RetryBudget, Spent, Watch,
};
use crate::queue::EntryId;
use crate::time::ProcessingTime;
use crate::timer::DelayedRetries;

/// Policies for each channel that is open, by its number, and the limits that they share.
///
/// They say when a call may start as far as time goes; the credits of the table say how many. What
/// happens to a call is told to both limits that it pays, the shared ones and those of its channel.
#[derive(Debug)]
pub(super) struct ChannelPolicies {
    config: PolicyConfig,
    /// Permits of limits that others share.
    sources: Option<Arc<dyn Ledgers>>,
    channels: Vec<Policed>,
    /// Limits that all channels share; with a single channel they are its own.
    shared: Option<CallLimits>,
    /// What calls hold of their limits.
    pub(super) tickets: Tickets,
    /// Until when the request that was started last may be filled.
    open_until: Option<ProcessingTime>,
    /// When to look at channels that are held; entries of others are dropped lazily.
    wakes: DelayedRetries<ChannelId>,
    /// When records may have tokens that wait for them; entries of others are dropped lazily.
    tokens: DelayedRetries<ChannelId>,
    metrics: LimitMetrics,
    /// Channels that are held.
    held: u32,
    /// The last time that it was told of.
    now: ProcessingTime,
}

#[derive(Debug)]
struct Policed {
    limits: CallLimits,
    /// What retries cost, and who waits for that.
    retries: Option<Box<RetryLine>>,
    /// Calls that could start at the time of the last verdict, one after the other.
    starts: u32,
    /// Whether records failed then instead of waiting.
    refuses: bool,
    request: OpenRequest,
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
    /// Since when it is paused, as far as that counts for records that wait.
    pub(super) paused_since: Option<ProcessingTime>,
    /// Whether the next record fails instead of waiting.
    pub(super) refuses: bool,
}

impl Verdict {
    /// What is known about a channel without policies.
    const NOTHING: Self = Self {
        window: u32::MAX,
        held_until: None,
        is_watching: false,
        paused_since: None,
        refuses: false,
    };
}

impl ChannelPolicies {
    /// Makes policies for channels that are opened later; `None` if nothing is bounded.
    ///
    /// With `is_single` there will be one channel, whose limits are its own.
    pub(super) fn new(
        config: &PolicyConfig,
        sources: Option<Arc<dyn Ledgers>>,
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
        sources: Option<Arc<dyn Ledgers>>,
        is_single: bool,
    ) -> Box<Self> {
        let shared = CallLimits::in_time(&config.limits, sources.as_deref(), None, |it| {
            !is_single && !it.is_per_channel
        });
        Box::new(Self {
            sources,
            channels: Vec::new(),
            shared: Some(shared).filter(|it| !it.is_empty()),
            tickets: Tickets::new(config),
            open_until: None,
            wakes: DelayedRetries::new(),
            tokens: DelayedRetries::new(),
            metrics: LimitMetrics::default(),
            held: 0,
            now: ProcessingTime::ZERO,
            config: *config,
        })
    }

    /// Starts over for a channel, whose number is the next one or was in use before.
    pub(super) fn open(&mut self, id: ChannelId, channel: Option<Key>, now: ProcessingTime) {
        let is_shared = self.shared.is_some();
        let limits = CallLimits::in_time(
            &self.config.limits,
            self.sources.as_deref(),
            channel.map(Key::as_u64),
            |it| it.is_per_channel || !is_shared,
        );
        let budget = self.config.retry_budget.map(|it| RetryBudget::new(it, now));
        let policed = Policed {
            limits: limits.and(&self.config, now),
            retries: budget.map(|it| Box::new(RetryLine::new(it))),
            starts: 1,
            refuses: false,
            request: OpenRequest::default(),
        };
        match self.channels.get_mut(id.0 as usize) {
            Some(known) => {
                // Nobody who waited there still does, or it would not begin again.
                let line = known.retries.as_ref().map_or(0, |it| it.waiting());
                self.metrics.release_retries(line as u64, now);
                *known = policed;
            }
            None => self.channels.push(policed),
        }
    }

    fn get(&self, id: ChannelId) -> Option<&Policed> {
        self.channels.get(id.0 as usize)
    }

    /// Returns the limits that a call of a channel pays: those that all share, and its own.
    fn paid_by(&mut self, id: ChannelId) -> impl Iterator<Item = &mut CallLimits> {
        let own = self.channels.get_mut(id.0 as usize).map(|it| &mut it.limits);
        self.shared.iter_mut().chain(own)
    }

    // --- calls ---

    /// Returns what the next call of a record of a channel costs; `None`: of any record.
    #[inline]
    pub(super) fn costs(
        &self,
        id: ChannelId,
        entry: Option<EntryId>,
        now: ProcessingTime,
    ) -> Costs {
        self.costs_in(id, self.tickets.part_of(entry), self.tickets.estimate(entry), now)
    }

    /// Returns what a call costs if this much is known about it beside its request: that is paid
    /// already if the call may go along with another one's.
    pub(super) fn costs_beside(&self, id: ChannelId, costs: Costs, now: ProcessingTime) -> Costs {
        self.costs_in(id, InPart::No, costs, now)
    }

    fn costs_in(&self, id: ChannelId, part: InPart, costs: Costs, now: ProcessingTime) -> Costs {
        let goes_along = self.get(id).is_some_and(|it| it.request.admits(part, now));
        if goes_along { costs } else { self.tickets.with_request(costs) }
    }

    /// Tells of a call that starts; without one, of a record that has no place yet.
    pub(super) fn on_start(
        &mut self,
        id: ChannelId,
        call: Option<Call>,
        costs: &Costs,
        now: ProcessingTime,
    ) {
        if let Some(config) = &self.config.requests {
            let part = self.tickets.part_of(call.map(|it| it.entry));
            let channel = self.channels.get_mut(id.0 as usize);
            let payer = call.map(|it| (it.entry.as_u64(), it.line));
            if channel.is_some_and(|it| it.request.on_start(config, part, payer, now)) {
                self.open_until = Some(now + config.linger);
            }
        }
        if let Some(call) = call {
            self.tickets.begin(call, costs);
        }
        let line = call.map_or(Line::Records, |it| it.line);
        self.metrics.count(costs);
        self.paid_by(id).for_each(|it| it.on_start(now, costs, line));
    }

    /// Tells of a call that ended, and then of what its reply says of limits.
    pub(super) fn on_end(
        &mut self,
        id: ChannelId,
        call: Call,
        (started, ended): (ProcessingTime, ProcessingTime),
        in_flight: u32,
        sign: CallSign,
    ) {
        let ticket = self.tickets.take(call);
        if self.config.requests.is_some() {
            self.end_unmade(id, call, ticket.as_ref());
        }
        let call = self.tickets.ended(ticket.as_ref(), (started, ended), in_flight, sign);
        if call.cost != call.charged {
            self.metrics.correct(&call.charged, &call.cost);
        }
        self.paid_by(id).for_each(|it| it.on_end(&call));
        for told in ticket.and_then(|it| it.told).into_iter().flatten().flatten() {
            let others = usize::from(told.is_of_channel && self.shared.is_some());
            self.paid_by(id).skip(others).for_each(|it| it.lower_to(&told.left, started, ended));
        }
        self.end_wait_for_calls(ended);
    }

    /// Charges a call for the request that was made, which it is the first of.
    pub(super) fn charge_request(&mut self, id: ChannelId, call: Call) {
        let charged = self.tickets.lead_request(call);
        if self.recharge(id, charged) {
            self.end_wait_for_calls(self.now);
        }
    }

    fn recharge(&mut self, id: ChannelId, charged: Option<(Costs, Costs)>) -> bool {
        if let Some((charged, anew)) = &charged {
            self.metrics.correct(charged, anew);
            self.paid_by(id).for_each(|it| it.recharge(charged, anew));
        }
        charged.is_some()
    }

    /// Lets another call pay for the request of one that has ended before it was made.
    fn end_unmade(&mut self, id: ChannelId, call: Call, ticket: Option<&Ticket>) {
        let is_unmade = ticket.is_some_and(|it| self.tickets.has_paid_ahead(it));
        let channel = self.channels.get_mut(id.0 as usize);
        let payer = (call.entry.as_u64(), call.line);
        if let Some((entry, line)) = channel.and_then(|it| it.request.on_end(payer, is_unmade)) {
            let charged = self.tickets.pay_request(Call { entry: EntryId::from_u64(entry), line });
            self.recharge(id, charged);
        }
    }

    /// Notes what a call has cost of one limit.
    pub(super) fn settle(&mut self, call: Call, limit: usize, cost: u64) {
        self.metrics.cut_costs += u64::from(self.tickets.settle(call, limit, cost));
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
            it.limits.pause_until(until, started, now);
        }
    }

    // --- verdicts ---

    /// Says what holds for a call of a channel now. It looks, and asks for nothing.
    pub(super) fn verdict(
        &mut self,
        id: ChannelId,
        costs: &Costs,
        counts_asked: bool,
        now: ProcessingTime,
    ) -> Verdict {
        self.now = now;
        let Some(policed) = self.channels.get_mut(id.0 as usize) else { return Verdict::NOTHING };
        let limits = &mut policed.limits;
        let ready_at = limits.ready_at(now, costs, Line::Records);
        let window = limits.window(now);
        let is_watching = self.shared.is_some() || limits.is_watching(now);
        policed.starts = if is_watching { limits.calls(now, costs) } else { u32::MAX };
        if self.config.requests.is_some() {
            // Those that go along with a request, or else the first one of another.
            policed.starts = policed.starts.min(policed.request.places(now).max(1));
        }
        let held_until = (ready_at > now).then_some(ready_at);
        let is_spent =
            ready_at == ProcessingTime::NEVER && limits.spent(costs, Line::Records).is_some();
        policed.refuses = is_spent || limits.refuses_for(now).is_some();
        Verdict {
            window,
            held_until,
            is_watching,
            paused_since: limits.paused_since(counts_asked, now),
            refuses: policed.refuses,
        }
    }

    /// Returns what is known of a destination whose records wait for its probes.
    pub(super) fn watch(&self, id: ChannelId) -> Option<Watch> {
        self.get(id).and_then(|it| it.limits.watch())
    }

    /// Lets the call after the next drop be made at once.
    pub(super) fn doubt(&mut self, id: ChannelId) {
        if let Some(it) = self.channels.get_mut(id.0 as usize) {
            it.limits.doubt();
        }
    }

    /// Pauses a channel after a drop.
    pub(super) fn trip(&mut self, id: ChannelId, now: ProcessingTime) {
        if let Some(it) = self.channels.get_mut(id.0 as usize) {
            it.limits.trip(now);
        }
    }

    /// Returns for how long at least records of a channel fail instead of waiting, as of the last
    /// verdict.
    pub(super) fn refuses_for(&self, id: ChannelId) -> Option<Duration> {
        self.get(id).and_then(|it| it.limits.refuses_for(self.now))
    }

    /// Asks those again who said that a call of a record will never start: they may have more by now.
    pub(super) fn ask_again(&mut self, id: ChannelId, costs: &Costs, now: ProcessingTime) {
        self.paid_by(id).for_each(|it| it.ask_again(now, costs, Line::Records));
    }

    /// Returns why a call of a record that costs as much will never start, if that is so.
    pub(super) fn spent(&self, id: ChannelId, costs: &Costs) -> Option<Spent> {
        let own = self.get(id).map(|it| &it.limits);
        own.into_iter().chain(&self.shared).find_map(|it| it.spent(costs, Line::Records))
    }

    /// Returns whether records of a channel fail instead of waiting, as of the last verdict.
    pub(super) fn refuses(&self, id: ChannelId) -> bool {
        self.get(id).is_some_and(|it| it.refuses)
    }

    /// Gives back what was taken for the next call of a line, which does not start after all.
    #[cold]
    pub(super) fn give_back(&mut self, id: ChannelId, line: Line) {
        self.paid_by(id).for_each(|it| it.give_back(line));
    }

    /// Notes that a channel is held, or is no longer.
    pub(super) fn note_held(&mut self, is_held: bool, now: ProcessingTime) {
        self.held = if is_held { self.held + 1 } else { self.held.saturating_sub(1) };
        self.note_wait(now);
    }

    fn note_wait(&mut self, now: ProcessingTime) {
        let is_shut = self.shared.as_ref().is_some_and(|it| it.held_until.is_some());
        self.metrics.wait(self.held > 0 || is_shut, now);
    }

    /// Returns how many calls of a channel could start at the time of the last verdict.
    pub(super) fn starts(&self, id: ChannelId) -> u32 {
        self.get(id).map_or(u32::MAX, |it| it.starts)
    }

    /// Returns whether others may take permits that a call of a channel needs: other channels, or other tasks.
    pub(super) const fn asks_others(&self) -> bool {
        self.shared.is_some() || self.sources.is_some()
    }

    /// Returns whether a call with these costs pays limits that channels share, for which others may wait.
    pub(super) fn is_paid_in_line(&self, costs: &Costs) -> bool {
        self.shared.as_ref().is_some_and(|it| !it.is_free(costs))
    }

    /// Returns whether records of some channels may go along with a request that was paid for.
    pub(super) fn has_open_request(&self, now: ProcessingTime) -> bool {
        self.open_until.is_some_and(|it| now <= it)
    }

    /// Returns whether those of this one may.
    pub(super) fn may_go_along(&self, id: ChannelId, now: ProcessingTime) -> bool {
        self.get(id).is_some_and(|it| it.request.has_places(now))
    }

    /// Asks all limits for a call of a line that would start now; returns when it may, if not now. A record
    /// was [looked at](Self::verdict) just before.
    ///
    /// Where others take from a limit, too, the call gets a place in line there: of all such limits in one
    /// step, and of none while it waits for what is this task's own. What is in no line is taken last, all
    /// together, and given back before any wait. Nobody else asks.
    pub(super) fn ask(
        &mut self,
        id: ChannelId,
        line: Line,
        costs: &Costs,
        now: ProcessingTime,
    ) -> Option<ProcessingTime> {
        let own = self.channels.get_mut(id.0 as usize).map(|it| &mut it.limits);
        let in_line = self.shared.as_mut().filter(|it| !it.is_free(costs));
        let looked_at = line == Line::Records;
        let is_lacking = own.iter().chain(&in_line).any(|it| it.is_lacking(line));
        let of_own = own.as_ref().filter(|_| !looked_at).map(|it| it.ready_here(now, costs));
        let of_all = in_line.as_ref().map(|it| it.ready_here(now, costs));
        let mut ready = (of_own.unwrap_or_default(), of_all.unwrap_or_default());
        let is_ready = |it: (ProcessingTime, ProcessingTime)| it.0.max(it.1) <= now;
        if is_ready(ready) {
            let mut both = (own, in_line);
            let mut ask = |rates| {
                let of_own = both.0.as_mut().map(|it| it.ask(now, costs, line, rates));
                let of_own = of_own.unwrap_or_default();
                let is_next = rates || of_own <= now;
                let of_all = both.1.as_mut().filter(|_| is_next);
                (of_own, of_all.map(|it| it.ask(now, costs, line, rates)).unwrap_or_default())
            };
            // Who lacks something else needs no place before that is there.
            if is_lacking {
                ready = ask(false);
            }
            if is_ready(ready) {
                ready = ask(true);
            }
            if is_ready(ready) {
                ready = ask(false);
            }
            if !is_ready(ready) {
                both.0.into_iter().chain(both.1).for_each(|it| it.give_back(line));
            }
        }
        let (of_own, of_all) = ready;
        if looked_at && self.is_paid_in_line(costs) {
            self.hold_all((of_all > now).then_some(of_all), now);
        }
        Some(of_own.max(of_all)).filter(|it| *it > now)
    }

    /// Notes until when the limits that channels share let none start; they are asked again then if
    /// something waits.
    fn hold_all(&mut self, until: Option<ProcessingTime>, now: ProcessingTime) {
        let Some(shared) = &mut self.shared else { return };
        let was_held = std::mem::replace(&mut shared.held_until, until).is_some();
        if let Some(until) = until {
            self.metrics.hold(until, now);
        }
        if until.is_some() != was_held {
            self.note_wait(now);
        }
    }

    /// Ends the wait for what no time brings of the limits that channels share: something was settled, or
    /// who waited is gone.
    pub(super) fn end_wait_for_calls(&mut self, now: ProcessingTime) {
        let is_held = |it: &CallLimits| it.held_until == Some(ProcessingTime::NEVER);
        if self.shared.as_ref().is_some_and(is_held) {
            self.hold_all(None, now);
        }
    }

    /// Ends the wait for the limits that channels share once its time has come. The next start asks
    /// them again; that may be later, while all calls are in flight.
    pub(super) fn end_wait(&mut self, now: ProcessingTime) {
        if self.shared.as_ref().is_some_and(|it| it.held_until.is_some_and(|at| at <= now)) {
            self.hold_all(None, now);
        }
    }

    /// Notes until when a channel is held.
    pub(super) fn hold(&mut self, id: ChannelId, until: Option<ProcessingTime>) {
        let Some(it) = self.channels.get_mut(id.0 as usize) else { return };
        if std::mem::replace(&mut it.limits.held_until, until) == until {
            return;
        }
        if let Some(until) = until.filter(|it| *it != ProcessingTime::NEVER) {
            self.metrics.hold(until, self.now);
            self.wakes.push(until, id);
        }
    }

    /// Returns when to look at a channel; with `has_ready` also when something may start that waits
    /// only for the limits that channels share.
    pub(super) fn next_wake(&mut self, has_ready: bool) -> Option<ProcessingTime> {
        let channels = &self.channels;
        let wake = self.wakes.next_at(|id, at| is_held_until(channels, id, at));
        let token = self.tokens.next_at(|id, at| has_tokens_at(channels, id, at));
        let shared = self.shared.as_ref().and_then(|it| it.held_until).filter(|_| has_ready);
        let next = [wake, token, shared].into_iter().flatten().min();
        next.filter(|it| *it != ProcessingTime::NEVER)
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
        self.get(id).is_none_or(|it| it.limits.is_settled(self.now))
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
    channels.get(id.0 as usize).is_some_and(|it| it.limits.held_until == Some(at))
}

mod retry_tokens;
