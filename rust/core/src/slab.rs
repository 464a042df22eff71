// SPDX-License-Identifier: Apache-2.0
//! Storage whose places are used again.

/// The end of a list of places, and the number of none.
pub const NONE: u32 = u32::MAX;

/// How the places of a [`Slab`] are told from what was there before.
pub trait Generation: Copy {
    /// What names a value.
    type Handle: Copy;
    /// That of a new place.
    const FIRST: Self;

    /// Returns the name of the value at the place `index`.
    fn handle(self, index: u32) -> Self::Handle;

    /// Returns the place of a handle.
    fn index_of(handle: Self::Handle) -> u32;

    /// Returns whether `handle` names what is at its place now.
    fn is_of(self, handle: Self::Handle) -> bool;

    /// Returns the generation of what comes next to a place.
    #[must_use]
    fn following(self) -> Self;
}

/// No generations: a handle is the number of a place, and its keeper knows what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain;

/// A number for each use of a place, so that an old handle finds nothing. For what leaves the thread
/// and comes back late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered(u32);

/// Values at places that are used again, the one vacated last first.
///
/// Grows with the values held at the same time, not with all that there ever were. A place has a
/// link: to the next vacant one while it is vacant, and otherwise to the next place of whatever
/// list the owner of the slab keeps. A list like that costs no memory of its own.
pub struct Slab<T, G = Plain> {
    places: Vec<Place<T, G>>,
    /// The first vacant place, or [`NONE`].
    vacant: u32,
}

struct Place<T, G> {
    generation: G,
    /// The next place of the list that this one is in, or [`NONE`].
    next: u32,
    /// `None` while vacant.
    value: Option<T>,
}

impl<T, G: Generation> Slab<T, G> {
    /// Makes a slab that holds nothing.
    pub const fn new() -> Self {
        Self { places: Vec::new(), vacant: NONE }
    }

    /// Holds `value` and returns its handle.
    #[expect(clippy::inline_always, reason = "once per record, for each mode")]
    #[inline(always)]
    pub fn insert(&mut self, value: T) -> G::Handle {
        let index = self.vacant;
        if let Some(place) = self.places.get_mut(index as usize) {
            self.vacant = place.next;
            place.next = NONE;
            fill(&mut place.value, value);
            return place.generation.handle(index);
        }
        // A place takes more than one byte: memory ends before 2^32 of them do.
        let index = u32::try_from(self.places.len()).unwrap_or(NONE);
        self.places.push(Place { generation: G::FIRST, next: NONE, value: Some(value) });
        G::FIRST.handle(index)
    }

    /// Returns the handle that the next value will have.
    pub fn next_handle(&self) -> G::Handle {
        match self.places.get(self.vacant as usize) {
            Some(place) => place.generation.handle(self.vacant),
            None => G::FIRST.handle(u32::try_from(self.places.len()).unwrap_or(NONE)),
        }
    }

    /// Borrows the value behind `handle`, if it is still here.
    #[inline]
    pub fn get(&self, handle: G::Handle) -> Option<&T> {
        let place = self.places.get(G::index_of(handle) as usize)?;
        if place.generation.is_of(handle) { place.value.as_ref() } else { None }
    }

    /// Borrows the value behind `handle` to change it, if it is still here.
    #[inline]
    pub fn get_mut(&mut self, handle: G::Handle) -> Option<&mut T> {
        let place = self.places.get_mut(G::index_of(handle) as usize)?;
        if place.generation.is_of(handle) { place.value.as_mut() } else { None }
    }

    /// Sets the place behind the place `index` in its list.
    #[inline]
    pub fn link(&mut self, index: u32, next: u32) {
        if let Some(place) = self.places.get_mut(index as usize) {
            place.next = next;
        }
    }

    /// Vacates the place `index`; returns its value, and the place behind it in its list.
    #[inline]
    pub fn remove(&mut self, index: u32) -> Option<(T, u32)> {
        let place = self.places.get_mut(index as usize)?;
        let value = place.value.take()?;
        let next = place.next;
        place.generation = place.generation.following();
        place.next = self.vacant;
        self.vacant = index;
        Some((value, next))
    }

