// SPDX-License-Identifier: Apache-2.0
//! A function of the chain in the model: its rows and its calls.

use std::collections::BTreeMap;
use std::time::Duration;

use sparkawait_core::operator::AttemptId;
use sparkawait_core::retry::{AsyncRetryStrategy, Jitter};

use super::budget::Budget;
use super::held::Held;
use super::made::Made;
use crate::limits::{Left, Limits, Settled};
use crate::rules::{Next, RULES};
use crate::scenario::{CallPlan, Failing, HedgePlan, Mode, OperatorPlan};
use crate::trace::{Asks, Broken, Checked, Id, Path, Said};

/// Why a row has no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its last call failed.
    Function,
    /// Its time passed, or that of its last attempt.
    Time,
    /// It brought several results beside others.
    Several,
}

/// What a row came to at a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many results.
    Results {
        /// Of the reply.
        serial: i64,
        /// How many.
        count: u32,
    },
    /// None, for a reason.
    Failed(Why),
}

/// What a row does at a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is called.
    Running,
    /// It waits for its next attempt, not before `due`.
    BackOff {
        /// Nanoseconds on the clock.
        due: u64,
    },
    /// Its call was cancelled: its time has passed, or it is tried again from then on.
    Cut {
        /// When, if it may be.
        due: Option<u64>,
    },
    /// The function is asked, or will be.
    Asked,
    /// It has an outcome.
    Done(Outcome),
}

/// A row at a function.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on one another")]
pub struct Row {
    /// Position in the input.
    pub row: i64,
    /// Its channel.
    pub channel: Option<i64>,
    /// What it costs.
    pub cost: u64,
    /// When it came, or was restored.
    pub at: u64,
    /// When its time began.
    pub first_call: Option<u64>,
    /// For how long that stood at most, because a further attempt waited in line.
    pub(super) stood: u64,
    /// Attempts so far.
    pub attempts: u32,
    /// Those of them that took no try: followed by a call of a part, or in an outage but its first.
    pub(super) uncounted: u32,
    /// The outage that it is in: what its destination had answered when it dropped its last attempt, and
    /// when it dropped the first one since then.
    pub(super) outage: Option<(u64, u64)>,
    /// Those that were made, again under the same number or not.
    pub made: u32,
    /// Whether one of them had a second call beside it.
    pub hedged: bool,
    /// Whether one began when the first call had answered: who tells of the row may not have heard of it.
    pub hedged_late: bool,
    /// Now.
    pub state: State,
    /// State, attempts and those that took no try before the last replies, as long as nobody knows whether those
    /// were looked at.
    pub(super) before: Option<(State, u32, u32)>,
    /// Whether nobody will know: the task that may have done so is gone.
    pub(super) is_vague: bool,
    /// Calls that may still count.
    pub(super) live: u32,
    /// The wait of the task before its last call was answered, whether that asked for another one, and
    /// for one of a part.
    pub(super) answered_at: Option<(u64, bool, bool)>,
    /// Whether its time may have passed in a task that is gone.
    pub(super) may_be_late: bool,
    /// When its state changed.
    pub(super) changed_at: u64,
    /// When it was done.
    pub done_at: Option<u64>,
}

/// A call that was not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flying {
    pub(super) id: Id,
    /// When it was handed over.
    pub(super) started: u64,
    /// When it was made; `None`: its row waits for the call of another one, as far as is known.
    pub(super) begun: Option<u64>,
    /// When the task knew of that at the latest.
    pub(super) known: Option<u64>,
    /// Whether the operator will cancel it: the other call of its row has answered.
    pub(super) is_doomed: bool,
}

/// What a destination asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedPause {
    pub(super) channel: Option<i64>,
    pub(super) until: u64,
    pub(super) started: u64,
}

impl AskedPause {
    /// What a reply asks for.
    pub(super) fn of(said: Said, channel: Option<i64>, started: u64, now: u64) -> Option<Self> {
        let Said::Failure { pause: Some(nanos), .. } = said else { return None };
        Some(Self { channel, until: now + nanos, started })
    }
}

