// SPDX-License-Identifier: Apache-2.0
//! A naive model of a task: each call and each row, held against the rules as it happens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sparkawait_core::operator::AttemptId;

use crate::known::KnownRows;
use crate::limits::Limits;
use crate::rules::{Ended, Next, RULES};
use crate::scenario::{Failing, Mode, Scenario};
use crate::trace::{Asks, Broken, Checked, Id, Path, Said, child_id, head_id};

mod budget;
mod cache;
mod held;
mod known;
mod made;
mod pools;
pub mod requests;
mod settled;
mod silence;
mod site;

use budget::Budget;
pub use cache::{Cache, Source};
use held::Held;
pub use made::Made;
use pools::Pools;
use site::{AskedPause, Flying, asks_for_retry, is_drop, is_failure, is_reply, outcome_of};
pub use site::{Outcome, Row, Site, State, Why};

/// A row as it came to an operator.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Position in the input.
    pub row: i64,
    /// Not before that.
    pub at: u64,
}

/// All that is known of a task.
#[derive(Clone, Debug)]
pub struct Model {
    scenario: Arc<Scenario>,
    /// The functions.
    pub sites: Vec<Site>,
    /// When each row of the input was handed over.
    pub fed: Vec<u64>,
    /// Rows that came to each operator, and behind the last one to the output.
    pub arrived: Vec<BTreeMap<Id, Arrival>>,
    /// The row of a key that an operator works on.
    key_holders: Vec<BTreeMap<i64, Id>>,
    /// Whether a failure ends the task.
    pub is_ending: bool,
    /// Permits that no time brings.
    pools: Pools,
    /// Rows that were known when they came.
    pub known: KnownRows,
    /// Rows whose function was asked what they put out, as their time had passed.
    pub timed_out: BTreeSet<i64>,
    /// Whether what replies have done may be unknown to the task when it is saved.
    keeps_before: bool,
}

impl Model {
    /// Knows of no row.
    pub fn new(scenario: &Arc<Scenario>) -> Self {
        let (count, has_parts) = (scenario.operators.len(), scenario.parts.is_some());
        let sites = scenario.operators.iter().enumerate().flat_map(|(operator, plan)| {
            let is_last = operator + 1 == count;
            plan.calls.iter().map(move |calls| Site {
                knows_outages: calls.is_answered() && !has_parts,
                held: Held::new(scenario.seed, plan, calls).filter(|_| is_last && !has_parts),
                budget: Budget::new(calls, has_parts),
                ..Site::new(operator, plan, calls)
            })
        });
        let mut model = Self {
            scenario: Arc::clone(scenario),
            sites: sites.collect(),
            fed: Vec::new(),
            arrived: vec![BTreeMap::new(); count + 1],
            key_holders: vec![BTreeMap::new(); count],
            is_ending: false,
            pools: Pools::new(scenario),
            known: KnownRows::new(),
            timed_out: BTreeSet::new(),
            keeps_before: scenario.parts.is_some(),
        };
        model.pools.note_spent(&mut model.sites);
        model
    }

    /// Whether the input comes in parts, whose tasks may get lost.
    pub fn has_parts(&self) -> bool {
        self.scenario.parts.is_some()
    }

    /// The functions of an operator.
    pub fn sites_of(&self, operator: usize) -> impl Iterator<Item = usize> {
        let is_of = move |it: &(usize, &Site)| it.1.operator == operator;
        self.sites.iter().enumerate().filter(is_of).map(|it| it.0)
    }

    // --- calls ---

