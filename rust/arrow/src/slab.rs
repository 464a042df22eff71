// SPDX-License-Identifier: Apache-2.0
//! Values that are held for as long as one of their rows is needed.
//!
//! Invariant: a slot is either free or has at least one unreleased row. Belongs
//! to the task thread.

use std::fmt;

/// Holds values under small integer handles and drops each one when the last
/// of its rows is released.
///
/// Handles are reused, so they stay dense: a table indexed by handle is no
/// larger than the largest number of values ever held at once.
pub(crate) struct Slab<T> {
    slots: Vec<Option<Slot<T>>>,
    /// Empty slots, the one emptied last on top.
    free: Vec<u32>,
    /// Of all values.
    bytes: usize,
}

struct Slot<T> {
    value: T,
    /// Never 0.
    unreleased: u32,
    rows: u32,
    bytes: usize,
}

/// Shows how many values there are, and none of them.
impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.slots.len() - self.free.len();
        f.debug_struct("Slab").field("held", &held).finish_non_exhaustive()
    }
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), bytes: 0 }
    }

    /// Holds `value`, of so many bytes, until `rows` rows of it have been released.
    ///
    /// `rows` is not 0: nothing would ever release such a value.
    pub(crate) fn insert(&mut self, value: T, rows: u32, bytes: usize) -> u32 {
        debug_assert!(rows > 0, "a value without rows would be held for ever");
        self.bytes += bytes;
        let slot = Some(Slot { value, unreleased: rows, rows, bytes });
        if let Some(id) = self.free.pop() {
            self.slots[id as usize] = slot;
            return id;
        }
        // Each slot holds a batch of at least one row: memory ends before u32 does.
        let id = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(slot);
        id
    }

    /// The value under `id`.
    pub(crate) fn get(&self, id: u32) -> &T {
        &self.slot(id).value
    }

    /// The share of a row in the bytes of the value under `id`.
    pub(crate) fn bytes_per_row(&self, id: u32) -> usize {
        let slot = self.slot(id);
        slot.bytes.div_ceil(slot.rows.max(1) as usize)
    }

    #[expect(clippy::expect_used, reason = "a handle outlives its value only by a bug of ours")]
    fn slot(&self, id: u32) -> &Slot<T> {
        self.slots[id as usize].as_ref().expect("a row of this value is unreleased")
    }

    /// Says that `rows` rows of the value are not needed any more.
    pub(crate) fn release(&mut self, id: u32, rows: u32) {
        let place = &mut self.slots[id as usize];
        let Some(slot) = place else {
            debug_assert!(false, "released {rows} rows of `{id}`, which is not held");
            return;
        };
        debug_assert!(rows <= slot.unreleased, "released {rows} of {} rows", slot.unreleased);
        slot.unreleased = slot.unreleased.saturating_sub(rows);
        if slot.unreleased == 0 {
            self.bytes -= slot.bytes;
            *place = None;
            self.free.push(id);
        }
    }

    /// How many values are held.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The bytes of all values that are held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn value_is_dropped_when_its_last_row_is_released() {
        let value = Rc::new(());
        let mut slab = Slab::new();
        let id = slab.insert(Rc::clone(&value), 3, 10);

        slab.release(id, 2);
        assert_eq!(Rc::strong_count(&value), 2);
        assert_eq!((slab.bytes(), slab.bytes_per_row(id)), (10, 4));

        slab.release(id, 1);
        assert_eq!(Rc::strong_count(&value), 1);
        assert_eq!((slab.len(), slab.bytes()), (0, 0));
    }

    #[test]
    fn handle_of_a_dropped_value_is_used_again() {
        let mut slab = Slab::new();
        let (first, second) = (slab.insert('a', 1, 1), slab.insert('b', 1, 1));

        slab.release(first, 1);

        assert_eq!(slab.insert('c', 1, 1), first);
        assert_eq!((*slab.get(first), *slab.get(second)), ('c', 'b'));
    }
}
