// SPDX-License-Identifier: Apache-2.0
//! However many workers there are, and whatever happens to them, no limit is exceeded.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::test_runner::Config as ProptestConfig;
use sparkawait_lease::{Answer, Exchange, Server, Terms};

const MILLISECOND: u64 = 1_000;
/// Numbers are below 2^53.
const NEVER: u64 = (1 << 53) - 1;

/// A worker that begins calls with its leases.
#[derive(Debug, Default)]
struct Worker {
    said: Exchange,
    /// Permits, from when, until when, and the sum.
    leases: VecDeque<(u64, u64, u64, u64)>,
    /// What each call in flight was charged, and the sum of its lease.
    flying: VecDeque<(u64, u64)>,
}

impl Worker {
    fn new(number: usize) -> Self {
        let said = Exchange { worker: format!("worker {number}"), ..Exchange::default() };
        Self { said, ..Self::default() }
    }

    /// Says what it has done, and what it wants.
    fn exchange(&mut self, server: &mut Server, terms: Terms, want: u64, now: u64) -> Answer {
        self.said.number += 1;
        self.said.want = want;
        self.said.least = want.min(self.said.least);
        let answer = server.exchange("limit", terms, &self.said, now);
        let said = Exchange { worker: self.said.worker.clone(), ..Exchange::default() };
        self.said = Exchange { number: self.said.number, since: NEVER, ..said };
        if let Answer::Leases(leases) = &answer {
            let leases = leases.iter().map(|it| (it.amount, now + it.from, now + it.until, it.sum));
            self.leases.extend(leases);
        }
        answer
    }

    /// Begins a call of so many permits, if a lease has them at this time; those whose time is over are
    /// gone.
    fn begin(&mut self, cost: u64, now: u64) -> bool {
        while self.leases.front().is_some_and(|it| it.0 == 0 || it.2 <= now) {
            let (amount, ..) = self.leases.pop_front().unwrap();
            self.said.back += amount;
        }
        match self.leases.front_mut() {
            Some((amount, from, _, sum)) if *amount >= cost && *from <= now => {
                *amount -= cost;
                self.flying.push_back((cost, *sum));
                true
            }
            _ => false,
        }
    }

    /// Ends its oldest call, which has cost as much.
    fn end(&mut self, cost: impl FnOnce(u64) -> u64) -> u64 {
        let Some((charged, sum)) = self.flying.pop_front() else { return 0 };
        let cost = cost(charged);
        self.said.charged += charged;
        self.said.cost += cost;
        self.said.since = self.said.since.min(sum);
        cost
    }
}

/// Returns how many permits an answer has.
fn granted(answer: &Answer) -> u64 {
    match answer {
        Answer::Leases(leases) => leases.iter().map(|it| it.amount).sum(),
        _ => 0,
    }
}

/// What somebody does next, after so many microseconds.
#[derive(Clone, Copy, Debug)]
struct Step {
    after: u64,
    worker: usize,
    does: Does,
}

#[derive(Clone, Copy, Debug)]
enum Does {
    Exchange(u64),
    Begin(u64),
    End(u64),
}

