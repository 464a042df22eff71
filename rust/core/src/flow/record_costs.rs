// SPDX-License-Identifier: Apache-2.0
//! What records cost in the limits of their channels, and what they turn out to have cost.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::num::NonZeroU32;

use super::told_limits::{ToldLimit, ToldLimits};
use crate::key_hasher::KeyHasher;
use crate::policy::{
    CallSign, Costs, EndedCall, InPart, PolicyConfig, Price, RateLimitConfigs, record_costs,
    request_costs,
};
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// What the calls of a record are charged, and have cost.
#[derive(Clone, Copy, Debug)]
struct Charge {
    /// What a call of it is charged, beside its request.
    estimate: Costs,
    /// What its present call was charged.
    charged: Costs,
    /// What its present call has cost, if somebody said so.
    actual: Option<Costs>,
    /// Whether a request was made that began with it.
    leads_request: bool,
    /// What its next call is.
    next: InPart,
}

impl Charge {
    const fn new(estimate: Costs) -> Self {
        Self { estimate, charged: estimate, actual: None, leads_request: false, next: InPart::No }
    }
}

/// What records cost: the price of each, what its call was charged, and what is known of it since.
///
/// A record that costs the usual, and was charged that, is not in it, so that most pay nothing for the
/// others. Of a record with two calls it has a charge for each: one is the *present* one, which all
/// methods mean, and [`swap`](Self::swap) takes the other one for it. (Two keys for one record would put
/// the second call into the type of the queue's entries, for the few that have one.)
///
/// Where a request is for many records it is paid for by the record that it begins with. When its call
/// starts nobody knows which one that will be: the first one is charged for it, which is set right when
/// the request is made ([`lead_request`](Self::lead_request)). So a call that ends without that has
/// cost its request nothing.
#[derive(Debug)]
pub(super) struct RecordCosts {
    limits: RateLimitConfigs,
    /// What a call costs if its record tells nothing beside its request.
    usual: Costs,
    /// What a request costs.
    of_request: Costs,
    /// Whether it is charged for ahead, with the record that it is expected to begin with.
    is_charged_ahead: bool,
    charges: Charges,
    /// Of the calls that are not the present ones of records with two.
    second_charges: Charges,
    told: ToldLimits,
}

type Charges = HashMap<EntryId, Charge, BuildHasherDefault<KeyHasher>>;

impl RecordCosts {
    pub(super) fn new(config: &PolicyConfig) -> Self {
        Self {
            limits: config.rate_limits,
            usual: record_costs(&config.rate_limits),
            of_request: request_costs(&config.rate_limits),
            is_charged_ahead: config.requests.is_some(),
            charges: Charges::default(),
            second_charges: Charges::default(),
            told: ToldLimits::default(),
        }
    }

    /// Returns what the next call of a record costs, beside its request; `None`: of any.
    #[inline]
    pub(super) fn estimate(&self, entry: Option<EntryId>) -> Costs {
        entry.and_then(|it| self.charges.get(&it)).map_or(self.usual, |it| it.estimate)
    }

    /// Returns what the first call of a record of this price costs, beside its request.
    pub(super) const fn estimate_for(&self, price: Price) -> Costs {
        match price {
            Price::Usual => self.usual,
            Price::Of(costs) => costs,
        }
    }

    /// Returns as much, and what a request costs that is charged for ahead.
    pub(super) fn with_request(&self, costs: Costs) -> Costs {
        if self.is_charged_ahead { costs.and(&self.of_request) } else { costs }
    }

    fn charge(&mut self, entry: EntryId) -> &mut Charge {
        let usual = self.usual;
        self.charges.entry(entry).or_insert_with(|| Charge::new(usual))
    }

    /// Remembers the price of a record that was admitted, and what its call was `charged` if it has
    /// started.
    pub(super) fn note(&mut self, entry: EntryId, price: Price, charged: Option<Costs>) {
        let estimate = self.estimate_for(price);
        let charged = charged.unwrap_or(estimate);
        if estimate != self.usual || charged != self.usual {
            self.charges.insert(entry, Charge { charged, ..Charge::new(estimate) });
        }
    }

    /// Charges the present call of a record, which starts.
    pub(super) fn begin(&mut self, entry: EntryId, costs: &Costs) {
        if *costs != self.usual || self.charges.contains_key(&entry) {
            let charge = self.charge(entry);
            *charge = Charge { charged: *costs, ..Charge::new(charge.estimate) };
        }
    }

    /// Makes a charge for the second call of a record, which starts.
    pub(super) fn begin_second(&mut self, entry: EntryId) {
        self.second_charges.insert(entry, Charge::new(self.estimate(Some(entry))));
    }

