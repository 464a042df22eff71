// SPDX-License-Identifier: Apache-2.0
//! One call: the request goes out, the response comes in.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use sparkawait_core::operator::AttemptId;
use sparkawait_core::policy::LimitLeft;
use sparkawait_task::error::{StartError, TaskError};
use tokio::time::timeout;

use super::again::Earlier;
use super::auth::Auth;
use super::aws_error::AwsError;
use super::charset::{Charset, Reads};
use super::clients::Clients;
use super::failure::{
    Refusal, RetryStatuses, renewed, status_failure, too_large, transport_failure,
};
use super::redirects::RedirectRules;
use super::reply::{Outgoing, Reply};
use super::sending::{NoReply, next, send};
use super::watch::Watch;
use crate::failure::{About, Failure};
use crate::limit_headers::{LimitHeaders, tells_of_limit};
use crate::reply_budget::{ReplyBudget, ReplyShare};

/// Bytes of a failed response's body that are kept, for its message.
const KEPT_OF_FAILURE: usize = 4096;

/// Bytes of a body that nobody wants that are read, so that the connection serves the next call.
const READ_OF_FAILURE: usize = 256 << 10;

/// For how long it is read. What has not come by then is not waited for, and its connection is closed.
const PATIENCE_WITH_FAILURE: Duration = Duration::from_secs(1);

/// What is made of a response.
pub(super) struct CallRules {
    pub(super) success: Vec<(u16, u16)>,
    pub(super) missing: Vec<u16>,
    pub(super) reads: Reads,
    pub(super) max_response_bytes: usize,
    pub(super) response_headers: Vec<HeaderName>,
    pub(super) redirects: RedirectRules,
    /// Who calls, where that may change.
    pub(super) auth: Option<Auth>,
    pub(super) retry_statuses: RetryStatuses,
    /// Whether all rows of a channel call one server, so that none does while that asks for it.
    pub(super) pauses: bool,
    /// Whether responses are looked at for what they say of the limits of that server.
    pub(super) reads_limits: bool,
    /// The server in messages.
    pub(super) host: String,
    /// What the bodies that are read come to together.
    pub(super) budget: Arc<ReplyBudget>,
    /// How long a server may be silent, if that has a bound.
    pub(super) silence: Option<Duration>,
}

/// The end of a call.
pub(super) struct EndedCall {
    /// The call, or the first of those that a request is for.
    pub(super) attempt: AttemptId,
    pub(super) outcome: Outcome,
    /// That of its response, whatever was made of it.
    pub(super) status: Option<u16>,
    /// What its response says of the limits of the server.
    pub(super) left: Vec<LimitLeft>,
    /// What its next attempt has to know, if the request is sent again.
    pub(super) again: Option<Earlier>,
}

/// What a call came to.
pub(super) enum Outcome {
    Found(Found),
    Missed,
    /// A column of the request is null.
    NullKey,
    Failed(Box<Failure>),
}

/// A response that is a success, or what it has for one of several rows.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) status: u16,
    pub(super) headers: Vec<Option<HeaderValue>>,
    pub(super) body: Bytes,
    /// Its share of the budget, until all of it are results.
    pub(super) _share: Arc<ReplyShare>,
}

impl Outcome {
    /// Returns the bytes that its results are made of.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Found(found) => found.body.len(),
            Self::Missed | Self::NullKey | Self::Failed(_) => 0,
        }
    }
}

/// Fails if a call has ended that ends its task.
pub(super) fn ends_task(ended: &[(AttemptId, Outcome)]) -> Result<(), TaskError> {
    let is_fatal = |(_, outcome): &&(AttemptId, Outcome)| matches!(outcome, Outcome::Failed(failed) if failed.about == About::Task);
    match ended.iter().find(is_fatal) {
        Some((_, Outcome::Failed(failed))) => {
            Err(StartError::option(failed.call.message.clone()).into())
        }
        _ => Ok(()),
    }
}

/// Makes a call, which may be for the request of an earlier one.
pub(super) async fn call(
    clients: Arc<Clients>,
    rules: Arc<CallRules>,
    watch: Arc<Watch>,
    (attempt, earlier): (AttemptId, Earlier),
    request: Outgoing,
) -> EndedCall {
    let mut is_done = false;
    let exchanged = exchange(&clients, &rules, &watch, earlier, request, &mut is_done).await;
    // One that found no connection has begun, too: to look for one was its attempt.
    watch.begin().await;
    let (outcome, status, left, again) = match exchanged {
        Ok(answer) => {
            let Reply { status, headers, .. } = &answer.reply;
            let (status, left) = (status.as_u16(), rules.left(headers));
            (receive(&rules, &watch, answer).await, Some(status), left, None)
        }
        Err(Unanswered { failed, again }) => (Err(failed), None, Vec::new(), again),
    };
    // A user who has named statuses knows what to do about them.
    let is_done = is_done && rules.retry_statuses.said.is_none();
    let outcome = outcome.unwrap_or_else(|failed| {
        Outcome::Failed(Box::new(if is_done { failed.behind_what_was_done() } else { failed }))
    });
    EndedCall { attempt, outcome, status, left, again }
}

