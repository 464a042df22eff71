// SPDX-License-Identifier: Apache-2.0
//! Two ends of a connection over a virtual network: bytes take their time and come in any pieces, a
//! connection is lost with what is on its way.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]
// Each test binary uses a part of this module.
#![allow(dead_code, clippy::allow_attributes, reason = "shared by several test binaries")]

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use sparkawait_wire::{ChannelKey, Connection, ConnectionConfig, ConnectionError, Event};

#[path = "../../../core/tests/support/network.rs"]
mod network;

use network::Link;

pub(crate) const TOKEN: [u8; 16] = [7; 16];

pub(crate) const CONFIG: ConnectionConfig = ConnectionConfig {
    max_frame: 1 << 20,
    max_channels: 8,
    exclusive: 2,
    floating: 8,
    limit: 6,
    max_bytes: 4 << 20,
    max_bytes_per_channel: 1 << 20,
};

/// One end, and what is on its way to it.
pub(crate) struct End {
    pub(crate) connection: Connection,
    pub(crate) received: BytesMut,
    pub(crate) incoming: Link<Bytes>,
    pub(crate) events: Vec<Event>,
}

impl End {
    pub(crate) fn new(config: ConnectionConfig, token: [u8; 16]) -> Self {
        let connection = Connection::new(config, token);
        let (received, incoming) = (BytesMut::new(), Link::default());
        Self { connection, received, incoming, events: Vec::new() }
    }

    pub(crate) fn write(
        &mut self,
        to: &mut Self,
        latency: u64,
        piece: usize,
    ) -> Result<(), ConnectionError> {
        let mut chunks = Vec::new();
        self.connection.poll_write(256 << 10, &mut chunks)?;
        let written = chunks.into_iter().flatten().collect::<BytesMut>().freeze();
        for start in (0..written.len()).step_by(piece) {
            let end = written.len().min(start + piece);
            to.incoming.send(written.slice(start..end), latency);
        }
        Ok(())
    }

    pub(crate) fn read(&mut self) -> Result<(), ConnectionError> {
        while let Some(bytes) = self.incoming.receive() {
            self.received.extend_from_slice(&bytes);
            self.connection.handle_read(&mut self.received)?;
            self.events.extend(std::iter::from_fn(|| self.connection.poll_event()));
        }
        Ok(())
    }

    /// Takes what has happened.
    pub(crate) fn happened(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

pub(crate) struct Pair {
    pub(crate) client: End,
    pub(crate) server: End,
    pub(crate) latency: u64,
    /// Bytes that come at once.
    pub(crate) piece: usize,
}

impl Pair {
    pub(crate) fn new(config: ConnectionConfig, latency: u64, piece: usize) -> Self {
        let (client, server) = (End::new(config, TOKEN), End::new(config, TOKEN));
        let mut pair = Self { client, server, latency, piece };
        pair.settle().unwrap();
        assert_eq!(pair.client.happened(), [Event::Greeted]);
        assert_eq!(pair.server.happened(), [Event::Greeted]);
        pair
    }

    /// Writes what there is, and lets it arrive.
    pub(crate) fn step(&mut self) -> Result<(), ConnectionError> {
        let Self { client, server, latency, piece } = self;
        client.write(server, *latency, *piece)?;
        server.write(client, *latency, *piece)?;
        for end in [client, server] {
            end.incoming.pass(*latency);
            end.read()?;
        }
        Ok(())
    }

    /// Lets everything happen that nobody waits for.
    pub(crate) fn settle(&mut self) -> Result<(), ConnectionError> {
        self.step()?;
        while self.client.connection.has_output() || self.server.connection.has_output() {
            self.step()?;
        }
        Ok(())
    }

    /// Has the client ask for something that the server sends; it has the same name at both ends.
    pub(crate) fn open(&mut self) -> ChannelKey {
        let channel = self.client.connection.open(Bytes::from_static(b"what")).unwrap();
        self.settle().unwrap();
        let subject = Bytes::from_static(b"what");
        assert_eq!(self.server.happened(), [Event::Opened { channel, subject }]);
        channel
    }

    /// Has the client work off what it received, except on one channel; returns how many of each.
    pub(crate) fn work(&mut self, stalled: Option<ChannelKey>) -> BTreeMap<ChannelKey, usize> {
        let mut counts = BTreeMap::new();
        for event in self.client.happened() {
            let Event::Data { channel, cost, .. } = event else { continue };
            if Some(channel) != stalled {
                *counts.entry(channel).or_default() += 1;
                self.client.connection.recycle(channel, cost);
            }
        }
        counts
    }
}
