// SPDX-License-Identifier: Apache-2.0
//! What records cost in the limits of their channels, and what they turn out to have cost.

use super::ChannelPolicies;
use crate::flow::ChannelId;
use crate::flow::told_limits::ToldLimit;
use crate::policy::{CallSign, Charge, Costs, EndedCall, Price};
use crate::queue::EntryId;
use crate::time::ProcessingTime;

impl ChannelPolicies {
    /// Returns what the next call of a record of a channel costs.
    #[inline]
    pub(in crate::flow) fn costs(
        &self,
        id: ChannelId,
        entry: Option<EntryId>,
        now: ProcessingTime,
    ) -> Costs {
        let entry = entry.filter(|_| !self.charges.is_empty());
        let charge = entry.and_then(|it| self.charges.get(&it));
        self.with_request(id, charge.map_or(self.usual, |it| it.estimate), now)
    }

    /// Returns what the first call of a record of a channel costs.
    pub(in crate::flow) fn first_costs(
        &self,
        id: ChannelId,
        price: Price,
        now: ProcessingTime,
    ) -> Costs {
        let costs = match price {
            Price::Usual => self.usual,
            Price::Of(costs) => costs,
        };
        self.with_request(id, costs, now)
    }

    /// Adds what a request costs, unless there is one that a record may go along with.
    fn with_request(&self, id: ChannelId, costs: Costs, now: ProcessingTime) -> Costs {
        if self.config.requests.is_none() {
            return costs;
        }
        if self.may_go_along(id, now) { costs } else { costs.and(&self.of_request) }
    }

    /// Takes a record that is called with its request, which it may be the first of.
    pub(super) fn note_request(
        &mut self,
        id: ChannelId,
        entry: Option<EntryId>,
        costs: Costs,
        now: ProcessingTime,
    ) {
        let Some(config) = self.config.requests else { return };
        let channel = self.channels.get_mut(id.0 as usize);
        if !channel.is_some_and(|it| it.request.on_start(&config, now)) {
            return;
        }
        self.open_until = Some(now + config.linger);
        let usual = self.usual;
        match entry {
            None => self.opened = Some(costs),
            Some(entry) => {
                let charge = self.charges.entry(entry).or_insert_with(|| Charge::new(usual));
                charge.charged = costs;
            }
        }
    }

    /// Charges a record in flight for the request that was made, which it is the first of.
    pub(in crate::flow) fn charge_request(&mut self, id: ChannelId, entry: EntryId) {
        let usual = self.usual;
        let charge = self.charges.entry(entry).or_insert_with(|| Charge::new(usual));
        let charged = charge.charged;
        // One that was divided begins with the same record more than once.
        let known = if charge.leads_request { charged } else { charged.without(&self.of_request) };
        let anew = known.and(&self.of_request);
        (charge.charged, charge.leads_request) = (anew, true);
        if anew == charged {
            return;
        }
        self.metrics.correct(&charged, &anew);
        if let Some(gate) = &mut self.gate {
            gate.limits.recharge(&charged, &anew);
        }
        if let Some(it) = self.channels.get_mut(id.0 as usize) {
            it.policy.recharge(&charged, &anew);
        }
    }

    /// Remembers what a record costs whose first call has started, or not.
    pub(in crate::flow) fn note_price(&mut self, entry: EntryId, price: Price, has_started: bool) {
        let opened = self.opened.take().filter(|_| has_started);
        let mut charge = match price {
            Price::Usual if opened.is_none() => return,
            Price::Usual => Charge::new(self.usual),
            Price::Of(costs) => Charge::new(costs),
        };
        charge.charged = opened.unwrap_or(charge.charged);
        self.charges.insert(entry, charge);
    }

    /// Makes a charge for the second call of a record, which starts.
    pub(in crate::flow) fn begin_second(&mut self, entry: EntryId) {
        let known = self.charges.get(&entry).map_or(self.usual, |it| it.estimate);
        self.second_charges.insert(entry, Charge::new(known));
    }

    /// Takes the other one of the two calls of a record as its present one, until this is asked again.
    pub(in crate::flow) fn turn(&mut self, entry: EntryId) {
        let usual = self.usual;
        if let Some(second) = self.second_charges.get_mut(&entry) {
            let charge = self.charges.entry(entry).or_insert_with(|| Charge::new(usual));
            std::mem::swap(charge, second);
        }
    }

    /// Forgets the charge of the present one of two calls, which has ended: the other goes on alone.
    pub(in crate::flow) fn leave_to_other(&mut self, entry: EntryId) {
        if let Some(other) = self.second_charges.remove(&entry) {
            self.charges.insert(entry, other);
        }
    }

    /// Notes what the present call of a record has cost of one limit; no more than one call may.
    pub(in crate::flow) fn settle(&mut self, entry: EntryId, limit: usize, cost: u64) {
        let known = self.config.rate_limits.get(limit).copied().flatten();
        let most = known.map_or(u64::MAX, |it| it.limit.most_cost());
        self.metrics.cut_costs += u64::from(cost > most);
        let (usual, cost) = (self.usual, cost.min(most));
        let charge = self.charges.entry(entry).or_insert_with(|| Charge::new(usual));
        charge.actual = Some(charge.actual.unwrap_or(charge.charged).with(limit, cost));
    }

    /// Notes what the reply to the present call of a record says of a limit of its service.
    pub(in crate::flow) fn note_left(&mut self, entry: EntryId, told: ToldLimit) {
        let mut limits = self.config.rate_limits.iter().flatten();
        if limits.any(|it| it.counted == Some(told.left.counted)) {
            self.told.note(entry, told);
        }
    }

    /// Forgets what a record cost.
    pub(in crate::flow) fn forget(&mut self, entry: EntryId) {
        self.told.forget(entry);
        if !self.charges.is_empty() {
            self.charges.remove(&entry);
            debug_assert!(!self.second_charges.contains_key(&entry), "one of two calls ends first");
        }
    }

    /// Makes what policies are told of a call that ended; what it was noted to have cost counts once.
    pub(in crate::flow) fn ended(
        &mut self,
        entry: EntryId,
        started: ProcessingTime,
        ended: ProcessingTime,
        in_flight: u32,
        sign: CallSign,
    ) -> EndedCall {
        let is_usual = self.charges.is_empty();
        let charge = if is_usual { None } else { self.charges.get_mut(&entry) };
        let charged = charge.as_ref().map_or(self.usual, |it| it.charged);
        let cost = match (sign, charge) {
            (CallSign::NotCalled, _) => Costs::NONE,
            // Nobody has seen what it came to.
            (CallSign::CutOff, _) | (_, None) => charged,
            (_, Some(charge)) => charge.actual.take().unwrap_or(charged),
        };
        // Requests are paid for by the records that they were made with.
        let leads = |it: &Charge| it.leads_request;
        let is_free =
            self.config.requests.is_some() && !self.charges.get(&entry).is_some_and(leads);
        let cost = if is_free { cost.without(&self.of_request) } else { cost };
        EndedCall { started, ended, in_flight, sign, charged, cost }
    }
}
