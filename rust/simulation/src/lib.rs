// SPDX-License-Identifier: Apache-2.0
//! A whole task in simulation.
//!
//! One number draws a chain with all its options, its input, what each call does and when mail comes
//! ([`scenario`]). The task is a real one over record batches, on a clock that is moved by hand
//! ([`world`]); it is known by its public seam only: rows, time and replies in; calls, cancellations
//! and batches out. What is seen is held against a naive model ([`model`]) whose rules are a table
//! ([`rules`]).
//!
//! ```text
//!   seed --> scenario --> task <--- calls, cancels --- world --> model, account --> broken rule
//!                          |  <---- replies, time ------ |                             |
//!                          +------- batches ------------>+                 shrink <----+
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`scenario`] | what is drawn |
//! | [`rules`] | what holds of a row, as data |
//! | [`trace`] | what happened, and which rule was broken |
//! | [`limits`] | a limit in time, counted exactly |
//! | [`model`] | each call and each row, held against the rules as it happens |
//! | [`account`] | what holds at the end: no row is missing |
//! | [`order`] | the order of the output |
//! | [`panics`] | what panics on the thread of a task |
//! | [`world`] | the clock, the functions, the mail |
//! | [`columns`] | rows of the simulation as columns |
//! | [`commits`] | what the journal of a task was given |
//! | [`known`] | what it knew before |
//! | [`build`] | the task of a scenario |
//! | [`run`] | a task from its first batch to its end |
//! | [`shrink`] | a failing scenario made smaller |

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    reason = "a test, though not a file of `tests`"
)]

pub mod account;
pub mod build;
pub mod columns;
pub mod commits;
pub mod known;
pub mod limits;
pub mod model;
pub mod order;
pub mod panics;
#[path = "../../runtime/tests/support/random.rs"]
pub(crate) mod random;
pub mod rules;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod trace;
pub mod world;
