// SPDX-License-Identifier: Apache-2.0
//! How much may be called for: per time, in all, or at a time.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::costs::{Costs, MAX_LIMITS};
use super::gcra::Gcra;
use super::ledger::{Answer, Ledger, Spent};
use super::limit_left::{Counted, LimitLeft, Lowered};
use super::standing::{Line, Standing};
use super::stock::Stock;
use crate::time::ProcessingTime;

/// How the permits of a limit come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// With time: it is a rate.
    Refills(Gcra),
    /// Not again: it is a budget.
    Spends(NonZeroU64),
    /// Back when their call ends: so many calls may be in flight at a time, or what they cost.
    ComesBack(NonZeroU64),
}

impl Terms {
    /// Returns the most that a call is charged when it is settled.
    pub(crate) fn most_cost(&self) -> u64 {
        if let Self::Refills(rate) = self { rate.most_cost() } else { u64::MAX }
    }
}

impl From<Gcra> for Terms {
    fn from(rate: Gcra) -> Self {
        Self::Refills(rate)
    }
}

/// A limit as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitConfig {
    /// How its permits come.
    pub terms: Terms,
    /// What a call costs if nothing else is known.
    pub cost: u64,
    /// Whether a rate reserves what calls have cost of late, once that is known. Of other limits always
    /// `cost` is reserved: what is not there does not come.
    pub is_usual: bool,
    /// Whether each channel has one of its own, instead of all having one together.
    pub is_per_channel: bool,
    /// Which limits of a service it stands for, that a reply may tell of.
    pub counted: Option<Counted>,
    /// Whether a request pays, and not each record of it; see [`RequestConfig`].
    ///
    /// [`RequestConfig`]: super::RequestConfig
    pub is_per_request: bool,
}

impl LimitConfig {
    /// A limit that takes one permit from each call, whatever its channel.
    pub fn new(terms: impl Into<Terms>) -> Self {
        Self {
            terms: terms.into(),
            cost: 1,
            is_usual: false,
            is_per_channel: false,
            counted: None,
            is_per_request: false,
        }
    }
}

/// The limits of an operator by their numbers; none by default.
pub type LimitConfigs = [Option<LimitConfig>; MAX_LIMITS];

/// Returns what a call costs each limit if nothing else is known of it.
pub fn usual_costs(configs: &LimitConfigs) -> Costs {
    costs_of(configs, |_| true)
}

/// Returns what a request costs those limits that count requests.
pub(crate) fn request_costs(configs: &LimitConfigs) -> Costs {
    costs_of(configs, |it| it.is_per_request)
}

/// Returns what a record costs the others.
pub(crate) fn record_costs(configs: &LimitConfigs) -> Costs {
    costs_of(configs, |it| !it.is_per_request)
}

fn costs_of(configs: &LimitConfigs, is_meant: fn(&LimitConfig) -> bool) -> Costs {
    let meant = configs.iter().map(|it| it.filter(is_meant));
    meant
        .enumerate()
        .fold(Costs::NONE, |costs, (index, it)| costs.with(index, it.map_or(0, |limit| limit.cost)))
}

/// Where permits are.
#[derive(Debug)]
enum Permits {
    /// Here, of a rate from which nobody else takes.
    Rate { tat: ProcessingTime },
    /// Here, of another limit.
    Stock(Stock),
    /// Elsewhere: others take from it.
    Shared(Standing),
}

/// A limit, which every attempt pays at its start.
///
/// A rate knows two things: its own count ([`Gcra`]), and what the service says is
/// left ([`LimitLeft`]), which only ever lowers it: a limit belongs to an
/// account, and others may use it up. A call is charged an estimate, and settled when it is known
/// what it cost.
#[derive(Debug)]
pub struct Limit {
    permits: Permits,
    /// Of a rate.
    rate: Option<Gcra>,
    counted: Option<Counted>,
    /// How far the service has lowered it.
    lowered: Option<Lowered>,
    /// Start of the call whose reply told last what remains.
    told_at: ProcessingTime,
    /// When it was drained last.
    drained_at: ProcessingTime,
    /// What the calls in flight were charged of a rate: the service may not have counted them yet.
    in_flight: u64,
}

