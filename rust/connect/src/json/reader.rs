// SPDX-License-Identifier: Apache-2.0
//! A document that is read, and what may be made of it.

use std::ops::{Deref, DerefMut};

use jiter::Jiter;

/// Reads one document. It is bounded by what is made of it, too: a row or an element takes its bytes
/// though the document says no more of it than `{}`.
#[derive(Debug)]
pub(super) struct Reader<'j> {
    jiter: Jiter<'j>,
    room: usize,
}

/// More would be made of a document than may be.
#[derive(Debug)]
pub(super) struct NoRoom;

impl<'j> Reader<'j> {
    /// Begins to read a text whose values may come to so many bytes.
    pub(super) fn new(text: &'j [u8], room: usize) -> Self {
        Self { jiter: Jiter::new(text).with_allow_inf_nan(), room }
    }

    /// Returns the bytes that may be made still.
    pub(super) const fn room(&self) -> usize {
        self.room
    }

    /// Takes the bytes of a value, beside those that are in the document.
    #[inline]
    pub(super) fn take_room(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.room = self.room.checked_sub(bytes).ok_or(NoRoom)?;
        Ok(())
    }

    /// Has a part of the document read once more.
    pub(super) fn again<'a, T>(
        &mut self,
        text: &'a [u8],
        read: impl FnOnce(&mut Reader<'a>) -> T,
    ) -> T {
        let mut reader = Reader::new(text, self.room);
        let done = read(&mut reader);
        self.room = reader.room;
        done
    }
}

impl<'j> Deref for Reader<'j> {
    type Target = Jiter<'j>;

    fn deref(&self) -> &Jiter<'j> {
        &self.jiter
    }
}

impl DerefMut for Reader<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.jiter
    }
}
