// SPDX-License-Identifier: Apache-2.0
//! What Python says of one operator of a task.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{Schema, SchemaRef};
use pyo3::prelude::*;
use sparkawait_arrow::{OnError, output_schema};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{Begins, Config, EndOfInput, FailAfter, FailurePolicy, Tolerance};
use sparkawait_core::policy::PolicyConfig;
use sparkawait_runtime::{BufferTimeout, DriverConfig};
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::error::TaskError;
use sparkawait_task::layer::Layer;
use sparkawait_task::layer::cache::CacheMetrics;
use sparkawait_task::row_config::RowConfig;
use sparkawait_task::task::TaskConfig;

use crate::cache::{CacheArguments, to_cache};
use crate::channels::{ChannelArguments, to_channels};
use crate::convert::{
    BudgetArguments, BufferTimeoutArgument, HedgeArguments, RetryArguments, WatermarkArguments,
    to_capacity, to_growth, to_hedge, to_mode, to_on_error, to_output, to_retry, to_timeout,
    to_warm_up, to_watermark,
};
use crate::error::to_exception;
use crate::guard::FromArrow;
use crate::journal::JournalArguments;
use crate::native::Native;
use crate::policies::{PolicyArguments, ShownLimit, to_policies};
use crate::row::Columns;

/// The entries of a dict, see `Plan.operator_arguments` of Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct OperatorArguments {
    mode: String,
    input_schema: FromArrow<Schema>,
    hidden_schema: FromArrow<Schema>,
    carried_schema: FromArrow<Schema>,
    result_schema: FromArrow<Schema>,
    capacity: i64,
    capacity_bytes: Option<i64>,
    growth: Option<(i64, i64)>,
    max_concurrency: i64,
    timeout: Option<f64>,
    attempt_timeout: Option<f64>,
    max_wait: Option<f64>,
    begins_when_said: bool,
    not_repeated: Option<String>,
    retry: Option<RetryArguments>,
    key: Option<Vec<String>>,
    on_error: String,
    error_column: String,
    info: Option<String>,
    fail_after: Option<(u64, u32, Option<u64>)>,
    reads: Vec<String>,
    names_of_rows: Vec<String>,
    output: String,
    has_timeout_handler: bool,
    watermark: Option<WatermarkArguments>,
    buffer_timeout: Option<BufferTimeoutArgument>,
    max_rows_per_batch: i64,
    max_bytes_per_batch: i64,
    function_name: String,
    seed: u64,
    journal: Option<JournalArguments>,
    is_branch: bool,
    branches: Vec<OperatorArguments>,
    native: Option<Py<Native>>,
    cache: Option<CacheArguments>,
    channels: Option<ChannelArguments>,
    policies: Option<PolicyArguments>,
    target_latency: Option<f64>,
    warm_up: Option<(i64, i64)>,
    hedge: Option<HedgeArguments>,
    expected_result_bytes: Option<usize>,
}

/// One operator, as a task is built of it.
pub(crate) struct Operator {
    pub(crate) config: TaskConfig,
    /// `None`: the function is one of Python.
    pub(crate) native: Option<Py<Native>>,
    pub(crate) columns: Arc<Columns>,
    pub(crate) cache_metrics: Option<Arc<CacheMetrics>>,
    pub(crate) on_error: OnError,
    /// The limits in time, as their metrics are shown.
    pub(crate) limits: Vec<ShownLimit>,
    pub(crate) output_schema: SchemaRef,
    /// The operators of several functions that it calls side by side.
    pub(crate) branches: Vec<Operator>,
}

/// Returns how many calls a function can have; `when_said`: they begin when it says so.
fn concurrency(native: Option<&Py<Native>>, when_said: bool) -> PyResult<Concurrency> {
    let concurrency = native.map(|native| native.get().concurrency_of_function());
    let concurrency = concurrency.transpose()?.unwrap_or_default();
    Ok(if when_said { concurrency.beginning(Begins::WhenSaid) } else { concurrency })
}

/// Reads how many failed rows are too many.
pub(crate) const fn to_fail_after(
    (failures, per_million, at_end_of): (u64, u32, Option<u64>),
) -> FailAfter {
    FailAfter { failures, per_million, at_end_of }
}

