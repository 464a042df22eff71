// SPDX-License-Identifier: Apache-2.0
//! The hosts that rows may name.

use reqwest::Url;

use crate::native::StartError;

/// Names of hosts, and of domains below which all hosts are.
#[derive(Debug)]
pub(super) struct AllowedHosts(Vec<Pattern>);

#[derive(Debug)]
struct Pattern {
    /// Whether all names below are meant, and not the name itself.
    is_domain: bool,
    name: String,
    /// Any port if there is none.
    port: Option<u16>,
}

impl AllowedHosts {
    /// Reads `api.example.com`, `api.example.com:8443`, `.example.com` and `*.example.com`.
    pub(super) fn parse(hosts: &[String]) -> Result<Self, StartError> {
        let pattern = |text: &String| {
            Pattern::parse(text).ok_or_else(|| {
                StartError::option(format!(
                    "`allow_hosts` takes names such as `api.example.com`, `api.example.com:8443` \
                     and `.example.com`, got `{text}`"
                ))
            })
        };
        hosts.iter().map(pattern).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the host of an address is one of them.
    pub(super) fn allows(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        self.0.iter().any(|pattern| {
            let is_named = if pattern.is_domain {
                host.strip_suffix(pattern.name.as_str()).is_some_and(|it| it.ends_with('.'))
            } else {
                host == pattern.name
            };
            is_named && pattern.port.is_none_or(|port| url.port_or_known_default() == Some(port))
        })
    }
}

impl Pattern {
    fn parse(text: &str) -> Option<Self> {
        let below = text.strip_prefix("*.").or_else(|| text.strip_prefix('.'));
        let rest = below.unwrap_or(text);
        let (name, port) = match rest.rsplit_once(':') {
            // The colons of an address in brackets are its own.
            Some((name, port)) if !port.ends_with(']') => (name, Some(port.parse().ok()?)),
            _ => (rest, None),
        };
        if name.is_empty() || name.contains(['/', '\\', '?', '#', '@', '*', '%', ' ']) {
            return None;
        }
        let url = Url::parse(&format!("https://{name}/")).ok()?;
        let is_domain = below.is_some();
        if is_domain && url.domain().is_none() {
            return None;
        }
        Some(Self { is_domain, name: url.host_str()?.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(pattern: &str, url: &str) -> bool {
        let hosts = AllowedHosts::parse(&[pattern.to_owned()]).unwrap();
        hosts.allows(&Url::parse(url).unwrap())
    }

    #[test]
    fn a_name_is_that_host_and_no_other() {
        assert!(allows("API.example.com", "https://api.Example.com/x"));
        assert!(allows("api.example.com", "http://api.example.com:81/"));
        for url in ["https://example.com", "https://x.api.example.com", "https://api.example.com.x"]
        {
            assert!(!allows("api.example.com", url), "{url}");
        }
        assert!(!allows("api.example.com", "https://api.example.com@evil.com/"));
    }

    #[test]
    fn a_domain_is_what_is_below_it() {
        for pattern in [".example.com", "*.example.com"] {
            assert!(allows(pattern, "https://a.b.example.com/"));
            assert!(!allows(pattern, "https://example.com/"));
            assert!(!allows(pattern, "https://badexample.com/"));
        }
    }

    #[test]
    fn a_port_is_that_port_alone() {
        assert!(allows("h:443", "https://h/"));
        assert!(!allows("h:443", "http://h/"));
        assert!(allows("[::1]:8080", "http://[::1]:8080/"));
        assert!(allows("[::1]", "http://[::1]:8080/"));
        assert!(allows("127.0.0.1:81", "http://127.0.0.1:81/"));
    }

    #[test]
    fn what_names_no_host_is_refused() {
        for text in ["", ".", "*", "*.", "https://h", "h/x", "h:x", "a.*.com", ".127.0.0.1", "u@h"]
        {
            let error = AllowedHosts::parse(&[text.to_owned()]).unwrap_err();
            assert!(error.message.contains("`allow_hosts`"), "{text}");
        }
    }
}
