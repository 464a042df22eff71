// SPDX-License-Identifier: Apache-2.0
//! What failed calls say, and whether they are worth another attempt.

use std::error::Error as StdError;

use http::StatusCode;
use http::header::{HeaderMap, WWW_AUTHENTICATE};
use sparkawait_core::operator::Retry;
use sparkawait_core::policy::CallSign;
use sparkawait_task::cause::Cause;
use sparkawait_task::error::CallFailure;

use super::connect::NoConnection;
use super::guard::Forbidden;
use super::http1::MANY_HEADERS;
use super::http2;
use super::reply::{Broken, Outgoing};
use crate::failure::{About, Failure, plain_failure, refusal, service_failure};
use crate::limit_headers::LimitHeaders;
use crate::tls::{in_words, is_refused_certificate};

/// Characters of a response that a message quotes.
pub(super) const QUOTED: usize = 200;

/// Which statuses are worth another attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct RetryStatuses {
    /// First and last one of each range, if that was said.
    pub(super) said: Option<Vec<(u16, u16)>>,
    /// Whether the server knows a request again by its key, as it is sent in each attempt.
    pub(super) is_keyed: bool,
}

/// Says that the service has too much to do, as 503 does.
const OVERLOADED: u16 = 529;

/// Says the same where the body has this code: Groq's cheaper tier has no room. Others say by it that a
/// token is not valid, which no further attempt changes.
const NO_ROOM: (u16, &[u8]) = (498, b"capacity_exceeded");

/// What a proxy in front of a service says that did not reach it: it is down, its address leads nowhere,
/// or TLS could not be agreed on. Its other answers, 520 and 524 among them, may be about a request
/// that has arrived.
const NOT_REACHED: [u16; 4] = [521, 523, 525, 526];

impl RetryStatuses {
    /// Returns whether a response says what happened to its request, and whether another attempt may
    /// fare better.
    fn meaning(&self, status: StatusCode, is_refused: bool, says_when: bool) -> (Cause, bool) {
        let (cause, passes) = match status {
            // Nothing was done about the request.
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_EARLY
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE => (Cause::Answered, true),
            _ if status == OVERLOADED || NOT_REACHED.contains(&status.as_u16()) => {
                (Cause::Answered, true)
            }
            // A request with the same key is under way, the attempt before this one perhaps.
            StatusCode::CONFLICT if self.is_keyed => (Cause::Answered, true),
            // The server behind the gateway may still be at it.
            StatusCode::GATEWAY_TIMEOUT => (Cause::Unknown, true),
            // It says itself when to come again, or nobody knows how far it got.
            _ if status.is_server_error() => (Cause::of(true, says_when), true),
            _ => (Cause::Answered, is_refused),
        };
        let Some(said) = &self.said else { return (cause, passes) };
        let is_said = |(first, last): &(u16, u16)| (*first..=*last).contains(&status.as_u16());
        // Who names it knows what it means.
        if said.iter().any(is_said) { (Cause::Answered, true) } else { (cause, false) }
    }
}

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
pub(super) fn bad_request(what: &str) -> Failure {
    Failure::lasting(Cause::NotSent, plain_failure(what))
}

/// Makes the failure of a call that got an answer which is not gone along with.
pub(super) fn refused(host: &str, what: &str) -> Failure {
    plain_failure(format!("{host}: {what}")).into()
}

/// A response whose status is not a success.
#[derive(Clone, Copy)]
pub(super) struct Refusal<'a> {
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
    /// The start of its body.
    pub(super) body: &'a [u8],
    /// Whether it says by other means than its status that there are too many calls.
    pub(super) is_throttled: bool,
}