    /// Iterates over all handles and values, in the order of the places.
    pub fn iter(&self) -> impl Iterator<Item = (G::Handle, &T)> {
        (0..).zip(&self.places).filter_map(|(index, place)| {
            place.value.as_ref().map(|value| (place.generation.handle(index), value))
        })
    }

    /// Borrows all values to change them, in the order of the places.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|place| place.value.as_mut())
    }

    /// Returns the generation of what is at the place `index`, or comes there next.
    pub fn generation(&self, index: u32) -> Option<G> {
        self.places.get(index as usize).map(|place| place.generation)
    }

    /// Returns the number of places, vacant ones included.
    pub const fn places(&self) -> usize {
        self.places.len()
    }
}

impl<T, G: Generation> Default for Slab<T, G> {
    fn default() -> Self {
        Self::new()
    }
}

// Shows how many places there are, and nothing of what is there.
crate::opaque_debug!([T, G] Slab<T, G>, places: places.len());

impl Generation for Plain {
    type Handle = u32;
    const FIRST: Self = Self;

    #[inline]
    fn handle(self, index: u32) -> u32 {
        index
    }

    #[inline]
    fn index_of(handle: u32) -> u32 {
        handle
    }

    #[inline]
    fn is_of(self, _: u32) -> bool {
        true
    }

    #[inline]
    fn following(self) -> Self {
        self
    }
}

impl Generation for Numbered {
    type Handle = u64;
    const FIRST: Self = Self(0);

    #[inline]
    fn handle(self, index: u32) -> u64 {
        u64::from(self.0) << 32 | u64::from(index)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half is the place")]
    #[inline]
    fn index_of(handle: u64) -> u32 {
        handle as u32
    }

    #[inline]
    fn is_of(self, handle: u64) -> bool {
        u64::from(self.0) == handle >> 32
    }

    #[inline]
    fn following(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// Stores `value` where there is none, so that no code looks at what there was to drop it.
#[inline]
pub(crate) fn fill<T>(place: &mut Option<T>, value: T) {
    debug_assert!(place.is_none(), "a value would be forgotten");
    std::mem::forget(place.replace(value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_vacated_last_is_used_first() {
        let mut slab: Slab<char> = Slab::new();
        let [a, b, c] = ['a', 'b', 'c'].map(|value| slab.insert(value));
        slab.remove(a);
        slab.remove(b);

        let handles = [slab.next_handle(), slab.insert('d'), slab.insert('e'), slab.insert('f')];

        assert_eq!(handles, [b, b, a, 3]);
        assert_eq!([b, a, c].map(|it| slab.get(it).copied()), [Some('d'), Some('e'), Some('c')]);
        assert_eq!(slab.places(), 4);
    }

    #[test]
    fn an_old_handle_finds_nothing() {
        let mut slab: Slab<char, Numbered> = Slab::new();
        let first = slab.insert('a');
        slab.remove(Numbered::index_of(first));

        let second = slab.insert('b');

        assert_eq!(Numbered::index_of(first), Numbered::index_of(second));
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut 'b'));
    }

    #[test]
    fn a_vacant_place_has_nothing_to_remove() {
        let mut slab: Slab<char> = Slab::new();
        let only = slab.insert('a');

        assert_eq!(slab.remove(only), Some(('a', NONE)));
        assert_eq!(slab.remove(only), None);
        assert_eq!((slab.get(only), slab.iter().count()), (None, 0));
        assert_eq!(slab.next_handle(), only);
    }

    #[test]
    fn a_link_goes_along_with_the_value() {
        let mut slab: Slab<char> = Slab::new();
        let (first, second) = (slab.insert('a'), slab.insert('b'));

        slab.link(first, second);

        assert_eq!(slab.remove(first), Some(('a', second)));
        assert_eq!(slab.remove(second), Some(('b', NONE)));
    }
}
