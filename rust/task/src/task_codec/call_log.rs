// SPDX-License-Identifier: Apache-2.0
//! What is noted of the calls of the rows that are held, for the column that tells of them and for a
//! journal.
//!
//! It stands beside the operator, whose records stay as small as they are, and is told of bursts: a
//! codec without one asks whether there is one once a burst, and not for a row. Rows are known by
//! their positions in the task, which they keep where they are put together with others, and their
//! calls by the entries of their records.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use sparkawait_arrow::{CallInfo, InputBatch, ResultRows};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::{AttemptId, Begins, Completion, Handled, Remark};
use sparkawait_core::policy::{CallSign, Costs};
use sparkawait_core::queue::EntryId;
use sparkawait_core::time::ProcessingTime;

use crate::error::CallFailure;
use crate::journal::Key;

/// The calls of the rows that are held.
#[derive(Debug)]
pub(super) struct CallLog {
    now: ProcessingTime,
    /// By their positions in the task.
    rows: HashMap<u64, Noted, RandomState>,
    /// Whether rows are noted when they are taken. Else they are with their first call, which is all that
    /// a journal asks about.
    takes: bool,
    /// The positions of those that were called.
    called: HashMap<EntryId, u64, RandomState>,
    /// The number of the limit whose cost is told.
    priced: Option<usize>,
    /// How many permits a cost of 1 is.
    scale: f64,
    /// When calls begin.
    begins: Begins,
}

/// What a row is entered in a journal under.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub(super) key: Key,
    /// Where the rows are kept, too.
    pub(super) input: Option<(Arc<InputBatch>, usize)>,
}

/// What is noted of a row.
#[derive(Clone, Debug)]
struct Noted {
    /// All that is told but the times here: those are of tasks that held the row before.
    info: CallInfo,
    /// When the row was taken.
    taken: ProcessingTime,
    /// When it was called first.
    first: Option<ProcessingTime>,
    /// When its last call ended.
    ended: Option<ProcessingTime>,
    entry: Option<EntryId>,
    /// Its attempt, if the call has not begun.
    waiting: Option<AttemptId>,
    /// The second call that made it one that is hedged.
    hedge: Option<AttemptId>,
    /// What a call is charged.
    price: f64,
    /// What the calls that have ended cost.
    paid: f64,
    /// What a call that ends now has cost.
    settled: Option<(AttemptId, f64)>,
    /// Whether its outcome is there.
    is_over: bool,
    /// What a journal has of it.
    asked: Asked,
}

/// What a journal has of a row that has its results.
#[derive(Debug)]
pub(super) struct Entered {
    pub(super) asked: Asked,
    pub(super) attempts: u32,
    /// Whether a cache has answered, or the call of another row.
    pub(super) is_shared: bool,
    pub(super) status: Option<u16>,
    /// What calls cost that were given up is not in it.
    pub(super) cost: Option<f64>,
}

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallEnd {
    answered: Answered,
    has_failed: bool,
    status: Option<u16>,
}

/// Whether a call was made, as its answer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    /// It was.
    Called,
    /// A cache has answered, or the call of another row.
    Shared,
    /// Nobody was: the row could not be called, or has no key.
    Uncalled,
}

impl CallEnd {
    /// Reads the outcome of a call. `is_shared` says whether results for which nobody was called are
    /// those of other calls, and `is_uncalled` whether a row with a failure of this kind was not called.
    pub(super) fn of(
        completion: &Completion<ResultRows, Box<CallFailure>>,
        is_shared: bool,
        is_uncalled: impl Fn(ErrorKind) -> bool,
    ) -> Self {
        let failure = completion.outcome.as_ref().err();
        let has_call = failure.map_or(is_shared, |it| !is_uncalled(it.kind));
        let answered = match (completion.sign, has_call) {
            (CallSign::NotCalled, true) => Answered::Shared,
            (CallSign::NotCalled, false) => Answered::Uncalled,
            _ => Answered::Called,
        };
        let status = failure.and_then(|it| it.status);
        Self { answered, has_failed: failure.is_some(), status }
    }
}

