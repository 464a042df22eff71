// SPDX-License-Identifier: Apache-2.0
//! The task of a scenario.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use sparkawait_arrow::{OnError, OutputColumns, WatermarkStrategy, output_schema};
use sparkawait_core::flow::ChannelConfig;
use sparkawait_core::operator::{Config, EndOfInput, FailurePolicy, OutputMode};
use sparkawait_core::policy::{
    AdaptiveLimitConfig, Counted, HedgeAfter, HedgeConfig, LimitConfig, LimitConfigs, PauseConfig,
    PolicyConfig, RequestConfig, RetryBudgetConfig, WarmUpConfig, usual_costs,
};
use sparkawait_core::retry::{AsyncRetryStrategy, Jitter};
use sparkawait_runtime::{BufferTimeout, Driver, DriverConfig};
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::fan_out::SLOT;
use sparkawait_task::function::{Replies, TaskFunction};
use sparkawait_task::layer::{Layer, MakeFunction};
use sparkawait_task::row_config::{ChannelSettings, RowConfig};
use sparkawait_task::row_prices::{CostSource, PriceSettings, RowCost};
use sparkawait_task::saved::SavedOperator;
use sparkawait_task::task::{TaskBuilder, TaskConfig, TaskFeeder};
use sparkawait_task::task_codec::TaskCodec;

use crate::columns::{error_name, info_name, input_schema, result_schema};
use crate::scenario::{CallPlan, Failing, Mode, OperatorPlan, PoolPlan, Scenario};
use crate::world::caching::WatchedCache;
use crate::world::journal;
use crate::world::noting::Noting;
use crate::world::sharing::sources;
use crate::world::{Shared, TaskClock};

/// Drives a task in simulation.
pub type SimulatedDriver = Driver<TaskCodec, TaskFunction, TaskClock>;

fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN)
}

const fn nanos(number: u64) -> Duration {
    Duration::from_nanos(number)
}

/// Builds the task of a scenario, which goes on with what was saved.
pub fn build(
    scenario: &Scenario,
    shared: &Shared,
    saved: Vec<SavedOperator>,
) -> (SimulatedDriver, TaskFeeder) {
    let (mut input, mut builder, mut site) = (input_schema(), None::<TaskBuilder>, 0);
    let mut saved = Some(saved);
    for (operator, plan) in scenario.operators.iter().enumerate() {
        let branches: Vec<TaskConfig> = plan
            .calls
            .iter()
            .enumerate()
            .map(|(branch, calls)| {
                let at = (operator, branch);
                let seed = scenario.seed ^ at.0 as u64;
                let mut config = call_config(seed, plan, calls, &input, at);
                config.operator.channels = channels(&scenario.pools, calls);
                config.rows.prices = prices(&scenario.pools, calls);
                config.operator.ledgers = Some(sources(shared, site + branch));
                config.rows.journal = scenario.journal.map(|it| journal::config(shared, it));
                let cache = calls.cache.map(|it| {
                    let cache = WatchedCache::new(it, (site + branch, operator), shared);
                    Arc::new(cache) as Arc<dyn Layer>
                });
                TaskConfig { layers: cache.into_iter().collect(), ..config }
            })
            .collect();
        let functions = (0..branches.len()).map(|branch| function(shared, site + branch, operator));
        let mut functions: Vec<MakeFunction<'_>> = functions.collect();
        site += branches.len();
        let next;
        let built = if plan.is_fan_out {
            let outer = outer_config(plan, &branches, &input);
            next = outer.rows.clone();
            let branches = branches.into_iter().zip(functions).collect();
            TaskBuilder::fan_out(builder.take(), outer, branches)
        } else {
            let config = branches.into_iter().next().expect("there is a function");
            next = config.rows.clone();
            let function = functions.remove(0);
            match builder.take() {
                Some(builder) => builder.then(config, function),
                None => {
                    TaskBuilder::restored(saved.take().unwrap_or_default().into(), config, function)
                }
            }
        };
        builder = Some(built.expect("the task can be built"));
        let rows = next;
        let output = output_schema(
            &rows.input,
            &rows.results,
            rows.output,
            rows.on_error,
            &rows.error_column,
            rows.info_column.as_deref(),
        );
        input = Arc::new(output.expect("the columns fit"));
    }
    builder.expect("there is an operator").build_on(TaskClock::start(shared))
}

fn function<'a>(shared: &Shared, site: usize, operator: usize) -> MakeFunction<'a> {
    let shared = shared.clone();
    Box::new(move |replies: Replies| {
        shared.world().replies[site] = Some(replies);
        Ok(Box::new(Noting { site, operator, shared }) as TaskFunction)
    })
}

const fn mode_of(mode: Mode) -> OutputMode {
    match mode {
        Mode::Ordered => OutputMode::Ordered,
        Mode::Unordered => OutputMode::Unordered,
        Mode::KeyOrdered => OutputMode::KeyOrdered,
    }
}

