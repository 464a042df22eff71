// SPDX-License-Identifier: Apache-2.0
//! Rows that wait for a request that is of many rows.
//!
//! Those of a request are of one channel, which has a bounded number of requests; the channels take
//! turns.

use std::collections::{HashMap, VecDeque};

use sparkawait_core::Key;

/// The rows of one channel that wait.
pub(crate) trait Rows: Default {
    /// Returns whether none wait.
    fn is_empty(&self) -> bool;
}

impl<T> Rows for VecDeque<T> {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

/// Rows channel by channel. Without channels all rows are of the same, `None`.
pub(crate) struct Lines<R> {
    /// Those that have rows or requests.
    channels: HashMap<Option<Key>, Line<R>>,
    /// Those that have rows and may have another request, each once, in their turn.
    ready: VecDeque<Option<Key>>,
    /// Requests of a channel.
    most: usize,
}

#[derive(Default)]
struct Line<R> {
    rows: R,
    requests: usize,
    /// Whether it is among those that may have another request.
    is_ready: bool,
}

impl<R: Rows> Lines<R> {
    /// Makes lines of channels that have `most` requests each.
    pub(crate) fn new(most: usize) -> Self {
        Self { channels: HashMap::new(), ready: VecDeque::new(), most }
    }

    /// Returns how many channels have rows for a request that may be sent.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Adds to the rows of a channel.
    pub(crate) fn add(&mut self, channel: Option<Key>, add: impl FnOnce(&mut R)) {
        add(&mut self.channels.entry(channel).or_default().rows);
        self.make_ready(channel);
    }

    /// Removes the rows of a request from the line whose turn it is, by `take`, which is told how many
    /// requests more the channel may have; `None` if no request may be sent.
    pub(crate) fn take<T>(
        &mut self,
        take: impl FnOnce(&mut R, usize) -> T,
    ) -> Option<(Option<Key>, T)> {
        let channel = self.ready.pop_front()?;
        let line = self.channels.get_mut(&channel)?;
        let taken = take(&mut line.rows, self.most - line.requests);
        line.requests += 1;
        line.is_ready = false;
        self.make_ready(channel);
        Some((channel, taken))
    }

    /// Says that a request of `channel` has ended.
    pub(crate) fn ended(&mut self, channel: Option<Key>) {
        let Some(line) = self.channels.get_mut(&channel) else { return };
        line.requests -= 1;
        if line.rows.is_empty() && line.requests == 0 && channel.is_some() {
            self.channels.remove(&channel);
        } else {
            self.make_ready(channel);
        }
    }

    /// Removes rows from all lines.
    pub(crate) fn remove(&mut self, mut remove: impl FnMut(&mut R)) {
        for line in self.channels.values_mut() {
            remove(&mut line.rows);
            line.is_ready &= !line.rows.is_empty();
        }
        self.channels.retain(|_, line| !line.rows.is_empty() || line.requests > 0);
        self.ready.retain(|channel| self.channels.get(channel).is_some_and(|line| line.is_ready));
    }

    /// The rows of a channel that has any.
    #[cfg(test)]
    pub(crate) fn of(&self, channel: Option<Key>) -> &R {
        &self.channels[&channel].rows
    }

    fn make_ready(&mut self, channel: Option<Key>) {
        let Some(line) = self.channels.get_mut(&channel) else { return };
        if !line.is_ready && !line.rows.is_empty() && line.requests < self.most {
            line.is_ready = true;
            self.ready.push_back(channel);
        }
    }
}
