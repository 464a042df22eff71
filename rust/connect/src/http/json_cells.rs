// SPDX-License-Identifier: Apache-2.0
//! The values of a column as JSON, as Spark's `to_json` writes them.
//!
//! What it would lose is kept: members that are null, microseconds, and the
//! seconds of an instant whose offset JSON has no way to write.

use std::ops::Range;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, GenericListArray, OffsetSizeTrait, StructArray,
    new_empty_array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, FieldRef};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sparkawait_task::error::StartError;

use super::json_text::{write_items, write_text};
use super::variant::write_variant;
use crate::template::times::{Fraction, Moment, write_date_time, write_offset};
use crate::template::{Cells, local, positions, timestamps};
use crate::zone::Zone;

/// What the metadata of a field says where a struct is a variant.
const VARIANT: &str = "variant";

/// A column whose values are written as JSON.
pub(super) struct JsonCells<'a> {
    nulls: Option<NullBuffer>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    /// Numbers and booleans. What JSON does not take as a number, such as NaN, is a text.
    Plain(Cells<'a>),
    /// Texts, with what must be escaped in them.
    Text(Cells<'a>),
    /// What has nothing to escape: dates, intervals.
    Quoted(Cells<'a>),
    Binary(Cells<'a>),
    Timestamp(Box<dyn Fn(usize) -> Moment + 'a>, Option<Zone>),
    List(Ranges<'a>, Box<JsonCells<'a>>),
    /// Names as JSON with a colon behind them.
    Struct(Vec<(Vec<u8>, JsonCells<'a>)>),
    /// Keys are texts in JSON, whatever they are: those that are not are put into quotes.
    Map(Ranges<'a>, Box<JsonCells<'a>>, Box<JsonCells<'a>>),
    /// Metadata and value of variants.
    Variant(&'a BinaryArray, &'a BinaryArray),
    /// Where the value of each row is among others.
    Dictionary(Vec<usize>, Box<JsonCells<'a>>),
}

/// Where the elements of a row are.
type Ranges<'a> = Box<dyn Fn(usize) -> Range<usize> + 'a>;

impl<'a> JsonCells<'a> {
    /// Opens a column.
    ///
    /// # Errors
    ///
    /// A type whose values have no JSON.
    pub(super) fn new(array: &'a dyn Array) -> Result<Self, StartError> {
        let kind = match array.data_type() {
            DataType::List(_) => list(array.as_list::<i32>())?,
            DataType::LargeList(_) => list(array.as_list::<i64>())?,
            DataType::FixedSizeList(_, _) => {
                let lists = array.as_fixed_size_list();
                let elements = Self::new(lists.values().as_ref())?;
                let length = usize::try_from(lists.value_length()).unwrap_or_default();
                let range = move |row| row * length..(row + 1) * length;
                Kind::List(Box::new(range), Box::new(elements))
            }
            DataType::Struct(fields) => {
                if let Some(variant) = variant(array.as_struct()) {
                    return Ok(Self { nulls: array.logical_nulls(), kind: variant });
                }
                let columns = array.as_struct().columns().iter();
                let member = |(field, column): (&FieldRef, &'a ArrayRef)| {
                    let mut name = Vec::new();
                    write_text(field.name(), &mut name);
                    name.push(b':');
                    Ok((name, Self::new(column.as_ref())?))
                };
                let members = fields.iter().zip(columns).map(member);
                Kind::Struct(members.collect::<Result<_, StartError>>()?)
            }
            DataType::Map(..) => {
                let map = array.as_map();
                if map.keys().data_type().is_nested() {
                    return Err(StartError::option("a map with nested keys has no JSON form"));
                }
                let offsets = map.value_offsets();
                let keys = Self::new(map.keys().as_ref())?;
                let values = Self::new(map.values().as_ref())?;
                let range = |row: usize| position(offsets[row])..position(offsets[row + 1]);
                Kind::Map(Box::new(range), Box::new(keys), Box::new(values))
            }
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                let values = Self::new(dictionary.values().as_ref())?;
                Kind::Dictionary(positions(dictionary), Box::new(values))
            }
            plain => Self::plain(array, plain)?,
        };
        Ok(Self { nulls: array.logical_nulls(), kind })
    }

    fn plain(array: &'a dyn Array, data_type: &DataType) -> Result<Kind<'a>, StartError> {
        let cells = Cells::new(array)?;
        Ok(match data_type {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Kind::Text(cells),
            it if it.is_binary() => Kind::Binary(cells),
            it if it.is_numeric() || *it == DataType::Boolean => Kind::Plain(cells),
            _ => match timestamps(array)? {
                Some((read, zone)) => Kind::Timestamp(read, zone),
                None => Kind::Quoted(cells),
            },
        })
    }

    /// Checks that columns of a type can be opened.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(super) fn check(data_type: &DataType) -> Result<(), StartError> {
        let array = new_empty_array(data_type);
        JsonCells::new(array.as_ref()).map(drop)
    }

    /// Whether the value of `row` is null.
    pub(super) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Appends the value of `row`, `null` for a null.
    ///
    /// Returns `None` if it has a variant with invalid bytes.
    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) -> Option<()> {
        if self.is_null(row) {
            out.extend_from_slice(b"null");
            return Some(());
        }
        match &self.kind {
            Kind::Plain(cells) => {
                let start = out.len();
                cells.write(row, out);
                // NaN, Infinity and -Infinity.
                if matches!(&out[start..], [b'N' | b'I', ..] | [b'-', b'I', ..]) {
                    out.insert(start, b'"');
                    out.push(b'"');
                }
            }
            Kind::Variant(metadata, value) => {
                write_variant(metadata.value(row), value.value(row), out)?;
            }
            Kind::Dictionary(keys, values) => values.write(keys[row], out)?,
            Kind::Text(cells) => write_text(cells.as_str(row).unwrap_or_default(), out),
            Kind::Quoted(cells) => {
                out.push(b'"');
                cells.write(row, out);
                out.push(b'"');
            }
            Kind::Binary(cells) => {
                let mut bytes = Vec::new();
                cells.write(row, &mut bytes);
                out.push(b'"');
                out.extend_from_slice(BASE64_STANDARD.encode(bytes).as_bytes());
                out.push(b'"');
            }
            Kind::Timestamp(read, zone) => {
                out.push(b'"');
                write_timestamp(read(row), zone.as_ref(), out);
                out.push(b'"');
            }
            Kind::List(ranges, elements) => {
                write_items([b'[', b']'], ranges(row), out, |element, out| {
                    elements.write(element, out)
                })?;
            }
            Kind::Struct(members) => {
                write_items([b'{', b'}'], members, out, |(name, values), out| {
                    out.extend_from_slice(name);
                    values.write(row, out)
                })?;
            }
            Kind::Map(ranges, keys, values) => {
                write_items([b'{', b'}'], ranges(row), out, |entry, out| {
                    let start = out.len();
                    keys.write(entry, out)?;
                    if out.get(start) != Some(&b'"') {
                        out.insert(start, b'"');
                        out.push(b'"');
                    }
                    out.push(b':');
                    values.write(entry, out)
                })?;
            }
        }
        Some(())
    }
}

fn list<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Result<Kind<'_>, StartError> {
    let offsets = lists.value_offsets();
    let elements = JsonCells::new(lists.values().as_ref())?;
    let range = |row: usize| offsets[row].as_usize()..offsets[row + 1].as_usize();
    Ok(Kind::List(Box::new(range), Box::new(elements)))
}

fn position(offset: i32) -> usize {
    usize::try_from(offset).unwrap_or_default()
}

/// Returns the columns of a struct that stands for variants, if it does.
fn variant(array: &StructArray) -> Option<Kind<'_>> {
    let is_marked =
        |field: &FieldRef| field.metadata().get(VARIANT).is_some_and(|value| value == "true");
    let column = |name| array.column_by_name(name)?.as_binary_opt::<i32>();
    let (metadata, value) = (column("metadata")?, column("value")?);
    array.fields().iter().any(is_marked).then_some(Kind::Variant(metadata, value))
}

/// Appends an instant as clocks of a zone show it, with its offset, or what clocks showed without.
fn write_timestamp(value: Moment, zone: Option<&Zone>, out: &mut Vec<u8>) {
    let Some(zone) = zone else {
        write_date_time(value, b'T', Fraction::Millis, out);
        return;
    };
    let start = out.len();
    write_date_time(local(value, zone), b'T', Fraction::Millis, out);
    if !write_offset(zone.offset_seconds(value.micros()), out) {
        out.truncate(start);
        write_date_time(value, b'T', Fraction::Millis, out);
        out.push(b'Z');
    }
}

#[cfg(test)]
mod tests;