    /// A function is called for a row.
    pub fn invoked(
        &mut self,
        site: usize,
        attempt: AttemptId,
        path: &Path,
        now: u64,
    ) -> Checked<Id> {
        if self.sites[site].is_closed {
            return Err(Broken::new("no call after the end", format!("{attempt:?}")));
        }
        self.check_unknown(path)?;
        let operator = self.sites[site].operator;
        let id = self.arrive(operator, path, now)?;
        let at = self.arrived[operator][&id].at;
        let holder = self.check_key(operator, id, path, now)?;
        let of_head = operator == 0;
        let here = &mut self.sites[site];
        if !here.rows.contains_key(&id) {
            here.first_call_in_order(of_head, path)?;
            if of_head && self.scenario.parts.is_none() {
                here.check_patience(holder.and_then(|it| here.rows.get(&it)), path, now)?;
            }
            here.rows.insert(id, Row::new(path, at));
        }
        here.check_pause(path, now)?;
        if attempt.is_hedge() {
            if here.hedge(id, attempt, now)? {
                // Nothing fails by what is left to the other call.
                self.is_ending = self.sites.iter().any(Site::has_failed);
            }
        } else {
            here.attempt(id, attempt, now)?;
        }
        let here = &mut self.sites[site];
        let is_free =
            attempt.is_hedge() && !RULES.hedge_pays || attempt.attempt > 1 && !RULES.retry_pays;
        if !is_free && let Some(limit) = here.limits.take(path.cost, path.channel, now) {
            let what = format!("limit {limit} at {now}, row {}", path.row);
            return Err(Broken::new("every window of a limit", what));
        }
        if let Some(held) = &here.held {
            held.check(here.flying.len(), now)?;
        }
        let is_doomed = here.rows.get(&id).is_some_and(Row::is_done);
        let known = here.plan.cache.is_none().then_some(now);
        here.flying.insert(attempt, Flying { id, started: now, begun: None, known, is_doomed });
        here.calls += 1;
        if here.plan.cache.is_none() {
            here.begins(attempt, now);
        }
        if RULES.cancels_come_first {
            here.check_calls(now)?;
        }
        self.pools.take(&mut self.sites, site, path.cost, now)?;
        self.check_slots_of_branches(operator, now)?;
        Ok(id)
    }

    /// A call has cost nothing of budgets.
    pub fn give_back_to_pools(&mut self, site: usize, row_cost: u64) {
        self.pools.give_back(&self.sites, site, row_cost);
    }

    /// Whether a row of a function was refused in vain by a budget.
    pub fn is_refused_in_vain(&self, site: usize, row_cost: u64) -> bool {
        self.pools.have_enough(&self.sites, site, row_cost)
    }

    /// A call is made behind a cache: only now it is an attempt of its row.
    pub fn begins(&mut self, site: usize, attempt: AttemptId, now: u64) {
        self.sites[site].begins(attempt, now);
    }

    /// Rows that are called for side by side hold slots of their operator.
    fn check_slots_of_branches(&self, operator: usize, now: u64) -> Checked {
        let plan = &self.scenario.operators[operator];
        if !plan.is_fan_out {
            return Ok(());
        }
        let flying = self.sites.iter().filter(|it| it.operator == operator);
        let rows: BTreeSet<Id> =
            flying.flat_map(|it| it.flying.values().map(|call| call.id)).collect();
        if rows.len() > plan.capacity {
            let what = format!("{} rows of {} at {now}", rows.len(), plan.capacity);
            return Err(Broken::new("no more rows than capacity", what));
        }
        Ok(())
    }

    /// One row of a key at a time; returns the one before it.
    fn check_key(&mut self, operator: usize, id: Id, path: &Path, now: u64) -> Checked<Option<Id>> {
        let (Mode::KeyOrdered, Some(key)) = (self.scenario.operators[operator].mode, path.key)
        else {
            return Ok(None);
        };
        let holder = self.key_holders[operator].get(&key).copied();
        if let Some(holder) = holder.filter(|it| *it != id)
            && !self.may_be_done(operator, holder, now)
        {
            let what = format!("row {} of key {key} at operator {operator}", path.row);
            return Err(Broken::new("one row of a key at a time", what));
        }
        self.key_holders[operator].insert(key, id);
        Ok(holder)
    }

    /// Whether a row is done at all functions of an operator, as far as is known.
    fn may_be_done(&self, operator: usize, id: Id, now: u64) -> bool {
        self.sites_of(operator).all(|site| {
            let (site, at) = (&self.sites[site], self.arrived[operator].get(&id).map(|it| it.at));
            match site.rows.get(&id) {
                Some(row) => row.is_done() || site.may_time_out(row, now),
                None => site.may_time_out_uncalled(at.unwrap_or_default(), now),
            }
        })
    }

