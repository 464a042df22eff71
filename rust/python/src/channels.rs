// SPDX-License-Identifier: Apache-2.0
//! Channels of a task as Python names them.

use arrow::datatypes::SchemaRef;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sparkawait_core::element::Key;
use sparkawait_core::flow::{ChannelConfig, ChannelTotals};
use sparkawait_core::policy::{PauseConfig, PolicyConfig};
use sparkawait_runtime::NamedChannels;
use sparkawait_task::row_config::ChannelSettings;

use crate::error::internal_error;
use crate::native::Native;

/// Where the channel of a row is found, and how calls are spread over channels.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ChannelArguments {
    /// Columns; none if the function knows the channel.
    route: Vec<String>,
    credits: CreditArguments,
}

/// The `Credits` of Python.
#[derive(FromPyObject)]
struct CreditArguments {
    exclusive: u32,
    floating: u32,
    max_per_channel: u32,
    max_backlog: usize,
    max_backlog_per_channel: u32,
}

/// Converts them; `native` is the function, which is asked where there are no columns.
pub(crate) fn to_channels(
    py: Python<'_>,
    arguments: ChannelArguments,
    policy: &PolicyConfig,
    native: Option<&Native>,
    input: &SchemaRef,
) -> PyResult<(ChannelSettings, ChannelConfig)> {
    let ChannelArguments { route: names, credits } = arguments;
    let most = credits.max_per_channel;
    let pause = policy.pause.map(|it| PauseConfig { most, ..it });
    let config = ChannelConfig {
        exclusive: credits.exclusive,
        floating: credits.floating,
        max_per_channel: credits.max_per_channel,
        max_backlog: credits.max_backlog,
        max_backlog_per_channel: credits.max_backlog_per_channel,
        policy: PolicyConfig { pause, ..*policy },
        is_single: false,
    };
    if !names.is_empty() {
        return Ok((ChannelSettings::Columns(names), config));
    }
    let found = native.map(|native| native.channel_finder(py, input)).transpose()?.flatten();
    let found = found.ok_or_else(|| internal_error("channels without columns"))?;
    Ok((ChannelSettings::Function(found), config))
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