impl OperatorArguments {
    /// Converts all of them.
    #[expect(clippy::too_many_lines, reason = "a line for each setting")]
    pub(crate) fn read(self, py: Python<'_>, partition: u32) -> PyResult<Operator> {
        let on_error = to_on_error(&self.on_error)?;
        let mut operator = self.operator(on_error)?;
        let driver = self.driver()?;
        let input = Arc::new(self.input_schema.0);
        let calls = u32::try_from(self.max_concurrency).unwrap_or(u32::MAX);
        let policies = self.policies.as_ref().map(|it| to_policies(py, it, calls)).transpose()?;
        let policy;
        (policy, operator.ledgers) = policies.unwrap_or((PolicyConfig::NONE, None));
        let mut channel = None;
        if let Some(arguments) = self.channels {
            let native = self.native.as_ref().map(Py::get);
            let (settings, config) = to_channels(py, arguments, &policy, native, &input)?;
            (operator.channels, channel) = (Some(config), Some(settings));
        } else if !policy.is_none() {
            operator.channels = Some(ChannelConfig::single(policy));
        }
        let columns = Arc::new(Columns::new(py, &input)?);
        let prices = self.policies.as_ref().map(|it| it.prices(py, &columns));
        let prices = prices.transpose()?.unwrap_or_default();
        let limits = self.policies.map(PolicyArguments::shown).unwrap_or_default();
        let rows = RowConfig {
            input,
            hidden: Arc::new(self.hidden_schema.0),
            carried: Arc::new(self.carried_schema.0),
            results: Arc::new(self.result_schema.0),
            output: to_output(&self.output)?,
            on_error,
            error_column: self.error_column,
            info_column: self.info,
            keeps_causes: on_error == OnError::Fail || self.fail_after.is_some(),
            reads: self.reads,
            names_of_rows: self.names_of_rows,
            key: self.key,
            channel,
            prices,
            watermark: to_watermark(self.watermark)?,
            function: self.function_name,
            partition,
            journal: self.journal.map(|it| it.read()).transpose()?,
            is_branch: self.is_branch,
            timeout: operator.timeout.unwrap_or(Duration::ZERO),
            attempt_timeout: operator.attempt_timeout.unwrap_or(Duration::ZERO),
            not_repeated: self.not_repeated.map(Into::into),
        };
        let (error, info) = (&rows.error_column, rows.info_column.as_deref());
        let emitted = output_schema(&rows.input, &rows.results, rows.output, on_error, error, info)
            .map_err(|error| to_exception(py, &TaskError::Arrow(error)))?;
        let cache = self.cache.map(to_cache).transpose()?;
        let cache_metrics = cache.as_ref().map(|cache| Arc::clone(&cache.metrics));
        let branches = self.branches.into_iter().map(|it| it.read(py, partition));
        let branches = branches.collect::<PyResult<Vec<_>>>()?;
        let native = self.native;
        let concurrency = concurrency(native.as_ref(), self.begins_when_said)?;
        let layers = cache.map(|it| Arc::new(it) as Arc<dyn Layer>).into_iter().collect();
        Ok(Operator {
            config: TaskConfig { operator, driver, rows, layers, concurrency },
            native,
            columns,
            cache_metrics,
            on_error,
            limits,
            output_schema: Arc::new(emitted),
            branches,
        })
    }

    fn operator(&self, on_error: OnError) -> PyResult<Config> {
        let capacity = to_capacity("capacity", self.capacity)?;
        let mut operator = Config::new(to_mode(&self.mode)?, capacity);
        operator.completed_take_slots = self.capacity_bytes.is_none();
        operator.max_concurrency = to_capacity("max_concurrency", self.max_concurrency)?;
        operator.timeout = to_timeout("timeout", self.timeout)?;
        operator.attempt_timeout = to_timeout("attempt_timeout", self.attempt_timeout)?;
        operator.max_wait = to_timeout("max_wait", self.max_wait)?;
        operator.is_repeatable = self.not_repeated.is_none();
        operator.retry = to_retry(self.retry.as_ref())?;
        operator.retry_budget =
            self.retry.as_ref().and_then(|it| it.budget.as_ref()).map(BudgetArguments::read);
        operator.hedge = to_hedge(self.hedge.as_ref())?;
        operator.asks_on_timeout = self.has_timeout_handler;
        operator.seed = self.seed;
        // A partition ends because it is finite, not because a job is drained.
        operator.at_end_of_input = EndOfInput::KeepRetrying;
        if on_error != OnError::Fail {
            operator.on_failure = FailurePolicy::Emit;
        }
        let bears = self.fail_after.map(to_fail_after);
        operator.fail_after = bears.map(|it| Arc::new(Tolerance::new(it)));
        Ok(operator)
    }

    fn driver(&self) -> PyResult<DriverConfig> {
        let max_rows_per_batch = to_capacity("max_rows_per_batch", self.max_rows_per_batch)?.get();
        let max_bytes_per_batch =
            to_capacity("max_bytes_per_batch", self.max_bytes_per_batch)?.get();
        let capacity_bytes =
            self.capacity_bytes.map(|it| to_capacity("capacity", it)).transpose()?;
        let capacity_bytes = capacity_bytes.map(NonZeroUsize::get);
        let buffer_timeout = self.buffer_timeout.as_ref();
        Ok(DriverConfig {
            max_rows_per_batch,
            max_bytes_per_batch,
            capacity_bytes,
            growth: self.growth.map(to_growth).transpose()?,
            buffer_timeout: buffer_timeout
                .map_or(Ok(BufferTimeout::Never), BufferTimeoutArgument::read)?,
            target_latency: to_timeout("target_latency", self.target_latency)?,
            warm_up: self.warm_up.map(to_warm_up).transpose()?,
            expected_result_bytes: self.expected_result_bytes,
        })
    }
}
