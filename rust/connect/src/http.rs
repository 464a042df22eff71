// SPDX-License-Identifier: Apache-2.0
//! Calls to HTTP services: a request a row, or for many of them, its response as result columns.
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
mod again;
mod answers;
mod auth;
mod aws_error;
mod batch;
mod batch_config;
mod body;
mod call;
mod charset;
mod client;
mod clients;
mod config;
mod connect;
mod engine;
pub(crate) mod failure;
mod fields;
mod guard;
mod hosts;
mod http1;
mod http2;
mod json_cells;
mod json_text;
mod oauth;
mod origin;
mod packed;
mod protocol;
mod proxies;
mod redirects;
mod reply;
mod request;
mod results;
mod sending;
mod sigv4;
mod variant;
mod watch;
mod wire;

use std::sync::Arc;

use ::http::Method;
use arrow::datatypes::SchemaRef;
use sparkawait_core::operator::Begins;
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::error::StartError;
use sparkawait_task::function::{GROUP_BYTES, TaskFunction};
use sparkawait_task::native::{NativeFunction, Start};
use tokio::sync::Semaphore;

pub(crate) use self::address::HostColumns;
use self::address::check_address;
use self::answers::Answers;
use self::auth::{Auth, AuthConfig};
use self::batch::{BatchEngine, BatchTemplates, Batched, Companies, ItemReader, Most, Overlong};
use self::call::CallRules;
use self::charset::Reads;
use self::clients::Clients;
pub(crate) use self::config::HttpConfig;
use self::config::Returns;
use self::engine::Engine;
use self::failure::host_label;
use self::hosts::AllowedHosts;
use self::redirects::RedirectRules;
use self::request::{RequestTemplates, header_name, retry_statuses};
use self::results::ResponseColumns;
use crate::reply_budget::ReplyBudget;
use crate::requests::Requests;

/// Bytes that the rows of responses may come to, beside what is in these, for each that a response may
/// have: the elements of `[{},{},{}]` say nothing, and each is a row of all columns.
const MADE_OF_READ: usize = 16;

impl HttpConfig {
    /// Reads the rules that do not depend on the input.
    fn rules(
        &self,
        has_channels: bool,
        wants_limits: bool,
        auth: Option<Auth>,
    ) -> Result<CallRules, StartError> {
        let pauses = has_channels || !HostColumns::of(&self.url)?.differ();
        let allowed = self.allow_hosts.as_deref();
        let allowed = allowed.map(|hosts| AllowedHosts::parse(hosts, &self.url)).transpose()?;
        let headers = self.response_headers.iter().map(|it| header_name(it));
        Ok(CallRules {
            success: self.success.clone(),
            missing: self.missing.clone(),
            reads: match self.returns {
                Returns::Json => Reads::Json,
                Returns::Body => Reads::Bytes,
                Returns::Nothing => Reads::Nothing,
            },
            max_response_bytes: self.max_response_bytes,
            response_headers: headers.collect::<Result<_, _>>()?,
            redirects: RedirectRules { most: self.redirects, allowed },
            auth,
            retry_statuses: retry_statuses(self),
            pauses,
            reads_limits: pauses && wants_limits,
            host: host_label(&self.url),
            budget: ReplyBudget::of_task(),
            silence: self.client.silence()?,
        })
    }

    fn rules_of(&self, clients: &Arc<Clients>, start: &Start) -> Result<CallRules, StartError> {
        let (auth, readers) = (self.auth.as_ref(), self.readers());
        let auth = Auth::start(auth, &self.headers, &readers, clients, &start.runtime)?;
        let rules =
            self.rules(start.channel_share.is_some(), start.replies.wants_limits(), auth)?;
        let is_text = rules.reads == Reads::Bytes && !is_bytes(&start.results);
        Ok(CallRules { reads: if is_text { Reads::Text } else { rules.reads }, ..rules })
    }