/// What is left of a limit: the task knows of it once it has waited, if it took the reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) id: Id,
    pub(super) channel: Option<i64>,
    pub(super) is_of_channel: bool,
    pub(super) left: Left,
    /// Whether nobody knows if the task hears it.
    pub(super) is_vague: bool,
}

/// More than a call was charged: the task knows of it once it has waited, if it took the reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    pub(super) id: Id,
    /// When the call started.
    pub(super) started: u64,
    pub(super) settled: Settled,
}

/// A function of the chain.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on one another")]
pub struct Site {
    /// Which operator calls it.
    pub operator: usize,
    /// How.
    pub plan: CallPlan,
    /// In which order.
    pub(super) mode: Mode,
    pub(super) is_branch: bool,
    pub(super) capacity: usize,
    /// When its task began.
    pub(super) begun_at: u64,
    /// When each destination replied last, as far as the task knows of it; and what is in the mail.
    pub(super) replied_at: BTreeMap<Option<i64>, u64>,
    pub(super) in_the_mail: Vec<(Option<i64>, u64)>,
    /// Whether anything was said of any call.
    pub(super) is_answered: bool,
    /// Calls that each destination has answered.
    pub(super) answers: BTreeMap<Option<i64>, u64>,
    /// Whether it is known which drops take a try: nothing ends but by an answer.
    pub(super) knows_outages: bool,
    /// Up to when each was silent for so long that rows may have ended because of it.
    pub(super) gone_until: BTreeMap<Option<i64>, u64>,
    /// The rows that it was called for, and those that had no time for a call.
    pub rows: BTreeMap<Id, Row>,
    pub(super) flying: BTreeMap<AttemptId, Flying>,
    pub(super) limits: Limits,
    /// Costs that are in the mail.
    pub(super) owed: Vec<Owed>,
    /// What is left of limits, in the mail.
    pub(super) heard: Vec<Heard>,
    /// Pauses that are in the mail.
    pub(super) told: Vec<AskedPause>,
    /// Until when, and the start of the call that said so.
    pub(super) paused: BTreeMap<Option<i64>, (u64, u64)>,
    /// The last row that was called for the first time: of all, and of each key.
    pub(super) last_first: Option<i64>,
    pub(super) last_of_key: BTreeMap<i64, i64>,
    /// Whether a budget may have too little left for a row.
    pub may_be_spent: bool,
    /// Whether it was closed.
    pub is_closed: bool,
    /// How often the task has waited.
    pub(super) parks: u64,
    /// Calls that were handed over so far.
    pub calls: u64,
    /// Those of them that stood beside others.
    pub hedges: u64,
    /// Those that were made.
    pub made: Made,
    /// Calls that were cancelled.
    pub cancels: u64,
    /// The results that it holds, where that is known.
    pub(super) held: Option<Held>,
    /// What its retries have cost, where that is known.
    pub(super) budget: Option<Budget>,
    /// When the task knew last that a service has nothing left of the first limit, and until when.
    pub nothing_left: Option<(u64, u64)>,
    /// The start of the call whose reply has told last what is left.
    pub(super) last_told: Option<u64>,
}

pub(super) fn is_failure(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Failed(_))
}

pub(super) fn outcome_of(said: Said, is_branch: bool) -> Outcome {
    match said {
        Said::Results { count, .. }
            if count > 1 && is_branch && RULES.several_beside_others_fail =>
        {
            Outcome::Failed(Why::Several)
        }
        Said::Results { serial, count, .. } => Outcome::Results { serial, count },
        Said::Failure { .. } => Outcome::Failed(Why::Function),
    }
}

/// Whether a destination is there that says so.
pub(super) const fn is_reply(said: Said) -> bool {
    match said {
        Said::Results { .. } | Said::Failure { asks: Asks::No, .. } => true,
        Said::Failure { after, pause, .. } => after.is_some() || pause.is_some(),
    }
}

