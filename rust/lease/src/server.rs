// SPDX-License-Identifier: Apache-2.0
//! The limits of a job, in one process.
//!
//! What `exchange.lua` and `owner.lua` do, number by number: quotients are those of doubles on both sides, and all
//! numbers are below 2^53, so that doubles hold them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::exchange::{Answer, Exchange, Lease, MOST, Order, State, Terms};

/// Silent for so long, a worker has nothing any more.
const HOLD: u64 = 30_000_000;
/// So long it may begin calls with what does not refill: it stops before that is others'.
const LASTS: u64 = 25_000_000;
/// And so long with permits of a rate, at most.
const LEASE: u64 = 200_000;
/// And so long one that gets the processor less often than that: a change of the limit holds after half a
/// second.
const LONGEST: u64 = 400_000;
/// And at least.
const SHORTEST: u64 = 10_000;
/// In so many parts at most, if the limit saves too little for one.
const MOST_LEASES: usize = 16;
/// What all workers get at once of a rate, in time.
const QUANTUM: u64 = 200_000;
/// How far ahead a rate is promised.
const HORIZON: u64 = 1_000_000;
/// Who has wanted something since then shares it.
const ACTIVE: u64 = 1_000_000;
/// When to ask again for what no time brings.
const AGAIN: u64 = 100_000;
/// So long a limit is kept that nobody asks.
const LIVES: u64 = 3_600_000_000;
/// And so long one that does not come back.
const BUDGET_LIVES: u64 = 2_592_000_000_000;
/// So many parts of a line are remembered, of what was granted last.
const PARTS: usize = 32;
/// The leases of a part end within what the limit saves, divided by this.
const GRAINS: u64 = 16;
/// The first look for those that nobody asks, by their number.
const FIRST_LOOK: usize = 256;

/// Limits by name.
#[derive(Debug, Default)]
pub struct Server {
    limits: HashMap<String, Limit>,
    /// When there are so many, those are forgotten that nobody asks any more.
    looks_at: usize,
    /// What workers have published, oldest first.
    published: VecDeque<String>,
    /// The last ones of their tasks.
    last: VecDeque<String>,
}

/// So many messages wait for who reads them. The next one of a task has all that is in one before.
const MOST_PUBLISHED: usize = 4096;

/// And so many last ones, after which no other comes.
const MOST_LAST: usize = 1 << 16;

/// A limit and who takes from it.
#[derive(Debug)]
struct Limit {
    /// What tasks say that it is.
    said: Terms,
    /// What its owner has made of it.
    terms: Terms,
    /// How often that was changed.
    version: u64,
    /// The time of the last exchange, by a clock that does not go back.
    now: u64,
    /// So much it is ahead of that of the server, which was set back.
    ahead: u64,
    /// Of a rate: what was promised.
    line: Line,
    /// What was granted and neither settled nor given back.
    flying: u64,
    spent: u64,
    workers: BTreeMap<String, Worker>,
}

/// What was promised of a rate, in time, as GCRA has it; what was charged for nothing can be taken out
/// again.
///
/// A lease that ends at `until` takes the line to `max(tat, until) + what it is`. If some of that turns out
/// to be nothing, what came behind it is counted again.
#[derive(Debug)]
struct Line {
    /// When all has come that was promised (GCRA's theoretical arrival time).
    tat: u64,
    /// The same without the parts, and the sum then.
    base: u64,
    base_sum: u64,
    /// All that was promised so far, in time.
    sum: u64,
    /// What was promised last, oldest first.
    parts: VecDeque<Part>,
}

/// Some leases that end within a short time.
#[derive(Debug)]
struct Part {
    /// `Line::sum` behind its last one.
    sum: u64,
    /// When the first one of them ends, and the last one.
    first: u64,
    until: u64,
    /// What they are, without what has come back.
    lasts: u64,
    /// Where they took a line of nothing, before some of it came back.
    end: u64,
}

impl Part {
    /// Returns where a line of nothing is behind them. Nobody knows which of them the rest is of: perhaps
    /// all of the last one.
    fn least(&self) -> u64 {
        self.end.min(self.until + self.lasts)
    }

