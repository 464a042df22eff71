// SPDX-License-Identifier: Apache-2.0
//! Workers with operators of their own share one limit of a job, over a network that loses, delays and
//! doubles what is said, while some stand still or are killed and the server forgets.
//!
//! ```text
//!   rows --> operator --ask, settle--> share --exchange--> network --> server
//! ```
//!
//! Whatever is drawn: a rate has at most `rate * time + burst` in any window, calls at a time are no more
//! than may be, and a budget is not exceeded. As soon as all is well again, each row has its call or is
//! refused for good. `LEASES=0..100000` names seeds, and each failure says its own.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::num::{NonZeroU64, NonZeroUsize};
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sparkawait_core::element::{Key, StreamElement, StreamRecord};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{
    AsyncWaitOperator, AttemptId, Completion, Config, EndOfInput, Ended, Failure, FailurePolicy,
    OutputMode, Remark, Retry,
};
use sparkawait_core::policy::{
    Answer, Gcra, Ledger, Ledgers, LimitConfig, LimitLeft, PolicyConfig, Price, Rate, Spent,
    Terms as CoreTerms,
};
use sparkawait_core::time::ProcessingTime;
use sparkawait_lease::{Asked, EVERY, Exchange, Server, Share, Terms};

#[path = "../../runtime/tests/support/random.rs"]
mod random;

use random::Random;

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLISECOND;
/// A worker waits so long for an answer, and then says the same over another connection.
const PATIENCE: u64 = 3 * SECOND;
/// How long things go wrong.
const WILD: u64 = 17 * SECOND;
/// What a worker holds that is silent comes back after 30 s; what follows takes some more.
const CALM: u64 = 45 * SECOND;
const SEEDS: std::ops::Range<u64> = 0..60;

/// A share as an operator has it, by the clock of its worker.
#[derive(Debug)]
struct Own {
    share: Share,
    now: u64,
    /// Whose permits it has: it does not know yet that the server has forgotten.
    life: u32,
    /// Whose permits the operator has that no call has begun with, oldest first.
    kept: VecDeque<u32>,
}

#[derive(Clone, Debug)]
struct Limit(Arc<Mutex<Own>>);

impl Ledger for Limit {
    fn ask(&self, cost: u64, at: ProcessingTime) -> Answer {
        let mut own = self.0.lock().unwrap();
        let now = own.now;
        match own.share.ask(cost, now) {
            Asked::Granted => {
                let life = own.life;
                own.kept.push_back(life);
                Answer::Ticket(at)
            }
            Asked::At(again) => Answer::At(at + Duration::from_micros((again - now).max(1))),
            Asked::Never(left) => {
                let total = own.share.total();
                Answer::Never(Spent { limit: 0, total, left, cost })
            }
        }
    }

    fn settle(&self, taken: u64, actual: u64) {
        self.0.lock().unwrap().share.settle(taken, actual);
    }

    fn end(&self, taken: u64) {
        self.0.lock().unwrap().share.end(taken);
    }

    fn recharge(&self, taken: u64, anew: u64) {
        self.0.lock().unwrap().share.recharge(taken, anew);
    }

    fn forgo(&self, taken: u64) {
        self.0.lock().unwrap().kept.pop_front();
        self.settle(taken, 0);
    }

    fn lower_to(&self, _: &LimitLeft, in_flight: u64, _: ProcessingTime, _: ProcessingTime) -> u64 {
        in_flight
    }

    fn drain(&self, _owed: u64, _now: ProcessingTime) {}
}

impl Ledgers for Limit {
    fn open(&self, _limit: usize, _channel: Option<u64>) -> Option<Arc<dyn Ledger>> {
        Some(Arc::new(self.clone()))
    }
}

/// What arrives somewhere.
#[derive(Clone, Debug)]
enum Mail {
    /// At the server. `None`: the worker has hung up, and nobody hears the answer.
    Said(usize, Exchange, Option<u64>),
    /// At a worker, over its connection of this number, by the server of this life.
    Answered(usize, sparkawait_lease::Answer, u64, u32),
    /// A worker gives up waiting for that.
    GivenUp(usize, u64),
    /// A call ends: of a worker, with what it has cost.
    Ended(usize, AttemptId, u64),
    /// A worker that stood still goes on.
    GoesOn,
    /// Something goes wrong.
    Wrong,
}

