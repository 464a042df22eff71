// SPDX-License-Identifier: Apache-2.0
//! One JSON value as one value of a column, by the rules of Spark's `from_json`.
//!
//! | type | JSON |
//! |---|---|
//! | integers | a number without fraction and exponent, in range |
//! | float, double | a number; `NaN`, `Infinity`, `-Infinity` also as texts |
//! | decimal | a number or its text, rounded half up; never more digits than the type has |
//! | boolean | `true`, `false` |
//! | string | a text; anything else as it is written |
//! | binary | base64 |
//! | timestamp | a text, or whole seconds since 1970 |
//! | date, other times, intervals | a text, as `cast` reads it |
//! | array, struct, map | an array, an object; a struct takes the last of equal members; a column of them also reads the JSON in a text |

use jiter::{Jiter, JiterError, Peek};
use sparkawait_arrow::simple_string::simple_string;

use super::base64;
use super::halves::Marked;
use super::reader::{NoRoom, Reader};
use crate::column::{Column, Full, Member, Micros, Values, push_end};
use crate::text::number;
use crate::text::times::push_time;

/// What the key of a map takes beside its text.
const BYTES_OF_KEY: usize = 4;

/// Why a value cannot be read; says nothing of its contents.
#[derive(Debug)]
pub(super) enum Misfit {
    /// The document is not JSON, or cannot be read whatever the types are.
    Document(String),
    /// More would be made of the document than may be, with those before it at least.
    TooMuch,
    /// The same, of one column.
    Full,
    /// A value is not of its type.
    Value {
        /// The members that lead to it, the innermost first.
        path: Vec<String>,
        text: String,
    },
}

impl From<NoRoom> for Misfit {
    fn from(_: NoRoom) -> Self {
        Self::TooMuch
    }
}

/// Returns the text of a document without the byte order mark that some send, as browsers do.
pub(super) fn json_text(document: &[u8]) -> Read<&[u8]> {
    match std::str::from_utf8(document) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text).as_bytes()),
        Err(_) => Err(Misfit::document("the document is not UTF-8 text")),
    }
}

pub(super) type Read<T = ()> = Result<T, Misfit>;

