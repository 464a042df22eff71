// SPDX-License-Identifier: Apache-2.0
//! What bounds calls in time, as Python describes it.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
#[cfg(feature = "redis")]
use sparkawait_connect::job_limits::{JobLimits, JobTerms, order};
use sparkawait_core::ErrorKind;
use sparkawait_core::policy::{
    AdaptiveLimitConfig, Counted, Gcra, Ledger, Ledgers, LimitConfig, LimitMetrics, MAX_LIMITS,
    PauseConfig, PolicyConfig, Rate, RequestConfig, Terms,
};
#[cfg(feature = "redis")]
use sparkawait_lease::{State, Terms as Lent};
use sparkawait_runtime::clock::Clock as _;
use sparkawait_runtime::held_part::Holder;
use sparkawait_runtime::host_limit::{
    HostClock, HostLimit, HostLimits, SharedTerms, number_of, page_of,
};
use sparkawait_runtime::private_folder::private_folder;
use sparkawait_runtime::shared_page::{PageError, SharedPage};
use sparkawait_task::row_prices::{CostSource, PriceSettings, ResultCost, RowCost};

use crate::convert::{to_duration, to_timeout};
use crate::cost_function::PythonCosts;
use crate::error::{configuration_error, internal_error};
#[cfg(feature = "redis")]
use crate::interruptible::wait_for;
#[cfg(feature = "redis")]
use crate::native::runtime;
use crate::row::Columns;

/// What bounds the calls of an operator beside their number.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PolicyArguments {
    rate_limits: Vec<RateLimitArguments>,
    /// Rows of a request at most, and the seconds that it waits for them; of a function that makes
    /// one for many rows.
    requests: Option<(u32, f64)>,
    /// Names what shares limits of the host and of the job.
    application: String,
    adaptive_limit: Option<AdaptiveArguments>,
    is_rate_adaptive: bool,
    pause: Option<PauseArguments>,
    /// Spreads the probes of many processes.
    seed: u64,
}

/// The `AdaptiveTerms` of Python; the latency is in seconds.
#[derive(FromPyObject)]
struct AdaptiveArguments {
    initial: u32,
    min: u32,
    max: u32,
    max_latency: Option<f64>,
}

impl AdaptiveArguments {
    fn read(&self) -> PyResult<AdaptiveLimitConfig> {
        let &Self { initial, min, max, max_latency } = self;
        let max_latency = to_timeout("max_latency", max_latency)?;
        Ok(AdaptiveLimitConfig { initial, min, max, max_latency })
    }
}

/// The `PauseTerms` of Python; times are in seconds.
#[derive(FromPyObject)]
struct PauseArguments {
    after_drops: u32,
    initial: f64,
    maximum: f64,
    refuses: bool,
}

impl PauseArguments {
    fn read(&self, most: u32, seed: u64) -> PyResult<PauseConfig> {
        Ok(PauseConfig {
            initial: to_duration("initial", self.initial)?,
            maximum: to_duration("maximum", self.maximum)?,
            refuses: self.refuses,
            ..PauseConfig::new(Some(self.after_drops), most, seed)
        })
    }
}

