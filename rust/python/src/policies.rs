// SPDX-License-Identifier: Apache-2.0
//! What bounds calls in time, as Python describes it.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use sparkawait_core::ErrorKind;
use sparkawait_core::policy::{
    AdaptiveLimitConfig, Counted, Gcra, Ledgers, LimitConfig, LimitMetrics, MAX_LIMITS,
    PauseConfig, PolicyConfig, Rate, RequestConfig,
};
use sparkawait_runtime::held_part::Holder;
use sparkawait_runtime::host_limit::{HostLimits, SharedTerms, number_of, page_of};
use sparkawait_runtime::private_folder::private_folder;
use sparkawait_runtime::shared_page::PageError;
use sparkawait_task::row_prices::{CostSource, PriceSettings, ResultCost, RowCost};

use crate::convert::{to_duration, to_timeout};
use crate::cost_function::PythonCosts;
use crate::error::{configuration_error, internal_error};
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
struct RateLimitArguments {
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
    /// A column of the results, and fields inside of it.
    result_cost: Option<Vec<String>>,
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
}

/// A limit in time, as its metrics are shown.
pub(crate) struct ShownLimit {
    label: String,
    parts: u64,
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
            let function = it.cost_function.as_ref().map(|function| {
                let (function, label) = (function.clone_ref(py), it.label.clone());
                let columns = Arc::clone(columns);
                CostSource::Function(Arc::new(PythonCosts { function, label, columns }))
            });
            let source = function.or_else(|| it.cost_column.clone().map(CostSource::Column));
            let (label, most) = (it.label.clone(), it.limit()?.most_cost());
            prices.rows.extend(source.map(|source| RowCost { limit, label, most, source }));
            let path = it.result_cost.clone();
            prices.results.extend(path.map(|path| ResultCost { limit, path }));
        }
        Ok(prices)
    }

    /// Returns how the metrics of the limits in time are shown.
    pub(crate) fn shown(self) -> Vec<ShownLimit> {
        let limits = self.rate_limits.into_iter();
        limits.map(|it| ShownLimit { label: it.label, parts: it.parts }).collect()
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
        Ok(self.is_shared.then_some(terms))
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
            terms: it.limit()?.into(),
            cost: it.cost,
            is_usual: it.usual,
            is_per_channel: it.per_channel,
            counted: it.counted()?,
            is_per_request: it.per_request,
        });
        *terms = it.shared()?;
    }
    if shared.iter().all(Option::is_none) {
        return Ok((config, None));
    }
    let folder = private_folder(&std::env::temp_dir()).map_err(PageError::from);
    let limits =
        folder.and_then(|it| HostLimits::open(&page_of(&it, &arguments.application), shared));
    let limits = limits.map_err(|error| {
        let message = format!("`rate_limit` of scope 'host' or 'job': {error}");
        configuration_error(&message, ErrorKind::RateLimitInvalid)
    })?;
    Ok((config, Some(Arc::new(limits))))
}

/// Adds what limits have let pass to the metrics of their task.
pub(crate) fn set_limits(
    metrics: &Bound<'_, PyDict>,
    limits: &LimitMetrics,
    shown: &[ShownLimit],
) -> PyResult<()> {
    let by_label = PyDict::new(metrics.py());
    for (ShownLimit { label, parts }, permits) in shown.iter().zip(limits.permits) {
        let counts = PyDict::new(metrics.py());
        counts.set_item("permits", permits)?;
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
