// SPDX-License-Identifier: Apache-2.0
//! The hosts that rows may name.

use sparkawait_task::error::StartError;
use url::Url;

/// Names of hosts, and of domains below which all hosts are.
#[derive(Debug)]
pub(super) struct AllowedHosts {
    patterns: Vec<Pattern>,
    /// Whether a pattern without a scheme means `http` too.
    takes_http: bool,
}

#[derive(Debug)]
struct Pattern {
    /// The scheme, if it was said.
    scheme: Option<&'static str>,
    /// Whether all names below are meant, and not the name itself.
    is_domain: bool,
    name: String,
    /// Any port if there is none.
    port: Option<u16>,
}

/// Schemes that may be said, with what follows them.
const SCHEMES: [(&str, &str); 2] = [("https://", "https"), ("http://", "http")];

impl AllowedHosts {
    /// Reads `api.example.com`, `api.example.com:8443`, `.example.com` and `*.example.com`, with
    /// `http://` or `https://` in front or without.
    ///
    /// What goes along, a key above all, is not sent in the clear because a row says so: without a
    /// scheme a host is one of https, unless `url`, the template of the addresses, starts with http.
    pub(super) fn parse(hosts: &[String], url: &str) -> Result<Self, StartError> {
        let pattern = |text: &String| {
            Pattern::parse(text).ok_or_else(|| {
                StartError::option(format!(
                    "`allow_hosts` takes names such as `api.example.com`, `api.example.com:8443`, \
                     `.example.com` and `http://localhost`, got `{text}`"
                ))
            })
        };
        let patterns = hosts.iter().map(pattern).collect::<Result<_, _>>()?;
        let takes_http = scheme_of(url).0 == Some("http");
        Ok(Self { patterns, takes_http })
    }

    /// Returns why an address is not one of them; `None` if it is.
    pub(super) fn refusal(&self, url: &Url) -> Option<&'static str> {
        let mut refusal = "the row names a host that `allow_hosts` does not have";
        for pattern in self.patterns.iter().filter(|it| it.names(url)) {
            match pattern.scheme {
                Some(scheme) if scheme == url.scheme() => return None,
                None if self.takes_http || url.scheme() == "https" => return None,
                _ if url.scheme() == "http" => {
                    refusal = "the row names a host of `allow_hosts` by http, which is not \
                               encrypted; use https, or write `http://` in front of the host there";
                }
                _ => {
                    refusal = "the row names a host by https that `allow_hosts` has by http alone; \
                               write it there without `http://` too";
                }
            }
        }
        Some(refusal)
    }
}

impl Pattern {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, text) = scheme_of(text);
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
        Some(Self { scheme, is_domain, name: url.host_str()?.to_owned(), port })
    }

    /// Whether it is the host and the port of an address, by whatever scheme.
    fn names(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        let is_named = if self.is_domain {
            host.strip_suffix(self.name.as_str()).is_some_and(|it| it.ends_with('.'))
        } else {
            host == self.name
        };
        is_named && self.port.is_none_or(|port| url.port_or_known_default() == Some(port))
    }
}

/// Splits a scheme off, however it is written.
fn scheme_of(text: &str) -> (Option<&'static str>, &str) {
    for (start, scheme) in SCHEMES {
        if let Some((head, rest)) = text.split_at_checked(start.len())
            && head.eq_ignore_ascii_case(start)
        {
            return (Some(scheme), rest);
        }
    }
    (None, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a host is allowed in an address that is `template`.
    fn allows_in(template: &str, pattern: &str, url: &str) -> bool {
        let hosts = AllowedHosts::parse(&[pattern.to_owned()], template).unwrap();
        hosts.refusal(&Url::parse(url).unwrap()).is_none()
    }

    fn allows(pattern: &str, url: &str) -> bool {
        allows_in("{url}", pattern, url)
    }

    #[test]
    fn a_row_alone_does_not_choose_to_send_in_the_clear() {
        assert!(!allows("h", "http://h/"));
        assert!(!allows("https://h", "http://h/"));
        assert!(!allows(".h", "http://a.h/"));
        assert!(allows("http://h", "http://h/"));
        assert!(allows("HTTP://.h:81", "http://a.h:81/"));
        assert!(!allows("http://h", "https://h/"));
    }

    #[test]
    fn an_address_that_starts_with_http_says_it_for_all_hosts() {
        assert!(allows_in("http://{host}/x", "h", "http://h/x"));
        assert!(allows_in("Http://h/{id}", "h", "http://h/1"));
        assert!(!allows_in("https://{host}/x", "h", "http://h/x"));
        assert!(!allows_in("{scheme}://h/x", "h", "http://h/x"));
        assert!(!allows_in("http://{host}/x", "https://h", "http://h/x"));
    }

    #[test]
    fn a_refusal_tells_the_host_from_its_scheme() {
        let hosts = AllowedHosts::parse(&["h".to_owned()], "{url}").unwrap();
        let refusal = |url| hosts.refusal(&Url::parse(url).unwrap()).unwrap();
        assert!(refusal("http://h/").contains("by http, which is not encrypted; use https"));
        assert!(refusal("http://other/").contains("names a host that `allow_hosts` does not have"));
    }

    #[test]
    fn a_name_is_that_host_and_no_other() {
        assert!(allows("API.example.com", "https://api.Example.com/x"));
        assert!(allows("api.example.com", "https://api.example.com:81/"));
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
        assert!(!allows("http://h:443", "http://h/"));
        assert!(allows("[::1]:8080", "https://[::1]:8080/"));
        assert!(allows("http://[::1]", "http://[::1]:8080/"));
        assert!(allows("http://127.0.0.1:81", "http://127.0.0.1:81/"));
    }

    #[test]
    fn what_names_no_host_is_refused() {
        for text in [
            "",
            ".",
            "*",
            "*.",
            "https://",
            "ftp://h",
            "https://h/",
            "h/x",
            "h:x",
            "a.*.com",
            ".127.0.0.1",
            "u@h",
        ] {
            let error = AllowedHosts::parse(&[text.to_owned()], "{url}").unwrap_err();
            assert!(error.message.contains("`allow_hosts`"), "{text}");
        }
    }
}
