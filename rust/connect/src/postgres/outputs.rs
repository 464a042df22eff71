// SPDX-License-Identifier: Apache-2.0
//! How the columns of a statement are asked for, to become those of the schema.
//!
//! ```text
//! v                        in its binary form, which is read without loss
//! v::text                  as the server writes it: for texts, and types of which little is known
//! v::text[]                the same for the elements of an array
//! to_json(v)::text         for what is nested
//! ```
//!
//! A type that cannot become the declared one without loss is refused at once.

use arrow::datatypes::{DataType, Schema};
use tokio_postgres::Column;
use tokio_postgres::types::{Kind, Type};

use crate::postgres::failure::Fault;
use crate::postgres::types::{Wire, base};

/// Name of the statement's rows.
pub(crate) const ROWS: &str = "sparkawait_rows";

/// How the values of a result column travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) wire: Wire,
    /// Whether each is an array of such values.
    pub(crate) is_list: bool,
}

/// How a result column is asked for.
pub(crate) struct Output {
    pub(crate) expression: String,
    pub(crate) form: Form,
    /// Whether the statement's own column will do.
    pub(crate) is_plain: bool,
}

/// What the query asks for instead of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Plain,
    Text,
    Texts,
    /// As the server shows it: its cast to a text says something else.
    Shown,
    ShownTexts,
    Json,
}

/// Chooses how the columns of `schema` are asked for.
pub(crate) fn outputs(columns: &[Column], schema: &Schema) -> Result<Vec<Output>, Fault> {
    let fields = schema.fields().iter().enumerate();
    fields
        .map(|(position, field)| {
            let mut found =
                columns.iter().enumerate().filter(|(_, column)| column.name() == field.name());
            let (Some((index, column)), None) = (found.next(), found.next()) else {
                let names: Vec<&str> = columns.iter().map(Column::name).collect();
                return Err(Fault::permanent(format!(
                    "`schema` has column `{}`, which the statement must return exactly once; it returns: {}",
                    field.name(),
                    names.join(", ")
                )));
            };
            let Some((ask, form)) = ask(column.type_(), field.data_type()) else {
                return Err(refused(field.name(), column.type_(), field.data_type()));
            };
            let value = format!("{ROWS}.c{}", index + 1);
            let expression = match ask {
                Ask::Plain => value,
                Ask::Text => format!("{value}::text"),
                Ask::Texts => format!("{value}::text[]"),
                Ask::Shown => format!("pg_catalog.inet_out({value})::text"),
                Ask::ShownTexts => {
                    format!("pg_catalog.array_out({value})::pg_catalog.text::pg_catalog.text[]")
                }
                Ask::Json => format!("pg_catalog.to_json({value})::text"),
            };
            let is_plain = ask == Ask::Plain && position == index;
            Ok(Output { expression, form, is_plain })
        })
        .collect()
}

fn refused(name: &str, from: &Type, to: &DataType) -> Fault {
    let hint = match (base(from), to) {
        (&Type::TIMESTAMP, DataType::Timestamp(_, Some(_))) => {
            "; declare it `timestamp_ntz`, or name its time zone in the statement, as in `at time zone 'UTC'`"
        }
        (&Type::TIMESTAMPTZ, DataType::Timestamp(_, None)) => {
            "; declare it `timestamp`, or name a time zone in the statement, as in `at time zone 'UTC'`"
        }
        _ if holds_bytes(from, to) => {
            "; in a composite or an array of arrays, change a `bytea` to `encode(.., 'base64')`"
        }
        _ => "; declare another type, or cast it in the statement",
    };
    Fault::refused(format!(
        "`schema` has column `{name}` as `{to}`, and the statement returns `{from}`, which cannot become that without loss{hint}"
    ))
}

/// Chooses how a value of `from` is asked for, to become one of `to`; `None` if it cannot.
fn ask(from: &Type, to: &DataType) -> Option<(Ask, Form)> {
    // The server writes bytes as `bytea_output` says, and JSON has them in base64.
    let is_readable = |(ask, _): &(Ask, Form)| *ask != Ask::Json || !holds_bytes(from, to);
    of_any(from, to).filter(is_readable)
}

