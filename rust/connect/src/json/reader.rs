// SPDX-License-Identifier: Apache-2.0
//! A document that is read, and what may be made of it.

use std::ops::{Deref, DerefMut};

use jiter::Jiter;

use super::halves::Marked;

/// Reads one document. It is bounded by what is made of it, too: a row or an element takes its bytes
/// though the document says no more of it than `{}`.
#[derive(Debug)]
pub(super) struct Reader<'j> {
    jiter: Jiter<'j>,
    /// The document as it came.
    text: &'j [u8],
    room: usize,
    /// What stands in what is read for halves of characters, if there are any.
    mark: Option<char>,
}

/// More would be made of a document than may be.
#[derive(Debug)]
pub(super) struct NoRoom;

impl<'j> Reader<'j> {
    /// Begins to read a text whose values may come to so many bytes.
    pub(super) fn new(text: &'j [u8], room: usize) -> Self {
        Self { jiter: Jiter::new(text).with_allow_inf_nan(), text, room, mark: None }
    }

    /// Begins to read a text that has halves of characters, which are marked.
    pub(super) fn of_marked(marked: &'j Marked, text: &'j [u8], room: usize) -> Self {
        let mark = Some(marked.mark);
        Self { text, mark, ..Self::new(&marked.text, room) }
    }

    /// Returns what stands for half of a character, if the document has any.
    #[inline]
    pub(super) const fn mark(&self) -> Option<char> {
        self.mark
    }

    /// Returns the byte that is read next.
    pub(super) fn next_byte(&self) -> Option<u8> {
        self.text.get(self.jiter.current_index()).copied()
    }

    /// Returns the document from there on, as it came.
    pub(super) fn text_from(&self, start: usize) -> &'j [u8] {
        &self.text[start..]
    }

    /// Returns the document from there on, up to where it was read, as it came.
    pub(super) fn slice_to_current(&self, start: usize) -> &'j [u8] {
        &self.text[start..self.jiter.current_index()]
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

    /// Says how many bytes may be made still.
    pub(super) fn leave_room(&mut self, room: usize) {
        self.room = room;
    }

    /// Reads the document from there on once more, up to where it was read.
    pub(super) fn again<T>(&mut self, start: usize, read: impl FnOnce(&mut Reader<'j>) -> T) -> T {
        let text = self.slice_to_current(start);
        let reader = Reader::new(self.jiter.slice_to_current(start), self.room);
        let mut reader = Reader { text, mark: self.mark, ..reader };
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
