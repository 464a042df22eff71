// SPDX-License-Identifier: Apache-2.0
//! Bodies that were packed by the server, unpacked as they come and within bounds.

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::write::MultiGzDecoder;
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderValue, RANGE,
};

use super::zstd::{Bounded, Frames};

/// What is taken, as `Accept-Encoding` says it.
pub(super) const TAKEN: HeaderValue = HeaderValue::from_static("gzip, br, zstd");

/// Bytes that brotli unpacks at a time.
const BROTLI_BYTES: usize = 8 << 10;

/// Whether a request asks for a packed body that nobody but us has asked for.
pub(super) fn may_ask(headers: &HeaderMap) -> bool {
    !headers.contains_key(ACCEPT_ENCODING) && !headers.contains_key(RANGE)
}

/// Unpacks one body.
pub(super) enum Unpacker {
    Gzip(Box<MultiGzDecoder<Bounded>>),
    Brotli(Box<DecompressorWriter<Bounded>>),
    Zstd(Box<(Frames, Bounded)>),
}

/// Why a body cannot be unpacked.
#[derive(Debug)]
pub(super) enum Unpacked {
    TooLarge,
    Broken(io::Error),
}

impl Unpacker {
    /// Makes what unpacks the body of a response with these headers, which then are those of the
    /// unpacked one; `None` if it is not packed.
    pub(super) fn of(headers: &mut HeaderMap, most: usize) -> Option<Self> {
        let coding = headers.get(CONTENT_ENCODING)?.as_bytes();
        let is = |name: &[u8]| coding.eq_ignore_ascii_case(name);
        let bounded = Bounded::new(most);
        let unpacker = if is(b"gzip") || is(b"x-gzip") {
            Self::Gzip(Box::new(MultiGzDecoder::new(bounded)))
        } else if is(b"br") {
            Self::Brotli(Box::new(DecompressorWriter::new(bounded, BROTLI_BYTES)))
        } else if is(b"zstd") {
            Self::Zstd(Box::new((Frames::new(), bounded)))
        } else {
            return None;
        };
        headers.remove(CONTENT_ENCODING);
        headers.remove(CONTENT_LENGTH);
        Some(unpacker)
    }

    /// Returns what the next piece of the body comes to, which may be nothing.
    pub(super) fn unpack(&mut self, piece: &[u8]) -> Result<Vec<u8>, Unpacked> {
        let written = match self {
            Self::Gzip(decoder) => decoder.write_all(piece).and_then(|()| decoder.flush()),
            Self::Brotli(decoder) => decoder.write_all(piece),
            Self::Zstd(parts) => parts.0.unpack(piece, &mut parts.1),
        };
        self.taken(written)
    }

    /// Returns the rest, once there are no more pieces.
    pub(super) fn finish(&mut self) -> Result<Vec<u8>, Unpacked> {
        let finished = match self {
            Self::Gzip(decoder) => decoder.try_finish(),
            Self::Brotli(decoder) => decoder.close(),
            Self::Zstd(parts) => parts.0.finish(),
        };
        self.taken(finished)
    }

    fn taken(&mut self, done: io::Result<()>) -> Result<Vec<u8>, Unpacked> {
        let (bounded, name) = match self {
            Self::Gzip(decoder) => (decoder.get_mut(), "gzip"),
            Self::Brotli(decoder) => (decoder.get_mut(), "brotli"),
            Self::Zstd(parts) => (&mut parts.1, "zstd"),
        };
        match done {
            Ok(()) => Ok(std::mem::take(&mut bounded.bytes)),
            Err(_) if bounded.is_beyond => Err(Unpacked::TooLarge),
            Err(error) => {
                let text = format!("the body cannot be unpacked as {name}: {error}");
                Err(Unpacked::Broken(io::Error::new(error.kind(), text)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
