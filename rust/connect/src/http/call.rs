// SPDX-License-Identifier: Apache-2.0
//! One call: the request goes out, the response comes in.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Request, Response, StatusCode, Version};
use sparkawait_core::policy::LimitLeft;
use sparkawait_task::error::StartError;

use super::clients::{Clients, Stream};
use super::failure::{Failed, RetryStatuses, status_failure, too_large, transport_failure};
use super::hosts::AllowedHosts;
use super::redirects::Redirects;
use crate::limit_headers::{LimitHeaders, tells_of_limit};
use crate::reply_budget::{ReplyBudget, Share};

/// Bytes of a failed response's body that are kept, for its message.
const KEPT_OF_FAILURE: usize = 4096;

/// Bytes of a body that nobody wants that are read, so that the connection serves the next call.
const READ_OF_FAILURE: usize = 256 << 10;

/// What is made of a response.
pub(super) struct CallRules {
    pub(super) success: Vec<(u16, u16)>,
    pub(super) missing: Vec<u16>,
    pub(super) reads_body: bool,
    pub(super) max_response_bytes: usize,
    pub(super) response_headers: Vec<HeaderName>,
    /// Most redirections to follow.
    pub(super) redirects: usize,
    /// The hosts that they may lead to; any if there are none.
    pub(super) allowed: Option<AllowedHosts>,
    pub(super) retry_statuses: RetryStatuses,
    /// Whether all rows of a channel call one server, so that none does while that asks for it.
    pub(super) pauses: bool,
    /// Whether responses are looked at for what they say of the limits of that server.
    pub(super) reads_limits: bool,
    /// The server in messages.
    pub(super) host: String,
    /// What the bodies that are read come to together.
    pub(super) budget: Arc<ReplyBudget>,
}

/// The end of a call.
pub(super) struct EndedCall<T> {
    /// What the call stands for.
    pub(super) name: T,
    pub(super) outcome: Outcome,
    /// What its response says of the limits of the server.
    pub(super) left: Vec<LimitLeft>,
}

/// What a call came to.
pub(super) enum Outcome {
    Found(Found),
    Missed,
    /// A column of the request is null.
    NullKey,
    Failed(Box<Failed>),
}

/// A response that is a success, or what it has for one of several rows.
#[derive(Clone)]
pub(super) struct Found {
    pub(super) status: u16,
    pub(super) headers: Vec<Option<HeaderValue>>,
    pub(super) body: Bytes,
    /// Its share of the budget, until all of it are results.
    pub(super) _share: Arc<Share>,
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

/// Reads names of headers.
pub(super) fn header_names(names: &[String]) -> Result<Vec<HeaderName>, StartError> {
    let read = |name: &String| {
        HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| StartError::option(format!("`{name}` is no name of a header")))
    };
    names.iter().map(read).collect()
}

/// Makes the call that `name` stands for.
pub(super) async fn call<T>(
    clients: Arc<Clients>,
    rules: Arc<CallRules>,
    name: T,
    request: Request,
) -> EndedCall<T> {
    let (outcome, left) = match exchange(&clients, &rules, request).await {
        Ok((response, _stream)) => {
            let left = rules.left(response.headers());
            (receive(&rules, response).await, left)
        }
        Err(failed) => (Err(failed), Vec::new()),
    };
    let outcome = outcome.unwrap_or_else(|failed| Outcome::Failed(Box::new(failed)));
    EndedCall { name, outcome, left }
}

/// Sends a request, and those that it is redirected to; returns the last response, and the stream
/// that it has until it was read.
async fn exchange(
    clients: &Arc<Clients>,
    rules: &CallRules,
    mut request: Request,
) -> Result<(Response, Stream), Failed> {
    let mut redirects = Redirects::new(&request, rules.redirects);
    loop {
        let (client, mut stream) = clients.take(request.url()).await;
        let sent = stream.send(client.execute(request)).await;
        let response = sent.map_err(|error| rules.broken(error))?;
        let allowed = rules.allowed.as_ref();
        let next = redirects.as_mut().map(|it| it.next(&rules.host, allowed, &response));
        let next = next.transpose()?;
        let Some(next) = next.flatten() else { return Ok((response, stream)) };
        let _ = read_start(response).await;
        request = next;
    }
}