/// The last response to a request.
struct Answer {
    reply: Reply,
    /// The start of its body, if that was looked at.
    start: Option<Vec<u8>>,
    /// What its code says, if it comes from AWS.
    error: Option<AwsError>,
    /// Whether it refuses who calls, and may not do so before long.
    may_pass: bool,
    /// Whether its request may be sent twice.
    is_repeatable: bool,
}

/// A request without an answer.
struct Unanswered {
    failed: Failure,
    /// What the next request has to know, if it is sent again.
    again: Option<Earlier>,
}

impl From<Failure> for Unanswered {
    fn from(failed: Failure) -> Self {
        Self { failed, again: None }
    }
}

impl Unanswered {
    fn of(host: &str, request: &Outgoing, is_repeatable: bool, reply: NoReply) -> Self {
        let NoReply { broken, again } = reply;
        let failed = transport_failure(host, request, broken);
        match again {
            Some(earlier) => Self::again(failed, earlier),
            None if is_repeatable => failed.into(),
            None => failed.unanswered().into(),
        }
    }

    /// Makes that of a request which is sent again, in another attempt.
    fn again(failed: Failure, earlier: Earlier) -> Self {
        Self { failed: failed.that_is_sent_again(1), again: Some(earlier) }
    }
}

/// Sends a request, and those that it is redirected to. Notes whether one was carried out: what answers a
/// POST with where to GET its result.
async fn exchange(
    clients: &Arc<Clients>,
    rules: &CallRules,
    watch: &Arc<Watch>,
    mut earlier: Earlier,
    mut request: Outgoing,
    is_done: &mut bool,
) -> Result<Answer, Unanswered> {
    // Redirections belong to the attempt, with what is sent again behind one: another attempt would begin
    // with the first request, which was carried out.
    let mut followed = 0;
    // Another server is not shown who calls, and nor is the first one by way of another.
    let mut auth = rules.auth.as_ref();
    loop {
        let shown = match auth {
            Some(auth) => auth.show(&mut request).await?,
            None => 0,
        };
        let is_repeatable = rules.retry_statuses.is_keyed || request.method.is_idempotent();
        let most = rules.max_response_bytes;
        let reply = loop {
            match send(clients, watch, most, (is_repeatable, earlier), &request).await {
                Err(NoReply { again: Some(known), .. }) if followed > 0 => earlier = known,
                reply => break reply,
            }
        };
        let mut reply =
            reply.map_err(|it| Unanswered::of(&rules.host, &request, is_repeatable, it))?;
        let (mut start, mut error, mut may_pass) = (None, None, false);
        if let Some(auth) = auth {
            let may_be_coded = matches!(reply.status.as_u16(), 400 | 403);
            if auth.is_of_aws() && may_be_coded && !rules.takes(reply.status) {
                let body = read_start(watch, &mut reply).await;
                error = AwsError::read(&reply.headers, &body);
                // S3 answers a HEAD with a bare 400.
                let is_bare =
                    request.method == Method::HEAD && reply.status == StatusCode::BAD_REQUEST;
                error = error.or_else(|| is_bare.then_some(AwsError::Expired));
                start = Some(body);
            }
            let is_expired = error == Some(AwsError::Expired);
            if !earlier.has_renewed && (is_expired || auth.is_refusal(reply.status)) {
                if Box::pin(auth.renew(shown)).await {
                    if start.is_none() {
                        let _ = read_start(watch, &mut reply).await;
                    }
                    earlier.has_renewed = true;
                    if followed > 0 {
                        continue;
                    }
                    return Err(Unanswered::again(renewed(&rules.host, reply.status), earlier));
                }
                let may_have_ended = is_expired || reply.status == StatusCode::UNAUTHORIZED;
                may_pass = may_have_ended && auth.may_change();
            }
        }
        let next = rules.redirects.next(clients, &rules.host, &request, &reply, followed)?;
        let Some(next) = next else {
            return Ok(Answer { reply, start, error, may_pass, is_repeatable });
        };
        let _ = read_start(watch, &mut reply).await;
        auth = auth.filter(|_| Arc::ptr_eq(&request.place, &next.place));
        *is_done |= request.method != next.method;
        request = next;
        followed += 1;
    }
}

