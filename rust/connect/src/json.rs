// SPDX-License-Identifier: Apache-2.0
//! Result rows out of JSON documents.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_null_array};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use arrow::json::ReaderBuilder;
use arrow::json::reader::Decoder;

use crate::error::TaskError;
use crate::json_path::JsonPath;
use crate::native::StartError;

/// Documents of one decoder run; arrow-json wants a bound.
const MOST_ROWS: usize = 1 << 20;

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
    /// The path of each column; `None` if all are members of their own names.
    paths: Option<Vec<JsonPath>>,
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
    /// A path does not parse, or belongs to no column.
    pub fn new(
        schema: SchemaRef,
        rows: Option<&str>,
        paths: &[(String, String)],
    ) -> Result<Self, StartError> {
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
        let paths = if paths.is_empty() {
            None
        } else {
            Some(schema.fields().iter().map(path_of).collect::<Result<_, _>>()?)
        };
        Ok(Self { schema, rows, paths })
    }

    /// Reads `documents`, each for itself: one that cannot be read spoils no other.
    ///
    /// # Errors
    ///
    /// [`TaskError::Internal`] if the schema has a type that JSON cannot be read into.
    pub fn decode(&self, documents: &[&[u8]]) -> Result<Decoded, TaskError> {
        if self.rows.is_none()
            && self.paths.is_none()
            && let Some(batch) = self.decode_objects(documents)?
        {
            return Ok(Decoded { batch, documents: vec![Ok(1); documents.len()] });
        }
        let mut batches = Vec::new();
        let documents = documents
            .iter()
            .map(|document| match self.decode_one(document)? {
                Ok(batch) => {
                    let count = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
                    batches.push(batch);
                    Ok(Ok(count))
                }
                Err(message) => Ok(Err(message)),
            })
            .collect::<Result<Vec<_>, TaskError>>()?;
        let batch = concat_batches(&self.schema, &batches).map_err(internal)?;
        Ok(Decoded { batch, documents })
    }

    /// Reads texts, each one JSON value, as values of the type of `field`.
    ///
    /// Returns the values and the rows that could not be read, with the reason.
    pub(crate) fn parse_values(
        field: &FieldRef,
        texts: &ArrayRef,
    ) -> Result<(ArrayRef, Vec<(usize, String)>), TaskError> {
        let nullable = field.as_ref().clone().with_nullable(true);
        let schema = Arc::new(Schema::new(vec![nullable]));
        let name = serde_json::to_string(field.name()).map_err(internal)?;
        let reader = Self { schema: SchemaRef::clone(&schema), rows: None, paths: None };
        let values = texts.as_string::<i32>();
        let documents: Vec<Vec<u8>> = values
            .iter()
            .map(|text| format!("{{{name}:{}}}", text.unwrap_or("null")).into_bytes())
            .collect();
        let documents: Vec<&[u8]> = documents.iter().map(Vec::as_slice).collect();
        let decoded = reader.decode(&documents)?;
        let mut bad = Vec::new();
        // A row of nulls stands for what could not be read.
        let nulls = RecordBatch::try_new(
            SchemaRef::clone(&schema),
            vec![new_null_array(field.data_type(), 1)],
        )
        .map_err(internal)?;
        if decoded.documents.iter().all(Result::is_ok) {
            return Ok((ArrayRef::clone(decoded.batch.column(0)), bad));
        }
        let mut parts = Vec::with_capacity(values.len());
        let mut next = 0;
        for (row, document) in decoded.documents.into_iter().enumerate() {
            match document {
                Ok(count) => {
                    parts.push(decoded.batch.slice(next, count as usize));
                    next += count as usize;
                }
                Err(message) => {
                    bad.push((row, message));
                    parts.push(nulls.clone());
                }
            }
        }
        let batch = concat_batches(&schema, &parts).map_err(internal)?;
        Ok((ArrayRef::clone(batch.column(0)), bad))
    }

    /// Reads documents that are one object each; `None` if one of them is not, or does not fit.
    fn decode_objects(&self, documents: &[&[u8]]) -> Result<Option<RecordBatch>, TaskError> {
        let mut decoder = self.decoder(documents.len())?;
        for (index, document) in documents.iter().enumerate() {
            // A document that ends early would swallow the next one.
            if !matches!(decoder.decode(document), Ok(read) if read == document.len())
                || decoder.has_partial_record()
                || decoder.len() != index + 1
            {
                return Ok(None);
            }
        }
        match decoder.flush() {
            Ok(Some(batch)) => Ok((batch.num_rows() == documents.len()).then_some(batch)),
            Ok(None) => Ok(documents
                .is_empty()
                .then(|| RecordBatch::new_empty(SchemaRef::clone(&self.schema)))),
            Err(_) => Ok(None),
        }
    }

    /// Reads one document; the inner error says why that is impossible.
    fn decode_one(&self, document: &[u8]) -> Result<Result<RecordBatch, String>, TaskError> {
        let rows = match self.rows_of(document) {
            Ok(rows) => rows,
            Err(message) => return Ok(Err(message)),
        };
        let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        if let Some(batch) = self.decode_objects(&rows)? {
            return Ok(Ok(batch));
        }
        Ok(Err(self.explain(&rows)?))
    }

    /// Returns the text of an object with all columns for each row of a document.
    fn rows_of(&self, document: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let document = std::str::from_utf8(document)
            .map_err(|_| "the document is no UTF-8 text".to_owned())?
            .trim();
        let found = match &self.rows {
            Some(path) => path.find(document)?.unwrap_or("[]"),
            None => document,
        };
        let elements = if found.starts_with('[') {
            JsonPath::elements(found)?
        } else if self.rows.is_some() && found != "null" {
            return Err("the value at `rows` is no array".to_owned());
        } else if found == "null" {
            Vec::new()
        } else {
            vec![found]
        };
        elements.into_iter().map(|element| self.object_of(element)).collect()
    }

    /// Returns the text of an object with the columns of one row.
    fn object_of(&self, element: &str) -> Result<Vec<u8>, String> {
        let Some(paths) = &self.paths else {
            JsonPath::check(element)?;
            if !element.starts_with('{') {
                return Err("a row must be a JSON object".to_owned());
            }
            return Ok(element.as_bytes().to_vec());
        };
        let mut object = String::from("{");
        for (field, path) in self.schema.fields().iter().zip(paths) {
            let Some(value) = path.find(element)? else { continue };
            if object.len() > 1 {
                object.push(',');
            }
            // A string is always written.
            object.push_str(&serde_json::to_string(field.name()).unwrap_or_default());
            object.push(':');
            object.push_str(value);
        }
        object.push('}');
        Ok(object.into_bytes())
    }

    /// Says which column of `rows` does not fit, by reading each alone.
    fn explain(&self, rows: &[&[u8]]) -> Result<String, TaskError> {
        for field in self.schema.fields() {
            let one = Self {
                schema: Arc::new(Schema::new(vec![FieldRef::clone(field)])),
                rows: None,
                paths: None,
            };
            for row in rows {
                if one.decode_objects(&[row])?.is_none() {
                    let (name, wanted) = (field.name(), field.data_type());
                    let rule = if field.is_nullable() { "" } else { " that is not null" };
                    return Ok(format!(
                        "`{name}` should be `{wanted}`{rule}, but the value in the document is not"
                    ));
                }
            }
        }
        Ok("the document is no JSON of the declared schema".to_owned())
    }

    fn decoder(&self, rows: usize) -> Result<Decoder, TaskError> {
        let schema = SchemaRef::clone(&self.schema);
        ReaderBuilder::new(schema)
            .with_batch_size(rows.clamp(1, MOST_ROWS))
            .build_decoder()
            .map_err(internal)
    }
}

/// Tells whether JSON can be read into values of this type.
pub fn is_readable(data_type: &DataType) -> bool {
    let schema = Schema::new(vec![arrow::datatypes::Field::new("c", data_type.clone(), true)]);
    ReaderBuilder::new(Arc::new(schema)).build_decoder().is_ok()
}

fn internal(error: impl std::fmt::Display) -> TaskError {
    TaskError::Internal(format!("JSON cannot be read into the schema: {error}"))
}

#[cfg(test)]
mod tests;
