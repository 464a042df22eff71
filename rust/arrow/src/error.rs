// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with a batch, a schema or a column name.

use std::fmt;

use arrow::{datatypes::DataType, error::ArrowError};

/// The side of the operator that a column belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Columns of the batches that come in.
    Input,
    /// Columns that the function returns.
    Result,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Result => "result",
        })
    }
}

/// Why a batch was refused or could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A batch has another number of columns than its declared schema.
    #[error("{side} has {got} columns, the declared schema has {expected}")]
    ColumnCount {
        /// Where the batch came from.
        side: Side,
        /// Columns of the declared schema.
        expected: usize,
        /// Columns of the batch.
        got: usize,
    },
    /// An input column has another name than the declared schema gives it.
    #[error(
        "{side} column {position}: the declared schema says `{expected}`, the batch says `{got}`"
    )]
    ColumnName {
        /// Where the batch came from.
        side: Side,
        /// Counted from 0.
        position: usize,
        /// Name in the declared schema.
        expected: String,
        /// Name in the batch.
        got: String,
    },
    /// A declared column is not in the batch.
    #[error("{side} column `{column}` is declared, but the batch does not have it")]
    MissingColumn {
        /// Where the batch came from.
        side: Side,
        /// The declared name.
        column: String,
    },
    /// A column has a type that does not fit the declared one.
    #[error(
        "{side} column `{column}`: the declared schema says `{expected}`, the batch has `{got}`"
    )]
    ColumnType {
        /// Where the batch came from.
        side: Side,
        /// Name of the column.
        column: String,
        /// Type in the declared schema.
        expected: DataType,
        /// Type in the batch.
        got: DataType,
    },
    /// A column that is declared without nulls has one.
    #[error("{side} column `{column}` is declared without nulls, but has {count}")]
    UnexpectedNull {
        /// Where the batch came from.
        side: Side,
        /// Name of the column.
        column: String,
        /// Nulls in the batch.
        count: usize,
    },
    /// A value does not fit the declared type.
    #[error("{side} column `{column}`: a value of type `{got}` does not fit `{expected}`")]
    Cast {
        /// Where the batch came from.
        side: Side,
        /// Name of the column.
        column: String,
        /// Type in the declared schema.
        expected: DataType,
        /// Type in the batch.
        got: DataType,
        /// What the cast kernel said; may quote the value.
        #[source]
        source: ArrowError,
    },
    /// A batch has more rows than a row reference can address.
    #[error("a batch may have at most {} rows, got {rows}", u32::MAX)]
    TooManyRows {
        /// Rows of the batch.
        rows: usize,
    },
    /// A key or event-time column is not in the input.
    #[error("column `{column}` is not in the input; it has {available}")]
    UnknownColumn {
        /// The name asked for.
        column: String,
        /// The names that exist, quoted and separated by commas.
        available: String,
    },
    /// A key or event-time column's name is used by several input columns.
    #[error("column `{column}` is ambiguous: {count} input columns have this name")]
    AmbiguousColumn {
        /// The name asked for.
        column: String,
        /// How many columns have it.
        count: usize,
    },
    /// Key-ordered mode was asked for without a key.
    #[error("key must name at least one column")]
    NoKeyColumns,
    /// Values of this type cannot be a key.
    #[error("column `{column}` of type `{data_type}` cannot be a key")]
    KeyType {
        /// Name of the column.
        column: String,
        /// Its type.
        data_type: DataType,
    },
    /// Rows with values of this type have no key of their content.
    #[error("column `{column}` has or contains the type `{data_type}`, and rows of it have no key")]
    ContentType {
        /// Name of the column.
        column: String,
        /// The type without an encoding.
        data_type: DataType,
    },
    /// Values of this type are not a point in time.
    #[error("column `{column}` of type `{data_type}` is not a timestamp, date or integer")]
    EventTimeType {
        /// Name of the column.
        column: String,
        /// Its type.
        data_type: DataType,
    },
    /// An input column and a result column have the same name.
    #[error("column `{column}` is in the input and in the result; rename one or replace the input")]
    NameClash {
        /// The name.
        column: String,
    },
    /// Two result columns have the same name.
    #[error("result column `{column}` is declared twice")]
    DuplicateResult {
        /// The name.
        column: String,
    },
    /// A column has the name of one that tells what happened to a row.
    #[error("{side} column `{column}` has the name of the column that {tells}")]
    ReservedName {
        /// Where the column came from.
        side: Side,
        /// The name.
        column: String,
        /// What that column is for.
        tells: &'static str,
    },
    /// An Arrow kernel failed, for instance because strings outgrew 32-bit offsets.
    #[error("an output batch of {rows} rows could not be built")]
    Kernel {
        /// Rows of the batch.
        rows: usize,
        /// What the kernel said.
        #[source]
        source: ArrowError,
    },
    /// Key values could not be encoded.
    #[error("the key columns could not be encoded")]
    KeyEncoding(#[source] ArrowError),
}

impl Error {
    /// The side that is at fault, where it is one of them.
    pub fn side(&self) -> Option<Side> {
        match self {
            Self::ColumnCount { side, .. }
            | Self::ColumnName { side, .. }
            | Self::MissingColumn { side, .. }
            | Self::ColumnType { side, .. }
            | Self::UnexpectedNull { side, .. }
            | Self::Cast { side, .. } => Some(*side),
            Self::DuplicateResult { .. } => Some(Side::Result),
            _ => None,
        }
    }
}