async fn receive(rules: &CallRules, watch: &Watch, answer: Answer) -> Result<Outcome, Failure> {
    let Answer { mut reply, start, error, may_pass, is_repeatable } = answer;
    let status = reply.status;
    let code = status.as_u16();
    if rules.missing.contains(&code) {
        let _ = read_start(watch, &mut reply).await;
        return Ok(Outcome::Missed);
    }
    if !rules.takes(status) {
        let body = match start {
            Some(start) => start,
            None => read_start(watch, &mut reply).await,
        };
        let is_throttled = error == Some(AwsError::Throttled);
        let refusal = Refusal { status, headers: &reply.headers, body: &body, is_throttled };
        let failed = status_failure(&rules.host, &refusal, &rules.retry_statuses);
        let is_again = may_pass && rules.retry_statuses.said.is_none();
        let failed = if is_again { failed.that_may_pass() } else { failed };
        return Err(Failure { pause: failed.pause.filter(|_| rules.pauses), ..failed });
    }
    let reads_body = rules.reads != Reads::Nothing;
    if reads_body && matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) {
        return Ok(Outcome::Missed);
    }
    let headers = rules.response_headers.iter().map(|it| header_of(&reply.headers, it)).collect();
    let mut share = rules.budget.share();
    let charset =
        matches!(rules.reads, Reads::Text | Reads::Json).then(|| Charset::of(&reply.headers));
    let body = read(rules, watch, reply, &mut share).await;
    let body = body.map_err(|it| if is_repeatable { it } else { it.unanswered() })?;
    let body = match charset {
        Some(charset) => charset.read(rules.reads, body, &rules.host)?,
        None => body,
    };
    let (body, share) =
        if reads_body { (body, share) } else { (Bytes::new(), rules.budget.share()) };
    Ok(Outcome::Found(Found { status: code, headers, body, _share: Arc::new(share) }))
}

/// Returns the value of a header as UTF-8. One that is not is Latin-1, and several are one with commas
/// between them (RFC 9110, 5.3 and 5.5).
fn header_of(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let values = headers.get_all(name);
    let first = values.iter().next()?;
    let is_alone = values.iter().nth(1).is_none();
    if is_alone && std::str::from_utf8(first.as_bytes()).is_ok() {
        return Some(first.clone());
    }
    let mut text = String::new();
    for (index, value) in values.iter().enumerate() {
        text.push_str(if index > 0 { ", " } else { "" });
        match std::str::from_utf8(value.as_bytes()) {
            Ok(value) => text.push_str(value),
            Err(_) => text.extend(value.as_bytes().iter().map(|it| char::from(*it))),
        }
    }
    HeaderValue::try_from(text).ok()
}

impl CallRules {
    /// Whether a status is a success, or says that there is nothing.
    fn takes(&self, status: StatusCode) -> bool {
        let code = status.as_u16();
        let is_success = |(first, last): &(u16, u16)| (*first..=*last).contains(&code);
        self.missing.contains(&code) || self.success.iter().any(is_success)
    }

    /// Returns what the headers of a response say of limits, if anybody wants to know.
    fn left(&self, headers: &HeaderMap) -> Vec<LimitLeft> {
        let tells = || headers.keys().any(|it| tells_of_limit(it.as_str()));
        if !self.reads_limits || !tells() {
            return Vec::new();
        }
        LimitHeaders::of_response(headers).tightest().collect()
    }
}

/// Reads the start of a body, and the rest of it too if that is not long and comes soon: the status has
/// decided already.
async fn read_start(watch: &Watch, reply: &mut Reply) -> Vec<u8> {
    let is_long = reply.length.is_some_and(|length| length > READ_OF_FAILURE as u64);
    let most = if is_long { KEPT_OF_FAILURE } else { READ_OF_FAILURE };
    let (mut start, mut read) = (Vec::new(), 0);
    let reading = async {
        while read < most
            && let Ok(Some(chunk)) = reply.chunk(watch).await
        {
            read += chunk.len();
            let wanted = chunk.len().min(KEPT_OF_FAILURE - start.len());
            start.extend_from_slice(&chunk[..wanted]);
        }
    };
    drop(timeout(PATIENCE_WITH_FAILURE, reading).await);
    start
}

/// Reads a body of so many bytes at most, counted after it was unpacked.
///
/// What comes in several pieces has a share of the task's budget: while that is spent, no more of it
/// is read, and the server is not to blame for that time. Over HTTP/2 it goes on, because streams
/// that are not read hold up the others of their connection, those that would give their share back
/// included.
async fn read(
    rules: &CallRules,
    watch: &Watch,
    mut reply: Reply,
    share: &mut ReplyShare,
) -> Result<Bytes, Failure> {
    let limit = rules.max_response_bytes;
    let host = rules.host.as_str();
    let waits = reply.may_wait();
    let beyond = || too_large(host, limit);
    if reply.length.is_some_and(|length| length > limit as u64) {
        return Err(beyond());
    }
    let Some(first) = next(host, limit, watch, &mut reply).await? else {
        return Ok(Bytes::new());
    };
    if first.len() > limit {
        return Err(beyond());
    }
    let Some(second) = next(host, limit, watch, &mut reply).await? else { return Ok(first) };
    let mut whole = BytesMut::from(first);
    let mut chunk = Some(second);
    while let Some(bytes) = chunk {
        if whole.len() + bytes.len() > limit {
            return Err(beyond());
        }
        if waits {
            share.grow_to(whole.len() + bytes.len()).await;
        }
        whole.extend_from_slice(&bytes);
        chunk = next(host, limit, watch, &mut reply).await?;
    }
    Ok(whole.freeze())
}

#[cfg(test)]
mod tests;
