// SPDX-License-Identifier: Apache-2.0
//! What a worker has of a limit of its job, and what it says of that, sans-IO.
//!
//! ```text
//!   calls --ask, settle--> Share --Exchange--> server
//!                            ^------Answer------'
//! ```
//!
//! A permit of a rate is used within its lease. What does not refill is kept until the calls that needed
//! it are over, and as long as the server answers.

use std::collections::VecDeque;

use crate::exchange::{Answer, Exchange, Lease, MOST, Terms};

/// How often a worker speaks to the server, at most.
pub const EVERY: u64 = 100_000;
/// So long it begins calls with what does not refill, after it spoke last: the server keeps that for
/// others' sake five seconds longer.
const LASTS: u64 = 25_000_000;
/// How often it says at least that it is there, while it holds what does not refill.
const RENEWS: u64 = 5_000_000;
/// Nobody has ever reached the server for so long: the limit is split.
const LOST: u64 = 30_000_000;
/// Who waits for a place in line looks so often whether the limit has become another one.
const LOOKS: u64 = 200_000;
/// And begins calls if it has heard the server so lately. A limit that was changed so long ago holds.
const HOLDS: u64 = 400_000;
/// Who is heard less often wants what comes meanwhile, up to here.
const MEANWHILE: u64 = 500_000;
/// How much more it wants when what it got was not enough.
const GROWTH: u64 = 4;
/// This part of what calls hold goes through the server's hands with each exchange, so that others get
/// some of it.
const TURN: u64 = 32;
/// At first nobody knows how long an exchange takes.
const USUAL_TRIP: u64 = 2_000;
/// The first look whether an answer has come.
const SOON: u64 = 500;
/// Later ones, while the server is not heard.
const AWHILE: u64 = 20_000;

/// What a share says to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It may begin now, with the permits that it asked for.
    Granted,
    /// It is to ask again at this time.
    At(u64),
    /// It may never begin: so much is left of a budget.
    Never(u64),
}

/// A share of a limit. Times are microseconds of the worker's clock, which goes on while the worker is
/// stopped.
#[derive(Debug)]
pub struct Share {
    /// What tasks say that the limit is.
    named: Terms,
    /// What it is now, and how often that was changed.
    terms: Terms,
    version: u64,
    /// Tasks of the job that run at once, if that is known: into so many parts it is split.
    tasks: Option<u64>,
    /// What it is called; a worker that was silent for too long comes back as another one.
    worker: String,
    lives: u64,
    /// Of a rate, oldest first, by its own clock.
    leases: VecDeque<Lease>,
    /// Of what does not refill: what no call has.
    pool: u64,
    /// The least that was in the pool since the last exchange.
    unused: u64,
    /// What calls hold.
    flying: u64,
    /// What calls hold that began when it was called otherwise, or without the server.
    bygone: u64,
    /// What calls took beyond what there was: some turn out to be dearer than they had asked for.
    debt: u64,
    /// What is to go through the server's hands before others use it here.
    turn: u64,
    /// The same of calls that began before the limit was changed: all of them.
    leaving: u64,
    /// Permits of a rate that calls in flight have begun with, by the sums of their leases.
    begun: VecDeque<(u64, u64)>,
    /// What the next exchange says.
    said: Exchange,
    /// What was taken since the last exchange.
    used: u64,
    /// The dearest call that was refused since, if any.
    lacking: u64,
    /// Whether that was after it had used up what it had.
    is_exhausted: bool,
    /// What it has needed of late between two exchanges.
    demand: u64,
    /// What the last call took.
    usual: u64,
    never: Option<u64>,
    /// Whether it wants to hear what the limit is before it begins a call.
    looks: bool,
    /// Whether it was ever answered.
    is_met: bool,
    /// The exchange that is not answered, and when it was sent first.
    sent: Option<(Exchange, u64)>,
    /// When the last exchange was sent that was answered.
    heard: u64,
    /// When it may want something again.
    again_at: u64,
    /// When the worker speaks next, at the earliest.
    speaks_at: u64,
    /// How long an exchange takes.
    trip: u64,
    /// Of a rate that is split: when all that was taken has come.
    tat: u64,
    refused: Option<String>,
}