/// The `Terms` of Python.
#[derive(FromPyObject)]
#[expect(clippy::struct_excessive_bools, reason = "options that do not depend on one another")]
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "a build without it has no server"))]
pub(crate) struct RateLimitArguments {
    /// In metrics.
    label: String,
    /// For the processes that share it.
    name: String,
    permits: u64,
    period_nanos: u64,
    burst: u64,
    /// What each row costs, where nothing below says more.
    cost: u64,
    /// Whether it is what calls have cost of late, once that is known.
    usual: bool,
    cost_column: Option<String>,
    cost_function: Option<Py<PyAny>>,
    /// Columns whose bytes are paid for, what one costs, and what all rows cost.
    cost_lengths: Option<(Vec<String>, f64, f64)>,
    /// Columns of the results, with fields inside of them, and the weight of each.
    result_cost: Option<Vec<(Vec<String>, f64)>>,
    per_channel: bool,
    /// `"requests"`, `"tokens"`, or what no service tells of.
    counts: String,
    per_request: bool,
    /// Whether others have it, too: the whole of it, or a part when they hold it.
    is_shared: bool,
    /// Tasks among which a limit of the job is split; 1 if it is not.
    parts: u64,
    /// Those of them that an executor may run, and what names it.
    held_parts: u64,
    executor: String,
    /// `"rate"`, `"budget"` or `"calls"`: what `permits` are.
    kind: String,
    /// Where all workers of the job ask for it, if they do.
    server: Option<String>,
    /// Tasks that run at once, if that is known: what is left to each when the server is lost.
    tasks: Option<u64>,
    /// Whether it begins without what it could have saved.
    begins_empty: bool,
    /// Whether its calls wait for a server that is not reached, instead of each task having the limit.
    waits_for_server: bool,
    /// How many permits a cost of 1 is.
    scale: u64,
}

/// A limit in time, as its metrics are shown.
pub(crate) struct ShownLimit {
    label: String,
    parts: u64,
    /// So many permits are one of the user's units.
    scale: u64,
}

impl PolicyArguments {
    /// Returns what rows cost; functions see `columns` of them.
    pub(crate) fn prices(&self, py: Python<'_>, columns: &Arc<Columns>) -> PyResult<PriceSettings> {
        let mut prices = PriceSettings::default();
        for (limit, it) in self.rate_limits.iter().enumerate() {
            // What a request costs is not of its rows.
            let cost = if it.per_request { 0 } else { it.cost };
            prices.usual = prices.usual.with(limit, cost);
            prices.counts_requests |= it.per_request;
            let scale = it.scale;
            prices.scales[limit] = scale;
            prices.labels.push(it.label.clone());
            let function = it.cost_function.as_ref().map(|function| {
                let (function, label) = (function.clone_ref(py), it.label.clone());
                let columns = Arc::clone(columns);
                CostSource::Function(Arc::new(PythonCosts { function, label, scale, columns }))
            });
            let lengths = it.cost_lengths.clone().map(|(columns, weight, constant)| {
                CostSource::Lengths { columns, weight, constant }
            });
            let column = || it.cost_column.clone().map(CostSource::Column);
            let source = function.or(lengths).or_else(column);
            let (label, most) = (it.label.clone(), it.most_cost()?);
            prices.rows.extend(source.map(|source| RowCost { limit, label, most, scale, source }));
            let parts = it.result_cost.clone();
            prices.results.extend(parts.map(|parts| ResultCost { limit, scale, parts }));
        }
        Ok(prices)
    }

    /// Returns how the metrics of the limits in time are shown.
    pub(crate) fn shown(self) -> Vec<ShownLimit> {
        let limits = self.rate_limits.into_iter();
        limits.map(|it| ShownLimit { label: it.label, parts: it.parts, scale: it.scale }).collect()
    }
}

impl RateLimitArguments {
    fn counted(&self) -> PyResult<Option<Counted>> {
        match self.counts.as_str() {
            "requests" => Ok(Some(Counted::Requests)),
            "tokens" => Ok(Some(Counted::Tokens)),
            "other" => Ok(None),
            _ => Err(internal_error("a limit that counts what is not known")),
        }
    }

    fn shared(&self) -> PyResult<Option<SharedTerms>> {
        let (name, limit) = (self.name.clone(), self.limit()?);
        let (parts, held) = (positive(self.parts)?, positive(self.held_parts)?);
        let executor = number_of(&self.executor).get();
        let holder = (self.parts > 1).then_some(Holder { parts, executor, held });
        let terms = SharedTerms { name, limit, holder };
        let is_of_host = self.is_shared && self.server.is_none() && self.kind == "rate";
        Ok(is_of_host.then_some(terms))
    }

