// SPDX-License-Identifier: Apache-2.0
//! A connection, and how a query goes over it.
//!
//! ```text
//! prepared statements        bind, execute, sync
//! none, settings to keep     begin | parse, bind, execute, sync | commit      in one go
//! ```
//!
//! Without prepared statements a pooler may stand between, which gives each
//! transaction any of its connections: nothing that a query needs may be left
//! behind by an earlier one. So the settings come with each query, around it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream};
use sparkawait_task::supervision::spawn_aside;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Column, Error, Row, RowStream};

use crate::postgres::connect::{Opened, Place};
use crate::postgres::failure::{Fault, STATEMENT};
use crate::postgres::plan::PlannedQuery;
use crate::postgres::plans::Plans;
use crate::postgres::server::{Rules, Server};

/// A connection and what is known on it.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) plans: Arc<Plans>,
    server: Arc<Server>,
    /// Ends the connection, whatever it is at.
    connection: AbortHandle,
    /// Where it leads.
    place: Place,
    /// When it was opened.
    opened: Instant,
    /// Queries that have it.
    pub(crate) queries: AtomicUsize,
    /// When one of them ended last, in nanoseconds since it was opened.
    used_after: AtomicU64,
    /// Whether the connection was ended, or is about to be.
    is_given_up: AtomicBool,
    /// Whether it is left to those who have it.
    is_retired: AtomicBool,
    /// How often it has said something.
    heard: AtomicU64,
    /// What it allows a statement now, in milliseconds; 0: what is not known.
    milliseconds: AtomicU64,
    /// Held while the parts of a transaction are sent, so that no other comes between.
    order: Mutex<()>,
}

/// The rows of a query that was sent, to be read in the order in which queries were.
pub(crate) struct Answer<'a> {
    session: &'a Session,
    rules: &'a Rules,
    rows: Pin<Box<RowStream>>,
    /// The types that the rows must have; `None`: they are known to.
    columns: Option<&'a [Type]>,
    /// The end of the transaction, already sent.
    commit: Option<Sent<'a, Result<(), Error>>>,
}

impl Session {
    /// Wraps a connection.
    pub(crate) fn new(opened: Opened, plans: Arc<Plans>, server: Arc<Server>) -> Self {
        Self {
            milliseconds: AtomicU64::new(server.milliseconds.unwrap_or_default()),
            client: opened.client,
            plans,
            server,
            connection: opened.connection,
            place: opened.place,
            opened: Instant::now(),
            queries: AtomicUsize::new(0),
            used_after: AtomicU64::new(0),
            is_given_up: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
            heard: AtomicU64::new(0),
            order: Mutex::default(),
        }
    }

    /// Whether we have given it up, or leave it to those who have it.
    pub(crate) fn is_left(&self) -> bool {
        self.is_given_up.load(Ordering::SeqCst) || self.is_retired.load(Ordering::SeqCst)
    }

    /// Returns when a query had it last, or when it was opened.
    pub(crate) fn used(&self) -> Instant {
        self.opened + Duration::from_nanos(self.used_after.load(Ordering::Relaxed))
    }

    /// Notes that a query has ended.
    pub(crate) fn is_used(&self) {
        let after = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.used_after.store(after, Ordering::Relaxed);
    }

