// SPDX-License-Identifier: Apache-2.0
//! Items of one channel that wait for their request.
//!
//! There is a line for each head, and for each part of a request that has failed: the items of a
//! request are of one line.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use sparkawait_core::operator::AttemptId;
use tokio::time::Instant;

use super::divided::Part;
use super::item::Item;
use super::templates::Head;
use crate::lines::Rows;

/// How much there is at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// Items of a request.
    pub(crate) rows: usize,
    /// Bytes of the items of a request, unless it has one.
    pub(crate) bytes: usize,
    /// How long an item waits for others.
    pub(crate) linger: Duration,
    /// Whether the items of a request have names, all different.
    pub(crate) are_named: bool,
}

/// What tells the lines of a channel apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Name {
    head: Bytes,
    /// The number of a part, if its items are of one.
    part: Option<u64>,
}

/// The lines of a channel.
#[derive(Default)]
pub(crate) struct Heads {
    /// Those that have items.
    lines: HashMap<Name, Line, RandomState>,
    /// Those that have enough for a request, each once, in their turn.
    ready: VecDeque<Name>,
    /// When the oldest items of the others are due.
    due: BTreeSet<(Instant, Name)>,
}

struct Line {
    head: Arc<Head>,
    /// Oldest first, each with the time at which it goes out with whatever there is.
    items: VecDeque<(Item, Instant)>,
    bytes: usize,
    /// Whether all items of its part are there.
    is_whole: bool,
    is_ready: bool,
}

/// The items of a request.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(super) head: Arc<Head>,
    pub(super) items: Vec<Item>,
    /// Those of the items.
    pub(super) attempts: Vec<AttemptId>,
}

impl Rows for Heads {
    fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    fn expire(&mut self, now: Instant) {
        while self.due().is_some_and(|due| due <= now)
            && let Some((_, name)) = self.due.pop_first()
        {
            if let Some(line) = self.lines.get_mut(&name) {
                line.is_ready = true;
                self.ready.push_back(name);
            }
        }
    }
}

impl Heads {
    /// Adds an item to a line, that of the `part` which it has come back to, if any. Its requests begin
    /// with what `open` makes if it is a new one. Returns false, and adds nothing, if `open` makes
    /// nothing.
    pub(super) fn add<E>(
        &mut self,
        head: Bytes,
        part: Option<Part>,
        item: Item,
        most: &Most,
        now: Instant,
        open: impl FnOnce() -> Result<Option<Head>, E>,
    ) -> Result<bool, E> {
        let name = Name { head, part: part.map(|it| it.number) };
        let mut entry = match self.lines.entry(name) {
            Entry::Occupied(line) => line,
            Entry::Vacant(place) => match open()? {
                Some(head) => place.insert_entry(Line::new(head)),
                None => return Ok(false),
            },
        };
        let (line, at) = (entry.get_mut(), now + most.linger);
        line.is_whole = part.is_some_and(|it| it.missing == 0);
        line.bytes += item.text.len();
        line.items.push_back((item, at));
        if line.is_ready {
            return Ok(true);
        }
        let (oldest, is_first) = (line.oldest().unwrap_or(at), line.items.len() == 1);
        line.is_ready = line.is_full(most);
        let is_ready = line.is_ready;
        let name = entry.key();
        if is_ready {
            if !is_first {
                self.due.remove(&(oldest, name.clone()));
            }
            self.ready.push_back(name.clone());
        } else if is_first {
            self.due.insert((at, name.clone()));
        }
        Ok(true)
    }

    /// Removes the items of a request of the line whose turn it is; `None` if there are not enough for
    /// one.
    pub(super) fn take(&mut self, most: &Most, now: Instant) -> Option<Batch> {
        let name = self.ready.pop_front()?;
        let line = self.lines.get_mut(&name)?;
        let (head, items) = (Arc::clone(&line.head), line.take(most));
        line.is_ready = line.is_due(most, now);
        if line.is_ready {
            self.ready.push_back(name);
        } else if let Some(due) = line.oldest() {
            self.due.insert((due, name));
        } else {
            self.lines.remove(&name);
        }
        let attempts = items.iter().map(|it| it.attempt).collect();
        Some(Batch { head, items, attempts })
    }

    /// Removes items that nobody waits for any more; they are sorted.
    pub(super) fn remove(&mut self, cancelled: &[AttemptId], most: &Most, now: Instant) {
        let Self { lines, ready, due } = self;
        lines.retain(|name, line| {
            let (oldest, before) = (line.oldest(), line.items.len());
            line.items.retain(|(item, _)| cancelled.binary_search(&item.attempt).is_err());
            if line.items.len() < before {
                line.bytes = line.items.iter().map(|(item, _)| item.text.len()).sum();
                line.is_ready &= line.is_due(most, now);
                oldest.map(|at| due.remove(&(at, name.clone())));
                due.extend(line.oldest().filter(|_| !line.is_ready).map(|at| (at, name.clone())));
            }
            !line.items.is_empty()
        });
        ready.retain(|name| lines.get(name).is_some_and(|line| line.is_ready));
    }
}

impl Line {
    fn new(head: Head) -> Self {
        let (head, items) = (Arc::new(head), VecDeque::new());
        Self { head, items, bytes: 0, is_whole: false, is_ready: false }
    }

    fn is_full(&self, most: &Most) -> bool {
        self.items.len() >= most.rows || self.bytes >= most.bytes || self.is_whole
    }

    /// Whether there are enough items for a request, or one that has waited long enough.
    fn is_due(&self, most: &Most, now: Instant) -> bool {
        self.oldest().is_some_and(|due| due <= now || self.is_full(most))
    }

    /// When the oldest item is due.
    fn oldest(&self) -> Option<Instant> {
        self.items.front().map(|(_, due)| *due)
    }

    /// Removes the items of a request, oldest first; of those with equal names only the first.
    fn take(&mut self, most: &Most) -> Vec<Item> {
        let mut taken: Vec<Item> = Vec::new();
        let (mut names, mut left) = (HashSet::new(), VecDeque::new());
        let mut bytes = 0;
        while taken.len() < most.rows
            && let Some((item, due)) = self.items.pop_front()
        {
            if !taken.is_empty() && bytes + item.text.len() > most.bytes {
                self.items.push_front((item, due));
                break;
            }
            if most.are_named && !names.insert(item.id.clone()) {
                left.push_back((item, due));
                continue;
            }
            bytes += item.text.len();
            taken.push(item);
        }
        self.bytes -= bytes;
        left.into_iter().rev().for_each(|item| self.items.push_front(item));
        taken
    }
}

#[cfg(test)]
mod tests;