#[expect(clippy::cast_precision_loss, reason = "permits are below 2 to the power of 53")]
const fn permits(cost: u64) -> f64 {
    cost as f64
}

impl Noted {
    /// Notes nothing of a row but when it was taken, and what a call is charged.
    fn new(taken: ProcessingTime, price: Option<f64>) -> Self {
        Self {
            info: CallInfo { cost: price.map(|_| 0.0), ..CallInfo::default() },
            taken,
            first: None,
            ended: None,
            entry: None,
            waiting: None,
            hedge: None,
            price: price.unwrap_or_default(),
            paid: 0.0,
            settled: None,
            is_over: false,
            asked: Asked::default(),
        }
    }

    /// Returns what there is to tell, of calls until then.
    fn told(&self, until: ProcessingTime) -> CallInfo {
        let Self { info, taken, first, .. } = *self;
        let Some(first) = first else {
            // A row that was never called has not waited for a call.
            return CallInfo { waited: info.waited.filter(|_| info.seconds.is_some()), ..info };
        };
        let waited = match info.seconds {
            Some(_) => info.waited,
            None => Some(info.waited.unwrap_or_default() + first.saturating_since(taken)),
        };
        let seconds = info.seconds.unwrap_or_default() + until.saturating_since(first);
        CallInfo { seconds: Some(seconds), waited, ..info }
    }

    /// Counts a call that begins.
    const fn begin(&mut self, attempt: AttemptId) {
        if attempt.is_hedge() {
            if !self.info.hedged {
                self.hedge = Some(attempt);
            }
            self.info.hedged = true;
        } else {
            self.info.attempts += 1;
        }
    }

    fn charge(&mut self, cost: f64) {
        self.info.cost = self.info.cost.map(|charged| charged + cost);
    }
}

impl CallLog {
    /// Makes one that tells what calls cost the limit with this number, where a cost of 1 is so many
    /// permits. `takes`: rows are noted when they are taken, which those with prices are in any case.
    pub(super) fn new(priced: Option<(usize, u64)>, begins: Begins, takes: bool) -> Self {
        let takes = takes || priced.is_some();
        let (priced, scale) = (priced.map(|it| it.0), permits(priced.map_or(1, |it| it.1)));
        Self {
            now: ProcessingTime::ZERO,
            rows: HashMap::default(),
            takes,
            called: HashMap::default(),
            priced,
            scale,
            begins,
        }
    }

    pub(super) const fn set_time(&mut self, now: ProcessingTime) {
        self.now = now;
    }

    /// Notes that rows were taken, from the position `first` on, with what their calls cost.
    pub(super) fn take(&mut self, first: u64, costs: impl Iterator<Item = Costs>) {
        if !self.takes {
            return;
        }
        let (taken, priced) = (self.now, self.priced);
        self.rows.extend((first..).zip(costs).map(|(row, costs)| {
            (row, Noted::new(taken, priced.map(|limit| permits(costs.of(limit)))))
        }));
    }

    /// Goes on with what there was to tell of a row that was taken up again.
    pub(super) fn restore(&mut self, row: u64, before: CallInfo) {
        if let Some(noted) = self.rows.get_mut(&row) {
            let cost = before.cost.map(|it| (it * self.scale).round());
            let cost = noted.info.cost.map(|nothing| cost.unwrap_or(nothing));
            noted.info = CallInfo { cost, ..before };
        }
    }

