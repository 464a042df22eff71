// SPDX-License-Identifier: Apache-2.0
//! Output columns built from runs of rows with Arrow's kernels.
//!
//! The work per row is done once per window, not once per column. Belongs to
//! the task thread.

use std::fmt;

use arrow::{
    array::{Array, ArrayRef, RecordBatch, new_null_array},
    compute::{concat, interleave, interleave_record_batch},
    datatypes::DataType,
    error::ArrowError,
};

use crate::input_rows::InputBatch;
use crate::run_list::{Run, Window};

/// What a column costs, in nanoseconds, by `concat` of pieces or by `interleave` of single rows
/// (bench `arrow`, group `kernels`). Only the proportions matter: a wrong choice costs time, never
/// correctness. With one source `concat` wins from a mean run of about 30 rows on.
mod cost {
    /// `concat`: a piece that must be sliced off its source, or made of nulls.
    pub(super) const SLICED_PIECE: usize = 85;
    /// `concat`: a piece that is a whole source, as the results of one row are.
    pub(super) const WHOLE_PIECE: usize = 20;
    /// `interleave`: a row.
    pub(super) const ROW: usize = 3;
    /// `interleave`: a source.
    pub(super) const SOURCE: usize = 27;
}

/// Returns rows of input batches as one batch, each by its batch and its place there: without a copy
/// where they are neighbours.
///
/// # Errors
///
/// Columns that become too large for their type.
pub fn rows_of(
    batches: &[&InputBatch],
    rows: &[(usize, usize)],
) -> Result<RecordBatch, ArrowError> {
    let sources: Vec<_> = batches.iter().map(|it| &it.batch).collect();
    if let Some(&(source, first)) = rows.first()
        && rows.iter().enumerate().all(|(index, row)| *row == (source, first + index))
    {
        return Ok(sources[source].slice(first, rows.len()));
    }
    interleave_record_batch(&sources, rows)
}

/// Maps handles of batches to positions, and back to nothing after each use.
///
/// Kept between windows for its memory.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    /// Indexed by handle; [`Positions::UNUSED`] between windows.
    of_handle: Vec<u32>,
}

impl Positions {
    const UNUSED: u32 = u32::MAX;

    /// The position of `handle`, or `next` from now on.
    fn get_or_insert(&mut self, handle: u32, next: u32) -> u32 {
        let handle = handle as usize;
        if handle >= self.of_handle.len() {
            self.of_handle.resize(handle + 1, Self::UNUSED);
        }
        let position = &mut self.of_handle[handle];
        if *position == Self::UNUSED {
            *position = next;
        }
        *position
    }

    fn forget(&mut self, runs: &[Run]) {
        for run in runs.iter().filter(|run| !run.is_nulls()) {
            self.of_handle[run.source as usize] = Self::UNUSED;
        }
    }
}

/// The rows of one window, ready to be gathered column by column.
pub(crate) struct Gather<'a> {
    /// The batches that the window uses, each once.
    sources: Vec<&'a RecordBatch>,
    /// Runs whose `source` is a position in `sources`, or [`Run::NULLS`].
    runs: Vec<Run>,
    /// Some rows are null in every column.
    has_nulls: bool,
    plan: Plan,
}

/// Shows which rows are gathered, and nothing of them.
impl fmt::Debug for Gather<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sources, runs, plan, .. } = self;
        let mut shown = f.debug_struct("Gather");
        shown.field("sources", &sources.len()).field("runs", runs).field("plan", plan);
        shown.finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Plan {
    /// One run of neighbouring rows: no copy.
    Slice(Run),
    /// Long runs: copied run by run.
    Concat,
    /// Short runs: copied row by row, from (source, row). The source after the
    /// last one is a row of nulls.
    Interleave(Vec<(usize, usize)>),
}

impl<'a> Gather<'a> {
    /// Prepares `window`, whose handles are looked up with `batch`.
    pub(crate) fn new(
        window: &Window,
        positions: &mut Positions,
        batch: impl Fn(u32) -> &'a RecordBatch,
    ) -> Self {
        let (mut sources, mut runs) = (Vec::new(), window.runs.clone());
        let has_nulls = runs.iter().any(Run::is_nulls);
        for run in runs.iter_mut().filter(|run| !run.is_nulls()) {
            // At most one source per row of a window.
            let next = u32::try_from(sources.len()).unwrap_or(u32::MAX);
            let position = positions.get_or_insert(run.source, next);
            if position == next {
                sources.push(batch(run.source));
            }
            run.source = position;
        }
        positions.forget(&window.runs);
        let plan = Plan::of(&runs, window.rows, &sources);
        Self { sources, runs, has_nulls, plan }
    }

    /// Returns how many columns each source has.
    pub(crate) fn columns(&self) -> usize {
        self.sources.first().map_or(0, |source| source.num_columns())
    }

    /// Builds the column at `index` of every source, which has type `data_type`.
    pub(crate) fn column(
        &self,
        index: usize,
        data_type: &DataType,
    ) -> Result<ArrayRef, ArrowError> {
        match &self.plan {
            Plan::Slice(run) => Ok(self.piece(run, index, data_type)),
            Plan::Concat => {
                let pieces: Vec<_> =
                    self.runs.iter().map(|run| self.piece(run, index, data_type)).collect();
                concat(&pieces.iter().map(AsRef::as_ref).collect::<Vec<_>>())
            }
            Plan::Interleave(rows) => {
                let nulls = self.has_nulls.then(|| new_null_array(data_type, 1));
                let columns = self.sources.iter().map(|batch| batch.column(index).as_ref());
                let values: Vec<&dyn Array> = columns.chain(nulls.as_deref()).collect();
                interleave(&values, rows)
            }
        }
    }

    /// The rows of `run`, without a copy.
    fn piece(&self, run: &Run, index: usize, data_type: &DataType) -> ArrayRef {
        if run.is_nulls() {
            return new_null_array(data_type, run.len as usize);
        }
        let column = self.sources[run.source as usize].column(index);
        if run.len as usize == column.len() {
            return ArrayRef::clone(column);
        }
        column.slice(run.start as usize, run.len as usize)
    }
}

impl Plan {
    fn of(runs: &[Run], rows: usize, sources: &[&RecordBatch]) -> Self {
        if let [run] = runs
            && run.pieces() == 1
        {
            return Self::Slice(*run);
        }
        let by_rows = rows * cost::ROW + sources.len() * cost::SOURCE;
        let repeats = runs.iter().any(|run| run.pieces() > 1);
        if !repeats && runs.iter().map(|run| piece_cost(run, sources)).sum::<usize>() < by_rows {
            return Self::Concat;
        }
        let mut places = Vec::with_capacity(rows);
        for run in runs {
            let source = if run.is_nulls() { sources.len() } else { run.source as usize };
            places.extend((0..run.len).map(|i| (source, (run.start + i * run.step) as usize)));
        }
        Self::Interleave(places)
    }
}

/// What `concat` pays for a run that is one piece.
fn piece_cost(run: &Run, sources: &[&RecordBatch]) -> usize {
    let whole = !run.is_nulls() && sources[run.source as usize].num_rows() == run.len as usize;
    if whole { cost::WHOLE_PIECE } else { cost::SLICED_PIECE }
}
