// SPDX-License-Identifier: Apache-2.0
//! Redis as a lookup table: one command per row, pipelined by the burst.
//!
//! | module | what lives there |
//! |---|---|
//! | `command` | the bytes of a command out of a row's columns |
//! | `resp`, `scanner` | replies out of the bytes that the server sent, piece by piece |
//! | `pack`, `job` | commands that are sent together, and who awaits the replies |
//! | `cancelled` | calls that nobody waits for any more |
//! | `link` | one connection: writes bursts, hands out replies, reconnects |
//! | `server` | where the server is, and how it is talked to |
//! | `connect` | opens a connection: TCP, TLS or a socket |
//! | `login` | what comes first on it: user, database |
//! | `spec`, `answers`, `map` | columns out of the replies to a burst |
//! | `join` | the answers of rows that ask for keys of several slots |
//! | `nodes` | the node of a cluster as the channel of a row |
//! | `router`, `routes`, `redirects`, `refresh`, `slots`, `topology` | which node of a cluster a command goes to |
//! | `exchanges` | one connection to the limits of a job |
//! | `failure` | what a reply that is an error means for its row |
//!
//! A burst is packed on the task thread and answered from the connection's
//! tokio task: there is no task, channel send or timer per row. Links are shared
//! by all tasks of the process.

mod answers;
mod cancelled;
mod command;
mod connect;
pub(crate) mod exchanges;
mod failure;
mod job;
mod join;
mod link;
mod login;
mod map;
mod node_map;
mod nodes;
mod pack;
mod redirects;
mod refresh;
pub(crate) mod resp;
mod router;
mod routes;
pub(crate) mod scanner;
mod server;
pub(crate) mod slots;
mod spec;
pub(crate) mod topology;

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use serde::Deserialize;
use sparkawait_core::operator::AttemptId;
use sparkawait_runtime::AsyncFunction;
use sparkawait_task::channel_finder::ChannelFinder;
use sparkawait_task::error::{StartError, TaskError};
use sparkawait_task::function::{Call, Calls, GROUP_BYTES, TaskFunction};
use sparkawait_task::native::{NativeFunction, Start};
use sparkawait_task::shared::{Lender, Lent};
use tokio::runtime::Handle;

use crate::lookup::{LookupReply, Misses, positions};

use self::cancelled::Cancelled;
use self::command::{Command, CommandRows};
use self::connect::Target;
use self::nodes::Nodes;
use self::pack::{Pack, send_split};
use self::router::Router;
use self::routes::Route;
use self::server::Server;
use self::slots::{is_of_one_slot, slot_of_command};
use self::spec::{Shape, Spec};

/// The servers of this process, by server and options.
static ROUTERS: Lender = Lender::new();

/// Where commands go if there is one node.
const ONLY_ROUTE: Route = Route { node: 0, primary: None };

/// Most calls of one job: small enough that the next one is packed while it is answered.
const CALLS_PER_JOB: usize = 1024;

/// A command that is sent for each row, and what its reply becomes.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedisConfig {
    pub(crate) server: Server,
    /// The command and its arguments, as templates.
    command: Vec<String>,
    /// Names of the options that the arguments were given for, for messages.
    options: Vec<String>,
    shape: Shape,
    misses: Misses,
    /// The columns that were declared as not null.
    #[serde(default)]
    required: Vec<String>,
    /// Whether the command only reads.
    reads: bool,
    /// Whether each argument is the key of a column, so that keys may be asked for apart.
    is_split: bool,
}

// Without address, password and arguments.
sparkawait_core::opaque_debug!(RedisConfig, shape: shape);

impl RedisConfig {
    /// Returns what all tasks of the process share that talk to this server.
    fn router(&self, runtime: &Handle) -> Result<Lent<Arc<Router>>, StartError> {
        let key = self.server.identity()?;
        let router = ROUTERS.lend(&key, runtime, || Router::start(&self.server, runtime))?;
        router.renew(&self.server);
        Ok(router)
    }
}

impl NativeFunction for RedisConfig {
    fn check(&self, input: &SchemaRef, results: &SchemaRef) -> Result<(), StartError> {
        Command::new(&self.command, &self.options, input, self.is_split)?;
        self.shape.check(results)?;
        Target::check(&self.server)
    }

