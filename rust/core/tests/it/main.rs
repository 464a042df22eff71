// SPDX-License-Identifier: Apache-2.0
//! The tests of the core in one program: what is generic is compiled once for all of them.

mod adaptive_limits;
mod budgets;
mod dead_destination;
mod flow_wire;
mod hedging;
mod limits_of_services;
mod mailbox_model;
mod max_wait;
mod operator_sim;
mod outages;
mod parts;
mod pauses;
mod queue_model;
mod rate_limit_model;
mod rate_limits;
#[path = "../support/mod.rs"]
mod support;