struct Worker {
    operator: AsyncWaitOperator<u64, (), ()>,
    limit: Limit,
    /// Its clock is so much ahead of that of the server.
    ahead: u64,
    rows: u64,
    emitted: u64,
    refused: Vec<Spent>,
    /// The number of the connection that it waits at.
    connection: u64,
    waits: bool,
    speaks_at: u64,
    stands_until: u64,
    is_dead: bool,
}

/// What calls are at the service.
#[derive(Clone, Copy, Debug)]
struct Called {
    begun: u64,
    ends: u64,
    cost: u64,
    /// The server that gave the permits; a later one does not know of it.
    life: u32,
}

struct World {
    random: Random,
    terms: Terms,
    /// What a call takes.
    cost: u64,
    /// So long calls take, at most.
    longest: u64,
    server: Server,
    /// How often it has forgotten all.
    life: u32,
    workers: Vec<Worker>,
    now: u64,
    mail: BTreeMap<(u64, u64), Mail>,
    posted: u64,
    calls: Vec<Called>,
}

impl World {
    fn draw(seed: u64) -> Self {
        let mut random = Random(seed);
        let mut number = |least: u64, most: u64| least + random.next() % (most - least + 1);
        let (permits, burst) = (number(3, 331), number(1, 97));
        let (cost, longest) = (number(1, 7), number(7, 1_500) * MILLISECOND);
        let terms = match seed % 3 {
            0 => Terms::Rate { permits, period: SECOND, burst },
            1 => Terms::Budget(permits * 7),
            _ => Terms::Calls(permits.max(cost)),
        };
        let mut world = Self {
            terms,
            cost,
            longest,
            server: Server::default(),
            life: 0,
            workers: Vec::new(),
            now: 97 * SECOND,
            mail: BTreeMap::new(),
            posted: 0,
            calls: Vec::new(),
            random,
        };
        for _ in 0..=world.upto(3) {
            world.join();
        }
        let first = world.upto(SECOND);
        world.post(first, Mail::Wrong);
        world
    }

    fn upto(&mut self, most: u64) -> u64 {
        self.random.next() % (most + 1)
    }

    fn post(&mut self, after: u64, mail: Mail) {
        self.posted += 1;
        self.mail.insert((self.now + after, self.posted), mail);
    }

    fn is_wild(&self) -> bool {
        self.now < 97 * SECOND + WILD
    }

    fn join(&mut self) {
        let (ahead, rows) = (self.upto(61 * SECOND), self.upto(131));
        let name = format!("w{}", self.workers.len());
        let now = self.now + ahead;
        // Nobody splits the limit here: a port that is closed has tests of its own.
        let share = Share::new(self.terms, &name, None, true, now);
        let limit =
            Limit(Arc::new(Mutex::new(Own { share, now, life: self.life, kept: VecDeque::new() })));
        let some = |it: u64| NonZeroU64::new(it.max(1)).unwrap();
        let terms = match self.terms {
            Terms::Rate { permits, burst, .. } => CoreTerms::Refills(Gcra::new(
                Rate::new(some(permits), Duration::from_secs(1)).unwrap(),
                some(burst),
            )),
            Terms::Budget(permits) => CoreTerms::Spends(some(permits)),
            Terms::Calls(permits) => CoreTerms::ComesBack(some(permits)),
        };
        let of_call = LimitConfig { cost: self.cost, ..LimitConfig::new(terms) };
        let modes = [OutputMode::Ordered, OutputMode::Unordered, OutputMode::KeyOrdered];
        let mode = modes[self.random.below(3)];
        let mut config = Config::new(mode, NonZeroUsize::new(31).unwrap());
        config.max_concurrency = NonZeroUsize::new(1 + self.random.below(30)).unwrap();
        config.on_failure = FailurePolicy::Emit;
        config.at_end_of_input = EndOfInput::KeepRetrying;
        config.channels = Some(ChannelConfig::single(PolicyConfig::limited(of_call)));
        config.ledgers = Some(Arc::new(limit.clone()));
        self.workers.push(Worker {
            operator: AsyncWaitOperator::new(config),
            limit,
            ahead,
            rows,
            emitted: 0,
            refused: Vec::new(),
            connection: 0,
            waits: false,
            speaks_at: 0,
            stands_until: 0,
            is_dead: false,
        });
    }

