// SPDX-License-Identifier: Apache-2.0
//! Which types of PostgreSQL stand for which types of Arrow.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use tokio_postgres::Column;
use tokio_postgres::types::{Kind, Type};

/// How values of a type travel in PostgreSQL's binary format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    /// The bytes of a text.
    Text,
    Bytea,
    Date,
    Timestamp,
    Time,
    Interval,
    Uuid,
    Jsonb,
    /// As text that the server makes and reads.
    ByText,
}

impl Wire {
    /// Returns how values of `of` travel.
    pub(crate) fn of(of: &Type) -> Self {
        match *of {
            Type::BOOL => Self::Bool,
            Type::INT2 => Self::Int2,
            Type::INT4 => Self::Int4,
            Type::INT8 => Self::Int8,
            Type::FLOAT4 => Self::Float4,
            Type::FLOAT8 => Self::Float8,
            Type::NUMERIC => Self::Numeric,
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::JSON => Self::Text,
            Type::BYTEA => Self::Bytea,
            Type::DATE => Self::Date,
            Type::TIMESTAMP | Type::TIMESTAMPTZ => Self::Timestamp,
            Type::TIME => Self::Time,
            Type::INTERVAL => Self::Interval,
            Type::UUID => Self::Uuid,
            Type::JSONB => Self::Jsonb,
            _ => Self::ByText,
        }
    }

    /// Returns the type of Arrow with the same values.
    pub(crate) fn natural(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int2 => DataType::Int16,
            Self::Int4 => DataType::Int32,
            Self::Int8 => DataType::Int64,
            Self::Float4 => DataType::Float32,
            Self::Float8 => DataType::Float64,
            Self::Bytea => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Interval => DataType::Duration(TimeUnit::Microsecond),
            // A number has more digits than any type of Arrow.
            Self::Numeric | Self::Text | Self::Uuid | Self::Jsonb | Self::ByText => DataType::Utf8,
        }
    }
}

/// Returns the schema of a statement that nobody declared one for.
pub(crate) fn schema_of(columns: &[Column]) -> Schema {
    let fields = columns.iter().map(|column| {
        Field::new(column.name(), arrow_type(column.type_(), column.type_modifier()), true)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

fn arrow_type(of: &Type, modifier: i32) -> DataType {
    match *of {
        Type::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC"))),
        Type::OID => DataType::Int64,
        Type::NUMERIC => decimal(modifier),
        // Not every Spark has times of day, and no type of Arrow has months beside days.
        Type::TIME | Type::INTERVAL => DataType::Utf8,
        _ => match of.kind() {
            Kind::Array(element) => {
                let element = arrow_type(element, modifier);
                DataType::List(Arc::new(Field::new("element", element, true)))
            }
            Kind::Domain(base) => arrow_type(base, modifier),
            _ => Wire::of(of).natural(),
        },
    }
}

/// Reads precision and scale out of the modifier of `numeric(p, s)`.
fn decimal(modifier: i32) -> DataType {
    let packed = modifier - 4;
    let (precision, scale) = (packed >> 16, packed & 0x7ff);
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(precision @ 1..=38), Ok(scale))
            if modifier >= 4 && scale.unsigned_abs() <= precision =>
        {
            DataType::Decimal128(precision, scale)
        }
        _ => DataType::Decimal128(38, 18),
    }
}

/// Returns the type that a domain restricts, or the type itself.
pub(crate) fn base(of: &Type) -> &Type {
    match of.kind() {
        Kind::Domain(base_type) => base(base_type),
        _ => of,
    }
}

/// Returns the name of a type as a statement may write it.
pub(crate) fn sql_name(of: &Type) -> String {
    format!("{}.{}", quote(of.schema()), quote(of.name()))
}

/// Returns a name in double quotes.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modifier_of_a_numeric_gives_its_precision_and_scale() {
        assert_eq!(decimal(((10 << 16) | 2) + 4), DataType::Decimal128(10, 2));
        assert_eq!(decimal(-1), DataType::Decimal128(38, 18));
        assert_eq!(decimal((1000 << 16) + 4), DataType::Decimal128(38, 18));
    }

    #[test]
    fn names_of_types_are_quoted() {
        assert_eq!(sql_name(&Type::INT4), r#""pg_catalog"."int4""#);
        assert_eq!(quote("a\"b"), r#""a""b""#);
    }
}
