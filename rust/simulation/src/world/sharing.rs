// SPDX-License-Identifier: Apache-2.0
//! Limits that a task shares with somebody else.
//!
//! It is one of the host, in a page as processes share it, on the clock of the simulation.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sparkawait_core::policy::{Answer, Ledger, Ledgers, LimitLeft, Stock};
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::host_limit::HostPlaces;

use super::shared_limit::{Page, Place, SharedLimit};
use super::{Shared, World};
use crate::limits::Bucket;
use crate::rules::RULES;
use crate::trace::{Broken, Path};

/// When a function asks again for what another one has; later and later if that is for ever.
const ASKED_AGAIN: Duration = Duration::from_millis(7);

/// The limits of the functions of a task.
#[derive(Debug)]
struct Sources {
    shared: Shared,
    site: usize,
}

impl Ledgers for Sources {
    fn open(&self, limit: usize, channel: Option<u64>) -> Option<Arc<dyn Ledger>> {
        let mut world = self.shared.world();
        let plan = world.model.sites[self.site].plan.clone();
        let in_time = plan.limits.len() + usize::from(plan.requests.is_some());
        if let Some(it) = limit.checked_sub(in_time).and_then(|it| plan.pools.get(it)) {
            let pool = world.pools[it.pool].clone()?;
            return Some(Arc::new(Pool { stock: pool, refused: AtomicU32::new(0) }));
        }
        if limit > 0 {
            return None;
        }
        let others = plan.others?;
        let place = (self.site, channel.filter(|_| plan.limits[0].is_per_channel));
        let (seed, now) = (world.scenario.seed ^ place.1.unwrap_or_default(), world.now);
        let World { page, shared_limits, scenario, .. } = &mut *world;
        let page = page.get_or_insert_with(|| Page::open(scenario.is_crowded));
        let made = || SharedLimit::new(page, place, &plan.limits[0], others, (seed, now));
        let places = HostPlaces::new(shared_limits.entry(place).or_insert_with(made).limit());
        drop(world);
        Some(Arc::new(Source { shared: self.shared.clone(), place, places }))
    }
}

/// A limit of them, and the places of the task.
#[derive(Debug)]
struct Source {
    shared: Shared,
    place: Place,
    places: HostPlaces,
}

impl Source {
    fn with<T>(&self, act: impl FnOnce(&mut SharedLimit, u64) -> T) -> Option<T> {
        let mut world = self.shared.world();
        let now = world.now;
        let limit = world.shared_limits.get_mut(&self.place)?;
        limit.others(now);
        Some(act(limit, now))
    }
}

impl Ledger for Source {
    fn ask(&self, cost: u64, now: ProcessingTime) -> Answer {
        let taken = self.with(|limit, world_now| {
            let world_now = ProcessingTime::from_nanos(world_now);
            let here = |at: ProcessingTime| now + at.saturating_since(world_now);
            let taken = self.places.reserve(cost, world_now);
            let until = taken.unwrap_or_else(|again| again).as_nanos();
            let waited = limit.asked(until, world_now.as_nanos());
            if taken.is_ok() {
                limit.take(cost, 0);
            }
            (taken.map(here).map_or_else(|at| Answer::At(here(at)), Answer::Ticket), waited)
        });
        let Some((answer, waited)) = taken else { return Answer::OnSettle };
        self.shared.world().check_asked(self.place);
        if let Some(waited) = waited {
            self.shared.world().waited_in_vain(self.place, cost, waited);
        }
        self.shared.world().check_share(self.place);
        answer
    }

    fn settle(&self, taken: u64, actual: u64) {
        self.with(|limit, _| {
            limit.take(actual, taken);
            self.places.settle(taken, actual);
        });
        // What others have booked for later by then is used behind what is booked from now on.
        let back = taken.saturating_sub(actual);
        self.shared.world().give_back_shared(self.place.0, back);
    }

    fn lower_to(
        &self,
        left: &LimitLeft,
        in_flight: u64,
        started: ProcessingTime,
        now: ProcessingTime,
    ) -> u64 {
        let since = now.nanos_since(started);
        let uncounted = self.with(|_, world_now| {
            let started = ProcessingTime::from_nanos(world_now.saturating_sub(since));
            let world_now = ProcessingTime::from_nanos(world_now);
            self.places.lower_to(left, in_flight, started, world_now)
        });
        uncounted.unwrap_or(in_flight)
    }

    fn drain(&self, owed: u64, _now: ProcessingTime) {
        self.with(|limit, now| limit.limit().drain(owed, ProcessingTime::from_nanos(now)));
    }
}

/// Permits that functions have together. Nobody tells one of them what another settles.
#[derive(Debug)]
struct Pool {
    stock: Arc<Mutex<Stock>>,
    /// How often it was refused in a row.
    refused: AtomicU32,
}

