// SPDX-License-Identifier: Apache-2.0
//! Which proxy a request goes through.

use std::env;

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use serde::{Deserialize, Serialize};
use sparkawait_task::error::StartError;
use url::Url;

/// Which proxy to go through.
#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ProxyChoice {
    /// What the environment says: `HTTPS_PROXY`, `NO_PROXY` and the like.
    System,
    None,
    Url(String),
}

/// The proxies of a set of settings.
pub(super) struct Proxies {
    matcher: Option<Matcher>,
    /// `NO_PROXY`: the matcher reads neither its ports nor its `*` for addresses.
    exempt: String,
}

impl ProxyChoice {
    /// Reads the choice and the environment.
    pub(super) fn proxies(&self) -> Result<Proxies, StartError> {
        let matcher = match self {
            Self::None => None,
            Self::System => Some(Matcher::from_env()),
            Self::Url(url) => {
                check(url)?;
                Some(Matcher::builder().all(url.as_str()).build())
            }
        };
        let exempt = match self {
            Self::System => env::var("NO_PROXY").or_else(|_| env::var("no_proxy")),
            _ => Ok(String::new()),
        };
        Ok(Proxies { matcher, exempt: exempt.unwrap_or_default() })
    }

    /// Refuses invalid proxies.
    pub(super) fn check(&self) -> Result<(), StartError> {
        if let Self::Url(url) = self { check(url) } else { Ok(()) }
    }
}

impl Proxies {
    /// Returns the proxy of a server, if it has one.
    pub(super) fn of(&self, server: &Uri) -> Option<Intercept> {
        let host = server.host()?;
        let port = server.port_u16().unwrap_or(match server.scheme_str() {
            Some("https") => 443,
            _ => 80,
        });
        if is_exempt(&self.exempt, host, port) {
            return None;
        }
        self.matcher.as_ref()?.intercept(server)
    }
}

/// Whether `*` or a name with a port says that a server needs no proxy.
fn is_exempt(exempt: &str, host: &str, port: u16) -> bool {
    exempt.split(',').map(str::trim).any(|entry| {
        if entry == "*" {
            return true;
        }
        let Some((name, of_port)) = entry.rsplit_once(':') else { return false };
        // An address of IPv6 has colons of its own.
        let is_name = !name.contains(':') || name.ends_with(']');
        if !is_name || of_port.parse() != Ok(port) {
            return false;
        }
        let name = name.strip_prefix("*.").or_else(|| name.strip_prefix('.')).unwrap_or(name);
        let Some(start) = host.len().checked_sub(name.len()) else { return false };
        let is_end = host.get(start..).is_some_and(|end| end.eq_ignore_ascii_case(name));
        is_end && (start == 0 || host[..start].ends_with('.'))
    })
}

/// Whether proxies of a scheme can be spoken to; the environment may name others, such as `socks5`.
pub(super) fn is_spoken(scheme: &str) -> bool {
    matches!(scheme, "http" | "https")
}

fn check(url: &str) -> Result<(), StartError> {
    let is_url = Url::parse(url).is_ok_and(|url| is_spoken(url.scheme()) && url.has_host());
    if is_url {
        return Ok(());
    }
    // The text may have a password in it.
    let what = "`proxy` must be the URL of a proxy, such as `http://proxy:3128`";
    Err(StartError::option(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_a_star_exempt_servers_too() {
        assert!(is_exempt("a, *", "127.0.0.1", 80));
        assert!(is_exempt("x,example.com:8443", "api.Example.com", 8443));
        assert!(is_exempt(".example.com:80", "example.com", 80));
        assert!(is_exempt("[::1]:81", "[::1]", 81));
        assert!(is_exempt("127.0.0.1:81", "127.0.0.1", 81));
        for entry in ["example.com:8443", "badexample.com:80", "ample.com:80", "::1", "", "a:x"] {
            assert!(!is_exempt(entry, "example.com", 80), "{entry}");
        }
    }

    #[test]
    fn a_proxy_that_is_given_is_that_of_all_servers() {
        let proxies = ProxyChoice::Url("http://u:p@proxy:3128".to_owned()).proxies().unwrap();
        let proxy = proxies.of(&Uri::from_static("https://h/")).unwrap();
        assert_eq!(proxy.uri().host(), Some("proxy"));
        assert!(proxy.basic_auth().is_some());
        for wrong in ["proxy", "socks5://proxy", "http://"] {
            assert!(ProxyChoice::Url(wrong.to_owned()).check().is_err(), "{wrong}");
        }
    }
}