const fn on_error_of(failing: Failing) -> OnError {
    match failing {
        Failing::Fail => OnError::Fail,
        Failing::Null => OnError::Null,
        Failing::Drop => OnError::Drop,
        Failing::Capture => OnError::Capture,
    }
}

fn row_config(input: &SchemaRef, function: &str) -> RowConfig {
    RowConfig {
        input: Arc::clone(input),
        hidden: Arc::new(Schema::empty()),
        carried: Arc::new(Schema::empty()),
        results: Arc::new(Schema::empty()),
        output: OutputColumns::Append,
        on_error: OnError::Fail,
        error_column: "error".to_owned(),
        info_column: None,
        keeps_causes: true,
        reads: Vec::new(),
        key: None,
        channel: None,
        prices: PriceSettings::default(),
        watermark: None,
        function: function.to_owned(),
        partition: 0,
        names_of_rows: Vec::new(),
        journal: None,
        is_branch: false,
        timeout: Duration::MAX,
        attempt_timeout: Duration::MAX,
        not_repeated: None,
    }
}

fn driver_config(plan: &OperatorPlan) -> DriverConfig {
    let most = plan.calls.iter().map(|it| it.max_concurrency).sum();
    let bytes = plan.bytes;
    DriverConfig {
        max_rows_per_batch: plan.max_rows_per_batch,
        max_bytes_per_batch: bytes.map_or(64 << 20, |it| it.max_per_batch),
        capacity_bytes: bytes.and_then(|it| it.capacity),
        growth: None,
        buffer_timeout: match plan.buffer_timeout {
            None => BufferTimeout::Auto { consumer: Duration::ZERO },
            Some(0) => BufferTimeout::Never,
            Some(time) => BufferTimeout::After(nanos(time)),
        },
        target_latency: None,
        warm_up: plan
            .warm_up
            .then(|| WarmUpConfig { max_calls: count(most), rows_per_call: count(1) }),
        expected_result_bytes: bytes.and_then(|it| it.expected),
    }
}

/// The operator of functions side by side.
fn outer_config(plan: &OperatorPlan, branches: &[TaskConfig], input: &SchemaRef) -> TaskConfig {
    let mut operator = Config::new(mode_of(plan.mode), count(plan.capacity));
    operator.completed_take_slots = plan.completed_take_slots;
    operator.at_end_of_input = EndOfInput::KeepRetrying;
    let mut rows = row_config(input, "beside");
    let fields = branches.iter().flat_map(|config| {
        let it = &config.rows;
        let (error, info) = (&it.error_column, it.info_column.as_deref());
        let added = output_schema(&it.input, &it.results, it.output, it.on_error, error, info);
        added.expect("the columns fit").fields().to_vec()
    });
    rows.results = Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>()));
    rows.key = (plan.mode == Mode::KeyOrdered).then(|| vec!["key".to_owned()]);
    rows.watermark = watermark(plan);
    let driver = driver_config(plan);
    TaskConfig { operator, driver, rows, layers: Vec::new(), concurrency: Concurrency::unbounded() }
}

fn watermark(plan: &OperatorPlan) -> Option<WatermarkStrategy> {
    plan.watermark.map(|(delay, every)| WatermarkStrategy {
        column: "time".to_owned(),
        delay: Duration::from_micros(delay),
        every: NonZeroUsize::new(every),
    })
}

