// SPDX-License-Identifier: Apache-2.0
//! Workers begin calls with what their shares grant. They use their limits and do not exceed them,
//! while some stand still, die or join, and while nobody reaches the server.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use proptest::test_runner::Config as ProptestConfig;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use sparkawait_lease::{Asked, EVERY, Order, Server, Share, Terms};

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// A worker whose calls take some time; its clock is `ahead` of the server's.
struct Worker {
    share: Share,
    ahead: u64,
    /// When its calls end, what they took and what they cost.
    calls: VecDeque<(u64, u64, u64)>,
    /// Calls that it has to make.
    rows: u64,
    asks_at: u64,
    speaks_at: u64,
    stands_until: u64,
    /// An exchange under way: when it arrives, and when its answer does.
    under_way: Option<(u64, u64)>,
    is_dead: bool,
    /// Whether it reaches the server.
    is_cut: bool,
}

struct World {
    terms: Terms,
    /// What tasks say the limit is.
    said: Terms,
    server: Server,
    workers: Vec<Worker>,
    now: u64,
    /// What the clock of the server said last, which does not go back here.
    served: u64,
    random: StdRng,
    /// When calls began, in the server's time, and what they cost.
    begun: Vec<(u64, u64)>,
    most_flying: u64,
    latency: u64,
    /// And so much longer at most.
    spread: u64,
    /// Of so many calls all but one cost what they take; 0: some do by chance.
    exact: u64,
    /// What a call takes and, at most, costs.
    cost: u64,
    /// So much more a call is charged than it asked for, of some that is less.
    dearer: u64,
    /// Whether replies say that the service has all of it left.
    tells: bool,
    /// So many calls each worker has room for.
    room: usize,
    reached: bool,
    ended: BTreeMap<&'static str, u64>,
}

impl World {
    fn new(terms: Terms, seed: u64) -> Self {
        Self {
            terms,
            said: terms,
            server: Server::default(),
            workers: Vec::new(),
            now: 97 * SECOND,
            served: 0,
            random: StdRng::seed_from_u64(seed),
            begun: Vec::new(),
            most_flying: 0,
            latency: 37 * MILLISECOND,
            spread: 0,
            exact: 0,
            cost: 1,
            dearer: 0,
            tells: false,
            room: usize::MAX,
            reached: true,
            ended: BTreeMap::new(),
        }
    }

    fn join(&mut self, rows: u64) {
        let ahead = self.random.random_range(0..61 * SECOND);
        let name = format!("w{}", self.workers.len());
        self.workers.push(Worker {
            share: Share::new(self.said, &name, Some(7), true, self.now + ahead),
            ahead,
            calls: VecDeque::new(),
            rows,
            asks_at: 0,
            speaks_at: 0,
            stands_until: 0,
            under_way: None,
            is_dead: false,
            is_cut: false,
        });
    }

    /// Lets a millisecond pass.
    fn step(&mut self) {
        self.now += MILLISECOND;
        for at in 0..self.workers.len() {
            let it = &mut self.workers[at];
            if !it.is_dead && it.stands_until <= self.now {
                self.talk(at);
                self.work(at);
            }
        }
        let alive = self.workers.iter();
        let flying = alive.map(|it| it.calls.iter().map(|it| it.1).sum::<u64>()).sum();
        self.most_flying = self.most_flying.max(flying);
    }

    fn talk(&mut self, at: usize) {
        let (now, it) = (self.now, &mut self.workers[at]);
        let here = now + it.ahead;
        match it.under_way {
            Some((arrives, answered)) if answered <= now => {
                // It was sent then, and is made when it arrives; nobody else did so meanwhile.
                let said = it.share.exchange(here);
                self.served = self.served.max(arrives);
                let answer = self.server.exchange("limit", self.said, &said, self.served);
                it.share.answered(answer, here, it.speaks_at + it.ahead);
                it.under_way = None;
            }
            None if it.speaks_at <= now && it.share.due_at().is_some_and(|due| due <= here) => {
                it.share.exchange(here);
                it.speaks_at = now + EVERY;
                if self.reached && !it.is_cut {
                    let trip = self.random.random_range(0..7 * MILLISECOND);
                    it.under_way = Some((now + trip / 2, now + trip));
                } else {
                    it.share.unanswered(it.speaks_at + it.ahead);
                }
            }
            Some(_) | None => {}
        }
    }

