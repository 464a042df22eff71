// SPDX-License-Identifier: Apache-2.0
//! Items of one channel that wait for their request.
//!
//! There is a line for each head, and for each company of rows that come back: the items of a request are
//! of one line.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use sparkawait_core::operator::AttemptId;
use tokio::time::Instant;

use super::companies::{Sent, Suspicion};
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

/// How long rows of a request that is sent again wait for the next one of it: some wait for a permit or
/// for a token of the budget, and some do not come back.
const PATIENCE: Duration = Duration::from_secs(2);

/// What tells the lines of a channel apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Name {
    head: Bytes,
    /// The number of a company, if its items are of one.
    company: Option<u64>,
}

/// What a request is made of.
#[derive(Clone)]
pub(super) enum Source {
    /// Items, with this around them.
    Items(Arc<Head>, Doubt),
    /// One that was sent before.
    Sent(Arc<Sent>),
}

/// Whom it is laid to if a request fails, and the service does not say.
#[derive(Clone)]
pub(super) enum Doubt {
    /// Its rows, or the state of its service.
    Any,
    /// Its rows: a part of the same request was answered.
    OfRows,
    /// Rows are asked for alone, which will tell.
    Suspected(Arc<Suspicion>),
}

/// Where an item waits that has come back.
#[derive(Clone, Copy)]
pub(super) struct Seat {
    /// The number of its company.
    pub(super) company: u64,
    /// Whether all of that are there.
    pub(super) is_whole: bool,
    /// Whether they wait for each other longer than for company.
    pub(super) is_patient: bool,
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
    source: Source,
    /// Oldest first, each with the time at which it goes out with whatever there is.
    items: VecDeque<(Item, Instant)>,
    bytes: usize,
    /// Whether all items of its company are there.
    is_whole: bool,
    /// Whether it waits for more of them as long as they come.
    is_patient: bool,
    is_ready: bool,
}

/// The items of a request.
pub(crate) struct Batch {
    pub(super) source: Source,
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
    /// Adds an item to a line, that of the company which it has come back to, if any. Its requests are
    /// made of what `open` makes if it is a new one. Returns false, and adds nothing, if `open` makes
    /// nothing.
    pub(super) fn add<E>(
        &mut self,
        head: Bytes,
        seat: Option<Seat>,
        item: Item,
        most: &Most,
        now: Instant,
        open: impl FnOnce() -> Result<Option<Source>, E>,
    ) -> Result<bool, E> {
        let name = Name { head, company: seat.map(|it| it.company) };
        let mut entry = match self.lines.entry(name) {
            Entry::Occupied(line) => line,
            Entry::Vacant(place) => match open()? {
                Some(source) => {
                    let is_patient = seat.is_some_and(|it| it.is_patient);
                    place.insert_entry(Line::new(source, is_patient))
                }
                None => return Ok(false),
            },
        };
        let line = entry.get_mut();
        let known = line.oldest().filter(|_| !line.is_ready);
        line.is_whole = seat.is_some_and(|it| it.is_whole);
        line.push(item, most, now);
        if line.is_ready {
            return Ok(true);
        }
        let due = line.oldest();
        line.is_ready = line.is_full(most);
        let is_ready = line.is_ready;
        let name = entry.key();
        if let Some(known) = known
            && (is_ready || due != Some(known))
        {
            self.due.remove(&(known, name.clone()));
        }
        if is_ready {
            self.ready.push_back(name.clone());
        } else if let Some(due) = due
            && known != Some(due)
        {
            self.due.insert((due, name.clone()));
        }
        Ok(true)
    }

    /// Removes the items of a request of the line whose turn it is; `None` if there are not enough for
    /// one.
    pub(super) fn take(&mut self, most: &Most, now: Instant) -> Option<Batch> {
        let name = self.ready.pop_front()?;
        let line = self.lines.get_mut(&name)?;
        let (source, items) = (line.source.clone(), line.take(most));
        line.is_ready = line.is_due(most, now);
        if line.is_ready {
            self.ready.push_back(name);
        } else if let Some(due) = line.oldest() {
            self.due.insert((due, name));
        } else {
            self.lines.remove(&name);
        }
        let attempts = items.iter().map(|it| it.attempt).collect();
        Some(Batch { source, items, attempts })
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
    fn new(source: Source, is_patient: bool) -> Self {
        let (items, is_whole, is_ready) = (VecDeque::new(), false, false);
        Self { source, items, bytes: 0, is_whole, is_patient, is_ready }
    }

    fn push(&mut self, item: Item, most: &Most, now: Instant) {
        self.bytes += item.text.len();
        if !self.is_patient {
            return self.items.push_back((item, now + most.linger));
        }
        let due = now + most.linger + PATIENCE;
        if let Some((_, oldest)) = self.items.front_mut() {
            *oldest = due;
        }
        self.items.push_back((item, due));
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
        let are_named = most.are_named && matches!(self.source, Source::Items(..));
        while taken.len() < most.rows
            && let Some((item, due)) = self.items.pop_front()
        {
            if !taken.is_empty() && bytes + item.text.len() > most.bytes {
                self.items.push_front((item, due));
                break;
            }
            if are_named && !names.insert(item.id.clone()) {
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
