// SPDX-License-Identifier: Apache-2.0
//! Channels of a task as Python names them.

use arrow::datatypes::SchemaRef;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sparkawait_core::element::Key;
use sparkawait_core::flow::{AdaptiveLimitConfig, ChannelConfig, ChannelTotals};
use sparkawait_runtime::NamedChannels;
use sparkawait_task::exchange::ChannelSettings;

use crate::convert::to_timeout;
use crate::error::internal_error;
use crate::native::Native;

/// Columns, none if the function knows the channel, and whether they are hidden; exclusive and
/// floating credits, most calls of a channel, backlog in all and of a channel; bounds of an
/// adaptive limit.
pub(crate) type ChannelArguments =
    (Vec<String>, bool, u32, u32, u32, usize, u32, Option<LimitArguments>);

/// Where an adaptive limit begins, its smallest value, and the seconds of a call that is slow.
type LimitArguments = (u32, u32, Option<f64>);

/// Converts them; `native` is the function, which is asked where there are no columns.
pub(crate) fn to_channels(
    py: Python<'_>,
    arguments: ChannelArguments,
    native: Option<&Native>,
    input: &SchemaRef,
) -> PyResult<(ChannelSettings, ChannelConfig)> {
    let (names, is_hidden, exclusive, floating, max_per_channel, max_backlog, per_channel, limit) =
        arguments;
    let config = ChannelConfig {
        exclusive,
        floating,
        max_per_channel,
        max_backlog,
        max_backlog_per_channel: per_channel,
        adaptive: limit.map(|it| to_limit(it, max_per_channel)).transpose()?,
    };
    if !names.is_empty() {
        return Ok((ChannelSettings::Columns { names, is_hidden }, config));
    }
    let found = native.map(|native| native.destinations(py, input)).transpose()?.flatten();
    let found = found.ok_or_else(|| internal_error("channels without columns"))?;
    Ok((ChannelSettings::Function(found), config))
}

fn to_limit(arguments: LimitArguments, max: u32) -> PyResult<AdaptiveLimitConfig> {
    let (initial, min, max_latency) = arguments;
    let max_latency = to_timeout("max_latency", max_latency)?;
    Ok(AdaptiveLimitConfig { initial, min, max, max_latency })
}

/// Adds the metrics of the channels to those of their task.
pub(crate) fn set_channels(metrics: &Bound<'_, PyDict>, channels: &NamedChannels) -> PyResult<()> {
    let py = metrics.py();
    let report = &channels.report;
    let top = PyDict::new(py);
    for (channel, name) in report.top.iter().zip(&channels.names) {
        let counts = counts(py, &channel.totals)?;
        counts.set_item("credits", channel.credits)?;
        counts.set_item("in_flight", channel.in_flight)?;
        counts.set_item("limit", channel.limit)?;
        counts.set_item("backlog", channel.backlog)?;
        top.set_item(label(channel.key, name.as_deref()), counts)?;
    }
    let rest = counts(py, &report.rest)?;
    rest.set_item("in_flight", report.rest_in_flight)?;
    rest.set_item("backlog", report.rest_backlog)?;
    metrics.set_item("active_channels", report.active)?;
    metrics.set_item("channels", top)?;
    metrics.set_item("other_channels", rest)
}

/// Names a channel: `None` is the one of null, and one without a name is told by its hash.
fn label(key: Option<Key>, name: Option<&str>) -> Option<String> {
    let key = key?;
    Some(name.map_or_else(|| format!("#{:016x}", key.as_u64()), str::to_owned))
}

fn counts<'py>(py: Python<'py>, totals: &ChannelTotals) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("calls", totals.calls)?;
    dict.set_item("latency", totals.latency.as_secs_f64())?;
    dict.set_item("starved", totals.starved.as_secs_f64())?;
    Ok(dict)
}
