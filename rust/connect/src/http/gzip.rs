// SPDX-License-Identifier: Apache-2.0
//! Bodies that were packed by the server, unpacked as they come and within bounds.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, RANGE};

/// Whether a request asks for a packed body that nobody but us has asked for.
pub(super) fn may_ask(headers: &HeaderMap) -> bool {
    !headers.contains_key(ACCEPT_ENCODING) && !headers.contains_key(RANGE)
}

/// Unpacks one body.
pub(super) struct Unpacker(MultiGzDecoder<Bounded>);

/// What was unpacked, of at most so many bytes.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
    is_beyond: bool,
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
        if !coding.eq_ignore_ascii_case(b"gzip") && !coding.eq_ignore_ascii_case(b"x-gzip") {
            return None;
        }
        headers.remove(CONTENT_ENCODING);
        headers.remove(CONTENT_LENGTH);
        Some(Self(MultiGzDecoder::new(Bounded { bytes: Vec::new(), most, is_beyond: false })))
    }

    /// Returns what the next piece of the body comes to, which may be nothing.
    pub(super) fn unpack(&mut self, piece: &[u8]) -> Result<Vec<u8>, Unpacked> {
        let written = self.0.write_all(piece).and_then(|()| self.0.flush());
        self.taken(written)
    }

    /// Returns the rest, once there are no more pieces.
    pub(super) fn finish(&mut self) -> Result<Vec<u8>, Unpacked> {
        let finished = self.0.try_finish();
        self.taken(finished)
    }

    fn taken(&mut self, done: io::Result<()>) -> Result<Vec<u8>, Unpacked> {
        let bounded = self.0.get_mut();
        match done {
            Ok(()) => Ok(std::mem::take(&mut bounded.bytes)),
            Err(_) if bounded.is_beyond => Err(Unpacked::TooLarge),
            Err(error) => Err(Unpacked::Broken(error)),
        }
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // What was handed on is counted too.
        let Some(left) = self.most.checked_sub(bytes.len()) else {
            self.is_beyond = true;
            return Err(io::Error::other("more bytes than allowed"));
        };
        self.most = left;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use http::HeaderValue;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacker(most: usize) -> Unpacker {
        let gzip = HeaderValue::from_static("gzip");
        let mut headers = HeaderMap::from_iter([(CONTENT_ENCODING, gzip)]);
        let unpacker = Unpacker::of(&mut headers, most).unwrap();
        assert!(headers.is_empty());
        unpacker
    }

    #[test]
    fn a_body_is_unpacked_piece_by_piece() {
        let text = b"abc".repeat(1234);
        let packed = [packed(&text), packed(b"!")].concat();
        for size in [1, 7, packed.len()] {
            let mut unpacker = unpacker(text.len() + 1);
            let mut all = Vec::new();
            for piece in packed.chunks(size) {
                all.extend(unpacker.unpack(piece).unwrap());
            }
            all.extend(unpacker.finish().unwrap());
            assert_eq!(all, [text.as_slice(), b"!"].concat());
        }
    }

    #[test]
    fn no_more_is_unpacked_than_allowed() {
        let packed = packed(&vec![0; 1 << 20]);
        assert!(packed.len() < 2048);
        assert!(matches!(unpacker((1 << 20) - 1).unpack(&packed), Err(Unpacked::TooLarge)));
        assert!(unpacker(1 << 20).unpack(&packed).is_ok());
    }

    #[test]
    fn a_body_that_ends_early_or_is_none_is_broken() {
        let packed = packed(b"abcdef");
        let mut cut = unpacker(100);
        let unpacked = cut.unpack(&packed[..packed.len() - 9]);
        assert!(unpacked.and_then(|_| cut.finish()).is_err());
        let mut wrong = unpacker(100);
        let unpacked = wrong.unpack(b"not packed at all");
        assert!(matches!(unpacked.and_then(|_| wrong.finish()), Err(Unpacked::Broken(_))));
    }
}
