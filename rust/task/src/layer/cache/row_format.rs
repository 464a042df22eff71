// SPDX-License-Identifier: Apache-2.0
//! Columns in Arrow's row format, which keys and results are kept in.

use arrow::datatypes::Field;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};

use crate::error::{StartError, TaskError};

/// Makes the converter of these columns into rows.
pub(super) fn converter<'a>(
    fields: impl Iterator<Item = &'a Field>,
) -> Result<RowConverter, StartError> {
    let mut sort_fields = Vec::new();
    for field in fields {
        let sort_field = SortField::new(field.data_type().clone());
        if !RowConverter::supports_fields(std::slice::from_ref(&sort_field)) {
            return Err(StartError::option(format!(
                "`cache`: column `{}` of type `{}` cannot be kept in a cache",
                field.name(),
                field.data_type()
            )));
        }
        sort_fields.push(sort_field);
    }
    RowConverter::new(sort_fields)
        .map_err(|error| StartError::option(format!("`cache`: columns cannot be kept: {error}")))
}

/// Describes what the converter said of results that it was made for.
pub(super) fn not_kept(error: &ArrowError) -> TaskError {
    TaskError::Internal(format!("results cannot be kept in the cache: {error}"))
}
