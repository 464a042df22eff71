// SPDX-License-Identifier: Apache-2.0
//! Where the server is, and how it is talked to.

use std::collections::BTreeMap;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use serde::{Deserialize, Serialize};
use sparkawait_task::error::StartError;
use sparkawait_task::secret::Sources;

use crate::settings::key_of;
use crate::tls::TlsSettings;

/// Where the server is, and how it is talked to.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    /// Where it may be: equals, or nodes of a cluster, or sentinels.
    pub(super) url: Vec<String>,
    /// The name that sentinels know the primary by.
    pub(super) sentinel: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    /// What tells the secrets among them from others, whatever they are at the moment: `url 0`,
    /// `url 1`, .. and `password`.
    #[serde(default)]
    pub(super) sources: BTreeMap<String, String>,
    /// What reads them again.
    #[serde(skip)]
    pub(crate) readers: Sources,
    pub(super) database: Option<i64>,
    pub(super) tls: TlsSettings,
    /// Whether a certificate for another host is taken.
    #[serde(default)]
    pub(super) any_host: bool,
    pub(super) connections: usize,
    /// Whether there are several nodes; the URL names one of them.
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

/// Reads an address.
pub(super) fn parse(url: &str) -> Result<ConnectionInfo, StartError> {
    // The parser's own words could quote the URL, and its password with it.
    url.into_connection_info().map_err(|_| {
        StartError::option(
            "`url` must be like `redis://host:6379/0`, `rediss://..` or `redis+unix:///path`",
        )
    })
}

impl Server {
    /// Names the connections: equal for descriptions whose connections are each other's equals,
    /// whatever their passwords are at the moment.
    pub(super) fn identity(&self) -> Result<String, StartError> {
        let has_source = |option: &str| self.sources.contains_key(option);
        let mut places = Vec::new();
        for (index, url) in self.url.iter().enumerate() {
            let info = parse(url)?;
            let settings = info.redis_settings();
            let password = settings.password().filter(|_| !has_source(&format!("url {index}")));
            let is_tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
            let place = (info.addr().to_string(), is_tls, settings.db());
            let user = (settings.username().map(str::to_owned), password.map(str::to_owned));
            places.push((place, user));
        }
        let password = self.password.as_deref().filter(|_| !has_source("password"));
        let login = (&self.username, password, &self.sources, self.database);
        let nodes = (&self.sentinel, self.cluster, self.read_from, self.connections);
        let limits = (self.connect_timeout, self.idle_timeout, self.max_reply_bytes);
        key_of(&(places, login, nodes, limits, &self.tls, self.any_host))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(url: &str, file: Option<&str>) -> String {
        let sources = file.map(|it| ("url 0".to_owned(), it.to_owned())).into_iter().collect();
        let server = Server { url: vec![url.to_owned()], sources, ..Server::unreachable() };
        server.identity().unwrap()
    }

    #[test]
    fn connections_are_told_apart_by_what_does_not_change() {
        let known = identity("redis://u:hidden@a:1", Some("/token"));
        assert_eq!(identity("redis://u:rotated@a:1", Some("/token")), known);
        for (url, file) in [
            ("redis://u:hidden@a:1", Some("/other")),
            ("redis://u:hidden@a:2", Some("/token")),
            ("redis://u:hidden@a:1/3", Some("/token")),
            ("rediss://u:hidden@a:1", Some("/token")),
            ("redis://u:hidden@a:1", None),
        ] {
            assert_ne!(identity(url, file), known, "{url} {file:?}");
        }
        assert_ne!(identity("redis://:one@a:1", None), identity("redis://:two@a:1", None));
        assert!(!known.contains("hidden"));
    }
}
