// SPDX-License-Identifier: Apache-2.0
//! Calls to HTTP services: one request a row, its response as result columns.
//!
//! ```text
//!   rows -> requests -> running -> ended -> replies
//!          request.rs   engine.rs, call.rs  results.rs
//! ```
//!
//! No more calls come than `connections` says: the operator is the only line that
//! rows wait in. All calls of a task live in one tokio task; the clients and their connections
//! belong to the process, as many to a host as its calls need (`clients.rs`). Responses that are there at the same moment are
//! decoded together and leave by one reply.

mod address;
mod body;
mod call;
mod client;
mod clients;
mod engine;
pub(crate) mod failure;
mod hosts;
mod json_cells;
mod redirects;
mod request;
mod results;
mod variant;

use std::fmt;

use arrow::datatypes::SchemaRef;
use serde::Deserialize;
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::error::StartError;
use sparkawait_task::function::TaskFunction;
use sparkawait_task::native::{NativeFunction, Start};

pub use self::address::HostColumns;
use self::address::check_address;
use self::body::Body;
use self::call::CallRules;
use self::client::ClientSettings;
use self::engine::Engine;
use self::failure::host_label;
use self::request::{IdempotencyKey, RequestTemplates, repeats};
use self::results::ResultColumns;
use crate::lookup::Misses;
use crate::reply_budget::ReplyBudget;

/// What an HTTP function calls, and what it makes of the responses.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    method: String,
    url: String,
    #[serde(default)]
    query: Vec<(String, String)>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: Option<Body>,
    /// The hosts that rows may name; any if there are none.
    #[serde(default)]
    allow_hosts: Option<Vec<String>>,
    #[serde(default)]
    idempotency_key: Option<IdempotencyKey>,
    returns: Returns,
    #[serde(default)]
    rows: Option<String>,
    #[serde(default)]
    paths: Vec<(String, String)>,
    /// The columns of the body that were declared as not null.
    #[serde(default)]
    required: Vec<String>,
    /// Whether a column has the status.
    #[serde(default)]
    status: bool,
    /// The headers of the response that have a column each, in their order.
    #[serde(default)]
    response_headers: Vec<String>,
    /// First and last status of each range that is a success.
    success: Vec<(u16, u16)>,
    /// Statuses that mean that there is nothing.
    #[serde(default)]
    missing: Vec<u16>,
    #[serde(default)]
    misses: Misses,
    /// Requests at a time.
    connections: usize,
    max_response_bytes: usize,
    /// Most redirections to follow.
    redirects: usize,
    client: ClientSettings,
}

/// What becomes of the body of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Returns {
    /// Rows of JSON.
    Json,
    /// One column of text or bytes, as its type says.
    Body,
    /// Nothing.
    Nothing,
}

impl fmt::Debug for HttpConfig {
    /// Without addresses, headers and bodies, which may hold tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConfig")
            .field("method", &self.method)
            .field("returns", &self.returns)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl HttpConfig {
    /// Reads a description.
    ///
    /// # Errors
    ///
    /// It is no description of an HTTP function.
    pub fn from_json(description: &str) -> Result<Self, StartError> {
        // The message of the parser may quote a value, and values may be secret.
        serde_json::from_str(description).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            StartError::option(format!(
                "the description of an HTTP function is wrong at {line}:{column}"
            ))
        })
    }

    /// Reads the rules that do not depend on the input.
    fn rules(&self) -> Result<CallRules, StartError> {
        Ok(CallRules {
            success: self.success.clone(),
            missing: self.missing.clone(),
            reads_body: self.returns != Returns::Nothing,
            max_response_bytes: self.max_response_bytes,
            response_headers: call::header_names(&self.response_headers)?,
            redirects: self.redirects,
            repeats: repeats(self),
            host: host_label(&self.url),
            budget: ReplyBudget::of_task(),
        })
    }

    fn columns(&self, schema: &SchemaRef) -> Result<ResultColumns, StartError> {
        ResultColumns::new(
            SchemaRef::clone(schema),
            self.returns,
            self.rows.as_deref(),
            &self.paths,
            &self.required,
            self.status,
            self.response_headers.len(),
            self.misses,
        )
    }
}

impl NativeFunction for HttpConfig {
    fn check(&self, input: &SchemaRef, results: &SchemaRef) -> Result<(), StartError> {
        check_address(&self.url)?;
        self.columns(results)?;
        self.rules()?;
        RequestTemplates::new(self, input)?;
        self.client.check()
    }

    fn concurrency(&self) -> Result<Concurrency, StartError> {
        // Clients make as many connections as there are calls, so no task takes those of another.
        Ok(Concurrency::of_task(self.connections))
    }

    fn start(&self, start: Start) -> Result<TaskFunction, StartError> {
        let columns = self.columns(&start.results)?;
        let clients = self.client.clients(&start.runtime)?;
        let requests = RequestTemplates::new(self, &start.input)?;
        let rules = self.rules()?;
        Ok(Box::new(Engine::start(clients, requests, rules, columns, start)))
    }
}