    /// A function is asked what a row puts out whose time has passed.
    pub fn asked(&mut self, site: usize, path: &Path, now: u64) -> Checked<Id> {
        let operator = self.sites[site].operator;
        let id = self.arrive(operator, path, now)?;
        let at = self.arrived[operator][&id].at;
        let is_ending = self.is_ending;
        let here = &mut self.sites[site];
        let is_known = here.rows.contains_key(&id);
        if let Some(row) = here.rows.get_mut(&id).filter(|it| it.is_done()) {
            row.unsee();
        }
        let is_asked = here.plan.asks_on_timeout
            && match here.rows.get(&id) {
                Some(row) => row.state == State::Asked || here.may_time_out(row, now),
                None => here.may_time_out_uncalled(at, now),
            };
        if !is_asked && !is_ending {
            let what = format!("row {} is asked for at {now}", path.row);
            return Err(Broken::new("a row times out when its time has passed", what));
        }
        if !is_known {
            here.rows.insert(id, Row::new(path, at));
        }
        if let Some(row) = here.rows.get_mut(&id) {
            row.set(State::Asked, now, false);
            self.timed_out.insert(path.row);
        }
        Ok(id)
    }

    /// A call is cancelled.
    pub fn cancelled(&mut self, site: usize, attempt: AttemptId, now: u64) -> Checked {
        let is_ending = self.is_ending;
        let here = &mut self.sites[site];
        // The task may not know yet that a call has begun which a cache makes; one whose answer is in the
        // mail may have got it from the cache.
        let is_called = here.plan.cache.is_none();
        let has_begun = here.flying.get(&attempt).map_or(is_called, |it| it.known.is_some());
        here.cancels += u64::from(has_begun);
        let Some(call) = here.flying.remove(&attempt) else {
            here.made.unsee(attempt);
            // Its answer is in the mail, behind that of the call beside it; or all ends.
            let is_pair = attempt.is_hedge() || here.plan.hedge.is_some();
            if is_ending || is_pair || self.may_have_failed(now) {
                self.is_ending |= !is_pair;
                return Ok(());
            }
            let what = format!("{attempt:?} of {site}");
            return Err(Broken::new("a call that was answered is not cancelled", what));
        };
        let (plan, id) = (&here.plan, call.id);
        if call.is_doomed {
            return Ok(());
        }
        let row = &here.rows[&id];
        let of_attempt =
            plan.attempt_timeout.zip(call.begun).is_some_and(|(it, begun)| begun + it <= now);
        let of_row = here.has_passed(row, now);
        if !of_attempt && !of_row {
            let what = format!("{attempt:?} of row {} at {now}, started {}", row.row, call.started);
            if !is_ending && !self.may_have_failed(now) {
                return Err(Broken::new("a call is cancelled for a reason", what));
            }
            self.is_ending = true;
            self.sites[site].rows.entry(id).and_modify(|it| it.live -= 1);
            return Ok(());
        }
        let may_retry = plan.may_retry(row.tries()) && plan.is_repeatable;
        let due = plan.back_off(row.tries()).map(|it| now + it);
        // It is held, and waits for a probe, or has ended.
        let may_be_held = of_attempt && plan.holds() && plan.is_repeatable;
        let (asks, next) = (plan.asks_on_timeout, RULES.next(Ended::AttemptTimedOut, may_retry));
        let row = here.rows.get_mut(&id).expect("it was there");
        row.live -= 1;
        if row.live > 0 {
            // The call beside it goes on.
            return Ok(());
        }
        if call.begun.is_none() && !attempt.is_hedge() {
            // Nobody was called for it.
            row.attempts -= 1;
        }
        let retried = (of_attempt && next == Next::BackOff).then_some(due).flatten();
        let failed = State::Done(Outcome::Failed(Why::Time));
        let state = match (of_row, retried) {
            _ if may_be_held => State::Cut { due: Some(now) },
            (true, due @ Some(_)) => State::Cut { due },
            (false, Some(due)) => State::BackOff { due },
            (true, None) if asks && of_attempt => State::Cut { due: None },
            (true, None) if asks => State::Asked,
            _ => failed,
        };
        let is_over = state == failed && here.plan.on_error == Failing::Fail;
        here.rows.get_mut(&id).expect("it was there").set(state, now, false);
        self.is_ending |= is_over;
        Ok(())
    }

