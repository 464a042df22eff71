// SPDX-License-Identifier: Apache-2.0
//! Finds the rows at fault, where a query for many rows fails because of some.
//!
//! ```text
//!  rows that were found before the error      those where it may be      rows behind
//!  [ 0 1 2 3 4 5 6 7 8 9 .. ]                     [ 41 ] [ 42 ]           [ 43 .. ]
//!      one query, or halves                       one by one, last        one query, or halves
//! ```
//!
//! A server mostly answers in the order of the rows and stops at the one at fault, so where its
//! answer stops is tried first. Because the order may be another one, no part is longer than half of
//! what failed: after as many rounds as halving takes, the row at fault is alone.

use std::collections::VecDeque;

use crate::postgres::keys::Keys;

/// What is still to be asked for, of the rows of one query.
pub(crate) struct Parts {
    /// Longest first, so that many rows are answered before few are looked at.
    groups: VecDeque<Keys>,
    /// Single rows that may be at fault, asked for when no others are left.
    suspects: VecDeque<Keys>,
    /// Queries that may fail, beside those that are made up for by others which do not.
    patience: usize,
}

impl Parts {
    /// Begins with all rows in one query.
    pub(crate) fn new(keys: Keys) -> Self {
        // Halving finds two rows at fault with as many.
        let rounds = keys.len().max(1).ilog2() as usize + 1;
        Self { groups: VecDeque::from([keys]), suspects: VecDeque::new(), patience: 2 * rounds }
    }

    /// Returns the rows of the next query.
    pub(crate) fn next(&mut self) -> Option<Keys> {
        self.groups.pop_front().or_else(|| self.suspects.pop_front())
    }

    /// Says that a query was answered, for all of its rows.
    pub(crate) fn answered(&mut self) {
        // A row at fault among good ones fails two queries: with them, and alone.
        self.patience = self.patience.saturating_add(2);
    }

    /// Says that a query failed; returns whether the rows at fault are still looked for.
    pub(crate) fn failed(&mut self) -> bool {
        self.patience = self.patience.saturating_sub(1);
        self.patience > 0
    }

    /// Puts rows back in two halves.
    pub(crate) fn halve(&mut self, keys: &Keys) {
        let half = keys.len() / 2;
        self.put(keys, 0, half);
        self.put(keys, half, keys.len());
    }

    /// Puts the rows of a query back that failed when it had `reached` that one; `None`: nobody
    /// knows how far it got.
    pub(crate) fn split(&mut self, keys: &Keys, reached: Option<usize>) {
        let Some(reached) = reached.filter(|it| *it < keys.len()) else {
            return self.halve(keys);
        };
        // It may have been at the next one already, for which nothing was found yet.
        let behind = (reached + 2).min(keys.len());
        for row in reached..behind {
            self.suspects.push_back(keys.slice(row, 1));
        }
        let half = keys.len().div_ceil(2);
        for (from, to) in [(0, reached), (behind, keys.len())] {
            let middle = from + (to - from) / 2;
            if to - from > half {
                self.put(keys, from, middle);
                self.put(keys, middle, to);
            } else {
                self.put(keys, from, to);
            }
        }
    }

    /// Returns all that is left.
    pub(crate) fn rest(self) -> impl Iterator<Item = Keys> {
        self.groups.into_iter().chain(self.suspects)
    }

    fn put(&mut self, keys: &Keys, from: usize, to: usize) {
        if to > from {
            self.groups.push_back(keys.slice(from, to - from));
        }
    }
}

#[cfg(test)]
mod tests;