    fn start(&self, start: Start) -> Result<TaskFunction, StartError> {
        let command = Command::new(&self.command, &self.options, &start.input, self.is_split)?;
        let shape = self.shape.check(&start.results)?;
        let router = self.router(&start.runtime)?;
        router.refresh();
        let (misses, schema, replies) = (self.misses, start.results, start.replies);
        let required = positions(&self.required, &schema)?;
        let (reads, cancelled) = (self.reads, Cancelled::default());
        let spec = Spec { shape, misses, schema, required, replies, reads, cancelled };
        let spec = Arc::new(spec);
        Ok(Box::new(Redis { router, command, spec }))
    }

    fn channel_finder(
        &self,
        input: &SchemaRef,
        runtime: &Handle,
    ) -> Result<Option<Arc<dyn ChannelFinder>>, StartError> {
        if !self.server.cluster {
            return Ok(None);
        }
        let router = self.router(runtime)?;
        let (command, options) = (&self.command, &self.options);
        let nodes = Nodes::new(Arc::clone(&router), command, options, input, self.is_split)?;
        router.wait_for_nodes();
        Ok(Some(Arc::new(nodes)))
    }
}

/// The function of one task.
struct Redis {
    router: Lent<Arc<Router>>,
    command: Command,
    spec: Arc<Spec>,
}

impl Redis {
    fn send(&self, calls: &Calls) -> Result<(), TaskError> {
        let rows = self.command.rows(calls)?;
        for part in calls.calls.chunks(CALLS_PER_JOB) {
            // Calls that cannot be sent as one command: with a null, or keys of several slots.
            let mut others = Vec::new();
            if self.router.is_cluster() {
                for (route, pack) in self.pack_by_node(&rows, part, &mut others) {
                    pack.send(&self.router, &self.spec, route, None)?;
                }
            } else {
                let bytes = Vec::with_capacity(part.len() * self.command.size_hint());
                let mut pack = Pack { bytes, ..Pack::default() };
                for call in part {
                    if rows.write(call, &mut pack.bytes) {
                        pack.attempts.push(call.attempt);
                    } else {
                        others.push(*call);
                    }
                    if pack.bytes.len() > GROUP_BYTES {
                        take(&mut pack).send(&self.router, &self.spec, ONLY_ROUTE, None)?;
                    }
                }
                pack.send(&self.router, &self.spec, ONLY_ROUTE, None)?;
            }
            self.send_others(&rows, &others)?;
        }
        Ok(())
    }

    fn send_others(&self, rows: &CommandRows<'_>, calls: &[Call]) -> Result<(), TaskError> {
        if calls.is_empty() {
            return Ok(());
        }
        let nulls = match self.command.split() {
            Some(name) => send_split(&self.router, &self.spec, name, rows, calls)?,
            None => calls.iter().map(|call| call.attempt).collect(),
        };
        if !nulls.is_empty() {
            let Spec { misses, schema, replies, .. } = &*self.spec;
            replies.send(LookupReply::null_keys(*misses, schema, &nulls)?);
        }
        Ok(())
    }

    fn pack_by_node(
        &self,
        rows: &CommandRows<'_>,
        part: &[Call],
        others: &mut Vec<Call>,
    ) -> Vec<(Route, Pack)> {
        let routes = self.router.routes();
        let (mut packs, mut full) = (BTreeMap::<Route, Pack>::new(), Vec::new());
        let mut bytes = Vec::new();
        for call in part {
            bytes.clear();
            let is_written = rows.write(call, &mut bytes);
            if !is_written || (self.command.split().is_some() && !is_of_one_slot(&bytes)) {
                others.push(*call);
                continue;
            }
            let route = routes.of(slot_of_command(&bytes), rows.channel(call));
            let pack = packs.entry(route).or_default();
            pack.bytes.extend_from_slice(&bytes);
            pack.ends.push(pack.bytes.len());
            pack.attempts.push(call.attempt);
            if pack.bytes.len() > GROUP_BYTES {
                full.push((route, take(pack)));
            }
        }
        // Those that are full were asked for first.
        full.into_iter().chain(packs).collect()
    }
}

impl AsyncFunction<Calls> for Redis {
    fn invoke(&mut self, calls: Calls) {
        if let Err(error) = self.send(&calls) {
            self.spec.replies.fail(error);
        }
    }

    fn ask_timeout(&mut self, _calls: Calls) {
        // It declares no timeout handler, so it is never asked.
    }

    fn cancel(&mut self, attempts: Vec<AttemptId>) {
        // The server answers a command that was sent, and the operator ignores the answer; but a
        // server that is silent may be gone.
        self.spec.cancelled.add(attempts);
    }

    fn close(&mut self) {}
}
