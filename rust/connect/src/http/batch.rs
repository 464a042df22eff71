// SPDX-License-Identifier: Apache-2.0
//! Requests of many rows each.
//!
//! ```text
//!   rows -> items -> lines -> requests -> replies -> items -> results of rows
//!          templates.rs waiting.rs     engine.rs            items.rs
//! ```
//!
//! A row becomes an item as it comes. Items of rows whose requests would say the same beside them
//! wait in one line, of one channel; they go out when there are enough of them, or when the oldest
//! has waited long enough, as [`requests`](crate::requests) has it. Each item of the reply is the whole
//! response of its row from there on. Rows of a request that has failed come back from the operator like
//! others, and go together again, all or in parts (`companies.rs`).

mod companies;
mod engine;
mod item;
mod items;
mod templates;
mod waiting;

pub(super) use self::companies::Companies;
pub(super) use self::engine::{BatchEngine, Batched};
pub(super) use self::item::Overlong;
pub(super) use self::items::ItemReader;
pub(super) use self::templates::BatchTemplates;
pub(super) use self::waiting::Most;
