// SPDX-License-Identifier: Apache-2.0
//! How answers, refusals and limits are written in each dialect.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::asked::Asked;
use super::limits::{Over, Told};

pub(super) type Answer = Response<Full<Bytes>>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Whose words are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `chat/completions` and `embeddings`.
    OpenAi,
    /// `messages`.
    Anthropic,
}

/// Why an answer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Whole,
    Cut,
    Refused,
    Filtered,
}

/// What a model has said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) ended: Ended,
    pub(super) output_tokens: u64,
    pub(super) reasoning_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) written_tokens: u64,
    pub(super) hash: u64,
    /// Numbers the answers of a server.
    pub(super) number: u64,
}

impl Dialect {
    /// Writes an answer.
    pub(super) fn answer(self, asked: &Asked, said: &Said) -> Value {
        let Said { hash, number, .. } = said;
        let id = format!("{hash:016x}-{number}");
        match self {
            Self::OpenAi => of_openai(asked, said, &id),
            Self::Anthropic => of_anthropic(asked, said, &id),
        }
    }

    /// Writes why a request is not answered.
    pub(super) fn error(self, status: u16, message: &str) -> Answer {
        let body = match self {
            Self::OpenAi => {
                let (kind, code) = match status {
                    401 => ("invalid_request_error", json!("invalid_api_key")),
                    429 => ("requests", json!("rate_limit_exceeded")),
                    498 => ("flex", json!("capacity_exceeded")),
                    500.. => ("server_error", Value::Null),
                    _ => ("invalid_request_error", Value::Null),
                };
                json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
            }
            Self::Anthropic => {
                let kind = match status {
                    401 => "authentication_error",
                    404 => "not_found_error",
                    429 => "rate_limit_error",
                    529 => "overloaded_error",
                    500.. => "api_error",
                    _ => "invalid_request_error",
                };
                json!({"type": "error", "error": {"type": kind, "message": message}})
            }
        };
        let mut answer = ok(&body);
        *answer.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        answer
    }

    /// Writes that a request is beyond a limit.
    pub(super) fn over(self, over: Over, limits: &[Option<Told>; 2]) -> Answer {
        let limit = |index: usize| limits[index].map_or(0.0, |it| it.limit);
        let (message, wait) = match over {
            Over::Requests(wait) => {
                (format!("Rate limit reached on requests per min (RPM): Limit {}.", limit(0)), wait)
            }
            Over::Tokens(wait) => {
                (format!("Rate limit reached on tokens per min (TPM): Limit {}.", limit(1)), wait)
            }
            Over::Concurrency { current, most } => {
                // Services with this limit say it here, and in no header.
                let message = format!(
                    "your current concurrency is {current}, which is over the limit of {most}"
                );
                return self.error(429, &message);
            }
        };
        let message = format!("{message} Please try again in {}ms.", wait.as_millis());
        let mut answer = self.error(429, &message);
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        put(&mut answer, "retry-after", seconds.to_string());
        if self == Self::OpenAi {
            let millis = u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
            put(&mut answer, "retry-after-ms", millis.to_string());
        }
        answer
    }

    /// Adds what is left of limits, and the number of the request.
    pub(super) fn tell(self, answer: &mut Answer, limits: &[Option<Told>; 2], number: u64) {
        for (told, of) in limits.iter().zip(["requests", "tokens"]) {
            let Some(Told { limit, left, reset }) = told else { continue };
            let parts = [("limit", limit.to_string()), ("remaining", left.floor().to_string())];
            for (part, value) in parts {
                let name = match self {
                    Self::OpenAi => format!("x-ratelimit-{part}-{of}"),
                    Self::Anthropic => format!("anthropic-ratelimit-{of}-{part}"),
                };
                put(answer, &name, value);
            }
            match self {
                Self::OpenAi => {
                    let reset = format!("{}ms", reset.as_millis());
                    put(answer, &format!("x-ratelimit-reset-{of}"), reset);
                }
                Self::Anthropic => {
                    put(answer, &format!("anthropic-ratelimit-{of}-reset"), instant_in(*reset));
                }
            }
        }
        let name = if self == Self::OpenAi { "x-request-id" } else { "request-id" };
        put(answer, name, format!("req_{number}"));
    }
}

fn of_openai(asked: &Asked, said: &Said, id: &str) -> Value {
    let Said { text, ended, hash, .. } = said;
    let reason = match ended {
        Ended::Whole | Ended::Refused => "stop",
        Ended::Cut => "length",
        Ended::Filtered => "content_filter",
    };
    let is_refusal = *ended == Ended::Refused;
    let content = if is_refusal { Value::Null } else { json!(text) };
    let refusal = if is_refusal { json!(text) } else { Value::Null };
    let tier = match asked.tier.as_deref() {
        None | Some("auto") => "default",
        Some(tier) => tier,
    };
    json!({
        "id": format!("chatcmpl-{id}"),
        "object": "chat.completion",
        "created": 1_767_225_600,
        "model": format!("{}-2026-01-01", asked.model),
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": content, "refusal": refusal},
            "logprobs": null,
            "finish_reason": reason,
        }],
        "usage": {
            "prompt_tokens": asked.input_tokens,
            "completion_tokens": said.output_tokens,
            "total_tokens": asked.input_tokens + said.output_tokens,
            "prompt_tokens_details": {
                "cached_tokens": said.cached_tokens,
                "cache_write_tokens": said.written_tokens,
            },
            "completion_tokens_details": {"reasoning_tokens": said.reasoning_tokens},
        },
        "service_tier": tier,
        "system_fingerprint": format!("fp_{hash:016x}"),
    })
}

fn of_anthropic(asked: &Asked, said: &Said, id: &str) -> Value {
    let Said { text, ended, .. } = said;
    let reason = match ended {
        Ended::Whole => "end_turn",
        Ended::Cut => "max_tokens",
        Ended::Refused | Ended::Filtered => "refusal",
    };
    let content = if text.is_empty() { json!([]) } else { json!([{"type": "text", "text": text}]) };
    json!({
        "id": format!("msg_{id}"),
        "type": "message",
        "role": "assistant",
        "model": format!("{}-20260101", asked.model),
        "content": content,
        "stop_reason": reason,
        "stop_sequence": null,
        "usage": {
            "input_tokens": asked.input_tokens - said.cached_tokens - said.written_tokens,
            "cache_read_input_tokens": said.cached_tokens,
            "cache_creation_input_tokens": said.written_tokens,
            "output_tokens": said.output_tokens,
            "output_tokens_details": {"thinking_tokens": said.reasoning_tokens},
            "service_tier": "standard",
        },
    })
}

/// Makes an answer with status 200.
pub(super) fn ok(body: &Value) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())));
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer
}

fn put(answer: &mut Answer, name: &str, value: String) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
        answer.headers_mut().insert(name, value);
    }
}

/// Returns an instant of the future as RFC 3339 has it.
fn instant_in(wait: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Rounded up to whole seconds, as services do it.
    rfc3339((now + wait + Duration::from_millis(999)).as_secs())
}

fn rfc3339(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's days from civil, the other way, for days since 1970.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_those_of_the_calendar() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(1_709_210_096), "2024-02-29T12:34:56Z");
        assert_eq!(rfc3339(1_795_865_573), "2026-11-28T11:32:53Z");
    }
}
