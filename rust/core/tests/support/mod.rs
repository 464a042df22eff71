// SPDX-License-Identifier: Apache-2.0
//! The model that the simulation of the operator compares with.

pub(crate) mod channel_model;
pub(crate) mod held_model;
mod operator_check;
pub(crate) mod operator_model;
pub(crate) mod policy_model;
mod snapshot_model;
mod timeout_model;