    /// Returns where a line is behind them that came to `tat`.
    fn behind(&self, tat: u64) -> u64 {
        self.least().max(tat + self.lasts)
    }
}

#[derive(Debug)]
struct Worker {
    /// When it spoke last.
    seen: u64,
    /// When it wanted something last.
    wanted: Option<u64>,
    /// When its last lease of a rate begins.
    place: u64,
    flying: u64,
    /// The number of its last exchange, and what that came to.
    number: u64,
    answer: Answer,
}

impl Server {
    /// Takes a message for the reader of this process; without one, the oldest get lost. `is_last`: the
    /// task that sends it says no more.
    pub fn publish(&mut self, message: &str, is_last: bool) {
        let (messages, most) = if is_last {
            (&mut self.last, MOST_LAST)
        } else {
            (&mut self.published, MOST_PUBLISHED)
        };
        if messages.len() == most {
            messages.pop_front();
        }
        messages.push_back(message.to_owned());
    }

    /// Returns the messages that have come, oldest first. Last ones come before the first ones of tasks that
    /// have followed.
    pub fn take_published(&mut self) -> Vec<String> {
        self.last.drain(..).chain(self.published.drain(..)).collect()
    }

    /// Whether a message waits.
    pub fn has_published(&self) -> bool {
        !self.published.is_empty() || !self.last.is_empty()
    }

    /// Carries out an exchange with the limit of this name, which the first one makes. `now` is in
    /// microseconds.
    pub fn exchange(&mut self, name: &str, terms: Terms, said: &Exchange, now: u64) -> Answer {
        let limit = self.limit(name, terms, said.begins_empty, now);
        if !limit.is(terms) {
            return Answer::OtherTerms(limit.said.text());
        }
        limit.exchange(said, now)
    }

    /// Tells the owner of a job what a limit is, and changes it if that is asked for. `now` is in
    /// microseconds.
    pub fn order(&mut self, name: &str, order: &Order, now: u64) -> State {
        if order.anew.is_none() && !self.limits.contains_key(name) {
            return State::Unused;
        }
        let limit = self.limit(name, order.said, order.begins_empty, now);
        if !limit.is(order.said) {
            return State::OtherTerms(limit.said.text());
        }
        if let Some(terms) = order.anew.filter(|it| it.is_alike(limit.terms)) {
            limit.set(terms, now);
        }
        limit.state(limit.reads(now))
    }

    fn limit(&mut self, name: &str, terms: Terms, begins_empty: bool, now: u64) -> &mut Limit {
        if self.limits.len() >= self.looks_at.max(FIRST_LOOK) {
            self.limits.retain(|_, it| it.lives_until() > now);
            self.looks_at = 2 * self.limits.len();
        }
        self.limits.entry(name.to_owned()).or_insert_with(|| {
            let saved = if begins_empty { burst_of(terms) } else { 0 };
            Limit::new(terms, if saved > 0 { now + saved } else { 0 })
        })
    }
}

impl Limit {
    const fn new(terms: Terms, tat: u64) -> Self {
        let workers = BTreeMap::new();
        let (said, version) = (terms, 0);
        let line = Line::new(tat);
        Self { said, terms, version, now: 0, ahead: 0, line, flying: 0, spent: 0, workers }
    }

    /// Returns whether these are its terms: as it began, or as it is.
    fn is(&self, terms: Terms) -> bool {
        self.said == terms || self.terms == terms
    }

    /// Becomes something else. What was leased may be used for half a second more, by workers that do not
    /// know it yet.
    fn set(&mut self, terms: Terms, now: u64) {
        self.wind(now);
        let before = std::mem::replace(&mut self.terms, terms);
        self.version += 1;
        if let Terms::Rate { permits, period, .. } = terms
            && let Terms::Rate { permits: came, period: within, .. } = before
        {
            // What was saved stays, and no debt does: what was taken before has been allowed.
            let line = burst_of(before).saturating_sub(self.line.tat.saturating_sub(self.now));
            let saved = quotient(quotient(line, came, within), period, permits);
            self.line.begin(self.now + burst_of(terms).saturating_sub(saved));
            for worker in self.workers.values_mut() {
                worker.place = 0;
            }
        }
    }

