// SPDX-License-Identifier: Apache-2.0
//! The connections of a process to one server, shared by all tasks in it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sparkawait_task::error::StartError;
use sparkawait_task::shared::Shared;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::postgres::failure::Failure;
use crate::postgres::plan::{Plan, Request};
use crate::postgres::plans::Plans;
use crate::postgres::server::{Server, ServerConfig};
use crate::postgres::session::Session;
use crate::settings_key::key_of;

/// The pools of this process.
static POOLS: Shared = Shared::new();

/// Wait before the second attempt to connect; doubled for each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);

/// Longest wait between two attempts to connect.
const LONGEST_BACKOFF: Duration = Duration::from_secs(2);

/// A bounded number of connections, opened when they are needed.
pub(crate) struct Pool {
    server: Arc<Server>,
    slots: Vec<Arc<Slot>>,
    /// A permit for each connection: queries of all lookups take turns.
    pub(crate) turns: Arc<Semaphore>,
    /// Plans that hold for any connection; empty if each has its own.
    plans: Arc<Plans>,
}

/// The place of one connection.
#[derive(Default)]
struct Slot {
    /// Queries that were sent, or wait for the connection.
    in_flight: AtomicUsize,
    state: Mutex<SlotState>,
}

#[derive(Default)]
struct SlotState {
    session: Option<Arc<Session>>,
    /// Attempts to connect that failed since the last that did not.
    failures: u32,
    /// Nobody connects before.
    not_before: Option<Instant>,
}

/// The use of a connection; counted until it is dropped.
pub(crate) struct Lease {
    slot: Arc<Slot>,
    session: Arc<Session>,
}

impl Pool {
    /// Returns the pool of this process for `config`.
    pub(crate) fn shared(config: &ServerConfig) -> Result<Arc<Self>, StartError> {
        POOLS.get_or_make(&key_of(config)?, || {
            let slots: Vec<Arc<Slot>> =
                (0..config.connections.max(1)).map(|_| Arc::default()).collect();
            let turns = Arc::new(Semaphore::new(slots.len()));
            Ok(Self { server: Arc::new(config.server()?), slots, turns, plans: Arc::default() })
        })
    }

    /// Returns the connection with the fewest queries; opens one where a place is idle.
    pub(crate) async fn lease(&self) -> Result<Lease, Failure> {
        let mut slots: Vec<&Arc<Slot>> = self.slots.iter().collect();
        slots.sort_by_key(|slot| slot.in_flight.load(Ordering::Relaxed));
        let mut chosen = slots.first().copied();
        for slot in &slots {
            match slot.look() {
                Look::Connected(session) => {
                    if let Some(lease) = Counted::new(slot).lease(session) {
                        return Ok(lease);
                    }
                }
                Look::Free => {
                    chosen = Some(slot);
                    break;
                }
                Look::Busy => {}
            }
        }
        let Some(chosen) = chosen else {
            return Err(Failure::permanent("the pool has no connections"));
        };
        let counted = Counted::new(chosen);
        let connected = match chosen.session(self).await {
            Ok(session) => counted.lease(session).ok_or_else(|| {
                Failure::unsent("PostgreSQL: the connection was given up for other rows")
            }),
            Err(failure) => Err(failure),
        };
        let failure = match connected {
            Ok(lease) => return Ok(lease),
            Err(failure) => failure,
        };
        // A server with too many connections refuses one and leaves those that there are.
        for slot in slots {
            if let Look::Connected(session) = slot.look()
                && let Some(lease) = Counted::new(slot).lease(session)
            {
                return Ok(lease);
            }
        }
        Err(failure)
    }

    /// Returns what to send for a statement on a connection.
    pub(crate) async fn plan(
        &self,
        session: &Session,
        request: Request<'_>,
    ) -> Result<Arc<Plan>, Failure> {
        let make = async {
            if request.keeps {
                Box::pin(Plan::prepare(&session.client, request)).await
            } else {
                Box::pin(Plan::prepare_aside(&self.server, request)).await
            }
        };
        session.plans.get_or_make(request.key, make).await
    }

    /// Returns whether connections keep the statements that were prepared on them.
    pub(crate) fn keeps_statements(&self) -> bool {
        self.server.keeps_statements
    }

    async fn connect(&self) -> Result<Session, Failure> {
        let opened = self.server.connect().await?;
        let keeps = self.server.keeps_statements;
        let plans = if keeps { Arc::default() } else { Arc::clone(&self.plans) };
        Ok(Session::new(opened, plans, Arc::clone(&self.server)))
    }
}

/// What a place looks like to one who does not wait.
enum Look {
    Connected(Arc<Session>),
    /// It may be connected now.
    Free,
    /// Somebody connects it, or must not do so yet.
    Busy,
}

/// Counts a query until it becomes a lease or is given up.
struct Counted<'a>(Option<&'a Arc<Slot>>);

impl<'a> Counted<'a> {
    fn new(slot: &'a Arc<Slot>) -> Self {
        slot.in_flight.fetch_add(1, Ordering::SeqCst);
        Self(Some(slot))
    }

    /// Returns the use of a connection, unless somebody has given it up.
    fn lease(mut self, session: Arc<Session>) -> Option<Lease> {
        // Seen here, or the one who gives it up sees this query in the count.
        if session.is_given_up() {
            return None;
        }
        // The slot is there until here.
        let slot = self.0.take().map(Arc::clone)?;
        Some(Lease { slot, session })
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.in_flight.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Slot {
    fn look(&self) -> Look {
        let Ok(state) = self.state.try_lock() else { return Look::Busy };
        match &state.session {
            Some(session) if session.is_open() => Look::Connected(Arc::clone(session)),
            _ if state.not_before.is_some_and(|at| at > Instant::now()) => Look::Busy,
            _ => Look::Free,
        }
    }

    /// Returns the connection; makes it if it is not there, after the wait that failures cost.
    async fn session(&self, pool: &Pool) -> Result<Arc<Session>, Failure> {
        let mut state = self.state.lock().await;
        if let Some(session) = state.session.as_ref().filter(|it| it.is_open()) {
            return Ok(Arc::clone(session));
        }
        state.session = None;
        if let Some(at) = state.not_before {
            sleep_until(at).await;
        }
        match pool.connect().await {
            Ok(session) => {
                let session = Arc::new(session);
                *state = SlotState { session: Some(Arc::clone(&session)), ..SlotState::default() };
                Ok(session)
            }
            Err(failure) => {
                let backoff = FIRST_BACKOFF * 2_u32.pow(state.failures.min(6));
                state.failures = state.failures.saturating_add(1);
                state.not_before = Some(Instant::now() + backoff.min(LONGEST_BACKOFF));
                Err(failure)
            }
        }
    }
}

impl Lease {
    /// Awaits what was sent for. If that is dropped before it ends, nobody wants the answer any
    /// more: then the server is told to stop, unless the connection serves others too.
    pub(crate) async fn wanted<T>(&self, answer: impl Future<Output = T>) -> T {
        let asked = Asked(self);
        let answer = answer.await;
        std::mem::forget(asked);
        answer
    }
}

/// Something that the server is at.
struct Asked<'a>(&'a Lease);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let Lease { slot, session } = self.0;
        session.give_up_if(|| slot.in_flight.load(Ordering::SeqCst) == 1);
    }
}

impl Deref for Lease {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.slot.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}
