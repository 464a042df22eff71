// SPDX-License-Identifier: Apache-2.0
//! What one of several functions has put out, until it is joined with what the others have.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::interleave;
use arrow::error::ArrowError;
use sparkawait_arrow::{OnError, bytes_of_rows};
use sparkawait_core::slab::Slab;

use crate::row_config::RowConfig;

/// What comes from one branch.
pub(super) struct Branch {
    /// Columns of its results.
    pub(super) results: usize,
    pub(super) on_error: OnError,
    /// Whether a column behind the outcomes tells of the calls of each row.
    pub(super) has_info: bool,
    chunks: Slab<Chunk>,
    /// Bytes of all chunks.
    pub(super) bytes: usize,
    /// Positions of chunks among those of a reply, by handle; kept for its memory.
    positions: Vec<usize>,
}

/// What a branch has put out at a time.
struct Chunk {
    columns: RecordBatch,
    /// Rows of it that were not joined.
    rows: usize,
    bytes: usize,
}

impl Branch {
    /// Makes one for the operator of `rows`.
    pub(super) fn new(rows: &RowConfig) -> Self {
        Self {
            results: rows.results.fields().len(),
            on_error: rows.on_error,
            has_info: rows.info_column.is_some(),
            chunks: Slab::new(),
            bytes: 0,
            positions: Vec::new(),
        }
    }

    /// Holds what was put out, except the slots; returns its handle.
    pub(super) fn hold(&mut self, output: &RecordBatch) -> Result<u32, ArrowError> {
        let outcome = (self.on_error == OnError::Capture).then_some(self.results);
        let info = self.has_info.then_some(self.results + 1);
        let kept: Vec<usize> = (0..self.results).chain(outcome).chain(info).collect();
        let columns = output.project(&kept)?;
        let (rows, bytes) = (columns.num_rows(), bytes_of_rows(&columns, 0, columns.num_rows()));
        self.bytes += bytes;
        Ok(self.chunks.insert(Chunk { columns, rows, bytes }))
    }

    /// Lets go of a row of a chunk.
    pub(super) fn release(&mut self, chunk: u32) {
        let Some(found) = self.chunks.get_mut(chunk) else { return };
        found.rows -= 1;
        if found.rows == 0 {
            self.bytes -= found.bytes;
            self.chunks.remove(chunk);
        }
    }

    /// Appends the columns of these rows, each a chunk and a row of it.
    pub(super) fn gather(
        &mut self,
        rows: impl Iterator<Item = (u32, u32)>,
        columns: &mut Vec<ArrayRef>,
    ) -> Result<(), ArrowError> {
        const UNUSED: usize = usize::MAX;
        self.positions.resize(self.chunks.places(), UNUSED);
        let mut handles: Vec<u32> = Vec::new();
        let mut indices = Vec::with_capacity(rows.size_hint().0);
        for (chunk, row) in rows {
            let position = &mut self.positions[chunk as usize];
            if *position == UNUSED {
                *position = handles.len();
                handles.push(chunk);
            }
            indices.push((*position, row as usize));
        }
        for handle in &handles {
            self.positions[*handle as usize] = UNUSED;
        }
        let sources = handles.iter().filter_map(|it| self.chunks.get(*it));
        let sources: Vec<&RecordBatch> = sources.map(|it| &it.columns).collect();
        if sources.is_empty() {
            return self.no_rows(columns);
        }
        if let [source] = sources.as_slice()
            && let Some(start) = neighbours(indices.iter().map(|(_, row)| *row))
        {
            columns.extend(source.columns().iter().map(|it| it.slice(start, indices.len())));
            return Ok(());
        }
        for index in 0..sources[0].num_columns() {
            let of: Vec<&dyn Array> = sources.iter().map(|it| it.column(index).as_ref()).collect();
            columns.push(interleave(&of, &indices)?);
        }
        Ok(())
    }

    /// Appends columns without rows: there is a chunk of those that are dropped.
    fn no_rows(&self, columns: &mut Vec<ArrayRef>) -> Result<(), ArrowError> {
        let Some((_, chunk)) = self.chunks.iter().next() else {
            return Err(ArrowError::ComputeError("rows of no chunk were joined".to_owned()));
        };
        columns.extend(chunk.columns.columns().iter().map(|it| it.slice(0, 0)));
        Ok(())
    }
}

/// Returns the first of some rows, if each is the one behind the one before it.
pub(super) fn neighbours(mut rows: impl Iterator<Item = usize>) -> Option<usize> {
    let first = rows.next()?;
    rows.enumerate().all(|(index, row)| row == first + index + 1).then_some(first)
}
