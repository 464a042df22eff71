// SPDX-License-Identifier: Apache-2.0
//! Result columns out of the rows of a statement.

use std::error::Error as StdError;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, SchemaRef};
use sparkawait_task::error::{CallFailure, TaskError};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::column::{Column, Values, push_end};
use crate::lookup::rows_of;
use crate::postgres::arguments::{DAY_MICROS, EPOCH_DAYS, EPOCH_MICROS};
use crate::postgres::numeric::Numeric;
use crate::postgres::outputs::Form;
use crate::postgres::types::Wire;
use crate::text::{self, TextColumn, misfit};

/// Days from 1970-01-01 to 0001-01-01 and to 10000-01-01: Spark's dates are between.
const DAYS: std::ops::Range<i32> = -719_162..2_932_897;

/// What is wrong with a value that is not one of Arrow.
const UNFIT: &str = "the value does not fit: infinite, out of range, of more digits, or unreadable";

/// What is wrong with a value that the declared type does not have.
const INEXACT: &str = "the value is not exactly one";

/// The bytes of a value as the server sent them.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Collects the rows of some calls.
pub(crate) struct Rows {
    schema: SchemaRef,
    /// Each with how its values are sent.
    columns: Vec<(TextColumn, Form)>,
    count: usize,
}

impl Rows {
    /// Makes the columns of `schema`; the `n`th is sent as `forms[n]`.
    pub(crate) fn new(schema: &SchemaRef, forms: &[Form], rows: usize) -> Self {
        let columns = schema.fields().iter().zip(forms);
        let columns = columns.map(|(field, form)| (TextColumn::new(field, rows), *form)).collect();
        Self { schema: SchemaRef::clone(schema), columns, count: 0 }
    }

    /// Appends a row, whose result columns begin at `first`.
    pub(crate) fn push(&mut self, row: &Row, first: usize) {
        for (index, (column, form)) in self.columns.iter_mut().enumerate() {
            match row.try_get::<_, Option<Raw<'_>>>(first + index) {
                Ok(Some(Raw(bytes))) => push(column, *form, bytes),
                _ => column.push_null(),
            }
        }
        self.count += 1;
    }

    /// Appends a row of nulls.
    pub(crate) fn push_nulls(&mut self) {
        self.columns.iter_mut().for_each(|(column, _)| column.push_null());
        self.count += 1;
    }

    /// Returns the rows, and those that do not fit, ascending.
    pub(crate) fn finish(self) -> Result<(RecordBatch, Vec<(usize, CallFailure)>), TaskError> {
        let columns = self.columns.into_iter().map(|(column, _)| column.finish());
        let (rows, mut bad) =
            rows_of(columns.collect::<Result<_, _>>()?, &self.schema, self.count)?;
        bad.sort_by_key(|(row, _)| *row);
        Ok((rows, bad))
    }
}

/// Appends a value.
fn push(column: &mut TextColumn, Form { wire, is_list }: Form, bytes: &[u8]) {
    if is_list {
        column.push_with(|field, column| push_list(field, column, wire, bytes));
    } else if matches!(wire, Wire::Text | Wire::Bytea | Wire::ByText) {
        column.push(bytes);
    } else {
        column.push_with(|field, column| {
            let pushed = push_value(column, wire, bytes);
            pushed.map_err(|what| misfit(field.name(), field.data_type(), &what))
        });
    }
}

