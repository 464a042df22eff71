// SPDX-License-Identifier: Apache-2.0
//! Columns as arguments of the types that a statement wants: exactly, or not at all.
//!
//! A string is read by the server, as a literal in a statement would be. Any
//! other value is sent as what it is; a type that could lose something on its
//! way is refused, and a value that would lose something fails its row.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder, make_array, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Date32Type, TimestampMicrosecondType};
use arrow::error::ArrowError;
use tokio_postgres::types::{Kind, Type};

use crate::postgres::arguments::{EPOCH_DAYS, EPOCH_MICROS};
use crate::postgres::exact_cast;
use crate::postgres::failure::Fault;
use crate::postgres::literals::array_literals;
use crate::postgres::types::{Wire, base};
use crate::template::Cells;

/// How a column is sent instead of a placeholder.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    /// The column.
    name: String,
    pub(crate) wire: Wire,
    /// The type of the placeholder.
    pub(crate) of: Type,
}

impl Argument {
    /// Chooses how a column of type `from` is sent as `of`.
    pub(crate) fn new(name: &str, from: &DataType, of: &Type) -> Result<Self, Fault> {
        let Some(wire) = wire(from, of) else { return Err(refused(name, from, of)) };
        Ok(Self { name: name.to_owned(), wire, of: of.clone() })
    }

    /// Returns the type of the elements of an argument for many rows.
    pub(crate) fn element(&self) -> Type {
        if self.wire == Wire::ByText { Type::TEXT } else { self.of.clone() }
    }

    /// Returns the failure of a row whose value cannot be sent.
    pub(crate) fn misfit(&self) -> Fault {
        let (name, of) = (&self.name, &self.of);
        Fault::permanent(format!(
            "the value of argument column `{name}` is not a `{of}`: it is out of range, or would be \
             rounded"
        ))
    }

    /// Turns a column into one that can be sent; null where it is, and where a value does not fit.
    pub(crate) fn convert(&self, column: &ArrayRef) -> Result<ArrayRef, Fault> {
        let name = &self.name;
        let failed = |what: &str| {
            Fault::permanent(format!("argument column `{name}` cannot be sent: {what}"))
        };
        let column = match column.data_type() {
            DataType::Null => return Ok(new_null_array(&self.wire.natural(), column.len())),
            DataType::Dictionary(_, values) => {
                cast(column, values).map_err(|error| failed(&error.to_string()))?
            }
            _ => ArrayRef::clone(column),
        };
        if let (Kind::Array(element), DataType::List(_) | DataType::LargeList(_)) =
            (base(&self.of).kind(), column.data_type())
        {
            let element = Self::new(name, element_type(&column), element)?;
            let convert = |elements: &ArrayRef| element.convert(elements);
            return array_literals(&column, element.wire, &element.of, convert);
        }
        if is_string(base(&self.of)) && !column.data_type().is_string() {
            return texts(&column).map_err(|error| failed(&error));
        }
        let to = self.wire.natural();
        let column = without_zone(&column).map_err(|error| failed(&error.to_string()))?;
        if *column.data_type() == to {
            return Ok(in_range(column));
        }
        let sent = exact_cast::cast(&column, &to).map_err(|error| failed(&error.to_string()))?;
        Ok(in_range(sent))
    }
}

fn element_type(lists: &ArrayRef) -> &DataType {
    match lists.data_type() {
        DataType::List(field) | DataType::LargeList(field) => field.data_type(),
        other => other,
    }
}

/// Returns the moments of a column as they are counted, whatever time zone they are shown in.
fn without_zone(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let DataType::Timestamp(unit, Some(_)) = column.data_type() else {
        return Ok(ArrayRef::clone(column));
    };
    let counted = column.to_data().into_builder().data_type(DataType::Timestamp(*unit, None));
    Ok(make_array(counted.build()?))
}

/// Leaves out what PostgreSQL would take for infinity; the server refuses what else it does not have.
fn in_range(column: ArrayRef) -> ArrayRef {
    const FIRST_DAY: i32 = i32::MIN + EPOCH_DAYS + 1;
    const FIRST_MICRO: i64 = i64::MIN + EPOCH_MICROS + 1;
    if let Some(days) = column.as_primitive_opt::<Date32Type>()
        && days.values().iter().any(|it| *it < FIRST_DAY)
    {
        return Arc::new(days.unary_opt::<_, Date32Type>(|it| (it >= FIRST_DAY).then_some(it)));
    }
    if let Some(micros) = column.as_primitive_opt::<TimestampMicrosecondType>()
        && micros.values().iter().any(|it| *it < FIRST_MICRO)
    {
        let kept = |it| (it >= FIRST_MICRO).then_some(it);
        return Arc::new(micros.unary_opt::<_, TimestampMicrosecondType>(kept));
    }
    column
}

