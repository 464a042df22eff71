// SPDX-License-Identifier: Apache-2.0
//! Bodies that were packed by the server, unpacked as they come and within bounds.

use std::borrow::Cow;
use std::io::{self, Write};

use flate2::write::GzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderValue, RANGE,
};

/// What is taken, as `Accept-Encoding` says it.
pub(super) const TAKEN: HeaderValue = HeaderValue::from_static("gzip, deflate");

/// Bytes that are unpacked at a time.
const PIECE_BYTES: usize = 8 << 10;

/// Whether a request asks for a packed body that nobody but us has asked for.
pub(super) fn may_ask(headers: &HeaderMap) -> bool {
    !headers.contains_key(ACCEPT_ENCODING) && !headers.contains_key(RANGE)
}

/// Most codings of one body, which is packed again in each.
const MOST_CODINGS: usize = 4;

/// Bytes that a packed body may have beyond its share of those within.
const MIDDLE_BYTES: usize = 1 << 10;

/// What servers say of a body that is as it is; all but the first by mistake.
const NOT_PACKED: [&[u8]; 4] = [b"identity", b"none", b"utf-8", b"aws-chunked"];

/// Unpacks one body: a coding after the other, the one that was used last first.
pub(super) struct Unpacker {
    codings: Vec<Coding>,
    /// The first one that is not known here; then the body cannot be read.
    unknown: Option<String>,
}

/// Unpacks one coding.
enum Coding {
    Gzip(Box<Members>),
    Deflate(Box<(Inflater, Bounded)>),
}

/// Why a body cannot be unpacked.
#[derive(Debug)]
pub(super) enum Unpacked {
    TooLarge,
    /// It is in a coding of this name.
    Unknown(String),
    Broken(io::Error),
}

impl Unpacker {
    /// Makes what unpacks the body of a response with these headers, which then are those of the
    /// unpacked one; `None` if it is not packed.
    pub(super) fn of(headers: &mut HeaderMap, most: usize) -> Option<Self> {
        let mut this = Self { codings: Vec::new(), unknown: None };
        for value in headers.get_all(CONTENT_ENCODING) {
            for name in value.as_bytes().split(|byte| *byte == b',') {
                this.add(name.trim_ascii(), most);
            }
        }
        this.codings.reverse();
        headers.remove(CONTENT_ENCODING);
        if this.codings.is_empty() && this.unknown.is_none() {
            return None;
        }
        headers.remove(CONTENT_LENGTH);
        Some(this)
    }

    fn add(&mut self, name: &[u8], most: usize) {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if name.is_empty() || NOT_PACKED.iter().any(|it| is(it)) {
            return;
        }
        // What is packed again may have grown a little by that.
        let grown = most.saturating_add(most / 64).saturating_add(MIDDLE_BYTES);
        let bounded = Bounded::new(if self.codings.is_empty() { most } else { grown });
        let coding = if is(b"gzip") || is(b"x-gzip") {
            Coding::Gzip(Box::new(Members::new(bounded)))
        } else if is(b"deflate") {
            Coding::Deflate(Box::new((Inflater::default(), bounded)))
        } else {
            let name = name.iter().take(40).copied().filter(u8::is_ascii_graphic);
            self.unknown.get_or_insert(name.map(char::from).collect());
            return;
        };
        if self.codings.len() < MOST_CODINGS {
            self.codings.push(coding);
        } else {
            self.unknown.get_or_insert(format!("more than {MOST_CODINGS} codings"));
        }
    }

    /// Returns what the next piece of the body comes to, which may be nothing.
    pub(super) fn unpack(&mut self, piece: &[u8]) -> Result<Vec<u8>, Unpacked> {
        if let Some(unknown) = &self.unknown {
            return Err(Unpacked::Unknown(unknown.clone()));
        }
        let mut bytes = Cow::Borrowed(piece);
        for coding in &mut self.codings {
            bytes = Cow::Owned(coding.unpack(&bytes)?);
        }
        Ok(bytes.into_owned())
    }

