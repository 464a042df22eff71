// SPDX-License-Identifier: Apache-2.0
//! A limit of the host that another process takes from, too.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::{env, fs, process};

use sparkawait_core::policy::Stock;
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::host_limit::{HostLimit, HostTurns};
use sparkawait_runtime::shared_page::SharedPage;

use crate::random::Random;
use crate::scenario::{LimitPlan, OthersPlan, PoolPlan, Scenario};

/// Calls that others make in all; and those that always want more than there is.
const MOST_CALLS: u32 = 300;
const MOST_GREEDY_CALLS: u32 = 20_000;

/// How late a task may ask again for a turn that it was refused, in nanoseconds.
const LATE: u64 = 50_000_000;

/// Names the limit of a function, or of one of its channels as the task numbers them.
pub(super) type Place = (usize, Option<u64>);

/// Opens a page that nobody else finds.
pub(super) fn open_page() -> Arc<SharedPage> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let folder = env::temp_dir().join(format!("sparkawait-simulation-{}", process::id()));
    let path = folder.join(format!("limits-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let page = SharedPage::open(&path).expect("a page in a folder of its own");
    fs::remove_file(&path).expect("it was made just now");
    Arc::new(page)
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
    /// What a turn takes at most, and the burst, in nanoseconds of the limit.
    dearest: u64,
    /// The turns of the others.
    turns: HostTurns,
    plan: OthersPlan,
    /// Nanoseconds between two of their calls, on average.
    gap: u64,
    random: Random,
    next_at: u64,
    calls: u32,
    /// When others make calls.
    pub(super) used: BTreeMap<u64, u64>,
    /// Since when the task asks in vain, and until when it is to ask again.
    refused: Option<(u64, u64)>,
    /// Since when the task knows that a service has nothing left, and until when others take nothing.
    pub(super) nothing_left: Option<(u64, u64)>,
    /// A turn that others have had all the same, and when it came.
    pub(super) taken_in_vain: Option<(u64, u64)>,
}

impl SharedLimit {
    pub(super) fn new(
        page: &Arc<SharedPage>,
        place: Place,
        limit: &LimitPlan,
        plan: OthersPlan,
        (seed, now): (u64, u64),
    ) -> Self {
        let gap = plan.cost * limit.period * 10 / (limit.permits * plan.share);
        let of_host = HostLimit::new(Arc::clone(page), &format!("{place:?}"), limit.gcra());
        let of_host = of_host.expect("a page has room for the limits of a task");
        let permits = limit.dearest() + plan.cost + limit.burst;
        Self {
            turns: HostTurns::new(of_host.clone()),
            limit: of_host,
            dearest: permits * limit.period / limit.permits + 1,
            plan,
            gap: gap.max(1),
            random: Random(seed),
            next_at: now,
            calls: 0,
            used: BTreeMap::new(),
            refused: None,
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
            match self.turns.reserve(cost, ProcessingTime::from_nanos(at)) {
                Ok(_) if self.random.in_a_hundred(self.plan.gives_back) => {
                    self.turns.settle(cost, 0);
                }
                Ok(ready) => {
                    let ready = ready.as_nanos();
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

    /// The task has asked for a turn; returns for how long it did so in vain, if that is too long.
    pub(super) fn asked(&mut self, refused_until: Option<u64>, now: u64) -> Option<u64> {
        let Some(until) = refused_until else {
            self.refused = None;
            return None;
        };
        let since = match self.refused {
            Some((since, again)) if now <= again + LATE => since,
            _ => now,
        };
        self.refused = Some((since, until));
        // What both had taken before, a turn of each, and what others took while it waited.
        let waited = now - since;
        (waited > 2 * self.dearest + 300_000_000).then_some(waited)
    }
}