/// Whether a call was lost on its destination.
pub(super) const fn is_drop(said: Said) -> bool {
    matches!(said, Said::Failure { asks: Asks::Yes | Asks::IfRepeatable, .. })
}

impl State {
    /// Until it is called again, `after` nanoseconds from now; `is_vague`: nobody knows when.
    pub(super) fn resting(is_vague: bool, now: u64, after: u64, said: Said) -> Self {
        if is_vague {
            Self::Cut { due: Some(now + said.after()) }
        } else {
            Self::BackOff { due: now + after }
        }
    }
}

impl Said {
    /// Whether its rows are called for again, in parts.
    pub(super) const fn is_divided(self) -> bool {
        matches!(self, Self::Failure { asks: Asks::InPart(_) | Asks::LeftOut(_), .. })
    }

    /// Whether nobody was called for its row.
    pub const fn is_left_out(self) -> bool {
        matches!(self, Self::Failure { asks: Asks::LeftOut(_), .. })
    }

    /// Nanoseconds after which it asks for another call.
    pub(super) fn after(self) -> u64 {
        if let Self::Failure { after, .. } = self { after.unwrap_or_default() } else { 0 }
    }
}

/// Several results beside others are a failure, and that is final.
pub(super) fn asks_for_retry(said: Said, is_branch: bool, plan: &CallPlan) -> bool {
    match said {
        Said::Results { count, .. }
            if count > 1 && is_branch && RULES.several_beside_others_fail =>
        {
            false
        }
        Said::Results { retry, .. } => retry,
        Said::Failure { asks: Asks::IfRepeatable, .. } => plan.is_repeatable,
        Said::Failure { asks, .. } => {
            matches!(asks, Asks::Yes | Asks::InPart(_) | Asks::LeftOut(_))
        }
    }
}

impl CallPlan {
    pub(super) fn may_retry(&self, attempts: u32) -> bool {
        self.retry.is_some_and(|it| attempts <= it.max_retries)
    }

    /// Whether rows are tried again in an outage, whatever tries they have had.
    pub fn holds(&self) -> bool {
        self.retry.is_some()
            && self.max_wait.or(self.timeout).is_some()
            && self.pause.is_some_and(|it| !it.refuses)
    }

    /// Nanoseconds after an attempt, at least.
    pub(super) fn back_off(&self, attempts: u32) -> Option<u64> {
        let plan = self.retry?;
        if plan.full_jitter {
            return Some(0);
        }
        let time = Duration::from_nanos;
        let strategy = AsyncRetryStrategy::exponential_backoff(
            plan.max_retries,
            time(plan.initial),
            time(plan.maximum),
            plan.multiplier,
            Jitter::None,
        );
        u64::try_from(strategy.backoff(attempts, 0).as_nanos()).ok()
    }
}

impl Row {
    pub(super) fn new(path: &Path, at: u64) -> Self {
        Self {
            row: path.row,
            channel: path.channel,
            cost: path.cost,
            at,
            first_call: None,
            stood: 0,
            attempts: 0,
            uncounted: 0,
            outage: None,
            made: 0,
            hedged: false,
            hedged_late: false,
            state: State::BackOff { due: at },
            before: None,
            is_vague: false,
            live: 0,
            answered_at: None,
            may_be_late: false,
            changed_at: at,
            done_at: None,
        }
    }

    /// Whether its call was dropped, as the one before it was, and its destination has answered nothing
    /// between them. Takes note of that; `holds`: it may be tried again.
    pub(super) fn is_in_outage(
        &mut self,
        said: Said,
        answers: &mut u64,
        holds: bool,
        now: u64,
    ) -> bool {
        *answers += u64::from(!is_drop(said) && !said.is_divided());
        if !holds || !is_drop(said) {
            self.outage = None;
            return false;
        }
        let before = self.outage.filter(|it| it.0 == *answers);
        self.outage = Some(before.unwrap_or((*answers, now)));
        before.is_some()
    }

    /// Returns its outcome, if it has one.
    pub fn state(&self) -> Option<Outcome> {
        if let State::Done(outcome) = self.state { Some(outcome) } else { None }
    }

