// SPDX-License-Identifier: Apache-2.0
//! The queue that keeps the order of arrival.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use super::{Completed, Entry, EntryId, NotPending, QueueFull, StreamElementQueue};
use crate::element::{StreamElement, Watermark};
use crate::slab::fill;

/// Emits results in the order in which their inputs arrived.
///
/// Counterpart of Flink's `OrderedStreamElementQueue`; differs in that
/// watermarks take no slot. A completed record waits behind every earlier one
/// and keeps its slot until it is *emitted*, so a stalled consumer stops the
/// producer.
///
/// ```text
///      head                        tail
///   [ 7: done ][ 8: pending ][ W ][ 9: done ]     has_completed() == true
///       ^ the only element that may leave
/// ```
///
/// A handle is the element's sequence number, its index the distance from the
/// head's.
#[derive(Debug)]
pub struct OrderedStreamElementQueue<T, R> {
    /// Oldest first.
    elements: VecDeque<StreamElement<Record<T, R>>>,
    /// Sequence number of the element at the head.
    head: u64,
    /// Number of records among `elements`.
    records: usize,
    /// Bound on `records`.
    capacity: NonZeroUsize,
}

/// A record of the queue.
#[derive(Debug)]
struct Record<T, R> {
    value: T,
    /// `None` while pending.
    result: Option<R>,
}

impl<T, R> OrderedStreamElementQueue<T, R> {
    /// Makes an empty queue for at most `capacity` records.
    pub fn new(capacity: NonZeroUsize) -> Self {
        Self { elements: VecDeque::new(), head: 0, records: 0, capacity }
    }

    /// Borrows the record behind `id`, if it is still here.
    fn record_mut(&mut self, id: EntryId) -> Option<&mut Record<T, R>> {
        let index = usize::try_from(id.0.checked_sub(self.head)?).ok()?;
        match self.elements.get_mut(index)? {
            StreamElement::Record(record) => Some(record),
            StreamElement::Watermark(_) => None,
        }
    }
}

impl<T, R> StreamElementQueue<T, R> for OrderedStreamElementQueue<T, R> {
    #[expect(clippy::inline_always, reason = "once per record, from each mode")]
    #[inline(always)]
    fn try_put(&mut self, value: T) -> Result<EntryId, QueueFull<T>> {
        if self.records == self.capacity.get() {
            return Err(QueueFull { element: value, capacity: self.capacity });
        }
        let id = EntryId(self.head + self.elements.len() as u64);
        self.elements.push_back(StreamElement::Record(Record { value, result: None }));
        self.records += 1;
        Ok(id)
    }

    fn put_watermark(&mut self, watermark: Watermark) {
        match self.elements.back_mut() {
            Some(StreamElement::Watermark(last)) => *last = watermark.max(*last),
            _ => self.elements.push_back(StreamElement::Watermark(watermark)),
        }
    }

    #[expect(clippy::inline_always, reason = "once per record")]
    #[inline(always)]
    fn complete(&mut self, id: EntryId, result: R) -> Result<(), NotPending> {
        let record = self.record_mut(id).filter(|it| it.result.is_none()).ok_or(NotPending)?;
        fill(&mut record.result, result);
        Ok(())
    }

    fn get_mut(&mut self, id: EntryId) -> Option<&mut T> {
        self.record_mut(id).map(|record| &mut record.value)
    }

    fn has_completed(&self) -> bool {
        match self.elements.front() {
            None => false,
            Some(StreamElement::Watermark(_)) => true,
            Some(StreamElement::Record(record)) => record.result.is_some(),
        }
    }

    fn pop_completed(&mut self) -> Option<StreamElement<Completed<T, R>>> {
        if !self.has_completed() {
            return None;
        }
        let element = match self.elements.pop_front()? {
            StreamElement::Watermark(watermark) => StreamElement::Watermark(watermark),
            StreamElement::Record(Record { value, result }) => {
                self.records -= 1;
                StreamElement::Record(Completed { value, result: result? })
            }
        };
        self.head += 1;
        Some(element)
    }

    fn oldest(&mut self) -> Option<&T> {
        // Watermarks with no record between them are one, so it is the first or the second.
        self.elements.iter().find_map(|element| match element {
            StreamElement::Record(record) => Some(&record.value),
            StreamElement::Watermark(_) => None,
        })
    }

    fn any(&self, mut is: impl FnMut(&T) -> bool) -> bool {
        self.elements.iter().any(|element| match element {
            StreamElement::Record(record) => is(&record.value),
            StreamElement::Watermark(_) => false,
        })
    }

    fn values_mut<'a>(&'a mut self) -> impl Iterator<Item = &'a mut T>
    where
        T: 'a,
        R: 'a,
    {
        self.elements.iter_mut().filter_map(|element| match element {
            StreamElement::Record(record) => Some(&mut record.value),
            StreamElement::Watermark(_) => None,
        })
    }

    fn values(&self) -> Vec<StreamElement<Entry<'_, T, R>>> {
        let numbered = (self.head..).zip(&self.elements);
        numbered
            .map(|(sequence, element)| {
                element.as_ref().map(|record| Entry {
                    id: EntryId(sequence),
                    value: &record.value,
                    result: record.result.as_ref(),
                })
            })
            .collect()
    }

    fn len(&self) -> usize {
        self.records
    }

    fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    fn capacity(&self) -> NonZeroUsize {
        self.capacity
    }
}
