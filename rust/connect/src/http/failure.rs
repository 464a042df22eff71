// SPDX-License-Identifier: Apache-2.0
//! What failed calls say, and whether they are worth another attempt.

use std::error::Error as StdError;
use std::time::Duration;

use h2::Reason;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use sparkawait_core::operator::Retry;
use sparkawait_core::policy::CallSign;
use sparkawait_task::error::CallFailure;

use crate::limit_headers::LimitHeaders;
use crate::lookup::service_failure;
use crate::tls::is_refused_certificate;

/// Characters of a response that a message quotes.
pub(super) const QUOTED: usize = 200;

/// A call that failed.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) failure: CallFailure,
    /// Whether it is worth another attempt.
    pub(super) retry: Retry,
    /// What it says of the server.
    pub(super) sign: CallSign,
    /// For how long it asks not to be called.
    pub(super) pause: Option<Duration>,
    /// Whether the server has found fault with what the request says, so that one that says less
    /// may do better.
    pub(super) is_of_request: bool,
}

impl Failed {
    /// Makes a failure that is not one of what the request says.
    pub(super) fn new(failure: CallFailure, retry: Retry, sign: CallSign) -> Self {
        Self { failure, retry, sign, pause: None, is_of_request: false }
    }
}

/// Whether a request may be carried out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeats {
    /// It may: that is what its method means.
    Harmless,
    /// It may: the server knows it again by its key.
    Keyed,
    /// It may be paid for, or done, twice.
    Unsafe,
}

/// Says why no other attempt is made.
const NOT_REPEATED: &str = "; it is not sent again, because it may have been carried out: give `idempotency_key` where the service knows a request again, or where twice is harmless";

/// Returns the host that a URL template names, without password, path and columns.
pub(super) fn host_label(url: &str) -> String {
    let authority = authority(url);
    let host = authority.rsplit('@').next().unwrap_or_default();
    let is_unnamed = host.is_empty() || authority.contains(['{', '}']);
    if is_unnamed { "the server".to_owned() } else { format!("`{host}`") }
}

/// Returns what a URL template has between scheme and path, a password included; nothing if a
/// column stands for the scheme.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// Makes the failure of a call that cannot be made with the values of its row.
pub(super) fn bad_request(what: &str) -> Failed {
    Failed::new(service_failure(what, what), Retry::No, CallSign::Neutral)
}

/// Makes the failure of a call that got an answer which is not gone along with.
pub(super) fn refused(host: &str, what: &str) -> Failed {
    let text = format!("{host}: {what}");
    Failed::new(service_failure(text.clone(), text), Retry::No, CallSign::Neutral)
}

/// Makes the failure of a call whose status is no success; `body` is the start of its body.
pub(super) fn status_failure(
    host: &str,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    repeats: Repeats,
) -> Failed {
    let mut summary = format!("{host} answered {status}");
    let text = String::from_utf8_lossy(body);
    let quoted: String = text.trim().chars().take(QUOTED).collect();
    let mut message =
        if quoted.is_empty() { summary.clone() } else { format!("{summary}: {quoted}") };
    let limits = LimitHeaders::of_response(headers);
    // Some refuse so who has used up a limit.
    let is_forbidden = status == StatusCode::FORBIDDEN && limits.delay().is_some();
    let is_worth_it = match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => true,
        // A request with the same key is under way, the attempt before this one perhaps.
        StatusCode::CONFLICT => repeats == Repeats::Keyed,
        // Whoever is behind the gateway may still be at it.
        StatusCode::GATEWAY_TIMEOUT if repeats == Repeats::Unsafe => {
            summary.push_str(NOT_REPEATED);
            message.push_str(NOT_REPEATED);
            false
        }
        status => is_forbidden || status.is_server_error(),
    };
    // Limits that are used up are why calls are refused, but not why they fail.
    let is_refused = is_forbidden || status == StatusCode::TOO_MANY_REQUESTS;
    let is_busy = is_refused || status == StatusCode::SERVICE_UNAVAILABLE;
    let delay = if is_refused { limits.delay() } else { limits.retry_after };
    let retry = if is_worth_it { delay.map_or(Retry::Yes, Retry::After) } else { Retry::No };
    let sign = match status {
        _ if is_busy => CallSign::Overloaded,
        StatusCode::GATEWAY_TIMEOUT => CallSign::TimedOut,
        // The server is well: the request before is under way.
        StatusCode::CONFLICT => CallSign::Neutral,
        _ => retry.sign(),
    };
    let is_of_request = matches!(status.as_u16(), 400 | 413 | 422 | 500);
    let asks_to_wait = matches!(retry, Retry::After(_));
    let failed = Failed::new(service_failure(message, summary), retry, sign);
    // Of others it says when that one call is worth another attempt.
    let pause = delay.filter(|_| is_busy);
    Failed { pause, is_of_request: is_of_request && !asks_to_wait, ..failed }
}

