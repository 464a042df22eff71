// SPDX-License-Identifier: Apache-2.0
//! One limit for all workers of a job: what the server grants to a worker, sans-IO.
//!
//! ```text
//!   calls --> Share --want, used--> exchange --lease--> Share     one each 100 ms, however many calls
//!                                      |
//!                  Server (here, in the driver's process), or SCRIPT in a Redis
//! ```
//!
//! A *lease* is an amount of permits and until when calls may begin with them. It is not a rate: what is
//! not used by then is gone, and is not granted to others before. So however many workers there are, and
//! whichever of them stand still, calls begin at most as the limit says.
//!
//! | [`Terms`] | what a limit is | what comes back |
//! |---|---|---|
//! | [`Rate`](Terms::Rate) | permits per time | with time |
//! | [`Budget`](Terms::Budget) | permits in all | what was reserved and not spent |
//! | [`Calls`](Terms::Calls) | calls at a time | when a call ends |
//!
//! Leases with an expiry are Google's Doorman; a place in the line of a rate is GCRA's (ITU-T I.371).

mod conversation;
mod exchange;
mod server;
mod share;

pub use conversation::{Conversation, MOST_BYTES, Secret};
pub use exchange::{Answer, Exchange, Lease, Order, State, Terms};
pub use server::Server;
pub use share::{Asked, EVERY, Share};

/// The same as [`Server`], for EVALSHA of Redis: three keys, and what [`Exchange::arguments`] says.
pub const SCRIPT: &str = include_str!("exchange.lua");

/// What EVALSHA calls it: its SHA-1.
pub const SCRIPT_SUM: &str = "6f3b140f75c3760e053922ed76ec5ed5227efcb6";

/// The same as [`Server::order`]: three keys, and what [`Order::arguments`] says.
pub const OWNER_SCRIPT: &str = include_str!("owner.lua");

/// What EVALSHA calls that.
pub const OWNER_SUM: &str = "b60f6fda11bf99ccf2ab5ff7138f2286d4fb2f87";