    /// Calls that were the first or retries.
    pub(super) fn tries(&self) -> u32 {
        self.attempts.saturating_sub(self.uncounted)
    }

    /// Nanoseconds until it may be called again, if it is.
    pub(super) fn waits_for(&self, next: Next, said: Said, plan: &CallPlan) -> Option<u64> {
        match (next, said) {
            (Next::InPart, _) => Some(0),
            (Next::BackOff, Said::Failure { after: Some(after), .. }) => Some(after),
            // Which of them wait for a probe instead is not known here.
            (Next::BackOff, _) if plan.holds() && is_drop(said) => Some(0),
            (Next::BackOff, _) => Some(plan.back_off(self.tries()).unwrap_or_default()),
            _ => None,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }

    /// The task that called for it is gone.
    pub(super) fn interrupt(&mut self, now: u64) {
        match self.state {
            State::Running => {
                self.attempts -= u32::from(RULES.restored_call_keeps_its_number);
                self.state = State::BackOff { due: now };
            }
            State::Asked | State::Cut { .. } if !RULES.restored_is_asked_again => {
                self.state = State::Cut { due: Some(now) };
            }
            State::Asked | State::Cut { .. } | State::BackOff { .. } | State::Done(_) => {}
        }
    }

    /// Whether its last answer asked for another call.
    pub(super) fn has_asked(&self) -> bool {
        self.answered_at.is_some_and(|(_, asks, _)| asks)
    }

    /// The task was saved before it saw the last reply.
    pub(super) fn unsee(&mut self) {
        if let Some(before) = self.before.take().filter(|_| self.is_vague) {
            (self.state, self.attempts, self.uncounted) = before;
            self.interrupt(0);
        }
    }

    pub(super) fn set(&mut self, state: State, now: u64, keeps_before: bool) {
        if keeps_before {
            self.before.get_or_insert((self.state, self.attempts, self.uncounted));
        } else {
            self.before = None;
        }
        self.is_vague = false;
        (self.state, self.changed_at) = (state, now);
        self.done_at = matches!(state, State::Done(_)).then_some(now);
    }
}

impl Site {
    /// Knows of no row.
    pub(super) fn new(operator: usize, plan: &OperatorPlan, calls: &CallPlan) -> Self {
        Self {
            operator,
            plan: calls.clone(),
            mode: plan.mode,
            is_branch: plan.is_fan_out,
            capacity: plan.capacity,
            begun_at: 0,
            replied_at: BTreeMap::new(),
            in_the_mail: Vec::new(),
            is_answered: false,
            answers: BTreeMap::new(),
            knows_outages: calls.is_answered(),
            gone_until: BTreeMap::new(),
            rows: BTreeMap::new(),
            flying: BTreeMap::new(),
            limits: Limits::new(&calls.own_limits()),
            owed: Vec::new(),
            heard: Vec::new(),
            told: Vec::new(),
            paused: BTreeMap::new(),
            last_first: None,
            last_of_key: BTreeMap::new(),
            may_be_spent: false,
            is_closed: false,
            parks: 0,
            calls: 0,
            hedges: 0,
            made: Made::default(),
            cancels: 0,
            held: None,
            budget: None,
            nothing_left: None,
            last_told: None,
        }
    }

    /// A call is made that was handed over.
    pub(super) fn begins(&mut self, attempt: AttemptId, now: u64) {
        self.made.count(attempt);
        let Some(call) = self.flying.get_mut(&attempt) else { return };
        call.begun = Some(now);
        if let Some(row) = self.rows.get_mut(&call.id) {
            row.made += u32::from(!attempt.is_hedge());
            row.hedged |= attempt.is_hedge() && !call.is_doomed;
            row.hedged_late |= attempt.is_hedge() && call.is_doomed;
        }
    }