impl Limit {
    /// Makes a limit from which nothing was taken; `ledger` has its permits if others take some,
    /// too.
    pub fn new(config: &LimitConfig, ledger: Option<Arc<dyn Ledger>>) -> Self {
        let LimitConfig { terms, counted, .. } = *config;
        let (rate, own) = match terms {
            Terms::Refills(rate) => (Some(rate), Permits::Rate { tat: ProcessingTime::ZERO }),
            Terms::Spends(permits) => (None, Permits::Stock(Stock::budget(permits))),
            Terms::ComesBack(permits) => (None, Permits::Stock(Stock::at_a_time(permits))),
        };
        Self {
            permits: ledger.map_or(own, |it| Permits::Shared(Standing::new(it, rate.is_some()))),
            rate,
            counted,
            lowered: None,
            told_at: ProcessingTime::ZERO,
            drained_at: ProcessingTime::ZERO,
            in_flight: 0,
        }
    }

    /// Is told that a call of a line starts which costs `cost`.
    pub fn on_start(&mut self, now: ProcessingTime, cost: u64, line: Line) {
        match (&mut self.permits, &self.rate) {
            (Permits::Rate { tat }, Some(rate)) => *tat = rate.take(*tat, cost, now),
            (Permits::Rate { .. }, None) => {}
            (Permits::Stock(stock), _) => return stock.take(cost),
            (Permits::Shared(standing), _) => standing.take(line, cost),
        }
        self.in_flight = self.in_flight.saturating_add(cost);
        if let Some(lowered) = &mut self.lowered {
            lowered.settle(0, cost);
        }
    }

    /// Settles a call that was charged `charged` and cost `actual`, whatever it came to.
    pub fn settle(&mut self, charged: u64, actual: u64) {
        self.in_flight = self.in_flight.saturating_sub(charged);
        match (&mut self.permits, &self.rate) {
            (Permits::Stock(stock), _) => stock.settle(charged, actual),
            (Permits::Shared(standing), _) => standing.settle(charged, actual),
            (Permits::Rate { tat }, Some(rate)) if actual != charged => {
                *tat = rate.settle(*tat, charged, actual);
            }
            (Permits::Rate { .. }, _) => {}
        }
        if let Some(lowered) = self.lowered.as_mut().filter(|_| actual != charged) {
            lowered.settle(charged, actual);
        }
    }

    /// Sets right what a call in flight was charged.
    pub fn recharge(&mut self, charged: u64, anew: u64) {
        match (&mut self.permits, &self.rate) {
            (Permits::Stock(stock), _) => return stock.recharge(charged, anew),
            (Permits::Shared(standing), _) => standing.recharge(charged, anew),
            (Permits::Rate { tat }, Some(rate)) => *tat = rate.settle(*tat, charged, anew),
            (Permits::Rate { .. }, None) => {}
        }
        self.in_flight = self.in_flight.saturating_sub(charged).saturating_add(anew);
        if let Some(lowered) = &mut self.lowered {
            lowered.settle(charged, anew);
        }
    }

    /// Learns from the reply to a call that started at `started` what is left of a limit of the
    /// service, if it stands for that. It is never more than its own count says; where others take from
    /// it, they have no more either.
    ///
    /// To be told after [`settle`](Self::settle) of that call. Replies overtake one another: what
    /// one says is old news once that of a call that started later is known.
    pub fn lower_to(&mut self, left: &LimitLeft, started: ProcessingTime, now: ProcessingTime) {
        let is_news = started >= self.told_at && !left.renewed_in.is_zero();
        let is_meant = is_news && self.counted == Some(left.counted);
        if let Some(limit) = self.rate.filter(|_| is_meant) {
            self.told_at = started;
            let uncounted = match &self.permits {
                Permits::Shared(standing) => {
                    standing.ledger().lower_to(left, self.in_flight, started, now)
                }
                Permits::Rate { .. } | Permits::Stock(_) => self.in_flight,
            };
            self.lowered = Some(Lowered::to(left, uncounted, limit.rate(), now));
        }
    }

