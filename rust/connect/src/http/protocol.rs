// SPDX-License-Identifier: Apache-2.0
//! Versions of HTTP.

use serde::{Deserialize, Serialize};

/// The version of HTTP to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Version {
    /// What TLS negotiates; 1.1 without TLS.
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "1.1")]
    Http1,
    /// Also without TLS.
    #[serde(rename = "2")]
    Http2,
}

impl Version {
    /// Returns what to offer where connections are encrypted.
    pub(super) fn protocols(self) -> &'static [&'static [u8]] {
        match self {
            Self::Auto => &[b"h2", b"http/1.1"],
            Self::Http1 => &[b"http/1.1"],
            Self::Http2 => &[b"h2"],
        }
    }
}
