// SPDX-License-Identifier: Apache-2.0
//! How connections are made.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Proxy, Url};
use serde::{Deserialize, Serialize};
use sparkawait_task::error::StartError;
use tower_layer::layer_fn;

use super::protocol::{NotesProtocol, Protocol};
use crate::settings_key::key_of;
use crate::tls::{TlsSettings, Trust};

/// How connections are made; two functions with the same settings share them.
///
/// Has no `Debug`: it may hold a private key and the password of a proxy.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientSettings {
    /// Seconds.
    connect_timeout: f64,
    /// Seconds without a byte from the server.
    read_timeout: f64,
    version: Version,
    /// Requests at a time over one connection of HTTP/2.
    streams_per_connection: usize,
    gzip: bool,
    proxy: ProxyChoice,
    tls: TlsSettings,
}

/// The version of HTTP to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Version {
    /// What TLS negotiates; 1.1 without TLS.
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "1.1")]
    Http1,
    /// Also without TLS.
    #[serde(rename = "2")]
    Http2,
}

impl Version {
    /// Returns what to offer where connections are encrypted.
    fn protocols(self) -> &'static [&'static [u8]] {
        match self {
            Self::Auto => &[b"h2", b"http/1.1"],
            Self::Http1 => &[b"http/1.1"],
            Self::Http2 => &[b"h2"],
        }
    }
}

/// Which proxy to go through.
#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum ProxyChoice {
    /// What the environment says: `HTTPS_PROXY`, `NO_PROXY` and the like.
    System,
    None,
    Url(String),
}

impl ProxyChoice {
    /// Returns the proxy that was named, if one was.
    fn chosen(&self) -> Result<Option<Proxy>, StartError> {
        let Self::Url(url) = self else { return Ok(None) };
        // The text may have a password in it, and the error the text.
        let refuse = || {
            StartError::option("`proxy` must be the URL of a proxy, such as `http://proxy:3128`")
        };
        let is_url = Url::parse(url)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if !is_url {
            return Err(refuse());
        }
        Proxy::all(url).map(Some).map_err(|_| refuse())
    }
}

impl ClientSettings {
    /// Returns what only equal settings have; it shows their secrets.
    pub(super) fn key(&self) -> Result<String, StartError> {
        key_of(self)
    }

    /// Checks the settings without making anything of them.
    pub(super) fn check(&self) -> Result<(), StartError> {
        self.tls.check()?;
        seconds(self.connect_timeout, "connect_timeout")?;
        seconds(self.read_timeout, "read_timeout")?;
        self.proxy.chosen().map(drop)
    }

    /// Returns how many requests go over one connection of HTTP/2 at a time.
    pub(super) fn streams(&self) -> usize {
        self.streams_per_connection.max(1)
    }

    /// Whether requests to `url` may go over HTTP/2.
    pub(super) fn may_speak_http2(&self, url: &Url) -> bool {
        match self.version {
            Version::Auto => url.scheme() == "https",
            Version::Http1 => false,
            Version::Http2 => true,
        }
    }

    /// Returns what all hosts speak; `None`: what TLS negotiates.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        match self.version {
            Version::Auto => None,
            Version::Http1 => Some(Protocol::Http1),
            Version::Http2 => Some(Protocol::Http2),
        }
    }

    /// Returns the same settings for hosts of which it is known that they speak HTTP/2.
    pub(super) fn over_http2(&self) -> Self {
        Self { version: Version::Http2, ..self.clone() }
    }

    /// Makes a client, with connections of its own.
    pub(super) fn build(&self) -> Result<Client, StartError> {
        let mut tls = self.tls.config(Trust::AuthoritiesIfAny)?;
        tls.alpn_protocols = self.version.protocols().iter().map(|name| name.to_vec()).collect();
        let read_timeout = seconds(self.read_timeout, "read_timeout")?;
        let mut builder = Client::builder()
            .user_agent(concat!("sparkawait/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(seconds(self.connect_timeout, "connect_timeout")?)
            .read_timeout(read_timeout)
            // A connection whose server has gone without a word would get all further calls: one
            // that says nothing to a ping either is closed, after `read_timeout` in all.
            .http2_keep_alive_interval(read_timeout / 2)
            .http2_keep_alive_timeout(read_timeout / 2)
            // Followed by hand: what goes along to another server is ours to say.
            .redirect(Policy::none())
            .referer(false)
            .gzip(self.gzip)
            .tcp_nodelay(true)
            .tls_backend_preconfigured(tls);
        builder = match self.version {
            Version::Auto => builder.connector_layer(layer_fn(NotesProtocol)),
            Version::Http1 => builder.http1_only(),
            Version::Http2 => builder.http2_prior_knowledge(),
        };
        builder = match self.proxy.chosen()? {
            Some(proxy) => builder.proxy(proxy),
            None if matches!(self.proxy, ProxyChoice::None) => builder.no_proxy(),
            None => builder,
        };
        builder.build().map_err(|error| {
            StartError::option(format!("the HTTP client: {}", error.without_url()))
        })
    }
}

fn seconds(value: f64, option: &str) -> Result<Duration, StartError> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| StartError::option(format!("`{option}` is no duration: {value} seconds")))
}