impl Share {
    /// Makes the share of a worker that begins at `now`; `worker` is a name that no other one has.
    pub fn new(
        terms: Terms,
        worker: &str,
        tasks: Option<u64>,
        begins_empty: bool,
        now: u64,
    ) -> Self {
        let said = Exchange { begins_empty, ..Exchange::default() };
        Self {
            named: terms,
            terms,
            version: 0,
            tasks,
            worker: worker.to_owned(),
            lives: 0,
            leases: VecDeque::new(),
            pool: 0,
            unused: 0,
            flying: 0,
            bygone: 0,
            debt: 0,
            turn: 0,
            leaving: 0,
            begun: VecDeque::new(),
            said,
            used: 0,
            lacking: 0,
            is_exhausted: false,
            demand: 0,
            usual: 1,
            never: None,
            looks: false,
            is_met: false,
            sent: None,
            heard: now,
            again_at: 0,
            speaks_at: 0,
            trip: USUAL_TRIP,
            tat: 0,
            refused: None,
        }
    }

    /// Returns the terms that the limit of this name has elsewhere, if they are others.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Returns whether the server has ever answered.
    pub const fn is_met(&self) -> bool {
        self.is_met
    }

    /// Returns its terms, as tasks say them.
    pub const fn named(&self) -> Terms {
        self.named
    }

    /// Returns what there is of what does not refill.
    pub const fn total(&self) -> u64 {
        match self.terms {
            Terms::Budget(permits) | Terms::Calls(permits) => permits,
            Terms::Rate { .. } => 0,
        }
    }

    /// Returns whether nothing would be lost with it.
    pub fn is_idle(&self, now: u64) -> bool {
        let holds = self.pool + self.flying + self.bygone > 0;
        self.due_at().is_none() && !holds && self.leases.iter().all(|it| it.until <= now)
    }

    const fn is_rate(&self) -> bool {
        matches!(self.terms, Terms::Rate { .. })
    }

    /// Returns what a call takes: of calls at a time no more than there are.
    fn taken(&self, cost: u64) -> u64 {
        if let Terms::Calls(most) = self.named { cost.min(most) } else { cost }
    }

    // --- calls ---

    /// Asks for what a call costs that could begin now.
    pub fn ask(&mut self, cost: u64, now: u64) -> Asked {
        let cost = self.taken(cost);
        let is_granted = match self.terms {
            Terms::Rate { .. } => self.take_of_leases(cost, now),
            Terms::Budget(_) | Terms::Calls(_) => self.take_of_pool(cost, now),
        };
        if is_granted {
            self.used = self.used.saturating_add(cost);
            self.usual = cost;
            return Asked::Granted;
        }
        if let Some(left) = self.never.filter(|left| *left < cost && self.knows(now)) {
            // It asks now and then whether there is more.
            self.lacking = self.lacking.max(cost);
            return Asked::Never(left);
        }
        // Who had the server and has lost it waits: others may still have it, and use the limit.
        if !self.is_met && now >= self.heard + LOST {
            // It asks the server all the same.
            self.lacking = self.lacking.max(cost);
            if let Some(asked) = self.ask_alone(cost, now) {
                return asked;
            }
        }
        if !self.is_rate() && self.pool >= cost {
            self.looks = true;
            let speaks = self.speaks_at.max(now) + self.trip;
            let answered = self.sent.as_ref().map(|(_, sent)| sent + self.trip);
            return Asked::At(answered.unwrap_or(speaks).max(now + SOON));
        }
        // What was promised for later is enough for it.
        let promised = self.leases.front().filter(|it| it.until > now && it.amount >= cost);
        if let Some(lease) = promised {
            let at = if lease.from > now { lease.from } else { now + AWHILE };
            return Asked::At(at.min(now + LOOKS));
        }
        self.lacking = self.lacking.max(cost);
        self.is_exhausted |= self.used > 0;
        let answered = match &self.sent {
            Some((_, sent)) => (sent + self.trip).max(now + SOON),
            None => self.speaks_at.max(self.again_at).max(now) + self.trip,
        };
        Asked::At(answered)
    }

    fn take_of_leases(&mut self, cost: u64, now: u64) -> bool {
        self.forget_over(now);
        if now > self.heard + HOLDS {
            return false;
        }
        let Some(first) = self.leases.front_mut() else { return false };
        if first.from <= now && first.amount >= cost {
            first.amount -= cost;
            let sum = first.sum;
            if first.amount == 0 {
                self.leases.pop_front();
            }
            self.note_begun(sum, cost);
            return true;
        }
        let valid = self.leases.iter().filter(|it| it.from <= now && it.until > now);
        if valid.map(|it| it.amount).sum::<u64>() < cost {
            return false;
        }
        let mut missing = cost;
        while missing > 0
            && let Some(first) = self.leases.front_mut()
        {
            let part = first.amount.min(missing);
            (first.amount, missing) = (first.amount - part, missing - part);
            let sum = first.sum;
            if first.amount == 0 {
                self.leases.pop_front();
            }
            self.note_begun(sum, part);
        }
        true
    }