/// Makes the failure of a call whose status is not a success.
pub(super) fn status_failure(
    host: &str,
    &Refusal { status, headers, body, is_throttled }: &Refusal<'_>,
    statuses: &RetryStatuses,
) -> Failure {
    let unspoken = unspoken_scheme(status, headers);
    let unspoken = unspoken.map(|it| format!("; it asks for {it}, which is not spoken here"));
    let summary = format!("{host} answered {status}{}", unspoken.unwrap_or_default());
    let text = String::from_utf8_lossy(body);
    let quoted: String = text.trim().chars().take(QUOTED).collect();
    let (message, summary) = if quoted.is_empty() {
        (summary.clone(), summary)
    } else {
        // Not for logs: it may quote the row.
        (format!("{summary}: {quoted}"), format!("{summary}; on_error='capture' shows its text"))
    };
    let limits = LimitHeaders::of_response(headers);
    // Some refuse so who has used up a limit.
    let is_forbidden = status == StatusCode::FORBIDDEN && limits.delay().is_some();
    let (without_room, word) = NO_ROOM;
    let has_no_room =
        status == without_room && body.windows(word.len()).any(|window| window == word);
    let is_throttled = is_throttled || has_no_room;
    // Limits that are used up are why calls are refused, but not why they fail.
    let is_refused = is_forbidden || is_throttled || status == StatusCode::TOO_MANY_REQUESTS;
    let is_busy = is_refused || status == StatusCode::SERVICE_UNAVAILABLE || status == OVERLOADED;
    let delay = if is_refused { limits.delay() } else { limits.retry_after };
    let (cause, passes) = statuses.meaning(status, is_refused, delay.is_some());
    let retry = match delay {
        _ if !passes => Retry::No,
        // What a gateway says of when to come again says nothing of the request.
        Some(delay) if cause == Cause::Answered => Retry::After(delay),
        _ => cause.retry(),
    };
    let sign = match status {
        _ if is_busy => CallSign::Overloaded,
        StatusCode::GATEWAY_TIMEOUT => CallSign::TimedOut,
        // The server is well: the request before is under way.
        StatusCode::CONFLICT => CallSign::Neutral,
        _ if NOT_REACHED.contains(&status.as_u16()) => CallSign::Unreachable,
        _ => retry.sign(),
    };
    let asks_to_wait = matches!(retry, Retry::After(_));
    let about = match status.as_u16() {
        _ if asks_to_wait || is_throttled => About::Call,
        400 | 413 | 422 => About::Rows,
        500 => About::RowsOrCall,
        _ => About::Call,
    };
    let call = service_failure(message, summary);
    let call = if !passes && status.is_client_error() {
        refusal(matches!(status.as_u16(), 401 | 403 | 407), call)
    } else {
        call
    };
    let call = CallFailure { status: Some(status.as_u16()), ..call };
    // Of others it says when that one call is worth another attempt.
    let pause = delay.filter(|_| is_busy);
    Failure { call: Box::new(call), cause, retry, sign, pause, about }
}

/// Returns how a caller would have to show who it is, if the server takes none of the ways that are known
/// here. Others that it offers are not quoted.
fn unspoken_scheme(status: StatusCode, headers: &HeaderMap) -> Option<&'static str> {
    const UNSPOKEN: [&str; 3] = ["Digest", "NTLM", "Negotiate"];
    if status != StatusCode::UNAUTHORIZED {
        return None;
    }
    let asked = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|it| it.to_str().ok());
    // A list of challenges with lists of parameters.
    let words: Vec<&str> = asked.flat_map(|it| it.split([',', ' '])).collect();
    let has = |name: &str| words.iter().any(|it| it.eq_ignore_ascii_case(name));
    UNSPOKEN.into_iter().find(|it| has(it)).filter(|_| !has("Basic") && !has("Bearer"))
}

impl Broken {
    /// Returns whether the request may have been carried out although no response came.
    pub(super) const fn cause(&self) -> Cause {
        let may_have_left = match self {
            Self::NoConnection(_)
            | Self::NoRequest
            | Self::OfStream(http2::Broken::Wrong(_) | http2::Broken::NotTaken) => false,
            Self::OfLine { lost, .. } => lost.was_sent,
            Self::OfStream(http2::Broken::Lost(_)) | Self::Silent => true,
        };
        Cause::of(may_have_left, false)
    }
}