/// Writes values as Spark's cast to a string does.
fn texts(column: &ArrayRef) -> Result<ArrayRef, String> {
    let cells = Cells::new(column).map_err(|error| error.message)?;
    let (mut builder, mut text) = (StringBuilder::with_capacity(column.len(), 0), Vec::new());
    for row in 0..column.len() {
        text.clear();
        let is_written = cells.write(row, &mut text);
        builder.append_option(std::str::from_utf8(&text).ok().filter(|_| is_written));
    }
    Ok(Arc::new(builder.finish()))
}

fn refused(name: &str, from: &DataType, of: &Type) -> Fault {
    let hint = match (from, base(of)) {
        (DataType::Timestamp(_, Some(_)), &Type::TIMESTAMP) => {
            "; cast the column to timestamp_ntz, or write $1::timestamptz in the statement"
        }
        (DataType::Timestamp(_, None), &Type::TIMESTAMPTZ) => {
            "; cast the column to timestamp, or write $1::timestamp in the statement"
        }
        _ => "; cast the column, or the placeholder in the statement, as in $1::bigint",
    };
    Fault::refused(format!(
        "argument column `{name}` is `{from}`, which cannot be sent as `{of}` without loss{hint}"
    ))
}

/// Tells whether values of the type are texts of any kind.
fn is_string(of: &Type) -> bool {
    matches!(*of, Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME)
}

/// Chooses how values of `from` are sent as `of`; `None` if they are not.
fn wire(from: &DataType, of: &Type) -> Option<Wire> {
    let of = base(of);
    let wire = of_placeholder(of);
    let is_sent = match from {
        DataType::Null => true,
        DataType::Dictionary(_, values) => return self::wire(values, of),
        DataType::List(field) | DataType::LargeList(field) => {
            let Kind::Array(element) = of.kind() else { return None };
            let element = self::wire(field.data_type(), element);
            return element.filter(|_| !field.data_type().is_nested()).map(|_| Wire::ByText);
        }
        _ if from.is_nested() => false,
        // The server reads them, except bytes: there a backslash is not a backslash.
        _ if from.is_string() => match wire {
            Wire::Text => true,
            Wire::Bytea => false,
            _ => return Some(Wire::ByText),
        },
        _ if is_string(of) => !from.is_binary(),
        _ => is_exact(from, of, wire),
    };
    is_sent.then_some(wire)
}

/// Tells whether a value that is not a text may be the same value of another type.
fn is_exact(from: &DataType, of: &Type, wire: Wire) -> bool {
    let is_number = from.is_integer() || from.is_floating() || from.is_decimal();
    match wire {
        Wire::Bool => *from == DataType::Boolean,
        Wire::Int2 | Wire::Int4 | Wire::Int8 => from.is_integer() || from.is_decimal(),
        Wire::Float4 | Wire::Float8 => is_number,
        Wire::Bytea => from.is_binary(),
        Wire::Date => matches!(from, DataType::Date32),
        Wire::Timestamp => match from {
            DataType::Timestamp(_, zone) => zone.is_some() == (*of == Type::TIMESTAMPTZ),
            DataType::Date32 => *of == Type::TIMESTAMP,
            _ => false,
        },
        Wire::Time => matches!(from, DataType::Time32(_) | DataType::Time64(_)),
        Wire::Interval => matches!(from, DataType::Duration(_)),
        Wire::ByText if *of == Type::NUMERIC => is_number,
        Wire::ByText if *of == Type::OID => from.is_integer(),
        Wire::Text | Wire::Numeric | Wire::Uuid | Wire::Jsonb | Wire::ByText => false,
    }
}

/// Returns how arguments travel: some types only as text.
fn of_placeholder(of: &Type) -> Wire {
    match *of {
        Type::BPCHAR | Type::NAME | Type::JSON => Wire::ByText,
        _ => match Wire::of(of) {
            Wire::Numeric | Wire::Uuid | Wire::Jsonb => Wire::ByText,
            wire => wire,
        },
    }
}
