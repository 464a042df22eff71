// SPDX-License-Identifier: Apache-2.0
//! Bodies in zstd: frames, unpacked block by block as these come.
//!
//! The decoder reads as much as there is at once, which of a few bytes may be gigabytes. So it is given
//! one whole block at a time, which comes to no more than 128 KiB.

use std::io::{self, Write};

use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Largest window that a body may need: RFC 9659 allows no larger one.
const LARGEST_WINDOW: u64 = 8 << 20;

/// Bytes of the largest block.
const LARGEST_BLOCK: usize = 128 << 10;

/// Unpacks frames.
pub(super) struct Frames {
    decoder: FrameDecoder,
    /// The output of a part that is not whole yet.
    rest: Vec<u8>,
    next: Next,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Frame,
    /// A block; whether a checksum follows the last one.
    Block(bool),
    /// So many bytes that are for others.
    Skipped(usize),
}

impl Frames {
    /// Makes what unpacks one body.
    pub(super) fn new() -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(LARGEST_WINDOW);
        Self { decoder, rest: Vec::new(), next: Next::Frame }
    }

    /// Unpacks the next piece of a body as far as its blocks are whole.
    pub(super) fn unpack(&mut self, piece: &[u8], out: &mut Bounded) -> io::Result<()> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(piece);
        let mut left = all.as_slice();
        while self.step(&mut left, out)? {}
        let used = all.len() - left.len();
        all.drain(..used);
        self.rest = all;
        Ok(())
    }

    /// Fails if the body ends within a frame.
    pub(super) fn finish(&self) -> io::Result<()> {
        if self.next == Next::Frame && self.rest.is_empty() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends within a frame"))
    }

    /// Takes one part of a frame off `left`; returns false if it is not all there.
    fn step(&mut self, left: &mut &[u8], out: &mut Bounded) -> io::Result<bool> {
        match self.next {
            Next::Frame => self.open_frame(left, out),
            Next::Block(is_checked) => self.unpack_block(left, is_checked, out),
            Next::Skipped(bytes) => {
                let here = bytes.min(left.len());
                *left = &left[here..];
                self.next = if here == bytes { Next::Frame } else { Next::Skipped(bytes - here) };
                Ok(here == bytes)
            }
        }
    }

    fn open_frame(&mut self, left: &mut &[u8], out: &mut Bounded) -> io::Result<bool> {
        let Some(magic) = left.first_chunk::<4>() else { return Ok(false) };
        if u32::from_le_bytes(*magic) & 0xffff_fff0 == 0x184d_2a50 {
            let Some((header, behind)) = left.split_first_chunk::<8>() else { return Ok(false) };
            let [.., a, b, c, d] = *header;
            let bytes = u32::from_le_bytes([a, b, c, d]);
            self.next = Next::Skipped(usize::try_from(bytes).unwrap_or(usize::MAX));
            *left = behind;
            return Ok(true);
        }
        let Some(flags) = left.get(4).copied() else { return Ok(false) };
        let Some(mut header) = left.get(..header_bytes(flags)) else { return Ok(false) };
        *left = &left[header.len()..];
        self.decoder.reset(&mut header).map_err(wrong)?;
        out.expect(self.decoder.content_size())?;
        self.next = Next::Block(flags & 4 != 0);
        Ok(true)
    }

    fn unpack_block(
        &mut self,
        left: &mut &[u8],
        is_checked: bool,
        out: &mut Bounded,
    ) -> io::Result<bool> {
        let Some([a, b, c]) = left.first_chunk() else { return Ok(false) };
        let header = u32::from_le_bytes([*a, *b, *c, 0]);
        let (is_last, size) = (header & 1 == 1, (header >> 3) as usize);
        if size > LARGEST_BLOCK {
            return Err(io::Error::other("a block is too long"));
        }
        // Of a byte that is repeated there is one.
        let content = if header >> 1 & 3 == 1 { 1 } else { size };
        let checksum = if is_last && is_checked { 4 } else { 0 };
        let Some(mut block) = left.get(..3 + content + checksum) else { return Ok(false) };
        *left = &left[block.len()..];
        let one = BlockDecodingStrategy::UptoBlocks(1);
        self.decoder.decode_blocks(&mut block, one).map_err(wrong)?;
        self.decoder.collect_to_writer(out)?;
        if is_last {
            self.next = Next::Frame;
            let said = self.decoder.get_checksum_from_data();
            if said.is_some() && said != self.decoder.get_calculated_checksum() {
                return Err(io::Error::other("its checksum is wrong"));
            }
        }
        Ok(true)
    }
}

/// Returns how long the header of a frame is that has these flags, its magic number included.
fn header_bytes(flags: u8) -> usize {
    let is_single = flags & 0x20 != 0;
    let dictionary = [0, 1, 2, 4][usize::from(flags & 3)];
    let size = [usize::from(is_single), 2, 4, 8][usize::from(flags >> 6)];
    5 + usize::from(!is_single) + dictionary + size
}

fn wrong(error: FrameDecoderError) -> io::Error {
    io::Error::other(error)
}

/// What was unpacked, of at most so many bytes.
pub(super) struct Bounded {
    pub(super) bytes: Vec<u8>,
    most: usize,
    pub(super) is_beyond: bool,
}

impl Bounded {
    pub(super) fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most, is_beyond: false }
    }

    /// Fails if so many bytes more would be too many.
    pub(super) fn expect(&mut self, bytes: u64) -> io::Result<()> {
        if usize::try_from(bytes).is_ok_and(|bytes| bytes <= self.most) {
            return Ok(());
        }
        self.is_beyond = true;
        Err(io::Error::other("more bytes than allowed"))
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.expect(bytes.len() as u64)?;
        // What was handed on is counted too.
        self.most -= bytes.len();
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