    /// Whether a row may have failed the task that was not called at that time.
    fn may_have_failed(&self, now: u64) -> bool {
        self.sites.iter().filter(|it| it.plan.on_error == Failing::Fail).any(|site| {
            let has_uncalled = site.rows.len() < self.most_arrived(site.operator);
            let first = self.fed.first().copied().unwrap_or_default();
            site.rows.values().any(|it| site.may_time_out(it, now))
                || has_uncalled && site.may_time_out_uncalled(first, now)
        })
    }

    /// How many rows may have come to an operator, seen there or not.
    fn most_arrived(&self, operator: usize) -> usize {
        let Some(before) = operator.checked_sub(1) else { return self.fed.len() };
        let made = |row: &Row| match row.state {
            State::Done(Outcome::Results { count, .. }) => count.max(1) as usize,
            _ => 1,
        };
        let of_site = |it: usize| self.sites[it].rows.values().map(made).sum();
        let made = self.sites_of(before).map(of_site).max().unwrap_or_default();
        self.arrived[operator].len().max(made)
    }

    /// Nobody was called for an attempt, as the answer to it says: it is charged nothing.
    pub fn not_called(&mut self, site: usize, attempt: AttemptId) {
        let here = &mut self.sites[site];
        let Some(row) = here.flying.get(&attempt).and_then(|it| here.rows.get(&it.id)) else {
            return;
        };
        here.limits.give_back(row.cost, row.channel);
    }

    /// A call is answered; what it says is in the mail.
    pub fn replied(&mut self, site: usize, attempt: AttemptId, id: Id, said: Said, now: u64) {
        if attempt.attempt == AttemptId::TIMEOUT {
            return self.told_what_times_out(site, id, said, now);
        }
        let (keeps_before, here) = (self.keeps_before, &mut self.sites[site]);
        here.is_answered = true;
        let Some(call) = here.flying.remove(&attempt) else {
            // One of two answers to a call: if the task sees them together, it hears the pause of each.
            if let (Said::Failure { pause: Some(_), .. }, Some(row)) = (said, here.rows.get(&id)) {
                let channel = row.channel.filter(|_| here.plan.channels.is_some());
                here.told.push(AskedPause { channel, until: 0, started: now });
            }
            return;
        };
        if call.is_doomed {
            return;
        }
        let is_vague = here.has_vague_tries();
        let Some(row) = here.rows.get_mut(&id) else { return };
        let channel = row.channel.filter(|_| here.plan.channels.is_some());
        here.in_the_mail.extend(is_reply(said).then_some((row.channel, now)));
        row.live -= 1;
        let is_divided = said.is_divided();
        if let Some(budget) = here.budget.as_mut().filter(|_| !is_divided) {
            budget.ended(id, row.tries(), channel, said);
        }
        let asks = asks_for_retry(said, here.is_branch, &here.plan);
        // Another call that flies is waited for: that hurts nobody, whatever happened to this one.
        let is_left = asks || matches!(said, Said::Failure { asks: Asks::IfRepeatable, .. });
        row.answered_at = Some((here.parks, is_left, is_divided));
        here.told.extend(AskedPause::of(said, channel, call.started, now));
        if is_left && row.live > 0 {
            return;
        }
        let answers = here.answers.entry(channel).or_default();
        let is_outage = row.is_in_outage(said, answers, asks && here.plan.holds(), now);
        if asks && is_vague && is_drop(said) {
            return row.set(State::Cut { due: Some(now + said.after()) }, now, keeps_before);
        }
        let ended = match said {
            _ if is_divided => Ended::Divided,
            _ if asks => Ended::AsksForRetry,
            Said::Results { .. } => Ended::Answered,
            Said::Failure { .. } => Ended::Failed,
        };
        let can_retry = is_outage || here.plan.may_retry(row.tries());
        let next = RULES.next(ended, asks && can_retry);
        if let Some(after) = row.waits_for(next, said, &here.plan) {
            row.set(State::resting(is_vague, now, after, said), now, keeps_before);
            row.uncounted += u32::from(is_divided || is_outage);
            return here.leave_out(id, attempt, said);
        }
        let outcome = outcome_of(said, here.is_branch);
        row.set(State::Done(outcome), now, keeps_before);
        if let (Some(held), Outcome::Results { serial, count }) = (&mut here.held, outcome) {
            held.coming.push((serial, count));
        }
        for beside in here.flying.values_mut().filter(|it| it.id == id) {
            beside.is_doomed = true;
            row.live -= u32::from(row.live > 0);
        }
        self.is_ending |= here.plan.on_error == Failing::Fail && is_failure(outcome);
    }