    /// What no call has begun with before its lease ended has cost nothing.
    fn forget_over(&mut self, now: u64) {
        while let Some(lease) = self.leases.front().copied().filter(|it| it.until <= now) {
            self.leases.pop_front();
            self.tell_cost(Some(lease.sum), lease.amount, 0);
        }
    }

    /// Tells what was charged and what that has cost, of leases from this sum on.
    fn tell_cost(&mut self, since: Option<u64>, charged: u64, cost: u64) {
        let since = since.unwrap_or(0);
        self.said.since = if self.said.charged == 0 { since } else { self.said.since.min(since) };
        self.said.charged += charged;
        self.said.cost = self.said.cost.saturating_add(cost).min(MOST);
    }

    fn note_begun(&mut self, sum: u64, cost: u64) {
        match self.begun.back_mut() {
            Some(last) if last.0 == sum => last.1 += cost,
            _ => self.begun.push_back((sum, cost)),
        }
    }

    fn take_of_pool(&mut self, cost: u64, now: u64) -> bool {
        self.come_back(now);
        if self.pool < cost || !self.knows(now) {
            return false;
        }
        self.pool -= cost;
        self.unused = self.unused.min(self.pool);
        self.flying += cost;
        true
    }

    /// Returns whether it has heard of late what the limit is. A server that is silent does not say what
    /// that has become, and all goes on meanwhile.
    fn knows(&self, now: u64) -> bool {
        let is_silent = self.sent.as_ref().is_some_and(|(_, sent)| now >= sent + HOLDS);
        now <= self.heard + HOLDS || is_silent
    }

    /// Becomes another worker if it was silent for too long: others may have what it held.
    fn come_back(&mut self, now: u64) {
        let holds = self.pool > 0 || self.flying > 0;
        // What was said lately is still to be answered: the next ask is not to forget that, too.
        let said = self.sent.as_ref().map(|(_, sent)| *sent);
        let since = if holds { Some(self.heard) } else { said };
        if !self.is_rate() && since.is_some_and(|it| now >= it + LASTS) {
            self.become_another();
        }
    }

    /// Has nothing of the server any more: its calls in flight go on, and others may have their permits.
    fn become_another(&mut self) {
        self.lives += 1;
        self.bygone += self.flying;
        (self.pool, self.unused, self.flying, self.debt) = (0, 0, 0, 0);
        (self.turn, self.leaving) = (0, 0);
        (self.again_at, self.never) = (0, None);
        self.said = Exchange { begins_empty: self.said.begins_empty, ..Exchange::default() };
        self.sent = None;
    }

    /// Grants of the part that is its own as long as nobody hears the server.
    fn ask_alone(&mut self, cost: u64, now: u64) -> Option<Asked> {
        let tasks = self.tasks?.max(1);
        match self.terms {
            Terms::Rate { permits, period, .. } => {
                // Without what it could have saved, which others may have used.
                if self.tat > now {
                    return Some(Asked::At(self.tat));
                }
                let lasts = u128::from(cost) * u128::from(period) * u128::from(tasks);
                let lasts = lasts.div_ceil(u128::from(permits));
                self.tat = now + u64::try_from(lasts).unwrap_or(u64::MAX / 2);
                Some(Asked::Granted)
            }
            Terms::Calls(most) if self.bygone + cost <= most / tasks => {
                self.bygone += cost;
                Some(Asked::Granted)
            }
            Terms::Calls(_) | Terms::Budget(_) => None,
        }
    }

    /// A call of a rate has ended that cost the `taken` that it took.
    pub fn end(&mut self, taken: u64) {
        self.forget_begun(taken);
    }

