// SPDX-License-Identifier: Apache-2.0
//! Rows that are put together, so that each of them does not keep a whole batch.
//!
//! ```text
//!  batch A  . . 2 . . . . .
//!  batch B  . . . . . 5 . .   ─►  batch D  2 5 1     A, B and C are let go
//!  batch C  . 1 . . . . . .
//! ```

use std::collections::HashMap;
use std::sync::OnceLock;

use arrow::{
    array::{Array, RecordBatch, RecordBatchOptions},
    compute::interleave,
    error::ArrowError,
};

use super::{InputBatch, InputRows, Ordinals, RowRef};
use crate::{error::Error, key_columns::Keys, row_bytes::bytes_of_rows};

/// Bytes of rows that are put together into one batch: so few that one of them keeps little.
const TOGETHER_BYTES: usize = 1 << 20;

impl InputRows {
    /// Whether half of what is held is in batches that need at most a quarter of their rows, and
    /// they are others, or have much fewer rows, than at the last look.
    pub fn is_sparse(&self) -> bool {
        let (sparse, last) = (self.held.sparse(), self.left_alone);
        sparse.rows > 0
            && sparse.bytes >= self.held.bytes() / 2
            && (sparse.bytes != last.bytes || sparse.rows <= last.rows - last.rows.div_ceil(8))
    }