    /// A function says what a row puts out that it was asked about.
    fn told_what_times_out(&mut self, site: usize, id: Id, said: Said, now: u64) {
        let keeps_before = self.keeps_before;
        let here = &mut self.sites[site];
        let row = here.rows.get_mut(&id).filter(|it| it.state == State::Asked);
        let outcome = outcome_of(said, here.is_branch);
        if let Some(row) = row {
            row.set(State::Done(outcome), now, keeps_before);
            self.is_ending |= here.plan.on_error == Failing::Fail && is_failure(outcome);
        }
    }

    /// A function is closed.
    pub fn closed(&mut self, site: usize) -> Checked {
        if std::mem::replace(&mut self.sites[site].is_closed, true) {
            return Err(Broken::new("a function is closed once", format!("function {site}")));
        }
        Ok(())
    }

    // --- rows ---

    /// A row is seen at an operator: it came there once, out of what the one before it made.
    fn arrive(&mut self, operator: usize, path: &Path, now: u64) -> Checked<Id> {
        if operator == 0 {
            let id = head_id(path.row);
            let at = usize::try_from(path.row).ok().and_then(|row| self.fed.get(row));
            let Some(at) = at.copied() else {
                return Err(Broken::new("no row but those of the input", format!("{path:?}")));
            };
            self.arrived[0].entry(id).or_insert(Arrival { row: path.row, at });
            return Ok(id);
        }
        let parent = self.arrive(operator - 1, path, now)?;
        let values = &path.values[operator - 1];
        let id = child_id(parent, values);
        if !self.arrived[operator].contains_key(&id) {
            let at = self.leave(operator - 1, parent, values, path, now)?;
            self.arrived[operator].insert(id, Arrival { row: path.row, at });
        }
        Ok(id)
    }

    /// A row is in the output.
    pub fn put_out(&mut self, path: &Path, now: u64) -> Checked {
        let last = self.scenario.operators.len() - 1;
        let parent = self.arrive(last, path, now)?;
        let values = &path.values[last];
        let id = child_id(parent, values);
        if self.arrived[last + 1].contains_key(&id) {
            return Err(Broken::new("each row once", format!("row {} left twice", path.row)));
        }
        let at = self.leave(last, parent, values, path, now)?;
        self.arrived[last + 1].insert(id, Arrival { row: path.row, at });
        Ok(())
    }

    /// A row has left an operator with these values; returns when at the earliest.
    fn leave(
        &mut self,
        operator: usize,
        id: Id,
        values: &[Option<i64>],
        path: &Path,
        now: u64,
    ) -> Checked<u64> {
        let (came, has_parts) = (self.arrived[operator][&id].at, self.scenario.parts.is_some());
        let mut at = came;
        let sites: Vec<usize> = self.sites_of(operator).collect();
        for (site, value) in sites.into_iter().zip(values) {
            let here = &mut self.sites[site];
            if let (Some(held), Some(value)) = (&mut here.held, value) {
                held.leaves(*value);
            }
            let row = here.rows.entry(id).or_insert_with(|| Row::new(path, came));
            let seen = row.clone();
            let is_right = match (value, row.state) {
                (Some(value), State::Done(Outcome::Results { serial, count })) => {
                    value / 8 == serial && value % 8 < i64::from(count)
                }
                (None, State::Done(Outcome::Failed(_))) => here.plan.on_error != Failing::Drop,
                (Some(_), _) => false,
                (None, known) => {
                    // What was told last may not have been looked at before the task was lost; then
                    // the time of its row runs again. That of one which was never called may have
                    // passed in a task that is lost.
                    let is_known = matches!(known, State::Done(_)) && seen.is_vague;
                    let was_late = seen.first_call.is_none() && seen.attempts == 0 || is_known;
                    let ages = here.plan.timeout.or(here.plan.max_wait).is_some();
                    // Or it had tries left, since an outage takes none, and no time for the next one.
                    let had_tries = here.has_vague_tries() && seen.has_asked() && ages;
                    let may = here.may_time_out(&seen, now) || has_parts && was_late && ages;
                    let may = may || had_tries;
                    let may = may && here.plan.on_error != Failing::Drop;
                    let row = here.rows.get_mut(&id).expect("it was there");
                    if may {
                        row.attempts -= u32::from(is_known).min(row.attempts);
                        // Nobody knows when.
                        let at = row.at;
                        row.set(State::Done(Outcome::Failed(Why::Time)), at, false);
                    }
                    may
                }
            };
            if !is_right {
                let what = format!(
                    "row {} leaves function {site} with {value:?} at {now}: {seen:?}",
                    path.row
                );
                return Err(Broken::new("a row leaves with what its calls came to", what));
            }
            at = at.max(here.rows[&id].done_at.unwrap_or(at));
        }
        Ok(at)
    }

