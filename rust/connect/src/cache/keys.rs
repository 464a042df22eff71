// SPDX-License-Identifier: Apache-2.0
//! The keys of a burst of calls, encoded column by column.

use arrow::array::ArrayRef;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};

use crate::function::{Call, Calls};
use crate::native::StartError;
use crate::template::column_index;

/// Encodes the input columns that a result depends on.
#[derive(Debug)]
pub(super) struct CacheKeys {
    columns: Vec<usize>,
    converter: RowConverter,
}

/// The keys of a burst.
pub(super) struct EncodedKeys {
    /// For each batch of the burst, the position of its first encoded row, and the rows.
    batches: Vec<(u32, Rows)>,
}

impl CacheKeys {
    /// Looks the columns `names` up in `schema`.
    pub(super) fn new(schema: &Schema, names: &[String]) -> Result<Self, StartError> {
        let columns = names
            .iter()
            .map(|name| column_index(schema, name, "cache"))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            converter: converter(columns.iter().map(|&index| schema.field(index)))?,
            columns,
        })
    }

    /// Encodes the keys of the rows between the first and the last call of each batch.
    pub(super) fn encode(&self, calls: &Calls) -> Result<EncodedKeys, ArrowError> {
        let mut ranges = vec![(u32::MAX, 0); calls.batches.len()];
        for call in &calls.calls {
            let (first, last) = &mut ranges[call.batch as usize];
            (*first, *last) = ((*first).min(call.row), (*last).max(call.row));
        }
        let encode = |(batch, (first, last)): (&_, (u32, u32))| {
            let batch: &std::sync::Arc<sparkawait_arrow::InputBatch> = batch;
            let length = (last + 1).saturating_sub(first) as usize;
            let offset = if length == 0 { 0 } else { first as usize };
            let columns: Vec<ArrayRef> = self
                .columns
                .iter()
                .map(|&index| batch.batch.column(index).slice(offset, length))
                .collect();
            Ok((first, self.converter.convert_columns(&columns)?))
        };
        let batches = calls.batches.iter().zip(ranges).map(encode);
        Ok(EncodedKeys { batches: batches.collect::<Result<_, ArrowError>>()? })
    }
}

impl EncodedKeys {
    /// Returns the key of a call's row.
    #[inline]
    pub(super) fn key(&self, call: &Call) -> &[u8] {
        let (first, rows) = &self.batches[call.batch as usize];
        rows.row((call.row - first) as usize).data()
    }
}

/// Makes the converter of these columns into rows.
pub(super) fn converter<'a>(
    fields: impl Iterator<Item = &'a arrow::datatypes::Field>,
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