/// Reads a text that is JSON, and once more where it has halves of characters, which are marked then: what
/// the first time has left is cut off by `read`.
#[inline]
pub(super) fn read_json<T>(
    text: &[u8],
    room: usize,
    mut read: impl FnMut(Reader<'_>) -> Read<T>,
) -> Read<T> {
    match read(Reader::new(text, room)) {
        Err(Misfit::Document(told)) => match Marked::of(text) {
            Some(marked) => read(Reader::of_marked(&marked, text, room)),
            None => Err(Misfit::Document(told)),
        },
        read => read,
    }
}

/// Reads the one value of a text by `read`; returns how many bytes others may be of.
#[inline]
pub(super) fn read_value(
    mut jiter: Reader<'_>,
    read: impl FnOnce(&mut Reader<'_>, Peek) -> Read,
) -> Read<usize> {
    let peek = jiter.peek().map_err(|error| Misfit::syntax(&jiter, &error))?;
    read(&mut jiter, peek)?;
    jiter.finish().map_err(|error| Misfit::syntax(&jiter, &error))?;
    Ok(jiter.room())
}

impl Misfit {
    pub(super) fn document(text: impl Into<String>) -> Self {
        Self::Document(text.into())
    }

    /// Makes the misfit of a document that is not JSON.
    pub(super) fn syntax(jiter: &Jiter<'_>, error: &JiterError) -> Self {
        let position = jiter.error_position(error.index);
        Self::document(format!("the document is not JSON: {} at {position}", error.error_type))
    }

    /// Makes the misfit of a document that begins as HTML does.
    pub(super) fn page() -> Self {
        Self::document(
            "the document is not JSON: it begins with `<`, as the page of a login or of a proxy does",
        )
    }

    fn value(column: &Column, found: &str) -> Self {
        let text = format!("should be `{}`, but {found}", simple_string(column.data_type()));
        Self::Value { path: Vec::new(), text }
    }

    fn full(_: Full) -> Self {
        Self::Full
    }

    /// Whether the document may be read where none was read before it.
    pub(super) const fn is_of_room(&self) -> bool {
        matches!(self, Self::TooMuch | Self::Full)
    }

    /// Says that the value belongs to a member.
    pub(super) fn inside(mut self, member: &str) -> Self {
        if let Self::Value { path, .. } = &mut self {
            path.push(member.to_owned());
        }
        self
    }

    pub(super) fn message(self) -> String {
        match self {
            Self::Document(text) => text,
            Self::TooMuch => {
                "its rows come to more bytes than 16 times `max_reply_bytes`, 256 MiB at \
                              least; ask for fewer rows at a time, or raise `max_reply_bytes`"
                    .to_owned()
            }
            Self::Full => "the document has more than 2 GiB of a column".to_owned(),
            Self::Value { path, text } if path.is_empty() => format!("the value {text}"),
            Self::Value { path, text } => {
                let path: Vec<&str> = path.iter().rev().map(String::as_str).collect();
                format!("`{}` {text}", path.join("."))
            }
        }
    }
}

/// Appends the value that begins with `peek`; what is left behind by a failure must be cut off.
pub(super) fn read(jiter: &mut Reader<'_>, peek: Peek, column: &mut Column) -> Read {
    if peek == Peek::Null {
        jiter.known_null().map_err(|error| Misfit::syntax(jiter, &error))?;
        column.push_null();
        return Ok(());
    }
    match &mut column.values {
        Values::List { .. } => read_list(jiter, peek, column)?,
        Values::Struct { .. } => read_struct(jiter, peek, column)?,
        Values::Map { .. } => read_map(jiter, peek, column)?,
        Values::Text(values) if peek != Peek::String => {
            let start = jiter.current_index();
            skip(jiter, peek)?;
            values.push(jiter.slice_to_current(start)).map_err(Misfit::full)?;
        }
        _ if peek == Peek::String => read_text(jiter, column)?,
        _ if peek.is_num() => read_number(jiter, peek, column)?,
        Values::Boolean(values) if matches!(peek, Peek::True | Peek::False) => {
            match jiter.known_bool(peek) {
                Ok(value) => values.append(value),
                Err(error) => return Err(Misfit::syntax(jiter, &error)),
            }
        }
        _ => return Err(other(jiter, peek, column)),
    }
    column.advance();
    Ok(())
}

/// Appends the value of a member, which may be one that must not be null.
pub(super) fn read_member(jiter: &mut Reader<'_>, peek: Peek, member: &mut Member) -> Read {
    if peek == Peek::Null && member.is_required {
        return Err(null(&member.column));
    }
    read(jiter, peek, &mut member.column)
}

/// Appends the value of a column, which was refused, by the JSON in it: what has members or elements may be
/// a text of that, as models answer. `start` is where the value begins, and it has been skipped.
#[cold]
pub(super) fn read_text_of_json(
    jiter: &mut Reader<'_>,
    start: usize,
    member: &mut Member,
    refused: Misfit,
) -> Read {
    let is_text = jiter.text_from(start).starts_with(b"\"");
    if !is_text || !member.column.is_nested() || !matches!(refused, Misfit::Value { .. }) {
        return Err(refused);
    }
    let (room, len) = (jiter.room(), member.column.len());
    let left = jiter.again(start, |jiter| {
        let mark = jiter.mark();
        let text = match jiter.known_str() {
            Ok(text) if mark.is_some_and(|mark| text.contains(mark)) => {
                return Err(half(&member.column));
            }
            Ok(text) => text,
            Err(error) => return Err(Misfit::syntax(jiter, &error)),
        };
        read_json(text.as_bytes(), room, |inner| {
            if inner.mark().is_some() {
                member.column.truncate(len);
            }
            read_value(inner, |inner, peek| read_member(inner, peek, member))
        })
    });
    let left = left.map_err(|misfit| match misfit {
        Misfit::Document(_) => {
            Misfit::value(&member.column, "the document has a text that is not JSON")
        }
        misfit => misfit,
    })?;
    jiter.leave_room(left);
    Ok(())
}

/// Appends a null where there is no value.
pub(super) fn push_missing(member: &mut Member) -> Read {
    if member.is_required {
        return Err(null(&member.column).inside(&member.name));
    }
    member.column.push_null();
    Ok(())
}

/// Finds a name, at first the one behind that which was found last.
#[inline]
pub(super) fn find<T>(
    all: &[T],
    name: impl Fn(&T) -> &str,
    wanted: &str,
    next: &mut usize,
) -> Option<usize> {
    let found = (*next..all.len()).chain(0..*next).find(|index| name(&all[*index]) == wanted)?;
    *next = found + 1;
    Some(found)
}

fn null(column: &Column) -> Misfit {
    Misfit::value(column, "is declared as not null, and the document has none")
}

fn half(column: &Column) -> Misfit {
    Misfit::value(column, "the document has a text with half of a character")
}

/// Returns why a value that begins with `peek` is not of the type.
fn other(jiter: &mut Reader<'_>, peek: Peek, column: &Column) -> Misfit {
    let found = match peek {
        Peek::True | Peek::False => "a boolean",
        Peek::String => "a text",
        Peek::Array => "an array",
        Peek::Object => "an object",
        peek if peek.is_num() => "a number",
        _ => "nothing that JSON has",
    };
    // Where the value itself is not JSON, that is what is wrong.
    match jiter.known_skip(peek) {
        Ok(()) => Misfit::value(column, &format!("the document has {found}")),
        Err(error) => Misfit::syntax(jiter, &error),
    }
}

fn read_text(jiter: &mut Reader<'_>, column: &mut Column) -> Read {
    let mark = jiter.mark();
    let text = match jiter.known_str() {
        Ok(text) => text,
        Err(error) => return Err(Misfit::syntax(jiter, &error)),
    };
    if mark.is_some_and(|mark| text.contains(mark)) {
        return Err(half(column));
    }
    let pushed = match &mut column.values {
        Values::Text(values) => {
            return values.push(text.as_bytes()).map_err(Misfit::full);
        }
        Values::Binary(values) => {
            return match values.push_with(|bytes| base64::decode(text, bytes)) {
                Ok(true) => Ok(()),
                Ok(false) => {
                    Err(Misfit::value(column, "the document has a text that is not base64"))
                }
                Err(full) => Err(Misfit::full(full)),
            };
        }
        Values::Float(values) => not_finite(text).map(|value| values.push(value)),
        Values::Double(values) => not_finite(text).map(|value| values.push(value.into())),
        Values::Decimal { values, precision, scale } => {
            number::plain_decimal(text, *precision, *scale).map(|value| values.push(value))
        }
        times @ (Values::Date(_) | Values::Micros { .. }) => push_time(times, text, false),
        _ => return Err(Misfit::value(column, "the document has a text")),
    };
    pushed
        .ok_or_else(|| Misfit::value(column, "the document has a text that cannot be read as one"))
}

/// Reads the numbers that JSON has no tokens for.
fn not_finite(text: &str) -> Option<f32> {
    match text {
        "NaN" => Some(f32::NAN),
        "Infinity" | "+Infinity" | "+INF" => Some(f32::INFINITY),
        "-Infinity" | "-INF" => Some(f32::NEG_INFINITY),
        _ => None,
    }
}

fn read_number(jiter: &mut Reader<'_>, peek: Peek, column: &mut Column) -> Read {
    let text = match jiter.known_number_bytes(peek) {
        Ok(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
        Err(error) => return Err(Misfit::syntax(jiter, &error)),
    };
    // An integer has no minus zero.
    let text = if text == "-0" { "0" } else { text };
    let pushed = match &mut column.values {
        Values::Integer { values, least, most } => text
            .parse()
            .ok()
            .filter(|value| (*least..=*most).contains(value))
            .map(|value| values.push(value)),
        Values::Unsigned(values) => text.parse().ok().map(|value| values.push(value)),
        Values::Float(values) => text.parse().ok().map(|value| values.push(value)),
        Values::Double(values) => text.parse().ok().map(|value| values.push(value)),
        Values::Decimal { values, precision, scale } => {
            number::plain_decimal(text, *precision, *scale).map(|value| values.push(value))
        }
        Values::Micros { values, unit, of: Micros::Timestamp(Some(_)) } => text
            .parse()
            .ok()
            .and_then(|seconds: i64| seconds.checked_mul(1_000_000))
            .filter(|micros| unit.holds(*micros))
            .map(|micros| values.push(micros)),
        _ => return Err(Misfit::value(column, "the document has a number")),
    };
    pushed.ok_or_else(|| Misfit::value(column, "the document has a number that does not fit"))
}

pub(super) fn skip(jiter: &mut Reader<'_>, peek: Peek) -> Read {
    jiter.known_skip(peek).map_err(|error| Misfit::syntax(jiter, &error))
}

/// Hands the value of each member of an object to `take`, with what `find` says of its name.
pub(super) fn each_member<T>(
    jiter: &mut Reader<'_>,
    mut find: impl FnMut(&str) -> T,
    mut take: impl FnMut(&mut Reader<'_>, T, Peek) -> Read,
) -> Read {
    let mut key = jiter.known_object();
    loop {
        let found = match key {
            Ok(Some(name)) => find(name),
            Ok(None) => return Ok(()),
            Err(error) => return Err(Misfit::syntax(jiter, &error)),
        };
        let peek = jiter.peek().map_err(|error| Misfit::syntax(jiter, &error))?;
        take(jiter, found, peek)?;
        key = jiter.next_key();
    }
}

/// Hands each element of an array to `take`, with its index.
pub(super) fn each_element(
    jiter: &mut Reader<'_>,
    mut take: impl FnMut(&mut Reader<'_>, usize, Peek) -> Read,
) -> Read {
    let mut next = jiter.known_array().map_err(|error| Misfit::syntax(jiter, &error))?;
    let mut index = 0;
    while let Some(peek) = next {
        take(jiter, index, peek)?;
        index += 1;
        next = jiter.array_step().map_err(|error| Misfit::syntax(jiter, &error))?;
    }
    Ok(())
}

fn read_list(jiter: &mut Reader<'_>, peek: Peek, column: &mut Column) -> Read {
    let Values::List { offsets, element } = &mut column.values else { return Ok(()) };
    if peek != Peek::Array {
        return Err(other(jiter, peek, column));
    }
    each_element(jiter, |jiter, _, peek| {
        jiter.take_room(element.column.width())?;
        read_member(jiter, peek, element)
    })?;
    push_end(offsets, element.column.len()).map_err(Misfit::full)
}

fn read_struct(jiter: &mut Reader<'_>, peek: Peek, column: &mut Column) -> Read {
    let row = column.len();
    let Values::Struct { fields } = &mut column.values else { return Ok(()) };
    if peek != Peek::Object {
        return Err(other(jiter, peek, column));
    }
    let mut next = 0;
    let mut key = jiter.known_object();
    loop {
        let found = match key {
            Ok(Some(name)) => find(fields, |field| &field.name, name, &mut next),
            Ok(None) => break,
            Err(error) => return Err(Misfit::syntax(jiter, &error)),
        };
        let peek = jiter.peek().map_err(|error| Misfit::syntax(jiter, &error))?;
        if let Some(found) = found {
            let field = &mut fields[found];
            if field.column.len() > row {
                field.column.truncate(row);
            }
            read_member(jiter, peek, field).map_err(|misfit| misfit.inside(&field.name))?;
        } else {
            skip(jiter, peek)?;
        }
        key = jiter.next_key();
    }
    let missing = fields.iter_mut().filter(|field| field.column.len() == row);
    missing.into_iter().try_for_each(push_missing)
}

fn read_map(jiter: &mut Reader<'_>, peek: Peek, column: &mut Column) -> Read {
    let Values::Map { offsets, keys, value } = &mut column.values else { return Ok(()) };
    if peek != Peek::Object {
        return Err(other(jiter, peek, column));
    }
    let (mark, mut has_half) = (jiter.mark(), false);
    each_member(
        jiter,
        |name| {
            has_half |= mark.is_some_and(|mark| name.contains(mark));
            keys.push(name.as_bytes())
        },
        |jiter, pushed, peek| {
            pushed.map_err(Misfit::full)?;
            jiter.take_room(BYTES_OF_KEY + value.column.width())?;
            read_member(jiter, peek, value)
        },
    )?;
    push_end(offsets, value.column.len()).map_err(Misfit::full)?;
    if has_half {
        return Err(Misfit::value(column, "the document has a name with half of a character"));
    }
    Ok(())
}
