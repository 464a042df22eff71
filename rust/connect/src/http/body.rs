// SPDX-License-Identifier: Apache-2.0
//! Bodies of requests: JSON values, texts and fields with columns in them.

use std::fmt;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use http::HeaderValue;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use sparkawait_task::error::StartError;
use sparkawait_task::native::column_index;

use super::failure::bad_request;
use super::fields::{FieldRows, Fields, Part, random_text};
use super::json_cells::JsonCells;
use super::json_text::write_text;
use crate::failure::Failure;
use crate::template::{BoundTemplate, Escape, Template, TemplateRows};

/// Stands in a JSON value where the items of a batched request go: no template is written so.
const ITEMS: &str = "{}";

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The body of a request. Has no `Debug`: it may hold a token.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Body {
    /// A JSON value. A text `{column}` in it is the column's value with its type,
    /// any other text a template.
    ///
    /// Kept as it was written, so that its numbers keep all their digits.
    Json(Box<RawValue>),
    /// A JSON value in which a null column makes the whole body null.
    Whole(Box<RawValue>),
    /// A text with columns in braces.
    Raw(String),
    /// Templates by name.
    Form(Vec<(String, String)>),
    Multipart(Vec<Part>),
}

/// A piece of a body.
enum Piece {
    Text(Vec<u8>),
    /// A column as a JSON value.
    Value(usize),
    /// A text within a JSON string.
    Quoted(BoundTemplate),
    /// A text as it is.
    Raw(BoundTemplate),
    /// Named fields, which are all of the body.
    Fields(Fields),
    /// Where the items of a batched request go.
    Items,
}

/// A body whose columns were looked up.
pub(super) struct BoundBody {
    pieces: Vec<Piece>,
    /// Whether a null column makes the whole body null, and not only a value in it.
    is_one_value: bool,
    /// What it says of itself, if it is of one kind.
    pub(super) content_type: Option<HeaderValue>,
}

impl Body {
    /// Looks the columns up in `schema`.
    pub(super) fn bind(&self, schema: &Schema) -> Result<BoundBody, StartError> {
        let mut pieces = Vec::new();
        let content_type = match self {
            Self::Raw(text) => {
                pieces.push(Piece::Raw(Template::parse(text, "body")?.bind(schema)?));
                None
            }
            Self::Form(form) => {
                pieces.push(Piece::Fields(Fields::form(form, schema)?));
                Some(HeaderValue::from_static("application/x-www-form-urlencoded"))
            }
            Self::Multipart(parts) => {
                // What nobody can know is in none of the values.
                let boundary = random_text()?;
                pieces.push(Piece::Fields(Fields::parts(parts, &boundary, schema)?));
                HeaderValue::try_from(format!("multipart/form-data; boundary={boundary}")).ok()
            }
            Self::Json(value) | Self::Whole(value) => {
                bind_json(value, schema, &mut pieces)?;
                if pieces.iter().any(|it| matches!(it, Piece::Items)) {
                    return Err(StartError::option(
                        "`json` has a place for items, without `batch`",
                    ));
                }
                Some(JSON)
            }
        };
        let is_one_value = pieces.len() == 1 || matches!(self, Self::Whole(_));
        Ok(BoundBody { pieces, is_one_value, content_type })
    }
}

impl BoundBody {
    /// Looks the columns of what stands around the items of a batched request up in `schema`.
    pub(super) fn around_items(value: &RawValue, schema: &Schema) -> Result<Self, StartError> {
        let mut pieces = Vec::new();
        bind_json(value, schema, &mut pieces)?;
        let places = pieces.iter().filter(|it| matches!(it, Piece::Items)).count();
        if places == 1 {
            return Ok(Self { pieces, is_one_value: false, content_type: Some(JSON) });
        }
        Err(StartError::option(format!("`json` must have one place for items, and has {places}")))
    }

    /// Looks the columns of one item up in `schema`.
    pub(super) fn item(value: &RawValue, schema: &Schema) -> Result<Self, StartError> {
        Body::Json(value.to_owned()).bind(schema)
    }

    /// The columns in it.
    pub(super) fn columns(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().flat_map(|piece| match piece {
            Piece::Text(_) | Piece::Items => Vec::new(),
            Piece::Value(index) => vec![*index],
            Piece::Quoted(template) | Piece::Raw(template) => template.column_indices().collect(),
            Piece::Fields(fields) => fields.columns().collect(),
        })
    }
}

/// The members of an object, in their order.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Appends the pieces of `value`.
fn bind_json(value: &RawValue, schema: &Schema, pieces: &mut Vec<Piece>) -> Result<(), StartError> {
    match value.get().as_bytes().first() {
        Some(b'"') => bind_text(&read::<String>(value)?, schema, pieces)?,
        Some(b'[') => {
            let values: Vec<Box<RawValue>> = read(value)?;
            for (index, value) in values.iter().enumerate() {
                push_text(pieces, if index == 0 { b"[" } else { b"," });
                bind_json(value, schema, pieces)?;
            }
            push_text(pieces, if values.is_empty() { b"[]" } else { b"]" });
        }
        Some(b'{') => {
            let Members(members) = read(value)?;
            for (index, (name, value)) in members.iter().enumerate() {
                push_text(pieces, if index == 0 { b"{" } else { b"," });
                push_text(pieces, &quoted(name));
                push_text(pieces, b":");
                bind_json(value, schema, pieces)?;
            }
            push_text(pieces, if members.is_empty() { b"{}" } else { b"}" });
        }
        _ => push_text(pieces, value.get().as_bytes()),
    }
    Ok(())
}

