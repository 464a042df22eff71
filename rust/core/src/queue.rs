// SPDX-License-Identifier: Apache-2.0
//! Queues that decide in which order completed elements leave.
//!
//! | queue | order of emission |
//! |---|---|
//! | [`OrderedStreamElementQueue`] | arrival |
//! | [`UnorderedStreamElementQueue`] | completion, never across a watermark |
//! | [`KeyOrderedStreamElementQueue`] | as unordered, with one pending call per key |
//!
//! All three hold at most `capacity` records, counting those that are completed
//! but not yet emitted. Watermarks take no slot; watermarks with no record
//! between them become one, the later. Handles are indexes with a generation:
//! put, complete and emit are O(1) and hash nothing (key-ordered mode hashes
//! the key). A queue belongs to the mailbox thread.

use std::fmt;
use std::num::NonZeroUsize;

use crate::element::{StreamElement, Watermark};

mod any;
mod key_ordered;
mod ordered;
mod segment;
mod unordered;

pub use any::AnyStreamElementQueue;
pub use key_ordered::{KeyOrderedStreamElementQueue, Start};
pub use ordered::OrderedStreamElementQueue;
pub use unordered::UnorderedStreamElementQueue;

/// The handle of a record in a queue. Used again only after 2^32 others at the same place of the queue,
/// which takes longer than any call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(u64);

impl EntryId {
    /// Returns the handle as a number, for maps outside of this process.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Restores a handle from [`as_u64`](Self::as_u64).
    pub const fn from_u64(id: u64) -> Self {
        Self(id)
    }
}

impl fmt::Debug for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A record that leaves a queue: the value that was put, and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed<T, R> {
    /// What was put.
    pub value: T,
    /// What it was completed with.
    pub result: R,
}

/// A record that is still in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a, T, R> {
    /// The handle that completes it.
    pub id: EntryId,
    /// What was put.
    pub value: &'a T,
    /// `None` while pending.
    pub result: Option<&'a R>,
}

/// A FIFO of records and watermarks that lets completed elements out.
///
/// Counterpart of Flink's `StreamElementQueue`; `values` lists arrival order in
/// every implementation, with results.
pub trait StreamElementQueue<T, R> {
    /// Appends `value` and returns the handle that completes it.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] gives `value` back when `capacity` records are held. The
    /// queue is unchanged; retry after [`pop_completed`](Self::pop_completed)
    /// returned a record.
    fn try_put(&mut self, value: T) -> Result<EntryId, QueueFull<T>>;

    /// Appends a watermark, or raises the one that already stands last.
    fn put_watermark(&mut self, watermark: Watermark);

    /// Stores the result of a pending record.
    ///
    /// # Errors
    ///
    /// [`NotPending`]: `result` is dropped, and the first one stands.
    fn complete(&mut self, id: EntryId, result: R) -> Result<(), NotPending>;

    /// Borrows the value of a record that has not been emitted.
    fn get_mut(&mut self, id: EntryId) -> Option<&mut T>;

    /// Returns whether [`pop_completed`](Self::pop_completed) would return an element.
    fn has_completed(&self) -> bool;

    /// Removes the next element that may leave, if there is one.
    fn pop_completed(&mut self) -> Option<StreamElement<Completed<T, R>>>;

    /// Returns the record that arrived first of those that have not been emitted.
    ///
    /// Cheap where it is asked again and again: it does not look at every record each time.
    fn oldest(&mut self) -> Option<&T>;

    /// Returns whether `is` holds for a record that has not been emitted, looking at them in any
    /// order until it does.
    fn any(&self, is: impl FnMut(&T) -> bool) -> bool;

    /// Borrows the values of all records that have not been emitted, in any order.
    fn values_mut<'a>(&'a mut self) -> impl Iterator<Item = &'a mut T>
    where
        T: 'a,
        R: 'a;

    /// Lists every element that has not been emitted, in arrival order.
    fn values(&self) -> Vec<StreamElement<Entry<'_, T, R>>>;

    /// Returns the number of records held, pending and completed.
    fn len(&self) -> usize;

    /// Returns whether neither a record nor a watermark is held.
    fn is_empty(&self) -> bool;

    /// Returns the bound on [`len`](Self::len).
    fn capacity(&self) -> NonZeroUsize;
}

/// The queue holds `capacity` records; `element` was not taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QueueFull<T> {
    /// The refused element.
    pub element: T,
    /// The bound that is reached.
    pub capacity: NonZeroUsize,
}

crate::opaque_debug!([T] QueueFull<T>, capacity: capacity);

impl<T> fmt::Display for QueueFull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream element queue is full (capacity {})", self.capacity)
    }
}

impl<T> std::error::Error for QueueFull<T> {}

/// A completion named a record that is not pending: one that is completed already, was emitted, or
/// never existed. Its result is dropped, and the first one stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPending;

impl fmt::Display for NotPending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the record is not pending")
    }
}

impl std::error::Error for NotPending {}

#[cfg(test)]
mod tests;