    fn work(&mut self, at: usize) {
        let (now, it) = (self.now, &mut self.workers[at]);
        let here = now + it.ahead;
        while it.calls.front().is_some_and(|call| call.0 <= now) {
            let Some((_, taken, cost)) = it.calls.pop_front() else { break };
            if matches!(self.terms, Terms::Rate { .. }) {
                if taken == cost {
                    it.share.end(taken);
                } else {
                    it.share.settle(taken, cost);
                }
                if let Terms::Rate { burst, .. } = self.terms
                    && self.tells
                {
                    it.share.lower_to(burst);
                }
            } else {
                it.share.settle(taken, cost);
                // What was settled may be what it waits for.
                it.asks_at = 0;
            }
        }
        while it.rows > 0 && it.asks_at <= now && it.calls.len() < self.room {
            match it.share.ask(self.cost, here) {
                Asked::Granted => {
                    it.rows -= 1;
                    let costs_all = self.exact > 0 && self.random.random_range(0..self.exact) > 0;
                    let least = if costs_all { self.cost } else { self.cost.div_ceil(2) };
                    let cost = self.random.random_range(least..=self.cost);
                    let ends = now + self.latency + self.random.random_range(0..=self.spread);
                    let place = it.calls.partition_point(|call| call.0 <= ends);
                    let mut taken = self.cost;
                    if self.dearer > 0 && it.rows.is_multiple_of(3) {
                        let least = taken.saturating_sub(self.dearer).max(cost);
                        taken = self.random.random_range(least..=taken + self.dearer);
                        it.share.recharge(self.cost, taken);
                    }
                    it.calls.insert(place, (ends, taken, cost));
                    self.begun.push((now, cost));
                    *self.ended.entry("begun").or_default() += 1;
                }
                Asked::At(again) => {
                    assert!(again > here, "it asks again later");
                    it.asks_at = (again - it.ahead).max(now + 1);
                }
                Asked::Never(left) => {
                    assert!(left < self.cost);
                    *self.ended.entry("refused").or_default() += it.rows;
                    it.rows = 0;
                }
            }
        }
    }

    /// Makes something else of the limit, which holds in half a second.
    fn set(&mut self, terms: Terms) {
        let order = Order { said: self.said, anew: Some(terms), begins_empty: true };
        self.served = self.served.max(self.now);
        self.server.order("limit", &order, self.served);
        self.terms = terms;
    }

    fn check_rate(&self) {
        self.check_rate_from(0);
    }

    /// Checks it for the calls that begin at `since` or later.
    fn check_rate_from(&self, since: u64) {
        let Terms::Rate { permits, period, burst } = self.terms else { return };
        let begun: Vec<_> = self.begun.iter().filter(|it| it.0 >= since).collect();
        for (at, first) in begun.iter().enumerate().step_by(13) {
            let mut sum = 0;
            for one in &begun[at..] {
                sum += one.1;
                let window = one.0 - first.0 + MILLISECOND;
                assert!(
                    sum * period <= burst.max(self.cost) * period + window * permits,
                    "{sum} within {window} us of {:?}",
                    self.terms
                );
            }
        }
    }

    fn spent(&self) -> u64 {
        self.begun.iter().map(|it| it.1).sum()
    }

    fn run(&mut self, time: u64) {
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
    }
}

fn rate(permits: u64, burst: u64) -> Terms {
    Terms::Rate { permits, period: SECOND, burst }
}

#[test]
fn one_busy_worker_beside_three_idle_ones_uses_the_limit() {
    let mut world = World::new(rate(500, 500), 0x5eed);
    for rows in [u64::MAX, 0, 0, 0] {
        world.join(rows);
    }
    world.run(20 * SECOND);
    world.check_rate();
    let begun = world.begun.len();
    assert!((9_500..=10_500).contains(&begun), "{begun}");
}

