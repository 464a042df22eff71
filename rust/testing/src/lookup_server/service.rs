// SPDX-License-Identifier: Apache-2.0
//! From a request to its response.

use std::future::pending;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use serde_json::{Map, Value};

use super::faults::{Fate, FaultInjector};
use super::query::{self, BadQuery, Keys, Query};
use super::stats::{Counters, Stats};
use super::tables::{Tables, find_many};
use crate::counters::increment;
use crate::latency::{self, LatencySampler};
use crate::listener::{Answers, ResetConnection};

/// Where the counters are.
const STATS_PATH: &str = "/-/stats";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What the handle and the server's thread share.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) tables: Tables,
    pub(super) counters: Counters,
    settings: Mutex<Settings>,
}

/// What can be changed while the server runs.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) latency: LatencySampler,
    pub(super) faults: FaultInjector,
}

impl Answers for Service {
    const NAME: &'static str = "lookup-server";

    /// Answers one request, late or badly if its fate is so.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future counts the request as no longer in flight.
    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, ResetConnection> {
        if request.uri().path() == STATS_PATH {
            return Ok(respond(StatusCode::OK, stats_json(&self.counters.read())));
        }
        let _in_flight = self.counters.enter();
        let (parts, body) = request.into_parts();
        // The whole request is read before it may stall: hyper notices that the
        // client went away only while it has nothing left to read.
        let query = match query::read(&parts, body).await {
            Ok(query) => query,
            Err(BadQuery(status)) => return Ok(refuse(status)),
        };
        let (fate, delay) = self.draw();
        if let Fate::Reject { retry_after } = fate {
            increment(&self.counters.rejected);
            return Ok(reject(retry_after));
        }
        latency::sleep(delay).await;
        self.settle(fate, &query).await
    }
}

impl Service {
    /// Makes a service without tables.
    pub(super) fn new(settings: Settings) -> Self {
        let settings = Mutex::new(settings);
        Self { tables: Tables::default(), counters: Counters::default(), settings }
    }

    /// Gives access to latency and faults.
    pub(super) fn settings(&self) -> MutexGuard<'_, Settings> {
        // Nothing panics while the lock is held, so poison carries no news.
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides what happens to a request, and when.
    fn draw(&self) -> (Fate, Duration) {
        let mut settings = self.settings();
        (settings.faults.next(Instant::now()), settings.latency.sample())
    }

    /// Does what the fate of a request says, after its delay.
    async fn settle(
        &self,
        fate: Fate,
        query: &Query<'_>,
    ) -> Result<Response<Full<Bytes>>, ResetConnection> {
        match fate {
            Fate::Answer => Ok(self.look_up(query)),
            Fate::Stall => {
                increment(&self.counters.stalled);
                pending().await
            }
            Fate::Reset => {
                increment(&self.counters.reset);
                Err(ResetConnection)
            }
            Fate::Error | Fate::Reject { .. } => {
                increment(&self.counters.errors);
                Ok(refuse(StatusCode::INTERNAL_SERVER_ERROR))
            }
        }
    }

    fn look_up(&self, query: &Query<'_>) -> Response<Full<Bytes>> {
        let table = self.tables.find(&query.table);
        match (&query.keys, table) {
            (Keys::One(key), Some(table)) => match table.get(key.as_ref()) {
                Some(value) => {
                    increment(&self.counters.hits);
                    respond(StatusCode::OK, value.clone())
                }
                None => self.miss(1),
            },
            (Keys::One(_), None) => self.miss(1),
            (Keys::Many(keys), None) => self.miss(keys.len()),
            (Keys::Many(keys), Some(table)) => {
                let values = find_many(&table, keys);
                self.counters.hits.fetch_add(values.hits as u64, Relaxed);
                self.counters.misses.fetch_add((keys.len() - values.hits) as u64, Relaxed);
                respond(StatusCode::OK, values.json)
            }
        }
    }

    fn miss(&self, keys: usize) -> Response<Full<Bytes>> {
        self.counters.misses.fetch_add(keys as u64, Relaxed);
        refuse(StatusCode::NOT_FOUND)
    }
}

fn respond(status: StatusCode, json: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(json));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Answers with a status and its reason.
fn refuse(status: StatusCode) -> Response<Full<Bytes>> {
    let reason = status.canonical_reason().unwrap_or_default();
    respond(status, Bytes::from(format!("{{\"error\":\"{reason}\"}}")))
}

/// Answers that the client is too fast. The header has whole seconds only, so
/// the wait is rounded up.
fn reject(retry_after: Duration) -> Response<Full<Bytes>> {
    let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
    let mut response = refuse(StatusCode::TOO_MANY_REQUESTS);
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    response
}

fn stats_json(stats: &Stats) -> Bytes {
    let fields = stats.fields().map(|(name, count)| (name.to_owned(), Value::from(count)));
    Bytes::from(Value::Object(fields.collect::<Map<_, _>>()).to_string())
}