    fn terms(&self) -> PyResult<Terms> {
        match self.kind.as_str() {
            "rate" => Ok(self.limit()?.into()),
            "budget" => Ok(Terms::Spends(positive(self.permits)?)),
            "calls" => Ok(Terms::ComesBack(positive(self.permits)?)),
            _ => Err(internal_error("a limit of a kind that is not known")),
        }
    }

    /// The most that a call may cost.
    fn most_cost(&self) -> PyResult<u64> {
        if self.kind == "rate" { Ok(self.limit()?.most_cost()) } else { Ok(1 << 53) }
    }

    /// Returns it as all workers of the job ask for it, if they do.
    #[cfg(feature = "redis")]
    fn of_job(&self) -> Option<JobTerms> {
        let server = self.server.clone()?;
        let Self { permits, period_nanos, burst, tasks, begins_empty, .. } = *self;
        let terms = self.lent(Numbers { permits, period_nanos, burst });
        Some(JobTerms { name: self.name.clone(), terms, server, tasks, begins_empty })
    }

    /// Returns the terms of a limit of this kind with these numbers.
    #[cfg(feature = "redis")]
    fn lent(&self, Numbers { permits, period_nanos, burst }: Numbers) -> Lent {
        match self.kind.as_str() {
            // Microseconds: that is as fine as Redis' clock.
            "rate" => Lent::Rate { permits, period: (period_nanos / 1_000).max(1), burst },
            "budget" => Lent::Budget(permits),
            _ => Lent::Calls(permits),
        }
    }

    fn limit(&self) -> PyResult<Gcra> {
        let rate = Rate::new(positive(self.permits)?, Duration::from_nanos(self.period_nanos));
        let rate = rate.ok_or_else(|| internal_error("a rate limit for no time"))?;
        Ok(Gcra::new(rate, positive(self.burst)?))
    }
}

fn positive(value: u64) -> PyResult<NonZeroU64> {
    NonZeroU64::new(value).ok_or_else(|| internal_error("a rate limit of nothing"))
}

/// Converts them, for so many calls at a time.
pub(crate) fn to_policies(
    py: Python<'_>,
    arguments: &PolicyArguments,
    max_concurrency: u32,
) -> PyResult<(PolicyConfig, Option<Arc<dyn Ledgers>>)> {
    let pause = arguments.pause.as_ref();
    let mut config = PolicyConfig {
        adaptive_limit: arguments
            .adaptive_limit
            .as_ref()
            .map(AdaptiveArguments::read)
            .transpose()?,
        is_rate_adaptive: arguments.is_rate_adaptive,
        pause: pause.map(|it| it.read(max_concurrency, arguments.seed)).transpose()?,
        ..PolicyConfig::NONE
    };
    if let Some((records, linger)) = arguments.requests {
        let none = || internal_error("requests of no rows");
        let records = NonZeroU32::new(records).ok_or_else(none)?;
        config.requests = Some(RequestConfig { records, linger: to_duration("linger", linger)? });
    }
    let mut shared = [const { None }; MAX_LIMITS];
    for (index, it) in arguments.rate_limits.iter().enumerate() {
        let known = config.limits.get_mut(index).zip(shared.get_mut(index));
        let Some((place, terms)) = known else {
            return Err(internal_error("more rate limits than there may be"));
        };
        *place = Some(LimitConfig {
            terms: it.terms()?,
            cost: it.cost,
            is_usual: it.usual,
            is_per_channel: it.per_channel,
            counted: it.counted()?,
            is_per_request: it.per_request,
        });
        *terms = it.shared()?;
    }
    let mut homes = Homes::default();
    #[cfg(feature = "redis")]
    homes.0.extend(of_job(py, &arguments.rate_limits)?);
    #[cfg(not(feature = "redis"))]
    let _py = py;
    if shared.iter().any(Option::is_some) {
        let folder = private_folder(&std::env::temp_dir()).map_err(PageError::from);
        let page = |it: PathBuf| HostLimits::open(&page_of(&it, &arguments.application), shared);
        let limits = folder.and_then(page).map_err(|error| {
            let message = format!("`rate_limit` of scope 'host' or 'job': {error}");
            configuration_error(&message, ErrorKind::RateLimitInvalid)
        })?;
        homes.0.push(Arc::new(limits));
    }
    let is_none = homes.0.is_empty();
    Ok((config, (!is_none).then(|| Arc::new(homes) as Arc<dyn Ledgers>)))
}

