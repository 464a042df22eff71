// SPDX-License-Identifier: Apache-2.0
//! The model that the simulation of the operator compares with, and worlds that other tests share.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

pub(crate) mod channel_model;
pub(crate) mod held_model;
pub(crate) mod network;
mod operator_check;
pub(crate) mod operator_model;
mod outage_model;
pub(crate) mod policy_model;
mod snapshot_model;
mod timeout_model;
pub(crate) mod world;
