// SPDX-License-Identifier: Apache-2.0
//! The connections of a process to one server, shared by all tasks in it.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sparkawait_task::error::StartError;
use sparkawait_task::shared::{Lender, Lent};
use sparkawait_task::supervision::{Backoff, spawn_aside};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::dial::{HIGHEST_AGE, HIGHEST_IDLE};
use crate::making::Making;
use crate::postgres::failure::Fault;
use crate::postgres::plan::{Plan, Request};
use crate::postgres::plans::Plans;
use crate::postgres::server::{Server, ServerConfig};
use crate::postgres::session::Session;

/// The pools of this process.
static POOLS: Lender = Lender::new();

/// How often a query is given another connection for one that was given up meanwhile.
const LEASES: usize = 3;

/// A bounded number of connections, opened when they are needed.
pub(crate) struct Pool {
    server: Arc<Server>,
    slots: Arc<[Arc<Slot>]>,
    /// A permit for each connection: queries of all lookups take turns.
    pub(crate) turns: Arc<Semaphore>,
    /// Plans that hold for any connection; empty if each has its own.
    plans: Arc<Plans>,
    runtime: Handle,
}

/// The place of one connection.
struct Slot {
    /// Queries that were sent, or wait for the connection.
    in_flight: AtomicUsize,
    /// Locked for as long as a look takes.
    state: Mutex<SlotState>,
    highest_age: Duration,
    start: Instant,
    /// When a query ended last, in milliseconds since the start.
    used: AtomicU64,
}

#[derive(Default)]
struct SlotState {
    session: Option<Arc<Session>>,
    /// The next one, which all wait for that want this place.
    opening: Option<Opening>,
    backoff: Backoff,
}

type Opening = Making<Result<Arc<Session>, Fault>>;

/// The use of a connection.
pub(crate) struct Lease {
    counted: Counted,
    session: Arc<Session>,
}

/// A query that has a place, or wants it; counted until it is dropped.
struct Counted(Arc<Slot>);

impl Pool {
    /// Returns the pool of this process for `config`.
    pub(crate) fn shared(
        config: &ServerConfig,
        runtime: &Handle,
    ) -> Result<Lent<Self>, StartError> {
        let pool = POOLS.lend(&config.identity()?, runtime, || {
            let count = config.connections.max(1);
            let slots: Arc<[_]> = (0..count).map(|it| Arc::new(Slot::new(it, count))).collect();
            let turns = Arc::new(Semaphore::new(slots.len()));
            spawn_aside(runtime, "postgres.idle", close_idle(Arc::downgrade(&slots)));
            let (server, plans) = (Arc::new(config.server()?), Arc::default());
            let runtime = runtime.clone();
            Ok::<_, StartError>(Self { server, slots, turns, plans, runtime })
        })?;
        pool.server.renew(config);
        Ok(pool)
    }

    /// Returns the connection with the fewest queries; opens one where a place is idle.
    pub(crate) async fn lease(&self) -> Result<Lease, Fault> {
        for _ in 0..LEASES {
            if let Some(lease) = self.try_lease().await? {
                return Ok(lease);
            }
        }
        Err(Fault::unsent("PostgreSQL: connections were given up for other rows"))
    }

