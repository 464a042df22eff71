// SPDX-License-Identifier: Apache-2.0
//! What a pool asks of those who make connections, and what it gives to calls.

use std::time::Duration;

use tokio::time::Instant;

/// How often connections that nobody uses are looked at.
pub(crate) const SWEEP: Duration = Duration::from_secs(1);

/// What makes connections to a server.
pub(crate) trait Dial: Send + Sync + 'static {
    /// What is made.
    type Connection: Connection;

    /// Why there is none.
    type Failure: Send + 'static;

    /// What the log calls the task that makes one.
    const NAME: &'static str;

    /// Whether no more calls ask at a time than there may be connections. Where as many are made as calls
    /// need, one that stalls holds nobody up: another one is made beside it.
    const IS_BOUNDED: bool = true;

    /// Makes a connection.
    fn dial(&self) -> impl Future<Output = Result<Self::Connection, Self::Failure>> + Send;

    /// Returns what calls are told when that panicked.
    fn panicked() -> Self::Failure;
}

/// A connection, which a call has as a whole, or which calls share.
pub(crate) trait Connection: Sized + Send + 'static {
    /// What a call has of a connection that is shared.
    type Room: Send + 'static;

    /// Looks at a connection while nobody has all of it.
    fn condition(&mut self) -> Condition {
        Condition::Good
    }

    /// How many calls it takes at a time.
    fn room(&self) -> usize {
        1
    }

    /// Whether calls share it; if not, a call has all of it.
    fn is_shared(&self) -> bool {
        false
    }

    /// Takes room on a connection that is shared, if there is any.
    fn enter(&mut self) -> Option<Self::Room> {
        None
    }

    /// Takes room on it beyond that, because no other connection can be had.
    fn squeeze(&mut self) -> Option<Self::Room> {
        None
    }

    /// How many calls share it.
    fn load(&self) -> usize {
        0
    }

    /// Returns since when no call has it, if none has. One that is not shared was `kept` then.
    fn idle_since(&self, kept: Instant) -> Option<Instant> {
        Some(kept)
    }
}

/// What a look at a connection tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It takes another call.
    Good,
    /// Its server has closed it, or is about to.
    Closed,
    /// We have given it up.
    Spent,
}

/// A connection, and how old it is.
pub(crate) struct Kept<C> {
    pub(crate) connection: C,
    pub(crate) age: Age,
}

/// How old a connection is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Age {
    /// When it is too old.
    pub(super) until: Instant,
    /// When it was given back, or was made.
    pub(super) since: Instant,
    /// Nobody had it yet.
    pub(super) is_new: bool,
}

impl Age {
    /// Since when it had been idle when a call took it; `None`: it was made for the call.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        (!self.is_new).then_some(self.since)
    }
}

/// What a call has.
pub(crate) enum Lease<C: Connection> {
    Whole(Kept<C>),
    Room(C::Room),
}

/// What a call asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish {
    /// A connection that nobody had before, unless it is shared.
    pub(crate) is_new: bool,
    /// One that its server is not about to close: what is lost must not be sent again.
    pub(crate) careful: bool,
}