/// Makes the failure of a call that got no whole response.
pub(super) fn transport_failure(host: &str, error: reqwest::Error, repeats: Repeats) -> Failed {
    // The address holds values of the row, and may hold a token.
    let error = error.without_url();
    let mut retry = Retry::Yes;
    let sign = match () {
        () if error.is_builder() || is_refused_certificate(&error) => CallSign::Neutral,
        () if error.is_timeout() => CallSign::TimedOut,
        () => CallSign::Unreachable,
    };
    let mut what = if error.is_timeout() && error.is_connect() {
        "a connection was not made within `connect_timeout`".to_owned()
    } else if error.is_builder() {
        retry = Retry::No;
        format!("the request cannot be made: {}", root_cause(&error))
    } else if error.is_connect() {
        if is_refused_certificate(&error) {
            retry = Retry::No;
        }
        format!("no connection: {}", causes(&error))
    } else if was_not_taken(&error) {
        "the server did not take the request".to_owned()
    } else {
        // The request may have arrived.
        if repeats == Repeats::Unsafe {
            retry = Retry::No;
        }
        if error.is_timeout() {
            "no byte came within `read_timeout`".to_owned()
        } else {
            format!("the response broke off or is no HTTP: {}", root_cause(&error))
        }
    };
    if retry == Retry::No && !error.is_connect() && !error.is_builder() {
        what.push_str(NOT_REPEATED);
    }
    let text = format!("{host}: {what}");
    Failed::new(service_failure(text.clone(), text), retry, sign)
}

/// Tells whether a server has said that it did nothing about a request: it had too many, or closes
/// the connection. The client has sent it again twice by then.
fn was_not_taken(error: &dyn StdError) -> bool {
    let mut next = error.source();
    while let Some(source) = next {
        if let Some(error) = source.downcast_ref::<h2::Error>() {
            let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
            let is_closing = error.is_go_away() && error.reason() == Some(Reason::NO_ERROR);
            return error.is_remote() && (is_refused || is_closing);
        }
        next = source.source();
    }
    false
}

/// Makes the failure of a response that is longer than allowed.
pub(super) fn too_large(host: &str, limit: usize) -> Failed {
    let text = format!("{host}: the response has more than {limit} bytes; raise `max_reply_bytes`");
    let failed = Failed::new(service_failure(text.clone(), text), Retry::No, CallSign::Neutral);
    Failed { is_of_request: true, ..failed }
}

/// Returns the innermost error's text.
fn root_cause(error: &dyn StdError) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Returns the texts of what an error was caused by, outermost first.
fn causes(error: &dyn StdError) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(source) = next {
        let text = source.to_string();
        // Wrappers repeat what they wrap, or say no more than "client error (Connect)".
        let says_nothing = text.starts_with("client error");
        if !says_nothing && texts.last().is_none_or(|last| !last.contains(&text)) {
            texts.push(text);
        }
        next = source.source();
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn a_host_is_named_without_password_and_never_out_of_a_row() {
        assert_eq!(host_label("https://api.example.com:8443/a/{id}"), "`api.example.com:8443`");
        assert_eq!(host_label("https://user:word@example.com/"), "`example.com`");
        assert_eq!(host_label("https://{host}.example.com/"), "the server");
        assert_eq!(host_label("{url}"), "the server");
    }

    #[test]
    fn a_status_says_what_it_says_of_the_server_whatever_its_row_needs() {
        let sign = |status: u16, repeats| {
            let status = StatusCode::from_u16(status).unwrap();
            let failed = status_failure("host", status, &HeaderMap::new(), b"", repeats);
            (failed.retry, failed.sign)
        };

        assert_eq!(sign(429, Repeats::Unsafe), (Retry::Yes, CallSign::Overloaded));
        assert_eq!(sign(503, Repeats::Unsafe), (Retry::Yes, CallSign::Overloaded));
        assert_eq!(sign(504, Repeats::Unsafe), (Retry::No, CallSign::TimedOut));
        assert_eq!(sign(409, Repeats::Keyed), (Retry::Yes, CallSign::Neutral));
        assert_eq!(sign(404, Repeats::Harmless), (Retry::No, CallSign::Neutral));
        assert_eq!(sign(403, Repeats::Harmless), (Retry::No, CallSign::Neutral));
    }

    #[test]
    fn who_has_used_up_a_limit_may_be_forbidden_to_call() {
        let failed = |left: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-ratelimit-remaining", HeaderValue::from_static(left));
            headers.insert("x-ratelimit-reset", HeaderValue::from_static("30"));
            let forbidden = StatusCode::FORBIDDEN;
            let failed = status_failure("host", forbidden, &headers, b"", Repeats::Unsafe);
            (failed.retry, failed.sign, failed.pause)
        };

        let wait = Duration::from_secs(30);
        assert_eq!(failed("0"), (Retry::After(wait), CallSign::Overloaded, Some(wait)));
        assert_eq!(failed("1"), (Retry::No, CallSign::Neutral, None));
    }
}
