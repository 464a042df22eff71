// SPDX-License-Identifier: Apache-2.0
//! Requests that a function makes of its calls, and the limit that counts them.

use std::collections::{BTreeMap, BTreeSet};

use sparkawait_core::operator::AttemptId;

use crate::limits::Limits;
use crate::random::Random;
use crate::scenario::{CallPlan, Cut, RequestsPlan};
use crate::trace::{Broken, Checked};

/// Calls, and what follows when their request is made.
pub type Calls<T> = Vec<(AttemptId, T)>;

/// A request that waits for more calls.
#[derive(Clone, Debug)]
struct Open<T> {
    since: u64,
    /// Calls that it had, with those that were cancelled.
    records: u32,
    calls: Calls<T>,
}

/// The requests of a function.
#[derive(Clone, Debug)]
pub struct Requests<T> {
    plan: RequestsPlan,
    has_channels: bool,
    /// Whether the operator can know what each has paid.
    is_exact: bool,
    /// By channel: rows of two of them have no request together.
    open: BTreeMap<Option<i64>, Open<T>>,
    limit: Limits,
    /// Whether the operator can have known of all so far when its first call was made.
    is_foreseen: bool,
    made: u64,
    /// First calls of those that were made since the task has waited: it may not know of them.
    untold: BTreeSet<AttemptId>,
    /// Calls of requests that have failed and will be made again in parts, and when.
    parts: BTreeMap<(u64, u64), Vec<Calls<T>>>,
    next_part: u64,
}

impl<T> Requests<T> {
    /// Makes none yet; `None` where each call is one.
    pub fn new(plan: &CallPlan) -> Option<Self> {
        let requests = plan.requests?;
        Some(Self {
            plan: requests,
            has_channels: plan.channels.is_some(),
            is_exact: true,
            open: BTreeMap::new(),
            limit: Limits::new(&[requests.limit]),
            is_foreseen: requests.cut == Cut::AsSaid && requests.divided == 0,
            made: 0,
            untold: BTreeSet::new(),
            parts: BTreeMap::new(),
            next_part: 0,
        })
    }

    /// Another task makes them from now on.
    pub fn restart(&mut self) {
        self.open.clear();
        self.limit = Limits::new(&[self.plan.limit]);
        let is_as_said = self.plan.cut == Cut::AsSaid && self.plan.divided == 0;
        self.is_foreseen = self.is_exact && is_as_said;
        self.parts.clear();
        self.made = 0;
        self.untold.clear();
    }

    /// The task has waited: it knows of all requests.
    pub fn parked(&mut self) {
        self.untold.clear();
    }

    /// Permits that all so far have cost, if the operator can know.
    pub fn permits(&self) -> Option<u64> {
        self.is_exact.then_some(self.made * self.plan.limit.cost)
    }

    fn linger(&self) -> u64 {
        let late = if let Cut::Late(nanos) = self.plan.cut { nanos } else { 0 };
        self.plan.linger + late
    }

    /// A call goes along with a request, or is the first of one, which pays. Returns the calls of
    /// the one that was made before that, if one was.
    pub(crate) fn join(
        &mut self,
        call: (AttemptId, T),
        channel: Option<i64>,
        now: u64,
        random: &mut Random,
    ) -> Checked<Calls<T>> {
        let channel = channel.filter(|_| self.has_channels);
        let is_cut = matches!(self.plan.cut, Cut::Early(cases) if random.in_a_hundred(cases));
        if let Some(open) = self.open.get_mut(&channel).filter(|_| !is_cut) {
            open.records += 1;
            open.calls.push(call);
            return Ok(Vec::new());
        }
        let before = self.make(channel);
        let what = format!("{:?} of channel {channel:?} at {now}", call.0);
        self.open.insert(channel, Open { since: now, records: 1, calls: vec![call] });
        let is_kept = self.limit.take(0, channel, now).is_none();
        if is_kept || !self.is_foreseen {
            return Ok(before);
        }
        Err(Broken::new("every window of requests", what))
    }

    fn make(&mut self, channel: Option<i64>) -> Calls<T> {
        let open = self.open.remove(&channel);
        let calls = open.map(|it| it.calls).unwrap_or_default();
        self.count(&calls);
        calls
    }

    fn count(&mut self, calls: &Calls<T>) {
        self.made += u64::from(!calls.is_empty());
        self.untold.extend(calls.first().map(|it| it.0));
    }

    /// Of a hundred requests for several calls, how many fail and are divided.
    pub fn divided(&self) -> usize {
        self.plan.divided
    }

    /// A request has failed at that time: each half of its calls is another one, and one follows
    /// the other.
    pub(crate) fn divide(&mut self, mut calls: Calls<T>, at: u64) {
        let second = calls.split_off(calls.len() / 2);
        self.put_parts(vec![calls, second], at);
    }

    fn put_parts(&mut self, parts: Vec<Calls<T>>, at: u64) {
        self.next_part += 1;
        self.parts.insert((at, self.next_part), parts);
    }

    /// Makes the next request of one that was divided; those behind it are made when it has taken
    /// `takes`.
    pub fn due_part(&mut self, now: u64, takes: u64) -> Option<Calls<T>> {
        let place = *self.parts.first_key_value()?.0;
        if place.0 > now {
            return None;
        }
        let mut parts = self.parts.remove(&place)?;
        let calls = parts.remove(0);
        if !parts.is_empty() {
            self.put_parts(parts, now + takes);
        }
        self.count(&calls);
        Some(calls)
    }

    /// Makes a request that is full or has waited long enough; returns its calls.
    pub fn due(&mut self, now: u64) -> Option<Calls<T>> {
        let (linger, most) = (self.linger(), self.plan.records);
        let is_due = |it: &Open<T>| it.records >= most || now > it.since + linger;
        let channel = self.open.iter().find(|it| is_due(it.1)).map(|it| *it.0)?;
        Some(self.make(channel))
    }

    /// When the next one is made, if nothing happens until then.
    pub fn next_due(&self) -> Option<u64> {
        let of_parts = self.parts.keys().next().map(|it| it.0);
        self.open.values().map(|it| it.since + self.linger() + 1).chain(of_parts).min()
    }

    /// A call is cancelled; it is left out of a request that was not made.
    ///
    /// Of a request that was made the operator may hear when it does not await the call any more.
    pub fn cancel(&mut self, attempt: AttemptId) {
        self.is_exact &= !self.untold.contains(&attempt);
        let mut was_open = false;
        self.open.retain(|_, open| {
            let before = open.calls.len();
            open.calls.retain(|it| it.0 != attempt);
            was_open |= open.calls.len() < before;
            !open.calls.is_empty()
        });
        for parts in self.parts.values_mut() {
            for part in parts {
                part.retain(|call| call.0 != attempt);
            }
        }
        // What it has paid comes back before the others of its request are known to pay.
        self.is_foreseen &= !was_open;
    }
}
