// SPDX-License-Identifier: Apache-2.0
//! What a service says of its limits beside its answers.

use std::time::Duration;

/// What a limit counts, as far as services tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Calls, or something that the service does not name.
    Requests,
    /// Tokens of a language model.
    Tokens,
}

/// How a limit that is used up comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// All of it at once: it is counted in windows of time.
    AtOnce,
    /// Bit by bit, until it is whole: a bucket that is refilled.
    Evenly,
}

/// What is left of a limit of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitLeft {
    /// What it counts.
    pub counted: Counted,
    /// How much of that may still be asked for.
    pub remaining: u64,
    /// When all of it is there again; more than no time.
    pub renewed_in: Duration,
    /// What happens until then.
    pub renewal: Renewal,
}
