// SPDX-License-Identifier: Apache-2.0
//! The tests of tasks in one program: what is generic is compiled once for all of them.

mod account;
mod cache;
mod cache_attempts;
mod cache_hedges;
mod call_info;
mod call_share;
mod carry;
mod carry_timeout;
mod chain;
mod compaction;
mod failures;
mod journal;
mod layers;
mod put_back;
#[path = "../support/mod.rs"]
mod support;
mod task;
