// SPDX-License-Identifier: Apache-2.0
//! Lookups in PostgreSQL by a statement with placeholders.
//!
//! Rows wait for a free connection as [`requests`](crate::requests) has it, in lines of their channel.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use serde::Deserialize;
use sparkawait_core::ErrorKind;
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::error::StartError;
use sparkawait_task::function::{GROUP_BYTES, TaskFunction};
use sparkawait_task::native::{NativeFunction, Start, column_index};
use tokio_postgres::types::Type;

use crate::lookup::{Misses, positions};
use crate::postgres::backlog::{Backlog, Most, NullArgs};
use crate::postgres::convert::Argument;
use crate::postgres::most_found::MostFound;
use crate::postgres::placeholders::Placeholders;
use crate::postgres::plan::Request;
use crate::postgres::pool::Pool;
use crate::postgres::query::Lookup;
use crate::postgres::server::ServerConfig;
use crate::requests::Requests;

mod arguments;
mod backlog;
mod columns;
mod connect;
mod convert;
mod describe;
mod dsn;
mod exact_cast;
mod failure;
mod found_rows;
mod keys;
mod literals;
mod most_found;
mod numeric;
mod outputs;
mod parts;
pub(crate) mod placeholders;
mod plan;
mod plans;
mod pool;
mod query;
mod server;
mod session;
mod types;

pub(crate) use describe::describe;

/// What a lookup does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PostgresConfig {
    /// The server.
    pub(crate) server: ServerConfig,
    /// With `$1`, `$2`, ..
    statement: String,
    /// The columns that take their places.
    args: Vec<String>,
    /// What becomes of rows that find nothing.
    #[serde(default)]
    misses: Misses,
    /// What becomes of rows with a null argument.
    #[serde(default)]
    null_args: NullArgs,
    /// The columns that what is found must not leave null.
    #[serde(default)]
    required: Vec<String>,
    /// Most bytes that are read for one row.
    max_reply_bytes: usize,
    /// Most rows in one query; 1 for a query each.
    batch: usize,
    /// The types of the placeholders, where the driver has asked the server for them.
    #[serde(default)]
    parameters: Vec<u32>,
}

impl NativeFunction for PostgresConfig {
    fn check(&self, input: &SchemaRef, results: &SchemaRef) -> Result<(), StartError> {
        let arguments = self.arguments(input)?.into_iter().zip(&self.args);
        for ((column, name), parameter) in arguments.zip(&self.parameters) {
            // Of others, which are not built into the server, only that knows what they are.
            if let Some(of) = Type::from_oid(*parameter) {
                Argument::new(name, input.field(column).data_type(), &of)
                    .map_err(|refused| refused.start_error())?;
            }
        }
        if let Some(void) = results.fields().iter().find(|it| *it.data_type() == DataType::Null) {
            return Err(StartError {
                kind: ErrorKind::TypeRefused,
                message: format!(
                    "`schema` has column `{}` as void, which no value can become; declare another type",
                    void.name()
                ),
            });
        }
        let (wanted, given) = (Placeholders::find(&self.statement).count(), self.args.len());
        if wanted != given {
            return Err(StartError::option(plan::uneven(wanted, given)));
        }
        self.server.check()
    }

    fn concurrency(&self) -> Result<Concurrency, StartError> {
        let calls = self.server.connections.max(1).saturating_mul(self.most_rows());
        Ok(Concurrency::of(format!("postgres {}", self.server.identity()?), calls))
    }

    fn start(&self, start: Start) -> Result<TaskFunction, StartError> {
        let arguments = self.arguments(&start.input)?;
        let types: Vec<DataType> =
            arguments.iter().map(|column| start.input.field(*column).data_type().clone()).collect();
        let connections = self.server.connections.max(1);
        let queries = start.channel_share.map_or(connections, |share| share.of(connections));
        let most =
            Most { rows: self.most_rows(), bytes: GROUP_BYTES, row_bytes: MOST_ARGUMENT_BYTES };
        let required = positions(&self.required, &start.results)?;
        let request = Request {
            key: self.key(&types, &start.results),
            statement: self.statement.clone(),
            arguments: self.args.iter().cloned().zip(types).collect(),
            schema: start.results,
            wants_batches: self.batch > 1,
            keeps: self.server.prepare,
        };
        let lookup = Lookup {
            backlog: Backlog::new(arguments, self.null_args, most),
            request: Arc::new(request),
            required,
            misses: self.misses,
            reads: !self.server.writes,
            most_found: MostFound::of_row(self.max_reply_bytes),
            rules: self.server.rules()?,
            pool: Pool::shared(&self.server, &start.runtime)?,
            replies: start.replies,
        };
        let permits = Arc::clone(&lookup.pool.permits);
        Ok(Box::new(Requests::start(lookup, queries, permits, &start.runtime)))
    }
}

/// What the arguments of a row may come to: a message to the server has less than 1 GiB.
const MOST_ARGUMENT_BYTES: usize = 1_000_000_000;

/// Statements for one row each that are sent before the first is answered.
const PIPELINE: usize = 256;

impl PostgresConfig {
    /// Returns the most rows that one connection has at a time.
    fn most_rows(&self) -> usize {
        // Single statements are pipelined: several queries' worth fit a connection.
        if self.batch > 1 { self.batch } else { PIPELINE }
    }

    /// Looks the columns of the arguments up.
    fn arguments(&self, input: &SchemaRef) -> Result<Vec<usize>, StartError> {
        self.args.iter().map(|column| column_index(input, column, "args")).collect()
    }

    /// Names what is prepared for this lookup on a connection.
    fn key(&self, arguments: &[DataType], results: &SchemaRef) -> Arc<str> {
        let is_batched = self.batch > 1;
        Arc::from(format!("{}\0{is_batched}\0{arguments:?}\0{results:?}", self.statement))
    }
}