    /// Rows without keys and channels are called in the order in which they came.
    pub(super) fn first_call_in_order(&mut self, of_head: bool, path: &Path) -> Checked {
        if !of_head || self.plan.channels.is_some() || self.is_branch {
            return Ok(());
        }
        let last = match (self.mode, path.key) {
            (Mode::KeyOrdered, None) => return Ok(()),
            (Mode::KeyOrdered, Some(key)) => self.last_of_key.insert(key, path.row),
            _ => self.last_first.replace(path.row),
        };
        if last.is_some_and(|it| it >= path.row) {
            let what = format!("row {} is called behind {last:?}", path.row);
            return Err(Broken::new("rows are called in order", what));
        }
        Ok(())
    }

    pub(super) fn check_pause(&self, path: &Path, now: u64) -> Checked {
        let channel = path.channel.filter(|_| self.plan.channels.is_some());
        match self.paused.get(&channel) {
            Some((until, _)) if now < *until => {
                let what = format!("row {} is called at {now}, paused until {until}", path.row);
                Err(Broken::new("a pause that a destination asks for", what))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn learn_pauses(&mut self) {
        let is_cached = self.plan.cache.is_some();
        for AskedPause { channel, until, started } in std::mem::take(&mut self.told) {
            let known = self.paused.entry(channel).or_insert((0, 0));
            if started >= known.1 {
                *known = (known.0.max(until), started);
            }
            if is_cached {
                // There a call begins later than it was sought: when those before it have ended.
                known.1 = known.1.max(until);
            }
        }
    }

    /// Whether nobody knows which drops took a try of a row, and so whether it ends with its next one.
    pub fn has_vague_tries(&self) -> bool {
        self.plan.holds() && !self.knows_outages
    }

    /// A row is called again.
    pub(super) fn attempt(&mut self, id: Id, attempt: AttemptId, now: u64) -> Checked {
        let may_have_tries = self.has_vague_tries();
        let row = self.rows.get_mut(&id).expect("it was put there");
        if row.is_done() || attempt.attempt != row.attempts + 1 {
            row.unsee();
        }
        row.before = None;
        let due = match row.state {
            State::BackOff { due } | State::Cut { due: Some(due) } => due,
            State::Done(_) if may_have_tries && row.has_asked() => row.changed_at,
            State::Running | State::Cut { due: None } | State::Asked | State::Done(_) => {
                let what = format!("{attempt:?} at {now} of {row:?}");
                return Err(Broken::new(
                    "one attempt at a time, and none of a row that is done",
                    what,
                ));
            }
        };
        let what = || format!("{attempt:?} at {now} of {row:?}");
        if now < due {
            return Err(Broken::new("no attempt before its back-off is over", what()));
        }
        if attempt.attempt != row.attempts + 1 {
            return Err(Broken::new("attempts are numbered", what()));
        }
        let retries = self.plan.retry.map_or(0, |it| it.max_retries);
        let has_tries = attempt.attempt <= 1 + retries + row.uncounted;
        if !has_tries && !may_have_tries {
            return Err(Broken::new("no more retries than permitted", what()));
        }
        if let (Some(first), Some(timeout)) = (row.first_call, self.plan.timeout)
            && first + timeout + row.stood < due.saturating_sub(SLACK)
        {
            return Err(Broken::new("no attempt when the time of a row has passed", what()));
        }
        if RULES.time_stands_in_line && row.first_call.is_some() {
            row.stood += now - due;
        }
        row.attempts += 1;
        row.live = 1;
        row.first_call.get_or_insert(now);
        row.set(State::Running, now, false);
        if let Some(budget) = self.budget.as_mut().filter(|_| row.attempts > 1) {
            budget.retry(id, row.channel.filter(|_| self.plan.channels.is_some()), now)?;
        }
        self.check_slots(now)
    }

    /// A row is called a second time beside a call; returns whether it had failed by what is known.
    pub(super) fn hedge(&mut self, id: Id, attempt: AttemptId, now: u64) -> Checked<bool> {
        let row = self.rows.get_mut(&id).expect("it was put there");
        let what = format!("{attempt:?} at {now} of {row:?}");
        let Some(HedgePlan { after, max_extra }) = self.plan.hedge else {
            return Err(Broken::new("no second call without `hedge`", what));
        };
        let beside = self.flying.get(&attempt.first()).filter(|it| it.id == id && !it.is_doomed);
        let Some(beside) = beside.filter(|_| row.live == 1) else {
            // What the first one said may still be in the mail.
            let (asks, divided) = match row.answered_at {
                Some((parks, asks, divided)) if parks == self.parks => (asks, divided),
                _ => return Err(Broken::new("a second call beside the first", what)),
            };
            self.hedges += 1;
            if asks {
                // It is left to this one.
                (row.state, row.live, row.done_at) = (State::Running, 1, None);
                row.uncounted -= u32::from(divided).min(row.uncounted);
            }
            return Ok(asks);
        };
        if after.is_some_and(|it| now < beside.started + it) {
            return Err(Broken::new("a second call beside a slow one", what));
        }
        row.live = 2;
        self.hedges += 1;
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let (hedges, first) = (self.hedges as f64, (self.calls + 1 - self.hedges) as f64);
        if hedges > first * max_extra + 1e-6 {
            return Err(Broken::new("no more second calls than were earned", what));
        }
        let pairs = self.rows.values().filter(|it| it.live == 2).count();
        if RULES.hedges_leave_a_permit && 2 * pairs >= self.plan.max_concurrency {
            return Err(Broken::new("rows with two calls leave a permit", what));
        }
        Ok(false)
    }

    /// Calls at a time: in all, and of each channel.
    pub(super) fn check_calls(&self, now: u64) -> Checked {
        let counts = |it: &&(AttemptId, Flying)| RULES.hedge_takes_a_permit || !it.0.is_hedge();
        let flying: Vec<_> = self.flying.iter().map(|it| (*it.0, *it.1)).collect();
        let calls = flying.iter().filter(counts).count();
        let most = self.plan.max_concurrency;
        if calls > most {
            let what = format!("{calls} of {most} at {now}");
            return Err(Broken::new("no more calls than max_concurrency", what));
        }
        let adaptive = self.plan.adaptive_limit.map_or(u32::MAX, |it| it.1.max(it.0));
        let of_channel = self.plan.channels.map_or(u32::MAX, |it| it.max_per_channel.max(1));
        let most = adaptive.min(of_channel) as usize;
        if most >= self.plan.max_concurrency {
            return Ok(());
        }
        let mut channels: BTreeMap<Option<i64>, usize> = BTreeMap::new();
        for (_, call) in flying {
            let channel = self.rows[&call.id].channel.filter(|_| self.plan.channels.is_some());
            let calls = channels.entry(channel).or_default();
            *calls += 1;
            if *calls > most {
                let what = format!("{calls} of {most} of channel {channel:?} at {now}");
                return Err(Broken::new("no more calls of a channel than max_per_channel", what));
            }
        }
        Ok(())
    }

    /// Rows that were called and are not done hold slots.
    pub(super) fn check_slots(&self, now: u64) -> Checked {
        if self.plan.channels.is_some() || self.is_branch {
            return Ok(());
        }
        let is_held = |it: &&Row| {
            it.attempts > 0
                && !it.is_done()
                && (it.live > 0 || !self.may_time_out(it, now))
                && (RULES.back_off_holds_a_slot || it.live > 0)
        };
        let open = self.rows.values().filter(is_held).count();
        if open > self.capacity {
            let what = format!("{open} rows of {} at {now}", self.capacity);
            return Err(Broken::new("no more rows than capacity", what));
        }
        Ok(())
    }

    /// Whether the time of a row may have passed.
    pub(super) fn has_passed(&self, row: &Row, now: u64) -> bool {
        let since =
            if RULES.time_begins_with_the_first_call { row.first_call } else { Some(row.at) };
        since.zip(self.plan.timeout).is_some_and(|(since, timeout)| since + timeout <= now)
    }

    /// Whether a row may have waited too long that waits since `since`, for one of these destinations;
    /// none of them: for any.
    fn may_be_impatient(&self, since: u64, destinations: &[Option<i64>], now: u64) -> bool {
        let most = self.plan.max_wait.or(self.plan.timeout);
        // One that others of its key wait for has less of it.
        let most = most.map(|it| if self.plan.holds() { it / 4 } else { it });
        let Some(most) = most.filter(|it| RULES.patience_ends && since + it <= now) else {
            return false;
        };
        let asks = self.plan.script.pauses > 0 || self.plan.hidden.is_some();
        let is_bounded = self.plan.max_wait.is_some() || !RULES.asked_pause_counts_if_bounded;
        // When it began is not known here, nor whom a cache has answered for another call.
        let is_vague = self.plan.pause.is_some() || asks && is_bounded || self.plan.cache.is_some();
        is_vague
            || destinations.is_empty()
            || destinations.iter().any(|it| {
                let was = self.gone_until.get(it).copied().unwrap_or_default();
                since + most <= if self.is_gone(*it, now) { now } else { was }
            })
    }

    /// Whether a destination has been silent for so long that rows may end because of it.
    fn is_gone(&self, channel: Option<i64>, now: u64) -> bool {
        let replied_at = self.replied_at.get(&channel).copied().unwrap_or(self.begun_at);
        let most = self.plan.max_wait.or(self.plan.timeout);
        let least = self.plan.timeout.zip(most).map(|(timeout, most)| timeout + most);
        least.is_some_and(|it| replied_at + it <= now)
    }

    /// Takes note of the replies that the task has looked at.
    pub(super) fn learn_replies(&mut self) {
        for (channel, at) in std::mem::take(&mut self.in_the_mail) {
            let channel = channel.filter(|_| self.plan.channels.is_some());
            if self.is_gone(channel, at) {
                self.gone_until.insert(channel, at);
            }
            self.replied_at.insert(channel, at);
        }
    }

    /// The destination of a row.
    pub(super) fn destination(&self, row: &Row) -> Option<i64> {
        row.channel.filter(|_| self.plan.channels.is_some())
    }

    /// Whether a row that is not called at present may have run out of time or patience, or have been
    /// refused.
    pub fn may_time_out(&self, row: &Row, now: u64) -> bool {
        let is_too_late = |due: u64| {
            let rule = RULES.late_back_off_ends_the_row && row.attempts > 0;
            let has_jitter = self.plan.retry.is_some_and(|it| it.full_jitter);
            let longest = if has_jitter { self.plan.retry.map_or(0, |it| it.maximum) } else { 0 };
            // What was said is looked at later.
            let lag = now.saturating_sub(row.changed_at);
            let begun = row.first_call.zip(self.plan.timeout);
            rule && begun.is_some_and(|(since, it)| since + it <= due + longest + lag)
        };
        match row.state {
            State::Running | State::Done(_) | State::Asked => false,
            State::Cut { .. } => true,
            State::BackOff { due } => {
                let may_be = row.may_be_late || self.is_refused() || self.may_be_spent;
                let has_passed = self.has_passed(row, now) || is_too_late(due);
                // One that is held has waited while it was a probe, too.
                let since = row.outage.map_or_else(|| due.max(row.at), |it| it.1);
                may_be || has_passed || self.may_be_impatient(since, &[self.destination(row)], now)
            }
        }
    }

    /// Whether a row that came at `at` may have ended without a call.
    pub fn may_time_out_uncalled(&self, at: u64, now: u64) -> bool {
        self.is_refused() || self.may_be_spent || self.may_be_impatient(at, &[], now)
    }

    /// Whether a row has failed it for good, and it fails the task.
    pub(super) fn has_failed(&self) -> bool {
        let failed = |row: &Row| matches!(row.state, State::Done(Outcome::Failed(_)));
        self.plan.on_error == Failing::Fail && self.rows.values().any(failed)
    }

    pub(super) fn is_refused(&self) -> bool {
        self.plan.pause.is_some_and(|it| it.refuses)
    }
}

/// How late a task may look at the time: its thread does other things meanwhile.
const SLACK: u64 = 2_000_000_000;
