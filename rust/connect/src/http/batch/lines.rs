// SPDX-License-Identifier: Apache-2.0
//! Items that wait for their request.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sparkawait_core::Key;
use sparkawait_core::operator::AttemptId;
use tokio::time::Instant;

use super::item::Item;
use super::templates::Head;

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

/// Names a line while it has items or requests.
pub(super) type LineId = u64;

/// Items line by line. Those of a request are of one line.
#[derive(Debug)]
pub(super) struct Lines {
    most: Most,
    ids: HashMap<LineKey, LineId>,
    open: HashMap<LineId, Line>,
    /// Requests of each channel that has any.
    requests: HashMap<Option<Key>, usize>,
    /// Lines that may have enough for a request, each once.
    ready: VecDeque<LineId>,
    /// When the oldest items are due, of lines that are not ready.
    due: BTreeSet<(Instant, LineId)>,
    next: LineId,
}

#[derive(Debug)]
struct Line {
    key: LineKey,
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
    pub(super) line: LineId,
    pub(super) head: Arc<Head>,
    pub(super) items: Vec<Item>,
}

impl Lines {
    pub(super) fn new(most: Most) -> Self {
        Self {
            most,
            ids: HashMap::new(),
            open: HashMap::new(),
            requests: HashMap::new(),
            ready: VecDeque::new(),
            due: BTreeSet::new(),
            next: 0,
        }
    }

    /// Returns the line of `key`, if there is one.
    pub(super) fn find(&self, key: &LineKey) -> Option<LineId> {
        self.ids.get(key).copied()
    }

    /// Makes the line of `key`, whose requests begin with `head`; something must be added to it.
    pub(super) fn open(&mut self, key: LineKey, head: Arc<Head>) -> LineId {
        self.next += 1;
        self.ids.insert(key.clone(), self.next);
        let (items, bytes, requests, is_ready) = (VecDeque::new(), 0, 0, false);
        self.open.insert(self.next, Line { key, head, items, bytes, requests, is_ready });
        self.next
    }

    /// Adds an item to a line.
    pub(super) fn add(&mut self, id: LineId, item: Item, now: Instant) {
        let Some(line) = self.open.get_mut(&id) else { return };
        let due = now + self.most.linger;
        line.bytes += item.text.len();
        line.items.push_back((item, due));
        if line.is_ready {
            return;
        }
        if line.items.len() == 1 {
            self.due.insert((due, id));
        }
        if line.is_full(&self.most) {
            self.make_ready(id);
        }
    }

    /// Returns when the next item has waited long enough.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Lets the items go out that have waited long enough.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((due, id)) = self.due.first().copied()
            && due <= now
        {
            self.make_ready(id);
        }
    }

    /// Removes the items of a request; `None` if there are not enough for one.
    pub(super) fn take(&mut self, now: Instant) -> Option<Batch> {
        while let Some(id) = self.ready.pop_front() {
            let Some(line) = self.open.get_mut(&id) else { continue };
            line.is_ready = false;
            let requests = self.requests.entry(line.key.0).or_default();
            // Lines of a channel with all its requests are looked at again when one of them ends.
            if *requests >= self.most.requests || !line.is_due(&self.most, now) {
                self.watch(id, now);
                continue;
            }
            *requests += 1;
            line.requests += 1;
            let (items, head) = (line.take(&self.most), Arc::clone(&line.head));
            if line.is_due(&self.most, now) {
                self.make_ready(id);
            } else {
                self.watch(id, now);
            }
            return Some(Batch { line: id, head, items });
        }
        None
    }

    /// Says that a request of a line has ended.
    pub(super) fn ended(&mut self, id: LineId, now: Instant) {
        let Some(line) = self.open.get_mut(&id) else { return };
        line.requests -= 1;
        let channel = line.key.0;
        if let Some(requests) = self.requests.get_mut(&channel) {
            *requests -= 1;
            // Other lines of the channel may have waited for it.
            if *requests + 1 >= self.most.requests {
                let waiting = self.open.iter().filter(|(_, line)| {
                    line.key.0 == channel && !line.is_ready && line.is_due(&self.most, now)
                });
                let mut waiting: Vec<LineId> = waiting.map(|(id, _)| *id).collect();
                waiting.sort_unstable();
                for id in waiting {
                    self.make_ready(id);
                }
            }
            if self.requests.get(&channel) == Some(&0) {
                self.requests.remove(&channel);
            }
        }
        self.forget_if_empty(id);
    }

    /// Removes items that nobody waits for any more; they are sorted.
    pub(super) fn remove(&mut self, cancelled: &[AttemptId]) {
        let ids: Vec<LineId> = self.open.keys().copied().collect();
        for id in ids {
            let Some(line) = self.open.get_mut(&id) else { continue };
            let oldest = line.items.front().map(|(_, due)| (*due, id));
            line.items.retain(|(item, _)| cancelled.binary_search(&item.attempt).is_err());
            line.bytes = line.items.iter().map(|(item, _)| item.text.len()).sum();
            let left = line.items.front().map(|(_, due)| (*due, id));
            if left != oldest {
                // The oldest may have waited in vain for a request, and was watched no more.
                oldest.map(|oldest| self.due.remove(&oldest));
                self.due.extend(left.filter(|_| !line.is_ready));
            }
            self.forget_if_empty(id);
        }
    }

    /// Waits for the oldest item of a line to be due, unless it is.
    fn watch(&mut self, id: LineId, now: Instant) {
        if let Some(line) = self.open.get(&id)
            && let Some((_, due)) = line.items.front()
            && *due > now
        {
            self.due.insert((*due, id));
        }
    }

    fn make_ready(&mut self, id: LineId) {
        let Some(line) = self.open.get_mut(&id) else { return };
        if let Some((_, due)) = line.items.front() {
            self.due.remove(&(*due, id));
        }
        if !line.is_ready {
            line.is_ready = true;
            self.ready.push_back(id);
        }
    }

    fn forget_if_empty(&mut self, id: LineId) {
        if let Some(line) = self.open.get(&id)
            && line.items.is_empty()
            && line.requests == 0
            && let Some(line) = self.open.remove(&id)
        {
            self.ids.remove(&line.key);
        }
    }
}

impl Line {
    fn is_full(&self, most: &Most) -> bool {
        self.items.len() >= most.rows || self.bytes >= most.bytes
    }

    /// Whether there are enough items for a request, or one that has waited long enough.
    fn is_due(&self, most: &Most, now: Instant) -> bool {
        self.is_full(most) || self.items.front().is_some_and(|(_, due)| *due <= now)
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