/// Where the limits of an operator are at home that others share.
#[derive(Debug, Default)]
struct Homes(Vec<Arc<dyn Ledgers>>);

impl Ledgers for Homes {
    fn open(&self, limit: usize, channel: Option<u64>) -> Option<Arc<dyn Ledger>> {
        self.0.iter().find_map(|it| it.open(limit, channel))
    }
}

/// Takes part in the limits of the job. Those whose server is not reached, and that need not wait for it,
/// are each task's.
#[cfg(feature = "redis")]
fn of_job(py: Python<'_>, limits: &[RateLimitArguments]) -> PyResult<Option<Arc<dyn Ledgers>>> {
    let mut terms = [const { None }; MAX_LIMITS];
    for (place, it) in terms.iter_mut().zip(limits) {
        *place = it.of_job();
    }
    if terms.iter().all(Option::is_none) {
        return Ok(None);
    }
    let runtime = runtime()?;
    let opened = wait_for(py, &runtime, JobLimits::open(&runtime, terms))?;
    let (opened, unreached) = opened
        .map_err(|error| configuration_error(&error.to_string(), ErrorKind::RateLimitInvalid))?;
    if let Some((address, reason)) = unreached {
        let waits = limits.iter().any(|it| it.server.is_some() && it.waits_for_server);
        let what = if waits { meanwhile(limits).to_owned() } else { of_each_task(limits) };
        if is_first_of_host(&address) {
            let message = format!(
                "a limit of the job is not reached from this host, at {address}: {reason}; {what}. Open \
                 the port to the executors; `spark.sparkawait.port` chooses it, `spark.driver.host` its \
                 host"
            );
            // A task that begins has nobody yet who takes the lines of Rust.
            let logger = py.import("logging")?.call_method1("getLogger", ("sparkawait",))?;
            logger.call_method1("warning", ("%s", message))?;
        }
        if !waits {
            return Ok(None);
        }
    }
    Ok(Some(Arc::new(opened)))
}

/// Says what comes of calls whose limit of the job is not reached, and is to hold.
#[cfg(feature = "redis")]
fn meanwhile(limits: &[RateLimitArguments]) -> &'static str {
    let mut waiting = limits.iter().filter(|it| it.server.is_some() && it.waits_for_server);
    let has_parts = |it: &RateLimitArguments| it.kind != "budget" && it.tasks.is_some();
    if waiting.all(has_parts) {
        "its calls wait; after 30 s each task has its part"
    } else {
        "its calls wait for it, as a budget has no parts, and a limit has them only among as many tasks as \
         `spark.cores.max` says, or `spark.executor.cores` and `spark.executor.instances`"
    }
}

/// Says what a limit of the job comes to that each task has for itself.
#[cfg(feature = "redis")]
fn of_each_task(limits: &[RateLimitArguments]) -> String {
    let together = limits.iter().find(|it| it.server.is_some()).and_then(|it| {
        let tasks = it.tasks.filter(|tasks| *tasks > 1)?;
        let all = tasks.saturating_mul(it.permits) / it.scale;
        let period = Duration::from_nanos(it.period_nanos);
        Some(format!(
            "each of {tasks} tasks has the whole of it, together up to {all} in {period:?}"
        ))
    });
    together.unwrap_or_else(|| "each task has the whole of it".to_owned())
}

/// The numbers of a limit.
#[derive(Clone, Copy, FromPyObject)]
pub(crate) struct Numbers {
    permits: u64,
    period_nanos: u64,
    burst: u64,
}

