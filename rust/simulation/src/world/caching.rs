// SPDX-License-Identifier: Apache-2.0
//! A cache between an operator and its function, looked at from both sides.
//!
//! ```text
//!   operator --calls--> looks on --> cache --> function, which notes its calls
//!      ^                                ^          |
//!      +------ looks on <---------------+----------+
//! ```

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;
use sparkawait_core::operator::{AttemptId, Begins, Retry};
use sparkawait_core::time::ProcessingTime;
use sparkawait_runtime::AsyncFunction;
use sparkawait_runtime::clock::Clock;
use sparkawait_task::error::TaskError;
use sparkawait_task::function::{Calls, Replies, ReplyGroup, ReplySink, TaskFunction};
use sparkawait_task::layer::cache::{CacheConfig, CacheMetrics, CacheSettings, Caches};
use sparkawait_task::layer::{Inner, Layer};
use sparkawait_task::row_config::RowConfig;

use super::noting::each_call;
use super::{Shared, World};
use crate::model::Source;
use crate::scenario::CachePlan;
use crate::trace::{Asks, Broken, Path, Said, What};

/// The clock of caches, which lets no time pass.
#[derive(Debug)]
struct CacheClock(Shared);

impl Clock for CacheClock {
    fn now(&self) -> ProcessingTime {
        ProcessingTime::from_nanos(self.0.world().now)
    }
}

/// A cache that is looked at.
#[derive(Debug)]
pub struct WatchedCache {
    /// The cache.
    cache: CacheSettings,
    site: usize,
    operator: usize,
    shared: Shared,
}

impl WatchedCache {
    /// Makes the cache of a function.
    pub fn new(plan: CachePlan, (site, operator): (usize, usize), shared: &Shared) -> Self {
        let mut world = shared.world();
        let made = || Arc::new(Caches::on(CacheClock(shared.clone())));
        let caches = Arc::clone(world.caches.get_or_insert_with(made));
        let key = if plan.by_channel { &["key", "channel"][..] } else { &["key"] };
        let cache = CacheSettings {
            id: site.to_string(),
            config: CacheConfig {
                max_rows: plan.max_rows,
                max_bytes: None,
                expire_after_write: plan.after_write.map(Duration::from_nanos),
                expire_after_access: plan.after_access.map(Duration::from_nanos),
                cache_missing: plan.keeps_missing,
            },
            key: key.iter().map(|it| (*it).to_owned()).collect(),
            caches: Some(caches),
            metrics: Arc::clone(&world.cache_metrics[site]),
        };
        drop(world);
        Self { cache, site, operator, shared: shared.clone() }
    }
}

impl Layer for WatchedCache {
    fn wrap(
        &self,
        inner: Inner<'_>,
        replies: Replies,
        rows: &RowConfig,
    ) -> Result<TaskFunction, TaskError> {
        let (site, operator, shared) = (self.site, self.operator, self.shared.clone());
        let to = replies.clone();
        let sink = WatchingSink { site, shared: shared.clone(), to };
        let cached = self.cache.wrap(inner, replies.through(sink), rows)?;
        Ok(Box::new(Watching { site, operator, shared, cached }))
    }

    fn begins(&self, inner: Begins) -> Begins {
        self.cache.begins(inner)
    }
}

/// Sees the calls of the operator.
struct Watching {
    site: usize,
    operator: usize,
    shared: Shared,
    cached: TaskFunction,
}

impl AsyncFunction<Calls> for Watching {
    fn invoke(&mut self, calls: Calls) {
        let site = self.site;
        each_call(&self.shared, self.operator, &calls, |world, call, path| {
            world.asked_of_cache(site, call.attempt, path);
        });
        self.cached.invoke(calls);
    }

    fn ask_timeout(&mut self, calls: Calls) {
        self.cached.ask_timeout(calls);
    }

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        let mut world = self.shared.world();
        for attempt in &attempts {
            if world.broken.is_none() {
                let (now, site) = (world.now, self.site);
                let checked = world.model.cancelled(site, *attempt, now);
                world.breaks(checked);
                world.note(What::Cancelled { site, attempt: *attempt });
                if let Some(cache) = &mut world.cached[site] {
                    cache.cancelled(*attempt);
                }
            }
        }
        drop(world);
        self.cached.cancel(attempts);
    }

    fn close(&mut self) {
        self.cached.close();
    }
}

