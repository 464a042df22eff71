// SPDX-License-Identifier: Apache-2.0
//! What a connection may take.

/// What a connection may take.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionConfig {
    /// Bytes of a frame behind its header.
    pub max_frame: usize,
    /// Channels that may be open in each direction.
    pub max_channels: u32,
    /// Credits of a channel that it receives on, at least one.
    pub exclusive: u32,
    /// Credits that these channels share.
    pub floating: u32,
    /// Most credits of one of them.
    pub limit: u32,
    /// Bytes that may wait to be sent in all.
    pub max_bytes: usize,
    /// Bytes that may wait in one channel before it is full.
    pub max_bytes_per_channel: usize,
}

impl ConnectionConfig {
    /// Returns bounds for two processes of one host: 4 MiB on their way, 1 MiB of one channel.
    pub const fn of_host() -> Self {
        Self {
            max_frame: 64 << 20,
            max_channels: 1024,
            exclusive: 2,
            floating: 64,
            limit: 16,
            max_bytes: 8 << 20,
            max_bytes_per_channel: 1 << 20,
        }
    }
}
