// SPDX-License-Identifier: Apache-2.0
//! All that bounds calls in time, taken together: those of one channel, or of all channels.

use std::time::Duration;

use super::adaptive_limit::{AdaptiveLimit, AdaptiveLimitConfig};
use super::adaptive_rate::AdaptiveRate;
use super::costs::{Costs, MAX_LIMITS};
use super::ended_call::EndedCall;
use super::ledger::{Ledgers, Spent};
use super::limit::{Limit, LimitConfig, LimitConfigs};
use super::limit_left::LimitLeft;
use super::open_request::RequestConfig;
use super::pause::{LONGEST_ASKED, Pause, PauseConfig, Watch};
use super::retry_budget::RetryBudgetConfig;
use super::standing::Line;
use crate::time::ProcessingTime;

/// What bounds the calls of a channel beside its credits. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PolicyConfig {
    /// Calls at a time that follow what the destination bears.
    pub adaptive_limit: Option<AdaptiveLimitConfig>,
    /// When a destination that drops its calls is left alone.
    pub pause: Option<PauseConfig>,
    /// Calls, or what they cost: per time, in all, or at a time.
    pub limits: LimitConfigs,
    /// Whether calls per time follow what the destination refuses.
    pub is_rate_adaptive: bool,
    /// How many retries calls earn.
    pub retry_budget: Option<RetryBudgetConfig>,
    /// How requests are made, for limits that count those.
    pub requests: Option<RequestConfig>,
}

impl PolicyConfig {
    /// Bounds nothing.
    pub const NONE: Self = Self {
        adaptive_limit: None,
        pause: None,
        limits: [None; MAX_LIMITS],
        is_rate_adaptive: false,
        retry_budget: None,
        requests: None,
    };

    /// Bounds calls by one limit in time, and by nothing else.
    pub const fn limited(limit: LimitConfig) -> Self {
        let mut limits = Self::NONE;
        limits.limits[0] = Some(limit);
        limits
    }

    /// Returns whether it bounds nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// Returns the same with bounds that can be kept, for at most `max` calls in flight.
    pub(crate) fn sound(&self, max: u32) -> Self {
        Self { adaptive_limit: self.adaptive_limit.map(|it| it.sound(max)), ..*self }
    }
}

/// What bounds calls beside their credits: those of one channel, or those of all channels together.
///
/// One type for both, so that a call is told of in the same way to what it shares with others and to
/// what is its channel's own. It says how many calls may be in flight (the least of what its parts say),
/// and when the next one may start (the latest). A struct instead of trait objects: what is not asked
/// for is one test of an `Option`, and each part is asked only for what it has to say.
///
/// | part | how many | when | learns from replies |
/// |---|---|---|---|
/// | [`AdaptiveLimit`] | yes | - | what calls come to |
/// | [`Pause`] | none, one, a few more | the next probe | drops, and what the destination asks for |
/// | each [`Limit`] | - | when permits are there, if ever | what a call has cost, and what is left |
/// | [`AdaptiveRate`] | - | when a permit is there | refusals |
#[derive(Debug)]
pub struct CallLimits {
    adaptive_limit: Option<AdaptiveLimit>,
    pause: Option<Pause>,
    /// By their numbers in the settings.
    limits: Vec<(usize, Limit)>,
    /// Whether others take from one of them, too.
    is_shared: bool,
    adaptive_rate: Option<AdaptiveRate>,
    /// Until when calls that are wanted are held, if they are: who has it looks again then.
    pub(crate) held_until: Option<ProcessingTime>,
}

impl CallLimits {
    /// Makes all limits of a channel that nothing is known about.
    pub fn new(config: &PolicyConfig, now: ProcessingTime) -> Self {
        Self::in_time(&config.limits, None, None, |_| true).and(config, now)
    }

    /// Makes only those rate limits that `is_wanted` picks; `sources` has the permits of those that
    /// others share.
    pub fn in_time(
        configs: &LimitConfigs,
        sources: Option<&dyn Ledgers>,
        channel: Option<u64>,
        is_wanted: impl Fn(&LimitConfig) -> bool,
    ) -> Self {
        let wanted = configs.iter().enumerate();
        let wanted = wanted.filter_map(|(index, it)| Some((index, it.filter(&is_wanted)?)));
        let limits = wanted.map(|(index, config)| {
            let source = sources.and_then(|it| it.open(index, channel));
            (index, Limit::new(&config, source))
        });
        let limits: Vec<_> = limits.collect();
        Self {
            adaptive_limit: None,
            pause: None,
            is_shared: limits.iter().any(|it| it.1.is_shared()),
            limits,
            adaptive_rate: None,
            held_until: None,
        }
    }

