// SPDX-License-Identifier: Apache-2.0
//! Credit-based flow control: one slow destination does not hold the others.
//!
//! A *credit* is a permit to have one call, or one batch of calls, in flight for one destination.
//! Each destination is a channel with some credits of its own. The others float: channels with
//! something waiting borrow them, and when they come back, the channel that has waited longest gets
//! them.
//!
//! ```text
//!                     +--------------+  exclusive credits
//!    floating <-----> |  channel a   | <- - - - - - - - -    calls in flight
//!    credits          +--------------+
//!    (one pool) <---> |  channel b   |
//!                     +--------------+
//! ```
//!
//! | type | what it is | counterpart in Flink |
//! |---|---|---|
//! | [`FloatingPool`] | the credits that are shared, and the line for them | `LocalBufferPool` |
//! | [`ReceiverGate`], [`ReceiverChannel`] | who gives credit, over a wire | `SingleInputGate`, `RemoteInputChannel` |
//! | [`SenderQueue`], [`SenderChannel`] | who spends it, over a wire | `PartitionRequestQueue`, its readers |
//! | [`ChannelTable`] | the channels inside of an operator, without a wire | - |
//! | [`Debloater`] | how large a batch should be | `BufferDebloater` |
//!
//! Everything here is `&mut self` and belongs to one thread.

use std::fmt;

mod backlogs;
mod channel;
mod channel_config;
mod channel_index;
mod channel_key;
mod channel_metrics;
mod channel_policies;
mod channel_slab;
mod channel_table;
mod credit_account;
mod debloater;
mod endowment;
mod floating_pool;
mod lines;
mod listeners;
mod outage;
mod receiver_channel;
mod receiver_gate;
mod retry_line;
mod sender_channel;
mod sender_queue;
mod tickets;

pub(crate) use outage::WaitBound;

pub use channel_config::ChannelConfig;
pub use channel_key::ChannelKey;
pub use channel_metrics::{ChannelMetrics, ChannelReport, ChannelTotals};
pub use channel_table::ChannelTable;
pub(crate) use channel_table::{Next, Unserved};
pub use debloater::{Debloater, DebloaterConfig};
pub use floating_pool::FloatingPool;
pub use listeners::ListenerId;
pub use receiver_channel::{ChannelError, Notify, ReceiverChannel};
pub use receiver_gate::ReceiverGate;
pub use sender_channel::{Message, SenderChannel};
pub use sender_queue::{OpenError, Pushed, SenderQueue, SenderQueueConfig, UnknownChannel};
pub use tickets::Call;

/// The place of a channel among those of its owner. Given to another channel once the first was
/// forgotten; [`ChannelKey`] is what two processes call one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u32);

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
