// SPDX-License-Identifier: Apache-2.0
//! One call: the request goes out, the response comes in.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, Request, Response, StatusCode};
use sparkawait_core::operator::AttemptId;

use super::failure::{Failed, status_failure, too_large, transport_failure};
use crate::native::StartError;

/// Bytes of a failed response's body that are read, for its message.
const READ_OF_FAILURE: usize = 4096;

/// What is made of a response.
pub(super) struct CallRules {
    pub(super) success: Vec<(u16, u16)>,
    pub(super) missing: Vec<u16>,
    pub(super) reads_body: bool,
    pub(super) max_response_bytes: usize,
    pub(super) response_headers: Vec<HeaderName>,
    /// The server in messages.
    pub(super) host: String,
}

/// What a call came to.
pub(super) enum Outcome {
    Found(Found),
    Missed,
    /// A column of the request is null.
    NullKey,
    Failed(Box<Failed>),
}

/// A response that is a success.
pub(super) struct Found {
    pub(super) status: u16,
    pub(super) headers: Vec<Option<HeaderValue>>,
    pub(super) body: Bytes,
}

/// Reads names of headers.
pub(super) fn header_names(names: &[String]) -> Result<Vec<HeaderName>, StartError> {
    let read = |name: &String| {
        HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| StartError::option(format!("`{name}` is no name of a header")))
    };
    names.iter().map(read).collect()
}

/// Makes the call of `attempt`.
pub(super) async fn call(
    client: Client,
    rules: Arc<CallRules>,
    attempt: AttemptId,
    request: Request,
) -> (AttemptId, Outcome) {
    let outcome = match client.execute(request).await {
        Ok(response) => receive(&rules, response).await,
        Err(error) => Err(transport_failure(&rules.host, error)),
    };
    (attempt, outcome.unwrap_or_else(|failed| Outcome::Failed(Box::new(failed))))
}

async fn receive(rules: &CallRules, response: Response) -> Result<Outcome, Failed> {
    let status = response.status();
    let code = status.as_u16();
    if rules.missing.contains(&code) {
        // Read, so that the connection serves the next call.
        let _ = read(rules, response, READ_OF_FAILURE).await;
        return Ok(Outcome::Missed);
    }
    if !rules.success.iter().any(|(first, last)| (*first..=*last).contains(&code)) {
        let headers = response.headers().clone();
        let body = read(rules, response, READ_OF_FAILURE).await.unwrap_or_default();
        return Err(status_failure(&rules.host, status, &headers, &body));
    }
    if rules.reads_body && matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) {
        return Ok(Outcome::Missed);
    }
    let values = rules.response_headers.iter().map(|name| response.headers().get(name).cloned());
    let headers = values.collect();
    let body = read(rules, response, rules.max_response_bytes).await?;
    let body = if rules.reads_body { body } else { Bytes::new() };
    Ok(Outcome::Found(Found { status: code, headers, body }))
}

/// Reads a body of at most `limit` bytes, counted after decompression.
async fn read(rules: &CallRules, mut response: Response, limit: usize) -> Result<Bytes, Failed> {
    let broken = |error| transport_failure(&rules.host, error);
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
        whole.extend_from_slice(&chunk);
        next = response.chunk().await.map_err(broken)?;
    }
    Ok(whole.freeze())
}