    /// Lets time pass up to what happens next.
    fn pass(&mut self, until: u64) -> bool {
        let mut next = self.mail.keys().next().map_or(until, |it| it.0);
        for worker in self.workers.iter_mut().filter(|it| !it.is_dead) {
            let due = worker.operator.poll_timeout();
            let due = due.map_or(until, |it| it.as_nanos().div_ceil(1_000) - worker.ahead);
            let own = worker.limit.0.lock().unwrap();
            let speaks = own.share.due_at().filter(|_| !worker.waits);
            let speaks = speaks.map_or(until, |it| it.saturating_sub(worker.ahead));
            // Rows that left have made room for others.
            let has_room = worker.rows > 0 && worker.operator.free_slots() > 0;
            let feeds = if has_room { self.now } else { until };
            let acts = due.min(speaks.max(worker.speaks_at)).min(feeds);
            next = next.min(acts.max(worker.stands_until));
        }
        self.now = next.max(self.now + 1);
        while let Some(first) = self.mail.first_entry().filter(|it| it.key().0 <= self.now) {
            let mail = first.remove();
            self.open(mail);
        }
        for at in 0..self.workers.len() {
            self.act(at);
        }
        self.now < until
    }

    fn open(&mut self, mail: Mail) {
        match mail {
            Mail::Said(at, said, connection) => {
                // Now and then its clock is set back.
                let back = if self.upto(40) == 0 { 7 * MILLISECOND } else { 0 };
                let answer = self.server.exchange("limit", self.terms, &said, self.now - back);
                let is_lost = self.is_wild() && self.random.in_a_hundred(10);
                if let Some(connection) = connection.filter(|_| !is_lost) {
                    let after = self.trip();
                    self.post(after, Mail::Answered(at, answer, connection, self.life));
                }
            }
            Mail::Answered(at, answer, connection, life) => {
                let (now, worker) = (self.now, &mut self.workers[at]);
                if worker.is_dead || worker.connection != connection || !worker.waits {
                    return;
                }
                if worker.stands_until > now {
                    // It reads it when it goes on.
                    let after = worker.stands_until - now;
                    return self.post(after, Mail::Answered(at, answer, connection, life));
                }
                let mut own = worker.limit.0.lock().unwrap();
                own.share.answered(answer, now + worker.ahead, worker.speaks_at + worker.ahead);
                (worker.waits, own.life) = (false, life);
            }
            Mail::GivenUp(at, connection) => {
                let (now, worker) = (self.now, &mut self.workers[at]);
                if worker.waits && worker.connection == connection {
                    (worker.waits, worker.speaks_at) = (false, now + EVERY);
                    let again = worker.speaks_at + worker.ahead;
                    worker.limit.0.lock().unwrap().share.unanswered(again);
                }
            }
            Mail::Ended(at, attempt, cost) => {
                let (now, worker) = (self.now, &mut self.workers[at]);
                if worker.is_dead {
                    return;
                }
                if worker.stands_until > now {
                    let after = worker.stands_until - now;
                    return self.post(after, Mail::Ended(at, attempt, cost));
                }
                worker.limit.0.lock().unwrap().now = now + worker.ahead;
                let here = ProcessingTime::from_nanos((now + worker.ahead) * 1_000);
                if !matches!(self.terms, Terms::Calls(_)) {
                    worker.operator.remark(attempt, Remark::Cost { limit: 0, cost }, here);
                }
                let good = Completion::answered((), Retry::No);
                worker.operator.handle_completion(attempt, good, here);
            }
            Mail::Wrong if self.is_wild() => {
                self.go_wrong();
                let after = self.upto(2 * SECOND);
                self.post(after, Mail::Wrong);
            }
            Mail::GoesOn | Mail::Wrong => {}
        }
    }

