// SPDX-License-Identifier: Apache-2.0
//! What a request asks for.

use std::borrow::Cow;

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// The longest body of a batched lookup, in bytes: a million keys of 16 bytes.
/// It bounds what a client can make the server hold.
const MAX_BODY_BYTES: usize = 16 << 20;

/// A lookup, with the name of its table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query<'a> {
    /// The first segment of the path, decoded.
    pub(super) table: Cow<'a, str>,
    /// What is looked up.
    pub(super) keys: Keys<'a>,
}

/// The keys of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Keys<'a> {
    /// `GET /<table>/<key>`.
    One(Cow<'a, str>),
    /// `POST /<table>` with an array of keys.
    Many(Vec<String>),
}

/// A request that asks for nothing this server has: the status to answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadQuery(pub(super) StatusCode);

/// Reads a whole request.
///
/// # Cancel safety
///
/// Dropping the future loses the part of the body that was read.
pub(super) async fn read(parts: &Parts, body: Incoming) -> Result<Query<'_>, BadQuery> {
    let (table, key) = split(parts.uri.path());
    let keys = match (&parts.method, key) {
        (&Method::GET, Some(key)) => Keys::One(key),
        (&Method::POST, None) => Keys::Many(read_keys(body).await?),
        (&Method::GET | &Method::POST, _) => return Err(BadQuery(StatusCode::NOT_FOUND)),
        _ => return Err(BadQuery(StatusCode::METHOD_NOT_ALLOWED)),
    };
    Ok(Query { table, keys })
}

/// Splits a path into table and key; the key may contain slashes.
fn split(path: &str) -> (Cow<'_, str>, Option<Cow<'_, str>>) {
    let path = path.strip_prefix('/').unwrap_or(path);
    match path.split_once('/') {
        Some((table, key)) => (decode(table), Some(decode(key))),
        None => (decode(path), None),
    }
}

/// Undoes percent-encoding. Bytes that are not UTF-8 become replacement
/// characters, which no key has.
fn decode(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

async fn read_keys(body: Incoming) -> Result<Vec<String>, BadQuery> {
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await;
    let bytes = body.map_err(|_| BadQuery(StatusCode::PAYLOAD_TOO_LARGE))?.to_bytes();
    parse_keys(&bytes).ok_or(BadQuery(StatusCode::BAD_REQUEST))
}

/// Parses a JSON array of strings and numbers.
fn parse_keys(json: &[u8]) -> Option<Vec<String>> {
    let keys: Vec<Value> = serde_json::from_slice(json).ok()?;
    let text = |key| match key {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    keys.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_owned(path: &str) -> (String, Option<String>) {
        let (table, key) = split(path);
        (table.into_owned(), key.map(Cow::into_owned))
    }

    #[test]
    fn key_is_decoded_and_keeps_its_slashes() {
        let expected = ("weather".to_owned(), Some("JFK/2013 é".to_owned()));

        assert_eq!(split_owned("/weather/JFK/2013%20%C3%A9"), expected);
    }

    #[test]
    fn encoded_slash_belongs_to_the_table() {
        assert_eq!(split_owned("/a%2Fb/c"), ("a/b".to_owned(), Some("c".to_owned())));
    }

    #[test]
    fn path_without_a_second_segment_has_no_key() {
        assert_eq!(split_owned("/weather"), ("weather".to_owned(), None));
        assert_eq!(split_owned("/weather/"), ("weather".to_owned(), Some(String::new())));
    }

    #[test]
    fn keys_are_strings_or_numbers() {
        let keys = parse_keys(br#"["a", 7, "b\u00e9"]"#);

        assert_eq!(keys, Some(vec!["a".to_owned(), "7".to_owned(), "bé".to_owned()]));
        assert_eq!(parse_keys(br#"["a", null]"#), None);
        assert_eq!(parse_keys(br#"{"a": 1}"#), None);
        assert_eq!(parse_keys(b"[\"a\""), None);
    }
}
