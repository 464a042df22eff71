// SPDX-License-Identifier: Apache-2.0
//! A limit of the host that another process takes from, too.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, fs, process};

use sparkawait_core::policy::{Gcra, Rate, Stock};
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::host_limit::{HostLimit, HostPlaces};
use sparkawait_runtime::shared_page::SharedPage;

use crate::random::Random;
use crate::scenario::{LimitPlan, OthersPlan, PoolPlan, Scenario};

/// Calls that others make in all; and those that always want more than there is.
const MOST_CALLS: u32 = 300;
const MOST_GREEDY_CALLS: u32 = 20_000;

/// How late a task may ask again for a place that it was refused, in nanoseconds.
const LATE: u64 = 50_000_000;

/// Names the limit of a function, or of one of its channels as the task numbers them.
pub(super) type Place = (usize, Option<u64>);

/// A page that nobody else finds.
#[derive(Debug)]
pub(super) struct Page {
    page: Arc<SharedPage>,
    /// A file beside it, once a name had the place of another one.
    door: PathBuf,
}

impl Page {
    /// Opens one; `is_crowded`: full of the channels of others, which were used long ago.
    pub(super) fn open(is_crowded: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let folder = env::temp_dir().join(format!("sparkawait-simulation-{}", process::id()));
        let name = format!("limits-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(&name);
        let page = SharedPage::open(&path).expect("a page in a folder of its own");
        fs::remove_file(&path).expect("it was made just now");
        let page = Arc::new(page);
        let rate = Rate::new(NonZeroU64::MIN, Duration::from_secs(1)).expect("a period of time");
        let limit = Gcra::new(rate, NonZeroU64::MIN);
        let came = ProcessingTime::from_nanos(1);
        let open = |name: u32| {
            HostLimit::of_many(Arc::clone(&page), &format!("channel {name}"), limit, came)
        };
        let mut visitors = (0..).take_while(|_| is_crowded);
        while visitors.next().is_some_and(|it| open(it).is_ok()) {}
        Self { page, door: folder.join(name + "-door") }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Mostly it was never there.
        fs::remove_file(&self.door).unwrap_or_default();
    }
}

/// Makes those that functions have together.
pub(super) fn pools(scenario: &Scenario) -> Vec<Option<Arc<Mutex<Stock>>>> {
    let made = |it: &PoolPlan| {
        let permits = NonZeroU64::new(it.permits).unwrap_or(NonZeroU64::MIN);
        let stock = if it.comes_back { Stock::at_a_time(permits) } else { Stock::budget(permits) };
        it.is_shared.then(|| Arc::new(Mutex::new(stock)))
    };
    scenario.pools.iter().map(made).collect()
}

/// A limit, and who else takes from it.
#[derive(Debug)]
pub(super) struct SharedLimit {
    limit: HostLimit,
    /// What a place takes at most, and the burst, in nanoseconds of the limit.
    dearest: u64,
    /// The places of the others.
    places: HostPlaces,
    plan: OthersPlan,
    /// Nanoseconds between two of their calls, on average.
    gap: u64,
    random: Random,
    next_at: u64,
    calls: u32,
    /// When others make calls.
    pub(super) used: BTreeMap<u64, u64>,
    /// Since when the task asks and makes no call, and until when it waits for its place or is to ask again.
    wanted: Option<(u64, u64)>,
    /// Permits that the task has taken, and those that others have.
    taken: (i128, i128),
    /// Since when the task knows that a service has nothing left, and until when others take nothing.
    pub(super) nothing_left: Option<(u64, u64)>,
    /// A place that others have had all the same, and when it came.
    pub(super) taken_in_vain: Option<(u64, u64)>,
}

impl SharedLimit {
    pub(super) fn new(
        page: &Page,
        place: Place,
        limit: &LimitPlan,
        plan: OthersPlan,
        (seed, now): (u64, u64),
    ) -> Self {
        let gap = plan.cost * limit.period * 10 / (limit.permits * plan.share);
        let (page, name, terms) = (Arc::clone(&page.page), format!("{place:?}"), limit.gcra());
        let of_host = match place.1 {
            Some(_) => HostLimit::of_many(page, &name, terms, ProcessingTime::from_nanos(now)),
            None => HostLimit::new(page, &name, terms),
        };
        let of_host = of_host.expect("a page has room for the limits of a task");
        let permits = limit.dearest() + plan.cost + limit.burst;
        Self {
            places: HostPlaces::new(of_host.clone()),
            limit: of_host,
            dearest: permits * limit.period / limit.permits + 1,
            plan,
            gap: gap.max(1),
            random: Random(seed),
            next_at: now,
            calls: 0,
            used: BTreeMap::new(),
            wanted: None,
            taken: (0, 0),
            nothing_left: None,
            taken_in_vain: None,
        }
    }

    /// The limit as another one takes part in it.
    pub(super) fn limit(&self) -> HostLimit {
        self.limit.clone()
    }

    /// Lets the others do what they have done by now.
    pub(super) fn others(&mut self, now: u64) {
        let most = if self.plan.share > 10 { MOST_GREEDY_CALLS } else { MOST_CALLS };
        while self.next_at <= now && self.calls < most {
            let (at, cost) = (self.next_at, self.plan.cost);
            match self.places.reserve(cost, ProcessingTime::from_nanos(at)) {
                Ok(_) if self.random.in_a_hundred(self.plan.gives_back) => {
                    self.places.settle(cost, 0);
                }
                Ok(ready) => {
                    let ready = ready.as_nanos();
                    self.taken.1 += i128::from(cost);
                    *self.used.entry(ready).or_default() += 1;
                    let is_told = |it: &(u64, u64)| at > it.0 && ready < it.1;
                    if self.nothing_left.is_some_and(|it| is_told(&it)) {
                        self.taken_in_vain.get_or_insert((at, ready));
                    }
                }
                Err(again) => {
                    self.next_at = again.as_nanos().max(at + 1);
                    continue;
                }
            }
            self.calls += 1;
            self.next_at = at + 1 + self.random.next() % (2 * self.gap);
        }
    }

    /// The task has asked for a place, and waits until then; returns for how long it has asked without a
    /// call, if that is too long.
    pub(super) fn asked(&mut self, until: u64, now: u64) -> Option<u64> {
        let since = match self.wanted {
            Some((since, again)) if now <= again + LATE => since,
            _ => now,
        };
        self.wanted = Some((since, until.max(now)));
        // What both had taken before, a place of each, and what others took while it waited.
        let waited = now - since;
        (waited > 2 * self.dearest + 500_000_000).then_some(waited)
    }

    /// The task has taken permits, or given some back: corrected, so many more than before.
    pub(super) fn take(&mut self, permits: u64, before: u64) {
        self.taken.0 += i128::from(permits) - i128::from(before);
    }

    /// Returns how many permits more than others the task has had, who always want some.
    pub(super) fn ahead(&self) -> Option<i128> {
        let is_greedy = self.plan == OthersPlan::greedy(self.plan.cost);
        (is_greedy && self.calls < MOST_GREEDY_CALLS).then(|| self.taken.0 - self.taken.1)
    }

    /// The task has made a call.
    pub(super) const fn called(&mut self) {
        self.wanted = None;
    }
}