    fn state(&self, now: u64) -> State {
        let Self { terms, version, spent, flying, .. } = *self;
        State::Known { terms, version, spent, flying, active: self.active(now) }
    }

    /// Returns what its clock says when that of the server says `now`.
    fn reads(&self, now: u64) -> u64 {
        self.now.max(now + self.ahead)
    }

    /// Goes on to `now`. Where that was set back, time goes on from where it was.
    fn wind(&mut self, now: u64) -> u64 {
        self.now = self.reads(now);
        self.ahead = self.now.saturating_sub(now);
        self.now
    }

    /// Returns how many workers share it: those that have wanted something of late.
    fn active(&self, now: u64) -> u64 {
        let since = Some(now.saturating_sub(ACTIVE));
        self.workers.values().filter(|it| it.wanted >= since).count() as u64
    }

    const fn lives_until(&self) -> u64 {
        let seen = self.now - self.ahead;
        seen + if matches!(self.terms, Terms::Budget(_)) { BUDGET_LIVES } else { LIVES }
    }

    fn exchange(&mut self, said: &Exchange, now: u64) -> Answer {
        let now = self.wind(now);
        if let Some(own) = self.workers.get(&said.worker)
            && said.number <= own.number
        {
            // What was said over a connection that is gone may come after what followed it.
            let is_last = said.number == own.number;
            return if is_last { own.answer.clone() } else { Answer::Noted };
        }
        self.forget_silent(now);
        // What it holds is not counted here: others may have it.
        let is_rate = matches!(self.terms, Terms::Rate { .. });
        if !is_rate && said.number > 1 && !self.workers.contains_key(&said.worker) {
            return Answer::Lost;
        }
        let own = self.workers.entry(said.worker.clone()).or_insert_with(|| Worker {
            seen: now,
            wanted: None,
            place: 0,
            flying: 0,
            number: said.number,
            answer: Answer::Noted,
        });
        let gap = now - own.seen;
        own.seen = now;
        // Who does not know what the limit has become learns that first.
        let is_new = said.knows != self.version;
        let want = if is_new { 0 } else { said.want };
        if want > 0 {
            own.wanted = Some(now);
        }
        let said = &Exchange { want, least: said.least.max(1), ..said.clone() };
        let active = self.active(now);
        let answer = match self.terms {
            Terms::Rate { permits, period, burst } => {
                // Who calls now and then wants one row's, and uses what it gets.
                let needs = want > said.least || said.charged > said.cost;
                let is_slow = gap > LEASE && gap <= ACTIVE && needs;
                let longest = if is_slow { LONGEST } else { LEASE };
                self.of_rate(said, (permits, period, burst), active, (now, longest))
            }
            Terms::Budget(most) | Terms::Calls(most) => self.of_stock(said, most, active),
        };
        let Self { version, terms, .. } = *self;
        let set = is_new.then_some(Answer::Set { version, terms });
        let answer = set.or(answer).unwrap_or(Answer::Noted);
        if let Some(own) = self.workers.get_mut(&said.worker) {
            own.number = said.number;
            own.answer = answer.clone();
        }
        answer
    }

    /// What a silent worker was granted is over for calls at a time, and spent of a budget: nobody can say
    /// what it has begun.
    fn forget_silent(&mut self, now: u64) {
        let is_budget = matches!(self.terms, Terms::Budget(_));
        let (flying, spent) = (&mut self.flying, &mut self.spent);
        self.workers.retain(|_, it| {
            if it.seen + HOLD >= now {
                return true;
            }
            *flying -= it.flying;
            *spent = (*spent + if is_budget { it.flying } else { 0 }).min(MOST);
            false
        });
    }