    fn go_wrong(&mut self) {
        let at = self.random.below(self.workers.len());
        match self.upto(6) {
            0 if self.workers.len() < 7 => self.join(),
            // Longer than what it holds is kept for it.
            1 => self.stand(at, 37 * SECOND),
            2 | 3 => self.stand(at, 2 * SECOND),
            4 if self.workers.iter().filter(|it| !it.is_dead).count() > 1 => {
                self.workers[at].is_dead = true;
            }
            // Redis was flushed. A budget needs one that does not forget.
            5 if !matches!(self.terms, Terms::Budget(_)) => {
                self.server = Server::default();
                self.life += 1;
                // The first exchange of a worker, brought late, would make it known again.
                self.mail.retain(|_, it| !matches!(it, Mail::Said(_, _, None)));
            }
            _ => {}
        }
    }

    fn stand(&mut self, at: usize, longest: u64) {
        let still = self.upto(longest);
        self.workers[at].stands_until = self.now + still;
        self.post(still, Mail::GoesOn);
    }

    fn trip(&mut self) -> u64 {
        if self.is_wild() && self.random.in_a_hundred(5) {
            return self.upto(2 * PATIENCE);
        }
        100 + self.upto(3 * MILLISECOND)
    }

    /// Lets a worker do what is due.
    fn act(&mut self, at: usize) {
        let (now, worker) = (self.now, &mut self.workers[at]);
        if worker.is_dead || worker.stands_until > now {
            return;
        }
        let here = now + worker.ahead;
        let mut own = worker.limit.0.lock().unwrap();
        own.now = here;
        let is_due = own.share.due_at().is_some_and(|due| due <= here);
        let said = (is_due && !worker.waits && worker.speaks_at <= now).then(|| {
            (worker.waits, worker.speaks_at) = (true, now + EVERY);
            worker.connection += 1;
            own.share.exchange(here)
        });
        drop(own);
        let connection = worker.connection;
        let time = ProcessingTime::from_nanos(here * 1_000);
        while worker.rows > 0 && worker.operator.free_slots() > 0 {
            let (record, key) = (StreamRecord::new(0, None), Some(Key::new(worker.rows % 3)));
            worker.operator.process_element_for(Price::Usual, None, record, key, time).unwrap();
            worker.rows -= 1;
        }
        if worker.rows == 0 {
            worker.operator.end_input(time);
        }
        worker.operator.handle_time(time);
        let begun = std::mem::take(&mut worker.operator.actions().invoke);
        while let Some(element) = worker.operator.pop_output() {
            let StreamElement::Record(emitted) = element else { continue };
            worker.emitted += 1;
            match emitted.outcome {
                Ok(()) => {}
                Err(Failure::Ended(ended)) => match *ended {
                    (Ended::Spent(spent), _) => worker.refused.push(spent),
                    ended => panic!("{ended:?}"),
                },
                Err(failure) => panic!("{failure:?}"),
            }
        }
        for call in begun {
            let takes = 1 + self.upto(self.longest);
            let costs_all = matches!(self.terms, Terms::Calls(_)) || self.upto(2) == 0;
            let cost = if costs_all { self.cost } else { 1 + self.upto(self.cost - 1) };
            let mut own = self.workers[at].limit.0.lock().unwrap();
            let (ends, life) = (now + takes, own.kept.pop_front().unwrap_or(own.life));
            drop(own);
            self.calls.push(Called { begun: now, ends, cost, life });
            self.post(takes, Mail::Ended(at, call.attempt, cost));
        }
        if let Some(said) = said {
            self.send(at, said, connection);
        }
    }

