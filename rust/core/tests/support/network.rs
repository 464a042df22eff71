// SPDX-License-Identifier: Apache-2.0
//! One way of a virtual connection.

use std::collections::VecDeque;

/// What is on its way, in the order in which it was sent.
#[derive(Debug)]
pub(crate) struct Link<T> {
    now: u64,
    /// When it arrives, and what.
    pub(crate) packets: VecDeque<(u64, T)>,
}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Self { now: 0, packets: VecDeque::new() }
    }
}

impl<T> Link<T> {
    /// Sends something that arrives after `latency`, and after all that was sent before.
    pub(crate) fn send(&mut self, packet: T, latency: u64) {
        self.packets.push_back((self.now + latency, packet));
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: u64) {
        self.now += time;
    }

    /// Takes what has arrived.
    pub(crate) fn receive(&mut self) -> Option<T> {
        let has_arrived = self.packets.front().is_some_and(|it| it.0 <= self.now);
        has_arrived.then(|| self.packets.pop_front()).flatten().map(|it| it.1)
    }
}