    /// Grants permits of a rate: now, or as a place in line.
    fn of_rate(
        &mut self,
        said: &Exchange,
        (permits, period, most): (u64, u64, u64),
        active: u64,
        (now, longest): (u64, u64),
    ) -> Option<Answer> {
        let burst = burst_of(self.terms);
        let (charged, cost) = (said.charged, said.cost);
        if cost > charged {
            let more = quotient_up(cost - charged, period, permits);
            self.line.promise(now, more, burst);
        } else if cost < charged {
            self.line.give_back(said.since, quotient(charged - cost, period, permits));
        }
        if let Some(left) = said.left {
            let told = now + burst.saturating_sub(quotient(left, period, permits));
            // Many services say it with each reply. Where there is enough, what calls did not need comes
            // back all the same.
            if told > self.line.tat {
                self.line.begin(told);
            }
        }
        if said.want == 0 {
            return None;
        }
        // What comes soon, or half of what is there: a call may turn out to cost less than it asks for.
        let tat = self.line.tat;
        let taken = tat.saturating_sub(now);
        let saved = quotient(burst.saturating_sub(taken), permits, period);
        let soon = quotient(permits, QUANTUM, period);
        let share = quotient(soon.max(quotient(saved, 1, 2)), 1, active);
        let mut rest = whole_rows(said, share);
        let line = tat.max(now).saturating_sub(burst);
        // One place in line for each, or who asks first would get all.
        let own = self.workers.get_mut(&said.worker)?;
        if own.place > now {
            return Some(Answer::Again(own.place - now));
        }
        if line > now + HORIZON {
            return Some(Answer::Again(line - HORIZON - now));
        }
        // A permit may be used until its lease ends, so it counts from there. As long as the line is no
        // shorter than that, nothing is lost by it. Where it saves too little, what is granted is cut:
        // the less a part of it is, the longer it may be used, and the next part goes on from there.
        let is_cut = quotient_up(rest, period, permits) + longest > burst;
        let at_once =
            if burst - quotient(burst, 1, 4) < SHORTEST { most } else { quotient(most, 1, 4) };
        let part = if is_cut { whole_rows(said, at_once) } else { rest };
        let mut leases = Vec::new();
        while rest > 0 && leases.len() < MOST_LEASES {
            let amount = part.min(rest);
            let lasts = quotient_up(amount, period, permits);
            let lease = burst.saturating_sub(lasts).clamp(SHORTEST, longest);
            // Its own length is not the line's: a dear row waits for its turn, and then for what it costs.
            let from = now.max((self.line.tat.max(now) + lasts).saturating_sub(burst));
            let until = from + lease;
            self.line.promise(until, lasts, burst);
            own.place = from;
            leases.push(Lease { amount, from: from - now, until: until - now, sum: self.line.sum });
            rest -= amount;
        }
        Some(Answer::Leases(leases))
    }

    /// Grants permits of what does not refill.
    fn of_stock(&mut self, said: &Exchange, most: u64, active: u64) -> Option<Answer> {
        let is_budget = matches!(self.terms, Terms::Budget(_));
        let own = self.workers.get_mut(&said.worker)?;
        let ended = (said.charged + said.back).min(own.flying);
        own.flying -= ended;
        self.flying -= ended;
        let cost = if is_budget { said.cost } else { 0 };
        self.spent = (self.spent + cost).min(MOST);
        if said.want == 0 {
            return None;
        }
        let free = most.saturating_sub(self.spent + self.flying);
        let amount = whole_rows(said, quotient(free, 1, 2 * active));
        if amount <= free {
            own.flying += amount;
            self.flying += amount;
            return Some(Answer::Leases(vec![Lease { amount, from: 0, until: LASTS, sum: 0 }]));
        }
        let never = is_budget && self.flying == 0;
        Some(if never { Answer::Never(free) } else { Answer::OnSettle(AGAIN) })
    }
}

impl Line {
    const fn new(tat: u64) -> Self {
        Self { tat, base: tat, base_sum: 0, sum: 0, parts: VecDeque::new() }
    }

    /// Promises so much, which may begin as late as `until`.
    fn promise(&mut self, until: u64, lasts: u64, burst: u64) {
        self.sum += lasts;
        let sum = self.sum;
        match self.parts.back_mut() {
            Some(last) if until <= last.first + burst / GRAINS => {
                last.end = last.least().max(until) + lasts;
                (last.sum, last.until) = (sum, last.until.max(until));
                last.lasts += lasts;
            }
            _ => {
                let end = until + lasts;
                self.parts.push_back(Part { sum, first: until, until, lasts, end });
            }
        }
        self.count();
    }