    fn send(&mut self, at: usize, said: Exchange, connection: u64) {
        self.post(PATIENCE, Mail::GivenUp(at, connection));
        if self.is_wild() && self.random.in_a_hundred(10) {
            // What a connection that is gone brings late, once or twice, is heard all the same.
            for _ in 0..self.upto(2) {
                let late = self.upto(3 * PATIENCE);
                self.post(late, Mail::Said(at, said.clone(), None));
            }
            return;
        }
        let after = self.trip();
        self.post(after, Mail::Said(at, said, Some(connection)));
    }

    // --- what has to hold ---

    fn check(&self) {
        match self.terms {
            Terms::Rate { permits, period, burst } => self.check_rate(permits, period, burst),
            Terms::Budget(total) => {
                let spent: u64 = self.calls.iter().map(|it| it.cost).sum();
                assert!(spent <= total, "{spent} of {total} spent");
                // Nobody is refused whose call what was left could pay for.
                for spent in self.workers.iter().flat_map(|it| &it.refused) {
                    assert!(spent.left < self.cost, "{spent:?}");
                }
            }
            Terms::Calls(most) => self.check_calls(most),
        }
        for (at, worker) in self.workers.iter().enumerate().filter(|it| !it.1.is_dead) {
            let (rows, is_over) = (worker.rows, worker.operator.is_finished());
            let levels = worker.operator.levels();
            let World { terms, cost, longest, .. } = self;
            assert!(
                rows == 0 && is_over,
                "worker {at}: {rows} rows left, {levels:?}, {terms:?} {cost} {longest}"
            );
        }
    }

    fn check_rate(&self, permits: u64, period: u64, burst: u64) {
        // One that is forgotten begins empty, and what was granted before lasts for 200 ms at most.
        let forgotten = u64::from(self.life) * (permits / 5 + burst);
        let most = burst.max(self.cost) + forgotten;
        for (at, first) in self.calls.iter().enumerate() {
            let mut sum = 0;
            for one in &self.calls[at..] {
                sum += one.cost;
                let window = one.begun - first.begun + 1;
                assert!(sum * period <= most * period + window * permits, "{sum} in {window} us");
            }
        }
    }

    fn check_calls(&self, most: u64) {
        // What a server does not know of any more goes on, beside what it grants.
        for life in 0..=self.life {
            let mut running = BinaryHeap::new();
            for call in self.calls.iter().filter(|it| it.life == life) {
                while running.peek().is_some_and(|Reverse(ends)| *ends <= call.begun) {
                    running.pop();
                }
                running.push(Reverse(call.ends));
                let flying = running.len() as u64 * self.cost;
                assert!(flying <= most, "{flying} of {most} at a time");
            }
        }
    }
}

fn run(seed: u64) {
    let mut world = World::draw(seed);
    let until = world.now + WILD;
    while world.pass(until) {}
    // All is well again: whatever waits has its turn.
    let rows: u64 = world.workers.iter().map(|it| it.rows + 61).sum();
    let lasts = match world.terms {
        Terms::Rate { permits, period, .. } => 2 * rows * world.cost * period / permits,
        Terms::Budget(_) => rows * world.longest,
        // Where there are few, they go from worker to worker by exchanges.
        Terms::Calls(most) => rows * world.cost * (world.longest + SECOND / 2) / most,
    };
    // Rows of one key are called for one after the other.
    let until = until + CALM + 2 * lasts + rows * world.longest / 3;
    let is_over = |it: &Worker| it.is_dead || it.operator.is_finished();
    while world.pass(until) && !world.workers.iter().all(is_over) {}
    world.check();
}

fn seeds() -> std::ops::Range<u64> {
    let named = std::env::var("LEASES").ok();
    let named = named.as_ref().and_then(|it| it.split_once(".."));
    named.map_or(SEEDS, |(first, end)| first.parse().unwrap()..end.parse().unwrap())
}

#[test]
fn no_limit_of_a_job_is_exceeded_and_no_row_waits_for_ever_whatever_happens() {
    for seed in seeds() {
        let again = format!("LEASES={seed}..{}", seed + 1);
        assert!(catch_unwind(|| run(seed)).is_ok(), "see above; again by {again}");
    }
}
