// SPDX-License-Identifier: Apache-2.0
//! Redis as a lookup table: one command per row, pipelined by the burst.
//!
//! | module | what lives there |
//! |---|---|
//! | `command` | the bytes of a command out of a row's columns |
//! | `resp` | replies out of the bytes that the server sent |
//! | `link` | one connection: writes bursts, hands out replies, reconnects |
//! | `connect` | opens a connection: TCP, TLS or a socket, user, database |
//! | `answers` | columns out of the replies to a burst |
//! | `failure` | what a reply that is an error means for its row |
//!
//! A burst is packed on the task thread and answered from the connection's
//! tokio task: there is no task, channel send or timer per row. Links are shared
//! by all tasks of the process.

mod answers;
mod command;
mod connect;
mod failure;
mod link;
mod resp;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use serde::Deserialize;
use sparkawait_core::operator::AttemptId;
use sparkawait_runtime::AsyncFunction;

use crate::error::TaskError;
use crate::function::{Calls, Replies, TaskFunction};
use crate::lookup::Misses;
use crate::native::{NativeFunction, Start, StartError};
use crate::shared::Shared;

use self::answers::{Answers, Shape, null_keys};
use self::command::Command;
use self::connect::Target;
use self::link::{Job, Link};

/// The links of this process, by server and options.
static LINKS: Shared = Shared::new();

/// Most calls of one job: small enough that the next one is packed while it is answered.
const CALLS_PER_JOB: usize = 1024;

/// A command that is sent for each row, and what its reply becomes.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    server: Server,
    /// The command and its arguments, as templates.
    command: Vec<String>,
    /// Names of the options that the arguments were given for, for messages.
    options: Vec<String>,
    shape: Shape,
    misses: Misses,
}

/// Where the server is, and how it is talked to.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    url: String,
    username: Option<String>,
    password: Option<String>,
    database: Option<i64>,
    /// PEM texts: roots instead of the system's, and a certificate with its key.
    ca: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    connections: usize,
    connect_timeout: f64,
    idle_timeout: f64,
}

impl fmt::Debug for RedisConfig {
    /// Without address, password and arguments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl RedisConfig {
    /// Reads a description.
    ///
    /// # Errors
    ///
    /// It is not one. The message quotes no value.
    pub fn from_json(description: &str) -> Result<Self, StartError> {
        serde_json::from_str(description).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            StartError::option(format!("the description of Redis is wrong at {line}:{column}"))
        })
    }
}

impl Server {
    /// What links are shared by: everything that makes a difference.
    fn identity(&self) -> String {
        format!(
            "{:?}",
            (
                (&self.url, &self.username, &self.password, &self.database),
                (&self.ca, &self.certificate, &self.key),
                (self.connections, self.connect_timeout.to_bits(), self.idle_timeout.to_bits()),
            )
        )
    }
}

/// The links to one server.
struct Links {
    links: Vec<Link>,
    next: AtomicUsize,
}

impl Links {
    /// Returns the link whose turn it is.
    fn next(&self) -> &Link {
        &self.links[self.next.fetch_add(1, Ordering::Relaxed) % self.links.len()]
    }
}

impl NativeFunction for RedisConfig {
    fn start(&self, start: Start) -> Result<TaskFunction, StartError> {
        let command = Command::new(&self.command, &self.options, &start.input)?;
        let shape = self.shape.check(&start.results)?;
        let links = LINKS.get_or_make(&self.server.identity(), || {
            let target = Arc::new(Target::new(&self.server)?);
            let idle = seconds(self.server.idle_timeout, "idle_timeout")?;
            let connect = || Link::start(&start.runtime, Arc::clone(&target), idle);
            let links = (0..self.server.connections.max(1)).map(|_| connect()).collect();
            Ok::<_, StartError>(Links { links, next: AtomicUsize::new(0) })
        })?;
        Ok(Box::new(Redis {
            links,
            command,
            shape,
            misses: self.misses,
            results: start.results,
            replies: start.replies,
        }))
    }
}

/// Reads a positive number of seconds.
fn seconds(value: f64, option: &str) -> Result<Duration, StartError> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|it| !it.is_zero())
        .ok_or_else(|| StartError::option(format!("`{option}` must be positive, got {value}")))
}

/// The function of one task.
struct Redis {
    links: Arc<Links>,
    command: Command,
    shape: Shape,
    misses: Misses,
    results: SchemaRef,
    replies: Replies,
}

impl Redis {
    fn send(&self, calls: &Calls) -> Result<(), TaskError> {
        let rows = self.command.rows(calls)?;
        let mut nulls = Vec::new();
        for part in calls.calls.chunks(CALLS_PER_JOB) {
            let mut bytes = Vec::with_capacity(part.len() * self.command.size_hint());
            let mut attempts = Vec::with_capacity(part.len());
            for call in part {
                if rows.write(call, &mut bytes) {
                    attempts.push(call.attempt);
                } else {
                    nulls.push(call.attempt);
                }
            }
            if attempts.is_empty() {
                continue;
            }
            let (schema, replies) = (SchemaRef::clone(&self.results), self.replies.clone());
            let answers = Answers::new(self.shape.clone(), self.misses, schema, replies, attempts)?;
            self.links.next().send(Job { bytes, answers });
        }
        if !nulls.is_empty() {
            self.replies.send(null_keys(self.misses, &self.results, &nulls));
        }
        Ok(())
    }
}

impl AsyncFunction<Calls> for Redis {
    fn invoke(&mut self, calls: Calls) {
        if let Err(error) = self.send(&calls) {
            self.replies.fail(error);
        }
    }

    fn ask_timeout(&mut self, _calls: Calls) {
        // It declares no timeout handler, so it is never asked.
    }

    fn cancel(&mut self, _attempts: Vec<AttemptId>) {
        // The server answers a command that was sent; the operator ignores the answer.
    }

    fn close(&mut self) {}
}
