// SPDX-License-Identifier: Apache-2.0
//! The tickets of calls: what each was charged by its limits, and what is known of it since.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::num::NonZeroU32;

use crate::key_hasher::KeyHasher;
use crate::policy::{
    CallSign, Costs, Counted, EndedCall, InPart, LimitConfig, LimitConfigs, LimitLeft, Line,
    PolicyConfig, Price, Terms, UsualCost, record_costs, request_costs,
};
use crate::queue::EntryId;
use crate::time::ProcessingTime;

/// A call of a record: its own, or the second one beside a slow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The record.
    pub entry: EntryId,
    /// The line in which the call has waited for its limits.
    pub line: Line,
}

/// What a reply says of a limit of its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ToldLimit {
    pub(super) left: LimitLeft,
    /// Whether it tells nothing of the destinations of other channels.
    pub(super) is_of_channel: bool,
}

/// What a reply says of the limits of its service, by what they count: it is told once the call is
/// settled, before it is known what is left for others.
pub(super) type Told = [Option<ToldLimit>; 2];

/// What a call holds of its limits, from its start until it is settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    /// What the call was charged.
    charged: Costs,
    /// What it has cost, if somebody said so.
    actual: Option<Costs>,
    /// Whether a request was made that began with it.
    leads_request: bool,
    pub(super) told: Option<Told>,
}

impl Ticket {
    const fn new(charged: Costs) -> Self {
        Self { charged, actual: None, leads_request: false, told: None }
    }
}

/// What is known of a record and its own call.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// What a call of it is charged, beside its request.
    estimate: Costs,
    /// What its next call is.
    next: InPart,
    /// Of its own call, while one is in flight.
    ticket: Ticket,
}

impl Record {
    const fn new(estimate: Costs) -> Self {
        Self { estimate, next: InPart::No, ticket: Ticket::new(estimate) }
    }
}

/// The tickets of the calls in flight, and what records cost.
///
/// A ticket belongs to one call and to nobody else: the two calls of a record have one each, whichever of
/// them ends first. A call that was charged the usual needs none here until more is known of it, so that
/// most pay nothing for the others.
///
/// Where a request is for many records it is paid for by the record that it begins with. When its call
/// starts nobody knows which one that will be: the first one is charged for it, which is set right when
/// the request is made ([`lead_request`](Self::lead_request)). So a call that ends without that has
/// cost its request nothing.
#[derive(Debug)]
pub(super) struct Tickets {
    limits: LimitConfigs,
    /// What a call costs if its record tells nothing beside its request.
    usual: Costs,
    /// What calls have cost of late, by the number of their limit, where as much is reserved.
    of_late: Vec<(usize, UsualCost)>,
    /// What a request costs.
    of_request: Costs,
    /// Whether it is charged for ahead, with the record that it is expected to begin with.
    is_charged_ahead: bool,
    records: HashMap<EntryId, Record, BuildHasherDefault<KeyHasher>>,
    /// Of second calls.
    seconds: HashMap<EntryId, Ticket, BuildHasherDefault<KeyHasher>>,
}

impl Tickets {
    pub(super) fn new(config: &PolicyConfig) -> Self {
        let reserves = |it: &Option<LimitConfig>| {
            it.is_some_and(|it| it.is_usual && matches!(it.terms, Terms::Refills(_)))
        };
        let of_late = config.limits.iter().enumerate().filter(|it| reserves(it.1));
        let of_late = of_late.map(|(limit, _)| (limit, UsualCost::default()));
        Self {
            limits: config.limits,
            usual: record_costs(&config.limits),
            of_late: of_late.collect(),
            of_request: request_costs(&config.limits),
            is_charged_ahead: config.requests.is_some(),
            records: HashMap::default(),
            seconds: HashMap::default(),
        }
    }

    // --- what records cost ---

