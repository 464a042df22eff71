// SPDX-License-Identifier: Apache-2.0
//! Texts or bytes that grow one behind the other, and their offsets.

use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};

/// Texts or bytes, one behind the other.
#[derive(Debug)]
pub(crate) struct Bytes {
    offsets: Vec<i32>,
    bytes: Vec<u8>,
}

/// A column would pass the two gigabytes that its type can hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full;

impl Bytes {
    pub(super) fn new(rows: usize) -> Self {
        Self { offsets: no_offsets(rows), bytes: Vec::with_capacity(rows * 16) }
    }

    /// Appends a value.
    #[inline]
    pub(crate) fn push(&mut self, value: &[u8]) -> Result<(), Full> {
        let end = i32::try_from(self.bytes.len() + value.len()).map_err(|_| Full)?;
        self.bytes.extend_from_slice(value);
        self.offsets.push(end);
        Ok(())
    }

    /// Appends the value that `write` appends to the bytes; `false` if it could not.
    pub(crate) fn push_with(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> Result<bool, Full> {
        if !write(&mut self.bytes) {
            self.bytes.truncate(last(&self.offsets));
            return Ok(false);
        }
        self.offsets.push(i32::try_from(self.bytes.len()).map_err(|_| Full)?);
        Ok(true)
    }

    pub(super) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub(super) fn get(&self, row: usize) -> &[u8] {
        &self.bytes[offset(self.offsets[row])..offset(self.offsets[row + 1])]
    }

    /// Whether each value is UTF-8.
    pub(super) fn are_texts(&self) -> bool {
        std::str::from_utf8(&self.bytes).is_ok_and(|text| {
            text.is_ascii() || self.offsets.iter().all(|end| text.is_char_boundary(offset(*end)))
        })
    }

    pub(super) fn push_empty(&mut self) {
        repeat_last(&mut self.offsets);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.offsets.truncate(len + 1);
        self.bytes.truncate(last(&self.offsets));
    }

    pub(super) fn finish(self) -> (OffsetBuffer<i32>, Buffer) {
        (offsets_of(self.offsets), Buffer::from_vec(self.bytes))
    }
}

/// Returns the offsets of nothing, with room for those of `rows` values.
pub(super) fn no_offsets(rows: usize) -> Vec<i32> {
    let mut offsets = Vec::with_capacity(rows + 1);
    offsets.push(0);
    offsets
}

/// Appends the end of a list that holds what was appended to its elements.
#[inline]
pub(crate) fn push_end(offsets: &mut Vec<i32>, elements: usize) -> Result<(), Full> {
    offsets.push(i32::try_from(elements).map_err(|_| Full)?);
    Ok(())
}

#[inline]
pub(super) fn repeat_last(offsets: &mut Vec<i32>) {
    let end = offsets.last().copied().unwrap_or(0);
    offsets.push(end);
}

#[inline]
pub(super) fn last(offsets: &[i32]) -> usize {
    offsets.last().map_or(0, |end| offset(*end))
}

/// Offsets are never negative.
#[inline]
fn offset(end: i32) -> usize {
    usize::try_from(end).unwrap_or(0)
}

/// Offsets only grow, from 0: see [`Bytes::push`] and [`push_end`].
pub(super) fn offsets_of(offsets: Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::from(offsets))
}
