// SPDX-License-Identifier: Apache-2.0
//! Redirections: where they lead, and what goes along.
//!
//! A server may ask for the same request somewhere else. What was meant for
//! one server is not shown to another: at another scheme, host or port only
//! headers arrive that any browser sends, and no body does.

use std::sync::Arc;

use http::header::{
    ACCEPT, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
    LOCATION, USER_AGENT,
};
use http::{HeaderMap, Method, StatusCode};
use url::Url;

use super::address::path_of;
use super::clients::{Clients, Place};
use super::failure::refused;
use super::hosts::AllowedHosts;
use super::reply::{Outgoing, Reply};
use crate::failure::Failure;

/// Headers that tell another server only what is wanted.
const HARMLESS: [HeaderName; 3] = [ACCEPT, ACCEPT_LANGUAGE, USER_AGENT];

/// Headers of a body.
const OF_BODY: [HeaderName; 2] = [CONTENT_TYPE, CONTENT_ENCODING];

/// What is told of redirections.
pub(super) struct RedirectRules {
    /// Most to follow.
    pub(super) most: usize,
    /// The hosts that they may lead to; any that is public if there are none.
    pub(super) allowed: Option<AllowedHosts>,
}

impl RedirectRules {
    /// Returns the request that a response asks for; `None` if it asks for none. `followed`: how
    /// many there were before.
    pub(super) fn next(
        &self,
        clients: &Clients,
        host: &str,
        request: &Outgoing,
        reply: &Reply,
        followed: usize,
    ) -> Result<Option<Outgoing>, Failure> {
        let method = &request.method;
        let turns_to_get = match reply.status {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => method == Method::POST,
            StatusCode::SEE_OTHER => method != Method::GET && method != Method::HEAD,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => false,
            _ => return Ok(None),
        };
        let Some(location) = reply.headers.get(LOCATION).filter(|_| self.most > 0) else {
            return Ok(None);
        };
        if followed >= self.most {
            return Err(refused(host, "it redirected more often than `redirects` allows"));
        }
        let from = request.uri().and_then(|uri| Url::parse(&uri.to_string()).ok());
        let url = from.and_then(|from| target(&from, location.as_bytes())).ok_or_else(|| {
            refused(host, "it redirected to something that is not an http or https URL")
        })?;
        // An allowed server may be made to redirect, and what answers then ends up in columns.
        if self.allowed.as_ref().is_some_and(|allowed| allowed.refusal(&url).is_some()) {
            let what = "it redirected to an address that `allow_hosts` does not have; add its host \
                        there if rows may have what it answers";
            return Err(refused(host, what));
        }
        let place = self.place(clients, &url, &request.place);
        let wrong = || refused(host, "it redirected to an address that cannot be requested");
        let place = place.ok_or_else(wrong)?;
        let path = path_of(&url).ok_or_else(wrong)?;
        let mut next = Outgoing { place, path, is_redirected: true, ..request.clone() };
        if turns_to_get {
            next.method = Method::GET;
            next.body = None;
            next.own.retain(|(name, _)| !OF_BODY.contains(name));
            let fixed = Arc::make_mut(&mut next.fixed);
            for name in OF_BODY {
                fixed.remove(name);
            }
        }
        if !is_same_origin(&request.place, &next.place) {
            if next.body.is_some() {
                let what = "it redirected a request with a body to another server, which the body \
                            is not sent to; name that server in `url`";
                return Err(refused(host, what));
            }
            next.own.retain(|(name, _)| HARMLESS.contains(name));
            let kept = HARMLESS.map(|name| (next.fixed.get(&name).cloned(), name));
            let kept = kept.into_iter().filter_map(|(value, name)| Some((name, value?)));
            let mut fixed = HeaderMap::from_iter([(HOST, HeaderValue::from_static(""))]);
            fixed.extend(kept);
            next.fixed = Arc::new(fixed);
        }
        Ok(Some(next))
    }

    /// Returns the server of an address that `from` names.
    fn place(&self, clients: &Clients, url: &Url, from: &Place) -> Option<Arc<Place>> {
        // The host that was called already is as good as before.
        let is_same_host = url.host_str() == from.origin.uri.host();
        let is_of_row = if is_same_host { from.origin.is_of_row } else { self.allowed.is_none() };
        clients.place(url, is_of_row)
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

fn is_same_origin(one: &Place, other: &Place) -> bool {
    let (one, other) = (&one.origin, &other.origin);
    one.is_https == other.is_https && one.port == other.port && one.uri.host() == other.uri.host()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let clients = Clients::for_test();
        let place = |url| clients.place(&Url::parse(url).unwrap(), false).unwrap();
        let same = |one, other| is_same_origin(&place(one), &place(other));
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

    #[test]
    fn a_host_that_a_redirection_names_is_guarded_like_one_of_a_row() {
        let clients = Clients::for_test();
        let at = |url: &str| Url::parse(url).unwrap();
        let from = clients.place(&at("http://h/"), false).unwrap();
        let is_of_row = |rules: &RedirectRules, url: &str| {
            rules.place(&clients, &at(url), &from).unwrap().origin.is_of_row
        };
        let any = RedirectRules { most: 1, allowed: None };
        assert!(is_of_row(&any, "http://i/") && !is_of_row(&any, "https://h:81/"));
        let allowed = AllowedHosts::parse(&["i".to_owned()], "{url}").unwrap();
        let some = RedirectRules { most: 1, allowed: Some(allowed) };
        assert!(!is_of_row(&some, "https://i/"));
    }
}
