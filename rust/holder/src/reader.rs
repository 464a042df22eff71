// SPDX-License-Identifier: Apache-2.0
//! Bytes behind their number, read from the front of others, and back; numbers are little-endian.
//!
//! Each returns `None` once the bytes do not suffice.

use bytes::Buf;

pub(crate) fn array<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    from.split_off(..N)?.try_into().ok()
}

/// Reads a number of things that take a byte each at least.
pub(crate) fn count(from: &mut &[u8]) -> Option<usize> {
    let count = usize::try_from(from.try_get_u64_le().ok()?).ok()?;
    (count <= from.len()).then_some(count)
}

pub(crate) fn bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = count(from)?;
    from.split_off(..length)
}

pub(crate) fn text(from: &mut &[u8]) -> Option<String> {
    String::from_utf8(bytes(from)?.to_vec()).ok()
}

/// Writes bytes behind their number.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend(bytes);
}

pub(crate) fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend((count as u64).to_le_bytes());
}