/// Tells whether a `bytea` within a value of `from` is to become bytes within one of `to`.
fn holds_bytes(from: &Type, to: &DataType) -> bool {
    let from = base(from);
    match (from.kind(), to) {
        (Kind::Array(of), DataType::List(field)) => {
            // The lists are as deep as the array has dimensions.
            let mut element = field.data_type();
            while let DataType::List(field) = element {
                element = field.data_type();
            }
            holds_bytes(of, element)
        }
        (Kind::Composite(fields), DataType::Struct(wanted)) => wanted.iter().any(|wanted| {
            let named = fields.iter().find(|field| field.name() == wanted.name());
            named.is_some_and(|field| holds_bytes(field.type_(), wanted.data_type()))
        }),
        (Kind::Composite(fields), DataType::Map(entries, _)) => {
            fields.iter().any(|field| holds_bytes(field.type_(), entries.data_type()))
        }
        // Of a row without a name nobody knows what is in it.
        _ => matches!(*from, Type::BYTEA | Type::RECORD) && has_binary(to),
    }
}

fn has_binary(of: &DataType) -> bool {
    match of {
        DataType::List(field) | DataType::Map(field, _) => has_binary(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_binary(field.data_type())),
        of => of.is_binary(),
    }
}

fn of_any(from: &Type, to: &DataType) -> Option<(Ask, Form)> {
    let plain = |wire| (Ask::Plain, Form { wire, is_list: false });
    let by_text = |ask| (ask, Form { wire: Wire::ByText, is_list: false });
    if *to == DataType::Null {
        return None;
    }
    let wire = Wire::of(from);
    match wire {
        // Read as the cast of a string, or as JSON.
        Wire::Text | Wire::Jsonb => return Some(plain(wire)),
        Wire::Uuid if to.is_string() => return Some(plain(wire)),
        _ if to.is_string() && *from == Type::INET => return Some(by_text(Ask::Shown)),
        _ if to.is_string() => return Some(by_text(Ask::Text)),
        _ => {}
    }
    if let Kind::Array(element) = from.kind() {
        let DataType::List(field) = to else { return None };
        // An array of several dimensions is of no other type.
        if matches!(field.data_type(), DataType::List(_)) && !is_json(element) {
            return ask(from, field.data_type()).map(|_| by_text(Ask::Json));
        }
        let (asked, form) = ask(element, field.data_type())?;
        let list = Form { is_list: true, ..form };
        return Some(match asked {
            Ask::Plain if !form.is_list => (Ask::Plain, list),
            Ask::Text => (Ask::Texts, list),
            Ask::Shown => (Ask::ShownTexts, list),
            _ => by_text(Ask::Json),
        });
    }
    if is_exact(from, wire, to) {
        return Some(plain(wire));
    }
    let is_composite = matches!(from.kind(), Kind::Composite(_));
    // Not what looks like another type: a time of day is a timestamp of today in Spark.
    let is_known = matches!(*from, Type::TIMETZ | Type::MONEY);
    match wire {
        Wire::ByText if to.is_nested() => Some(by_text(Ask::Json)),
        Wire::ByText if !is_composite && !is_known => Some(by_text(Ask::Text)),
        _ => None,
    }
}