    /// Returns what the next call of a record costs, beside its request; `None`: of any.
    #[inline]
    pub(super) fn estimate(&self, entry: Option<EntryId>) -> Costs {
        self.reserved(
            entry.and_then(|it| self.records.get(&it)).map_or(self.usual, |it| it.estimate),
        )
    }

    /// Returns as much with what calls have cost of late, where that is reserved.
    #[inline]
    fn reserved(&self, estimate: Costs) -> Costs {
        self.of_late.iter().fold(estimate, |costs, (limit, of_late)| {
            of_late.reserved().map_or(costs, |cost| costs.with(*limit, cost))
        })
    }

    /// Returns what the first call of a record of this price costs, beside its request.
    pub(super) fn estimate_for(&self, price: Price) -> Costs {
        self.reserved(self.said_for(price))
    }

    const fn said_for(&self, price: Price) -> Costs {
        match price {
            Price::Usual => self.usual,
            Price::Of(costs) => costs,
        }
    }

    /// Returns as much, and what a request costs that is charged for ahead.
    pub(super) fn with_request(&self, costs: Costs) -> Costs {
        if self.is_charged_ahead { costs.and(&self.of_request) } else { costs }
    }

    /// Remembers the price of a record that was admitted, and what its call was `charged` if it has
    /// started.
    pub(super) fn note(&mut self, entry: EntryId, price: Price, charged: Option<Costs>) {
        let estimate = self.said_for(price);
        let charged = charged.unwrap_or(estimate);
        if estimate != self.usual || charged != self.usual {
            let ticket = Ticket::new(charged);
            self.records.insert(entry, Record { ticket, ..Record::new(estimate) });
        }
    }

    /// Notes that the next call of a record is one of a part, of so many records if that begins with it:
    /// then it pays for the request of the part.
    pub(super) fn note_part(&mut self, entry: EntryId, records: u32) {
        if self.is_charged_ahead {
            let next = NonZeroU32::new(records).map_or(InPart::GoesAlong, InPart::Begins);
            self.record(entry).next = next;
        }
    }

    /// Returns whether the next call of a record is one of a part.
    pub(super) fn part_of(&self, entry: Option<EntryId>) -> InPart {
        let record = entry.filter(|_| self.is_charged_ahead).and_then(|it| self.records.get(&it));
        record.map_or(InPart::No, |it| it.next)
    }

    /// Forgets a record, which is completed.
    #[inline]
    pub(super) fn forget(&mut self, entry: EntryId) {
        if !self.records.is_empty() {
            self.records.remove(&entry);
        }
        debug_assert!(!self.seconds.contains_key(&entry), "one of two calls ends first");
    }

    fn record(&mut self, entry: EntryId) -> &mut Record {
        let usual = self.usual;
        self.records.entry(entry).or_insert_with(|| Record::new(usual))
    }

    // --- tickets ---

    /// Makes the ticket of a call, which starts and is charged as much.
    pub(super) fn begin(&mut self, call: Call, charged: &Costs) {
        match (call.line, self.records.get_mut(&call.entry)) {
            (Line::Hedges, _) if *charged != self.usual => {
                self.seconds.insert(call.entry, Ticket::new(*charged));
            }
            (Line::Records, Some(record)) => {
                *record = Record { ticket: Ticket::new(*charged), ..Record::new(record.estimate) };
            }
            (Line::Records, None) if *charged != self.usual => {
                self.record(call.entry).ticket = Ticket::new(*charged);
            }
            _ => {}
        }
    }

    fn ticket(&mut self, call: Call) -> &mut Ticket {
        let usual = self.usual;
        match call.line {
            Line::Records => &mut self.record(call.entry).ticket,
            Line::Hedges => self.seconds.entry(call.entry).or_insert_with(|| Ticket::new(usual)),
        }
    }

    /// Charges a call for the request that was made, which it is the first of; returns what it was
    /// charged and what it is charged now, if that differs.
    pub(super) fn lead_request(&mut self, call: Call) -> Option<(Costs, Costs)> {
        self.ticket(call).leads_request = true;
        self.pay_request(call)
    }