async fn receive(rules: &CallRules, response: Response) -> Result<Outcome, Failed> {
    let status = response.status();
    let code = status.as_u16();
    if rules.missing.contains(&code) {
        let _ = read_start(response).await;
        return Ok(Outcome::Missed);
    }
    if !rules.success.iter().any(|(first, last)| (*first..=*last).contains(&code)) {
        let headers = response.headers().clone();
        let body = read_start(response).await;
        let failed = status_failure(&rules.host, status, &headers, &body, &rules.retry_statuses);
        return Err(Failed { pause: failed.pause.filter(|_| rules.pauses), ..failed });
    }
    if rules.reads_body && matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) {
        return Ok(Outcome::Missed);
    }
    let values = rules.response_headers.iter().map(|name| response.headers().get(name).cloned());
    let headers = values.collect();
    let mut share = rules.budget.share();
    let body = read(rules, response, rules.max_response_bytes, &mut share).await?;
    let (body, share) =
        if rules.reads_body { (body, share) } else { (Bytes::new(), rules.budget.share()) };
    Ok(Outcome::Found(Found { status: code, headers, body, _share: Arc::new(share) }))
}

impl CallRules {
    /// Returns what the headers of a response say of limits, if anybody wants to know.
    fn left(&self, headers: &HeaderMap) -> Vec<LimitLeft> {
        let tells = || headers.keys().any(|it| tells_of_limit(it.as_str()));
        if !self.reads_limits || !tells() {
            return Vec::new();
        }
        LimitHeaders::of_response(headers).tightest().collect()
    }

    /// Makes the failure of a call that got no whole response.
    fn broken(&self, error: reqwest::Error) -> Failed {
        transport_failure(&self.host, error)
    }
}

/// Reads the start of a body, and the rest of it too if that is not long.
async fn read_start(mut response: Response) -> Vec<u8> {
    let length = response.content_length();
    let is_long = length.is_some_and(|length| length > READ_OF_FAILURE as u64);
    let most = if is_long { KEPT_OF_FAILURE } else { READ_OF_FAILURE };
    let (mut start, mut read) = (Vec::new(), 0);
    while read < most
        && let Ok(Some(chunk)) = response.chunk().await
    {
        read += chunk.len();
        let wanted = chunk.len().min(KEPT_OF_FAILURE - start.len());
        start.extend_from_slice(&chunk[..wanted]);
    }
    start
}

/// Reads a body of at most `limit` bytes, counted after decompression.
///
/// What comes in several pieces has a share of the task's budget: while that is spent, no more of it
/// is read. Over HTTP/2 it goes on, because streams that are not read hold up the others of their
/// connection, those that would give their share back included.
async fn read(
    rules: &CallRules,
    mut response: Response,
    limit: usize,
    share: &mut Share,
) -> Result<Bytes, Failed> {
    let waits = response.version() != Version::HTTP_2;
    let broken = |error| rules.broken(error);
    if response.content_length().is_some_and(|length| length > limit as u64) {
        return Err(too_large(&rules.host, limit));
    }
    let Some(first) = response.chunk().await.map_err(broken)? else { return Ok(Bytes::new()) };
    if first.len() > limit {
        return Err(too_large(&rules.host, limit));
    }
    let Some(second) = response.chunk().await.map_err(broken)? else { return Ok(first) };
    let mut whole = BytesMut::from(first);
    let mut next = Some(second);
    while let Some(chunk) = next {
        if whole.len() + chunk.len() > limit {
            return Err(too_large(&rules.host, limit));
        }
        if waits {
            share.grow_to(whole.len() + chunk.len()).await;
        }
        whole.extend_from_slice(&chunk);
        next = response.chunk().await.map_err(broken)?;
    }
    Ok(whole.freeze())
}