    /// Returns the rest, once there are no more pieces.
    pub(super) fn finish(&mut self) -> Result<Vec<u8>, Unpacked> {
        let mut rest = Vec::new();
        for coding in &mut self.codings {
            let mut bytes = if rest.is_empty() { rest } else { coding.unpack(&rest)? };
            bytes.extend(coding.finish()?);
            rest = bytes;
        }
        Ok(rest)
    }
}

impl Coding {
    fn unpack(&mut self, piece: &[u8]) -> Result<Vec<u8>, Unpacked> {
        let written = match self {
            Self::Gzip(members) => members.unpack(piece),
            Self::Deflate(parts) => parts.0.unpack(piece, &mut parts.1),
        };
        self.taken(written)
    }

    fn finish(&mut self) -> Result<Vec<u8>, Unpacked> {
        let finished = match self {
            Self::Gzip(members) => members.finish(),
            Self::Deflate(parts) => parts.0.finish(),
        };
        self.taken(finished)
    }

    fn taken(&mut self, done: io::Result<()>) -> Result<Vec<u8>, Unpacked> {
        let (bounded, name) = match self {
            Self::Gzip(members) => (members.decoder.get_mut(), "gzip"),
            Self::Deflate(parts) => (&mut parts.1, "deflate"),
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

/// Unpacks gzip: members, and zeros behind them, which some servers add.
struct Members {
    decoder: GzDecoder<Bounded>,
    /// Whether a member has ended, and no other has begun.
    is_between: bool,
}

impl Members {
    fn new(out: Bounded) -> Self {
        Self { decoder: GzDecoder::new(out), is_between: false }
    }

    fn unpack(&mut self, piece: &[u8]) -> io::Result<()> {
        let mut left = piece;
        loop {
            if self.is_between {
                left = &left[left.iter().take_while(|byte| **byte == 0).count()..];
                self.is_between = left.is_empty();
            }
            if left.is_empty() {
                break;
            }
            let taken = self.decoder.write(left)?;
            left = &left[taken..];
            if taken == 0 {
                self.decoder.try_finish()?;
                let out = std::mem::replace(self.decoder.get_mut(), Bounded::new(0));
                *self = Self { is_between: true, ..Self::new(out) };
            }
        }
        if self.is_between { Ok(()) } else { self.decoder.flush() }
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.is_between { Ok(()) } else { self.decoder.try_finish() }
    }
}

/// Unpacks `deflate`, which is the format of zlib, and for some servers what is within that.
#[derive(Default)]
struct Inflater {
    stream: Option<Decompress>,
    is_over: bool,
}

impl Inflater {
    fn unpack(&mut self, piece: &[u8], out: &mut Bounded) -> io::Result<()> {
        let Some(first) = piece.first() else { return Ok(()) };
        // As the first byte within, that of zlib would be a block with bits that are never set.
        let is_zlib = first & 0xf == 8;
        let stream = self.stream.get_or_insert_with(|| Decompress::new(is_zlib));
        let (mut left, mut buffer) = (piece, vec![0; PIECE_BYTES]);
        while !self.is_over {
            let (read, written) = (stream.total_in(), stream.total_out());
            let status = stream.decompress(left, &mut buffer, FlushDecompress::None);
            self.is_over = status.map_err(io::Error::other)? == Status::StreamEnd;
            let read = usize::try_from(stream.total_in() - read).unwrap_or(left.len());
            let written = usize::try_from(stream.total_out() - written).unwrap_or_default();
            left = &left[read..];
            out.write_all(&buffer[..written])?;
            if written < buffer.len() && left.is_empty() || read == 0 && written == 0 {
                break;
            }
        }
        Ok(())
    }

    fn finish(&self) -> io::Result<()> {
        if self.is_over {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends too early"))
    }
}

/// What was unpacked, of at most so many bytes.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
    is_beyond: bool,
}

impl Bounded {
    fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, is_beyond: false }
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
mod tests;