#[test]
fn workers_that_call_now_and_then_leave_the_limit_to_the_one_that_is_busy() {
    let mut world = World::new(rate(500, 500), 0x5eed);
    for _ in 0..4 {
        world.join(0);
    }
    world.workers[0].rows = u64::MAX;
    let mut rare = 0;
    for round in 0..60 {
        for worker in &mut world.workers[1..] {
            worker.rows += u64::from(round % 2 == 0);
            rare += u64::from(round % 2 == 0);
        }
        world.run(331 * MILLISECOND);
    }
    world.check_rate();
    assert!(world.begun.len() as u64 >= 9_300, "{} and {rare}", world.begun.len());
    assert!(world.workers[1..].iter().map(|it| it.rows).sum::<u64>() < 7, "nobody starves");
}

#[test]
fn dear_calls_whose_costs_are_settled_use_the_limit() {
    // 200 000 tokens a minute; a call takes 1 000 and costs 750.
    let terms = Terms::Rate { permits: 200_000, period: 60 * SECOND, burst: 5_003 };
    let mut world = World::new(terms, 0x5eed);
    world.cost = 1_000;
    for rows in [u64::MAX, 0, 0, 0] {
        world.join(rows);
    }
    world.run(60 * SECOND);
    world.check_rate();
    assert!((190_000..=206_000).contains(&world.spent()), "{}", world.spent());
}

#[test]
fn what_calls_were_charged_for_nothing_is_used_by_others() {
    // 200 000 tokens a minute, with the second's worth that is saved if nothing else is said.
    let terms = Terms::Rate { permits: 200_000, period: 60 * SECOND, burst: 3_333 };
    // A call takes 1 000. Of some it is known when they end that they cost as much.
    for (latency, spread, exact) in
        [(37, 0, 0), (297, 0, 0), (597, 0, 0), (97, 997, 0), (297, 0, 3)]
    {
        let mut world = World::new(terms, 0x5eed);
        (world.cost, world.exact) = (1_000, exact);
        (world.latency, world.spread) = (latency * MILLISECOND, spread * MILLISECOND);
        for rows in [u64::MAX, 13, 13, 13] {
            world.join(rows);
        }
        world.run(120 * SECOND);
        world.check_rate();
        let used = world.spent();
        assert!((380_000..=404_000).contains(&used), "{used}: {latency}, {spread}, {exact}");
    }
}

/// Eight workers whose calls take 95 of 200 000 tokens a minute for some seconds, and cost 72.
fn calls_of_a_model() -> World {
    let terms = Terms::Rate { permits: 200_000, period: 60 * SECOND, burst: 10_000 };
    let mut world = World::new(terms, 0x5eed);
    world.cost = 95;
    (world.latency, world.spread) = (797 * MILLISECOND, 997 * MILLISECOND);
    for _ in 0..8 {
        world.join(u64::MAX);
    }
    world
}

fn check_use_of_tokens(world: &mut World) {
    world.run(120 * SECOND);
    world.check_rate();
    let used = world.spent();
    assert!((380_000..=410_000).contains(&used), "{used}");
}

#[test]
fn what_calls_did_not_need_is_used_where_the_service_says_that_there_is_enough() {
    let mut world = calls_of_a_model();
    world.tells = true;
    check_use_of_tokens(&mut world);
}

#[test]
fn what_calls_did_not_need_is_used_where_prices_change_between_asking_and_calling() {
    let mut world = calls_of_a_model();
    world.dearer = 7;
    check_use_of_tokens(&mut world);
}

