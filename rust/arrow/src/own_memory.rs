// SPDX-License-Identifier: Apache-2.0
//! Rows that keep no more memory than they need.

use arrow::{
    array::{Array, ArrayData, RecordBatch, UInt32Array},
    compute::take_record_batch,
};

use crate::{error::Error, row_bytes::bytes_of_rows};

/// What may be kept besides the rows, as a multiple of them, and in bytes.
const MOST_TIMES: usize = 4;
const MOST_BYTES: usize = 64 << 10;

/// Returns the rows of `batch` in memory of their own, if they are a small part of what they keep.
///
/// A batch of few rows may be a slice of a large one, which is kept as a whole. What is copied is
/// at most a quarter of what may be freed.
///
/// # Errors
///
/// [`Error::Kernel`] if they cannot be copied.
pub fn with_own_memory(batch: RecordBatch) -> Result<RecordBatch, Error> {
    let rows = batch.num_rows();
    let kept = kept_bytes(&batch);
    // Most are small, or whole.
    if kept <= MOST_BYTES || kept <= bytes_of_rows(&batch, 0, rows).saturating_mul(MOST_TIMES) {
        return Ok(batch);
    }
    let len = u32::try_from(rows).map_err(|_| Error::TooManyRows { rows })?;
    take_record_batch(&batch, &UInt32Array::from_iter_values(0..len))
        .map_err(|source| Error::Kernel { rows, source })
}

/// Returns the bytes of the buffers that the columns are in, each counted once.
fn kept_bytes(batch: &RecordBatch) -> usize {
    // A few for each column: sorting them costs less than a table of them.
    let mut buffers = Vec::new();
    for column in batch.columns() {
        note_buffers(&column.to_data(), &mut buffers);
    }
    buffers.sort_unstable();
    buffers.dedup_by_key(|it| it.0);
    buffers.iter().map(|it| it.1).sum()
}

fn note_buffers(data: &ArrayData, noted: &mut Vec<(usize, usize)>) {
    let nulls = data.nulls().map(|nulls| nulls.inner().inner());
    for buffer in data.buffers().iter().chain(nulls) {
        // Where the allocation begins; the buffer may be a part of it.
        noted.push((buffer.data_ptr().as_ptr() as usize, buffer.capacity()));
    }
    data.child_data().iter().for_each(|child| note_buffers(child, noted));
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, record_batch};
    use arrow::datatypes::Int64Type;

    use super::*;

    fn large() -> RecordBatch {
        let numbers: Vec<i64> = (0..100_000).collect();
        let texts: Vec<String> = numbers.iter().map(|it| format!("text {it}")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        record_batch!(("x", Int64, numbers), ("y", Utf8, texts)).unwrap()
    }

    #[test]
    fn few_rows_of_a_large_batch_do_not_keep_it() {
        let batch = large();
        let kept = kept_bytes(&batch);
        let slice = batch.slice(500, 3);
        assert_eq!(kept_bytes(&slice), kept);

        let own = with_own_memory(slice.clone()).unwrap();

        assert_eq!(own, slice);
        assert!(kept_bytes(&own) < 1000, "{}", kept_bytes(&own));
        let numbers = batch.column(0).as_primitive::<Int64Type>().values().inner().clone();
        drop((batch, slice));
        assert_eq!(numbers.strong_count(), 1);
    }

    #[test]
    fn what_is_whole_or_small_is_not_copied() {
        let batch = large();
        for rows in [batch.slice(0, 50_000), batch.clone()] {
            let own = with_own_memory(rows.clone()).unwrap();
            assert!(own.column(0).to_data().ptr_eq(&rows.column(0).to_data()));
        }
        let small = with_own_memory(batch.slice(0, 1).slice(0, 1)).unwrap();
        let part = with_own_memory(small.slice(0, 0)).unwrap();
        assert!(part.column(0).to_data().ptr_eq(&small.slice(0, 0).column(0).to_data()));
    }
}
