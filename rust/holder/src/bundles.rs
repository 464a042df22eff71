// SPDX-License-Identifier: Apache-2.0
//! What was brought of a part, so that a task that brings it again is known to bring the same.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;

/// Names what a bundle holds, in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BundleId(u64);

impl BundleId {
    /// Returns the name of these rows; others have another one, except one pair in 2^64.
    pub fn of(rows: &[u8]) -> Self {
        use std::sync::LazyLock;

        static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::default);
        Self(HASH.hash_one(rows))
    }
}

/// The bundles of a part, in any order; some may be equal.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    /// How often each was brought, and how often by the task that brings the part now.
    brought: HashMap<BundleId, (u32, u32)>,
    /// How many were brought before that are not brought again yet.
    missing: u32,
}

impl Bundles {
    /// Begins with a part that has nothing yet.
    pub(crate) fn clear(&mut self) {
        self.brought.clear();
        self.missing = 0;
    }

    /// Begins with a part that somebody else has brought before, or some of it.
    pub(crate) fn begin_again(&mut self) {
        self.missing = 0;
        for (before, now) in self.brought.values_mut() {
            *now = 0;
            self.missing = self.missing.saturating_add(*before);
        }
    }

    /// Takes a bundle that was there before; false if it was not.
    pub(crate) fn claim(&mut self, bundle: BundleId) -> bool {
        let Some((before, now)) = self.brought.get_mut(&bundle) else { return false };
        let was_there = *now < *before;
        *now += u32::from(was_there);
        self.missing -= u32::from(was_there);
        was_there
    }

    /// Adds a bundle.
    pub(crate) fn add(&mut self, bundle: BundleId) {
        let (before, now) = self.brought.entry(bundle).or_default();
        (*before, *now) = (*before + 1, *now + 1);
    }

    /// Returns whether all that was there before was brought again.
    pub(crate) const fn are_all_claimed(&self) -> bool {
        self.missing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bundles_are_counted_and_order_does_not_matter() {
        let [a, b, c] = [b"a", b"b", b"c"].map(|rows| BundleId::of(rows));
        let mut bundles = Bundles::default();
        for bundle in [a, b, a] {
            assert!(!bundles.claim(bundle));
            bundles.add(bundle);
        }
        bundles.begin_again();

        assert_eq!([b, a].map(|it| bundles.claim(it)), [true, true]);
        assert!(!bundles.are_all_claimed());
        assert_eq!([c, a, a].map(|it| bundles.claim(it)), [false, true, false]);
        assert!(bundles.are_all_claimed());
        bundles.add(c);
        bundles.begin_again();

        assert!(!bundles.are_all_claimed());
        assert_eq!([c, a, b, a].map(|it| bundles.claim(it)), [true; 4]);
        assert!(bundles.are_all_claimed());
    }
}