    // --- time ---

    /// The task waits until something happens: it has looked at the mail and at the time.
    pub fn parked(&mut self, now: u64) -> Checked {
        let is_ending = self.is_ending;
        for (site, here) in self.sites.iter_mut().enumerate() {
            here.learn_pauses();
            here.learn_replies();
            here.learn_costs(now);
            here.limits.have_settled();
            here.held.iter_mut().for_each(Held::take);
            here.parks += 1;
            for row in here.rows.values_mut() {
                if !row.is_vague {
                    row.before = None;
                }
            }
            if is_ending || here.is_closed {
                continue;
            }
            here.check_calls(now)?;
            for call in here.flying.values_mut().filter(|it| it.begun.is_some()) {
                call.known.get_or_insert(now);
            }
            for (attempt, call) in &here.flying {
                let row = &here.rows[&call.id];
                let outlived = |rule, since: u64, bound: u64| {
                    let what = format!(
                        "{attempt:?} of row {} at function {site}: {since} and {bound} passed at {now}",
                        row.row
                    );
                    Err(Broken::new(rule, what))
                };
                if call.is_doomed {
                    return outlived("the slower of two calls is cancelled", call.started, 0);
                }
                if let (Some(bound), Some(known)) = (here.plan.attempt_timeout, call.known)
                    && known + bound <= now
                {
                    return outlived("no call outlives attempt_timeout", known, bound);
                }
                if let (Some(bound), Some(first)) = (here.plan.timeout, row.first_call)
                    && first + bound + row.stood <= now
                {
                    return outlived("no call outlives the timeout of its row", first, bound);
                }
            }
        }
        Ok(())
    }

    /// Calls that were not answered.
    pub fn in_flight(&self) -> usize {
        self.sites.iter().map(|it| it.flying.len()).sum()
    }

    // --- carry-over ---

    /// Another task goes on with what this one has saved.
    pub fn restored(&mut self, now: u64) {
        for here in &mut self.sites {
            here.flying.clear();
            here.limits = Limits::new(&here.plan.own_limits());
            here.told.clear();
            here.begun_at = now;
            here.replied_at.clear();
            here.in_the_mail.clear();
            here.gone_until.clear();
            here.owed.clear();
            here.heard.clear();
            here.paused.clear();
            here.last_first = None;
            here.last_of_key.clear();
            here.is_closed = false;
            (here.calls, here.hedges, here.made, here.cancels) = (0, 0, Made::default(), 0);
            let late = here.rows.iter().filter(|it| here.may_time_out(it.1, now));
            for id in late.map(|it| *it.0).collect::<Vec<_>>() {
                here.rows.entry(id).and_modify(|it| it.may_be_late = true);
            }
            for row in here.rows.values_mut() {
                row.live = 0;
                row.is_vague = row.before.is_some();
                row.interrupt(now);
                let may_be_called = !row.is_done() || row.is_vague;
                if may_be_called && RULES.restored_has_all_time {
                    // In a back-off it begins at once.
                    let was_called = row.attempts > 0;
                    (row.at, row.first_call, row.stood) = (now, was_called.then_some(now), 0);
                }
            }
        }
        self.key_holders.iter_mut().for_each(BTreeMap::clear);
    }
}
