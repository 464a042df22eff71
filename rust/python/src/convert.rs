// SPDX-License-Identifier: Apache-2.0
//! Options of Python as settings of the operator.

use std::num::NonZeroUsize;
use std::time::Duration;

use pyo3::prelude::*;
use sparkawait_arrow::{OnError, OutputColumns, WatermarkStrategy};
use sparkawait_core::ErrorKind;
use sparkawait_core::operator::OutputMode;
use sparkawait_core::policy::{HedgeAfter, HedgeConfig, RetryBudgetConfig, WarmUpConfig};
use sparkawait_core::retry::{AsyncRetryStrategy, Jitter};
use sparkawait_runtime::{BufferTimeout, GrowthConfig};

use crate::error::configuration_error;

/// The numbers of an `AsyncRetryStrategy` of Python; delays are in seconds.
#[derive(FromPyObject)]
pub(crate) struct RetryArguments {
    max_retries: u32,
    initial: f64,
    maximum: f64,
    multiplier: f64,
    jitter: String,
    pub(crate) budget: Option<BudgetArguments>,
}

/// A `retry.Budget` of Python.
#[derive(FromPyObject)]
pub(crate) struct BudgetArguments {
    ratio: f64,
    min_per_second: u32,
}

impl BudgetArguments {
    /// Converts how many retries calls earn.
    pub(crate) fn read(&self) -> RetryBudgetConfig {
        RetryBudgetConfig::new(self.ratio, self.min_per_second)
    }
}

pub(crate) fn to_capacity(name: &str, value: i64) -> PyResult<NonZeroUsize> {
    let positive = usize::try_from(value).ok().and_then(NonZeroUsize::new);
    positive.ok_or_else(|| {
        let message = format!("`{name}` must be at least 1, got {value}");
        configuration_error(&message, ErrorKind::CapacityNotPositive)
    })
}

pub(crate) fn to_duration(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        let message = format!("`{name}` must be a time of at least 0 s, got {seconds}");
        configuration_error(&message, ErrorKind::DurationInvalid)
    })
}

/// Seconds, or the word `auto` with the seconds that a batch costs elsewhere.
#[derive(FromPyObject)]
pub(crate) enum BufferTimeoutArgument {
    Seconds(f64),
    Auto((String, f64)),
}

impl BufferTimeoutArgument {
    /// Converts when a batch leaves.
    pub(crate) fn read(&self) -> PyResult<BufferTimeout> {
        match self {
            Self::Seconds(seconds) => {
                to_duration("buffer_timeout", *seconds).map(BufferTimeout::After)
            }
            Self::Auto((_, seconds)) => to_duration("buffer_timeout", *seconds)
                .map(|consumer| BufferTimeout::Auto { consumer }),
        }
    }
}

/// Converts the calls in flight at most, and the rows of one of them.
pub(crate) fn to_warm_up((max_calls, rows_per_call): (i64, i64)) -> PyResult<WarmUpConfig> {
    Ok(WarmUpConfig {
        max_calls: to_capacity("max_concurrency", max_calls)?,
        rows_per_call: to_capacity("max_rows", rows_per_call)?,
    })
}

/// Converts the rows that are held at first, and the bytes until which these become more.
pub(crate) fn to_growth((first, max_bytes): (i64, i64)) -> PyResult<GrowthConfig> {
    let first = to_capacity("capacity", first)?;
    Ok(GrowthConfig { first, max_bytes: to_capacity("capacity", max_bytes)?.get() })
}

/// A `WatermarkStrategy` of Python; the delay is in seconds.
#[derive(FromPyObject)]
pub(crate) struct WatermarkArguments {
    column: String,
    delay: f64,
    /// Rows between watermarks.
    every: Option<NonZeroUsize>,
}

pub(crate) fn to_watermark(
    arguments: Option<WatermarkArguments>,
) -> PyResult<Option<WatermarkStrategy>> {
    let Some(WatermarkArguments { column, delay, every }) = arguments else { return Ok(None) };
    let delay = to_duration("watermark", delay)?;
    Ok(Some(WatermarkStrategy { column, delay, every }))
}

/// Reads a timeout, which must be positive if there is one.
pub(crate) fn to_timeout(name: &str, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        None => Ok(None),
        Some(seconds) if seconds > 0.0 => to_duration(name, seconds).map(Some),
        Some(seconds) => {
            let message = format!("`{name}` must be above 0 s or None, got {seconds}");
            Err(configuration_error(&message, ErrorKind::TimeoutNotPositive))
        }
    }
}

pub(crate) fn to_retry(arguments: Option<&RetryArguments>) -> PyResult<Option<AsyncRetryStrategy>> {
    let Some(arguments) = arguments else { return Ok(None) };
    let &RetryArguments { max_retries, initial, maximum, multiplier, ref jitter, .. } = arguments;
    let jitter = one_of("jitter", jitter, &[("full", Jitter::Full), ("none", Jitter::None)])?;
    let (initial, maximum) = (to_duration("initial", initial)?, to_duration("maximum", maximum)?);
    Ok(Some(AsyncRetryStrategy::exponential_backoff(
        max_retries,
        initial,
        maximum,
        multiplier,
        jitter,
    )))
}

/// The resolved `Hedge` of Python.
#[derive(FromPyObject)]
pub(crate) struct HedgeArguments {
    /// A time in seconds, or else the share of the calls.
    seconds: Option<f64>,
    share: f64,
    max_extra: f64,
}

pub(crate) fn to_hedge(arguments: Option<&HedgeArguments>) -> PyResult<Option<HedgeConfig>> {
    let Some(&HedgeArguments { seconds, share, max_extra }) = arguments else { return Ok(None) };
    let after = match seconds {
        Some(seconds) => HedgeAfter::Time(to_duration("after", seconds)?),
        None => HedgeAfter::Percentile(share),
    };
    Ok(Some(HedgeConfig { after, max_extra }))
}

/// Reads one of a few words.
fn one_of<T: Copy>(name: &str, value: &str, choices: &[(&str, T)]) -> PyResult<T> {
    if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == value) {
        return Ok(*choice);
    }
    let words: Vec<String> = choices.iter().map(|(word, _)| format!("`{word}`")).collect();
    let message = format!("`{name}` must be one of {}, got `{value}`", words.join(", "));
    Err(configuration_error(&message, ErrorKind::OptionInvalid))
}

pub(crate) fn to_mode(value: &str) -> PyResult<OutputMode> {
    let choices = [
        ("ordered", OutputMode::Ordered),
        ("unordered", OutputMode::Unordered),
        ("key_ordered", OutputMode::KeyOrdered),
    ];
    one_of("mode", value, &choices)
}

pub(crate) fn to_on_error(value: &str) -> PyResult<OnError> {
    let choices = [
        ("fail", OnError::Fail),
        ("null", OnError::Null),
        ("drop", OnError::Drop),
        ("capture", OnError::Capture),
    ];
    one_of("on_error", value, &choices)
}

pub(crate) fn to_output(value: &str) -> PyResult<OutputColumns> {
    let choices = [("append", OutputColumns::Append), ("replace", OutputColumns::Replace)];
    one_of("output", value, &choices)
}
