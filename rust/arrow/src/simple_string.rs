// SPDX-License-Identifier: Apache-2.0
//! The names that Spark has for types, for messages.

use arrow::datatypes::{DataType, Field, Fields, IntervalUnit, TimeUnit};

/// Returns the name that Spark has for a type, as its `simpleString`; that of Arrow if it has none.
pub fn simple_string(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Null => "void",
        DataType::Boolean => "boolean",
        DataType::Int8 => "tinyint",
        DataType::Int16 => "smallint",
        DataType::Int32 => "int",
        DataType::Int64 => "bigint",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Utf8 | DataType::LargeUtf8 => "string",
        DataType::Binary | DataType::LargeBinary => "binary",
        DataType::Date32 => "date",
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "timestamp",
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp_ntz",
        DataType::Duration(TimeUnit::Microsecond) => "interval day to second",
        DataType::Interval(IntervalUnit::YearMonth) => "interval year to month",
        DataType::Decimal128(precision, scale) => return format!("decimal({precision},{scale})"),
        DataType::List(element) | DataType::LargeList(element) => {
            return format!("array<{}>", simple_string(element.data_type()));
        }
        DataType::Map(entries, _) => return map_name(entries),
        DataType::Struct(fields) => return format!("struct<{}>", members(fields)),
        other => return other.to_string(),
    };
    name.to_owned()
}

fn map_name(entries: &Field) -> String {
    let DataType::Struct(fields) = entries.data_type() else {
        return entries.data_type().to_string();
    };
    let types: Vec<String> = fields.iter().map(|it| simple_string(it.data_type())).collect();
    format!("map<{}>", types.join(","))
}

fn members(fields: &Fields) -> String {
    let named = fields.iter().map(|it| format!("{}:{}", it.name(), simple_string(it.data_type())));
    named.collect::<Vec<String>>().join(",")
}
