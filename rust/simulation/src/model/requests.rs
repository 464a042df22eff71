// SPDX-License-Identifier: Apache-2.0
//! Requests that a function makes of its calls, and the limit that counts them.

use std::collections::{BTreeMap, BTreeSet};

use sparkawait_core::operator::AttemptId;

use crate::limits::Limits;
use crate::random::Random;
use crate::scenario::{CallPlan, Cut, RequestsPlan};
use crate::trace::{Broken, Checked, Id};

/// Calls, and what follows when their request is made.
pub type Calls<T> = Vec<(AttemptId, T)>;

/// A channel, and a part if its rows are of one.
type Line = (Option<i64>, Option<u64>);

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
    /// By channel and part: rows of two of them have no request together.
    open: BTreeMap<Line, Open<T>>,
    limit: Limits,
    /// Whether the operator can have known of all so far when its first call was made.
    is_foreseen: bool,
    made: u64,
    /// First calls of those that were made since the task has waited: it may not know of them.
    untold: BTreeSet<AttemptId>,
    /// Rows of requests that have failed, which will come back, and the parts that they are of.
    part_of: BTreeMap<Id, u64>,
    last_part: u64,
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
            part_of: BTreeMap::new(),
            last_part: 0,
        })
    }

    /// Another task makes them from now on.
    pub fn restart(&mut self) {
        self.open.clear();
        self.limit = Limits::new(&[self.plan.limit]);
        let is_as_said = self.plan.cut == Cut::AsSaid && self.plan.divided == 0;
        self.is_foreseen = self.is_exact && is_as_said;
        self.part_of.clear();
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

    /// A call for a row goes along with a request, or is the first of one, which pays. Returns the
    /// calls of the one that was made before that, if one was.
    pub(crate) fn join(
        &mut self,
        call: (AttemptId, T),
        id: Id,
        channel: Option<i64>,
        now: u64,
        random: &mut Random,
    ) -> Checked<Calls<T>> {
        let line = (channel.filter(|_| self.has_channels), self.part_of.remove(&id));
        let is_cut = matches!(self.plan.cut, Cut::Early(cases) if random.in_a_hundred(cases));
        if let Some(open) = self.open.get_mut(&line).filter(|_| !is_cut) {
            open.records += 1;
            open.calls.push(call);
            return Ok(Vec::new());
        }
        let before = self.make(line);
        let what = format!("{:?} of line {line:?} at {now}", call.0);
        self.open.insert(line, Open { since: now, records: 1, calls: vec![call] });
        let is_kept = self.limit.take(0, line.0, now).is_none();
        if is_kept || !self.is_foreseen {
            return Ok(before);
        }
        Err(Broken::new("every window of requests", what))
    }

    fn make(&mut self, line: Line) -> Calls<T> {
        let open = self.open.remove(&line);
        let calls = open.map(|it| it.calls).unwrap_or_default();
        self.made += u64::from(!calls.is_empty());
        self.untold.extend(calls.first().map(|it| it.0));
        calls
    }

    /// Of a hundred requests for several calls, how many fail and are divided.
    pub fn divided(&self) -> usize {
        self.plan.divided
    }

    /// A request has failed: these rows of it are called for again together, in a part.
    pub fn divide(&mut self, rows: impl Iterator<Item = Id>) {
        self.last_part += 1;
        let part = self.last_part;
        self.part_of.extend(rows.map(|id| (id, part)));
    }

    /// Makes a request that is full or has waited long enough; returns its calls.
    pub fn due(&mut self, now: u64) -> Option<Calls<T>> {
        let (linger, most) = (self.linger(), self.plan.records);
        let is_whole = |part| self.part_of.values().all(|it| *it != part);
        let is_due = |(line, it): &(&Line, &Open<T>)| {
            it.records >= most || now > it.since + linger || line.1.is_some_and(is_whole)
        };
        let line = self.open.iter().find(is_due).map(|it| *it.0)?;
        Some(self.make(line))
    }

    /// When the next one is made, if nothing happens until then.
    pub fn next_due(&self) -> Option<u64> {
        self.open.values().map(|it| it.since + self.linger() + 1).min()
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
        // What it has paid comes back before the others of its request are known to pay.
        self.is_foreseen &= !was_open;
    }
}
