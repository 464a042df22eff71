// SPDX-License-Identifier: Apache-2.0
//! How connections are made.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sparkawait_task::error::StartError;

use super::connect::Connector;
use super::http2::Pings;
use super::protocol::Version;
use super::proxies::{Proxies, ProxyChoice};
use crate::settings::{key_of, seconds};
use crate::tls::{TlsSettings, Trust};

/// A connection of HTTP/2 that says nothing is asked so often whether it is alive, and may take so
/// long to say so.
const PINGS: Pings = Pings { every: Duration::from_secs(20), patience: Duration::from_secs(10) };

/// How connections are made; two functions with the same settings share them.
///
/// Has no `Debug`: it may hold a private key and the password of a proxy.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientSettings {
    /// Seconds.
    connect_timeout: f64,
    /// Seconds without a byte of a response; any number of them if there is none.
    read_timeout: Option<f64>,
    version: Version,
    /// Requests at a time over one connection of HTTP/2.
    streams_per_connection: usize,
    compressed: bool,
    proxy: ProxyChoice,
    tls: TlsSettings,
}

impl ClientSettings {
    #[cfg(test)]
    pub(super) fn for_test() -> Self {
        let (proxy, tls) = (ProxyChoice::None, TlsSettings::default());
        let (connect_timeout, read_timeout, version) = (10.0, None, Version::Auto);
        let streams_per_connection = 100;
        Self {
            connect_timeout,
            read_timeout,
            version,
            streams_per_connection,
            compressed: true,
            proxy,
            tls,
        }
    }

    /// Returns what only equal settings have; it shows their secrets.
    pub(super) fn key(&self) -> Result<String, StartError> {
        key_of(self)
    }

    /// Checks the settings without making anything of them.
    pub(super) fn check(&self) -> Result<(), StartError> {
        self.tls.check()?;
        seconds(self.connect_timeout, "connect_timeout")?;
        self.silence()?;
        self.proxy.check()
    }

    /// Whether responses may come packed.
    pub(super) fn takes_packed(&self) -> bool {
        self.compressed
    }

    /// Returns how long a server may be silent, if that has a bound.
    pub(super) fn silence(&self) -> Result<Option<Duration>, StartError> {
        self.read_timeout.map(|it| seconds(it, "read_timeout")).transpose()
    }

    /// Returns how many requests go over one connection of HTTP/2 at a time.
    pub(super) fn streams(&self) -> usize {
        self.streams_per_connection.max(1)
    }

    /// Whether requests may go over HTTP/2.
    pub(super) fn may_speak_http2(&self, is_https: bool) -> bool {
        match self.version {
            Version::Auto => is_https,
            Version::Http1 => false,
            Version::Http2 => true,
        }
    }

    /// Reads the proxies of these settings.
    pub(super) fn proxies(&self) -> Result<Proxies, StartError> {
        self.proxy.proxies()
    }

    /// Makes what makes connections.
    pub(super) fn connector(&self) -> Result<Connector, StartError> {
        let tls = self.tls.config(Trust::AuthoritiesIfAny)?;
        let limit = seconds(self.connect_timeout, "connect_timeout")?;
        let pings = match self.silence()? {
            // A connection whose server is gone must be found before its calls are.
            Some(silence) => Pings {
                every: PINGS.every.min(silence / 2),
                patience: PINGS.patience.min(silence / 2),
            },
            None => PINGS,
        };
        Ok(Connector::new(&tls, self.version, limit, self.streams(), pings))
    }
}
