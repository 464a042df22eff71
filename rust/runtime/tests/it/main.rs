// SPDX-License-Identifier: Apache-2.0
//! The tests of the runtime in one program: what is generic is compiled once for all of them.

mod account;
mod account_beside;
mod account_restored;
mod chain_model;
mod driven_task;
mod driver_backlog;
mod driver_bounds;
mod driver_chain;
mod driver_input;
mod driver_limits;
mod driver_output;
mod driver_replies;
mod driver_warm_up;
mod limits_model;
mod limits_set;
mod limits_together;
#[path = "../support/mod.rs"]
mod support;
