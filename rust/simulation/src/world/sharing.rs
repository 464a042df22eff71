// SPDX-License-Identifier: Apache-2.0
//! Limits that a task shares with somebody else.
//!
//! It is one of the host, in a page as processes share it, on the clock of the simulation.

use std::sync::Arc;

use sparkawait_core::policy::{LimitLeft, PermitSource, PermitSources};
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::host_limit::HostTurns;

use super::shared_limit::{Place, SharedLimit, open_page};
use super::{Shared, World};
use crate::limits::Bucket;
use crate::rules::RULES;
use crate::trace::{Broken, Path};

/// The limits of the functions of a task.
#[derive(Debug)]
struct Sources {
    shared: Shared,
    site: usize,
}

impl PermitSources for Sources {
    fn open(&self, limit: usize, channel: Option<u64>) -> Option<Arc<dyn PermitSource>> {
        if limit > 0 {
            return None;
        }
        let mut world = self.shared.world();
        let plan = world.model.sites[self.site].plan.clone();
        let others = plan.others?;
        let place = (self.site, channel.filter(|_| plan.limits[0].is_per_channel));
        let (seed, now) = (world.scenario.seed ^ place.1.unwrap_or_default(), world.now);
        let page = Arc::clone(world.page.get_or_insert_with(open_page));
        let made = || SharedLimit::new(&page, place, &plan.limits[0], others, (seed, now));
        let turns = HostTurns::new(world.shared_limits.entry(place).or_insert_with(made).limit());
        drop(world);
        Some(Arc::new(Source { shared: self.shared.clone(), place, turns }))
    }
}

/// A limit of them, and the turns of the task.
#[derive(Debug)]
struct Source {
    shared: Shared,
    place: Place,
    turns: HostTurns,
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

impl PermitSource for Source {
    fn reserve(&self, cost: u64, now: ProcessingTime) -> Result<ProcessingTime, ProcessingTime> {
        let taken = self.with(|limit, world_now| {
            let world_now = ProcessingTime::from_nanos(world_now);
            let here = |at: ProcessingTime| now + at.saturating_since(world_now);
            let taken = self.turns.reserve(cost, world_now);
            let waited =
                limit.asked(taken.err().map(ProcessingTime::as_nanos), world_now.as_nanos());
            (taken.map(here).map_err(here), waited)
        });
        let Some((taken, waited)) = taken else { return Err(ProcessingTime::NEVER) };
        self.shared.world().check_asked(self.place);
        if let Some(waited) = waited {
            self.shared.world().waited_in_vain(self.place, cost, waited);
        }
        taken
    }

    fn settle(&self, taken: u64, actual: u64) {
        self.with(|_, _| self.turns.settle(taken, actual));
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
            self.turns.lower_to(left, in_flight, started, world_now)
        });
        uncounted.unwrap_or(in_flight)
    }

    fn drain(&self, owed: u64, _now: ProcessingTime) {
        self.with(|limit, now| limit.limit().drain(owed, ProcessingTime::from_nanos(now)));
    }
}

/// Makes the permits of a function whose first limit others take from.
pub fn sources(shared: &Shared, site: usize) -> Option<Arc<dyn PermitSources>> {
    shared.world().model.sites[site].plan.others?;
    Some(Arc::new(Sources { shared: shared.clone(), site }))
}

impl World {
    /// The task has asked for a turn that others have had instead, as far as it has taken no more
    /// than what it was charged.
    fn waited_in_vain(&mut self, (site, _): Place, cost: u64, waited: u64) {
        let limit = self.model.sites[site].plan.limits[0];
        if !limit.is_settled && !limit.is_told {
            let what = format!("{cost} permits for function {site}, {waited} ns");
            self.fail("a call gets its turn beside those of others", what);
        }
    }

    /// The task asks for a turn, which is lost to others if it makes no call then.
    fn check_asked(&mut self, (site, _): Place) {
        let now = self.now;
        if self.model.sites[site].has_no_permit(now) {
            let what = format!("function {site} at {now}");
            self.fail("who could not call asks for no turn of a limit that others share", what);
        }
    }

    /// Permits of a shared limit are there again, or are used in another order than they were booked
    /// in; they stay above the burst.
    pub(super) fn give_back_shared(&mut self, site: usize, cost: u64) {
        if let Some(counted) = self.shared_counts.get_mut(&site) {
            counted.give_back(cost);
        }
    }

    /// A call is made: it and those of others keep the limit together. It may come as late as a turn
    /// waits for its call, and while others owe what their dearest one has cost.
    pub(super) fn check_shared(&mut self, site: usize, path: &Path) {
        let plan = &self.model.sites[site].plan;
        let (Some(others), Some(limit)) = (plan.others, plan.limits.first().copied()) else {
            return;
        };
        // How the task numbers its channels is not known.
        if limit.is_per_channel {
            return;
        }
        let (cost, dearest) = (limit.charge(path.cost), limit.dearest().max(others.cost));
        let late = (RULES.turn_waits * limit.permits).div_ceil(limit.period);
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
