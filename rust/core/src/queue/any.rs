// SPDX-License-Identifier: Apache-2.0
//! One of the three queues, chosen when the operator is built.

use std::num::NonZeroUsize;

use super::{
    Completed, Entry, EntryId, KeyOrderedStreamElementQueue, NotPending, OrderedStreamElementQueue,
    QueueFull, Start, StreamElementQueue, UnorderedStreamElementQueue,
};
use crate::element::{Key, StreamElement, Watermark};

/// The queue of one operator.
///
/// An enum instead of a trait object: the branch is predicted, and the calls
/// into the queue are inlined. The tag has a place of its own: found in a value that
/// a variant never has, it would take ten instructions in each of six calls a record.
#[derive(Debug)]
#[repr(u8)]
pub enum AnyStreamElementQueue<T, R> {
    /// Keeps the order of arrival.
    Ordered(OrderedStreamElementQueue<T, R>),
    /// Keeps the order of watermarks.
    Unordered(UnorderedStreamElementQueue<T, R>),
    /// Keeps the order of each key, and of watermarks.
    KeyOrdered(KeyOrderedStreamElementQueue<T, R>),
}

/// Calls the same method of whichever queue it is.
macro_rules! delegate {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match $self {
            Self::Ordered(queue) => queue.$method($($argument),*),
            Self::Unordered(queue) => queue.$method($($argument),*),
            Self::KeyOrdered(queue) => queue.$method($($argument),*),
        }
    };
}

impl<T, R> AnyStreamElementQueue<T, R> {
    /// Appends `value` and tells whether it may start; only key-ordered queues look at `key`.
    ///
    /// # Errors
    ///
    /// As [`StreamElementQueue::try_put`].
    #[expect(clippy::inline_always, reason = "once per record, from two places")]
    #[inline(always)]
    pub fn try_put_keyed(
        &mut self,
        value: T,
        key: Option<Key>,
    ) -> Result<(EntryId, Start), QueueFull<T>> {
        match self {
            Self::Ordered(queue) => queue.try_put(value).map(|id| (id, Start::Now)),
            Self::Unordered(queue) => queue.try_put(value).map(|id| (id, Start::Now)),
            Self::KeyOrdered(queue) => queue.try_put_keyed(value, key),
        }
    }

    /// Stores a result and returns the blocked record that may start now.
    ///
    /// # Errors
    ///
    /// As [`StreamElementQueue::complete`].
    #[expect(clippy::inline_always, reason = "once per record")]
    #[inline(always)]
    pub fn complete_keyed(
        &mut self,
        id: EntryId,
        result: R,
    ) -> Result<Option<EntryId>, NotPending> {
        match self {
            Self::Ordered(queue) => queue.complete(id, result).map(|()| None),
            Self::Unordered(queue) => queue.complete(id, result).map(|()| None),
            Self::KeyOrdered(queue) => queue.complete_keyed(id, result),
        }
    }
}

impl<T, R> StreamElementQueue<T, R> for AnyStreamElementQueue<T, R> {
    fn try_put(&mut self, value: T) -> Result<EntryId, QueueFull<T>> {
        delegate!(self.try_put(value))
    }

    fn put_watermark(&mut self, watermark: Watermark) {
        delegate!(self.put_watermark(watermark));
    }

    fn complete(&mut self, id: EntryId, result: R) -> Result<(), NotPending> {
        delegate!(self.complete(id, result))
    }

    fn get_mut(&mut self, id: EntryId) -> Option<&mut T> {
        delegate!(self.get_mut(id))
    }

    fn has_completed(&self) -> bool {
        delegate!(self.has_completed())
    }

    fn pop_completed(&mut self) -> Option<StreamElement<Completed<T, R>>> {
        delegate!(self.pop_completed())
    }

    fn oldest(&mut self) -> Option<&T> {
        delegate!(self.oldest())
    }

    fn any(&self, is: impl FnMut(&T) -> bool) -> bool {
        delegate!(self.any(is))
    }

    fn values_mut<'a>(&'a mut self) -> impl Iterator<Item = &'a mut T>
    where
        T: 'a,
        R: 'a,
    {
        let (ordered, unordered, key_ordered) = match self {
            Self::Ordered(queue) => (Some(queue.values_mut()), None, None),
            Self::Unordered(queue) => (None, Some(queue.values_mut()), None),
            Self::KeyOrdered(queue) => (None, None, Some(queue.values_mut())),
        };
        let unordered = unordered.into_iter().flatten();
        ordered.into_iter().flatten().chain(unordered).chain(key_ordered.into_iter().flatten())
    }

    fn values(&self) -> Vec<StreamElement<Entry<'_, T, R>>> {
        delegate!(self.values())
    }

    fn len(&self) -> usize {
        delegate!(self.len())
    }

    fn is_empty(&self) -> bool {
        delegate!(self.is_empty())
    }

    fn capacity(&self) -> NonZeroUsize {
        delegate!(self.capacity())
    }
}
