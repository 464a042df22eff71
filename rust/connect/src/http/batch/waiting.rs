// SPDX-License-Identifier: Apache-2.0
//! Items that wait for their request.
//!
//! A channel has a line for each head: the items of a request are of one line.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sparkawait_core::Key;
use sparkawait_core::operator::AttemptId;
use tokio::time::Instant;

use super::item::Item;
use super::templates::Head;
use crate::lines::{Lines, Rows};

/// How much there is at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// Items of a request.
    pub(crate) rows: usize,
    /// Bytes of the items of a request, unless it has one.
    pub(crate) bytes: usize,
    /// Requests of a channel.
    pub(crate) requests: usize,
    /// How long an item waits for others.
    pub(crate) linger: Duration,
    /// Whether the items of a request have names, all different.
    pub(crate) are_named: bool,
}

/// What the rows of one request have in common: their channel, and the columns beside the items.
pub(super) type LineKey = (Option<Key>, Bytes);

/// Items line by line.
pub(super) struct Waiting {
    most: Most,
    lines: Lines<Heads>,
    /// When the oldest items are due, of lines that are not ready.
    due: BTreeSet<(Instant, LineKey)>,
}

/// The lines of a channel.
#[derive(Default)]
struct Heads {
    /// Those that have items or requests.
    lines: HashMap<Bytes, Line>,
    /// Those that have enough for a request, each once, in their turn.
    ready: VecDeque<Bytes>,
}

struct Line {
    head: Arc<Head>,
    /// Oldest first, each with the time at which it goes out with whatever there is.
    items: VecDeque<(Item, Instant)>,
    bytes: usize,
    requests: usize,
    is_ready: bool,
}

/// The items of a request.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) line: LineKey,
    pub(super) head: Arc<Head>,
    pub(super) items: Vec<Item>,
}

impl Waiting {
    pub(super) fn new(most: Most) -> Self {
        Self { lines: Lines::new(most.requests), due: BTreeSet::new(), most }
    }

    /// Adds an item to a line, whose requests begin with what `open` makes if it is a new one. Returns
    /// false, and adds nothing, if `open` makes nothing.
    pub(super) fn add<E>(
        &mut self,
        (channel, name): LineKey,
        item: Item,
        now: Instant,
        open: impl FnOnce() -> Result<Option<Head>, E>,
    ) -> Result<bool, E> {
        let Self { most, lines, due } = self;
        lines.change(channel, |heads| {
            let mut entry = match heads.lines.entry(name) {
                Entry::Occupied(line) => line,
                Entry::Vacant(place) => match open()? {
                    Some(head) => place.insert_entry(Line::new(head)),
                    None => return Ok(false),
                },
            };
            let (line, at) = (entry.get_mut(), now + most.linger);
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
                due.remove(&(oldest, (channel, name.clone())));
                heads.ready.push_back(name.clone());
            } else if is_first {
                due.insert((at, (channel, name.clone())));
            }
            Ok(true)
        })
    }

    /// Returns when the next item has waited long enough.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Lets the items go out that have waited long enough.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.next_due().is_some_and(|due| due <= now)
            && let Some((_, (channel, name))) = self.due.pop_first()
        {
            self.lines.change(channel, |heads| {
                if let Some(line) = heads.lines.get_mut(&name) {
                    line.is_ready = true;
                    heads.ready.push_back(name);
                }
            });
        }
    }

    /// Removes the items of a request; `None` if there are not enough for one.
    pub(super) fn take(&mut self, now: Instant) -> Option<Batch> {
        let (channel, taken) = self.lines.take(1, |heads, _| heads.take(&self.most, now))?;
        let (mut batch, due) = taken?;
        batch.line.0 = channel;
        self.due.extend(due.map(|due| (due, batch.line.clone())));
        Some(batch)
    }

    /// Says that a request of a line has ended.
    pub(super) fn ended(&mut self, (channel, name): &LineKey) {
        self.lines.change(*channel, |heads| heads.ended(name));
        self.lines.ended(*channel);
    }

    /// Removes items that nobody waits for any more; they are sorted.
    pub(super) fn remove(&mut self, cancelled: &[AttemptId], now: Instant) {
        let Self { most, lines, due } = self;
        lines.remove(|channel, Heads { lines, ready }| {
            lines.retain(|name, line| {
                let (oldest, before) = (line.oldest(), line.items.len());
                line.items.retain(|(item, _)| cancelled.binary_search(&item.attempt).is_err());
                if line.items.len() < before {
                    line.bytes = line.items.iter().map(|(item, _)| item.text.len()).sum();
                    line.is_ready &= line.is_due(most, now);
                    let place = |at| (at, (channel, name.clone()));
                    oldest.map(|at| due.remove(&place(at)));
                    due.extend(line.oldest().filter(|_| !line.is_ready).map(place));
                }
                !line.is_over()
            });
            ready.retain(|name| lines.get(name).is_some_and(|line| line.is_ready));
        });
    }
}

impl Rows for Heads {
    fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}

impl Heads {
    /// Removes the items of a request of the line whose turn it is, without its channel; says when the
    /// others are due, unless they are by now.
    fn take(&mut self, most: &Most, now: Instant) -> Option<(Batch, Option<Instant>)> {
        let name = self.ready.pop_front()?;
        let line = self.lines.get_mut(&name)?;
        let (head, items) = (Arc::clone(&line.head), line.take(most));
        line.requests += 1;
        line.is_ready = line.is_due(most, now);
        let due = line.oldest().filter(|_| !line.is_ready);
        if line.is_ready {
            self.ready.push_back(name.clone());
        }
        Some((Batch { line: (None, name), head, items }, due))
    }

    fn ended(&mut self, name: &Bytes) {
        let Some(line) = self.lines.get_mut(name) else { return };
        line.requests -= 1;
        if line.is_over() {
            self.lines.remove(name);
        }
    }
}

impl Line {
    fn new(head: Head) -> Self {
        let (head, items) = (Arc::new(head), VecDeque::new());
        Self { head, items, bytes: 0, requests: 0, is_ready: false }
    }

    fn is_over(&self) -> bool {
        self.items.is_empty() && self.requests == 0
    }

    fn is_full(&self, most: &Most) -> bool {
        self.items.len() >= most.rows || self.bytes >= most.bytes
    }

    /// Whether there are enough items for a request, or one that has waited long enough.
    fn is_due(&self, most: &Most, now: Instant) -> bool {
        self.is_full(most) || self.oldest().is_some_and(|due| due <= now)
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
