// SPDX-License-Identifier: Apache-2.0
//! Redirections: where they lead, and what goes along.
//!
//! A server may ask for the same request somewhere else. What was meant for
//! one server is not shown to another: at another scheme, host or port only
//! headers arrive that any browser sends, and no body does.

use reqwest::header::{
    ACCEPT, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, LOCATION,
    TRANSFER_ENCODING, USER_AGENT,
};
use reqwest::{Method, Request, Response, StatusCode, Url};

use super::failure::{Failed, refused};
use super::hosts::AllowedHosts;

/// Headers that tell another server nothing but what is wanted.
const HARMLESS: [HeaderName; 3] = [ACCEPT, ACCEPT_LANGUAGE, USER_AGENT];

/// What the next request of a call is made of.
pub(super) struct Redirects {
    left: usize,
    /// The one before.
    request: Request,
}

impl Redirects {
    /// Keeps what a request has; `None` if none is to be followed.
    pub(super) fn new(request: &Request, most: usize) -> Option<Self> {
        (most > 0)
            .then(|| request.try_clone())
            .flatten()
            .map(|request| Self { left: most, request })
    }

    /// Returns the request that a response asks for; `None` if it asks for none.
    pub(super) fn next(
        &mut self,
        host: &str,
        allowed: Option<&AllowedHosts>,
        response: &Response,
    ) -> Result<Option<Request>, Failed> {
        let (status, method) = (response.status(), self.request.method());
        let turns_to_get = match status {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => method == Method::POST,
            StatusCode::SEE_OTHER => method != Method::GET && method != Method::HEAD,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => false,
            _ => return Ok(None),
        };
        let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
        if self.left == 0 {
            return Err(refused(host, "it redirected more often than `redirects` allows"));
        }
        self.left -= 1;
        let url = target(response.url(), location.as_bytes())
            .ok_or_else(|| refused(host, "it redirected to what is no http or https URL"))?;
        // An allowed server may be made to redirect, and what answers then ends up in columns.
        if allowed.is_some_and(|allowed| allowed.refusal(&url).is_some()) {
            let what = "it redirected to an address that `allow_hosts` does not have; add its host \
                        there if rows may have what it answers";
            return Err(refused(host, what));
        }
        if turns_to_get {
            *self.request.method_mut() = Method::GET;
            *self.request.body_mut() = None;
            for name in [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, TRANSFER_ENCODING] {
                self.request.headers_mut().remove(name);
            }
        }
        if !is_same_origin(response.url(), &url) {
            if self.request.body().is_some() {
                let what = "it redirected a request with a body to another server, which the body \
                            is not sent to; name that server in `url`";
                return Err(refused(host, what));
            }
            let headers = self.request.headers_mut();
            let kept = HARMLESS.map(|name| (headers.remove(&name), name));
            *headers = kept.into_iter().filter_map(|(value, name)| Some((name, value?))).collect();
        }
        *self.request.url_mut() = url;
        Ok(self.request.try_clone())
    }
}

/// Returns the address that a redirection leads to, without a user's name and password.
fn target(from: &Url, location: &[u8]) -> Option<Url> {
    let mut url = from.join(std::str::from_utf8(location).ok()?).ok()?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return None;
    }
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    Some(url)
}

fn is_same_origin(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host_str() == other.host_str()
        && one.port_or_known_default() == other.port_or_known_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let same =
            |one, other| is_same_origin(&Url::parse(one).unwrap(), &Url::parse(other).unwrap());
        assert!(same("https://h/a", "https://H:443/b?c"));
        assert!(!same("https://h/", "http://h/"));
        assert!(!same("https://h/", "https://h:444/"));
        assert!(!same("https://h/", "https://h.x/"));
    }

    #[test]
    fn a_target_is_an_address_of_http_without_a_password() {
        let to = |location: &str| {
            let from = Url::parse("https://h/a/b?c").unwrap();
            target(&from, location.as_bytes()).map(String::from)
        };
        assert_eq!(to("d").unwrap(), "https://h/a/d");
        assert_eq!(to("//x/y").unwrap(), "https://x/y");
        assert_eq!(to("http://u:p@x/").unwrap(), "http://x/");
        assert_eq!(to("ftp://x/"), None);
        assert_eq!(to("file:///etc"), None);
    }
}
