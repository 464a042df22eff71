// SPDX-License-Identifier: Apache-2.0
//! The queue that lets results out as they complete, between watermarks.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use super::segment::{ClosingWatermark, Segment};
use super::{Completed, Entry, EntryId, NotPending, QueueFull, StreamElementQueue};
use crate::element::{StreamElement, Watermark};
use crate::slab::{Generation, NONE, Numbered, Slab, fill};

/// Of the elements since the oldest record, which part is looked at when the oldest is sought.
///
/// With more there is more to sort; with fewer they must be found again sooner.
const ELDERS: u64 = 32;

/// Emits results in the order of completion; no record crosses a watermark.
///
/// Counterpart of Flink's `UnorderedStreamElementQueue`. Only the first segment
/// emits; its watermark follows its last record.
///
/// ```text
///   first segment               last segment
///   [ E2 E1 | pending: E3 ] W1  [ E5 E4 | pending: ]     next out: E2, then E1
///     completed                   completed, held back by W1
/// ```
///
/// Records live in slots; the completed ones of a segment are a linked list
/// through these slots, so completing is two index operations.
#[derive(Debug)]
pub struct UnorderedStreamElementQueue<T, R> {
    slots: Slab<Record<T, R>, Numbered>,
    /// Those with a watermark behind them, oldest first.
    closed: VecDeque<Segment>,
    /// The last one, which takes new records. Beside the others, as it is mostly the only one.
    open: Segment,
    /// Number of the first segment.
    first_segment: u64,
    /// Elements that arrived so far.
    sequence: u64,
    /// Every record that arrived before the last one of them, oldest first, and some that are gone.
    elders: VecDeque<EntryId>,
    /// Records held.
    records: usize,
    /// Bound on `records`.
    capacity: NonZeroUsize,
}

/// A record of the queue.
#[derive(Debug)]
struct Record<T, R> {
    /// Its place in the order of arrival.
    sequence: u64,
    /// Number of its segment.
    segment: u64,
    value: T,
    /// `None` while pending.
    result: Option<R>,
}

impl<T, R> UnorderedStreamElementQueue<T, R> {
    /// Makes an empty queue for at most `capacity` records.
    pub fn new(capacity: NonZeroUsize) -> Self {
        Self {
            slots: Slab::new(),
            closed: VecDeque::new(),
            open: Segment::new(),
            first_segment: 0,
            sequence: 0,
            elders: VecDeque::new(),
            records: 0,
            capacity,
        }
    }