    /// Notes that a row is handed over to be called for. A question about a timeout is not a call.
    pub(super) fn call(&mut self, row: u64, attempt: AttemptId, asked: impl FnOnce() -> Asked) {
        let is_call = attempt.attempt != AttemptId::TIMEOUT;
        let noted = match self.rows.entry(row) {
            Slot::Occupied(noted) => noted.into_mut(),
            Slot::Vacant(slot) if is_call && !self.takes => slot.insert(Noted::new(self.now, None)),
            Slot::Vacant(_) => return,
        };
        if noted.entry != Some(attempt.entry) {
            noted.entry = Some(attempt.entry);
            self.called.insert(attempt.entry, row);
        }
        if !is_call {
            return;
        }
        if noted.first.is_none() {
            noted.asked = asked();
        }
        noted.first.get_or_insert(self.now);
        match self.begins {
            Begins::AtOnce => noted.begin(attempt),
            Begins::WhenSaid if attempt.is_hedge() => {}
            Begins::WhenSaid => noted.waiting = Some(attempt),
        }
        noted.charge(noted.price);
    }

    fn noted(&mut self, attempt: AttemptId) -> Option<&mut Noted> {
        let noted = self.rows.get_mut(self.called.get(&attempt.entry)?)?;
        Some(noted).filter(|it| !it.is_over)
    }

    /// Notes that calls begin only now, which waited before for something of their function.
    pub(super) fn start(&mut self, attempts: &[AttemptId]) {
        let now = self.now;
        for attempt in attempts {
            let Some(noted) = self.noted(*attempt) else { continue };
            if attempt.is_hedge() {
                noted.begin(*attempt);
            } else if noted.waiting.take_if(|it| it == attempt).is_some() {
                noted.begin(*attempt);
                // It is the first one as long as none has ended.
                if noted.ended.is_none() {
                    noted.first = Some(now);
                }
            }
        }
    }

    /// Notes that calls were cancelled.
    pub(super) fn cancel(&mut self, attempts: &[AttemptId]) {
        let now = self.now;
        for attempt in attempts {
            let Some(noted) = self.noted(*attempt) else { continue };
            if noted.waiting.take_if(|it| it == attempt).is_none() {
                noted.ended = Some(now);
            } else if noted.ended.is_none() {
                // Nobody was called for it.
                noted.first = None;
            }
        }
    }

    /// Notes that calls were not made which were handed over, also of rows that have their outcome.
    pub(super) fn recall(&mut self, attempts: &[AttemptId]) {
        for attempt in attempts {
            let row = self.called.get(&attempt.entry);
            let Some(noted) = row.and_then(|it| self.rows.get_mut(it)) else { continue };
            noted.charge(-noted.price);
            if attempt.is_hedge() {
                let was_first = noted.hedge.take_if(|it| it == attempt).is_some();
                noted.info.hedged &= !was_first;
                continue;
            }
            if noted.waiting.take_if(|it| it == attempt).is_none() {
                noted.info.attempts = noted.info.attempts.saturating_sub(1);
            }
            if noted.ended.is_none() {
                noted.first = None;
            }
        }
    }

    /// Notes what a service has answered to a call, as a status.
    pub(super) fn answer(&mut self, attempt: AttemptId, status: u16) {
        if let Some(noted) = self.noted(attempt) {
            noted.info.status = Some(status);
        }
    }

    /// Notes what a reply says of what its call has cost.
    pub(super) fn remark(&mut self, attempt: AttemptId, remark: Remark) {
        let cost = match remark {
            Remark::NotSent => 0.0,
            Remark::Cost { limit, cost } if self.priced == Some(limit) => permits(cost),
            _ => return,
        };
        if let Some(noted) = self.noted(attempt) {
            noted.settled = Some((attempt, cost));
        }
    }