#[test]
fn calls_at_a_time_are_all_used_and_a_newcomer_gets_its_part() {
    let mut world = World::new(Terms::Calls(500), 0x5eed);
    world.latency = 293 * MILLISECOND;
    world.join(u64::MAX);
    world.run(10 * SECOND);
    assert!((450..=500).contains(&world.most_flying), "{}", world.most_flying);
    world.join(u64::MAX);
    world.run(20 * SECOND);
    assert!(world.most_flying <= 500);
    let shares: Vec<usize> = world.workers.iter().map(|it| it.calls.len()).collect();
    assert!(shares.iter().sum::<usize>() >= 440 && shares[1] >= 150, "{shares:?}");
}

#[test]
fn what_a_task_does_not_need_any_more_of_a_budget_is_there_for_others() {
    let mut world = World::new(Terms::Budget(20_000), 0x5eed);
    world.cost = 150;
    for rows in [67, 61, 997, 997] {
        world.join(rows);
    }
    world.run(40 * SECOND);
    let spent = world.spent();
    assert!((19_800..=20_000).contains(&spent), "{spent}");
    assert!(world.workers.iter().all(|it| it.rows == 0), "all have ended or were refused");
    assert!(world.ended["refused"] > 0);
}

#[test]
fn a_worker_that_stands_still_does_not_use_what_it_had() {
    let mut world = World::new(rate(97, 97), 0x5eed);
    world.join(u64::MAX);
    world.join(u64::MAX);
    world.run(3 * SECOND);
    let begun = world.begun.len();
    world.workers[0].stands_until = world.now + 3 * SECOND;
    world.run(7 * SECOND);
    world.check_rate();
    assert!(world.begun.len() - begun > 9 * 67);
}

#[test]
fn workers_that_all_stand_still_do_not_use_what_they_had() {
    // What it saves is less than what all of them have in hand.
    let mut world = World::new(rate(97, 7), 0x5eed);
    for _ in 0..7 {
        world.join(u64::MAX);
    }
    for _ in 0..13 {
        world.run(1_103 * MILLISECOND);
        for worker in &mut world.workers {
            worker.stands_until = world.now + 331 * MILLISECOND;
        }
    }
    world.check_rate();
}

#[test]
fn when_the_server_is_lost_calls_wait_until_it_is_back() {
    let mut world = World::new(rate(97, 97), 0x5eed);
    for _ in 0..7 {
        world.join(u64::MAX);
    }
    world.run(3 * SECOND);
    world.reached = false;
    world.run(SECOND);
    let begun = world.begun.len();
    world.run(61 * SECOND);
    assert_eq!(world.begun.len(), begun, "nothing begins without a lease");
    world.reached = true;
    world.run(5 * SECOND);
    world.check_rate();
    let again = world.begun.len() - begun;
    assert!(again > 400, "{again}");
}

#[test]
fn workers_that_lose_the_server_leave_the_limit_to_those_that_have_it() {
    let mut world = World::new(rate(97, 97), 0x5eed);
    for _ in 0..7 {
        world.join(u64::MAX);
    }
    world.run(3 * SECOND);
    for worker in &mut world.workers[..3] {
        worker.is_cut = true;
    }
    let begun = world.begun.len();
    world.run(47 * SECOND);
    for worker in &mut world.workers {
        worker.is_cut = false;
    }
    world.run(3 * SECOND);
    world.check_rate();
    let more = world.begun.len() - begun;
    assert!((4_700..=4_850).contains(&more), "50 seconds of 97: {more}");
}

#[test]
fn where_nobody_ever_reaches_the_server_each_has_its_part() {
    let mut world = World::new(rate(97, 97), 0x5eed);
    world.reached = false;
    for _ in 0..7 {
        world.join(u64::MAX);
    }
    world.run(29 * SECOND);
    assert_eq!(world.begun.len(), 0, "it may come yet");
    world.run(20 * SECOND);
    world.check_rate();
    let begun = world.begun.len();
    assert!((1_600..=1_843).contains(&begun), "19 seconds of 97: {begun}");
}

#[test]
fn a_worker_that_had_nothing_to_say_for_long_asks_before_it_begins_a_call() {
    let mut world = World::new(rate(3, 1), 0x5eed);
    for _ in 0..7 {
        world.join(1);
    }
    world.run(5 * SECOND);
    world.run(41 * SECOND);
    for worker in &mut world.workers {
        worker.rows = 1;
    }
    world.run(5 * SECOND);
    world.check_rate();
    assert_eq!(world.begun.len(), 14);
}

