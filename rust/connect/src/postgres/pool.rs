// SPDX-License-Identifier: Apache-2.0
//! The connections of a process to one server, shared by all tasks in it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sparkawait_task::error::StartError;
use sparkawait_task::shared::{Lender, Lent};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::pool::{self, Condition, Connection, Dial, Pool as Connections, Wish};
use crate::postgres::failure::Fault;
use crate::postgres::plan::{Plan, Request};
use crate::postgres::plans::Plans;
use crate::postgres::server::{Server, ServerConfig};
use crate::postgres::session::Session;

/// The pools of this process.
static POOLS: Lender = Lender::new();

/// What lookups in one server share.
pub(crate) struct Pool {
    connections: Arc<Connections<Login>>,
    /// A permit for each connection: queries of all lookups share them.
    pub(crate) permits: Arc<Semaphore>,
    runtime: Handle,
}

/// How connections are made.
struct Login {
    server: Arc<Server>,
    /// Plans that hold for any connection; empty if each has its own.
    plans: Arc<Plans>,
}

impl Dial for Login {
    type Connection = Arc<Session>;
    type Failure = Fault;

    const NAME: &'static str = "postgres.connecting";

    async fn dial(&self) -> Result<Arc<Session>, Fault> {
        let opened = self.server.connect().await?;
        let keeps = self.server.keeps_statements;
        let plans = if keeps { Arc::default() } else { Arc::clone(&self.plans) };
        Ok(Arc::new(Session::new(opened, plans, Arc::clone(&self.server))))
    }

    fn panicked() -> Fault {
        Fault::unsent("PostgreSQL: connecting panicked; the log says why")
    }
}

/// A query has a connection for itself, unless the server allows too few.
impl Connection for Arc<Session> {
    type Room = Lease;

    fn condition(&mut self) -> Condition {
        if self.is_left() {
            Condition::Spent
        } else if self.client.is_closed() {
            Condition::Closed
        } else {
            Condition::Good
        }
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn enter(&mut self) -> Option<Lease> {
        if self.load() > 0 { None } else { self.squeeze() }
    }

    fn squeeze(&mut self) -> Option<Lease> {
        let lease = Lease::new(self);
        // Seen here, or the one who gives it up sees this query in the count.
        (!self.is_left()).then_some(lease)
    }

    fn load(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }

    fn idle_since(&self, _kept: Instant) -> Option<Instant> {
        (self.load() == 0).then(|| self.used())
    }
}

/// The use of a connection; counted until it is dropped.
pub(crate) struct Lease(Arc<Session>);

impl Lease {
    fn new(session: &Arc<Session>) -> Self {
        session.queries.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(session))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.is_used();
        self.0.queries.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Pool {
    /// Returns the pool of this process for `config`.
    pub(crate) fn shared(
        config: &ServerConfig,
        runtime: &Handle,
    ) -> Result<Lent<Self>, StartError> {
        let pool = POOLS.lend(&config.identity()?, runtime, || {
            let (server, plans) = (Arc::new(config.server()?), Arc::default());
            let connections = Connections::new(Login { server, plans }, Some(1));
            let permits = Arc::new(Semaphore::new(config.connections.max(1)));
            Ok::<_, StartError>(Self { connections, permits, runtime: runtime.clone() })
        })?;
        pool.connections.dial().server.renew(config);
        Ok(pool)
    }

    /// Returns a connection that no query has, or the one with the fewest where the server allows no
    /// other. `careful`: the query must not be sent twice.
    pub(crate) async fn lease(&self, careful: bool) -> Result<Lease, Fault> {
        match self.connections.take(Wish { is_new: false, careful }).await? {
            pool::Lease::Room(lease) => Ok(lease),
            pool::Lease::Whole(kept) => Ok(Lease::new(&kept.connection)),
        }
    }

    /// Returns what to send for a statement on a connection.
    pub(crate) async fn plan(
        &self,
        lease: &Lease,
        request: &Arc<Request>,
        silence: Option<Duration>,
    ) -> Result<Arc<Plan>, Fault> {
        let (session, server) = (&lease.0, &self.connections.dial().server);
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
        let session = &self.0.0;
        session.give_up_if(|| session.load() == 1);
    }
}

impl Deref for Lease {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}
