// SPDX-License-Identifier: Apache-2.0
//! The final failure of a row, and the column that captures it.

use std::{borrow::Cow, sync::Arc};

use arrow::{
    array::{
        ArrayRef, Int32Builder, NullBufferBuilder, StringBuilder, StructArray, new_null_array,
    },
    datatypes::{DataType, Field, Fields},
};

/// Why a row has no results.
#[derive(Clone, PartialEq, Eq)]
pub struct RowFailure {
    /// The stable name of the kind of error.
    pub kind: Cow<'static, str>,
    /// What a person reads.
    pub message: String,
    /// Attempts made, the failed one included.
    pub attempts: u32,
    /// What the service answered last, as a status of HTTP.
    pub status: Option<u16>,
}

impl RowFailure {
    /// The bytes that it takes in its column.
    pub(crate) fn bytes(&self) -> usize {
        // Of a text, where it ends; the number of attempts, and the status.
        const FIXED: usize = 4 * size_of::<i32>();
        self.kind.len() + self.message.len() + FIXED
    }
}

// Shows nothing of the message, which may quote a value.
sparkawait_core::opaque_debug!(RowFailure, kind: kind, attempts: attempts);

fn fields() -> Fields {
    Fields::from(vec![
        Field::new("kind", DataType::Utf8, true),
        Field::new("message", DataType::Utf8, true),
        Field::new("attempts", DataType::Int32, true),
        Field::new("status", DataType::Int32, true),
    ])
}

/// The type of the column that captures failures.
pub(crate) fn data_type() -> DataType {
    DataType::Struct(fields())
}

/// Builds the column of `rows` rows that holds `failures` and is null elsewhere.
///
/// `failures` are pairs of a row and its failure, by ascending row.
pub(crate) fn column(rows: usize, failures: &[(usize, RowFailure)]) -> ArrayRef {
    if failures.is_empty() {
        return new_null_array(&data_type(), rows);
    }
    let (mut kinds, mut messages) = (StringBuilder::new(), StringBuilder::new());
    let (mut attempts, mut statuses) = (Int32Builder::new(), Int32Builder::new());
    let mut valid = NullBufferBuilder::new(rows);
    let mut filled = 0;
    let mut fill = |gap: usize, failure: Option<&RowFailure>| {
        kinds.append_nulls(gap);
        messages.append_nulls(gap);
        attempts.append_nulls(gap);
        statuses.append_nulls(gap);
        valid.append_n_nulls(gap);
        if let Some(failure) = failure {
            kinds.append_value(&failure.kind);
            messages.append_value(&failure.message);
            attempts.append_value(i32::try_from(failure.attempts).unwrap_or(i32::MAX));
            statuses.append_option(failure.status.map(i32::from));
            valid.append_non_null();
        }
    };
    for (row, failure) in failures {
        fill(row - filled, Some(failure));
        filled = row + 1;
    }
    fill(rows - filled, None);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(kinds.finish()),
        Arc::new(messages.finish()),
        Arc::new(attempts.finish()),
        Arc::new(statuses.finish()),
    ];
    Arc::new(StructArray::new(fields(), columns, valid.finish()))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn column_is_null_but_for_the_failed_rows() {
        let failure = |attempts, status| {
            let (kind, message) = ("k".into(), "m".into());
            RowFailure { kind, message, attempts, status }
        };

        let column = column(5, &[(1, failure(2, Some(401))), (3, failure(u32::MAX, None))]);

        assert_eq!(column.data_type(), &data_type());
        let valid: Vec<_> = (0..5).map(|row| column.is_valid(row)).collect();
        assert_eq!(valid, [false, true, false, true, false]);
        let numbers = |of: usize| column.as_struct().column(of).as_primitive::<Int32Type>();
        assert_eq!((numbers(2).value(1), numbers(2).value(3)), (2, i32::MAX));
        let statuses: Vec<_> = numbers(3).iter().collect();
        assert_eq!(statuses, [None, Some(401), None, None, None]);
    }

    #[test]
    fn column_without_failures_is_all_null() {
        assert_eq!(column(3, &[]).null_count(), 3);
    }
}