    /// Gives up what was saved, since the service has refused a call that started at `started`: it
    /// counts otherwise, or others have taken it. What comes from now on is first for the calls
    /// that may have started after that one, which the service had not counted then.
    ///
    /// Calls that started before this was known are refused for the same reason, and change nothing.
    /// Only a rate has saved anything.
    pub fn drain(&mut self, started: ProcessingTime, now: ProcessingTime) {
        let Some(limit) = self.rate.filter(|_| started >= self.drained_at) else { return };
        self.drained_at = now;
        let since = limit.rate().permits_of(now.nanos_since(started));
        let owed = self.in_flight.min(since.saturating_add(limit.burst().get()));
        match &mut self.permits {
            Permits::Rate { tat } => *tat = limit.drain(*tat, owed, now),
            Permits::Shared(standing) => standing.ledger().drain(owed, now),
            Permits::Stock(_) => {}
        }
    }

    /// Returns whether others take from it, too.
    pub(super) const fn is_shared(&self) -> bool {
        matches!(self.permits, Permits::Shared(_))
    }

    /// Returns whether its permits come with time.
    pub(super) const fn is_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// Asks for what the next call of a line costs; returns when it may start, as
    /// [`ready_at`](Self::ready_at) does.
    ///
    /// Where others take from it, too, the call gets a place in line there, or its permits. So ask when
    /// nothing else is in the way of the call, since a place does not wait for long.
    pub fn ask(&mut self, now: ProcessingTime, cost: u64, line: Line) -> ProcessingTime {
        if let Permits::Shared(standing) = &mut self.permits {
            standing.ask(line, cost, now);
        }
        self.ready_at(now, cost, line)
    }

    /// Gives back what the next call of a line has taken, since it does not start now. It keeps its place
    /// in line.
    pub(super) fn give_back(&mut self, line: Line) {
        if let Permits::Shared(standing) = &mut self.permits {
            standing.give_back(line);
        }
    }

    /// Returns whether the next call of a line has asked in vain for what no time brings.
    pub(super) fn is_lacking(&self, line: Line) -> bool {
        matches!(&self.permits, Permits::Shared(standing) if standing.is_lacking(line))
    }

    /// Returns when a call of a line that costs `cost` may start if nothing happens until then; `now` or
    /// a point before it: at once; [`ProcessingTime::NEVER`]: not before a call is settled, if
    /// [at all](Self::spent). Asks for nothing.
    pub fn ready_at(&self, now: ProcessingTime, cost: u64, line: Line) -> ProcessingTime {
        let ready = self.ready_beside_others(now, cost);
        match &self.permits {
            Permits::Rate { .. } | Permits::Stock(_) => ready,
            Permits::Shared(standing) => standing.ready_at(line, cost).max(ready),
        }
    }

    /// Returns when it may start as far as that does not depend on others.
    pub(super) fn ready_beside_others(&self, now: ProcessingTime, cost: u64) -> ProcessingTime {
        let ready = match (&self.permits, &self.rate) {
            (Permits::Rate { tat }, Some(rate)) => rate.ready_at(*tat, cost),
            (Permits::Stock(stock), _) if stock.look(cost, now) != Answer::Ticket(now) => {
                ProcessingTime::NEVER
            }
            _ => ProcessingTime::ZERO,
        };
        let told = self.lowered.filter(|it| !it.is_over(now));
        told.map_or(ready, |it| ready.max(it.ready_at(cost)))
    }

    /// Returns why a call of a line that costs as much will never start, if that is so.
    pub(super) fn spent(&self, cost: u64, line: Line) -> Option<Spent> {
        match &self.permits {
            Permits::Rate { .. } => None,
            Permits::Stock(stock) => match stock.look(cost, ProcessingTime::ZERO) {
                Answer::Never(spent) => Some(spent),
                Answer::Ticket(_) | Answer::At(_) | Answer::OnSettle => None,
            },
            Permits::Shared(standing) => standing.spent(line, cost),
        }
    }

    /// Asks others again for what was never to be there.
    pub(super) fn ask_again(&mut self, now: ProcessingTime, cost: u64, line: Line) {
        if let Permits::Shared(standing) = &mut self.permits {
            standing.ask_again(line, cost, now);
        }
    }

