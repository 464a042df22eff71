// SPDX-License-Identifier: Apache-2.0
//! A server: whom connections lead to, and what it says of them.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::header::HeaderValue;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Uri};
use hyper_util::client::proxy::matcher::Intercept;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Whom a connection leads to.
pub(super) struct Origin {
    pub(super) is_https: bool,
    /// Without the brackets of IPv6.
    host: String,
    pub(super) port: u16,
    /// A column or a redirection names it, and nobody has allowed it.
    pub(super) is_of_row: bool,
    pub(super) authority: Authority,
    /// Its header.
    pub(super) host_header: HeaderValue,
    pub(super) uri: Uri,
    /// Whom it goes through.
    pub(super) proxy: Option<Intercept>,
    /// Whether a response had more headers than most servers send.
    pub(super) has_many_headers: AtomicBool,
}

impl Origin {
    /// Makes the server of an address; `None` if it can be none.
    pub(super) fn new(
        url: &url::Url,
        is_of_row: bool,
        proxy: impl FnOnce(&Uri) -> Option<Intercept>,
    ) -> Option<Self> {
        let is_https = url.scheme() == "https";
        let named = url.host_str()?;
        let text = match url.port() {
            Some(port) => format!("{named}:{port}"),
            None => named.to_owned(),
        };
        let authority = Authority::try_from(text.as_str()).ok()?;
        let parts = Uri::builder().scheme(url.scheme()).authority(authority.clone());
        let uri = parts.path_and_query("/").build().ok()?;
        Some(Self {
            is_https,
            host: named.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port_or_known_default()?,
            is_of_row,
            authority,
            host_header: HeaderValue::try_from(text).ok()?,
            proxy: proxy(&uri),
            has_many_headers: AtomicBool::new(false),
            uri,
        })
    }

    /// Its name or address.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Whether requests go to a proxy, and name the server in their address.
    pub(super) fn is_forwarded(&self) -> bool {
        !self.is_https && self.proxy.is_some()
    }
}

/// Returns for how long a server says that it keeps connections.
pub(super) fn announced(headers: &HeaderMap) -> Option<Duration> {
    headers.get(KEEP_ALIVE).and_then(timeout)
}

/// Reads `timeout=5` out of a header.
fn timeout(value: &HeaderValue) -> Option<Duration> {
    let parts = value.to_str().ok()?.split(',');
    let seconds = parts.filter_map(|it| it.trim().split_once('='));
    let timeout = seconds.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"));
    timeout?.1.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_server_keeps_connections_is_read() {
        let read = |text: &'static str| timeout(&HeaderValue::from_static(text));
        assert_eq!(read("timeout=5, max=100"), Some(Duration::from_secs(5)));
        assert_eq!(read("max=7 , Timeout = 17"), Some(Duration::from_secs(17)));
        for text in ["", "max=3", "timeout", "timeout=x", "timeout=-1"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
