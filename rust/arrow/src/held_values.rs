// SPDX-License-Identifier: Apache-2.0
//! Values that are held for as long as one of their rows is needed.
//!
//! Invariant: a value that is held has at least one unreleased row. Belongs
//! to the task thread.

use sparkawait_core::slab::Slab;

/// Holds values under small integer handles and drops each one when the last
/// of its rows is released.
///
/// Handles are reused, so they stay dense: a table indexed by handle is no
/// larger than the largest number of values ever held at once.
pub(crate) struct HeldValues<T> {
    values: Slab<Held<T>>,
    len: usize,
    /// Of all values.
    bytes: usize,
    /// The values that have few unreleased rows.
    sparse: Sparse,
}

/// Values that have few unreleased rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sparse {
    pub(crate) bytes: usize,
    /// Their unreleased rows.
    pub(crate) rows: usize,
}

/// A value has few unreleased rows if they are no more than one in so many.
const FEW: u32 = 4;

struct Held<T> {
    value: T,
    /// Never 0.
    unreleased: u32,
    rows: u32,
    bytes: usize,
}

impl<T> Held<T> {
    /// Returns how many unreleased rows are few.
    const fn few(&self) -> u32 {
        self.rows / FEW
    }
}

// Shows how many values there are, and none of them.
sparkawait_core::opaque_debug!([T] HeldValues<T>, held: len);

impl<T> HeldValues<T> {
    pub(crate) const fn new() -> Self {
        Self { values: Slab::new(), len: 0, bytes: 0, sparse: Sparse { bytes: 0, rows: 0 } }
    }

    /// Holds `value`, of so many bytes, until `rows` rows of it have been released.
    ///
    /// `rows` is not 0: nothing would ever release the value.
    pub(crate) fn insert(&mut self, value: T, rows: u32, bytes: usize) -> u32 {
        debug_assert!(rows > 0, "a value without rows would be held for ever");
        self.bytes += bytes;
        self.len += 1;
        self.values.insert(Held { value, unreleased: rows, rows, bytes })
    }

    /// All values held.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.values.iter().map(|(_, held)| &held.value)
    }

    /// The value under `id`.
    pub(crate) fn get(&self, id: u32) -> &T {
        &self.held(id).value
    }

    /// The share of a row in the bytes of the value under `id`.
    pub(crate) fn bytes_per_row(&self, id: u32) -> usize {
        let held = self.held(id);
        held.bytes.div_ceil(held.rows.max(1) as usize)
    }

    #[expect(clippy::expect_used, reason = "a handle outlives its value only by a bug of ours")]
    fn held(&self, id: u32) -> &Held<T> {
        self.values.get(id).expect("a row of this value is unreleased")
    }

    /// Says that `rows` rows of the value are not needed any more.
    pub(crate) fn release(&mut self, id: u32, rows: u32) {
        let Some(held) = self.values.get_mut(id) else {
            debug_assert!(false, "released {rows} rows of `{id}`, which is not held");
            return;
        };
        debug_assert!(rows <= held.unreleased, "released {rows} of {} rows", held.unreleased);
        let (before, few) = (held.unreleased, held.few());
        if rows >= before {
            if before <= few {
                self.sparse.bytes -= held.bytes;
                self.sparse.rows -= before as usize;
            }
            self.bytes -= held.bytes;
            self.len -= 1;
            self.values.remove(id);
            return;
        }
        held.unreleased = before - rows;
        if before <= few {
            self.sparse.rows -= rows as usize;
        } else if held.unreleased <= few {
            self.sparse.bytes += held.bytes;
            self.sparse.rows += held.unreleased as usize;
        }
    }

    /// The unreleased rows of the value under `id`, if they are few.
    pub(crate) fn few_rows(&self, id: u32) -> Option<u32> {
        let held = self.held(id);
        (held.unreleased <= held.few()).then_some(held.unreleased)
    }

    /// How many values are held.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The values that have few unreleased rows.
    pub(crate) const fn sparse(&self) -> Sparse {
        self.sparse
    }

    /// The bytes of all values that are held.
    pub(crate) const fn bytes(&self) -> usize {
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
        let mut held = HeldValues::new();
        let id = held.insert(Rc::clone(&value), 3, 10);

        held.release(id, 2);
        assert_eq!(Rc::strong_count(&value), 2);
        assert_eq!((held.bytes(), held.bytes_per_row(id)), (10, 4));

        held.release(id, 1);
        assert_eq!(Rc::strong_count(&value), 1);
        assert_eq!((held.len(), held.bytes()), (0, 0));
    }

    #[test]
    fn values_with_few_unreleased_rows_are_counted() {
        let mut held = HeldValues::new();
        let (large, small) = (held.insert('a', 8, 100), held.insert('b', 3, 10));

        held.release(large, 5);
        held.release(small, 2);
        assert_eq!((held.few_rows(large), held.few_rows(small)), (None, None));
        assert_eq!(held.sparse(), Sparse::default());
        held.release(large, 1);
        assert_eq!(
            (held.sparse(), held.few_rows(large)),
            (Sparse { bytes: 100, rows: 2 }, Some(2))
        );
        held.release(large, 1);
        held.release(small, 1);
        assert_eq!(held.sparse(), Sparse { bytes: 100, rows: 1 });

        held.release(large, 1);
        assert_eq!((held.sparse(), held.bytes()), (Sparse::default(), 0));
    }

    #[test]
    fn handle_of_a_dropped_value_is_used_again() {
        let mut held = HeldValues::new();
        let (first, second) = (held.insert('a', 1, 1), held.insert('b', 1, 1));

        held.release(first, 1);

        assert_eq!(held.insert('c', 1, 1), first);
        assert_eq!((*held.get(first), *held.get(second)), ('c', 'b'));
    }
}
