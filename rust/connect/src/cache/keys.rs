// SPDX-License-Identifier: Apache-2.0
//! The keys of a burst of calls, encoded column by column.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};
use sparkawait_arrow::InputBatch;
use sparkawait_arrow::key_values::{is_key_type, normalized};

use crate::function::{Call, Calls};
use crate::native::StartError;
use crate::template::column_index;

/// Rows in a range, for each that is called for, from which on those are encoded alone.
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
enum BatchKeys {
    /// Of all rows from one on.
    Range { first: u32, rows: Rows },
    /// Of a few rows, ascending, that lie far apart: such as two that are tried again.
    Picked { numbers: Vec<u32>, rows: Rows },
}

/// Where the calls for rows of one batch lie.
#[derive(Clone, Copy, Default)]
struct Span {
    /// Position of the first and the last row.
    ends: Option<(u32, u32)>,
    calls: usize,
}

impl Span {
    fn add(&mut self, row: u32) {
        let (first, last) = self.ends.unwrap_or((row, row));
        self.ends = Some((first.min(row), last.max(row)));
        self.calls += 1;
    }

    fn first(self) -> u32 {
        self.ends.map_or(0, |(first, _)| first)
    }

    fn length(self) -> usize {
        self.ends.map_or(0, |(first, last)| (last - first) as usize + 1)
    }

    fn is_scattered(self) -> bool {
        self.length() > self.calls * WORTH_PICKING
    }
}

impl CacheKeys {
    /// Looks the columns `names` up in `schema`.
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
        Ok(Self {
            converter: converter(columns.iter().map(|&index| schema.field(index)))?,
            columns,
        })
    }

    /// Encodes the keys of the rows that are called for.
    pub(super) fn encode(&self, calls: &Calls) -> Result<EncodedKeys, ArrowError> {
        let mut spans = vec![Span::default(); calls.batches.len()];
        for call in &calls.calls {
            spans[call.batch as usize].add(call.row);
        }
        let mut batches = Vec::with_capacity(spans.len());
        for (number, (batch, span)) in calls.batches.iter().zip(&spans).enumerate() {
            batches.push(if span.is_scattered() {
                let called = calls.calls.iter().filter(|it| it.batch as usize == number);
                self.pick(batch, called.map(|it| it.row).collect())?
            } else {
                let (first, length) = (span.first(), span.length());
                let columns = self.columns.iter().map(|&index| batch.batch.column(index));
                let slices = columns.map(|column| Ok(column.slice(first as usize, length)));
                BatchKeys::Range { first, rows: self.rows(slices)? }
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
        let columns = self.columns.iter().map(|&index| batch.batch.column(index));
        let picked = UInt32Array::from_iter_values(numbers.iter().copied());
        let rows = self.rows(columns.map(|column| take(column, &picked, None)))?;
        Ok(BatchKeys::Picked { numbers, rows })
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
        match &self.batches[call.batch as usize] {
            BatchKeys::Range { first, rows } => rows.row((call.row - first) as usize).data(),
            BatchKeys::Picked { numbers, rows } => {
                // It is one of the calls that were encoded.
                let index = numbers.binary_search(&call.row).unwrap_or_default();
                rows.row(index).data()
            }
        }
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

        assert!(
            matches!(&together.batches[0], BatchKeys::Range { rows, .. } if rows.num_rows() == 8000)
        );
        assert!(
            matches!(&alone.batches[0], BatchKeys::Picked { rows, .. } if rows.num_rows() == 2)
        );
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
