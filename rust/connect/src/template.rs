// SPDX-License-Identifier: Apache-2.0
//! Texts with columns in braces: `customer:{customer_id}`.
//!
//! Parsed once, bound to the task's columns once, and to the arrays of a batch
//! once per burst; a row costs a few copies of bytes.

mod cells;

use std::fmt;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use sparkawait_core::ErrorKind;

pub use cells::Cells;

use crate::native::StartError;

/// Bytes that RFC 3986 leaves as they are in any part of an address.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A piece of a template; `C` says how a column is named.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece<C> {
    Text(String),
    Column(C),
}

/// A text with columns in braces; `{{` and `}}` stand for the braces themselves.
///
/// # Examples
///
/// ```
/// use arrow::array::record_batch;
/// use sparkawait_connect::template::{Escape, Template};
///
/// let template = Template::parse("customer:{id}", "key")?;
/// assert_eq!(template.columns().collect::<Vec<_>>(), ["id"]);
///
/// let batch = record_batch!(("id", Int64, [Some(7), None]))?;
/// let bound = template.bind(batch.schema_ref())?;
/// let rows = bound.rows(&batch)?;
/// let mut key = Vec::new();
/// assert!(rows.write(0, Escape::None, &mut key));
/// assert_eq!(key, b"customer:7");
/// assert!(!rows.write(1, Escape::None, &mut key));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece<String>>,
    /// The argument that it was given for, for messages.
    option: String,
}

/// How the values of columns are written into the text around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// As they are.
    None,
    /// Percent-encoded, for any part of a URL.
    Percent,
}

impl Template {
    /// Reads `text`, which was given for `option`.
    ///
    /// # Errors
    ///
    /// Braces that do not match, or have no name in them.
    pub fn parse(text: &str, option: &str) -> Result<Self, StartError> {
        let refuse = |what: &str, at: usize| {
            StartError::option(format!(
                "`{option}`: {what} at character {at}; columns stand in braces, and `{{{{` is a brace"
            ))
        };
        let (mut pieces, mut literal) = (Vec::new(), String::new());
        let mut rest = text.char_indices().peekable();
        while let Some((at, character)) = rest.next() {
            match character {
                '{' | '}' if rest.peek().is_some_and(|(_, next)| *next == character) => {
                    rest.next();
                    literal.push(character);
                }
                '{' => {
                    let end = text[at..].find('}').map(|length| at + length);
                    let end = end.ok_or_else(|| refuse("`{` without `}`", at))?;
                    let name = &text[at + 1..end];
                    if name.is_empty() || name.contains('{') {
                        return Err(refuse("braces without a column name", at));
                    }
                    if !literal.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut literal)));
                    }
                    pieces.push(Piece::Column(name.to_owned()));
                    while rest.next_if(|(position, _)| *position <= end).is_some() {}
                }
                '}' => return Err(refuse("`}` without `{`", at)),
                _ => literal.push(character),
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Self { pieces, option: option.to_owned() })
    }

    /// The columns in it, in the order of the text, repeated where they are repeated.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Column(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// Returns the text, if there is no column in it.
    pub fn as_literal(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Looks the columns up in `schema`.
    ///
    /// # Errors
    ///
    /// A column that does not exist, or whose values are not plain.
    pub fn bind(&self, schema: &Schema) -> Result<BoundTemplate, StartError> {
        let bind = |piece: &Piece<String>| match piece {
            Piece::Text(text) => Ok(Piece::Text(text.clone())),
            Piece::Column(name) => column_index(schema, name, &self.option).map(Piece::Column),
        };
        let pieces: Vec<_> = self.pieces.iter().map(bind).collect::<Result<_, _>>()?;
        for piece in &pieces {
            if let Piece::Column(index) = piece {
                let field = schema.field(*index);
                if field.data_type().is_nested() {
                    return Err(StartError::option(format!(
                        "`{}` names column `{}`, which is `{}`; a template takes plain values",
                        self.option,
                        field.name(),
                        field.data_type()
                    )));
                }
            }
        }
        Ok(BoundTemplate { pieces })
    }
}

impl fmt::Debug for Template {
    /// Without the text around the columns, which may have a token in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.columns()).finish()
    }
}

/// Finds the column `name` that `option` names.
///
/// # Errors
///
/// There is none.
pub fn column_index(schema: &Schema, name: &str, option: &str) -> Result<usize, StartError> {
    schema.index_of(name).map_err(|_| StartError {
        kind: ErrorKind::ColumnMissing,
        message: format!("`{option}` names column `{name}`, which the input does not have"),
    })
}

/// A template whose columns were looked up.
#[derive(Clone, Debug)]
pub struct BoundTemplate {
    pieces: Vec<Piece<usize>>,
}

impl BoundTemplate {
    /// Opens the columns of `batch`.
    ///
    /// # Errors
    ///
    /// A type that cannot be written as text.
    pub fn rows<'a>(&'a self, batch: &'a RecordBatch) -> Result<TemplateRows<'a>, StartError> {
        let open = |piece: &'a Piece<usize>| match piece {
            Piece::Text(text) => Ok(BoundPiece::Text(text.as_bytes())),
            Piece::Column(index) => Cells::new(batch.column(*index)).map(BoundPiece::Cells),
        };
        Ok(TemplateRows { pieces: self.pieces.iter().map(open).collect::<Result<_, _>>()? })
    }
}

enum BoundPiece<'a> {
    Text(&'a [u8]),
    Cells(Cells<'a>),
}

/// A template over the rows of one batch.
pub struct TemplateRows<'a> {
    pieces: Vec<BoundPiece<'a>>,
}

impl TemplateRows<'_> {
    /// Appends the text of `row` to `out`.
    ///
    /// Returns false, and leaves `out` as it was, if one of the columns is null.
    #[inline]
    pub fn write(&self, row: usize, escape: Escape, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        for piece in &self.pieces {
            match piece {
                BoundPiece::Text(text) => out.extend_from_slice(text),
                BoundPiece::Cells(cells) => {
                    let cell_start = out.len();
                    if !cells.write(row, out) {
                        out.truncate(start);
                        return false;
                    }
                    if escape == Escape::Percent {
                        percent_encode_from(cell_start, out);
                    }
                }
            }
        }
        true
    }
}

impl fmt::Debug for TemplateRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TemplateRows").field("pieces", &self.pieces.len()).finish_non_exhaustive()
    }
}

/// Percent-encodes what follows `start` in `out`.
fn percent_encode_from(start: usize, out: &mut Vec<u8>) {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    if !out[start..].iter().all(is_plain) {
        let encoded = percent_encode(&out[start..], UNRESERVED).to_string();
        out.truncate(start);
        out.extend_from_slice(encoded.as_bytes());
    }
}

#[cfg(test)]
mod tests;