    fn columns(&self, schema: &SchemaRef) -> Result<ResponseColumns, StartError> {
        // Of a batched request it says where the items are, and each of them is one row.
        let rows = self.rows.as_deref().filter(|_| self.batch.is_none());
        let columns = ResponseColumns::new(
            SchemaRef::clone(schema),
            self.returns,
            rows,
            &self.paths,
            &self.required,
            self.blank,
            self.status,
            self.response_headers.len(),
            self.max_response_bytes.max(GROUP_BYTES).saturating_mul(MADE_OF_READ),
            self.misses,
        )?;
        Ok(if self.batch.is_some() { columns.one_each() } else { columns })
    }

    /// Reads what puts rows together into requests and takes replies apart; `None` if requests are of
    /// one row.
    fn batched(&self, start: &Start) -> Result<Option<Batched>, StartError> {
        let Some(batch) = &self.batch else { return Ok(None) };
        let Some(templates) = BatchTemplates::new(self, &start.input)? else { return Ok(None) };
        let Some(items) = ItemReader::new(self)? else { return Ok(None) };
        let most = Most {
            rows: batch.max_rows.max(1),
            bytes: batch.max_bytes.unwrap_or(GROUP_BYTES),
            linger: batch.linger(),
            are_named: batch.id.as_ref().is_some_and(|id| id.template.is_some()),
        };
        let is_keyed = retry_statuses(self).is_keyed;
        let method = Method::from_bytes(self.method.as_bytes());
        Ok(Some(Batched {
            templates,
            items,
            most,
            splits: batch.split_on_error,
            overlong: if batch.halve_texts { Overlong::IsHalved } else { Overlong::Fails },
            is_keyed,
            is_repeatable: is_keyed || method.is_ok_and(|it| it.is_idempotent()),
            companies: Companies::default(),
            again: std::sync::Mutex::default(),
        }))
    }

    fn answers(&self, start: &Start) -> Result<Answers, StartError> {
        Ok(Answers {
            columns: self.columns(&start.results)?,
            host: host_label(&self.url),
            replies: start.replies.clone(),
            are_of_channel: HostColumns::of(&self.url)?.differ(),
        })
    }
}

/// Whether a body, which is the first column of the results, is handed on as it came.
fn is_bytes(results: &SchemaRef) -> bool {
    results.fields().first().is_none_or(|it| it.data_type().is_binary())
}

impl NativeFunction for HttpConfig {
    fn check(&self, input: &SchemaRef, results: &SchemaRef) -> Result<(), StartError> {
        check_address(&self.url)?;
        self.columns(results)?;
        self.rules(false, false, None)?;
        self.auth.as_ref().map_or(Ok(()), AuthConfig::check)?;
        RequestTemplates::new(self, input)?;
        BatchTemplates::new(self, input)?;
        ItemReader::new(self)?;
        self.client.check()
    }

    fn concurrency(&self) -> Result<Concurrency, StartError> {
        // Clients make as many connections as there are calls, so no task takes those of another.
        let rows = self.batch.as_ref().map_or(1, |it| it.max_rows.max(1));
        let calls = self.connections.saturating_mul(rows);
        Ok(Concurrency::of_task(calls).beginning(Begins::WhenSaid))
    }

    fn start(&self, start: Start) -> Result<TaskFunction, StartError> {
        let clients = Clients::of_this_process(&self.client, &start.runtime)?;
        let (answers, rules) = (self.answers(&start)?, self.rules_of(&clients, &start)?);
        let Some(batched) = self.batched(&start)? else {
            let requests = RequestTemplates::new(self, &start.input)?;
            return Ok(Box::new(Engine::start(clients, requests, rules, answers, start)));
        };
        let requests = self.connections.max(1);
        let of_channel = start.channel_share.map_or(requests, |share| share.of(requests));
        let permits = Arc::new(Semaphore::new(requests));
        let engine = BatchEngine { clients, batched, rules: Arc::new(rules), answers };
        Ok(Box::new(Requests::start(engine, of_channel, permits, &start.runtime)))
    }
}