/// Tells whether values of `from`, in their binary form, may be the same values of `to`.
fn is_exact(from: &Type, wire: Wire, to: &DataType) -> bool {
    match wire {
        Wire::Bool => *to == DataType::Boolean,
        Wire::Int2 | Wire::Int4 | Wire::Int8 => {
            to.is_integer() || to.is_floating() || matches!(to, DataType::Decimal128(..))
        }
        Wire::Float4 | Wire::Float8 => matches!(to, DataType::Float32 | DataType::Float64),
        Wire::Numeric => {
            to.is_integer()
                || matches!(to, DataType::Decimal128(..) | DataType::Float32 | DataType::Float64)
        }
        Wire::Bytea => {
            matches!(to, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
        }
        Wire::Date => matches!(to, DataType::Date32 | DataType::Timestamp(_, None)),
        Wire::Timestamp => match to {
            DataType::Timestamp(_, zone) => zone.is_some() == (*from == Type::TIMESTAMPTZ),
            _ => false,
        },
        Wire::Time => matches!(to, DataType::Time32(_) | DataType::Time64(_)),
        Wire::Interval => matches!(to, DataType::Duration(_)),
        Wire::Text | Wire::Jsonb | Wire::Uuid | Wire::ByText => false,
    }
}

fn is_json(of: &Type) -> bool {
    matches!(*base(of), Type::JSON | Type::JSONB)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::TimeUnit;

    use super::*;

    const NTZ: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

    fn asked(from: &Type, to: &DataType) -> Option<(Ask, Wire, bool)> {
        ask(from, to).map(|(ask, form)| (ask, form.wire, form.is_list))
    }

    fn list(element: DataType) -> DataType {
        DataType::new_list(element, true)
    }

    #[test]
    fn what_has_no_binary_form_here_is_asked_for_as_text_or_json() {
        let of = |from: &Type, to: &DataType| asked(from, to).unwrap();

        assert_eq!(of(&Type::INT4, &DataType::Int64), (Ask::Plain, Wire::Int4, false));
        assert_eq!(of(&Type::INT4, &DataType::Utf8), (Ask::Text, Wire::ByText, false));
        assert_eq!(of(&Type::INTERVAL, &DataType::Utf8), (Ask::Text, Wire::ByText, false));
        assert_eq!(of(&Type::INET, &DataType::Utf8), (Ask::Shown, Wire::ByText, false));
        assert_eq!(of(&Type::OID, &DataType::Int64), (Ask::Text, Wire::ByText, false));
        assert_eq!(of(&Type::JSONB, &list(DataType::Int32)), (Ask::Plain, Wire::Jsonb, false));
        let fields = vec![arrow::datatypes::Field::new("x", DataType::Int32, true)];
        let nested = DataType::Struct(fields.into());
        assert_eq!(of(&Type::RECORD, &nested), (Ask::Json, Wire::ByText, false));
    }

    #[test]
    fn arrays_travel_as_their_elements_do() {
        let of = |from: &Type, to: DataType| asked(from, &list(to)).unwrap();

        assert_eq!(of(&Type::INT4_ARRAY, DataType::Int32), (Ask::Plain, Wire::Int4, true));
        assert_eq!(of(&Type::BYTEA_ARRAY, DataType::Binary), (Ask::Plain, Wire::Bytea, true));
        assert_eq!(of(&Type::INET_ARRAY, DataType::Utf8), (Ask::ShownTexts, Wire::ByText, true));
        assert_eq!(of(&Type::JSONB_ARRAY, DataType::Utf8), (Ask::Plain, Wire::Jsonb, true));
        let lists = list(DataType::Int32);
        assert_eq!(of(&Type::INT4_ARRAY, lists.clone()), (Ask::Json, Wire::ByText, false));
        assert_eq!(of(&Type::JSONB_ARRAY, lists), (Ask::Plain, Wire::Jsonb, true));
        assert_eq!(
            asked(&Type::INT4_ARRAY, &DataType::Utf8),
            Some((Ask::Text, Wire::ByText, false))
        );
    }

    #[test]
    fn what_would_lose_something_is_refused() {
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")));
        for (from, to) in [
            (Type::FLOAT8, DataType::Int32),
            (Type::FLOAT8, DataType::Decimal128(10, 2)),
            (Type::INT8, utc.clone()),
            (Type::INT8, DataType::Date32),
            (Type::TIMESTAMPTZ, NTZ),
            (Type::TIMESTAMPTZ, DataType::Date32),
            (Type::TIMESTAMP, utc.clone()),
            (Type::TIMESTAMP, DataType::Date32),
            (Type::DATE, utc),
            (Type::TIME, NTZ),
            (Type::TIMETZ, NTZ),
            (Type::BOOL, DataType::Int32),
            (Type::BYTEA, DataType::Int32),
            (Type::UUID, DataType::Binary),
            (Type::INT4_ARRAY, DataType::Int32),
            (Type::FLOAT8_ARRAY, list(DataType::Int32)),
            (Type::INT4, list(DataType::Int32)),
            (Type::TEXT, DataType::Null),
        ] {
            assert_eq!(asked(&from, &to), None, "{from} {to}");
        }
    }
}
