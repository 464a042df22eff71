// SPDX-License-Identifier: Apache-2.0
//! What a native function is told when a task starts it.
//!
//! A description is made on the driver and travels to the executors; there it
//! is read by [`NativeFunction`] and started once for each task.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use sparkawait_core::ErrorKind;
use tokio::runtime::Handle;

use crate::channel_finder::ChannelFinder;
use crate::channel_share::ChannelShare;
use crate::concurrency::Concurrency;
use crate::error::StartError;
use crate::function::{Replies, TaskFunction};

/// A description of a function that this crate carries out.
pub trait NativeFunction: fmt::Debug + Send + Sync {
    /// Checks the description on the driver, as far as no server and no secret is needed for it.
    ///
    /// Secrets are left out of the description there: texts of their form stand for them.
    ///
    /// # Errors
    ///
    /// What [`start`](Self::start) would refuse for tasks with these columns.
    fn check(&self, input: &SchemaRef, results: &SchemaRef) -> Result<(), StartError>;

    /// Starts the function for one task.
    ///
    /// # Errors
    ///
    /// The description does not fit the task's columns, or is wrong in itself. A server that cannot
    /// be reached gives another error: it fails the calls.
    fn start(&self, start: Start) -> Result<TaskFunction, StartError>;

    /// Returns how many calls it can have on their way; no number if nothing bounds them.
    ///
    /// Asked on the driver too, where secrets are left out.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    fn concurrency(&self) -> Result<Concurrency, StartError> {
        Ok(Concurrency::unbounded())
    }

    /// Returns what finds the channels of rows of `input`, if the function knows them.
    ///
    /// May wait for a server that it must ask, and goes on without an answer.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    fn channel_finder(
        &self,
        _input: &SchemaRef,
        _runtime: &Handle,
    ) -> Result<Option<Arc<dyn ChannelFinder>>, StartError> {
        Ok(None)
    }
}

/// The task that a function is started for.
#[derive(Debug)]
pub struct Start {
    /// Where replies go.
    pub replies: Replies,
    /// What the function's tokio tasks run on.
    pub runtime: Handle,
    /// Schema of the input rows.
    pub input: SchemaRef,
    /// Schema that the results must have.
    pub results: SchemaRef,
    /// How much of what the function has one channel may take; `None` without channels.
    pub channel_share: Option<ChannelShare>,
}

/// Columns that a message tells of.
const SHOWN_COLUMNS: usize = 8;

/// Finds the column `name` that `option` names.
///
/// # Errors
///
/// There is none.
pub fn column_index(schema: &Schema, name: &str, option: &str) -> Result<usize, StartError> {
    schema.index_of(name).map_err(|_| {
        let fields = schema.fields().iter().take(SHOWN_COLUMNS);
        let mut known: Vec<String> = fields.map(|it| format!("`{}`", it.name())).collect();
        if schema.fields().len() > SHOWN_COLUMNS {
            known.push("..".to_owned());
        }
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let rule = "which the input does not have";
        StartError {
            kind: ErrorKind::ColumnMissing,
            message: format!("`{option}` names column `{name}`, {rule}; it has {known}"),
        }
    })
}