    /// Does the same; returns none if the connection was given up before it was had.
    async fn try_lease(&self) -> Result<Option<Lease>, Fault> {
        let mut slots: Vec<&Arc<Slot>> = self.slots.iter().collect();
        slots.sort_by_key(|slot| slot.in_flight.load(Ordering::Relaxed));
        let mut chosen = slots.first().copied();
        for slot in &slots {
            match slot.look() {
                Look::Connected(session) => {
                    if let Some(lease) = Counted::new(slot).lease(session) {
                        return Ok(Some(lease));
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
            return Err(Fault::permanent("the pool has no connections"));
        };
        let counted = Counted::new(chosen);
        let failure = match self.session(chosen).await {
            Ok(session) => return Ok(counted.lease(session)),
            Err(failure) => failure,
        };
        drop(counted);
        // A server with too many connections refuses one and leaves those that there are.
        for slot in slots {
            if let Look::Connected(session) = slot.look()
                && let Some(lease) = Counted::new(slot).lease(session)
            {
                return Ok(Some(lease));
            }
        }
        Err(failure)
    }

    /// Returns what to send for a statement on a connection.
    pub(crate) async fn plan(
        &self,
        lease: &Lease,
        request: &Arc<Request>,
        silence: Option<Duration>,
    ) -> Result<Arc<Plan>, Fault> {
        let (session, server) = (&lease.session, &self.server);
        let make = || {
            let (session, server) = (Arc::clone(session), Arc::clone(server));
            let request = Arc::clone(request);
            async move {
                if request.keeps {
                    return Plan::prepare(&session.client, &request).await;
                }
                let planning = Plan::prepare_aside(&server, &request);
                match silence {
                    Some(limit) => timeout(limit, planning).await.unwrap_or_else(|_| {
                        Err(Fault::unsent(format!("PostgreSQL: planning took {limit:?}")))
                    }),
                    None => planning.await,
                }
            }
        };
        session.plans.get_or_make(&request.key, &self.runtime, make).await
    }

    /// Returns the connection of a place; if it is not there, waits for a task that opens it.
    async fn session(&self, slot: &Arc<Slot>) -> Result<Arc<Session>, Fault> {
        let opening = {
            let mut state = slot.state();
            // This query is counted.
            let is_good = |it: &&Arc<Session>| it.is_open() && !slot.is_worn(it.age(), 1);
            if let Some(session) = state.session.as_ref().filter(is_good) {
                return Ok(Arc::clone(session));
            }
            state.session = None;
            let under_way = state.opening.as_ref().filter(|it| !it.is_over()).cloned();
            let opening = under_way.unwrap_or_else(|| self.open(slot, state.backoff));
            state.opening.insert(opening).clone()
        };
        let panicked = || Fault::unsent("PostgreSQL: connecting panicked; the log says why");
        opening.made().await.unwrap_or_else(|| Err(panicked()))
    }

    /// Opens the connection of a place, after the wait that failures cost.
    fn open(&self, slot: &Arc<Slot>, backoff: Backoff) -> Opening {
        let (slot, server) = (Arc::clone(slot), Arc::clone(&self.server));
        let keeps = server.keeps_statements;
        let plans = if keeps { Arc::default() } else { Arc::clone(&self.plans) };
        Making::start(&self.runtime, "postgres.connecting", async move {
            backoff.wait().await;
            let opened = server.connect().await;
            let session = opened.map(|it| Arc::new(Session::new(it, plans, server)));
            let mut state = slot.state();
            state.backoff.note(session.is_err(), Instant::now());
            state.session = session.as_ref().ok().map(Arc::clone);
            session
        })
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

impl Counted {
    fn new(slot: &Arc<Slot>) -> Self {
        slot.in_flight.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(slot))
    }

    /// Returns the use of a connection, unless somebody has given it up.
    fn lease(self, session: Arc<Session>) -> Option<Lease> {
        // Seen here, or the one who gives it up sees this query in the count.
        (!session.is_given_up()).then_some(Lease { counted: self, session })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.was_used();
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Closes connections that nobody has, while there is a pool.
async fn close_idle(slots: Weak<[Arc<Slot>]>) {
    loop {
        sleep(HIGHEST_IDLE / 4).await;
        let Some(slots) = slots.upgrade() else { return };
        for slot in slots.iter() {
            slot.state().session.take_if(|it| slot.is_worn(it.age(), 0));
        }
    }
}

impl Slot {
    fn new(index: usize, count: usize) -> Self {
        let share = u32::try_from(HIGHEST_AGE.as_secs() / 10 * index as u64 / count as u64);
        Self {
            in_flight: AtomicUsize::new(0),
            state: Mutex::default(),
            highest_age: HIGHEST_AGE
                .saturating_sub(Duration::from_secs(share.unwrap_or_default().into())),
            start: Instant::now(),
            used: AtomicU64::new(0),
        }
    }

    /// Whether a connection of this age is too old, or was idle for too long, and no more than `own` queries
    /// have it.
    fn is_worn(&self, age: Duration, own: usize) -> bool {
        let used = Duration::from_millis(self.used.load(Ordering::Relaxed));
        let idle = self.start.elapsed().saturating_sub(used).min(age);
        self.in_flight.load(Ordering::SeqCst) <= own
            && (age > self.highest_age || idle > HIGHEST_IDLE)
    }

    /// Notes that a query has ended.
    fn was_used(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used.store(now, Ordering::Relaxed);
    }

    fn look(&self) -> Look {
        let state = self.state();
        match &state.session {
            Some(session) if session.is_open() && !self.is_worn(session.age(), 0) => {
                Look::Connected(Arc::clone(session))
            }
            _ if state.opening.as_ref().is_some_and(|it| !it.is_over()) => Look::Busy,
            _ if state.backoff.rest(Instant::now()).is_some() => Look::Busy,
            _ => Look::Free,
        }
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Tells the server to stop, and closes the connection, unless it serves others too.
    pub(crate) fn give_up(&self) {
        drop(Asked(self));
    }
}

/// Something that the server is at.
struct Asked<'a>(&'a Lease);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let Lease { counted, session } = self.0;
        session.give_up_if(|| counted.0.in_flight.load(Ordering::SeqCst) == 1);
    }
}

impl Deref for Lease {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(60 * minutes)
    }

    /// A place for a connection that was made two hours ago.
    fn slot(index: usize, count: usize) -> Slot {
        let start = Instant::now().checked_sub(minutes(120)).unwrap();
        Slot { start, ..Slot::new(index, count) }
    }

    #[test]
    fn connections_end_at_ages_of_their_own_so_that_not_all_are_made_at_once() {
        let count = 7;
        let ages = (0..count).map(|index| slot(index, count).highest_age);
        let ages: Vec<_> = ages.collect();

        assert_eq!(ages[0], HIGHEST_AGE);
        assert!(ages.windows(2).all(|two| two[1] < two[0]));
        assert!(ages[count - 1] > HIGHEST_AGE * 9 / 10);
    }

    #[test]
    fn a_connection_that_is_used_all_the_time_ends_at_its_highest_age() {
        let slot = slot(0, 3);
        slot.was_used();

        assert!(!slot.is_worn(minutes(29), 0));
        assert!(slot.is_worn(minutes(31), 0));
    }

    #[test]
    fn a_connection_ends_that_was_idle_for_a_minute_but_a_new_one_was_not() {
        let slot = slot(0, 3);

        assert!(slot.is_worn(minutes(2), 0));
        assert!(!slot.is_worn(Duration::from_secs(59), 0));
        slot.was_used();
        assert!(!slot.is_worn(minutes(2), 0));
    }

    #[test]
    fn a_connection_that_somebody_has_does_not_end() {
        let slot = Arc::new(slot(0, 3));
        let counted = Counted::new(&slot);

        assert!(!slot.is_worn(minutes(31), 0));
        assert!(slot.is_worn(minutes(31), 1));
        drop(counted);
        assert!(slot.is_worn(minutes(31), 0));
    }
}
