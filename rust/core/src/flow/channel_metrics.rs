// SPDX-License-Identifier: Apache-2.0
//! What is counted of a channel.

use std::time::Duration;

use crate::element::Key;

/// What a channel did since the operator was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelTotals {
    /// Calls that ended.
    pub calls: u64,
    /// Their durations, added.
    pub latency: Duration,
    /// Time during which something waited for a credit.
    pub starved: Duration,
}

impl ChannelTotals {
    /// Adds what another channel did.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.latency = self.latency.saturating_add(other.latency);
        self.starved = self.starved.saturating_add(other.starved);
    }
}

/// A channel as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelMetrics {
    /// What its records have in common; `None` for the records without a channel.
    pub key: Option<Key>,
    /// Records admitted and not completed.
    pub records: u32,
    /// Credits that it holds, its own and lent ones.
    pub credits: u32,
    /// Calls in flight.
    pub in_flight: u32,
    /// Most calls in flight that it may have.
    pub limit: u32,
    /// Records that wait: for a credit, for their key, for the end of a back-off.
    pub backlog: u32,
    /// What it did.
    pub totals: ChannelTotals,
}

/// All channels of an operator: some by themselves, the others added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelReport {
    /// Channels with records.
    pub active: usize,
    /// Channels that have waited in vain most: by backlog, then by time starved, then by calls.
    pub top: Vec<ChannelMetrics>,
    /// Backlog of the others.
    pub rest_backlog: u64,
    /// Calls in flight of the others.
    pub rest_in_flight: u64,
    /// What the others did, channels that are forgotten included.
    pub rest: ChannelTotals,
}

impl ChannelReport {
    /// Keeps the `count` of `channels` that wait most, and adds the others to `rest`.
    pub(super) fn of(channels: Vec<ChannelMetrics>, count: usize, mut rest: ChannelTotals) -> Self {
        let active = channels.iter().filter(|it| it.records > 0).count();
        let mut top = channels;
        let rank = |it: &ChannelMetrics| (it.backlog, it.totals.starved, it.totals.calls);
        if count < top.len() {
            top.select_nth_unstable_by(count, |a, b| rank(b).cmp(&rank(a)));
        }
        let (mut rest_backlog, mut rest_in_flight) = (0, 0);
        for channel in top.drain(count.min(top.len())..) {
            rest.add(&channel.totals);
            rest_backlog += u64::from(channel.backlog);
            rest_in_flight += u64::from(channel.in_flight);
        }
        top.sort_unstable_by(|a, b| rank(b).cmp(&rank(a)).then(a.key.cmp(&b.key)));
        Self { active, top, rest_backlog, rest_in_flight, rest }
    }
}
