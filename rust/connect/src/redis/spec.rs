// SPDX-License-Identifier: Apache-2.0
//! What the replies to the calls of a task become.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use serde::Deserialize;
use sparkawait_task::error::{StartError, TaskError};
use sparkawait_task::function::{Replies, ReplyGroup};

use crate::column::check_columns;
use crate::json::JsonRows;
use crate::lookup::{LookupReply, Misses};
use crate::text::ParsedColumn;

use super::cancelled::Cancelled;
use super::map::map_column;

/// What a reply becomes.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Shape {
    /// A value is the only column; an array is one row, an element for each column.
    Row,
    /// An array is a row for each element, which is a value or an array itself.
    Rows,
    /// An array of names and values is a map, the only column.
    Map,
    /// A value is a JSON document.
    Document {
        /// Path of the array whose elements are rows.
        rows: Option<String>,
        /// Path of each column that is not the member of its own name.
        paths: Vec<(String, String)>,
    },
}

impl Shape {
    /// Checks the shape against the result columns.
    pub(super) fn check(&self, results: &SchemaRef) -> Result<Self, StartError> {
        match self {
            Self::Document { rows, paths } => {
                JsonRows::new(SchemaRef::clone(results), rows.as_deref(), paths)?;
            }
            Self::Map => {
                map_column(results, 0)?;
            }
            Self::Row | Self::Rows => check_columns(results.fields(), "text")?,
        }
        Ok(self.clone())
    }
}

/// What all jobs of a task have in common.
pub(super) struct Spec {
    pub(super) shape: Shape,
    pub(super) misses: Misses,
    /// Schema of the results.
    pub(super) schema: SchemaRef,
    /// Positions of the columns that what is found must not leave null.
    pub(super) required: Vec<usize>,
    pub(super) replies: Replies,
    /// Whether the command only reads.
    pub(super) reads: bool,
    /// Calls that nobody waits for any more.
    pub(super) cancelled: Cancelled,
}

impl Spec {
    /// The schema of what is found, where a miss has nulls whatever was declared.
    pub(super) fn found_schema(&self) -> SchemaRef {
        let fields = self.schema.fields().iter().enumerate().map(|(position, field)| {
            let is_nullable = field.is_nullable() && !self.required.contains(&position);
            field.as_ref().clone().with_nullable(is_nullable)
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// Makes the reply out of parsed columns; rows with a value that did not parse fail.
    pub(super) fn reply(
        &self,
        reply: LookupReply,
        columns: Result<Vec<ParsedColumn>, TaskError>,
    ) -> Result<ReplyGroup, TaskError> {
        reply.finish_columns(columns?, &self.schema, &self.required, "Redis")
    }
}