    /// Adds what else bounds the calls of a channel.
    pub(crate) fn and(self, config: &PolicyConfig, now: ProcessingTime) -> Self {
        Self {
            adaptive_limit: config.adaptive_limit.map(AdaptiveLimit::new),
            pause: config.pause.map(Pause::new),
            adaptive_rate: config.is_rate_adaptive.then(|| AdaptiveRate::new(now)),
            ..self
        }
    }

    // --- what happens ---

    /// Is told that a call of a line starts which costs as much.
    pub fn on_start(&mut self, now: ProcessingTime, costs: &Costs, line: Line) {
        for (index, limit) in &mut self.limits {
            limit.on_start(now, costs.of(*index), line);
        }
        if let Some(pause) = &mut self.pause {
            pause.on_start(now);
        }
        if let Some(rate) = &mut self.adaptive_rate {
            rate.on_start(now);
        }
    }

    /// Learns from a call that ended.
    pub fn on_end(&mut self, call: &EndedCall) {
        for (index, limit) in &mut self.limits {
            limit.settle(call.charged.of(*index), call.cost.of(*index));
        }
        if let Some(limit) = &mut self.adaptive_limit {
            limit.on_end(call);
        }
        if let Some(pause) = &mut self.pause {
            pause.on_end(call);
        }
        if let Some(rate) = &mut self.adaptive_rate {
            rate.on_end(call);
        }
    }

    /// Lets the call after the next drop be made at once, see [`Pause::doubt`].
    pub const fn doubt(&mut self) {
        if let Some(pause) = &mut self.pause {
            pause.doubt();
        }
    }

    /// Pauses the destination, see [`Pause::trip`].
    pub fn trip(&mut self, now: ProcessingTime) {
        if let Some(pause) = &mut self.pause {
            pause.trip(now);
        }
    }

    /// Makes no call before `until`, see [`Pause::pause_until`]; after an hour one is made anyway.
    /// The service counts otherwise than its limits here, so what these have saved is given up.
    pub fn pause_until(
        &mut self,
        until: ProcessingTime,
        started: ProcessingTime,
        now: ProcessingTime,
    ) {
        let until = until.min(now + LONGEST_ASKED);
        let only_asked = || Pause::new(PauseConfig::new(None, u32::MAX, 0));
        let pause = self.pause.get_or_insert_with(only_asked);
        pause.pause_until(until, started, now);
        self.limits.iter_mut().for_each(|(_, it)| it.drain(started, now));
        if let Some(rate) = &mut self.adaptive_rate {
            rate.pause_until(pause.asked_until(), now);
        }
    }

    /// Learns what is left of a limit of the service, see [`Limit::lower_to`].
    pub fn lower_to(&mut self, left: &LimitLeft, started: ProcessingTime, now: ProcessingTime) {
        self.limits.iter_mut().for_each(|(_, it)| it.lower_to(left, started, now));
    }

    /// Sets right what a call in flight was charged.
    pub(crate) fn recharge(&mut self, charged: &Costs, anew: &Costs) {
        for (index, limit) in &mut self.limits {
            limit.recharge(charged.of(*index), anew.of(*index));
        }
    }

    /// Asks those limits for a call that others take from, too: those whose permits come with time for a
    /// place in line, or the others for what it costs. Returns when it may start. To be asked when
    /// nothing [here](Self::ready_here) is in its way.
    pub(crate) fn ask(
        &mut self,
        now: ProcessingTime,
        costs: &Costs,
        line: Line,
        rates: bool,
    ) -> ProcessingTime {
        let mut ready = ProcessingTime::ZERO;
        if !self.is_shared {
            return ready;
        }
        for (index, limit) in &mut self.limits {
            if costs.of(*index) > 0 && limit.is_rate() == rates {
                ready = limit.ask(now, costs.of(*index), line).max(ready);
                if !rates && ready > now {
                    break;
                }
            }
        }
        ready
    }

    /// Gives back what was taken for the next call of a line, which does not start now; it keeps its
    /// places in line.
    pub(crate) fn give_back(&mut self, line: Line) {
        if self.is_shared {
            self.limits.iter_mut().for_each(|it| it.1.give_back(line));
        }
    }

    /// Returns whether the next call of a line has asked in vain for what is in no line.
    pub(crate) fn is_lacking(&self, line: Line) -> bool {
        self.is_shared && self.limits.iter().any(|it| it.1.is_lacking(line))
    }

    /// Returns why a call of a line that costs as much will never start, if that is so.
    #[cold]
    pub(crate) fn spent(&self, costs: &Costs, line: Line) -> Option<Spent> {
        let mut paid = self.limits.iter().filter(|it| costs.of(it.0) > 0);
        paid.find_map(|(index, it)| {
            let spent = it.spent(costs.of(*index), line)?;
            Some(Spent { limit: *index, ..spent })
        })
    }