    /// Settles a call that took `taken` and cost `actual`; of a rate, one that cost something else than it
    /// took.
    pub fn settle(&mut self, taken: u64, actual: u64) {
        let taken = self.taken(taken);
        match self.terms {
            Terms::Rate { .. } => {
                self.tell_cost(self.begun.front().map(|it| it.0), taken, actual);
                self.forget_begun(taken);
            }
            Terms::Budget(_) | Terms::Calls(_) => {
                // On what is bygone nobody counts any more, and it may be less than this one took.
                let bygone = self.bygone.min(taken);
                self.bygone -= bygone;
                let (taken, actual) = (taken - bygone, actual.saturating_sub(bygone));
                self.flying = self.flying.saturating_sub(taken);
                let owed = self.debt.min(taken);
                self.debt -= owed;
                let free = taken - owed;
                if matches!(self.terms, Terms::Budget(_)) && actual > 0 {
                    self.said.charged += free;
                    self.said.cost = self.said.cost.saturating_add(actual).min(MOST);
                } else {
                    let leaving = self.leaving.min(free);
                    let turn = self.turn.min(free - leaving);
                    (self.leaving, self.turn) = (self.leaving - leaving, self.turn - turn);
                    self.said.back += leaving + turn;
                    self.pool += free - leaving - turn;
                }
            }
        }
    }

    /// Sets right what a call took that goes on.
    pub fn recharge(&mut self, taken: u64, anew: u64) {
        if self.is_rate() {
            // It has not ended, and is settled by what it is charged from now on.
            self.tell_cost(self.begun.front().map(|it| it.0), taken, anew);
            if let Some(last) = self.begun.back_mut() {
                last.1 += anew.saturating_sub(taken);
            }
            return self.forget_begun(taken.saturating_sub(anew));
        }
        let (taken, anew) = (self.taken(taken), self.taken(anew));
        let more = anew.saturating_sub(taken);
        self.flying += more;
        self.debt += more.saturating_sub(self.pool);
        // On what is bygone nobody counts any more, so it does not come back.
        let less = taken.saturating_sub(anew).min(self.flying + self.bygone);
        let free = less.min(self.flying);
        (self.flying, self.bygone) = (self.flying - free, self.bygone - (less - free));
        let owed = self.debt.min(free);
        self.debt -= owed;
        self.pool = self.pool.saturating_sub(more) + free - owed;
        self.unused = self.unused.min(self.pool);
    }

    fn forget_begun(&mut self, mut taken: u64) {
        while taken > 0
            && let Some(first) = self.begun.front_mut()
        {
            let part = first.1.min(taken);
            (first.1, taken) = (first.1 - part, taken - part);
            if first.1 == 0 {
                self.begun.pop_front();
            }
        }
    }

    /// Learns what is left of a rate for all.
    pub fn lower_to(&mut self, left: u64) {
        self.said.left = Some(self.said.left.map_or(left, |it| it.min(left)));
    }

    /// Gives up what it holds of a rate, and `owed` of what comes.
    pub fn drain(&mut self, owed: u64) {
        if self.is_rate() {
            self.leases.clear();
            self.said.left = Some(0);
            self.said.cost = self.said.cost.saturating_add(owed).min(MOST);
        }
    }

    // --- the server ---

    /// Returns when the worker has something to say, if it has; a point before now: at once.
    pub fn due_at(&self) -> Option<u64> {
        if self.sent.is_some() || !self.is_met {
            return Some(0);
        }
        let said = &self.said;
        let tells = said.charged + said.cost + said.back + self.unused > 0
            || (said.left.is_some() || self.looks);
        let wants = self.lacking > 0 || (self.is_rate() && self.used > 0);
        let tells = tells.then_some(0);
        let wants = wants.then_some(self.again_at);
        let renews = if self.is_rate() {
            // What is over comes back to others.
            let over = self.leases.front().map(|it| it.until);
            let ends = self.leases.back().map(|it| it.until);
            let held = ends.filter(|it| *it > self.heard + HOLDS).map(|_| self.heard + LOOKS);
            over.into_iter().chain(held).min()
        } else {
            // Who begins calls hears what the limit has become.
            let renews = if self.used > 0 { LOOKS } else { RENEWS };
            (self.pool + self.flying > 0).then_some(self.heard + renews)
        };
        [tells, wants, renews].into_iter().flatten().min()
    }