    /// Copies rows out of batches that need few of theirs, and lets go of these batches.
    ///
    /// `rows` are those that may have another place from now on, in any order; they get it. A batch
    /// stays if it has other rows that are needed.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] if they cannot be copied.
    pub fn compact<'a>(&mut self, rows: impl Iterator<Item = &'a mut RowRef>) -> Result<(), Error> {
        // Texts that are not UTF-8 are few, as are rows that are not called: their batches stay.
        let is_plain = |it: &InputBatch| it.invalid_texts.is_none() && it.refused.get().is_none();
        let is_movable = |row: &RowRef| {
            self.held.few_rows(row.batch).is_some() && is_plain(self.batch(row.batch))
        };
        let mut rows: Vec<&mut RowRef> = rows.filter(|row| is_movable(row)).collect();
        let mut found: HashMap<u32, u32> = HashMap::new();
        for row in &rows {
            *found.entry(row.batch).or_default() += 1;
        }
        rows.retain(|row| self.held.few_rows(row.batch) == found.get(&row.batch).copied());
        rows.sort_unstable_by_key(|row| self.ordinal(**row));
        while !rows.is_empty() {
            let mut bytes = 0;
            let fitting = rows.iter().take_while(|row| {
                bytes += bytes_of_rows(&self.batch(row.batch).batch, row.row as usize, 1);
                bytes <= TOGETHER_BYTES
            });
            let behind = rows.split_off(fitting.count().max(1));
            self.put_together(std::mem::replace(&mut rows, behind))?;
        }
        self.left_alone = self.held.sparse();
        Ok(())
    }

    /// Moves `rows` into a batch of their own.
    fn put_together(&mut self, rows: Vec<&mut RowRef>) -> Result<(), Error> {
        let count = rows.len();
        let len = u32::try_from(count).map_err(|_| Error::TooManyRows { rows: count })?;
        let copied = self.copy(&rows).map_err(|source| Error::Kernel { rows: count, source })?;
        let batch = self.hold(copied, len);
        for (position, row) in (0..).zip(rows) {
            self.tally.remove(row.batch, row.row);
            self.held.release(row.batch, 1);
            *row = RowRef { batch, row: position };
        }
        Ok(())
    }

    fn copy(&self, rows: &[&mut RowRef]) -> Result<InputBatch, ArrowError> {
        let mut sources: Vec<&InputBatch> = Vec::new();
        let mut positions: HashMap<u32, usize> = HashMap::new();
        let places = rows.iter().map(|row| {
            let position = *positions.entry(row.batch).or_insert_with(|| {
                sources.push(self.batch(row.batch));
                sources.len() - 1
            });
            (position, row.row as usize)
        });
        let places: Vec<(usize, usize)> = places.collect();
        let gather = |of: &dyn Fn(&InputBatch) -> &RecordBatch| {
            let column = |index: usize| {
                let values: Vec<&dyn Array> =
                    sources.iter().map(|source| of(source).column(index).as_ref()).collect();
                interleave(&values, &places)
            };
            let schema = of(sources[0]).schema();
            let columns = (0..schema.fields().len()).map(column).collect::<Result<_, _>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
            RecordBatch::try_new_with_options(schema, columns, &options)
        };
        let batch = gather(&|source| &source.batch)?;
        let hidden = gather(&|source| &source.hidden)?;
        let channel = |(source, row): &(usize, usize)| sources[*source].channels[*row];
        let channels = if sources[0].channels.is_empty() {
            Keys::default()
        } else {
            places.iter().map(channel).collect()
        };
        let ordinals = rows.iter().map(|row| self.ordinal(**row)).collect();
        let ordinals = Ordinals::Each(ordinals);
        let restarts = sources.iter().map(|source| source.restarts).max().unwrap_or_default();
        let (invalid_texts, refused) = (None, OnceLock::new());
        Ok(InputBatch { batch, hidden, invalid_texts, refused, channels, ordinals, restarts })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, StringArray, record_batch};
    use arrow::datatypes::Int64Type;
    use sparkawait_core::Key;

    use super::*;

    /// Batches of 100 rows that are numbered, of a hundred bytes each and more; each has two
    /// channels, whose names are hidden.
    fn filled(batches: i64) -> (InputRows, Vec<RowRef>) {
        let long = "x".repeat(100);
        let batch = |first: i64| {
            let numbers: Vec<i64> = (first * 100..(first + 1) * 100).collect();
            record_batch!(("x", Int64, numbers), ("long", Utf8, vec![long.as_str(); 100])).unwrap()
        };
        let mut input = InputRows::new(batch(0).schema());
        let mut rows = Vec::new();
        for first in 0..batches {
            let names: StringArray = (0..100).map(|row| Some(format!("{}", row % 2))).collect();
            let channels = (0..100).map(|row| Some(Key::new(row % 2))).collect();
            let hidden = RecordBatch::try_from_iter([("name", Arc::new(names) as _)]).unwrap();
            let accepted = input.accept_with(batch(first), hidden, channels, 0);
            rows.extend(accepted.unwrap());
        }
        (input, rows)
    }

    /// Releases all rows but those at `kept`.
    fn keep(input: &mut InputRows, rows: &[RowRef], kept: &[usize]) -> Vec<RowRef> {
        let is_kept = |index: &usize| kept.contains(index);
        for index in (0..rows.len()).filter(|index| !is_kept(index)) {
            input.release(rows[index].batch, 1);
        }
        kept.iter().map(|index| rows[*index]).collect()
    }

    fn number(input: &InputRows, row: RowRef) -> i64 {
        let batch = &input.batch(row.batch).batch;
        batch.column(0).as_primitive::<Int64Type>().value(row.row as usize)
    }

    #[test]
    fn a_row_of_each_batch_keeps_none_of_them() {
        let (mut input, rows) = filled(50);
        let before = input.held_bytes();
        let places: Vec<usize> = (0..50).rev().map(|batch| batch * 100 + 7).collect();
        let mut held = keep(&mut input, &rows, &places);
        assert_eq!(input.held_bytes(), before, "whole batches");
        assert!(input.is_sparse());

        input.compact(held.iter_mut()).unwrap();

        assert_eq!((input.held_batches(), input.held_bytes()), (1, before / 100));
        for (row, place) in held.iter().zip(places) {
            let batch = input.batch(row.batch);
            assert_eq!(number(&input, *row), i64::try_from(place).unwrap());
            assert_eq!(input.ordinal(*row), place as u64);
            assert_eq!(batch.channels[row.row as usize], Some(Key::new(1)));
            assert_eq!(batch.hidden.column(0).as_binary::<i32>().value(row.row as usize), b"1");
        }
        for row in held {
            input.release(row.batch, 1);
        }
        assert_eq!((input.held_batches(), input.held_bytes()), (0, 0));
    }

    #[test]
    fn a_batch_of_which_others_are_needed_too_stays_and_is_not_looked_at_again() {
        let (mut input, rows) = filled(2);
        let mut held = keep(&mut input, &rows, &[3, 4, 5, 103]);
        let elsewhere = held.remove(0);

        input.compact(held.iter_mut()).unwrap();

        assert_eq!(held[..2], [rows[4], rows[5]]);
        assert_eq!((number(&input, elsewhere), number(&input, held[2])), (3, 103));
        assert_eq!(input.held_batches(), 2);
        assert!(!input.is_sparse(), "it is as it was");
        input.release(elsewhere.batch, 1);
        assert!(input.is_sparse(), "it has fewer rows now");
        input.compact(held.iter_mut()).unwrap();
        assert_eq!(held.iter().map(|row| number(&input, *row)).collect::<Vec<_>>(), [4, 5, 103]);
        assert!(!input.is_sparse());
    }

    #[test]
    fn batches_of_which_many_rows_are_needed_stay() {
        let (mut input, rows) = filled(4);
        let mut held = keep(&mut input, &rows, &(0..130).collect::<Vec<_>>());

        assert!(!input.is_sparse());
        input.compact(held.iter_mut()).unwrap();

        assert_eq!(held, rows[..130]);
    }
}