fn bind_text(text: &str, schema: &Schema, pieces: &mut Vec<Piece>) -> Result<(), StartError> {
    if text == ITEMS {
        pieces.push(Piece::Items);
        return Ok(());
    }
    let template = Template::parse(text, "json")?;
    let only: Vec<&str> = template.columns().collect();
    if let [name] = only[..]
        && text.len() == name.len() + 2
    {
        let index = column_index(schema, name, "json")?;
        JsonCells::check(schema.field(index).data_type()).map_err(|error| {
            let why = error.message;
            StartError::option(format!("`json` names column `{name}`: {why}"))
        })?;
        pieces.push(Piece::Value(index));
    } else if let Some(literal) = template.as_literal() {
        push_text(pieces, &quoted(literal));
    } else {
        pieces.push(Piece::Quoted(template.bind(schema)?));
    }
    Ok(())
}

/// Reads a value, which was read as JSON before.
fn read<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Result<T, StartError> {
    serde_json::from_str(value.get()).map_err(|_| StartError::option("`json` is not a JSON value"))
}

fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_text(text, &mut out);
    out
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
            Piece::Value(index) => {
                JsonCells::new(batch.column(*index).as_ref()).map(BodyPiece::Value)
            }
            Piece::Quoted(template) => template.rows(batch).map(BodyPiece::Quoted),
            Piece::Raw(template) => template.rows(batch).map(BodyPiece::Raw),
            Piece::Fields(fields) => fields.rows(batch).map(BodyPiece::Fields),
            Piece::Items => Ok(BodyPiece::Items),
        };
        let pieces = self.pieces.iter().map(open).collect::<Result<_, _>>()?;
        let is_one_value = self.is_one_value;
        Ok(BodyRows { pieces, is_one_value, text: Vec::new(), items_at: 0 })
    }
}

enum BodyPiece<'a> {
    Text(&'a [u8]),
    Value(JsonCells<'a>),
    Quoted(TemplateRows<'a>),
    Raw(TemplateRows<'a>),
    Fields(FieldRows<'a>),
    Items,
}

/// A body over the rows of one batch.
pub(super) struct BodyRows<'a> {
    pieces: Vec<BodyPiece<'a>>,
    is_one_value: bool,
    /// What a template in a string came to; kept for its memory.
    text: Vec<u8>,
    /// Where the items of a batched request go in the body that was written last.
    items_at: usize,
}

impl BodyRows<'_> {
    /// Returns the body of `row`; `None` if it is null.
    ///
    /// A null within a JSON value is written as `null`. Fails if a text in JSON would have bytes
    /// that are not UTF-8.
    pub(super) fn write(&mut self, row: usize) -> Result<Option<Vec<u8>>, Failure> {
        let mut out = Vec::with_capacity(64);
        Ok(self.append(row, &mut out)?.then_some(out))
    }

    /// Returns what stands in front of the items of a batched request and behind them, for `row`.
    pub(super) fn around_items(&mut self, row: usize) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        let mut before = Vec::new();
        self.append(row, &mut before)?;
        let behind = before.split_off(self.items_at);
        Ok((before, behind))
    }

    /// Appends the body of `row`; returns false, having appended parts of it perhaps, if it is null.
    pub(super) fn append(&mut self, row: usize, out: &mut Vec<u8>) -> Result<bool, Failure> {
        for piece in &mut self.pieces {
            match piece {
                BodyPiece::Text(text) => out.extend_from_slice(text),
                BodyPiece::Fields(fields) => fields.append(row, out),
                BodyPiece::Items => self.items_at = out.len(),
                BodyPiece::Value(values) if self.is_one_value && values.is_null(row) => {
                    return Ok(false);
                }
                BodyPiece::Value(values) => values
                    .write(row, out)
                    .ok_or_else(|| bad_request("the row has a variant that cannot be read"))?,
                BodyPiece::Quoted(rows) => {
                    self.text.clear();
                    if rows.write(row, Escape::None, &mut self.text) {
                        let text = std::str::from_utf8(&self.text).map_err(|_| {
                            bad_request(
                                "the row's bytes for a text in `json` are not UTF-8; \
                                 a text that is the column alone is Base64",
                            )
                        })?;
                        write_text(text, out);
                    } else if self.is_one_value {
                        return Ok(false);
                    } else {
                        out.extend_from_slice(b"null");
                    }
                }
                BodyPiece::Raw(rows) => {
                    if !rows.write(row, Escape::None, out) {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
