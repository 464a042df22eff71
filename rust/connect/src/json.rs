// SPDX-License-Identifier: Apache-2.0
//! Result rows out of JSON documents.
//!
//! A document is read once, straight into columns. What it has to say is the same whatever the
//! documents beside it are, and however a value is found: see `value` for the rules.

mod absent;
mod base64;
pub(crate) mod elements;
mod halves;
mod places;
mod reader;
mod value;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{FieldRef, SchemaRef};
use jiter::Peek;
use sparkawait_task::error::{StartError, TaskError};

use crate::column::{Column, check_columns};
use crate::json_path::JsonPath;

use self::absent::AbsentColumns;
use self::places::{Place, Rows};
use self::value::{Misfit, Read, json_text, read, read_json, read_value};

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
    /// Bytes that rows may come to beside what documents have of them, of those that are read together.
    most_bytes: usize,
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
    /// Those whose rows would have come to too much, ascending.
    pub too_large: Vec<usize>,
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
        Ok(Self { schema, rows, row, is_one_row: false, most_bytes: usize::MAX, absent: None })
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

    /// Makes rows of no more bytes than that of what is read together.
    #[must_use]
    pub fn making_at_most(self, bytes: usize) -> Self {
        Self { most_bytes: bytes, ..self }
    }

    /// Reads `documents`, each for itself: one that cannot be read spoils no other.
    ///
    /// # Errors
    ///
    /// [`TaskError::Internal`] if the values do not make up columns of the schema.
    pub fn decode(&self, documents: &[&[u8]]) -> Result<Decoded, TaskError> {
        self.decode_until(documents, |_| false)
    }

    /// Does so with as many of the first documents as have room together: with one at least.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode).
    pub fn decode_some(&self, documents: &[&[u8]]) -> Result<Decoded, TaskError> {
        self.decode_until(documents, Misfit::is_of_room)
    }

    /// Ends before a document that is not the first one, where `ends` says so.
    fn decode_until(
        &self,
        documents: &[&[u8]],
        ends: impl Fn(&Misfit) -> bool,
    ) -> Result<Decoded, TaskError> {
        let mut rows = Rows::new(self.schema.fields(), documents.len())
            .map_err(|what| internal(format!("cannot be read: {what}")))?;
        let absent = self.absent.as_ref().filter(|it| it.is_watching());
        if absent.is_some() {
            rows.note_found();
        }
        let (mut counts, mut room) = (Vec::with_capacity(documents.len()), self.most_bytes);
        let mut too_large = Vec::new();
        for document in documents {
            let start = rows.count();
            let read = self.read_document(document, room, &mut rows);
            if let Err(misfit) = &read {
                rows.truncate(start);
                if !counts.is_empty() && ends(misfit) {
                    break;
                }
                too_large.extend(misfit.is_of_room().then_some(counts.len()));
            }
            counts.push(read.map_err(Misfit::message).map(|left| {
                room = left;
                u32::try_from(rows.count() - start).unwrap_or(u32::MAX)
            }));
        }
        if let Some(absent) = absent {
            absent.add(rows.count(), rows.found());
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.count()));
        let columns = rows.finish().map_err(|error| internal(error.to_string()))?;
        let schema = SchemaRef::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, columns, &options)
            .map_err(|error| internal(error.to_string()))?;
        Ok(Decoded { batch, documents: counts, too_large })
    }

    /// Appends the rows of a document, which may be of so many bytes; returns how many others may be. What
    /// is left behind by a failure must be cut off.
    fn read_document(&self, document: &[u8], room: usize, rows: &mut Rows) -> Read<usize> {
        let (document, start) = (json_text(document)?, rows.count());
        let row = &self.row;
        read_json(document, room, |jiter| {
            if jiter.mark().is_some() {
                rows.truncate(start);
            }
            read_value(jiter, |jiter, peek| match &self.rows {
                _ if jiter.next_byte() == Some(b'<') => Err(Misfit::page()),
                None if self.is_one_row && peek != Peek::Null => rows.read_row(jiter, peek, row),
                None => rows.read_all(jiter, peek, row),
                Some(path) => rows.find_all(jiter, peek, path.steps(), row),
            })
        })
    }
}

/// Appends the one JSON value that `text` is; says what is wrong with it, having appended parts of
/// it perhaps.
pub(crate) fn push_value(column: &mut Column, text: &str) -> Result<(), String> {
    let len = column.len();
    let read = read_json(text.as_bytes(), usize::MAX, |jiter| {
        if jiter.mark().is_some() {
            column.truncate(len);
        }
        read_value(jiter, |jiter, peek| read(jiter, peek, column))
    });
    read.map(|_| ()).map_err(Misfit::message)
}

fn internal(what: impl std::fmt::Display) -> TaskError {
    TaskError::Internal(format!("the columns of JSON documents: {what}"))
}

#[cfg(test)]
mod tests;