    /// Returns whether it may be used as if nothing had been taken; a shared one remembers that
    /// elsewhere.
    pub fn is_full(&self, now: ProcessingTime) -> bool {
        let is_taken = match &self.permits {
            Permits::Rate { tat } => *tat > now,
            Permits::Stock(stock) => !stock.is_full(),
            Permits::Shared(_) => false,
        };
        let is_lowered = self.lowered.is_some_and(|it| !it.is_over(now));
        !is_taken && !is_lowered && self.in_flight == 0
    }

    /// Returns how many calls of records that cost as much may start now, one after the other; of a shared
    /// limit the one that was asked for.
    pub fn calls(&self, now: ProcessingTime, cost: u64) -> u64 {
        if cost == 0 {
            return u64::MAX;
        }
        let calls = match (&self.permits, &self.rate) {
            (Permits::Rate { tat }, Some(rate)) => rate.calls(*tat, cost, now),
            (Permits::Rate { .. }, None) => u64::MAX,
            (Permits::Stock(stock), _) => stock.calls(cost),
            (Permits::Shared(standing), _) => {
                u64::from(standing.ready_at(Line::Records, cost) <= now)
            }
        };
        self.lowered.map_or(calls, |it| calls.min(it.calls(cost, now)))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::policy::{Rate, Renewal};

    const RECORDS: Line = Line::Records;

    fn limit(permits: u64, burst: u64) -> Limit {
        let rate = Rate::new(permits.try_into().unwrap(), Duration::from_secs(1)).unwrap();
        let limit = Gcra::new(rate, NonZeroU64::new(burst).unwrap());
        let counted = Some(Counted::Requests);
        Limit::new(&LimitConfig { counted, ..LimitConfig::new(limit) }, None)
    }

    fn left(remaining: u64, seconds: u64, renewal: Renewal) -> LimitLeft {
        let renewed_in = Duration::from_secs(seconds);
        LimitLeft { counted: Counted::Requests, remaining, renewed_in, renewal }
    }

    fn window(remaining: u64, seconds: u64) -> LimitLeft {
        left(remaining, seconds, Renewal::AtOnce)
    }

    fn at(seconds: u64) -> ProcessingTime {
        ProcessingTime::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn what_the_service_says_lowers_the_limit_until_it_counts_anew() {
        let mut limit = limit(100, 100);
        limit.on_start(at(1), 1, RECORDS);
        limit.settle(1, 1);
        limit.lower_to(&window(2, 7), at(1), at(2));
        assert_eq!(limit.calls(at(2), 1), 2);

        limit.on_start(at(2), 2, RECORDS);
        assert_eq!(limit.ready_at(at(2), 1, RECORDS), at(9));
        assert!(limit.ready_at(at(9), 1, RECORDS) <= at(9));
    }

    /// One limit that all who have it keep together.
    #[derive(Debug)]
    struct Together(Gcra, Mutex<ProcessingTime>);

    impl Ledger for Together {
        fn ask(&self, cost: u64, now: ProcessingTime) -> Answer {
            let mut tat = self.1.lock().unwrap();
            let ready = self.0.ready_at(*tat, cost).max(now);
            *tat = self.0.take(*tat, cost, now);
            Answer::Ticket(ready)
        }

        fn settle(&self, taken: u64, actual: u64) {
            let mut tat = self.1.lock().unwrap();
            *tat = self.0.settle(*tat, taken, actual);
        }

        fn lower_to(
            &self,
            left: &LimitLeft,
            in_flight: u64,
            _started: ProcessingTime,
            now: ProcessingTime,
        ) -> u64 {
            let mut tat = self.1.lock().unwrap();
            *tat = self.0.lower_to(left.remaining, in_flight, now).max(*tat);
            in_flight
        }

        fn drain(&self, _owed: u64, _now: ProcessingTime) {}
    }

    /// Makes the limits of so many tasks that keep one together.
    fn limited_together<const N: usize>(permits: u64, burst: u64) -> [Limit; N] {
        let rate = limit(permits, burst).rate.unwrap();
        let config = LimitConfig::new(rate);
        let source: Arc<dyn Ledger> = Arc::new(Together(rate, Mutex::default()));
        [(); N].map(|()| Limit::new(&config, Some(Arc::clone(&source))))
    }

    #[test]
    fn tasks_that_waited_for_records_do_not_call_all_at_once() {
        let mut tasks = limited_together::<13>(3, 2);
        // All their times are over long ago.
        for it in &mut tasks {
            it.ask(at(7), 1, RECORDS);
        }
        let calls = tasks.iter_mut().map(|it| {
            it.ask(at(97), 1, RECORDS);
            it.calls(at(97), 1)
        });
        assert_eq!(calls.sum::<u64>(), 2);
    }

    #[test]
    fn a_place_is_kept_for_a_call_that_comes_a_little_late() {
        let mut tasks = limited_together::<2>(3, 1);
        for it in &mut tasks {
            it.ask(at(7), 1, RECORDS);
        }
        let late = at(7) + Duration::from_millis(97);
        tasks[0].ask(late, 1, RECORDS);
        assert_eq!((tasks[0].calls(late, 1), tasks[1].calls(late, 1)), (1, 0));
    }

    #[test]
    fn what_the_service_says_lowers_it_for_all() {
        let mut tasks = limited_together::<2>(100, 100);
        for it in &mut tasks {
            it.counted = Some(Counted::Requests);
        }
        tasks[0].on_start(at(1), 3, RECORDS);
        tasks[0].lower_to(&window(10, 7), at(1), at(1));
        tasks[1].ask(at(1), 7, RECORDS);
        assert_eq!(tasks[1].calls(at(1), 7), 1);
        tasks[1].on_start(at(1), 7, RECORDS);
        tasks[1].ask(at(1), 1, RECORDS);
        assert_eq!(tasks[1].calls(at(1), 1), 0);
    }

    #[test]
    fn a_line_keeps_its_place_whatever_the_call_in_front_of_it_costs() {
        let [mut task, mut other] = limited_together::<2>(100, 10);
        other.ask(at(7), 10, RECORDS);
        task.ask(at(7), 5, RECORDS);
        other.on_start(at(7), 10, RECORDS);
        let place = task.ready_at(at(7), 5, RECORDS);
        // Behind it others get in line, and a second call gets a place of its own there.
        other.ask(at(7), 10, RECORDS);
        task.ask(at(7), 10, Line::Hedges);
        let of_hedge = task.ready_at(at(7), 10, Line::Hedges);
        for cost in [10, 5, 3, 5, 10, 1] {
            task.ask(at(7), cost, RECORDS);
            task.ask(at(7), 10, Line::Hedges);
        }
        assert_eq!(task.ready_at(at(7), 10, Line::Hedges), of_hedge);
        // What it needs beside its place comes later, once.
        let whole = task.ready_at(at(7), 10, RECORDS);
        assert!(whole > of_hedge && of_hedge > place, "{place:?} {of_hedge:?} {whole:?}");
        assert_eq!(task.calls(whole, 10), 1);
        // Ten of the first one, five and ten of those that wait, and ten and five of this task.
        other.ask(at(7), 20, RECORDS);
        let behind_all = other.ready_at(at(7), 20, RECORDS);
        assert_eq!(behind_all, at(7) + Duration::from_millis(10 * (10 + 5 + 10 + 10 + 5)));
    }

    #[test]
    fn a_task_that_ends_gives_back_a_place_that_has_not_come_and_no_other() {
        let rate = limit(3, 1).rate.unwrap();
        let config = LimitConfig::new(rate);
        let source: Arc<dyn Ledger> = Arc::new(Together(rate, Mutex::default()));
        let mut tasks = [(); 3].map(|()| Some(Limit::new(&config, Some(Arc::clone(&source)))));
        for it in tasks.iter_mut().flatten() {
            it.ask(at(7), 1, RECORDS);
        }
        let next_place = || match source.ask(0, at(7)) {
            Answer::Ticket(ready) => ready,
            refused => panic!("{refused:?}"),
        };
        let before = next_place();
        // Its time has come, long ago perhaps.
        tasks[0] = None;
        assert_eq!(next_place(), before);
        tasks[1] = None;
        assert_eq!(before.saturating_since(next_place()).as_millis(), 333);
    }

    #[test]
    fn it_never_raises_it() {
        let mut limit = limit(1, 1);
        limit.on_start(at(1), 1, RECORDS);
        limit.lower_to(&window(1_000_000, 59), at(1), at(1));
        assert_eq!(limit.ready_at(at(1), 1, RECORDS), at(2));
    }

    #[test]
    fn calls_on_their_way_may_not_be_counted_yet() {
        let mut limit = limit(100, 100);
        (0..6).for_each(|_| limit.on_start(at(1), 1, RECORDS));
        limit.settle(1, 1);
        limit.lower_to(&window(7, 7), at(1), at(2));
        assert_eq!(limit.calls(at(2), 1), 2);
    }

    #[test]
    fn old_news_changes_nothing() {
        let mut limit = limit(100, 100);
        limit.lower_to(&window(50, 5), at(3), at(4));
        limit.lower_to(&window(1, 5), at(2), at(4));
        assert_eq!(limit.calls(at(4), 1), 50);
        // One that counts again by now does not limit.
        limit.lower_to(&window(1, 0), at(4), at(5));
        assert_eq!(limit.calls(at(5), 1), 50);
    }

    #[test]
    fn a_refusal_leaves_nothing_that_was_saved() {
        let mut limit = limit(100, 100);
        (0..3).for_each(|_| limit.on_start(at(1), 10, RECORDS));
        limit.drain(at(1), at(2));
        assert_eq!((limit.calls(at(2), 1), limit.calls(at(3), 1)), (0, 70));
        // Those that started before it was known are refused as well, and later.
        limit.settle(10, 10);
        limit.drain(at(1), at(3));
        assert_eq!(limit.calls(at(3), 1), 70);
        limit.drain(at(3), at(3));
        assert_eq!((limit.calls(at(3), 1), limit.calls(at(4), 1)), (0, 80));
    }

    #[test]
    fn it_stands_for_what_it_counts() {
        let mut limit = limit(100, 100);
        limit.lower_to(&LimitLeft { counted: Counted::Tokens, ..window(0, 9) }, at(1), at(1));
        assert_eq!(limit.calls(at(1), 1), 100);
    }

    #[test]
    fn in_a_bucket_some_is_left_and_a_part_of_what_comes_back_is_counted_on() {
        let mut limit = limit(100, 100);
        limit.on_start(at(1), 40, RECORDS);
        limit.lower_to(&left(150, 10, Renewal::Evenly), at(0), at(1));
        // The call in flight may not be counted yet, and the permits of a second are left.
        assert_eq!((limit.calls(at(1), 1), limit.calls(at(2), 1)), (10, 35));
        assert_eq!(limit.ready_at(at(1), 10, RECORDS), at(0) + Duration::from_millis(500));
        // Or twice what it costs.
        assert_eq!(limit.ready_at(at(1), 60, RECORDS), at(1) + Duration::from_millis(70 * 40));
        limit.settle(40, 10);
        assert_eq!(limit.calls(at(1), 1), 40);
        assert_eq!(limit.calls(at(11), 1), 100);
    }

    #[test]
    fn a_small_bucket_is_used_up_to_an_eighth() {
        let mut limit = limit(10, 10);
        limit.lower_to(&left(8, 1, Renewal::Evenly), at(0), at(0));
        assert_eq!(limit.calls(at(0), 1), 6);
    }

    #[test]
    fn nobody_is_believed_for_more_than_an_hour() {
        let mut limit = limit(100, 100);
        limit.lower_to(&window(0, 1_000_000), at(0), at(0));
        assert_eq!(limit.ready_at(at(0), 1, RECORDS), at(3_600));
    }

    #[test]
    fn a_call_is_settled_by_what_it_cost() {
        let mut limit = limit(100, 100);
        limit.lower_to(&window(40, 8), at(0), at(1));
        limit.on_start(at(1), 30, RECORDS);
        assert_eq!(limit.calls(at(1), 1), 10);
        limit.settle(30, 5);
        assert_eq!(limit.calls(at(1), 1), 35);
    }
}
