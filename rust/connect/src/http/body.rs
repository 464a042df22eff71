// SPDX-License-Identifier: Apache-2.0
//! Bodies of requests: JSON values and texts with columns in them.

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema};
use arrow::json::writer::{EncoderOptions, NullableEncoder, make_encoder};
use serde::Deserialize;
use serde_json::Value;

use crate::native::StartError;
use crate::template::{BoundTemplate, Escape, Template, TemplateRows, column_index};

/// The body of a request. Has no `Debug`: it may hold a token.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Body {
    /// A JSON value. A text `{column}` in it is the column's value with its type,
    /// any other text a template.
    Json(Value),
    /// A text with columns in braces.
    Raw(String),
}

/// A piece of a body.
enum Piece {
    Text(Vec<u8>),
    /// A column as a JSON value.
    Value(usize, FieldRef),
    /// A text within a JSON string.
    Quoted(BoundTemplate),
    /// A text as it is.
    Raw(BoundTemplate),
}

/// A body whose columns were looked up.
pub(super) struct BoundBody {
    pieces: Vec<Piece>,
    /// Whether a null column makes the whole body null, and not only a value in it.
    is_one_value: bool,
    options: EncoderOptions,
    pub(super) is_json: bool,
}

impl Body {
    /// Looks the columns up in `schema`.
    pub(super) fn bind(&self, schema: &Schema) -> Result<BoundBody, StartError> {
        let mut pieces = Vec::new();
        let is_json = match self {
            Self::Raw(text) => {
                pieces.push(Piece::Raw(Template::parse(text, "body")?.bind(schema)?));
                false
            }
            Self::Json(value) => {
                bind_json(value, schema, &mut pieces)?;
                true
            }
        };
        let is_one_value = pieces.len() == 1;
        let options = EncoderOptions::default().with_explicit_nulls(true);
        Ok(BoundBody { pieces, is_one_value, options, is_json })
    }
}

/// Appends the pieces of `value`.
fn bind_json(value: &Value, schema: &Schema, pieces: &mut Vec<Piece>) -> Result<(), StartError> {
    match value {
        Value::String(text) => {
            let template = Template::parse(text, "json")?;
            let only: Vec<&str> = template.columns().collect();
            if let [name] = only[..]
                && text.len() == name.len() + 2
            {
                let index = column_index(schema, name, "json")?;
                pieces.push(Piece::Value(index, FieldRef::clone(&schema.fields()[index])));
            } else if let Some(literal) = template.as_literal() {
                push_text(pieces, Value::from(literal).to_string().as_bytes());
            } else {
                pieces.push(Piece::Quoted(template.bind(schema)?));
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                push_text(pieces, if index == 0 { b"[" } else { b"," });
                bind_json(value, schema, pieces)?;
            }
            push_text(pieces, if values.is_empty() { b"[]" } else { b"]" });
        }
        Value::Object(members) => {
            for (index, (name, value)) in members.iter().enumerate() {
                push_text(pieces, if index == 0 { b"{" } else { b"," });
                push_text(pieces, Value::from(name.as_str()).to_string().as_bytes());
                push_text(pieces, b":");
                bind_json(value, schema, pieces)?;
            }
            push_text(pieces, if members.is_empty() { b"{}" } else { b"}" });
        }
        plain => push_text(pieces, plain.to_string().as_bytes()),
    }
    Ok(())
}

fn push_text(pieces: &mut Vec<Piece>, text: &[u8]) {
    if let Some(Piece::Text(last)) = pieces.last_mut() {
        last.extend_from_slice(text);
    } else {
        pieces.push(Piece::Text(text.to_vec()));
    }
}

impl BoundBody {
    /// Opens the columns of `batch`.
    pub(super) fn rows<'a>(&'a self, batch: &'a RecordBatch) -> Result<BodyRows<'a>, StartError> {
        let open = |piece: &'a Piece| match piece {
            Piece::Text(text) => Ok(BodyPiece::Text(text)),
            Piece::Value(index, field) => {
                make_encoder(field, batch.column(*index).as_ref(), &self.options)
                    .map(BodyPiece::Value)
                    .map_err(|error| {
                        let name = field.name();
                        StartError::option(format!("column `{name}` has no JSON form: {error}"))
                    })
            }
            Piece::Quoted(template) => template.rows(batch).map(BodyPiece::Quoted),
            Piece::Raw(template) => template.rows(batch).map(BodyPiece::Raw),
        };
        let pieces = self.pieces.iter().map(open).collect::<Result<_, _>>()?;
        Ok(BodyRows { pieces, is_one_value: self.is_one_value, text: Vec::new() })
    }
}

enum BodyPiece<'a> {
    Text(&'a [u8]),
    Value(NullableEncoder<'a>),
    Quoted(TemplateRows<'a>),
    Raw(TemplateRows<'a>),
}

/// A body over the rows of one batch.
pub(super) struct BodyRows<'a> {
    pieces: Vec<BodyPiece<'a>>,
    is_one_value: bool,
    /// What a template in a string came to; kept for its memory.
    text: Vec<u8>,
}

impl BodyRows<'_> {
    /// Returns the body of `row`; `None` if it is null.
    ///
    /// A null within a JSON value is written as `null`.
    pub(super) fn write(&mut self, row: usize) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(64);
        for piece in &mut self.pieces {
            match piece {
                BodyPiece::Text(text) => out.extend_from_slice(text),
                BodyPiece::Value(encoder) if !encoder.is_null(row) => encoder.encode(row, &mut out),
                BodyPiece::Quoted(rows) if rows.write(row, Escape::None, &mut self.text) => {
                    let text = Value::from(String::from_utf8_lossy(&self.text));
                    out.extend_from_slice(text.to_string().as_bytes());
                    self.text.clear();
                }
                BodyPiece::Raw(rows) => {
                    if !rows.write(row, Escape::None, &mut out) {
                        return None;
                    }
                }
                BodyPiece::Value(_) | BodyPiece::Quoted(_) if self.is_one_value => return None,
                BodyPiece::Value(_) | BodyPiece::Quoted(_) => out.extend_from_slice(b"null"),
            }
        }
        Some(out)
    }
}
