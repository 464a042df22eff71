// SPDX-License-Identifier: Apache-2.0
//! Where unpacked bytes go: no more of them than a reply may have.

use std::io::{self, Write};

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
