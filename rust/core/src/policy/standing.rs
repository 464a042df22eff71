// SPDX-License-Identifier: Apache-2.0
//! Places in line at a limit that others take from, too.

use std::sync::Arc;
use std::time::Duration;

use super::ledger::{Answer, Ledger, Spent};
use crate::time::ProcessingTime;

/// How long a place whose time has come may wait for its call. A task that waits for something else, such as
/// its next record, would call beside those whose time it is by then.
const LATEST: Duration = Duration::from_millis(100);

/// Who waits for a shared limit: each line has a place of its own, which the other does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The records that are called next.
    Records,
    /// Calls that are slow, for a second one beside them.
    Hedges,
}

/// A place in line: what was reserved, and for when.
#[derive(Clone, Copy, Debug)]
struct Place {
    cost: u64,
    ready_at: ProcessingTime,
}

#[derive(Clone, Copy, Debug)]
struct Front {
    place: Option<Place>,
    /// When to ask again for what was refused.
    again_at: ProcessingTime,
    /// Why it will never be granted.
    spent: Option<Spent>,
}

impl Front {
    const NOBODY: Self = Self { place: None, again_at: ProcessingTime::ZERO, spent: None };
}

/// What was asked of a limit that others take from, for the calls that start next.
///
/// At a rate it is asked one call ahead, since its time comes later. A place belongs to the line that
/// asked for it, and not to one call or to what that costs. Another
/// call may come to the front, at another cost: then the place is kept, and what is missing is asked for
/// beside it. So nobody who waits goes back to the end of the line.
///
/// Of other limits nothing is held while a call waits, so that no two callers hold what the other one
/// waits for: [`give_back`](Self::give_back).
#[derive(Debug)]
pub(super) struct Standing {
    ledger: Arc<dyn Ledger>,
    is_rate: bool,
    fronts: [Front; 2],
    /// When it was asked for last.
    asked_at: ProcessingTime,
    /// What the calls in flight were charged.
    in_flight: u64,
}

impl Standing {
    pub(super) const fn new(ledger: Arc<dyn Ledger>, is_rate: bool) -> Self {
        let asked_at = ProcessingTime::ZERO;
        Self { ledger, is_rate, fronts: [Front::NOBODY; 2], asked_at, in_flight: 0 }
    }

    /// Returns the limit that it is a part of.
    pub(super) fn ledger(&self) -> &dyn Ledger {
        &*self.ledger
    }

    const fn front(&self, line: Line) -> &Front {
        &self.fronts[line as usize]
    }

    /// Asks for what the next call of a line costs, again if its time is long over.
    pub(super) fn ask(&mut self, line: Line, cost: u64, now: ProcessingTime) {
        self.asked_at = now;
        let front = &mut self.fronts[line as usize];
        // What was not used in time has come again by now, unless others have taken it: it would be
        // there twice if it were given back to a limit that does not know who has taken it.
        if let Some(over) = front.place.take_if(|it| self.is_rate && now >= it.ready_at + LATEST) {
            self.ledger.forgo(over.cost);
        }
        let known = front.place.unwrap_or(Place { cost: 0, ready_at: ProcessingTime::ZERO });
        if known.cost >= cost || now < front.again_at {
            return;
        }
        front.again_at = ProcessingTime::ZERO;
        match self.ledger.ask(cost - known.cost, now) {
            Answer::Ticket(at) => {
                front.place = Some(Place { cost, ready_at: known.ready_at.max(at) });
            }
            Answer::At(again_at) => front.again_at = again_at,
            Answer::OnSettle => front.again_at = ProcessingTime::NEVER,
            Answer::Never(spent) => front.spent = Some(spent),
        }
    }

    /// Gives back what was taken for a call that waits; a place in line is kept.
    pub(super) fn give_back(&mut self, line: Line) {
        let front = &mut self.fronts[line as usize];
        if let Some(taken) = front.place.take_if(|_| !self.is_rate) {
            self.ledger.settle(taken.cost, 0);
        }
    }

    /// Returns whether the next call of a line was refused by a limit that is not a rate.
    pub(super) fn is_lacking(&self, line: Line) -> bool {
        !self.is_rate && self.front(line).again_at > ProcessingTime::ZERO
    }

    /// Returns why a call of a line will never start that costs as much.
    pub(super) fn spent(&self, line: Line, cost: u64) -> Option<Spent> {
        self.front(line).spent.filter(|it| it.cost <= cost)
    }

    /// Asks again for what was never to be there: a budget may have been raised. It holds
    /// nothing of it.
    pub(super) fn ask_again(&mut self, line: Line, cost: u64, now: ProcessingTime) {
        if !self.is_rate && self.fronts[line as usize].spent.take().is_some() {
            self.ask(line, cost, now);
            self.give_back(line);
        }
    }

