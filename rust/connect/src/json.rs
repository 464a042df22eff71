// SPDX-License-Identifier: Apache-2.0
//! Result rows out of JSON documents.
//!
//! A document is read once, straight into columns. What it has to say is the same whatever the
//! documents beside it are, and however a value is found: see `value` for the rules.

mod absent;
mod base64;
pub(crate) mod elements;
mod places;
mod value;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{FieldRef, SchemaRef};
use jiter::{Jiter, Peek};
use sparkawait_task::error::{StartError, TaskError};

use crate::column::{Column, check_columns};
use crate::json_path::JsonPath;

use self::absent::AbsentColumns;
use self::places::{Place, Rows};
use self::value::{Misfit, Read, json_text, read};

/// Reads documents as rows of a schema.
///
/// A column takes the value at its path, the member of its own name by default;
/// a missing value is null. `rows`, if given, is the path of an array, each of
/// whose elements is a row; without it, a document that is an array has a row
/// for each element, and any other is one row.
#[derive(Debug)]
pub struct JsonRows {
    schema: SchemaRef,
    rows: Option<JsonPath>,
    /// Where the columns are in a row.
    row: Place,
    /// Whether a document is one row whatever it is, and none only if it is null.
    is_one_row: bool,
    /// Says of columns that they are not there, if anybody wants to know.
    absent: Option<AbsentColumns>,
}

/// The rows of some documents.
#[derive(Debug)]
pub struct Decoded {
    /// All rows of the documents that could be read, one after the other.
    pub batch: RecordBatch,
    /// Rows of each document, and what is wrong with it otherwise: without its contents.
    pub documents: Vec<Result<u32, String>>,
}

impl JsonRows {
    /// Makes a reader of rows of `schema`.
    ///
    /// # Errors
    ///
    /// A path does not parse, or belongs to no column; or JSON cannot be read into a type.
    pub fn new(
        schema: SchemaRef,
        rows: Option<&str>,
        paths: &[(String, String)],
    ) -> Result<Self, StartError> {
        check_columns(schema.fields(), "JSON")?;
        let rows = rows.map(|path| JsonPath::parse(path, "rows")).transpose()?;
        for (column, _) in paths {
            if schema.index_of(column).is_err() {
                return Err(StartError::option(format!(
                    "`paths` names column `{column}`, which the schema does not have"
                )));
            }
        }
        let path_of = |field: &FieldRef| {
            let found = paths.iter().find(|(column, _)| column == field.name());
            found.map_or_else(
                || Ok(JsonPath::member(field.name())),
                |(_, path)| JsonPath::parse(path, "paths"),
            )
        };
        let mut row = Place::of_row(paths.is_empty());
        for (column, field) in schema.fields().iter().enumerate() {
            row.add(path_of(field)?.steps(), column);
        }
        Ok(Self { schema, rows, row, is_one_row: false, absent: None })
    }

    /// Tells the log of columns that the first answers do not have; `paths` are those that were
    /// given.
    #[must_use]
    pub fn telling_of_absent(self, paths: &[(String, String)]) -> Self {
        let columns = self.schema.fields().iter().map(|field| {
            let given = paths.iter().find(|(column, _)| column == field.name());
            let path = given.map_or_else(|| format!("$.{}", field.name()), |(_, it)| it.clone());
            (field.name().clone(), path)
        });
        let absent = Some(AbsentColumns::new(columns.collect()));
        Self { absent, ..self }
    }

    /// Reads each document as one row, an array too, and a null as none.
    #[must_use]
    pub fn one_each(self) -> Self {
        Self { is_one_row: true, ..self }
    }

    /// Reads `documents`, each for itself: one that cannot be read spoils no other.
    ///
    /// # Errors
    ///
    /// [`TaskError::Internal`] if the values do not make up columns of the schema.
    pub fn decode(&self, documents: &[&[u8]]) -> Result<Decoded, TaskError> {
        let mut rows = Rows::new(self.schema.fields(), documents.len())
            .map_err(|what| internal(format!("cannot be read: {what}")))?;
        let absent = self.absent.as_ref().filter(|it| it.is_watching());
        if absent.is_some() {
            rows.note_found();
        }
        let documents = documents
            .iter()
            .map(|document| {
                let start = rows.count();
                let read = self.read_document(document, &mut rows);
                read.map(|()| u32::try_from(rows.count() - start).unwrap_or(u32::MAX)).map_err(
                    |misfit| {
                        rows.truncate(start);
                        misfit.message()
                    },
                )
            })
            .collect();
        if let Some(absent) = absent {
            absent.add(rows.count(), rows.found());
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.count()));
        let columns = rows.finish().map_err(|error| internal(error.to_string()))?;
        let schema = SchemaRef::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)
            .map_err(|error| internal(error.to_string()))?;
        Ok(Decoded { batch, documents })
    }

    /// Appends the rows of a document; what is left behind by a failure must be cut off.
    fn read_document(&self, document: &[u8], rows: &mut Rows) -> Read {
        let document = json_text(document)?;
        let mut jiter = Jiter::new(document).with_allow_inf_nan();
        let peek = jiter.peek().map_err(|error| Misfit::syntax(&jiter, &error))?;
        let row = &self.row;
        match &self.rows {
            None if self.is_one_row && peek != Peek::Null => {
                rows.read_row(&mut jiter, peek, row)?;
            }
            None => rows.read_all(&mut jiter, peek, row)?,
            Some(path) => rows.find_all(&mut jiter, peek, path.steps(), row)?,
        }
        jiter.finish().map_err(|error| Misfit::syntax(&jiter, &error))
    }
}

/// Appends the one JSON value that `text` is; says what is wrong with it, having appended parts of
/// it perhaps.
pub(crate) fn push_value(column: &mut Column, text: &str) -> Result<(), String> {
    let mut jiter = Jiter::new(text.as_bytes()).with_allow_inf_nan();
    let peek = jiter.peek().map_err(|error| Misfit::syntax(&jiter, &error));
    let read = peek.and_then(|peek| read(&mut jiter, peek, column));
    let read = read.and_then(|()| jiter.finish().map_err(|error| Misfit::syntax(&jiter, &error)));
    read.map_err(Misfit::message)
}

fn internal(what: impl std::fmt::Display) -> TaskError {
    TaskError::Internal(format!("the columns of JSON documents: {what}"))
}

#[cfg(test)]
mod tests;
