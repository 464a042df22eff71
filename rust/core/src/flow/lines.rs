// SPDX-License-Identifier: Apache-2.0
//! Many lines of those who wait, in one slab.

use crate::slab::{NONE, Slab};

/// The ends of a line, whose nodes are in [`Lines`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    first: u32,
    last: u32,
}

impl Line {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };

    #[inline]
    pub(super) const fn is_empty(self) -> bool {
        self.first == NONE
    }
}

/// The nodes of all [`Line`]s: doubly linked lists in one slab.
///
/// Grows with what waits at the same time, however it is spread over lines: a line costs eight
/// bytes, and whatever waits no allocation once the slab is large enough.
#[derive(Debug)]
pub(super) struct Lines<T> {
    /// The link of each is to the one behind it.
    nodes: Slab<Node<T>>,
}

#[derive(Debug)]
struct Node<T> {
    value: T,
    /// The one before it.
    previous: u32,
}

impl<T: Copy> Lines<T> {
    pub(super) const fn new() -> Self {
        Self { nodes: Slab::new() }
    }

    /// Puts `value` at the end of `line`; returns its place.
    pub(super) fn push(&mut self, line: &mut Line, value: T) -> u32 {
        let index = self.nodes.insert(Node { value, previous: line.last });
        if line.is_empty() {
            line.first = index;
        } else {
            self.nodes.link(line.last, index);
        }
        line.last = index;
        index
    }

    /// Puts `value` at the front of `line`.
    pub(super) fn push_front(&mut self, line: &mut Line, value: T) {
        if line.is_empty() {
            self.push(line, value);
            return;
        }
        let index = self.nodes.insert(Node { value, previous: NONE });
        self.nodes.link(index, line.first);
        if let Some(behind) = self.nodes.get_mut(line.first) {
            behind.previous = index;
        }
        line.first = index;
    }

    /// Removes the first of `line`.
    pub(super) fn pop(&mut self, line: &mut Line) -> Option<T> {
        self.remove(line, line.first)
    }

    /// Removes what is at a place of `line`.
    pub(super) fn remove(&mut self, line: &mut Line, index: u32) -> Option<T> {
        let (Node { value, previous }, next) = self.nodes.remove(index)?;
        if previous == NONE {
            line.first = next;
        } else {
            self.nodes.link(previous, next);
        }
        match self.nodes.get_mut(next) {
            Some(behind) => behind.previous = previous,
            None => line.last = previous,
        }
        Some(value)
    }

    /// Returns the first of `line`.
    pub(super) fn first(&self, line: Line) -> Option<T> {
        self.nodes.get(line.first).map(|node| node.value)
    }

    /// Removes all of `line`.
    pub(super) fn clear(&mut self, line: &mut Line) {
        while self.pop(line).is_some() {}
    }

    /// Returns how many have waited at a time, at most.
    #[cfg(test)]
    pub(super) const fn places(&self) -> usize {
        self.nodes.places()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_share_the_nodes_and_keep_their_order() {
        let mut lines = Lines::new();
        let (mut a, mut b) = (Line::EMPTY, Line::EMPTY);
        for round in 0..3 {
            for value in 0..4 {
                lines.push(if value % 2 == 0 { &mut a } else { &mut b }, value);
            }
            let drained = |lines: &mut Lines<i32>, line: &mut Line| {
                std::iter::from_fn(|| lines.pop(line)).collect::<Vec<_>>()
            };
            assert_eq!(lines.first(b), Some(1));
            assert_eq!(drained(&mut lines, &mut a), [0, 2], "round {round}");
            assert_eq!(drained(&mut lines, &mut b), [1, 3]);
            assert_eq!(lines.places(), 4);
        }
    }

    #[test]
    fn a_line_is_left_at_any_place() {
        for gone in 0..3_usize {
            let (mut lines, mut line) = (Lines::new(), Line::EMPTY);
            let places = [0, 1, 2].map(|value| lines.push(&mut line, value));

            assert_eq!(lines.remove(&mut line, places[gone]), Some(gone));
            assert_eq!(lines.remove(&mut line, places[gone]), None);
            lines.push(&mut line, 9);

            let rest: Vec<_> = (0..3).filter(|it| *it != gone).chain([9]).collect();
            assert_eq!(std::iter::from_fn(|| lines.pop(&mut line)).collect::<Vec<_>>(), rest);
            assert!(line.is_empty());
            assert_eq!(lines.places(), 3, "the vacant node is used again");
        }
    }

    #[test]
    fn a_line_grows_at_both_ends() {
        let (mut lines, mut line) = (Lines::new(), Line::EMPTY);
        lines.push_front(&mut line, 5);
        lines.push_front(&mut line, 3);
        let place = lines.push(&mut line, 7);
        lines.push_front(&mut line, 1);

        assert_eq!(lines.remove(&mut line, place), Some(7));
        assert_eq!(std::iter::from_fn(|| lines.pop(&mut line)).collect::<Vec<_>>(), [1, 3, 5]);
        lines.push(&mut line, 9);
        lines.clear(&mut line);
        assert_eq!((line.is_empty(), lines.pop(&mut line)), (true, None));
    }
}
