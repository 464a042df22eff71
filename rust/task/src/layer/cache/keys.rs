// SPDX-License-Identifier: Apache-2.0
//! The keys of a burst of calls, encoded column by column.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Field, Schema};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows};
use sparkawait_arrow::InputBatch;
use sparkawait_arrow::key_values::{is_key_type, key_type, normalized};

use super::row_format::converter;
use crate::error::StartError;
use crate::function::{Call, Calls};
use crate::native::column_index;

/// Rows in a range, for each call of the burst, from which on those that are called for are encoded
/// alone.
const WORTH_PICKING: usize = 4;

/// Encodes the input columns that a result depends on.
#[derive(Debug)]
pub(super) struct CacheKeys {
    columns: Vec<usize>,
    converter: RowConverter,
}

/// The keys of a burst, batch by batch.
pub(super) struct EncodedKeys {
    batches: Vec<BatchKeys>,
}

/// The keys of the calls for rows of one batch.
struct BatchKeys {
    rows: Rows,
    /// Position of the first encoded row; those behind it follow.
    first: u32,
    /// Else the positions of the encoded rows, ascending: of a few that lie far apart, such as two
    /// that are tried again.
    picked: Vec<u32>,
}

impl CacheKeys {
    /// Looks the columns `names` up in `schema`, which has the hidden ones, too.
    pub(super) fn new(schema: &Schema, names: &[String]) -> Result<Self, StartError> {
        let columns = names
            .iter()
            .map(|name| column_index(schema, name, "cache"))
            .collect::<Result<Vec<_>, _>>()?;
        let wrong = columns.iter().find(|&&it| !is_key_type(schema.field(it).data_type()));
        if let Some(&index) = wrong {
            let field = schema.field(index);
            return Err(StartError::option(format!(
                "`cache` names column `{}` of type `{}`, whose values cannot be compared",
                field.name(),
                field.data_type()
            )));
        }
        let types = columns.iter().map(|&index| {
            let field = schema.field(index);
            field.clone().with_data_type(key_type(field.data_type()))
        });
        let types: Vec<Field> = types.collect();
        Ok(Self { converter: converter(types.iter())?, columns })
    }

    /// Encodes the keys of the rows that are called for.
    pub(super) fn encode(&self, calls: &Calls) -> Result<EncodedKeys, ArrowError> {
        let mut ranges = vec![(u32::MAX, 0); calls.batches.len()];
        for call in &calls.calls {
            let (first, last) = &mut ranges[call.batch as usize];
            (*first, *last) = ((*first).min(call.row), (*last).max(call.row));
        }
        let worth_picking = calls.calls.len() * WORTH_PICKING;
        let mut batches = Vec::with_capacity(ranges.len());
        for (number, (batch, (first, last))) in calls.batches.iter().zip(ranges).enumerate() {
            let length = (last + 1).saturating_sub(first) as usize;
            batches.push(if length > worth_picking {
                let called = calls.calls.iter().filter(|it| it.batch as usize == number);
                self.pick(batch, called.map(|it| it.row).collect())?
            } else {
                let offset = if length == 0 { 0 } else { first as usize };
                let columns = self.columns.iter().map(|&index| batch.column(index));
                let slices = columns.map(|column| Ok(column.slice(offset, length)));
                BatchKeys { rows: self.rows(slices)?, first, picked: Vec::new() }
            });
        }
        Ok(EncodedKeys { batches })
    }

    fn pick(
        &self,
        batch: &Arc<InputBatch>,
        mut numbers: Vec<u32>,
    ) -> Result<BatchKeys, ArrowError> {
        numbers.sort_unstable();
        numbers.dedup();
        let columns = self.columns.iter().map(|&index| batch.column(index));
        let picked = UInt32Array::from_iter_values(numbers.iter().copied());
        let rows = self.rows(columns.map(|column| take(column, &picked, None)))?;
        Ok(BatchKeys { rows, first: 0, picked: numbers })
    }

    fn rows(
        &self,
        columns: impl Iterator<Item = Result<ArrayRef, ArrowError>>,
    ) -> Result<Rows, ArrowError> {
        let columns = columns.map(|column| normalized(&column?)).collect::<Result<Vec<_>, _>>()?;
        self.converter.convert_columns(&columns)
    }
}

impl EncodedKeys {
    /// Returns the key of the row of a call of the burst.
    #[inline]
    pub(super) fn key(&self, call: &Call) -> &[u8] {
        let BatchKeys { rows, first, picked } = &self.batches[call.batch as usize];
        let index = if picked.is_empty() {
            (call.row - first) as usize
        } else {
            // It is one of the calls that were encoded.
            picked.binary_search(&call.row).unwrap_or_default()
        };
        rows.row(index).data()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, RecordBatch};
    use sparkawait_arrow::InputRows;
    use sparkawait_core::operator::AttemptId;
    use sparkawait_core::queue::EntryId;

    use super::*;

    fn calls(column: ArrayRef, rows: &[u32]) -> Calls {
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let mut input = InputRows::new(batch.schema());
        let accepted = input.accept(batch).unwrap();
        let batch = Arc::clone(input.batch(accepted.batch()));
        let attempt = AttemptId { entry: EntryId::from_u64(0), attempt: 1 };
        let calls = rows.iter().map(|&row| Call { attempt, batch: 0, row }).collect();
        Calls { batches: vec![batch], calls }
    }

    fn encode(calls: &Calls) -> EncodedKeys {
        let schema = calls.batches[0].batch.schema();
        CacheKeys::new(&schema, &["a".to_owned()]).unwrap().encode(calls).unwrap()
    }

    #[test]
    fn rows_far_apart_are_encoded_alone_and_have_the_keys_that_they_have_together() {
        let numbers = || Arc::new(Int64Array::from_iter_values(0..8000));
        let rows: Vec<u32> = (0..8000).collect();
        let all = calls(numbers(), &rows);
        let few = calls(numbers(), &[7999, 3, 7999]);

        let (together, alone) = (encode(&all), encode(&few));

        assert_eq!(together.batches[0].rows.num_rows(), 8000);
        assert_eq!(alone.batches[0].rows.num_rows(), 2);
        for call in &few.calls {
            assert_eq!(alone.key(call), together.key(call));
        }
    }

    #[test]
    fn equal_floats_have_one_key_however_they_are_stored() {
        let nan = f64::from_bits(0xfff8_0000_0000_0001);
        let calls =
            calls(Arc::new(Float64Array::from(vec![-0.0, 0.0, f64::NAN, nan])), &[0, 1, 2, 3]);

        let keys = encode(&calls);

        let keys: Vec<_> = calls.calls.iter().map(|call| keys.key(call)).collect();
        assert_eq!((keys[0], keys[2]), (keys[1], keys[3]));
        assert_ne!(keys[0], keys[2]);
    }
}