/// Makes the failure of a call that got no response.
pub(super) fn transport_failure(host: &str, request: &Outgoing, broken: Broken) -> Failure {
    let cause = broken.cause();
    let is_https = request.place.origin.is_https;
    let (what, sign) = match broken {
        Broken::NoConnection(NoConnection::Forbidden(forbidden)) => {
            return leads_inside(host, request, forbidden);
        }
        Broken::NoConnection(NoConnection::Refused { what, is_of_caller }) => {
            let call = plain_failure(format!("{host}: no connection: {what}"));
            let call = if is_of_caller { refusal(true, call) } else { call };
            return Failure::lasting(cause, call);
        }
        Broken::NoConnection(NoConnection::TimedOut) => {
            let what = "a connection was not made within `connect_timeout`".to_owned();
            (what, Some(CallSign::TimedOut))
        }
        Broken::NoConnection(NoConnection::Failed(error)) => {
            let why = in_words(error.as_ref()).unwrap_or_else(|| causes(error.as_ref()));
            let passes = !is_refused_certificate(error.as_ref());
            (format!("no connection: {why}"), passes.then_some(CallSign::Unreachable))
        }
        Broken::NoRequest => {
            return bad_request("the row's values make no HTTP request");
        }
        Broken::OfStream(http2::Broken::Wrong(error)) => {
            (format!("the request cannot be made: {error}"), None)
        }
        Broken::OfStream(http2::Broken::NotTaken) => {
            ("the server did not take the request".to_owned(), Some(CallSign::Unreachable))
        }
        Broken::OfLine { lost, .. } if !lost.was_sent => {
            let what = format!("the request was not sent: {}", root_cause(&lost.error));
            (what, Some(CallSign::Unreachable))
        }
        Broken::OfLine { lost, .. } if lost.is_too_large() => {
            let bound = if lost.takes_many_headers {
                format!("it may have {MANY_HEADERS} headers of 400 KB in all")
            } else {
                format!("this server's next may have {MANY_HEADERS} headers, in place of 100")
            };
            return refused(host, &format!("the head of the response is too large; {bound}"));
        }
        Broken::OfLine { lost, .. } => return broke_off(host, is_https, &lost.error),
        Broken::OfStream(http2::Broken::Lost(error)) => return broke_off(host, is_https, &error),
        Broken::Silent => return silent(host),
    };
    let call = plain_failure(format!("{host}: {what}"));
    match sign {
        Some(sign) => Failure { sign, ..Failure::passing(cause, call) },
        None => Failure::lasting(cause, call),
    }
}

/// Makes the failure of a call whose response is packed as nobody can unpack it here.
pub(super) fn in_coding(host: &str, coding: &str) -> Failure {
    refused(
        host,
        &format!(
            "the response is packed (`Content-Encoding: {coding}`); gzip and deflate are \
             unpacked here, and client=sa.http.Client(compressed=False) hands bodies on as they come"
        ),
    )
}

/// Makes the failure of a call whose response is a text that nobody can read here.
pub(super) fn in_charset(host: &str, charset: &str) -> Failure {
    refused(
        host,
        &format!(
            "the response is a text in `charset={charset}`; UTF-8, UTF-16 and ISO-8859-1 are read \
             here, and returns=\"bytes\" hands bodies on as they come"
        ),
    )
}

/// Makes the failure of a call whose response is not packed as it says.
pub(super) fn badly_packed(host: &str, error: &std::io::Error) -> Failure {
    let text = format!("{host}: {error}");
    let sign = CallSign::Unreachable;
    Failure { sign, ..Failure::passing(Cause::Unknown, plain_failure(text)) }
}