impl Pool {
    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger for Pool {
    fn ask(&self, cost: u64, now: ProcessingTime) -> Answer {
        match self.stock().ask(cost, now) {
            Answer::OnSettle => {
                let refused = self.refused.fetch_add(1, Ordering::Relaxed);
                Answer::At(now + ASKED_AGAIN * (1 << (refused / 99).min(20)))
            }
            answer => {
                self.refused.store(0, Ordering::Relaxed);
                answer
            }
        }
    }

    fn settle(&self, taken: u64, actual: u64) {
        self.stock().settle(taken, actual);
    }

    fn recharge(&self, taken: u64, anew: u64) {
        self.stock().recharge(taken, anew);
    }

    fn lower_to(&self, _: &LimitLeft, in_flight: u64, _: ProcessingTime, _: ProcessingTime) -> u64 {
        in_flight
    }

    fn drain(&self, _owed: u64, _now: ProcessingTime) {}
}

/// Makes the permits that a function shares with others.
pub fn sources(shared: &Shared, site: usize) -> Arc<dyn Ledgers> {
    Arc::new(Sources { shared: shared.clone(), site })
}

impl World {
    /// The task has seen its mail, which may have said that nothing is left of a limit that others have,
    /// too: they get no place before there is something again, except for what calls give back.
    pub(super) fn check_told(&mut self) {
        for (place, shared) in &mut self.shared_limits {
            let here = &self.model.sites[place.0];
            let limit = here.plan.limits[0];
            let gives_back = here.plan.others.is_none_or(|it| it.gives_back > 0);
            if !limit.is_told || limit.is_per_channel || limit.is_settled || gives_back {
                continue;
            }
            let calls = here.plan.max_concurrency as u64 + 1;
            let back = calls * limit.dearest() * limit.period / limit.permits;
            let told = here.nothing_left.map(|(known, until)| (known, until.saturating_sub(back)));
            shared.nothing_left = told;
            if let Some((at, ready)) = shared.taken_in_vain {
                let what = format!("others of function {} at {at} for {ready}, {told:?}", place.0);
                return self.fail("what a service says is left is so for all", what);
            }
        }
    }

    /// All calls have ended: what comes back of them is there again.
    pub fn check_pools(&mut self) {
        for (pool, plan) in Arc::clone(&self.scenario).pools.iter().enumerate() {
            let held = self.pools[pool].as_ref().filter(|_| plan.comes_back);
            let left = held.map(|it| it.lock().unwrap_or_else(PoisonError::into_inner).left());
            if let Some(left) = left.filter(|it| *it != plan.permits) {
                let what = format!("{left} of {} of pool {pool}", plan.permits);
                self.fail("permits come back", what);
            }
        }
    }

    /// The task has asked for a place that others have had instead, as far as it has taken no more
    /// than what it was charged.
    fn waited_in_vain(&mut self, (site, _): Place, cost: u64, waited: u64) {
        let plan = &self.model.sites[site].plan;
        let limit = plan.limits[0];
        // One that waits for what no time brings asks for its place again.
        if !limit.is_settled && !limit.is_told && plan.pools.is_empty() {
            let what = format!("{cost} permits for function {site}, {waited} ns");
            self.fail("a call gets its place beside those of others", what);
        }
    }

    /// The task has no more of a limit than others who always want some, whatever its calls cost: only
    /// those in flight were not known to cost as much.
    fn check_share(&mut self, place: Place) {
        let here = &self.model.sites[place.0].plan;
        let limit = here.limits[0];
        if limit.is_told || limit.is_settled && limit.times == 0 {
            return;
        }
        let calls = here.max_concurrency as u64 + 2;
        let ahead_of_time = (300 * limit.permits * 1_000_000).div_ceil(limit.period);
        let of_others = here.others.map_or(0, |it| it.cost);
        let most = calls * limit.dearest() * limit.times.max(1) + limit.burst + ahead_of_time;
        let most = i128::from(most + 2 * of_others);
        let ahead = self.shared_limits.get(&place).and_then(SharedLimit::ahead);
        if let Some(ahead) = ahead.filter(|it| *it > most) {
            let what = format!("function {} has had {ahead} permits more, at most {most}", place.0);
            self.fail("two that always want more have equal shares of a limit", what);
        }
    }

    /// The task asks for a place, which is lost to others if it makes no call then.
    fn check_asked(&mut self, (site, _): Place) {
        let now = self.now;
        if self.model.sites[site].has_no_permit(now) {
            let what = format!("function {site} at {now}");
            self.fail("who could not call asks for no place of a limit that others share", what);
        }
    }

    /// Permits of a shared limit are there again, or are used in another order than they were booked
    /// in; they stay above the burst.
    pub(super) fn give_back_shared(&mut self, site: usize, cost: u64) {
        if let Some(counted) = self.shared_counts.get_mut(&site) {
            counted.give_back(cost);
        }
    }

    /// A call is made: it and those of others keep the limit together. It may come as late as a place
    /// waits for its call, and while others owe what their dearest one has cost.
    pub(super) fn check_shared(&mut self, site: usize, path: &Path) {
        let here = (site, None)..=(site, Some(u64::MAX));
        self.shared_limits.range_mut(here).for_each(|it| it.1.called());
        let plan = &self.model.sites[site].plan;
        let (Some(others), Some(limit)) = (plan.others, plan.limits.first().copied()) else {
            return;
        };
        // How the task numbers its channels is not known.
        if limit.is_per_channel {
            return;
        }
        let (cost, dearest) = (limit.charge(path.cost), limit.dearest().max(others.cost));
        let late = (RULES.place_waits * limit.permits).div_ceil(limit.period);
        let full = || Bucket::new(limit.permits, limit.period, limit.burst + dearest + late);
        let counted = self.shared_counts.entry(site).or_insert_with(full);
        // What costs more than the burst waits for that, and owes the rest.
        let take = |counted: &mut Bucket, cost: u64, at: u64| {
            let is_kept = counted.take(cost.min(limit.burst), at);
            counted.take(cost.saturating_sub(limit.burst), at);
            is_kept
        };
        let mut is_kept = true;
        if let Some(shared) = self.shared_limits.get_mut(&(site, None)) {
            shared.others(self.now);
            while let Some(used) = shared.used.first_entry().filter(|it| *it.key() <= self.now) {
                let at = *used.key();
                for _ in 0..used.remove() {
                    is_kept &= take(counted, others.cost, at);
                }
            }
        }
        is_kept &= take(counted, cost, self.now);
        if !is_kept {
            let what = format!("row {} of function {site} at {}", path.row, self.now);
            self.breaks::<()>(Err(Broken::new("every window of a limit that is shared", what)));
        }
    }
}
