// SPDX-License-Identifier: Apache-2.0
//! One share and its server: what calls settle, in which order they may end.

use sparkawait_lease::{Asked, EVERY, Order, Server, Share, State, Terms};

const SECOND: u64 = 1_000_000;

/// A share and its server, which is reached at once.
struct Pair {
    share: Share,
    server: Server,
    terms: Terms,
    now: u64,
}

impl Pair {
    fn new(terms: Terms) -> Self {
        let now = 97 * SECOND;
        let share = Share::new(terms, "w", Some(7), true, now);
        Self { share, server: Server::default(), terms, now }
    }

    fn talk(&mut self) {
        self.now += EVERY;
        let said = self.share.exchange(self.now);
        let answer = self.server.exchange("limit", self.terms, &said, self.now);
        self.share.answered(answer, self.now, self.now);
    }

    /// Asks until it has an answer that is one.
    fn ask(&mut self, cost: u64) -> Asked {
        for _ in 0..13 {
            match self.share.ask(cost, self.now) {
                Asked::At(_) => self.talk(),
                asked => return asked,
            }
        }
        self.share.ask(cost, self.now)
    }

    /// What was spent, and what is in flight, as the server knows it.
    fn held(&mut self) -> (u64, u64) {
        let order = Order { said: self.terms, anew: None, begins_empty: true };
        match self.server.order("limit", &order, self.now) {
            State::Known { spent, flying, .. } => (spent, flying),
            State::Unused | State::OtherTerms(_) => (u64::MAX, u64::MAX),
        }
    }
}

#[test]
fn calls_of_before_a_silence_and_after_it_are_settled_in_any_order() {
    // One call of 5 goes on while the server is silent; what it had is spent then.
    for (others, raised) in [(vec![1], 1), (vec![3], 1), (vec![1, 1, 1], 1), (vec![1], 4)] {
        let mut pair = Pair::new(Terms::Budget(13));
        assert_eq!(pair.ask(5), Asked::Granted);
        pair.now += 31 * SECOND;
        for cost in &others {
            assert_eq!(pair.ask(*cost), Asked::Granted);
        }
        // Those of after it end first; one of them has become dearer meanwhile, and cheaper again.
        pair.share.recharge(others[0], raised);
        pair.share.recharge(raised, others[0]);
        for cost in &others {
            pair.share.settle(*cost, *cost);
            pair.talk();
        }
        pair.share.settle(5, 5);
        let spent: u64 = 5 + others.iter().sum::<u64>();
        assert_eq!(pair.ask(13), Asked::Never(13 - spent), "{others:?}");
        for _ in 0..3 {
            pair.talk();
        }
        assert_eq!(pair.held(), (spent, 0), "{others:?}");
    }
}

#[test]
fn who_was_silent_for_long_hears_an_answer_that_takes_longer_than_its_calls_have_patience() {
    for terms in [Terms::Calls(13), Terms::Budget(13)] {
        let mut share = Share::new(terms, "w", None, true, 0);
        let mut server = Server::default();
        // The server was not there for half a minute.
        let mut now = 31 * SECOND;
        assert!(matches!(share.ask(3, now), Asked::At(_)));
        let said = share.exchange(now);
        let answer = server.exchange("limit", terms, &said, now);
        for _ in 0..13 {
            now += 7_000;
            assert!(matches!(share.ask(3, now), Asked::At(_)));
        }
        share.answered(answer, now, now);
        assert_eq!(share.ask(3, now), Asked::Granted, "{terms:?}");
    }
}

#[test]
fn costs_that_no_double_holds_are_said_as_the_greatest_one() {
    for terms in [Terms::Budget(13), Terms::Rate { permits: 97, period: SECOND, burst: 97 }] {
        let mut pair = Pair::new(terms);
        for _ in 0..3 {
            assert_eq!(pair.ask(1), Asked::Granted);
        }
        for cost in [u64::MAX, 7, u64::MAX / 2] {
            pair.share.settle(1, cost);
        }
        pair.share.ask(u64::MAX, pair.now);
        pair.now += EVERY;
        let said = pair.share.exchange(pair.now);
        for number in [said.want, said.least, said.charged, said.cost, said.back] {
            assert!(number <= 1 << 53, "{said:?}");
        }
        assert_eq!(said.cost, 1 << 53);
        for _ in 0..3 {
            pair.talk();
        }
        assert!(!matches!(pair.ask(1), Asked::Granted));
    }
}

#[test]
fn calls_at_a_time_that_went_on_through_a_silence_leave_nothing_held_behind() {
    let mut pair = Pair::new(Terms::Calls(13));
    assert_eq!(pair.ask(5), Asked::Granted);
    pair.now += 31 * SECOND;
    assert_eq!(pair.ask(3), Asked::Granted);
    // It waits for another limit, and gives its permits back.
    pair.share.settle(3, 0);
    assert_eq!(pair.ask(3), Asked::Granted);
    pair.share.settle(3, 0);
    pair.share.settle(5, 0);
    for _ in 0..3 {
        pair.talk();
    }
    assert_eq!(pair.held(), (0, 0));
    assert!(pair.share.is_idle(pair.now));
}
