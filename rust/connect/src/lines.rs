// SPDX-License-Identifier: Apache-2.0
//! Rows that wait for a request that is of many rows.
//!
//! Those of a request are of one channel, which has a bounded number of requests; the channels are
//! served one after the other.

use std::collections::{BTreeSet, HashMap, VecDeque};

use foldhash::fast::RandomState;
use sparkawait_core::Key;
use tokio::time::Instant;

/// The rows of one channel that wait.
pub(crate) trait Rows: Default {
    /// Returns whether none wait.
    fn is_empty(&self) -> bool;

    /// Returns whether there are enough for a request.
    fn is_ready(&self) -> bool {
        !self.is_empty()
    }

    /// Returns when some of those that are too few have waited for others long enough.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Makes those ready that have waited long enough.
    fn expire(&mut self, _now: Instant) {}
}

impl<T> Rows for VecDeque<T> {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

/// Rows channel by channel. Without channels all rows are of the same, `None`.
pub(crate) struct Lines<R> {
    /// Those that have rows or requests.
    channels: HashMap<Option<Key>, Line<R>, RandomState>,
    /// Those that have enough rows and may have another request, each once, in their turn.
    ready: VecDeque<Option<Key>>,
    /// When those are due that have too few.
    due: BTreeSet<(Instant, Option<Key>)>,
    /// Requests of a channel.
    most: usize,
}

#[derive(Default)]
struct Line<R> {
    rows: R,
    requests: usize,
    /// Whether it is among those that may have another request.
    is_ready: bool,
    /// When it is due, if it is among those.
    due: Option<Instant>,
}

impl<R: Rows> Lines<R> {
    /// Makes lines of channels that have `most` requests each.
    pub(crate) fn new(most: usize) -> Self {
        Self { channels: HashMap::default(), ready: VecDeque::new(), due: BTreeSet::new(), most }
    }

    /// Returns how many channels have rows for a request that may be sent.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Changes the rows of a channel: there may be more of them, or enough for a request.
    pub(crate) fn change<T>(
        &mut self,
        channel: Option<Key>,
        change: impl FnOnce(&mut R) -> T,
    ) -> T {
        let line = self.channels.entry(channel).or_default();
        let changed = change(&mut line.rows);
        line.note_due(channel, &mut self.due);
        line.make_ready(channel, self.most, &mut self.ready);
        if channel.is_some() && line.is_over() {
            self.channels.remove(&channel);
        }
        changed
    }

    /// Removes the rows of a request from the line whose turn it is; `None` if no request may be sent.
    ///
    /// `free` requests may be sent, this one included. `take` is told how many of them are for the rows
    /// of this line: those that are not for other channels, as many as this one may have.
    pub(crate) fn take<T>(
        &mut self,
        free: usize,
        take: impl FnOnce(&mut R, usize) -> T,
    ) -> Option<(Option<Key>, T)> {
        let share = free / self.ready.len().max(1);
        let channel = self.ready.pop_front()?;
        let line = self.channels.get_mut(&channel)?;
        let taken = take(&mut line.rows, share.min(self.most - line.requests).max(1));
        line.requests += 1;
        line.is_ready = false;
        line.note_due(channel, &mut self.due);
        line.make_ready(channel, self.most, &mut self.ready);
        Some((channel, taken))
    }

    /// Returns when the next rows have waited long enough that are too few for a request.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Lets those rows go out that have waited long enough.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some((due, channel)) = self.due.first().copied()
            && due <= now
        {
            self.change(channel, |rows| rows.expire(now));
        }
    }

    /// Says that a request of `channel` has ended.
    pub(crate) fn ended(&mut self, channel: Option<Key>) {
        let Some(line) = self.channels.get_mut(&channel) else { return };
        line.requests -= 1;
        if channel.is_some() && line.is_over() {
            self.channels.remove(&channel);
        } else {
            line.make_ready(channel, self.most, &mut self.ready);
        }
    }

    /// Removes rows from all lines, by `remove`.
    pub(crate) fn remove(&mut self, mut remove: impl FnMut(&mut R)) {
        for (channel, line) in &mut self.channels {
            remove(&mut line.rows);
            line.note_due(*channel, &mut self.due);
            line.is_ready &= line.rows.is_ready();
        }
        self.channels.retain(|_, line| !line.is_over());
        self.ready.retain(|channel| self.channels.get(channel).is_some_and(|line| line.is_ready));
    }

    /// The rows of a channel that has any.
    #[cfg(test)]
    pub(crate) fn of(&self, channel: Option<Key>) -> &R {
        &self.channels[&channel].rows
    }
}

impl<R: Rows> Line<R> {
    fn is_over(&self) -> bool {
        self.rows.is_empty() && self.requests == 0
    }

    fn note_due(&mut self, channel: Option<Key>, due: &mut BTreeSet<(Instant, Option<Key>)>) {
        let now = self.rows.due();
        if now != self.due {
            self.due.map(|it| due.remove(&(it, channel)));
            due.extend(now.map(|it| (it, channel)));
            self.due = now;
        }
    }

    fn make_ready(&mut self, channel: Option<Key>, most: usize, ready: &mut VecDeque<Option<Key>>) {
        if !self.is_ready && self.rows.is_ready() && self.requests < most {
            self.is_ready = true;
            ready.push_back(channel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_without_rows_and_requests_is_forgotten() {
        let (mut lines, channel) = (Lines::<VecDeque<i32>>::new(2), Some(Key::new(7)));
        lines.change(channel, |_| ());
        assert_eq!((lines.channels.len(), lines.ready()), (0, 0));

        lines.change(channel, |rows| rows.push_back(13));
        let taken = lines.take(7, |rows, requests| (rows.pop_front(), requests));
        assert_eq!(taken, Some((channel, (Some(13), 2))));
        assert_eq!((lines.channels.len(), lines.ready()), (1, 0));
        lines.ended(channel);
        assert_eq!(lines.channels.len(), 0);
    }
}
