// SPDX-License-Identifier: Apache-2.0
//! A limit of the host, and several who take from it and never have enough: on a manual clock.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, fs, process};

use sparkawait_core::element::StreamRecord;
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{
    AsyncWaitOperator, AttemptId, Completion, Config, FailurePolicy, OutputMode, Retry,
};
use sparkawait_core::policy::{
    Answer, Costs, Counted, Gcra, HedgeAfter, HedgeConfig, Ledger, Ledgers, Limit, LimitConfig,
    LimitLeft, Line, PolicyConfig, Price, Rate, Renewal,
};
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::host_limit::{HostLimit, HostPlaces};
use sparkawait_runtime::shared_page::SharedPage;

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLI;
/// A time on the clock of the host.
const BEGIN: u64 = 1_000 * SECOND;

fn at(nanos: u64) -> ProcessingTime {
    ProcessingTime::from_nanos(nanos)
}

fn gcra(permits: u64, seconds: u64, burst: u64) -> Gcra {
    let rate = Rate::new(NonZeroU64::new(permits).unwrap(), Duration::from_secs(seconds));
    Gcra::new(rate.unwrap(), NonZeroU64::new(burst).unwrap())
}

/// Makes a limit in a page that nobody else finds.
fn limit_of_host(gcra: Gcra) -> HostLimit {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let folder = env::temp_dir().join(format!("sparkawait-test-together-{}", process::id()));
    let path: PathBuf = folder.join(format!("limits-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let page = SharedPage::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    HostLimit::new(Arc::new(page), "api", gcra).unwrap()
}

/// One who takes part, on a clock that all have in common.
#[derive(Debug)]
struct Participant(HostPlaces, HostLimit);

impl Participant {
    fn new(limit: &HostLimit) -> Self {
        Self(HostPlaces::new(limit.clone()), limit.clone())
    }
}

impl Ledger for Participant {
    fn ask(&self, cost: u64, now: ProcessingTime) -> Answer {
        self.0.reserve(cost, now).map_or_else(Answer::At, Answer::Ticket)
    }

    fn settle(&self, taken: u64, actual: u64) {
        self.0.settle(taken, actual);
    }

    fn lower_to(
        &self,
        left: &LimitLeft,
        in_flight: u64,
        started: ProcessingTime,
        now: ProcessingTime,
    ) -> u64 {
        self.0.lower_to(left, in_flight, started, now)
    }

    fn drain(&self, owed: u64, now: ProcessingTime) {
        self.1.drain(owed, now);
    }
}

#[derive(Debug)]
struct Sources(HostLimit);

impl Ledgers for Sources {
    fn open(&self, limit: usize, _channel: Option<u64>) -> Option<Arc<dyn Ledger>> {
        (limit == 0).then(|| Arc::new(Participant::new(&self.0)) as Arc<dyn Ledger>)
    }
}

/// Lets an operator make calls for 20 seconds at 100 000 permits a minute. Another process always wants
/// more of them. Its calls cost what `costs` says, the first one is not answered with
/// `first_hangs`, and a second one follows after half a second. Returns how many it makes.
fn calls_beside_another(burst: u64, costs: fn(u64) -> u64, first_hangs: bool, single: bool) -> u64 {
    const LATENCY: u64 = 97 * MILLI;
    let gcra = gcra(100_000, 60, burst);
    let limit = limit_of_host(gcra);
    let other = HostPlaces::new(limit.clone());
    let policy = PolicyConfig::limited(LimitConfig::new(gcra));
    let mut config = Config::new(OutputMode::Unordered, NonZeroUsize::new(331).unwrap());
    config.max_concurrency = NonZeroUsize::new(53).unwrap();
    config.on_failure = FailurePolicy::Emit;
    config.hedge =
        Some(HedgeConfig { after: HedgeAfter::Time(Duration::from_millis(500)), max_extra: 1.0 });
    config.channels = Some(if single {
        ChannelConfig::single(policy)
    } else {
        ChannelConfig { policy, ..ChannelConfig::floating(53, 1_000) }
    });
    config.ledgers = Some(Arc::new(Sources(limit)));
    let mut operator = AsyncWaitOperator::<u64, (), ()>::new(config);
    let (mut now, mut next_other, mut next_row, mut calls) = (BEGIN, BEGIN, 0, 0);
    let mut ends: BTreeMap<(u64, u64), AttemptId> = BTreeMap::new();
    loop {
        while operator.free_slots() > 0 {
            let price = Price::Of(Costs::NONE.with(0, costs(next_row)));
            let record = StreamRecord::new(next_row, None);
            operator.process_element_for(price, None, record, None, at(now)).unwrap();
            next_row += 1;
        }
        let actions = operator.actions();
        actions.cancel.clear();
        for call in std::mem::take(&mut actions.invoke) {
            calls += 1;
            if call.value > 0 || !first_hangs {
                ends.insert((now + LATENCY, calls), call.attempt);
            }
        }
        while operator.pop_output().is_some() {}
        let wake = operator.poll_timeout().map_or(u64::MAX, ProcessingTime::as_nanos);
        let end = ends.keys().next().map_or(u64::MAX, |it| it.0);
        now = wake.max(now).min(end).min(next_other);
        if now >= BEGIN + 20 * SECOND {
            return calls;
        }
        if next_other <= now {
            let (Ok(place) | Err(place)) = other.reserve(5, at(now));
            next_other = place.as_nanos().max(now + 1);
        }
        while let Some(first) = ends.first_entry().filter(|it| it.key().0 <= now) {
            let attempt = first.remove();
            operator.handle_completion(attempt, Completion::answered((), Retry::No), at(now));
        }
        operator.handle_time(at(now));
    }
}

#[test]
fn a_slow_call_that_waits_for_a_second_one_takes_nobodys_place() {
    let first_is_dear = |row: u64| if row == 0 { 100 } else { 50 };
    let first_is_cheap = |row: u64| if row == 0 { 7 } else { 50 };
    let all_differ = |row: u64| match row % 5 {
        1 => 13,
        2 => 87,
        _ => 50,
    };
    for costs in [first_is_dear, first_is_cheap, all_differ] {
        for burst in [20, 100, 1_667, 5_003] {
            for single in [true, false] {
                let [without, with] =
                    [false, true].map(|hangs| calls_beside_another(burst, costs, hangs, single));
                // Half of the permits, at 50 for a call, and of the burst.
                let most = (33_333 / 2 + burst) / 50 + 3;
                assert!((310..=most).contains(&without), "{burst} {single}: {without}");
                assert!(with + 15 >= without, "{burst} {single}: {with} of {without}");
            }
        }
    }
}

/// A service that counts calls in windows of ten seconds. Others have used some of its first one.
#[derive(Debug)]
struct Service {
    most: u64,
    used: Cell<u64>,
}

impl Service {
    const WINDOW: u64 = 10 * SECOND;

    /// Returns whether a call is refused, and what its reply says.
    fn call(&self, now: u64) -> (bool, LimitLeft) {
        let is_refused = self.used.get() >= self.most;
        self.used.set((self.used.get() + 1).min(self.most));
        let left = LimitLeft {
            counted: Counted::Requests,
            remaining: self.most - self.used.get(),
            renewed_in: Duration::from_nanos(BEGIN + Self::WINDOW - now),
            renewal: Renewal::AtOnce,
        };
        (is_refused, left)
    }
}

/// Lets so many tasks share a limit of 1 000 in ten seconds up to the end of the window of its service,
/// which has only so many left; 64 calls are in flight at most. Returns how many were made, and refused.
fn near_the_end(tasks: usize, left: u64, burst: u64) -> (u64, u64) {
    const LATENCY: u64 = 170 * MILLI;
    let gcra = gcra(1_000, 10, burst);
    let limit = limit_of_host(gcra);
    let config = LimitConfig { counted: Some(Counted::Requests), ..LimitConfig::new(gcra) };
    let mut limits: Vec<Limit> =
        (0..tasks).map(|_| Limit::new(&config, Some(Arc::new(Participant::new(&limit))))).collect();
    let service = Service { most: left, used: Cell::new(0) };
    let (mut running, mut wakes) = (vec![0; tasks], vec![BEGIN; tasks]);
    let mut replies: BTreeMap<(u64, u64), (usize, u64, LimitLeft)> = BTreeMap::new();
    let mut arrivals: BTreeMap<(u64, u64), (usize, u64)> = BTreeMap::new();
    let (mut now, mut made, mut refused) = (BEGIN, 0, 0);
    while now < BEGIN + Service::WINDOW {
        while let Some(first) = arrivals.first_entry().filter(|it| it.key().0 <= now) {
            let (_, number) = *first.key();
            let (task, started) = first.remove();
            let (is_refused, said) = service.call(now);
            refused += u64::from(is_refused);
            // One reply overtakes another now and then.
            let back = LATENCY / 2 + number * 7_919 % (LATENCY / 3);
            replies.insert((now + back, number), (task, started, said));
        }
        while let Some(first) = replies.first_entry().filter(|it| it.key().0 <= now) {
            let (task, started, said) = first.remove();
            running[task] -= 1;
            wakes[task] = now;
            limits[task].settle(1, 1);
            limits[task].lower_to(&said, at(started), at(now));
        }
        for task in 0..tasks {
            while wakes[task] <= now && running[task] < 64 / tasks {
                let ready = limits[task].ask(at(now), 1, Line::Records).as_nanos();
                wakes[task] = ready;
                if ready <= now {
                    limits[task].on_start(at(now), 1, Line::Records);
                    made += 1;
                    running[task] += 1;
                    arrivals.insert((now + LATENCY / 2, made), (task, now));
                }
            }
        }
        let free = (0..tasks).filter(|it| running[*it] < 64 / tasks).map(|it| wakes[it]);
        let next = [arrivals.keys().next(), replies.keys().next()].map(|it| it.map(|key| key.0));
        now = free.chain(next.into_iter().flatten()).min().unwrap_or(u64::MAX).max(now + 1);
    }
    (made, refused)
}

#[test]
fn tasks_that_share_a_limit_are_refused_as_seldom_as_one_where_the_service_says_what_is_left() {
    let mut broken = Vec::new();
    for burst in [1, 64, 200] {
        for left in [80, 331, 700] {
            let of_one = near_the_end(1, left, burst);
            for tasks in [2, 8] {
                let (made, refused) = near_the_end(tasks, left, burst);
                // One each that was booked before the service said so.
                let is_seldom = refused < of_one.1 + tasks as u64;
                // Of what is left no more is lost than what may be in flight.
                let is_used = made - refused + 18 >= of_one.0 - of_one.1;
                let what = format!(
                    "{tasks} tasks, burst {burst}, {left} left: {made}, {refused}; one: {of_one:?}"
                );
                if !is_seldom || !is_used {
                    broken.push(what);
                }
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}