/// Returns what a limit is now, and makes it `anew` first, if that is something: permits, nanoseconds of
/// their period, and the burst. `None`: nobody has asked for it.
pub(crate) fn limit_now(
    py: Python<'_>,
    application: &str,
    limit: &RateLimitArguments,
    anew: Option<Numbers>,
) -> PyResult<Option<(u64, u64, u64)>> {
    let refuse = |message: &str| configuration_error(message, ErrorKind::RateLimitInvalid);
    #[cfg(feature = "redis")]
    if let Some(terms) = limit.of_job() {
        let asked = order(&terms, anew.map(|it| limit.lent(it)));
        let state = wait_for(py, &runtime()?, asked)?;
        return match state.map_err(|error| refuse(&error.to_string()))? {
            State::Known { terms, .. } => Ok(Some(match terms {
                Lent::Rate { permits, period, burst } => (permits, period * 1_000, burst),
                Lent::Budget(permits) | Lent::Calls(permits) => (permits, 0, 0),
            })),
            State::Unused => Ok(None),
            State::OtherTerms(terms) => Err(refuse(&format!(
                "the limit `{}` is of another job, which says that it is: {terms}",
                limit.name
            ))),
        };
    }
    #[cfg(not(feature = "redis"))]
    let _py = py;
    let Some(SharedTerms { name, limit, .. }) = limit.shared()? else { return Ok(None) };
    let set = || {
        let page = page_of(&private_folder(&std::env::temp_dir())?, application);
        let shared = HostLimit::new(Arc::new(SharedPage::open(&page)?), &name, limit)?;
        if let Some((rate, burst)) = anew.and_then(Numbers::rate) {
            shared.set(Gcra::new(rate, burst), HostClock.now())?;
        }
        Ok::<_, PageError>(shared.terms())
    };
    let now = set().map_err(|error| refuse(&error.to_string()))?;
    Ok(Some((now.rate().permits().get(), now.rate().period().get(), now.burst().get())))
}

impl Numbers {
    fn rate(self) -> Option<(Rate, NonZeroU64)> {
        let Self { permits, period_nanos, burst } = self;
        let rate = Rate::new(NonZeroU64::new(permits)?, Duration::from_nanos(period_nanos))?;
        Some((rate, NonZeroU64::new(burst)?))
    }
}

/// Returns whether no process of this host has said yet that the server at `address` is not reached.
#[cfg(feature = "redis")]
fn is_first_of_host(address: &str) -> bool {
    let Ok(folder) = private_folder(&std::env::temp_dir()) else { return true };
    let name = format!("unreached-{:016x}", number_of(&address));
    std::fs::File::create_new(folder.join(name)).is_ok()
}

/// Adds what limits have let pass to the metrics of their task.
pub(crate) fn set_limits(
    metrics: &Bound<'_, PyDict>,
    limits: &LimitMetrics,
    shown: &[ShownLimit],
) -> PyResult<()> {
    let by_label = PyDict::new(metrics.py());
    for (ShownLimit { label, parts, scale }, permits) in shown.iter().zip(limits.permits) {
        let counts = PyDict::new(metrics.py());
        if *scale == 1 {
            counts.set_item("permits", permits)?;
        } else {
            #[expect(clippy::cast_precision_loss, reason = "shown to people")]
            counts.set_item("permits", permits as f64 / *scale as f64)?;
        }
        counts.set_item("parts", parts)?;
        by_label.set_item(label, counts)?;
    }
    metrics.set_item("rate_limits", by_label)?;
    if let Some(most) = limits.most_calls {
        metrics.set_item("in_flight_limit", most)?;
    }
    metrics.set_item("held", limits.waited.as_secs_f64())?;
    metrics.set_item("retries_held", limits.retries_held)?;
    metrics.set_item("retries_waiting", limits.retries_waiting)?;
    metrics.set_item("retries_waited", limits.retries_waited.as_secs_f64())
}
