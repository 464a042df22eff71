// SPDX-License-Identifier: Apache-2.0
//! The connections to one server: made, kept, given to calls, and closed in time.
//!
//! ```text
//!   call --- take ---> kept, and fit for the call?   yes: it has the connection, or room on it
//!                         | no
//!                      enough under way for those that wait?   no: a task makes one
//!                         | yes
//!                      it waits: for a connection, for room, for what a task came to
//! ```
//!
//! A connection is made by a task of its own. A call may end at any moment, and a connection that is made
//! within it would end with it: a login that takes longer than an attempt would never succeed. What a call
//! that has given up leaves behind is for the next one.

mod connection;
mod idleness;
mod state;

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sparkawait_task::supervision::spawn_aside;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use self::connection::SWEEP;
pub(crate) use self::connection::{Age, Condition, Connection, Dial, Kept, Lease, Wish};
use self::state::{Caller, Next, State};

/// The connections to one server.
pub(crate) struct Pool<D: Dial> {
    dial: Arc<D>,
    state: Mutex<State<D>>,
    /// Told when there is something for those that wait.
    news: Notify,
}

impl<D: Dial> Pool<D> {
    /// Makes a pool without connections. `room`: how many calls one takes, if that is known.
    pub(crate) fn new(dial: D, room: Option<usize>) -> Arc<Self> {
        let state = Mutex::new(State::new(room));
        Arc::new(Self { dial: Arc::new(dial), state, news: Notify::new() })
    }

    /// Returns what makes its connections.
    pub(crate) fn dial(&self) -> &D {
        &self.dial
    }

    /// Takes a connection, or room on one; waits for a task that makes one if there is none.
    ///
    /// # Cancel safety
    ///
    /// If that is dropped, what was begun goes on, for the calls that come later.
    pub(crate) async fn take(
        self: &Arc<Self>,
        wish: Wish,
    ) -> Result<Lease<D::Connection>, D::Failure> {
        let mut waiting: Option<Waiting<'_, D>> = None;
        loop {
            let mut news = pin!(self.news.notified());
            let until = {
                let (mut state, now) = (self.state(), Instant::now());
                let caller = waiting.as_ref().map_or(Caller::New, |it| it.caller);
                let (next, until) = match state.next(now, wish, caller) {
                    Next::Take(lease) => return Ok(lease),
                    Next::Fail(failure) => return Err(failure),
                    Next::Dial => {
                        self.start(&mut state, now);
                        (Caller::HasDialled, None)
                    }
                    Next::Wait(until) if caller == Caller::New => (Caller::Waits(now), until),
                    Next::Wait(until) => (caller, until),
                };
                let waits = waiting.get_or_insert_with(|| {
                    state.lacking += 1;
                    Waiting { pool: self, caller: next }
                });
                waits.caller = next;
                news.as_mut().enable();
                until
            };
            match until {
                // It looks again, whether there are news or not.
                Some(until) => drop(timeout_at(until, news).await),
                None => news.await,
            }
        }
    }

    /// Notes for how long the server says that it keeps connections.
    pub(crate) fn announce(&self, kept: Duration) {
        self.state().idleness.announced = Some(kept);
    }

    /// Notes that there is room on a connection.
    pub(crate) fn has_room(&self) {
        if self.state().lacking > 0 {
            self.news.notify_one();
        }
    }

    /// Keeps a connection for the next call.
    pub(crate) fn keep(self: &Arc<Self>, kept: Kept<D::Connection>) {
        let mut state = self.state();
        state.keep(kept, Instant::now());
        self.look_after(&mut state);
        if state.lacking > 0 {
            self.news.notify_one();
        }
    }

    /// Closes the connections that served no later than one that the server has closed: it did the same to
    /// them, most likely.
    pub(crate) fn close_before(&self, dead: Instant) {
        self.state().close_before(dead);
    }

    /// Calls `each` with the time since which a connection has been idle, for those that are not shared.
    pub(crate) fn idle_since(&self, each: impl FnMut(Instant)) {
        self.state().idle_since().for_each(each);
    }

    /// Whether nothing is kept here, nor being made.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().is_empty()
    }

    /// Has a task make a connection.
    fn start(self: &Arc<Self>, state: &mut State<D>, now: Instant) {
        let (number, backoff) = (state.number(), state.backoff);
        let (dial, pool) = (Arc::clone(&self.dial), Arc::downgrade(self));
        let task = spawn_aside(&Handle::current(), D::NAME, async move {
            let mut end = End { pool, number, made: None };
            backoff.wait().await;
            end.made = Some(dial.dial().await);
        });
        state.begin(number, task, now);
        self.look_after(state);
    }

    /// Has connections looked at for as long as there are any that nobody uses, or that are being made.
    fn look_after(self: &Arc<Self>, state: &mut State<D>) {
        if std::mem::replace(&mut state.is_swept, true) {
            return;
        }
        let pool = Arc::downgrade(self);
        spawn_aside(&Handle::current(), D::NAME, async move {
            loop {
                sleep(SWEEP).await;
                let Some(pool) = pool.upgrade() else { return };
                let mut state = pool.state();
                state.is_swept = state.sweep(Instant::now());
                if !state.is_swept {
                    return;
                }
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, State<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that waits, counted until this is dropped.
struct Waiting<'a, D: Dial> {
    pool: &'a Pool<D>,
    caller: Caller,
}

impl<D: Dial> Drop for Waiting<'_, D> {
    fn drop(&mut self) {
        self.pool.state().leave();
    }
}

/// The end of a task that makes a connection, also by a panic.
struct End<D: Dial> {
    pool: Weak<Pool<D>>,
    number: u64,
    made: Option<Result<D::Connection, D::Failure>>,
}

impl<D: Dial> Drop for End<D> {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let made = self.made.take().unwrap_or_else(|| Err(D::panicked()));
        if pool.state().end(self.number, made, Instant::now()) {
            pool.news.notify_waiters();
        } else {
            pool.news.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
