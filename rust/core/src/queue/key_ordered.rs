// SPDX-License-Identifier: Apache-2.0
//! The queue that keeps the order of each key.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::num::NonZeroUsize;

use super::{
    Completed, Entry, EntryId, NotPending, QueueFull, StreamElementQueue,
    UnorderedStreamElementQueue,
};
use crate::element::{Key, StreamElement, Watermark};
use crate::key_hasher::KeyHasher;

/// Emits as [`UnorderedStreamElementQueue`], but lets one record of a key start at a time.
///
/// Counterpart of Flink's `TableAsyncExecutionController` (FLIP-519). A record
/// whose key is busy is *blocked* behind the last record of that key and starts
/// when its predecessor completes, also across a watermark: only the output
/// waits for the watermark. As calls of a key never overlap, completion order
/// is arrival order within the key; a blocked record that is completed (it timed
/// out) waits for its predecessors all the same. A record without a key is never
/// blocked.
///
/// ```text
///   key a:  [ 1: running ] -> [ 4: blocked ] -> [ 5: blocked ]
///   key b:  [ 2: running ]
/// ```
#[derive(Debug)]
pub struct KeyOrderedStreamElementQueue<T, R> {
    inner: UnorderedStreamElementQueue<Keyed<T, R>, R>,
    /// The last uncompleted record of each busy key.
    tails: HashMap<Key, EntryId, BuildHasherDefault<KeyHasher>>,
}

/// A value with its place in the chain of its key.
#[derive(Debug)]
struct Keyed<T, R> {
    value: T,
    key: Option<Key>,
    /// The next record of the same key.
    successor: Option<EntryId>,
    /// Whether an earlier record of the key is pending.
    is_blocked: bool,
    /// The result of a blocked record, held back until its predecessor completes.
    early: Option<R>,
}

/// Whether a record may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// No earlier record of its key is pending.
    Now,
    /// It waits for an earlier record of its key.
    Blocked,
}

impl<T, R> KeyOrderedStreamElementQueue<T, R> {
    /// Makes an empty queue for at most `capacity` records, blocked ones included.
    pub fn new(capacity: NonZeroUsize) -> Self {
        Self { inner: UnorderedStreamElementQueue::new(capacity), tails: HashMap::default() }
    }

    /// Appends `value` and tells whether it may start.
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
        let keyed = Keyed { value, key, successor: None, is_blocked: false, early: None };
        let id = self
            .inner
            .try_put(keyed)
            .map_err(|full| QueueFull { element: full.element.value, capacity: full.capacity })?;
        let predecessor = key.and_then(|key| self.tails.insert(key, id));
        let Some(predecessor) = predecessor else { return Ok((id, Start::Now)) };
        if let Some(keyed) = self.inner.get_mut(predecessor) {
            keyed.successor = Some(id);
        }
        if let Some(keyed) = self.inner.get_mut(id) {
            keyed.is_blocked = true;
        }
        Ok((id, Start::Blocked))
    }

    /// Stores a result and returns the record of the same key that may start now.
    ///
    /// # Errors
    ///
    /// As [`StreamElementQueue::complete`].
    pub fn complete_keyed(
        &mut self,
        id: EntryId,
        result: R,
    ) -> Result<Option<EntryId>, NotPending> {
        if let Some(blocked) = self.inner.get_mut(id).filter(|keyed| keyed.is_blocked) {
            if blocked.early.is_some() {
                return Err(NotPending);
            }
            blocked.early = Some(result);
            return Ok(None);
        }
        let mut next = self.complete_head(id, result)?;
        while let Some(head) = next {
            let Some(keyed) = self.inner.get_mut(head) else { break };
            keyed.is_blocked = false;
            let Some(early) = keyed.early.take() else { return Ok(Some(head)) };
            next = self.complete_head(head, early)?;
        }
        Ok(None)
    }

    /// Completes the first pending record of a key; returns the second.
    fn complete_head(&mut self, id: EntryId, result: R) -> Result<Option<EntryId>, NotPending> {
        self.inner.complete(id, result)?;
        let Some(keyed) = self.inner.get_mut(id) else { return Ok(None) };
        if let (None, Some(key)) = (keyed.successor, keyed.key) {
            self.tails.remove(&key);
        }
        Ok(keyed.successor)
    }
}

impl<T, R> StreamElementQueue<T, R> for KeyOrderedStreamElementQueue<T, R> {
    fn try_put(&mut self, value: T) -> Result<EntryId, QueueFull<T>> {
        self.try_put_keyed(value, None).map(|(id, _)| id)
    }

    fn put_watermark(&mut self, watermark: Watermark) {
        self.inner.put_watermark(watermark);
    }

    fn complete(&mut self, id: EntryId, result: R) -> Result<(), NotPending> {
        self.complete_keyed(id, result).map(drop)
    }

    fn get_mut(&mut self, id: EntryId) -> Option<&mut T> {
        self.inner.get_mut(id).map(|keyed| &mut keyed.value)
    }

    fn has_completed(&self) -> bool {
        self.inner.has_completed()
    }

    fn pop_completed(&mut self) -> Option<StreamElement<Completed<T, R>>> {
        let element = self.inner.pop_completed()?;
        Some(element.map(|it| Completed { value: it.value.value, result: it.result }))
    }

    fn oldest(&mut self) -> Option<&T> {
        self.inner.oldest().map(|it| &it.value)
    }

    fn any(&self, mut is: impl FnMut(&T) -> bool) -> bool {
        self.inner.any(|it| is(&it.value))
    }

    fn values_mut<'a>(&'a mut self) -> impl Iterator<Item = &'a mut T>
    where
        T: 'a,
        R: 'a,
    {
        self.inner.values_mut().map(|keyed| &mut keyed.value)
    }

    fn values(&self) -> Vec<StreamElement<Entry<'_, T, R>>> {
        let elements = self.inner.values().into_iter();
        elements
            .map(|element| {
                element.map(|it| Entry {
                    id: it.id,
                    value: &it.value.value,
                    result: it.result.or(it.value.early.as_ref()),
                })
            })
            .collect()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    fn capacity(&self) -> NonZeroUsize {
        self.inner.capacity()
    }
}
