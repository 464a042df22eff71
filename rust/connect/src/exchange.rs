// SPDX-License-Identifier: Apache-2.0
//! The seam of a connector whose service is asked for many rows at a time.
//!
//! ```text
//!   rows -> keys -> lines by channel -> ask(connection, keys) -> answers -> result rows
//!                                         ^^^
//!                                         the connector; all else is here
//! ```
//!
//! A connector reads its description into an [`Exchange`] and is a [`Client`], which connects and asks.
//! It does not see which rows go together, that calls are cancelled, that it panics, how many
//! connections there are, what the engine sends once more, and how answers become columns.

mod client;
mod engine;

use arrow::datatypes::SchemaRef;
use sparkawait_core::operator::Begins;
use sparkawait_task::concurrency::Concurrency;
use sparkawait_task::error::StartError;
use sparkawait_task::function::TaskFunction;
use sparkawait_task::native::{NativeFunction, Start};

pub use self::client::{Answer, Client, Exchange};
use self::engine::Engine;
use crate::column::check_columns;
use crate::lookup::positions;
pub use crate::reply_budget::ReplyShare;
use crate::template::Template;

impl<C: Client> NativeFunction for Exchange<C> {
    fn check(&self, input: &SchemaRef, results: &SchemaRef) -> Result<(), StartError> {
        Template::parse(&self.key, "key")?.bind(input)?;
        positions(&self.required, results)?;
        check_columns(results.fields(), "text")
    }

    fn concurrency(&self) -> Result<Concurrency, StartError> {
        let calls = self.connections.max(1).saturating_mul(self.rows.max(1));
        Ok(Concurrency::of_task(calls).beginning(Begins::WhenSaid))
    }

    fn start(&self, start: Start) -> Result<TaskFunction, StartError> {
        let key = Template::parse(&self.key, "key")?.bind(&start.input)?;
        let required = positions(&self.required, &start.results)?;
        Ok(Box::new(Engine::start(self, key, required, start)))
    }
}
