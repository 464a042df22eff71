// SPDX-License-Identifier: Apache-2.0
//! Where the server is, and how it is talked to.

use std::time::Duration;

use redis::{ConnectionInfo, IntoConnectionInfo};
use serde::{Deserialize, Serialize};
use sparkawait_task::error::StartError;

use crate::tls::TlsSettings;

/// Where the server is, and how it is talked to.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    /// Where it may be: equals, or nodes of a cluster, or sentinels.
    pub(super) url: Vec<String>,
    /// The name that sentinels know the primary by.
    #[serde(default)]
    pub(super) sentinel: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<i64>,
    pub(super) tls: TlsSettings,
    pub(super) connections: usize,
    /// Whether there are several nodes, of which the URL names one.
    pub(super) cluster: bool,
    pub(super) read_from: ReadFrom,
    pub(super) connect_timeout: f64,
    pub(super) idle_timeout: f64,
    pub(super) max_reply_bytes: usize,
}

/// Which nodes of a cluster are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReadFrom {
    Primary,
    /// Replicas, or the primary if there is none that answers.
    Replica,
}

/// Reads a positive number of seconds.
pub(super) fn seconds(value: f64, option: &str) -> Result<Duration, StartError> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|it| !it.is_zero())
        .ok_or_else(|| StartError::option(format!("`{option}` must be positive, got {value}")))
}

/// Reads an address.
pub(super) fn parse(url: &str) -> Result<ConnectionInfo, StartError> {
    // The parser's own words could quote the URL, and its password with it.
    url.into_connection_info().map_err(|_| {
        StartError::option(
            "`url` must be like `redis://host:6379/0`, `rediss://..` or `redis+unix:///path`",
        )
    })
}

#[cfg(test)]
impl Server {
    /// A cluster at `localhost:7000`, where nobody listens.
    pub(super) fn unreachable() -> Self {
        let server = serde_json::json!({
            "url": ["redis://localhost:7000"],
            "cluster": true,
            "connections": 1,
            "connect_timeout": 1.0,
            "idle_timeout": 1.0,
            "max_reply_bytes": 1000,
            "read_from": "primary",
            "tls": { "ca": null, "certificate": null, "private_key": null },
        });
        serde_json::from_value(server).unwrap()
    }
}