    /// Lists the oldest records again; some are, if there are any.
    fn find_elders(&mut self) {
        let Some(first) = self.slots.iter().map(|(_, record)| record.sequence).min() else {
            return;
        };
        let last = first + (self.sequence - first) / ELDERS;
        let numbered = self.slots.iter().map(|(id, record)| (record.sequence, EntryId(id)));
        let mut elders: Vec<_> = numbered.filter(|(sequence, _)| *sequence <= last).collect();
        elders.sort_unstable();
        self.elders = elders.into_iter().map(|(_, id)| id).collect();
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

impl<T, R> StreamElementQueue<T, R> for UnorderedStreamElementQueue<T, R> {
    #[expect(clippy::inline_always, reason = "once per record, from each mode")]
    #[inline(always)]
    fn try_put(&mut self, value: T) -> Result<EntryId, QueueFull<T>> {
        if self.records == self.capacity.get() {
            return Err(QueueFull { element: value, capacity: self.capacity });
        }
        let sequence = self.next_sequence();
        let segment = self.first_segment + self.closed.len() as u64;
        self.open.pending += 1;
        self.records += 1;
        Ok(EntryId(self.slots.insert(Record { sequence, segment, value, result: None })))
    }

    fn put_watermark(&mut self, watermark: Watermark) {
        let sequence = self.next_sequence();
        let closing = ClosingWatermark { watermark, sequence };
        // An empty last segment stands right behind the previous watermark.
        let is_behind = self.open.has_no_records();
        let last = if is_behind { self.closed.back_mut() } else { None };
        if let Some(previous) = last.and_then(|it| it.watermark.as_mut()) {
            previous.watermark = previous.watermark.max(watermark);
        } else {
            let open = std::mem::replace(&mut self.open, Segment::new());
            self.closed.push_back(Segment { watermark: Some(closing), ..open });
        }
    }

    fn complete(&mut self, id: EntryId, result: R) -> Result<(), NotPending> {
        let record = self.slots.get_mut(id.0).filter(|it| it.result.is_none()).ok_or(NotPending)?;
        fill(&mut record.result, result);
        #[expect(clippy::cast_possible_truncation, reason = "segments are in memory")]
        let number = (record.segment - self.first_segment) as usize;
        let segment = match self.closed.get_mut(number) {
            Some(closed) => closed,
            None => &mut self.open,
        };
        segment.pending -= 1;
        let index = Numbered::index_of(id.0);
        if segment.first_completed == NONE {
            segment.first_completed = index;
        } else {
            self.slots.link(segment.last_completed, index);
        }
        segment.last_completed = index;
        Ok(())
    }

    fn get_mut(&mut self, id: EntryId) -> Option<&mut T> {
        self.slots.get_mut(id.0).map(|record| &mut record.value)
    }

    fn has_completed(&self) -> bool {
        match self.closed.front() {
            Some(first) => first.first_completed != NONE || first.pending == 0,
            None => self.open.first_completed != NONE,
        }
    }

    fn pop_completed(&mut self) -> Option<StreamElement<Completed<T, R>>> {
        let first = self.closed.front_mut().unwrap_or(&mut self.open);
        if first.first_completed == NONE {
            let closing = if first.pending == 0 { first.watermark? } else { return None };
            self.closed.pop_front();
            self.first_segment += 1;
            return Some(StreamElement::Watermark(closing.watermark));
        }
        let (record, next) = self.slots.remove(first.first_completed)?;
        first.first_completed = next;
        self.records -= 1;
        Some(StreamElement::Record(Completed { value: record.value, result: record.result? }))
    }

    fn oldest(&mut self) -> Option<&T> {
        while let Some(id) = self.elders.front().copied() {
            if self.slots.get_mut(id.0).is_some() {
                break;
            }
            self.elders.pop_front();
        }
        if self.elders.is_empty() {
            self.find_elders();
        }
        let id = *self.elders.front()?;
        self.slots.get_mut(id.0).map(|record| &record.value)
    }

    fn any(&self, mut is: impl FnMut(&T) -> bool) -> bool {
        self.slots.iter().any(|(_, record)| is(&record.value))
    }

    fn values_mut<'a>(&'a mut self) -> impl Iterator<Item = &'a mut T>
    where
        T: 'a,
        R: 'a,
    {
        self.slots.iter_mut().map(|record| &mut record.value)
    }

    fn values(&self) -> Vec<StreamElement<Entry<'_, T, R>>> {
        let records = self.slots.iter().map(|(id, record)| {
            let result = record.result.as_ref();
            let entry = Entry { id: EntryId(id), value: &record.value, result };
            (record.sequence, StreamElement::Record(entry))
        });
        let watermarks = self.closed.iter().filter_map(|segment| {
            segment.watermark.map(|it| (it.sequence, StreamElement::Watermark(it.watermark)))
        });
        let mut numbered: Vec<_> = records.chain(watermarks).collect();
        numbered.sort_unstable_by_key(|(sequence, _)| *sequence);
        numbered.into_iter().map(|(_, element)| element).collect()
    }

    fn len(&self) -> usize {
        self.records
    }

    fn is_empty(&self) -> bool {
        self.records == 0 && self.closed.is_empty()
    }

    fn capacity(&self) -> NonZeroUsize {
        self.capacity
    }
}