/// Sees what the operator is told.
#[derive(Debug)]
struct WatchingSink {
    site: usize,
    shared: Shared,
    to: Replies,
}

impl ReplySink for WatchingSink {
    fn send(&self, group: ReplyGroup) -> bool {
        let mut world = self.shared.world();
        for (attempt, said) in outcomes(&group) {
            if world.broken.is_none() && !world.has_ended {
                world.told_by_cache(self.site, attempt, said);
            }
        }
        drop(world);
        self.to.send(group)
    }

    fn started(&self, attempts: Vec<AttemptId>) -> bool {
        self.to.started(&attempts)
    }

    fn fail(&self, error: TaskError) -> bool {
        self.to.fail(error)
    }
}

/// Reads what replies say.
fn outcomes(group: &ReplyGroup) -> Vec<(AttemptId, Said)> {
    let mut said = Vec::new();
    if let Some(results) = &group.results {
        let column = results.rows.column(0).as_primitive::<Int64Type>();
        let mut first = 0;
        for (index, attempt) in results.attempts.iter().enumerate() {
            let count = results.counts.as_ref().map_or(1, |it| it[index]);
            let retry = results.retries.as_ref().is_some_and(|it| it[index]);
            let serial =
                if count > 0 && column.is_valid(first) { column.value(first) / 8 } else { 0 };
            first += count as usize;
            said.push((*attempt, Said::Results { serial, count, retry }));
        }
    }
    for failed in &group.failures {
        let nanos = |it: Duration| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX);
        let (asks, after) = match failed.retry {
            Retry::No => (Asks::No, None),
            Retry::IfRepeatable => (Asks::IfRepeatable, None),
            Retry::Yes => (Asks::Yes, None),
            Retry::After(after) => (Asks::Yes, Some(nanos(after))),
            Retry::InPart { records } => (Asks::InPart(records), None),
        };
        let pause = failed.pause.map(nanos);
        said.push((failed.attempt, Said::Failure { asks, after, pause }));
    }
    said
}

impl World {
    /// The operator makes a call.
    fn asked_of_cache(&mut self, site: usize, attempt: AttemptId, path: &Path) {
        let checked = self.model.invoked(site, attempt, path, self.now);
        let Some(id) = self.breaks(checked) else { return };
        self.note(What::Sought { site, attempt, row: path.row });
        let now = self.now;
        let checked = self.cached[site].as_mut().map(|it| it.asked(attempt, id, path, now));
        self.breaks(checked.unwrap_or(Ok(())));
    }

    /// The operator is told something.
    fn told_by_cache(&mut self, site: usize, attempt: AttemptId, said: Said) {
        let now = self.now;
        let Some(cache) = &mut self.cached[site] else { return };
        let checked = cache.told(attempt, said, now);
        let Some((id, source)) = self.breaks(checked) else { return };
        if source == Source::Known {
            self.note(What::Known { site, attempt, said });
            self.model.not_called(site, attempt);
        }
        self.model.replied(site, attempt, id, said, now);
    }

    /// Compares what caches have counted with what was seen.
    pub fn compare_caches(&mut self) {
        let pairs = self.cached.iter().zip(&self.cache_metrics).enumerate();
        let wrong = pairs.filter_map(|(site, (cache, counted))| {
            let seen = cache.as_ref()?;
            let seen = (seen.hits, seen.attempts - seen.hits, seen.loads);
            let counted: (u64, u64, u64) = counts(counted);
            (seen != counted)
                .then(|| format!("function {site}: {seen:?} seen, {counted:?} counted"))
        });
        let wrong: Vec<String> = wrong.collect();
        if let Some(what) = wrong.first() {
            self.breaks::<()>(Err(Broken::new("caches count what was seen", what)));
        }
    }
}

fn counts(metrics: &CacheMetrics) -> (u64, u64, u64) {
    (metrics.hits(), metrics.misses(), metrics.loads())
}
