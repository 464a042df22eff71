// SPDX-License-Identifier: Apache-2.0
//! Texts with columns in braces: `customer:{customer_id}`.
//!
//! Parsed once, bound to the task's columns once, and to the arrays of a batch
//! once per burst; a row costs a few copies of bytes.

mod cells;
pub(crate) mod numbers;
pub(crate) mod times;

use std::fmt;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;

pub use cells::Cells;
pub(crate) use cells::{local, positions, timestamps};

use sparkawait_arrow::simple_string::simple_string;
use sparkawait_task::error::StartError;

use sparkawait_task::native::column_index;

/// In front of the name of a column of an address that may be several segments of its path, whose slashes
/// stay (RFC 6570, 3.2.3).
const SEGMENTS: char = '+';

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
    /// Percent-encoded except for slashes, for segments of the path of a URL.
    Path,
}

/// Names a template among others of an option, for messages.
pub(crate) fn keyed(option: &str, key: &str) -> String {
    format!("{option}[\"{key}\"]")
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

    /// The columns in it, in the order of the text, repeated where they are repeated. In an address, `{+key}`
    /// is the column `key`.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        let is_url = self.option == "url";
        self.pieces.iter().filter_map(move |piece| match piece {
            Piece::Column(name) if is_url => Some(name.strip_prefix(SEGMENTS).unwrap_or(name)),
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

    /// Whether it begins with a column.
    pub(crate) fn starts_with_column(&self) -> bool {
        matches!(self.pieces.first(), Some(Piece::Column(_)))
    }

    /// Returns the text in front of the first column, and that between and behind columns.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Column(_) => None,
        })
    }

    /// Divides it before and behind each of some characters of its texts.
    pub(crate) fn divide(&self, at: &[char]) -> Vec<Self> {
        let mut parts = vec![self.part()];
        for piece in &self.pieces {
            let Piece::Text(text) = piece else {
                add_piece(&mut parts, piece.clone());
                continue;
            };
            for text in text.split_inclusive(at) {
                let (text, end) = match text.char_indices().next_back() {
                    Some((index, end)) if at.contains(&end) => (&text[..index], &text[index..]),
                    _ => (text, ""),
                };
                if !text.is_empty() {
                    add_piece(&mut parts, Piece::Text(text.to_owned()));
                }
                if !end.is_empty() {
                    parts.push(self.part());
                    add_piece(&mut parts, Piece::Text(end.to_owned()));
                    parts.push(self.part());
                }
            }
        }
        parts.retain(|part| !part.pieces.is_empty());
        parts
    }

    /// Divides it behind the column that it begins with.
    pub(crate) fn split_first(&self) -> (Self, Self) {
        let (first, rest) = self.pieces.split_at(self.pieces.len().min(1));
        let part = |pieces: &[Piece<String>]| Self { pieces: pieces.to_vec(), ..self.part() };
        (part(first), part(rest))
    }

    /// Returns this template without the mark of columns that may be several segments of a path, if one has
    /// it.
    pub(crate) fn of_segments(&self) -> Option<Self> {
        let mut is_marked = false;
        let mut unmarked = |piece: &Piece<String>| match piece {
            Piece::Column(name) if name.starts_with(SEGMENTS) => {
                is_marked = true;
                Piece::Column(name[SEGMENTS.len_utf8()..].to_owned())
            }
            piece => piece.clone(),
        };
        let pieces = self.pieces.iter().map(&mut unmarked).collect();
        is_marked.then(|| Self { pieces, ..self.part() })
    }

    /// Returns this template with `other` behind it.
    pub(crate) fn join(mut self, other: Self) -> Self {
        for piece in other.pieces {
            match (self.pieces.last_mut(), piece) {
                // One text: a part without a column is literal.
                (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(&text),
                (_, piece) => self.pieces.push(piece),
            }
        }
        self
    }

    /// Returns a part of this template with nothing in it.
    pub(crate) fn part(&self) -> Self {
        Self { pieces: Vec::new(), option: self.option.clone() }
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
                let (option, name, found) = (&self.option, field.name(), field.data_type());
                if found.is_nested() {
                    let found = simple_string(found);
                    return Err(StartError::option(format!(
                        "`{option}` names column `{name}`, which is `{found}`; a template takes plain values"
                    )));
                }
                Cells::check(found).map_err(|error| {
                    let why = error.message;
                    StartError::option(format!("`{option}` names column `{name}`: {why}"))
                })?;
            }
        }
        Ok(BoundTemplate { pieces })
    }
}

fn add_piece(parts: &mut [Template], piece: Piece<String>) {
    if let Some(last) = parts.last_mut() {
        last.pieces.push(piece);
    }
}

impl fmt::Debug for Template {
    /// Without the text around the columns, which may have a token in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.columns()).finish()
    }
}

/// A template whose columns were looked up.
#[derive(Clone)]
pub struct BoundTemplate {
    pieces: Vec<Piece<usize>>,
}

impl BoundTemplate {
    /// The positions of the columns in it, in the order of the text.
    pub(crate) fn column_indices(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Column(index) => Some(*index),
            Piece::Text(_) => None,
        })
    }

    /// Opens the columns of `batch`.
    ///
    /// # Errors
    ///
    /// A type that cannot be written as text.
    pub fn rows<'a>(&'a self, batch: &'a RecordBatch) -> Result<TemplateRows<'a>, StartError> {
        let open = |piece: &'a Piece<usize>| match piece {
            Piece::Text(text) => Ok(BoundPiece::Text(text.as_bytes())),
            Piece::Column(index) => {
                Cells::new(batch.column(*index).as_ref()).map(BoundPiece::Cells)
            }
        };
        Ok(TemplateRows { pieces: self.pieces.iter().map(open).collect::<Result<_, _>>()? })
    }
}

impl fmt::Debug for BoundTemplate {
    /// Without the text around the columns, which may have a token in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.column_indices()).finish()
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
                    match escape {
                        Escape::None => {}
                        Escape::Percent => percent_encode_from(cell_start, out),
                        Escape::Path => percent_encode_path_from(cell_start, out),
                    }
                }
            }
        }
        true
    }
}

sparkawait_core::opaque_debug!(TemplateRows<'_>, pieces: pieces.len());

/// Percent-encodes a text, see [`percent_encode_from`].
pub(crate) fn percent_encoded(text: impl Into<Vec<u8>>) -> String {
    let mut out = text.into();
    percent_encode_from(0, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Percent-encodes what follows `start` in `out`, except what RFC 3986 leaves as it is anywhere.
pub(crate) fn percent_encode_from(start: usize, out: &mut Vec<u8>) {
    encode_from(start, out, is_unreserved);
}

/// Percent-encodes what follows `start` in `out`, except that and slashes.
pub(crate) fn percent_encode_path_from(start: usize, out: &mut Vec<u8>) {
    encode_from(start, out, |byte| is_unreserved(byte) || byte == b'/');
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn encode_from(start: usize, out: &mut Vec<u8>, is_plain: impl Fn(u8) -> bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let Some(first) = out[start..].iter().position(|byte| !is_plain(*byte)) else { return };
    let rest = out.split_off(start + first);
    out.reserve(rest.len() * 2);
    for byte in rest {
        if is_plain(byte) {
            out.push(byte);
        } else {
            let digits = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
            out.extend_from_slice(&[b'%', digits[0], digits[1]]);
        }
    }
}

#[cfg(test)]
mod tests;