#[test]
fn a_rate_that_is_lowered_or_raised_holds_half_a_second_later() {
    let slow = |permits| Terms::Rate { permits, period: 60 * SECOND, burst: 1 };
    // With calls that wait for many seconds, too.
    for (before, after, cost) in [
        (rate(600, 600), rate(60, 60), 1),
        (rate(60, 60), rate(600, 600), 1),
        (rate(600, 600), rate(13, 3), 7),
        (slow(10), rate(97, 97), 1),
        (rate(97, 97), slow(10), 1),
        (slow(10), slow(1), 1),
        (rate(3, 1), rate(997, 997), 5),
    ] {
        for cut in 0..3 {
            let mut world = World::new(before, 0x5eed);
            world.cost = cost;
            for rows in [u64::MAX, u64::MAX, u64::MAX, 0] {
                world.join(rows);
            }
            world.run(13 * SECOND);
            world.check_rate();
            // One of them has lost the server, and does not hear of it.
            world.workers[cut].is_cut = true;
            world.set(after);
            world.run(500 * MILLISECOND);
            let (at, begun) = (world.now, world.begun.len());
            let Terms::Rate { permits, period, .. } = after else { return };
            let time = if period > SECOND { 67 * SECOND } else { 7 * SECOND };
            world.run(time);
            world.check_rate_from(at);
            let spent: u64 = world.begun[begun..].iter().map(|it| it.1).sum();
            let due = time * permits / period;
            // What calls cost less than they take comes back in part.
            let least = if cost == 1 { 95 * due / 100 } else { due / 2 };
            assert!(spent + cost >= least, "{spent} of {due}: {before:?}, {after:?}, {cut}");
        }
    }
}

#[test]
fn calls_at_a_time_that_are_fewer_hold_as_soon_as_those_in_flight_have_ended() {
    let mut world = World::new(Terms::Calls(500), 0x5eed);
    world.latency = 293 * MILLISECOND;
    for _ in 0..3 {
        world.join(u64::MAX);
    }
    world.run(10 * SECOND);
    world.set(Terms::Calls(61));
    world.run(500 * MILLISECOND + world.latency);
    world.most_flying = 0;
    world.run(5 * SECOND);
    assert!((50..=61).contains(&world.most_flying), "{}", world.most_flying);
    world.set(Terms::Calls(300));
    world.run(5 * SECOND);
    assert!((250..=300).contains(&world.most_flying), "{}", world.most_flying);
}

/// Who has what it needs has nothing to ask for, and hears of it all the same.
#[test]
fn calls_at_a_time_that_are_fewer_hold_also_where_nobody_lacks_any() {
    for latency in [53, 293, 7_013, 41_003] {
        let mut world = World::new(Terms::Calls(97), 0x5eed);
        (world.latency, world.room) = (latency * MILLISECOND, 31);
        world.spread = world.latency / 3;
        for _ in 0..3 {
            world.join(u64::MAX);
        }
        world.run(10 * SECOND + 2 * world.latency);
        assert_eq!(world.most_flying, 93);
        world.set(Terms::Calls(13));
        world.run(500 * MILLISECOND);
        let begun = world.begun.len();
        world.run(world.latency + world.spread);
        assert!(world.begun.len() - begun <= 2 * 13, "{latency}: {}", world.begun.len() - begun);
        world.most_flying = 0;
        world.run(5 * SECOND);
        assert!((7..=13).contains(&world.most_flying), "{latency}: {}", world.most_flying);
    }
}

#[test]
fn a_budget_that_is_raised_is_there_for_rows_that_come_later() {
    let mut world = World::new(Terms::Budget(97), 0x5eed);
    world.join(200);
    world.run(5 * SECOND);
    assert_eq!((world.spent(), world.workers[0].rows), (97, 0));
    world.set(Terms::Budget(131));
    // It has heard long ago that nothing is left, and asks again.
    world.workers[0].rows = 31;
    world.run(500 * MILLISECOND);
    assert_eq!(world.ended["refused"], 103);
    world.workers[0].rows = 200;
    world.run(5 * SECOND);
    assert_eq!(world.spent(), 131);
}

