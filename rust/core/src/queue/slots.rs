// SPDX-License-Identifier: Apache-2.0
//! Storage for records that leave in another order than they came.

use super::EntryId;

/// The end of a list of slots.
pub(super) const NONE: u32 = u32::MAX;

/// A slab of reusable slots addressed by index and generation.
///
/// Grows with the records held, not with the capacity permitted.
#[derive(Debug)]
pub(super) struct Slots<V> {
    slots: Vec<Slot<V>>,
    /// Index of the first vacant slot, or [`NONE`].
    vacant: u32,
}

/// One place of the slab.
#[derive(Debug)]
struct Slot<V> {
    /// Raised whenever the slot is vacated, so that old handles find nothing.
    generation: u32,
    /// The next slot of the list that this one is in, or [`NONE`].
    next: u32,
    /// `None` while vacant.
    value: Option<V>,
}

impl<V> Slots<V> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), vacant: NONE }
    }

    /// Stores `value` and returns its handle.
    #[expect(clippy::inline_always, reason = "once per record, for each mode")]
    #[inline(always)]
    pub(super) fn insert(&mut self, value: V) -> EntryId {
        let index = self.vacant;
        if let Some(slot) = self.slots.get_mut(index as usize) {
            self.vacant = slot.next;
            slot.next = NONE;
            fill(&mut slot.value, value);
            return handle(index, slot.generation);
        }
        // A slot takes more than one byte: memory ends before 2^32 slots do.
        let index = u32::try_from(self.slots.len()).unwrap_or(NONE);
        self.slots.push(Slot { generation: 0, next: NONE, value: Some(value) });
        handle(index, 0)
    }

    /// Borrows the value behind `id`, if it is still here.
    pub(super) fn get_mut(&mut self, id: EntryId) -> Option<&mut V> {
        let slot = self.slots.get_mut(index_of(id) as usize)?;
        if slot.generation == generation_of(id) { slot.value.as_mut() } else { None }
    }

    /// Sets the successor of the slot `index` in its list.
    pub(super) fn link(&mut self, index: u32, next: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.next = next;
        }
    }

    /// Vacates the slot `index`; returns its value and its successor.
    pub(super) fn remove(&mut self, index: u32) -> Option<(V, u32)> {
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        let next = slot.next;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = self.vacant;
        self.vacant = index;
        Some((value, next))
    }

    /// Iterates over all handles and values, in the order of the slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EntryId, &V)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| {
            slot.value.as_ref().map(|value| (handle(index, slot.generation), value))
        })
    }
}

/// Stores `value` where there is none, so that no code looks at what there was to drop it.
#[inline]
pub(super) fn fill<T>(place: &mut Option<T>, value: T) {
    debug_assert!(place.is_none(), "a value would be forgotten");
    std::mem::forget(place.replace(value));
}

/// Packs a handle.
const fn handle(index: u32, generation: u32) -> EntryId {
    EntryId((generation as u64) << 32 | index as u64)
}

/// Returns the slot of a handle.
#[expect(clippy::cast_possible_truncation, reason = "the low half is the index")]
pub(super) const fn index_of(id: EntryId) -> u32 {
    id.0 as u32
}

/// Returns the generation of a handle.
const fn generation_of(id: EntryId) -> u32 {
    (id.0 >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vacated_slot_is_reused_under_another_handle() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        slots.remove(index_of(first));

        let second = slots.insert('b');

        assert_eq!(index_of(first), index_of(second));
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.get_mut(second), Some(&mut 'b'));
    }
}