    /// Charges a call for the request that it is expected to be the first of; returns the same.
    pub(super) fn pay_request(&mut self, call: Call) -> Option<(Costs, Costs)> {
        let of_request = self.of_request;
        let ticket = self.ticket(call);
        let charged = ticket.charged;
        let anew = charged.without(&of_request).and(&of_request);
        ticket.charged = anew;
        Some((charged, anew)).filter(|(charged, anew)| charged != anew)
    }

    /// Returns whether a call was charged for a request that nobody was told of.
    pub(super) fn has_paid_ahead(&self, ticket: &Ticket) -> bool {
        !ticket.leads_request && ticket.charged != ticket.charged.without(&self.of_request)
    }

    /// Notes what a call has cost of one limit; returns whether that is more than one call may cost,
    /// which counts then.
    pub(super) fn settle(&mut self, call: Call, limit: usize, cost: u64) -> bool {
        let known = self.limits.get(limit).copied().flatten();
        let most = known.map_or(u64::MAX, |it| it.terms.most_cost());
        if let Some((_, of_late)) = self.of_late.iter_mut().find(|it| it.0 == limit) {
            of_late.note(cost.min(most));
        }
        let ticket = self.ticket(call);
        let actual = ticket.actual.unwrap_or(ticket.charged);
        ticket.actual = Some(actual.with(limit, cost.min(most)));
        cost > most
    }

    /// Notes that a call has cost nothing: it was not sent.
    pub(super) fn give_back(&mut self, call: Call) {
        if self.limits.iter().any(Option::is_some) {
            self.ticket(call).actual = Some(Costs::NONE);
        }
    }

    /// Notes what the reply to a call says of a limit of its service; the last word counts.
    pub(super) fn note_left(&mut self, call: Call, told: ToldLimit) {
        let mut limits = self.limits.iter().flatten();
        if limits.any(|it| it.counted == Some(told.left.counted)) {
            let [requests, tokens] = self.ticket(call).told.get_or_insert_default();
            let place = match told.left.counted {
                Counted::Requests => requests,
                Counted::Tokens => tokens,
            };
            *place = Some(told);
        }
    }

    /// Makes what limits are told of a call that has ended, of its ticket if it had one here.
    #[inline]
    pub(super) fn ended(
        &self,
        ticket: Option<&Ticket>,
        (started, ended): (ProcessingTime, ProcessingTime),
        in_flight: u32,
        sign: CallSign,
    ) -> EndedCall {
        let charged = ticket.map_or(self.usual, |it| it.charged);
        let cost = match sign {
            CallSign::NotCalled => Costs::NONE,
            // Nobody has seen what it came to.
            CallSign::CutOff => charged,
            _ => ticket.and_then(|it| it.actual).unwrap_or(charged),
        };
        let is_free = self.is_charged_ahead && !ticket.is_some_and(|it| it.leads_request);
        let cost = if is_free { cost.without(&self.of_request) } else { cost };
        EndedCall { started, ended, in_flight, sign, charged, cost }
    }

    /// Removes the ticket of a call, which has ended. Of its record no more is kept than its price.
    #[inline]
    pub(super) fn take(&mut self, call: Call) -> Option<Ticket> {
        if call.line == Line::Hedges {
            return self.seconds.remove(&call.entry);
        }
        if self.records.is_empty() { None } else { self.take_own(call.entry) }
    }

    #[inline(never)]
    fn take_own(&mut self, entry: EntryId) -> Option<Ticket> {
        let Entry::Occupied(mut known) = self.records.entry(entry) else { return None };
        let Record { estimate, ticket, .. } = *known.get();
        if estimate == self.usual {
            known.remove();
        } else {
            known.insert(Record::new(estimate));
        }
        Some(ticket)
    }
}