    /// Notes the end of a call.
    pub(super) fn end(&mut self, attempt: AttemptId, end: CallEnd, handled: Handled) {
        let now = self.now;
        let Some(noted) = self.noted(attempt).filter(|_| handled != Handled::Ignored) else {
            return;
        };
        noted.is_over = !matches!(handled, Handled::Retried(_));
        if handled == Handled::TimeoutAnswered {
            return;
        }
        noted.ended = Some(now);
        // One that is called again has not got the answer that others share.
        noted.info.cached = end.answered == Answered::Shared && noted.is_over;
        let has_waited = noted.waiting.take_if(|it| *it == attempt).is_some();
        if end.answered == Answered::Called {
            if has_waited {
                noted.begin(attempt);
            }
            noted.info.status = end.status.or(noted.info.status);
            let (settled, price) = (noted.settled.take_if(|(of, _)| *of == attempt), noted.price);
            let cost = settled.map_or(price, |(_, cost)| cost);
            noted.paid += cost;
            noted.charge(cost - price);
            return;
        }
        noted.charge(-noted.price);
        if !has_waited && !attempt.is_hedge() {
            noted.info.attempts = noted.info.attempts.saturating_sub(1);
        }
        // A row that was left out of a call has failed in one before.
        noted.info.cached &= !end.has_failed || noted.info.attempts == 0;
        if end.answered == Answered::Uncalled {
            noted.first = None;
        }
    }

    /// Returns what there is to tell of a row that leaves, for the last time if `is_last`.
    pub(super) fn leave(&mut self, row: u64, is_last: bool) -> CallInfo {
        let told = self.completed(row);
        if is_last {
            self.forget(row);
        }
        told
    }

    /// Returns what there is to tell of a row that has its outcome.
    pub(super) fn completed(&self, row: u64) -> CallInfo {
        let told = |it: &Noted| it.told(it.ended.or(it.first).unwrap_or(it.taken));
        self.rows.get(&row).map(told).map(|it| self.shown(it)).unwrap_or_default()
    }

    /// Returns what a journal has of the row that was called under this entry, and has its results;
    /// `is_last`: nobody asks for it any more.
    pub(super) fn enter(&mut self, entry: EntryId, is_last: bool) -> Option<Entered> {
        let (priced, scale) = (self.priced.is_some(), self.scale);
        let entered = |noted: &mut Noted| Entered {
            asked: std::mem::take(&mut noted.asked),
            attempts: noted.info.attempts,
            is_shared: noted.info.cached,
            status: noted.info.status,
            cost: priced.then(|| noted.paid / scale),
        };
        if is_last {
            let row = self.called.remove(&entry)?;
            return self.rows.remove(&row).as_mut().map(entered);
        }
        self.rows.get_mut(self.called.get(&entry)?).map(entered)
    }

    /// Returns what the calls of a row that failed have cost, as a journal has it.
    pub(super) fn paid(&self, row: u64) -> Option<f64> {
        self.priced.and_then(|_| Some(self.rows.get(&row)?.paid / self.scale))
    }

    /// Returns what there is to tell of a row that has none, for [`restore`](Self::restore).
    pub(super) fn pending(&self, row: u64) -> CallInfo {
        let Some(noted) = self.rows.get(&row) else { return CallInfo::default() };
        let told = self.shown(noted.told(self.now));
        let waits = |before: Duration| before + self.now.saturating_since(noted.taken);
        match told.seconds {
            Some(_) => told,
            None => CallInfo { waited: Some(waits(noted.info.waited.unwrap_or_default())), ..told },
        }
    }

    /// Returns it with its cost as people count it.
    fn shown(&self, told: CallInfo) -> CallInfo {
        CallInfo { cost: told.cost.map(|it| it / self.scale), ..told }
    }

