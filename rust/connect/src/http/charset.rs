// SPDX-License-Identifier: Apache-2.0
//! Texts of responses that are not UTF-8, and say so.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::failure::in_charset;
use crate::failure::Failure;

/// What a body is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    Nothing,
    Bytes,
    Text,
    Json,
}

/// How the characters of a body are written.
pub(super) enum Charset {
    Utf8,
    Latin1,
    /// With a mark in front that says which byte of a pair comes first, or that of the name, or big
    /// ones first.
    Utf16(fn([u8; 2]) -> u16),
    Unknown(String),
}

impl Charset {
    /// Reads what a response says of its body.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let parameters = kind.split(';').skip(1).filter_map(|it| it.split_once('='));
        let said = parameters.into_iter().find(|it| it.0.trim().eq_ignore_ascii_case("charset"));
        let name = said.map_or("", |it| it.1.trim().trim_matches('"')).to_ascii_lowercase();
        match name.as_str() {
            "" | "utf-8" | "utf8" | "us-ascii" | "ascii" => Self::Utf8,
            "iso-8859-1" | "iso8859-1" | "iso_8859-1" | "latin1" | "latin-1" => Self::Latin1,
            "utf-16" | "utf16" | "utf-16be" => Self::Utf16(u16::from_be_bytes),
            "utf-16le" => Self::Utf16(u16::from_le_bytes),
            _ => Self::Unknown(name.chars().take(40).collect()),
        }
    }

    /// Returns a text in UTF-8, or as it is if it cannot be read.
    ///
    /// JSON is UTF-8 by its own rules (RFC 8259), whatever servers say of it. So that is looked at first,
    /// where it can be told.
    ///
    /// # Errors
    ///
    /// It is in a charset that is not known here.
    pub(super) fn read(self, reads: Reads, body: Bytes, host: &str) -> Result<Bytes, Failure> {
        match self {
            Self::Utf8 => Ok(body),
            Self::Utf16(_) if reads == Reads::Json && is_utf8(&body) => Ok(body),
            Self::Utf16(pair) => Ok(of_pairs(&body, pair).unwrap_or(body)),
            Self::Latin1 if reads == Reads::Json && std::str::from_utf8(&body).is_ok() => Ok(body),
            Self::Latin1 => {
                let text: String = body.iter().map(|byte| char::from(*byte)).collect();
                Ok(Bytes::from(text))
            }
            Self::Unknown(_) if std::str::from_utf8(&body).is_ok() => Ok(body),
            Self::Unknown(name) => Err(in_charset(host, &name)),
        }
    }
}

/// Whether it is UTF-8 for sure: in UTF-16, JSON has zeros or a mark in front.
fn is_utf8(body: &[u8]) -> bool {
    !body.contains(&0) && std::str::from_utf8(body).is_ok()
}

fn of_pairs(body: &[u8], pair: fn([u8; 2]) -> u16) -> Option<Bytes> {
    let (pair, body): (fn([u8; 2]) -> u16, _) = match body {
        [0xfe, 0xff, rest @ ..] => (u16::from_be_bytes, rest),
        [0xff, 0xfe, rest @ ..] => (u16::from_le_bytes, rest),
        _ => (pair, body),
    };
    let (pairs, []) = body.as_chunks() else { return None };
    let text: Result<String, _> = char::decode_utf16(pairs.iter().map(|it| pair(*it))).collect();
    text.ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(kind: &'static str, reads: Reads, body: &'static [u8]) -> Result<Bytes, String> {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        let read = Charset::of(&headers).read(reads, Bytes::from_static(body), "host");
        read.map_err(|it| it.call.message)
    }

    #[test]
    fn texts_are_read_as_their_response_says() {
        for (kind, body) in [
            ("text/plain", "fü".as_bytes()),
            ("text/plain; charset=utf-8", "fü".as_bytes()),
            ("text/plain; charset=ISO-8859-1", b"f\xfc"),
            ("text/plain;format=flowed; Charset=\"latin1\"", b"f\xfc"),
            ("text/plain; charset=utf-16", b"\xff\xfef\0\xfc\0"),
            ("text/plain; charset=utf-16", b"\xfe\xff\0f\0\xfc"),
            ("text/plain; charset=UTF-16", b"\0f\0\xfc"),
            ("text/plain; charset=utf-16le", b"f\0\xfc\0"),
            ("text/plain; charset=koi8-r", "fü".as_bytes()),
        ] {
            assert_eq!(read(kind, Reads::Text, body).unwrap(), "fü", "{kind}");
        }
        let whole = read("text/plain; charset=latin1", Reads::Text, "ü".as_bytes()).unwrap();
        assert_eq!(whole, "Ã¼");
        let json = read("application/json; charset=latin1", Reads::Json, "ü".as_bytes()).unwrap();
        assert_eq!(json, "ü");
        for (kind, body) in [
            ("application/json; charset=utf-16", r#"["ü"]"#.as_bytes()),
            ("application/json; charset=utf-16le", b"[\0\"\0\xfc\0\"\0]\0"),
            ("application/json; charset=utf-16", b"\xfe\xff\0[\0\"\0\xfc\0\"\0]"),
        ] {
            assert_eq!(read(kind, Reads::Json, body).unwrap(), r#"["ü"]"#, "{kind}");
        }
        assert_eq!(read("application/json; charset=latin1", Reads::Json, b"\xfc").unwrap(), "ü");
    }

    #[test]
    fn a_text_that_cannot_be_read_stays_as_it_is_or_is_refused_by_the_name_of_its_charset() {
        for body in [b"f\0\xfc".as_slice(), b"\xd8\x3d\0x"] {
            assert_eq!(read("text/plain; charset=utf-16", Reads::Text, body).unwrap(), body);
        }
        let why = read("text/plain; charset=shift_jis", Reads::Text, b"\x93\xfa").unwrap_err();
        assert!(why.contains("`charset=shift_jis`"), "{why}");
    }
}