    /// Takes out what was charged for nothing, of leases from this sum on. Which of them these are is not
    /// known; of the oldest, it brings the line back least.
    fn give_back(&mut self, since: u64, mut less: u64) {
        if since <= self.base_sum {
            return;
        }
        for part in self.parts.iter_mut().filter(|it| it.sum >= since) {
            let of_it = part.lasts.min(less);
            (part.lasts, less) = (part.lasts - of_it, less - of_it);
        }
        self.count();
    }

    /// Goes on from `tat`: nothing comes back of what was promised before.
    fn begin(&mut self, tat: u64) {
        (self.tat, self.base, self.base_sum) = (tat, tat, self.sum);
        self.parts.clear();
    }

    fn count(&mut self) {
        while let Some(first) = self.parts.front() {
            let end = first.behind(self.base);
            // What ends before the next one counts does not matter any more.
            let is_over = self.parts.get(1).is_some_and(|it| end + it.lasts <= it.least());
            if !is_over && self.parts.len() <= PARTS {
                break;
            }
            (self.base, self.base_sum) = (end, first.sum);
            self.parts.pop_front();
        }
        self.tat = self.parts.iter().fold(self.base, |tat, it| it.behind(tat));
    }
}

/// Returns what is granted of a `share`. Rows often cost the same, and what is too little for one would be
/// lost.
fn whole_rows(said: &Exchange, share: u64) -> u64 {
    let amount = said.want.min(said.least.max(share));
    if amount < said.least { amount } else { amount - amount % said.least }
}

/// What a rate saves, in time.
fn burst_of(terms: Terms) -> u64 {
    match terms {
        Terms::Rate { permits, period, burst } => quotient(burst, period, permits),
        Terms::Budget(_) | Terms::Calls(_) => 0,
    }
}

/// Returns `a * b / c`, rounded down, as doubles divide.
fn quotient(a: u64, b: u64, c: u64) -> u64 {
    whole((double(a) * double(b) / double(c)).floor())
}

/// Returns `a * b / c`, rounded up, as doubles divide.
fn quotient_up(a: u64, b: u64, c: u64) -> u64 {
    whole((double(a) * double(b) / double(c)).ceil())
}

#[expect(clippy::cast_precision_loss, reason = "numbers are below 2^53")]
const fn double(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "quotients are whole and not negative"
)]
const fn whole(number: f64) -> u64 {
    // Beyond that doubles are not whole any more.
    if number < MOST as f64 { number as u64 } else { MOST }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// When a lease ends beyond the line, or before it; what it is; and which lease before it gives back how
    /// many tenths.
    type Step = (i64, u64, Option<(usize, u64)>);

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let back = proptest::option::weighted(0.4, (0_usize..23, 1_u64..=10));
        prop::collection::vec((-7_i64..3, 1_u64..9, back), 1..97)
    }

    /// Where the line is if all leases are known, and what came back of each.
    fn exactly(leases: &[(u64, u64, u64)]) -> u64 {
        leases.iter().fold(0, |tat, (until, lasts, _)| tat.max(*until) + lasts)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 997, ..ProptestConfig::default() })]

        #[test]
        fn a_line_is_what_its_leases_are_and_never_less(steps in steps(), scale in 1_u64..101) {
            let (mut line, burst) = (Line::new(0), 997);
            let mut leases: Vec<(u64, u64, u64)> = Vec::new();
            let mut is_known = true;
            for (ahead, lasts, back) in steps {
                let (ahead, lasts) = (ahead * i64::try_from(scale).unwrap(), lasts * scale);
                let until = line.tat.saturating_add_signed(ahead);
                line.promise(until, lasts, burst);
                leases.push((until, lasts, line.sum));
                if let Some((of_last, tenths)) = back {
                    let count = leases.len();
                    let (_, lasts, sum) = &mut leases[count - 1 - of_last.min(count - 1)];
                    let less = (*lasts * tenths).div_ceil(10);
                    *lasts -= less;
                    line.give_back(*sum, less);
                    is_known = false;
                }
                let exact = exactly(&leases);
                prop_assert!(line.tat >= exact, "{} instead of {exact}: {leases:?}", line.tat);
                prop_assert!(!is_known || line.tat == exact, "{} for {exact}: {leases:?}", line.tat);
            }
        }
    }
}