    /// Takes the other one of the two calls of a record as its present one, until this is asked again.
    pub(super) fn swap(&mut self, entry: EntryId) {
        let usual = self.usual;
        if let Some(second) = self.second_charges.get_mut(&entry) {
            let charge = self.charges.entry(entry).or_insert_with(|| Charge::new(usual));
            std::mem::swap(charge, second);
        }
    }

    /// Forgets the charge of the present one of two calls, which has ended: the other goes on alone.
    pub(super) fn leave_to_other(&mut self, entry: EntryId) {
        if let Some(other) = self.second_charges.remove(&entry) {
            self.charges.insert(entry, other);
        }
    }

    /// Notes that the next call of a record is one of a part, of so many records if that begins with it:
    /// then it pays for the request of the part.
    pub(super) fn note_part(&mut self, entry: EntryId, records: u32) {
        if self.is_charged_ahead {
            let next = NonZeroU32::new(records).map_or(InPart::GoesAlong, InPart::Begins);
            self.charge(entry).next = next;
        }
    }

    /// Returns whether the next call of a record is one of a part.
    pub(super) fn part_of(&self, entry: Option<EntryId>) -> InPart {
        let charge = entry.filter(|_| self.is_charged_ahead).and_then(|it| self.charges.get(&it));
        charge.map_or(InPart::No, |it| it.next)
    }

    /// Charges the present call of a record for the request that was made, which it is the first of;
    /// returns what it was charged and what it is charged now, if that differs.
    pub(super) fn lead_request(&mut self, entry: EntryId) -> Option<(Costs, Costs)> {
        let of_request = self.of_request;
        let charge = self.charge(entry);
        let charged = charge.charged;
        let anew = charged.without(&of_request).and(&of_request);
        (charge.charged, charge.leads_request) = (anew, true);
        Some((charged, charge.charged)).filter(|(charged, anew)| charged != anew)
    }

    /// Notes what the present call of a record has cost of one limit; returns whether that is more than
    /// one call may cost, which counts then.
    pub(super) fn settle(&mut self, entry: EntryId, limit: usize, cost: u64) -> bool {
        let known = self.limits.get(limit).copied().flatten();
        let most = known.map_or(u64::MAX, |it| it.limit.most_cost());
        let charge = self.charge(entry);
        let actual = charge.actual.unwrap_or(charge.charged);
        charge.actual = Some(actual.with(limit, cost.min(most)));
        cost > most
    }

    /// Notes that the present call of a record has cost nothing: it was not sent.
    pub(super) fn give_back(&mut self, entry: EntryId) {
        if self.limits.iter().any(Option::is_some) {
            self.charge(entry).actual = Some(Costs::NONE);
        }
    }

    /// Notes what the reply to the present call of a record says of a limit of its service.
    pub(super) fn note_left(&mut self, entry: EntryId, told: ToldLimit) {
        let mut limits = self.limits.iter().flatten();
        if limits.any(|it| it.counted == Some(told.left.counted)) {
            self.told.note(entry, told);
        }
    }

    /// Removes that: its call has ended.
    #[inline]
    pub(super) fn take_told(&mut self, entry: EntryId) -> impl Iterator<Item = ToldLimit> + use<> {
        self.told.take(entry)
    }

    /// Makes what limits are told of the present call of a record, which has ended; what it was noted to
    /// have cost counts once.
    pub(super) fn ended(
        &mut self,
        entry: EntryId,
        started: ProcessingTime,
        ended: ProcessingTime,
        in_flight: u32,
        sign: CallSign,
    ) -> EndedCall {
        let charge = self.charges.get_mut(&entry);
        let charged = charge.as_ref().map_or(self.usual, |it| it.charged);
        let leads_request = charge.as_ref().is_some_and(|it| it.leads_request);
        let cost = match (sign, charge) {
            (CallSign::NotCalled, _) => Costs::NONE,
            // Nobody has seen what it came to.
            (CallSign::CutOff, _) | (_, None) => charged,
            (_, Some(charge)) => charge.actual.take().unwrap_or(charged),
        };
        let is_free = self.is_charged_ahead && !leads_request;
        let cost = if is_free { cost.without(&self.of_request) } else { cost };
        EndedCall { started, ended, in_flight, sign, charged, cost }
    }

    /// Forgets a record, which is completed.
    #[inline]
    pub(super) fn forget(&mut self, entry: EntryId) {
        self.told.forget(entry);
        if !self.charges.is_empty() {
            self.charges.remove(&entry);
            debug_assert!(!self.second_charges.contains_key(&entry), "one of two calls ends first");
        }
    }
}