/// Makes the failure of a call whose response did not come to its end; the request may have arrived.
pub(super) fn broke_off(host: &str, is_https: bool, error: &(dyn StdError + 'static)) -> Failure {
    let hint = if is_https { "" } else { "; if the port is one of TLS, write `https://`" };
    let why = in_words(error).unwrap_or_else(|| root_cause(error));
    let text = format!("{host}: the response broke off or is not HTTP: {why}{hint}");
    // Of a proxy that is asked by TLS it may say so late.
    let is_refused = is_refused_certificate(error);
    let sign = if is_refused { CallSign::Neutral } else { CallSign::Unreachable };
    Failure { sign, ..Failure::passing(Cause::Unknown, plain_failure(text)) }
}

/// Makes the failure of a call that was refused, after which there is another secret.
pub(super) fn renewed(host: &str, status: StatusCode) -> Failure {
    let text = format!("{host}: HTTP {status}, before another secret was read");
    let call = CallFailure { status: Some(status.as_u16()), ..plain_failure(text) };
    Failure::passing(Cause::Answered, call)
}

/// Makes the failure of a call whose server was silent for too long; the request may have arrived.
pub(super) fn silent(host: &str) -> Failure {
    let call = plain_failure(format!("{host}: no byte came within `read_timeout`"));
    Failure { sign: CallSign::TimedOut, ..Failure::passing(Cause::Unknown, call) }
}

/// Makes the failure of a call that would lead to where rows may not lead.
fn leads_inside(host: &str, request: &Outgoing, forbidden: Forbidden) -> Failure {
    let origin = &request.place.origin;
    let scheme = if origin.is_https { "" } else { "http://" };
    let allow = format!("`allow_hosts=[\"{scheme}{}\"]`", origin.authority);
    if request.is_redirected {
        let what = format!(
            "it redirected to `{}`, and {forbidden}; {allow} allows that, beside the host of `url`",
            origin.host()
        );
        return refused(host, &what);
    }
    let text = format!(
        "a row names the host `{}`, and {forbidden}: rows lead there only if you say so, with {allow}",
        origin.host()
    );
    Failure { about: About::Task, ..bad_request(&text) }
}

/// Makes the failure of a response that is longer than allowed.
pub(super) fn too_large(host: &str, limit: usize) -> Failure {
    let text = format!("{host}: the response has more than {limit} bytes; raise `max_reply_bytes`");
    Failure { about: About::AnsweredRows, ..plain_failure(text).into() }
}

/// Returns the innermost error's text.
fn root_cause(error: &dyn StdError) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Returns the texts of an error and of what it was caused by, outermost first.
fn causes(error: &(dyn StdError + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(source) = next {
        let text = source.to_string();
        // Wrappers repeat what they wrap.
        if texts.last().is_none_or(|last| !last.contains(&text)) {
            texts.push(text);
        }
        next = source.source();
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::header::{HeaderValue, RETRY_AFTER};
    use sparkawait_core::ErrorKind;

    use super::*;

    #[test]
    fn a_host_is_named_without_password_and_never_out_of_a_row() {
        assert_eq!(host_label("https://api.example.com:8443/a/{id}"), "`api.example.com:8443`");
        assert_eq!(host_label("https://user:word@example.com/"), "`example.com`");
        assert_eq!(host_label("https://{host}.example.com/"), "the server");
        assert_eq!(host_label("{url}"), "the server");
    }

    fn failed_with(
        status: u16,
        headers: &HeaderMap,
        body: &[u8],
        statuses: &RetryStatuses,
    ) -> Failure {
        let status = StatusCode::from_u16(status).unwrap();
        let refusal = Refusal { status, headers, body, is_throttled: false };
        status_failure("host", &refusal, statuses)
    }

    #[test]
    fn a_status_says_what_it_says_of_the_server_whatever_its_row_needs() {
        let sign = |status: u16, is_keyed| {
            let statuses = RetryStatuses { said: None, is_keyed };
            let failed = failed_with(status, &HeaderMap::new(), b"", &statuses);
            (failed.retry, failed.sign)
        };

        for key in [false, true] {
            for busy in [429, 503] {
                assert_eq!(sign(busy, key), (Retry::Yes, CallSign::Overloaded));
            }
            for not_done in [408, 425] {
                assert_eq!(sign(not_done, key), (Retry::Yes, CallSign::Unreachable));
            }
            for unknown in [500, 502, 507, 599] {
                let expected = (Retry::IfRepeatable, CallSign::Unreachable);
                assert_eq!(sign(unknown, key), expected);
            }
            assert_eq!(sign(504, key), (Retry::IfRepeatable, CallSign::TimedOut));
            for is_final in [400, 401, 403, 404, 422] {
                assert_eq!(sign(is_final, key), (Retry::No, CallSign::Neutral));
            }
        }
        assert_eq!(sign(409, true), (Retry::Yes, CallSign::Neutral));
        assert_eq!(sign(409, false), (Retry::No, CallSign::Neutral));
    }

    #[test]
    fn a_refusal_is_told_from_what_may_pass_and_from_a_caller_who_may_not() {
        let failure = |status: u16, body: &[u8], said: Option<Vec<(u16, u16)>>| {
            let statuses = RetryStatuses { said, is_keyed: false };
            let failure = failed_with(status, &HeaderMap::new(), body, &statuses).call;
            assert_eq!(failure.status, Some(status));
            failure
        };

        for refused in [400, 404, 409, 413, 422] {
            assert_eq!(failure(refused, b"", None).kind, ErrorKind::RequestRefused);
        }
        for unauthorized in [401, 403, 407] {
            assert_eq!(failure(unauthorized, b"", None).kind, ErrorKind::Unauthorized);
        }
        for passing in [408, 425, 429, 500, 503] {
            assert_eq!(failure(passing, b"", None).kind, ErrorKind::UserFunctionFailed);
        }
        assert_eq!(failure(401, b"", Some(vec![(401, 401)])).kind, ErrorKind::UserFunctionFailed);
        let quoting = failure(400, b"row 7 is bad", None);
        assert_eq!(quoting.message, "host answered 400 Bad Request: row 7 is bad");
        let shown = "host answered 400 Bad Request; on_error='capture' shows its text";
        assert_eq!(quoting.summary, shown);
    }

    #[test]
    fn statuses_that_were_said_are_the_only_ones_that_are_worth_it() {
        let statuses = RetryStatuses { said: Some(vec![(404, 404), (500, 501)]), is_keyed: true };
        let retry = |status: u16, delay: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(delay) = delay {
                headers.insert("retry-after", HeaderValue::from_static(delay));
            }
            failed_with(status, &headers, b"", &statuses).retry
        };

        for said in [404, 500, 501] {
            assert_eq!(retry(said, None), Retry::Yes);
            assert_eq!(retry(said, Some("7")), Retry::After(Duration::from_secs(7)));
        }
        for other in [409, 429, 502, 503] {
            assert_eq!(retry(other, Some("7")), Retry::No);
        }
    }

    #[test]
    fn a_server_that_says_when_to_come_again_has_done_nothing() {
        let after = |status| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("7"))]);
            failed_with(status, &headers, b"", &RetryStatuses::default()).retry
        };

        let seven = Retry::After(Duration::from_secs(7));
        assert_eq!(after(500), seven);
        assert_eq!(after(504), Retry::IfRepeatable);
    }

    #[test]
    fn who_has_used_up_a_limit_may_be_forbidden_to_call() {
        let failed = |left: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-ratelimit-remaining", HeaderValue::from_static(left));
            headers.insert("x-ratelimit-reset", HeaderValue::from_static("30"));
            let failed = failed_with(403, &headers, b"", &RetryStatuses::default());
            (failed.retry, failed.sign, failed.pause)
        };

        let wait = Duration::from_secs(30);
        assert_eq!(failed("0"), (Retry::After(wait), CallSign::Overloaded, Some(wait)));
        assert_eq!(failed("1"), (Retry::No, CallSign::Neutral, None));
    }

    #[test]
    fn a_code_may_say_that_there_are_too_many_calls() {
        let (status, headers) = (StatusCode::BAD_REQUEST, &HeaderMap::new());
        let told = |is_throttled, said| {
            let refusal = Refusal { status, headers, body: b"", is_throttled };
            let failed = status_failure("host", &refusal, &RetryStatuses { said, is_keyed: false });
            (failed.retry, failed.sign, failed.about == About::Rows)
        };

        assert_eq!(told(true, None), (Retry::Yes, CallSign::Overloaded, false));
        assert_eq!(told(false, None), (Retry::No, CallSign::Neutral, true));
        assert_eq!(told(true, Some(vec![(503, 503)])).0, Retry::No);
    }

    #[test]
    fn a_tier_that_has_no_room_is_told_from_a_token_that_is_not_valid() {
        let of = |body: &[u8]| failed_with(498, &HeaderMap::new(), body, &RetryStatuses::default());
        let tier = of(br#"{"error": {"type": "flex", "code": "capacity_exceeded"}}"#);
        assert_eq!((tier.retry, tier.sign), (Retry::Yes, CallSign::Overloaded));
        for other in [&b"{\"error\": {\"code\": 498, \"message\": \"Invalid Token\"}}"[..], b""] {
            let failed = of(other);
            assert_eq!((failed.retry, failed.sign), (Retry::No, CallSign::Neutral));
            assert_eq!(failed.call.kind, ErrorKind::RequestRefused);
        }
    }

    #[test]
    fn a_way_to_show_who_calls_that_is_not_spoken_is_named() {
        let message = |status: u16, asked: &[&'static str]| {
            let asked = asked.iter().map(|it| (WWW_AUTHENTICATE, HeaderValue::from_static(it)));
            let headers = asked.collect();
            failed_with(status, &headers, b"no", &RetryStatuses::default()).call.message
        };
        let digest = r#"Digest realm="a, b", qop="auth", nonce="7""#;
        let expected =
            "host answered 401 Unauthorized; it asks for Digest, which is not spoken here: no";
        assert_eq!(message(401, &[digest]), expected);
        assert!(message(401, &["Negotiate", "NTLM"]).contains("it asks for NTLM, which"));
        for known in [&["Basic realm=\"x\"", digest][..], &["digest x=1, bearer"], &["Other"], &[]]
        {
            assert_eq!(message(401, known), "host answered 401 Unauthorized: no", "{known:?}");
        }
        assert_eq!(message(403, &[digest]), "host answered 403 Forbidden: no");
    }
}