/// Appends an array, if it has one dimension, as a list.
fn push_list(field: &Field, column: &mut Column, wire: Wire, bytes: &[u8]) -> Result<(), String> {
    let unfit = || misfit(field.name(), field.data_type(), UNFIT);
    let Values::List { offsets, element } = &mut column.values else { return Err(unfit()) };
    // Of whatever type the elements are: they are not read there.
    let elements = Vec::<Option<Raw<'_>>>::from_sql(&Type::BYTEA_ARRAY, bytes);
    for value in elements.map_err(|_| unfit())? {
        let of_element = |what: &str| format!("an element of `{}`: {what}", field.name());
        if let Some(Raw(bytes)) = value {
            push_value(&mut element.column, wire, bytes).map_err(|what| {
                of_element(&misfit(&element.name, element.column.data_type(), &what))
            })?;
        } else {
            element.column.push_null();
        }
        if element.is_required && element.column.ends_with_null() {
            return Err(of_element("it is declared as not null, and PostgreSQL has none"));
        }
    }
    push_end(offsets, element.column.len()).map_err(|_| unfit())?;
    column.advance();
    Ok(())
}

/// Appends a value that is not a list; says what is wrong with it.
fn push_value(column: &mut Column, wire: Wire, bytes: &[u8]) -> Result<(), String> {
    match wire {
        Wire::Text | Wire::Bytea | Wire::ByText => text::push(column, bytes),
        // The first byte is the version of the format.
        Wire::Jsonb => text::push(column, bytes.get(1..).ok_or(UNFIT)?),
        Wire::Uuid => text::push(column, &uuid_text(fixed(bytes).ok_or(UNFIT)?)),
        _ => push_exactly(&mut column.values, wire, bytes).map(|()| column.advance()),
    }
}

/// Appends a value that is read out of its binary form, if that loses nothing.
fn push_exactly(values: &mut Values, wire: Wire, bytes: &[u8]) -> Result<(), String> {
    let whole = || whole(wire, bytes).ok_or(UNFIT);
    match values {
        Values::Boolean(values) => values.append(*bytes.first().ok_or(UNFIT)? != 0),
        Values::Integer { values, least, most } => {
            let value = i64::try_from(whole()?).ok();
            values.push(value.filter(|it| (*least..=*most).contains(it)).ok_or(INEXACT)?);
        }
        Values::Unsigned(values) => values.push(u64::try_from(whole()?).map_err(|_| INEXACT)?),
        Values::Decimal { values, precision, scale } => values.push(match wire {
            Wire::Numeric => {
                let number = Numeric::read(bytes).ok_or(UNFIT)?;
                number.to_decimal(*precision, *scale).ok_or(UNFIT)?
            }
            _ => scaled(whole()?, *precision, *scale).ok_or(INEXACT)?,
        }),
        Values::Float(values) => values.push(match wire {
            Wire::Numeric => Numeric::read(bytes).and_then(Numeric::to_float).ok_or(UNFIT)?,
            _ => narrow(double(wire, bytes)?).ok_or(INEXACT)?,
        }),
        Values::Double(values) => values.push(double(wire, bytes)?),
        Values::Date(values) => values.push(date(bytes).ok_or(UNFIT)?),
        Values::Micros { values, unit, .. } => {
            let micros = micros(wire, bytes).ok_or(UNFIT)?;
            values.push(Some(micros).filter(|it| unit.holds(*it)).ok_or(INEXACT)?);
        }
        _ => return Err(UNFIT.to_owned()),
    }
    Ok(())
}

fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

/// Reads a whole number.
fn whole(wire: Wire, bytes: &[u8]) -> Option<i128> {
    Some(match wire {
        Wire::Int2 => i16::from_be_bytes(fixed(bytes)?).into(),
        Wire::Int4 => i32::from_be_bytes(fixed(bytes)?).into(),
        Wire::Int8 => i64::from_be_bytes(fixed(bytes)?).into(),
        _ => Numeric::read(bytes)?.to_decimal(38, 0)?,
    })
}

/// Returns a whole number as a decimal; `None` if it has more digits than that, or others.
fn scaled(number: i128, precision: u8, scale: i8) -> Option<i128> {
    let power = 10_i128.checked_pow(scale.unsigned_abs().into())?;
    let unscaled = if scale < 0 {
        (number % power == 0).then_some(number / power)
    } else {
        number.checked_mul(power)
    };
    unscaled.filter(|it| it.unsigned_abs() < 10_u128.pow(precision.into()))
}