    /// Returns what it says at `now`: again, as long as that was not answered.
    pub fn exchange(&mut self, now: u64) -> Exchange {
        self.come_back(now);
        if let Some((said, _)) = &self.sent {
            return said.clone();
        }
        let wants = now >= self.again_at;
        if self.is_rate() {
            self.forget_over(now);
            self.want_of_rate(wants, now);
        } else {
            self.want_of_stock(wants);
        }
        let empty = Exchange {
            number: self.said.number + 1,
            begins_empty: self.said.begins_empty,
            ..Exchange::default()
        };
        let mut said = std::mem::replace(&mut self.said, empty);
        said.number += 1;
        said.worker = format!("{}.{}", self.worker, self.lives);
        said.knows = self.version;
        said.bound();
        (self.used, self.lacking, self.is_exhausted, self.looks) = (0, 0, false, false);
        self.sent = Some((said.clone(), now));
        said
    }

    fn want_of_rate(&mut self, wants: bool, now: u64) {
        let Terms::Rate { permits, period, .. } = self.terms else { return };
        let meanwhile = now.saturating_sub(self.heard).clamp(2 * EVERY, MEANWHILE);
        let comes = u128::from(permits) * u128::from(meanwhile) / u128::from(period);
        let most = u64::try_from(comes).unwrap_or(u64::MAX).max(1);
        let needed = if self.is_exhausted { self.used.saturating_mul(GROWTH) } else { self.used };
        self.demand = needed.max(self.demand / 2).min(most);
        if !wants {
            return;
        }
        if self.lacking > 0 {
            (self.said.want, self.said.least) = (self.demand.max(self.lacking), self.lacking);
        } else {
            let held = self.leases.iter().filter(|it| it.until > now).map(|it| it.amount);
            let missing = self.demand.saturating_sub(held.sum());
            if self.used > 0 && missing >= self.usual {
                (self.said.want, self.said.least) = (missing, self.usual);
            }
        }
    }

    fn want_of_stock(&mut self, wants: bool) {
        let is_calls = matches!(self.terms, Terms::Calls(_));
        let needed = if self.is_exhausted { self.used.saturating_mul(GROWTH) } else { self.used };
        self.demand = needed.max(self.demand / 2);
        if self.lacking > 0 && wants {
            // All that it has is not enough for one; and some goes round.
            self.said.back += std::mem::take(&mut self.pool);
            let round = if is_calls { self.said.back + self.flying } else { self.said.back };
            self.said.want = self.demand.max(round).max(self.lacking);
            self.said.least = self.lacking;
            self.turn = if is_calls { self.flying / TURN } else { 0 };
        } else {
            self.said.back += self.unused;
            self.pool -= self.unused;
            self.turn = 0;
        }
        self.unused = self.pool;
    }

    /// Learns the answer to what was said, at `now`; the worker speaks at `speaks_at` again at the
    /// earliest.
    pub fn answered(&mut self, answer: Answer, now: u64, speaks_at: u64) {
        let Some((_, sent)) = self.sent.take() else { return };
        self.is_met = true;
        // When the server had it is between both.
        self.heard = sent;
        // One that was sent again took longer than they do.
        self.trip = (self.trip * 3 + now.saturating_sub(sent).min(EVERY)) / 4;
        self.speaks_at = speaks_at;
        match answer {
            Answer::Leases(leases) if self.is_rate() => {
                for Lease { amount, from, until, sum } in leases {
                    let (from, until) = (now + from, sent + until);
                    if until > from {
                        self.leases.push_back(Lease { amount, from, until, sum });
                    } else {
                        // It has come too late.
                        self.tell_cost(Some(sum), amount, 0);
                    }
                }
            }
            Answer::Leases(leases) => {
                self.pool += leases.iter().map(|it| it.amount).sum::<u64>();
                self.unused = self.pool;
            }
            Answer::Again(after) | Answer::OnSettle(after) => {
                self.again_at = now + after.min(LOOKS);
            }
            Answer::Never(left) => (self.never, self.again_at) = (Some(left), now + LOOKS),
            Answer::Noted => {}
            Answer::Lost => self.become_another(),
            Answer::Set { version, terms } => self.become_(version, terms),
            Answer::OtherTerms(terms) => self.refused = Some(terms),
        }
    }

    /// Follows what the limit has become.
    fn become_(&mut self, version: u64, terms: Terms) {
        (self.version, self.terms) = (version, terms);
        (self.again_at, self.never) = (0, None);
        // The server begins a new line, and gives out what calls at a time there are.
        self.leases.clear();
        self.said.back += std::mem::take(&mut self.pool);
        (self.unused, self.leaving) = (0, self.flying);
    }

    /// Learns that the worker cannot speak before `speaks_at`; what was not answered is said again then.
    pub fn unanswered(&mut self, speaks_at: u64) {
        self.speaks_at = speaks_at;
    }
}
