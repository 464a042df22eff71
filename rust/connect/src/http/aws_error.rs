// SPDX-License-Identifier: Apache-2.0
//! What AWS says in the code of an error, whatever its status: many of its services answer 400 where
//! others answer 401, 403 or 429.

use http::HeaderMap;
use serde::Deserialize;

/// What an error says of calls that are shown otherwise, or come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AwsError {
    /// The keys that the request is signed with have ended, or its time has.
    Expired,
    /// There are too many calls.
    Throttled,
}

/// Codes of the common errors of AWS, of S3 and of EC2.
const EXPIRED: [&str; 3] = ["ExpiredToken", "ExpiredTokenException", "RequestExpired"];

/// Codes as the AWS SDK for Python knows them (botocore, `retries/standard.py`).
const THROTTLED: [&str; 14] = [
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "LimitExceededException",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionInProgressException",
];

/// The error of a service that speaks JSON.
#[derive(Deserialize)]
struct Told<'a> {
    #[serde(rename = "__type", default, borrow)]
    of_type: Option<&'a str>,
    #[serde(default, borrow)]
    code: Option<&'a str>,
}

impl AwsError {
    /// Reads the code of an error in its headers, or at the start of its body.
    pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Option<Self> {
        let named = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
        let code = named("x-amzn-errortype").or_else(|| named("x-amzn-query-error"));
        code.or_else(|| in_json(body)).or_else(|| in_xml(body)).and_then(Self::of_code)
    }

    /// A code may stand behind the name of its module, and before an address or whose fault it is.
    fn of_code(text: &str) -> Option<Self> {
        let code = text.rsplit('#').next().unwrap_or_default();
        let code = code.split([':', ';']).next().unwrap_or_default().trim();
        if EXPIRED.contains(&code) {
            return Some(Self::Expired);
        }
        THROTTLED.contains(&code).then_some(Self::Throttled)
    }
}

fn in_json(body: &[u8]) -> Option<&str> {
    let told: Told<'_> = serde_json::from_slice(body).ok()?;
    told.of_type.or(told.code)
}

fn in_xml(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, behind) = text.split_once("<Code>")?;
    behind.split_once("</Code>").map(|(code, _)| code)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn codes_are_read_where_each_kind_of_service_writes_them() {
        let read = |name: &'static str, value: &'static str, body: &str| {
            let header = (HeaderName::from_static(name), HeaderValue::from_static(value));
            AwsError::read(&HeaderMap::from_iter([header]), body.as_bytes())
        };
        let json = r#"{"__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "message": "a"}"#;
        assert_eq!(read("etag", "", json), Some(AwsError::Throttled));
        assert_eq!(read("etag", "", r#"{"code": "Throttling"}"#), Some(AwsError::Throttled));
        let xml = "<Error><Code>ExpiredToken</Code><Message>The provided token ..";
        assert_eq!(read("etag", "", xml), Some(AwsError::Expired));
        let kind = "ExpiredTokenException:http://internal.amazon.com/coral/";
        assert_eq!(read("x-amzn-errortype", kind, ""), Some(AwsError::Expired));
        assert_eq!(read("x-amzn-query-error", "SlowDown;Sender", "{"), Some(AwsError::Throttled));
        for other in ["", "{", "{}", "<Code>", "<Code>NoSuchKey</Code>", r#"{"__type": "a#b"}"#] {
            assert_eq!(read("etag", "", other), None, "{other}");
        }
    }
}