/// Reads a number of any kind as a floating one: that which is nearest to a decimal.
fn double(wire: Wire, bytes: &[u8]) -> Result<f64, &'static str> {
    match wire {
        Wire::Float4 => fixed(bytes).map(|it| f32::from_be_bytes(it).into()).ok_or(UNFIT),
        Wire::Float8 => fixed(bytes).map(f64::from_be_bytes).ok_or(UNFIT),
        Wire::Numeric => Numeric::read(bytes).and_then(Numeric::to_float).ok_or(UNFIT),
        _ => {
            let number = whole(wire, bytes).ok_or(UNFIT)?;
            #[expect(clippy::cast_precision_loss, reason = "what has lost something is refused")]
            let float = number as f64;
            #[expect(clippy::cast_possible_truncation, reason = "it is a whole number")]
            let is_same = float as i128 == number;
            is_same.then_some(float).ok_or(INEXACT)
        }
    }
}

/// Returns the same number with fewer digits, if that has them all.
fn narrow(number: f64) -> Option<f32> {
    #[expect(clippy::cast_possible_truncation, reason = "what has lost something is refused")]
    let narrow = number as f32;
    (f64::from(narrow).total_cmp(&number).is_eq() || number.is_nan()).then_some(narrow)
}

/// Reads a date; infinity is the last of all numbers, and out of range.
fn date(bytes: &[u8]) -> Option<i32> {
    let days = i32::from_be_bytes(fixed(bytes)?).checked_add(EPOCH_DAYS)?;
    DAYS.contains(&days).then_some(days)
}

/// Reads a time of any kind; both kinds of timestamps are sent in UTC.
fn micros(wire: Wire, bytes: &[u8]) -> Option<i64> {
    match wire {
        Wire::Date => date(bytes).map(|days| i64::from(days) * DAY_MICROS),
        Wire::Timestamp => {
            let micros = i64::from_be_bytes(fixed(bytes)?).checked_add(EPOCH_MICROS)?;
            let days = i32::try_from(micros.div_euclid(DAY_MICROS)).ok()?;
            DAYS.contains(&days).then_some(micros)
        }
        Wire::Time => {
            let micros = i64::from_be_bytes(fixed(bytes)?);
            // PostgreSQL has 24:00:00 too.
            (0..DAY_MICROS).contains(&micros).then_some(micros)
        }
        _ => interval(bytes),
    }
}

/// Reads an interval as microseconds; `None` if it has months, which are of no length.
fn interval(bytes: &[u8]) -> Option<i64> {
    let (micros, rest) = bytes.split_first_chunk()?;
    let (days, months) = rest.split_first_chunk()?;
    let (days, months) = (i32::from_be_bytes(*days), i32::from_be_bytes(fixed(months)?));
    let days = i64::from(days).checked_mul(DAY_MICROS).filter(|_| months == 0)?;
    days.checked_add(i64::from_be_bytes(*micros))
}

/// Writes a UUID in its usual form.
fn uuid_text(bytes: [u8; 16]) -> [u8; 36] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            at += 1;
        }
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 15)];
        at += 2;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_written_in_their_usual_form() {
        let bytes = std::array::from_fn(|index| u8::try_from(index * 17).unwrap());
        assert_eq!(&uuid_text(bytes), b"00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn an_interval_with_months_has_no_length() {
        let sent = |micros: i64, days: i32, months: i32| {
            [&micros.to_be_bytes()[..], &days.to_be_bytes(), &months.to_be_bytes()].concat()
        };
        assert_eq!(interval(&sent(-5, 2, 0)), Some(2 * DAY_MICROS - 5));
        assert_eq!(interval(&sent(0, 0, 1)), None);
        assert_eq!(interval(&sent(0, i32::MAX, 0)), None);
        assert_eq!(interval(&sent(0, 1, 0)[..15]), None);
    }
}