    /// Leaves the connection to those who have it: it is of no use to others.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::SeqCst);
    }

    /// Tells the server to end what it is at and closes the connection, if `is_alone` then still
    /// says that nobody else uses it.
    pub(crate) fn give_up_if(self: &Arc<Self>, is_alone: impl FnOnce() -> bool) {
        self.is_given_up.store(true, Ordering::SeqCst);
        let runtime = Handle::try_current();
        if !is_alone() {
            self.is_given_up.store(false, Ordering::SeqCst);
            return;
        }
        match runtime {
            Ok(runtime) => drop(spawn_aside(&runtime, "postgres.cancel", Arc::clone(self).end())),
            Err(_) => self.connection.abort(),
        }
    }

    /// Has the server end all that was sent, and closes the connection.
    ///
    /// A server does not notice a closed connection while it has nothing to say, and a pooler knows
    /// what to cancel only while its client is there. So the connection is closed when what was
    /// sent has ended, if that is before the time to connect is over.
    async fn end(self: Arc<Self>) {
        const TURN: Duration = Duration::from_millis(20);
        let token = self.client.cancel_token();
        let all_ended = async {
            // Answered behind all others.
            let mut last = pin!(self.client.batch_execute(""));
            while let Err(Elapsed { .. }) = timeout(TURN, last.as_mut()).await {
                // One statement each time.
                self.server.cancel(&token, &self.place).await;
            }
        };
        let is_ended = timeout(self.server.limit, all_ended).await.is_ok();
        self.connection.abort();
        if !is_ended {
            // A server that has its client no more ends it with the statement.
            self.server.cancel(&token, &self.place).await;
        }
    }

    /// Waits for something that the server says, and gives the connection up if it says nothing at
    /// all for too long: nobody knows whether it is still there.
    pub(crate) async fn within_limit<T>(
        &self,
        rules: &Rules,
        waiting: impl Future<Output = T>,
    ) -> Result<T, Fault> {
        let mut waiting = pin!(waiting);
        // What is there already costs no timer.
        let polled = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context))).await;
        let said = match (polled, rules.silence) {
            (Poll::Ready(said), _) => return Ok(said),
            (Poll::Pending, None) => waiting.await,
            (Poll::Pending, Some(limit)) => loop {
                let heard = self.heard.load(Ordering::Relaxed);
                if let Ok(said) = timeout(limit, waiting.as_mut()).await {
                    break said;
                }
                // It may be busy with what others asked for before.
                if heard == self.heard.load(Ordering::Relaxed) {
                    self.is_given_up.store(true, Ordering::SeqCst);
                    self.connection.abort();
                    return Err(Fault::transient(format!(
                        "PostgreSQL: the server said nothing for {limit:?}, which is \
                         `statement_timeout` and `connect_timeout`"
                    )));
                }
            },
        };
        self.heard.fetch_add(1, Ordering::Relaxed);
        Ok(said)
    }

    /// Sends a query at its first poll, and returns when the server begins to answer.
    ///
    /// Many may be sent before the first is answered.
    ///
    /// # Cancel safety
    ///
    /// A query that was sent runs to its end, with its transaction.
    pub(crate) async fn send<'a>(
        &'a self,
        rules: &'a Rules,
        query: &'a PlannedQuery,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Answer<'a>, Fault> {
        let (columns, setting) = (query.columns(), self.setting(rules));
        let Some(first) = rules.begin.as_deref().or(setting.as_deref()) else {
            let rows = query.start(&self.client, parameters).await;
            let rows = rows.map_err(|error| Fault::of(STATEMENT, &error))?;
            return Ok(Answer {
                session: self,
                rules,
                rows: Box::pin(rows),
                columns,
                commit: None,
            });
        };
        let (first, rows, commit) = poll_fn(|context| {
            let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
            if setting.is_some() {
                let milliseconds = rules.milliseconds.unwrap_or_default();
                self.milliseconds.store(milliseconds, Ordering::Relaxed);
            }
            let first = Sent::new(self.client.batch_execute(first), context);
            let rows = Sent::new(query.start(&self.client, parameters), context);
            let is_begun = rules.begin.is_some();
            let commit = is_begun.then(|| Sent::new(self.client.batch_execute("commit"), context));
            Poll::Ready((first, rows, commit))
        })
        .await;
        let begun = first.answer().await;
        if begun.is_err() {
            self.milliseconds.store(0, Ordering::Relaxed);
        }
        let rows = rows.answer().await.and_then(|rows| begun.map(|()| rows));
        let rows = rows.map_err(|error| Fault::of(STATEMENT, &error))?;
        Ok(Answer { session: self, rules, rows: Box::pin(rows), columns, commit })
    }

    /// Returns what sets the limit of a statement, where a lookup with another one was here last.
    ///
    /// Only on a connection that was seen to have the settings it was opened with, as all that keep
    /// them were: a pooler would leave this one behind for others.
    fn setting(&self, rules: &Rules) -> Option<String> {
        let milliseconds = rules.milliseconds.filter(|_| rules.begin.is_none())?;
        let is_set = self.milliseconds.load(Ordering::Relaxed) == milliseconds;
        (!is_set).then(|| format!("set statement_timeout = {milliseconds}"))
    }
}

impl Answer<'_> {
    /// Passes each row to `take` as it comes, until that fails.
    pub(crate) async fn read(
        mut self,
        mut take: impl FnMut(&Row) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let session = self.session;
        // A wait for each burst of rows, not for each row.
        let rules = self.rules;
        loop {
            let rows = poll_fn(|context| self.poll_rows(context, &mut take));
            if !session.within_limit(rules, rows).await?? {
                break;
            }
        }
        let Some(commit) = self.commit else { return Ok(()) };
        let committed = session.within_limit(rules, commit.answer()).await?;
        committed.map_err(|error| Fault::of(STATEMENT, &error))
    }

    /// Passes on the rows that are there; returns whether there may be more.
    fn poll_rows(
        &mut self,
        context: &mut Context<'_>,
        take: &mut impl FnMut(&Row) -> Result<(), Fault>,
    ) -> Poll<Result<bool, Fault>> {
        let mut is_any = false;
        loop {
            match self.rows.as_mut().poll_next(context) {
                Poll::Ready(Some(Ok(row))) => {
                    self.check(&row)?;
                    take(&row)?;
                    is_any = true;
                }
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Err(Fault::of(STATEMENT, &error)));
                }
                Poll::Ready(None) => return Poll::Ready(Ok(false)),
                Poll::Pending if is_any => return Poll::Ready(Ok(true)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Looks at the types of the first row, which those of the others are.
    fn check(&mut self, row: &Row) -> Result<(), Fault> {
        let Some(wanted) = self.columns.take() else { return Ok(()) };
        if row.columns().iter().map(Column::type_).eq(wanted) {
            return Ok(());
        }
        Err(Fault::stale_answer("the columns of the statement have other types"))
    }
}

/// A request that was sent by the first poll of its future.
enum Sent<'a, T> {
    Answered(T),
    Backlog(BoxFuture<'a, T>),
}

impl<'a, T> Sent<'a, T> {
    fn new(request: impl Future<Output = T> + Send + 'a, context: &mut Context<'_>) -> Self {
        let mut request = request.boxed();
        match request.poll_unpin(context) {
            Poll::Ready(answer) => Self::Answered(answer),
            Poll::Pending => Self::Backlog(request),
        }
    }

    async fn answer(self) -> T {
        match self {
            Self::Answered(answer) => answer,
            Self::Backlog(request) => request.await,
        }
    }
}