/// An operator of one function, or a branch.
fn call_config(
    seed: u64,
    plan: &OperatorPlan,
    calls: &CallPlan,
    input: &SchemaRef,
    (at, branch): (usize, usize),
) -> TaskConfig {
    let mode = if plan.is_fan_out { Mode::Unordered } else { plan.mode };
    let mut operator = Config::new(mode_of(mode), count(plan.capacity));
    operator.max_concurrency = count(calls.max_concurrency);
    operator.completed_take_slots = plan.completed_take_slots;
    operator.at_end_of_input = EndOfInput::KeepRetrying;
    operator.seed = seed;
    operator.timeout = calls.timeout.map(nanos);
    operator.attempt_timeout = calls.attempt_timeout.map(nanos);
    operator.max_wait = calls.max_wait.map(nanos);
    operator.is_repeatable = calls.is_repeatable;
    operator.asks_on_timeout = calls.asks_on_timeout;
    operator.retry = calls.retry.map(|it| {
        let jitter = if it.full_jitter { Jitter::Full } else { Jitter::None };
        let (initial, maximum) = (nanos(it.initial), nanos(it.maximum));
        AsyncRetryStrategy::exponential_backoff(
            it.max_retries,
            initial,
            maximum,
            it.multiplier,
            jitter,
        )
    });
    operator.hedge = calls.hedge.map(|it| HedgeConfig {
        after: it.after.map_or(HedgeAfter::Percentile(0.9), |it| HedgeAfter::Time(nanos(it))),
        max_extra: it.max_extra,
    });
    let fails = calls.on_error == Failing::Fail;
    operator.on_failure = if fails { FailurePolicy::FailTask } else { FailurePolicy::Emit };
    let mut rows = row_config(input, "call");
    rows.results = result_schema(plan, at, branch);
    rows.on_error = on_error_of(calls.on_error);
    rows.error_column = error_name(at, branch);
    rows.info_column = seed.is_multiple_of(2).then(|| info_name(at, branch));
    rows.timeout = operator.timeout.unwrap_or(Duration::MAX);
    rows.attempt_timeout = operator.attempt_timeout.unwrap_or(Duration::MAX);
    if calls.channels.is_some() {
        rows.channel = Some(ChannelSettings::Columns(vec!["channel".to_owned()]));
    }
    if plan.is_fan_out {
        rows.is_branch = true;
        rows.output = OutputColumns::Replace;
        let slot = Field::new(SLOT, DataType::UInt32, false);
        rows.carried = Arc::new(Schema::new(vec![slot]));
    } else {
        rows.key = (mode == Mode::KeyOrdered).then(|| vec!["key".to_owned()]);
        rows.watermark = watermark(plan);
    }
    let driver = driver_config(plan);
    TaskConfig { operator, driver, rows, layers: Vec::new(), concurrency: Concurrency::unbounded() }
}

fn limits(pools: &[PoolPlan], calls: &CallPlan) -> LimitConfigs {
    let mut limits = LimitConfigs::default();
    let of_calls = calls.limits.iter().map(|it| (it, false));
    let of_requests = calls.requests.iter().map(|it| (&it.limit, true));
    let in_time = of_calls.chain(of_requests).map(|(plan, is_per_request)| LimitConfig {
        terms: plan.gcra().into(),
        cost: plan.cost,
        is_usual: false,
        is_per_channel: plan.is_per_channel,
        counted: plan.is_told.then_some(Counted::Requests),
        is_per_request,
    });
    let of_pools = calls
        .pools
        .iter()
        .map(|it| LimitConfig { cost: it.cost, ..LimitConfig::new(pools[it.pool].terms()) });
    for (place, limit) in limits.iter_mut().zip(in_time.chain(of_pools)) {
        *place = Some(limit);
    }
    limits
}

fn prices(pools: &[PoolPlan], calls: &CallPlan) -> PriceSettings {
    let in_time = calls.limits.iter().map(|it| it.is_of_rows);
    let of_requests = calls.requests.iter().map(|_| false);
    let of_pools = calls.pools.iter().map(|it| it.is_of_rows);
    let of_rows = in_time.chain(of_requests).chain(of_pools).enumerate().filter(|it| it.1);
    let rows = of_rows.map(|(limit, _)| RowCost {
        scale: 1,
        limit,
        label: limit.to_string(),
        source: CostSource::Column("cost".to_owned()),
        most: u64::MAX,
    });
    // What a request costs is not of its rows.
    let usual = limits(pools, calls).map(|it| it.filter(|it| !it.is_per_request));
    PriceSettings {
        usual: usual_costs(&usual),
        rows: rows.collect(),
        counts_requests: calls.requests.is_some(),
        ..Default::default()
    }
}

fn channels(pools: &[PoolPlan], calls: &CallPlan) -> Option<ChannelConfig> {
    let policy = PolicyConfig {
        adaptive_limit: calls.adaptive_limit.map(|(least, most)| AdaptiveLimitConfig {
            initial: least,
            min: 1,
            max: most,
            max_latency: None,
        }),
        pause: calls.pause.map(|it| PauseConfig {
            initial: nanos(it.initial),
            maximum: nanos(it.maximum),
            refuses: it.refuses,
            ..PauseConfig::new(Some(it.after_drops), 5, 7)
        }),
        limits: limits(pools, calls),
        is_rate_adaptive: calls.adaptive_rate,
        retry_budget: calls
            .retry_budget
            .map(|(ratio, least)| RetryBudgetConfig::new(f64::from(ratio) / 1000.0, least)),
        requests: calls.requests.map(|it| RequestConfig {
            records: NonZeroU32::new(it.records).unwrap_or(NonZeroU32::MIN),
            linger: nanos(it.linger),
        }),
    };
    match calls.channels {
        None if policy.is_none() => None,
        None => Some(ChannelConfig::single(policy)),
        Some(it) => Some(ChannelConfig {
            exclusive: it.exclusive,
            floating: it.floating,
            max_per_channel: it.max_per_channel,
            max_backlog: it.max_backlog,
            max_backlog_per_channel: it.max_backlog_per_channel,
            policy,
            is_single: false,
        }),
    }
}