fn steps(longest: u64) -> impl Strategy<Value = Vec<Step>> {
    let does = prop_oneof![
        3 => (0_u64..23).prop_map(Does::Exchange),
        6 => (1_u64..4).prop_map(Does::Begin),
        4 => (0_u64..4).prop_map(Does::End),
    ];
    let step = (0..longest, 0_usize..3, does);
    prop::collection::vec(step, 1..400).prop_map(|all| {
        all.into_iter().map(|(after, worker, does)| Step { after, worker, does }).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn calls_begin_at_most_as_a_rate_says_in_any_window(
        (permits, burst) in (1_u64..97, 1_u64..41),
        begins_empty: bool,
        steps in steps(97 * MILLISECOND),
    ) {
        let period = 1_013 * MILLISECOND;
        let terms = Terms::Rate { permits, period, burst };
        let (mut server, mut now) = (Server::default(), 7_000 * MILLISECOND);
        let mut workers: Vec<Worker> = (0..3).map(Worker::new).collect();
        let mut begun: Vec<(u64, u64)> = Vec::new();
        let mut costs = [const { VecDeque::new() }; 3];
        for step in steps {
            now += step.after;
            let worker = &mut workers[step.worker];
            match step.does {
                Does::Exchange(want) => {
                    worker.said.begins_empty = begins_empty;
                    worker.said.least = 3;
                    worker.exchange(&mut server, terms, want, now);
                }
                // Each call is charged 3, and turns out to cost less.
                Does::Begin(cost) => {
                    if worker.begin(3, now) {
                        begun.push((now, cost));
                        costs[step.worker].push_back(cost);
                    }
                }
                Does::End(_) => {
                    let cost = costs[step.worker].pop_front();
                    worker.end(|_| cost.unwrap_or_default());
                }
            }
        }
        for (at, first) in begun.iter().enumerate() {
            let mut sum = 0;
            for one in &begun[at..] {
                sum += one.1;
                // A call may cost more than the limit saves: then it waits for itself.
                let saved = burst.max(3);
                let window = one.0 - first.0;
                prop_assert!(
                    sum * period <= saved * period + window * permits,
                    "{sum} of {terms:?} within {window}"
                );
            }
        }
    }

    #[test]
    fn no_more_is_spent_than_a_budget_has_although_workers_fall_silent(
        total in 1_u64..97,
        steps in steps(7_000 * MILLISECOND),
    ) {
        let terms = Terms::Budget(total);
        let (mut server, mut now, mut spent) = (Server::default(), 0, 0);
        let mut workers: Vec<Worker> = (0..3).map(Worker::new).collect();
        for step in steps {
            now += step.after;
            let worker = &mut workers[step.worker];
            match step.does {
                Does::Exchange(want) => {
                    worker.said.least = 3;
                    worker.exchange(&mut server, terms, want, now);
                }
                Does::Begin(cost) => { worker.begin(cost, now); }
                Does::End(less) => spent += worker.end(|charged| charged.saturating_sub(less)),
            }
        }
        let flying: u64 = workers.iter().flat_map(|it| &it.flying).map(|it| it.0).sum();
        prop_assert!(spent + flying <= total, "{spent} and {flying} in flight of {total}");
    }

    #[test]
    fn no_more_calls_are_in_flight_than_may_be_as_long_as_workers_speak(
        most in 1_u64..97,
        steps in steps(97 * MILLISECOND),
    ) {
        let terms = Terms::Calls(most);
        let (mut server, mut now) = (Server::default(), 0);
        let mut workers: Vec<Worker> = (0..3).map(Worker::new).collect();
        for step in steps {
            now += step.after;
            let worker = &mut workers[step.worker];
            match step.does {
                Does::Exchange(want) => {
                    worker.said.least = 1;
                    worker.exchange(&mut server, terms, want, now);
                }
                Does::Begin(_) => { worker.begin(1, now); }
                Does::End(_) => { worker.end(|_| 0); }
            }
            let flying = workers.iter().map(|it| it.flying.len() as u64).sum::<u64>();
            prop_assert!(flying <= most);
        }
    }
}

#[test]
fn a_busy_worker_beside_three_idle_ones_gets_what_there_is() {
    let terms = Terms::Rate { permits: 500, period: 1_000 * MILLISECOND, burst: 251 };
    let (mut server, mut begun) = (Server::default(), 0);
    let mut workers: Vec<Worker> = (0..4).map(Worker::new).collect();
    for round in 0..600 {
        let now = round * 100 * MILLISECOND;
        for worker in &mut workers[1..] {
            worker.exchange(&mut server, terms, 0, now);
        }
        let busy = &mut workers[0];
        busy.said.least = 1;
        busy.exchange(&mut server, terms, 97, now);
        begun += (0..97).filter(|_| busy.begin(1, now)).count();
    }
    // A minute of 500 a second, and what it had saved.
    assert!((28_500..=30_251).contains(&begun), "{begun}");
}

#[test]
fn two_workers_that_want_more_than_there_is_share_it() {
    let terms = Terms::Rate { permits: 500, period: 1_000 * MILLISECOND, burst: 251 };
    let mut server = Server::default();
    let mut workers: Vec<Worker> = (0..2).map(Worker::new).collect();
    let mut begun = [0, 0];
    for round in 0..600_u64 {
        for (number, worker) in workers.iter_mut().enumerate() {
            // One asks just before the other: of what has come by then it would get nearly all.
            let now = (round * 100 + 97 * number as u64) * MILLISECOND;
            worker.said.least = 1;
            worker.exchange(&mut server, terms, 997, now);
            begun[number] += (0..997).filter(|_| worker.begin(1, now)).count();
        }
    }
    let all = begun[0] + begun[1];
    assert!(all >= 28_500, "{begun:?}");
    assert!((45..=55).contains(&(100 * begun[0] / all)), "{begun:?}");
}

#[test]
fn what_was_charged_for_nothing_comes_back() {
    // Ten times too much, and twenty calls in flight. The limit saves more than these were charged, or it
    // could not be used.
    let terms = Terms::Rate { permits: 1_000, period: 1_000 * MILLISECOND, burst: 5_003 };
    let (mut server, mut spent) = (Server::default(), 0);
    let mut worker = Worker::new(1);
    worker.said.begins_empty = true;
    for round in 0..600 {
        let now = round * 100 * MILLISECOND;
        worker.said.least = 100;
        worker.exchange(&mut server, terms, 997, now);
        while worker.begin(100, now) {}
        while worker.flying.len() > 20 {
            spent += worker.end(|charged| charged / 10);
        }
    }
    assert!((50_000..=60_000).contains(&spent), "{spent}");
}

#[test]
fn an_exchange_that_is_sent_again_counts_once() {
    let terms = Terms::Budget(13);
    let mut server = Server::default();
    let said = Exchange { worker: "a".into(), number: 7, want: 3, least: 3, ..Exchange::default() };
    let first = server.exchange("limit", terms, &said, 0);

    assert_eq!(server.exchange("limit", terms, &said, 1), first);

    let rest = Exchange { worker: "b".into(), number: 1, want: 10, least: 10, ..said };
    assert_eq!(granted(&server.exchange("limit", terms, &rest, 2)), 10);
}

#[test]
fn a_budget_is_spent_only_when_nothing_is_in_flight() {
    let terms = Terms::Budget(13);
    let mut server = Server::default();
    let mut worker = Worker::new(1);
    worker.said.least = 11;
    worker.exchange(&mut server, terms, 11, 0);
    assert!(worker.begin(11, 0));
    let mut other = Worker::new(2);
    other.said.least = 7;
    assert_eq!(other.exchange(&mut server, terms, 7, 1), Answer::OnSettle(100_000));

    // It has cost 4 of 11, so that there is enough.
    worker.end(|_| 4);
    worker.exchange(&mut server, terms, 0, 2);
    other.said.least = 7;
    assert_eq!(granted(&other.exchange(&mut server, terms, 7, 3)), 7);
    assert!(other.begin(7, 3));
    other.end(|it| it);
    other.said.least = 3;
    assert_eq!(other.exchange(&mut server, terms, 3, 4), Answer::Never(2));
}

#[test]
fn what_a_silent_worker_was_granted_is_over_and_spent_of_a_budget() {
    for (terms, free) in [(Terms::Budget(13), 2), (Terms::Calls(13), 13)] {
        let mut server = Server::default();
        let mut silent = Worker::new(1);
        silent.said.least = 11;
        silent.exchange(&mut server, terms, 11, 0);
        assert!(silent.begin(5, 0));
        silent.exchange(&mut server, terms, 0, 1);

        let mut other = Worker::new(2);
        other.said.least = free + 1;
        let early = other.exchange(&mut server, terms, free + 1, 30_000_001);
        assert_eq!(early, Answer::OnSettle(100_000), "{terms:?}");
        other.said.least = free;
        let late = other.exchange(&mut server, terms, free, 30_000_002);
        assert_eq!(granted(&late), free, "{late:?}");
        assert!(!silent.begin(1, 25_000_000), "it begins none any more");
    }
}

#[test]
fn a_worker_that_holds_something_is_told_where_that_is_not_known() {
    for terms in [Terms::Calls(20), Terms::Budget(20)] {
        let mut server = Server::default();
        let mut worker = Worker::new(0);
        worker.said.least = 1;
        assert!(matches!(worker.exchange(&mut server, terms, 13, 0), Answer::Leases(_)));
        // Redis was flushed, or its memory is full.
        let mut server = Server::default();
        assert_eq!(worker.exchange(&mut server, terms, 3, 100 * MILLISECOND), Answer::Lost);
        assert_eq!(worker.exchange(&mut server, terms, 0, 200 * MILLISECOND), Answer::Lost);
        let mut another = Worker::new(1);
        another.said.least = 1;
        let answer = another.exchange(&mut server, terms, 7, 300 * MILLISECOND);
        assert_eq!(granted(&answer), 7, "{answer:?}");
    }
    // A rate goes on without what was saved.
    let terms = Terms::Rate { permits: 7, period: 1_000 * MILLISECOND, burst: 3 };
    let mut worker = Worker::new(0);
    worker.said.number = 13;
    assert_eq!(worker.exchange(&mut Server::default(), terms, 0, 0), Answer::Noted);
}

#[test]
fn the_same_name_with_other_terms_is_refused() {
    let mut server = Server::default();
    let said = Exchange { worker: "a".into(), number: 1, ..Exchange::default() };
    server.exchange("limit", Terms::Calls(7), &said, 0);

    let answer = server.exchange("limit", Terms::Calls(8), &said, 0);

    assert_eq!(answer, Answer::OtherTerms("calls 7 0 0".to_owned()));
}

#[test]
fn a_limit_goes_on_where_the_clock_of_its_server_is_set_back() {
    let back = 3_607_000 * MILLISECOND;
    let terms = Terms::Rate { permits: 13, period: 1_000 * MILLISECOND, burst: 13 };
    let (mut server, mut worker) = (Server::default(), Worker::new(0));
    let mut now = 2 * back;
    let mut amount = 0;
    for round in 0..100 {
        // Twice: each time it stays behind.
        now = now + 97 * MILLISECOND - if matches!(round, 31 | 67) { back } else { 0 };
        worker.said.least = 1;
        amount += granted(&worker.exchange(&mut server, terms, 3, now));
    }
    // What it saves, and 13/s for 9.7 seconds.
    assert!((110..=139).contains(&amount), "{amount}");

    // And who is silent is forgotten after 30 seconds, not after an hour.
    let terms = Terms::Calls(7);
    let mut workers = [Worker::new(1), Worker::new(2)];
    let mut server = Server::default();
    let mut asks_all = |worker: usize, now| {
        workers[worker].said.least = 7;
        granted(&workers[worker].exchange(&mut server, terms, 7, now)) == 7
    };
    assert!(asks_all(0, 2 * back));
    assert!(!asks_all(1, back));
    assert!(!asks_all(1, back + 29_000 * MILLISECOND));
    assert!(asks_all(1, back + 31_000 * MILLISECOND));
}