    /// Forgets a row, which has left.
    pub(super) fn forget(&mut self, row: u64) {
        if let Some(Noted { entry: Some(entry), .. }) = self.rows.remove(&row) {
            self.called.remove(&entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use sparkawait_core::operator::Retry;

    use super::*;

    const PRICE: u64 = 5;

    /// A log of the rows from 7 on, which were taken after 11 ms.
    fn log(rows: usize) -> CallLog {
        log_of(rows, Begins::AtOnce)
    }

    fn log_of(rows: usize, begins: Begins) -> CallLog {
        let mut log = CallLog::new(Some((1, 1)), begins, true);
        log.set_time(at(11));
        log.take(7, std::iter::repeat_n(Costs::NONE.with(1, PRICE), rows));
        log
    }

    fn at(millis: u64) -> ProcessingTime {
        ProcessingTime::from_nanos(millis * 1_000_000)
    }

    fn attempt(entry: u64, attempt: u32) -> AttemptId {
        AttemptId { entry: EntryId::from_u64(entry), attempt }
    }

    fn ended(sign: CallSign) -> CallEnd {
        known(sign, true)
    }

    fn known(sign: CallSign, is_shared: bool) -> CallEnd {
        let outcome = Ok(ResultRows::EMPTY);
        CallEnd::of(&Completion { outcome, retry: Retry::No, sign }, is_shared, |_| false)
    }

    fn failed(kind: ErrorKind, sign: CallSign, status: Option<u16>) -> CallEnd {
        let (message, summary) = (String::new(), String::new());
        let failure = Box::new(CallFailure { kind, message, summary, raised: None, status });
        let completion = Completion::failed(failure, Retry::No, sign);
        CallEnd::of(&completion, false, |it| it == ErrorKind::CostInvalid)
    }

    const MILLIS: fn(u64) -> Option<Duration> = |it| Some(Duration::from_millis(it));

    #[test]
    fn costs_are_told_in_their_own_unit_and_a_journal_has_those_of_calls_that_ended() {
        let mut log = CallLog::new(Some((1, 1_000_000)), Begins::AtOnce, true);
        log.take(7, std::iter::once(Costs::NONE.with(1, 150_000)));
        let (first, hedge) = (attempt(3, 1), attempt(3, 1).hedge());
        log.call(7, first, Asked::default);
        log.call(7, hedge, Asked::default);
        log.cancel(&[first]);
        log.remark(hedge, Remark::Cost { limit: 1, cost: 70_000 });
        let answered = CallEnd { answered: Answered::Called, has_failed: false, status: None };
        log.end(hedge, answered, Handled::Final(0));

        // The call that was given up had its permits, and nobody knows what it cost.
        assert_eq!(log.completed(7).cost, Some(0.22));
        assert_eq!(log.enter(hedge.entry, true).unwrap().cost, Some(0.07));
    }

    #[test]
    fn times_are_from_the_first_call_to_the_end_of_the_last_one() {
        let mut log = log(1);
        log.set_time(at(24));
        log.call(7, attempt(3, 1), Asked::default);
        log.set_time(at(31));
        let refused = failed(ErrorKind::UserFunctionFailed, CallSign::Overloaded, Some(503));
        log.end(attempt(3, 1), refused, Handled::Retried(0));
        log.set_time(at(55));
        log.call(7, attempt(3, 2), Asked::default);
        log.set_time(at(68));
        log.end(attempt(3, 2), ended(CallSign::Good), Handled::Final(0));
        log.set_time(at(97));

        let told = log.leave(7, false);

        let (seconds, waited) = (MILLIS(44), MILLIS(13));
        let (status, cost) = (Some(503), Some(10.0));
        let of_row = CallInfo { attempts: 2, seconds, waited, status, cost, ..CallInfo::default() };
        assert_eq!(told, of_row);
        assert_eq!(log.leave(7, true), of_row, "with the row's next result");
        assert_eq!((log.rows.len(), log.called.len()), (0, 0));
    }

    #[test]
    fn a_row_that_another_one_answered_was_not_called_and_costs_nothing() {
        let mut log = log(4);
        let sign = CallSign::NotCalled;
        let ends = [
            known(sign, true),
            failed(ErrorKind::UserFunctionFailed, sign, Some(503)),
            known(sign, false),
            failed(ErrorKind::CostInvalid, sign, None),
        ];
        for (row, end) in (7..).zip(ends) {
            log.call(row, attempt(row, 1), Asked::default);
            log.end(attempt(row, 1), end, Handled::Final(0));
        }

        let (seconds, waited, cost) = (MILLIS(0), MILLIS(0), Some(0.0));
        let cached = CallInfo { seconds, waited, cached: true, cost, ..CallInfo::default() };
        let uncalled = CallInfo { cost, ..CallInfo::default() };
        let told = [7, 8, 9, 10].map(|row| log.leave(row, true));
        assert_eq!(told, [cached, cached, uncalled, uncalled]);
    }

    #[test]
    fn a_call_costs_what_its_reply_says_and_one_that_was_not_sent_nothing() {
        let mut log = log(3);
        (7..10).for_each(|row| log.call(row, attempt(row, 1), Asked::default));
        log.remark(attempt(7, 1), Remark::Cost { limit: 1, cost: 17 });
        log.remark(attempt(7, 1), Remark::Cost { limit: 0, cost: 99 });
        log.remark(attempt(8, 1), Remark::NotSent);
        log.remark(attempt(9, 1), Remark::Cost { limit: 1, cost: 2 });
        (7..9).for_each(|it| log.end(attempt(it, 1), ended(CallSign::Good), Handled::Final(0)));
        log.cancel(&[attempt(9, 1)]);

        let costs = [7, 8, 9].map(|row| log.leave(row, true).cost);
        assert_eq!(costs, [Some(17.0), Some(0.0), Some(5.0)]);
    }

    #[test]
    fn a_second_call_counts_as_one_of_its_own_and_ends_with_the_first_answer() {
        let mut log = log(1);
        let (one, other) = (attempt(4, 1), attempt(4, 1).hedge());
        log.call(7, one, Asked::default);
        log.set_time(at(13));
        log.call(7, other, Asked::default);
        log.answer(other, 200);
        log.set_time(at(18));
        log.end(other, ended(CallSign::Good), Handled::Final(0));
        log.set_time(at(29));
        log.cancel(&[one]);
        log.answer(one, 500);
        log.end(one, ended(CallSign::Good), Handled::Ignored);

        let told = log.leave(7, true);
        assert_eq!((told.attempts, told.hedged, told.seconds), (1, true, MILLIS(7)));
        assert_eq!((told.status, told.cost), (Some(200), Some(10.0)));
    }

    #[test]
    fn calls_that_were_taken_back_were_not_made() {
        let mut log = log(3);
        // 7 has a second call that is not made, 8 one that is before, and 9 is not called at all.
        (7..10).for_each(|row| log.call(row, attempt(row, 1), Asked::default));
        (7..9).for_each(|row| log.call(row, attempt(row, 1).hedge(), Asked::default));
        log.end(attempt(8, 1).hedge(), ended(CallSign::Unreachable), Handled::Retried(0));
        log.call(8, attempt(8, 2).hedge(), Asked::default);
        log.set_time(at(18));
        (7..9).for_each(|it| log.end(attempt(it, 1), ended(CallSign::Good), Handled::Final(0)));
        log.recall(&[attempt(7, 1).hedge(), attempt(8, 2).hedge(), attempt(9, 1)]);

        let told = [7, 8, 9].map(|row| log.leave(row, true));
        assert_eq!(told.map(|it| it.attempts), [1, 1, 0]);
        assert_eq!(told.map(|it| it.hedged), [false, true, false]);
        assert_eq!(told.map(|it| it.cost), [Some(5.0), Some(10.0), Some(0.0)]);
        assert_eq!(told.map(|it| it.seconds), [MILLIS(7), MILLIS(7), None]);
    }

    #[test]
    fn a_row_has_the_attempts_whose_calls_have_begun() {
        let mut log = log_of(4, Begins::WhenSaid);
        (7..11).for_each(|row| log.call(row, attempt(row, 1), Asked::default));
        // Of 7 a call is made, and a second one. 8 waits in vain, 9 gets the answer of another row, and
        // the answer to 10 tells of a call that nobody has announced.
        log.start(&[attempt(7, 1)]);
        log.call(7, attempt(7, 1).hedge(), Asked::default);
        assert!(!log.completed(7).hedged);
        log.start(&[attempt(7, 1).hedge()]);
        log.set_time(at(24));
        log.end(attempt(7, 1), ended(CallSign::Good), Handled::Final(0));
        log.cancel(&[attempt(8, 1)]);
        log.end(attempt(9, 1), ended(CallSign::NotCalled), Handled::Final(0));
        let refused = failed(ErrorKind::UserFunctionFailed, CallSign::Unreachable, None);
        log.end(attempt(10, 1), refused, Handled::Final(0));

        let told = [7, 8, 9, 10].map(|row| log.leave(row, true));
        assert_eq!(told.map(|it| it.attempts), [1, 0, 0, 1]);
        assert_eq!(told.map(|it| it.hedged), [true, false, false, false]);
        assert_eq!(told.map(|it| it.cached), [false, false, true, false]);
        assert_eq!(told.map(|it| it.seconds), [MILLIS(13), None, MILLIS(13), MILLIS(13)]);
    }

    #[test]
    fn a_row_that_waits_for_an_answer_and_is_called_later_has_one_attempt_for_each_call() {
        let mut log = log_of(1, Begins::WhenSaid);
        log.call(7, attempt(4, 1), Asked::default);
        let shared = failed(ErrorKind::UserFunctionFailed, CallSign::NotCalled, Some(503));
        log.end(attempt(4, 1), shared, Handled::Retried(0));
        log.call(7, attempt(4, 2), Asked::default);
        log.start(&[attempt(4, 2)]);
        log.end(attempt(4, 2), ended(CallSign::Good), Handled::Final(0));

        let told = log.leave(7, true);
        assert_eq!((told.attempts, told.cached), (1, false));
    }

    #[test]
    fn a_row_that_is_left_out_of_a_call_and_fails_has_no_answer_of_another_row() {
        let mut log = log_of(1, Begins::WhenSaid);
        log.call(7, attempt(4, 1), Asked::default);
        log.start(&[attempt(4, 1)]);
        let divided = failed(ErrorKind::UserFunctionFailed, CallSign::Divided, None);
        log.end(attempt(4, 1), divided, Handled::Retried(0));
        log.call(7, attempt(4, 2), Asked::default);
        let left_out = failed(ErrorKind::UserFunctionFailed, CallSign::NotCalled, None);
        log.end(attempt(4, 2), left_out, Handled::Final(0));

        let told = log.leave(7, true);
        assert_eq!((told.attempts, told.cached), (1, false));
    }

    #[test]
    fn a_row_that_is_left_out_and_called_again_in_vain_has_no_answer_of_another_row() {
        let mut log = log_of(1, Begins::AtOnce);
        log.call(7, attempt(4, 1), Asked::default);
        let left_out = failed(ErrorKind::UserFunctionFailed, CallSign::NotCalled, None);
        log.end(attempt(4, 1), left_out, Handled::Retried(0));
        assert!(!log.completed(7).cached);
        log.call(7, attempt(4, 2), Asked::default);
        log.cancel(&[attempt(4, 2)]);

        let told = log.leave(7, true);
        assert_eq!((told.attempts, told.cached), (1, false));
    }

    #[test]
    fn a_call_that_waits_in_its_function_begins_when_that_says_so() {
        let mut log = log_of(1, Begins::WhenSaid);
        log.call(7, attempt(4, 1), Asked::default);
        log.set_time(at(24));
        log.start(&[attempt(4, 1)]);
        log.set_time(at(30));
        log.end(attempt(4, 1), ended(CallSign::Unreachable), Handled::Retried(0));
        log.call(7, attempt(4, 2), Asked::default);
        log.set_time(at(41));
        log.start(&[attempt(4, 2)]);
        log.set_time(at(48));
        log.cancel(&[attempt(4, 2)]);
        log.call(7, attempt(4, AttemptId::TIMEOUT), Asked::default);
        log.set_time(at(59));
        let asked = attempt(4, AttemptId::TIMEOUT);
        log.end(asked, ended(CallSign::Good), Handled::TimeoutAnswered);

        let told = log.leave(7, true);
        assert_eq!((told.attempts, told.seconds, told.waited), (2, MILLIS(24), MILLIS(13)));
    }

    #[test]
    fn a_row_that_is_taken_up_again_goes_on_where_it_was_and_not_with_the_time_between() {
        let mut before = log(2);
        before.set_time(at(18));
        before.call(7, attempt(4, 1), Asked::default);
        before.set_time(at(31));
        let saved = [before.pending(7), before.pending(8)];
        assert_eq!(saved.map(|it| it.seconds), [MILLIS(13), None]);
        let mut log = log(2);
        log.restore(7, saved[0]);
        log.restore(8, saved[1]);
        log.set_time(at(16));
        (7..9).for_each(|row| log.call(row, attempt(row, 1), Asked::default));
        log.set_time(at(19));
        (7..9).for_each(|it| log.end(attempt(it, 1), ended(CallSign::Good), Handled::Final(0)));

        let told = [7, 8].map(|row| log.leave(row, true));
        assert_eq!(told.map(|it| it.attempts), [2, 1]);
        assert_eq!(told.map(|it| it.seconds), [MILLIS(16), MILLIS(3)]);
        assert_eq!(told.map(|it| it.waited), [MILLIS(7), MILLIS(25)]);
        assert_eq!(told.map(|it| it.cost), [Some(10.0), Some(5.0)]);
    }

    #[test]
    fn a_journal_alone_notes_rows_that_are_called_and_nothing_of_them_once_they_are_entered() {
        let mut log = CallLog::new(None, Begins::AtOnce, false);
        log.take(7, std::iter::repeat_n(Costs::NONE, 3));
        log.call(8, attempt(4, 1), Asked::default);
        let refused = failed(ErrorKind::UserFunctionFailed, CallSign::Overloaded, Some(503));
        log.end(attempt(4, 1), refused, Handled::Retried(0));
        log.call(8, attempt(4, 2), Asked::default);
        log.end(attempt(4, 2), ended(CallSign::Good), Handled::Final(0));
        // Nobody was called for this one.
        log.call(9, attempt(5, AttemptId::TIMEOUT), Asked::default);
        assert_eq!((log.rows.len(), log.called.len()), (1, 1));

        let entered = log.enter(EntryId::from_u64(4), true).unwrap();

        let Entered { attempts, is_shared, status, cost, .. } = entered;
        assert_eq!((attempts, is_shared, status, cost), (2, false, Some(503), None));
        assert_eq!((log.rows.len(), log.called.len()), (0, 0));
    }

    #[test]
    fn a_row_with_a_price_is_forgotten_although_it_was_only_asked_about() {
        let mut log = CallLog::new(Some((1, 1)), Begins::AtOnce, false);
        log.take(7, std::iter::once(Costs::NONE.with(1, PRICE)));
        log.call(7, attempt(4, AttemptId::TIMEOUT), Asked::default);

        let entered = log.enter(EntryId::from_u64(4), true).unwrap();

        assert_eq!((entered.attempts, entered.cost), (0, Some(0.0)));
        assert_eq!((log.rows.len(), log.called.len()), (0, 0));
    }

    #[test]
    fn a_row_that_was_never_called_has_not_waited_for_a_call() {
        let mut log = log(1);
        log.set_time(at(99));

        assert_eq!(log.leave(7, true), CallInfo { cost: Some(0.0), ..CallInfo::default() });
        assert_eq!(log.leave(7, true), CallInfo::default(), "nothing is kept of it");
    }
}
