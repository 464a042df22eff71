// SPDX-License-Identifier: Apache-2.0
//! What the benches of `benches/` share: inputs from fixed seeds, and rounds of work.
//!
//! | module | what it makes |
//! |---|---|
//! | [`shuffle`] | orders that are random and always the same |
//! | [`queues`], [`operators`] | rounds of records through the core |
//! | [`batches`], [`row_stores`] | record batches, and rows on their way through them |
//!
//! A bench that takes time (Criterion) and its counterpart that counts
//! instructions so do the same work.

pub mod batches;
pub mod operators;
pub mod queues;
pub mod row_stores;
pub mod shuffle;

/// Records that each instruction bench handles, so that counts read as counts a record.
///
/// `benches/python/instructions.py` divides by it.
pub const RECORDS: usize = 10_000;
