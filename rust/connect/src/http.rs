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
mod config;
mod engine;
pub(crate) mod failure;
mod hosts;
mod json_cells;
mod json_text;
mod redirects;
mod request;
mod results;
mod variant;

use arrow::datatypes::SchemaRef;
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::error::StartError;
use sparkawait_task::function::TaskFunction;
use sparkawait_task::native::{NativeFunction, Start};

pub use self::address::HostColumns;
use self::address::check_address;
use self::call::CallRules;
use self::clients::Clients;
pub use self::config::HttpConfig;
use self::config::Returns;
use self::engine::Engine;
use self::failure::host_label;
use self::request::{RequestTemplates, repeats};
use self::results::ResponseColumns;
use crate::reply_budget::ReplyBudget;

impl HttpConfig {
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

    fn columns(&self, schema: &SchemaRef) -> Result<ResponseColumns, StartError> {
        ResponseColumns::new(
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
        let clients = Clients::of_this_process(&self.client, &start.runtime)?;
        let requests = RequestTemplates::new(self, &start.input)?;
        let rules = self.rules()?;
        Ok(Box::new(Engine::start(clients, requests, rules, columns, start)))
    }
}