#[test]
fn calls_at_a_time_come_back_from_a_worker_that_is_silent_for_long() {
    let mut world = World::new(Terms::Calls(97), 0x5eed);
    world.latency = 97 * SECOND;
    world.join(50);
    world.run(5 * SECOND);
    world.workers[0].is_dead = true;
    let flying = world.workers[0].calls.len() as u64;
    world.latency = 100 * MILLISECOND;
    world.join(u64::MAX);
    world.run(20 * SECOND);
    assert!(world.most_flying <= 97);
    assert!(world.workers[1].calls.len() as u64 <= 97 - flying);
    world.run(20 * SECOND);
    assert!(world.workers[1].calls.len() > 80, "{}", world.workers[1].calls.len());
}

#[test]
fn a_server_that_forgets_is_exceeded_by_what_was_in_flight_and_only_so_long() {
    let mut world = World::new(Terms::Calls(20), 0x5eed);
    world.latency = 7 * SECOND;
    world.join(u64::MAX);
    world.join(u64::MAX);
    world.run(13 * SECOND);
    assert!(world.most_flying <= 20);
    // Calls that never end hold what they hold.
    world.server = Server::default();
    world.run(16 * SECOND);
    assert!(world.most_flying <= 40, "{}", world.most_flying);
    world.most_flying = 0;
    world.run(61 * SECOND);
    assert!((17..=20).contains(&world.most_flying), "{}", world.most_flying);
}

#[test]
fn a_worker_that_was_silent_comes_back_as_another_one() {
    let mut world = World::new(Terms::Calls(13), 0x5eed);
    world.latency = 67 * SECOND;
    world.join(13);
    world.run(5 * SECOND);
    let begun = world.begun.len();
    world.workers[0].stands_until = world.now + 40 * SECOND;
    world.workers[0].rows = 13;
    world.run(42 * SECOND);
    let more = world.begun.len() - begun;
    assert!(more > 0, "others may begin them, and it may, too");
    world.run(60 * SECOND);
    let flying = world.workers[0].calls.len();
    assert!(flying <= 13, "those that had begun before come back to nobody: {flying}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_limit_is_exceeded_whatever_happens_to_workers(
        seed: u64,
        kind in 0..3,
        permits in 1_u64..600,
        burst in 1_u64..600,
        cost in 1_u64..7,
    ) {
        let terms = match kind {
            0 => rate(permits, burst),
            1 => Terms::Budget(permits),
            _ => Terms::Calls(permits),
        };
        let mut world = World::new(terms, seed);
        world.cost = cost;
        // A call of a budget or of calls at a time may be dearer than what there is.
        world.dearer = if kind == 0 { seed % 3 } else { 0 };
        world.tells = seed.is_multiple_of(2);
        world.join(997);
        for _ in 0..40 {
            let count = world.workers.len();
            let at = world.random.random_range(0..count);
            let still = world.random.random_range(0..5 * SECOND);
            match world.random.random_range(0..9) {
                0 if count < 7 => world.join(997),
                1 => world.workers[at].stands_until = world.now + still,
                2 if count > 1 => world.workers[at].is_dead = true,
                3 => world.workers[at].rows += 131,
                4 => world.reached = !world.reached,
                5 => world.workers[at].is_cut ^= true,
                _ => {}
            }
            let time = world.random.random_range(0..600 * MILLISECOND);
            world.run(time);
        }
        world.check_rate();
        if kind == 1 {
            prop_assert!(world.spent() <= permits, "{} of {permits}", world.spent());
        }
        if kind == 2 {
            // Those that died are still in flight, and so counted, as long as the server holds them.
            prop_assert!(world.most_flying <= permits.max(cost));
        }
    }
}