    /// Asks others again for what was never to be there.
    #[cold]
    pub(crate) fn ask_again(&mut self, now: ProcessingTime, costs: &Costs, line: Line) {
        let paid = self.limits.iter_mut().filter(|it| costs.of(it.0) > 0);
        paid.for_each(|(index, it)| it.ask_again(now, costs.of(*index), line));
    }

    // --- what holds ---

    /// Returns how many calls may be in flight; `u32::MAX` if it sets no bound.
    ///
    /// With 0 none starts, and `ready_at` says when that changes.
    pub fn window(&self, now: ProcessingTime) -> u32 {
        let adaptive = self.adaptive_limit.as_ref().map_or(u32::MAX, AdaptiveLimit::limit);
        self.pause.as_ref().map_or(adaptive, |it| it.window(now).min(adaptive))
    }

    /// Returns when a call of a line that costs as much may start if nothing happens until then; `now`
    /// or a point before it: at once. Asks for nothing.
    pub fn ready_at(&self, now: ProcessingTime, costs: &Costs, line: Line) -> ProcessingTime {
        self.ready_by(|limit, now, cost| limit.ready_at(now, cost, line), now, costs)
    }

    /// Does so as far as it does not depend on others who take from a limit, too.
    pub(crate) fn ready_here(&self, now: ProcessingTime, costs: &Costs) -> ProcessingTime {
        self.ready_by(Limit::ready_beside_others, now, costs)
    }

    #[inline]
    fn ready_by(
        &self,
        ready_at: impl Fn(&Limit, ProcessingTime, u64) -> ProcessingTime,
        now: ProcessingTime,
        costs: &Costs,
    ) -> ProcessingTime {
        let limits = self.limits.iter().filter(|it| costs.of(it.0) > 0);
        let limits = limits.map(|(index, it)| ready_at(it, now, costs.of(*index)));
        limits.max().unwrap_or_default().max(self.found_ready_at(now))
    }

    /// Returns when it may start as far as the destination has shown what it bears.
    fn found_ready_at(&self, now: ProcessingTime) -> ProcessingTime {
        let paused = self.pause.as_ref().map_or(ProcessingTime::ZERO, Pause::ready_at);
        self.adaptive_rate.as_ref().map_or(paused, |it| it.ready_at(now).max(paused))
    }

    /// Returns whether each call must ask; otherwise what `window` says holds until a call has
    /// ended.
    pub(crate) fn is_watching(&self, now: ProcessingTime) -> bool {
        !self.is_empty()
            || self.pause.as_ref().is_some_and(|it| it.window(now) != u32::MAX)
            || self.adaptive_rate.as_ref().is_some_and(|it| it.rate().is_some())
    }

    /// Returns whether there are no limits in time.
    pub const fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Returns whether a call that costs as much has nothing to pay.
    pub(crate) fn is_free(&self, costs: &Costs) -> bool {
        self.limits.iter().all(|it| costs.of(it.0) == 0)
    }

    /// Returns how many calls of records may start now that cost as much, as far as time goes.
    pub(crate) fn calls(&self, now: ProcessingTime, costs: &Costs) -> u32 {
        // A limit itself says 0 where none may start.
        if self.found_ready_at(now) > now {
            return 0;
        }
        let limits = self.limits.iter().map(|(index, it)| it.calls(now, costs.of(*index)));
        let adaptive = self.adaptive_rate.as_ref().map(|it| it.calls(now));
        let calls = limits.chain(adaptive).min().unwrap_or(u64::MAX);
        u32::try_from(calls).unwrap_or(u32::MAX)
    }

    /// Returns for how long at least records fail instead of waiting, see [`Pause::refuses_for`].
    pub fn refuses_for(&self, now: ProcessingTime) -> Option<Duration> {
        self.pause.as_ref().and_then(|it| it.refuses_for(now))
    }

    /// Returns what is known of the destination, see [`Pause::watch`].
    pub fn watch(&self) -> Option<Watch> {
        self.pause.as_ref().and_then(Pause::watch)
    }

    /// Returns since when the destination has dropped its calls and is left alone, or asked to be, if
    /// that counts.
    pub fn paused_since(&self, counts_asked: bool, now: ProcessingTime) -> Option<ProcessingTime> {
        self.pause.as_ref().and_then(|it| it.paused_since(counts_asked, now))
    }

    /// Returns whether making it again would lose nothing except what it learnt about the
    /// destination.
    pub(crate) fn is_settled(&self, now: ProcessingTime) -> bool {
        let pause = self.pause.as_ref().is_none_or(|it| it.is_settled(now));
        let rate = self.adaptive_rate.as_ref().is_none_or(|it| it.is_settled(now));
        pause && rate && self.limits.iter().all(|it| it.1.is_full(now))
    }
}