    /// Returns when a call of a line may start that costs as much; a point before now: at once.
    pub(super) fn ready_at(&self, line: Line, cost: u64) -> ProcessingTime {
        let front = self.front(line);
        match front.place {
            _ if cost == 0 => ProcessingTime::ZERO,
            Some(place) if place.cost >= cost => place.ready_at,
            _ if self.spent(line, cost).is_some() => ProcessingTime::NEVER,
            _ => front.again_at,
        }
    }

    /// Takes the place of a call that starts, and settles what it costs.
    pub(super) fn take(&mut self, line: Line, cost: u64) {
        if cost > 0 {
            let stood_for = self.fronts[line as usize].place.take().map_or(0, |it| it.cost);
            self.in_flight = self.in_flight.saturating_add(stood_for);
            self.recharge(stood_for, cost);
        }
    }

    /// Sets right what a call was charged that goes on.
    pub(super) fn recharge(&mut self, taken: u64, anew: u64) {
        if taken != anew {
            self.in_flight = self.in_flight.saturating_sub(taken).saturating_add(anew);
            self.ledger.recharge(taken, anew);
            self.end_wait();
        }
    }

    /// Corrects what a call was charged that has ended.
    pub(super) fn settle(&mut self, taken: u64, actual: u64) {
        self.in_flight = self.in_flight.saturating_sub(taken);
        if !self.is_rate || taken != actual {
            self.ledger.settle(taken, actual);
            self.end_wait();
        } else {
            self.ledger.end(taken);
        }
    }

    /// Something was settled, which calls may have waited for, however long they were to wait for others.
    /// What was spent may be there again.
    fn end_wait(&mut self) {
        if self.is_rate {
            return;
        }
        for front in &mut self.fronts {
            (front.spent, front.again_at) = (None, ProcessingTime::ZERO);
        }
    }
}

impl Drop for Standing {
    /// Gives back places whose time has not come yet. Of one whose time has come nobody knows here whether it is
    /// over by now. Calls in flight are cut off: nobody will know what they have cost.
    fn drop(&mut self) {
        for place in self.fronts.iter().filter_map(|it| it.place) {
            if self.is_rate && place.ready_at <= self.asked_at {
                self.ledger.forgo(place.cost);
            } else {
                self.ledger.settle(place.cost, 0);
            }
        }
        match self.in_flight {
            0 => {}
            charged if self.is_rate => self.ledger.end(charged),
            charged => self.ledger.settle(charged, charged),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::policy::LimitLeft;

    /// A rate that always has permits, and counts those that have not ended.
    #[derive(Debug, Default)]
    struct Counting(Mutex<i64>);

    impl Counting {
        fn add(&self, taken: i64) {
            *self.0.lock().unwrap() += taken;
        }
    }

    fn signed(permits: u64) -> i64 {
        i64::try_from(permits).unwrap()
    }

    impl Ledger for Counting {
        fn ask(&self, cost: u64, now: ProcessingTime) -> Answer {
            self.add(signed(cost));
            Answer::Ticket(now)
        }

        fn settle(&self, taken: u64, _actual: u64) {
            self.add(-signed(taken));
        }

        fn end(&self, taken: u64) {
            self.add(-signed(taken));
        }

        fn forgo(&self, taken: u64) {
            self.add(-signed(taken));
        }

        fn recharge(&self, taken: u64, anew: u64) {
            self.add(signed(anew) - signed(taken));
        }

        fn lower_to(
            &self,
            _: &LimitLeft,
            in_flight: u64,
            _: ProcessingTime,
            _: ProcessingTime,
        ) -> u64 {
            in_flight
        }

        fn drain(&self, _owed: u64, _now: ProcessingTime) {}
    }

    #[test]
    fn each_permit_of_a_rate_ends_once_whatever_becomes_of_it() {
        let ledger = Arc::new(Counting::default());
        let left = || *ledger.0.lock().unwrap();
        let mut standing = Standing::new(Arc::clone(&ledger) as Arc<dyn Ledger>, true);
        let at = |ms: u64| ProcessingTime::ZERO + Duration::from_millis(ms);

        // One costs something else than was asked for when it starts, and again while it goes on.
        standing.ask(Line::Records, 95, at(7));
        standing.take(Line::Records, 97);
        standing.recharge(97, 91);
        assert_eq!(left(), 91);
        standing.settle(91, 72);
        assert_eq!(left(), 0);

        // One waits for another limit for too long.
        standing.ask(Line::Records, 95, at(7));
        standing.ask(Line::Records, 13, at(7) + LATEST);
        assert_eq!(left(), 13);
        standing.take(Line::Records, 13);
        standing.settle(13, 13);
        assert_eq!(left(), 0);

        // A task ends with a call in flight, and with a place.
        standing.ask(Line::Records, 31, at(500));
        standing.take(Line::Records, 31);
        standing.ask(Line::Records, 37, at(500));
        standing.ask(Line::Hedges, 41, at(500));
        assert_eq!(left(), 31 + 37 + 41);
        drop(standing);
        assert_eq!(left(), 0);
    }
}
