// SPDX-License-Identifier: Apache-2.0
//! A journal whose commits take their time.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, FixedSizeBinaryArray, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, Field, Fields, Schema};
use sparkawait_task::error::TaskError;
use sparkawait_task::journal::{Journal, JournalConfig, KEY, KEY_WIDTH, KNOWN};

use super::{Shared, World};
use crate::scenario::JournalPlan;

/// The way of a task to its journal.
#[derive(Debug)]
struct Written(Shared);

impl Journal for Written {
    fn append(&self, number: u64, entries: RecordBatch) {
        let keys = entries.column_by_name("key").map(AsArray::as_fixed_size_binary);
        let keys: Vec<i64> = keys.into_iter().flat_map(numbers).collect();
        let mut world = self.0.world();
        let now = world.now;
        let seen = world.journal.as_mut().map_or(Ok(()), |it| it.append(number, &keys, now));
        world.breaks(seen);
    }

    fn committed(&self) -> Result<u64, TaskError> {
        let world = self.0.world();
        Ok(world.journal.as_ref().map_or(0, |it| it.done(world.now)))
    }

    fn connect(&self, _waker: Waker) {}
}

fn numbers(keys: &FixedSizeBinaryArray) -> impl Iterator<Item = i64> {
    keys.iter().flatten().filter_map(|it| Some(i64::from_le_bytes(*it.first_chunk()?)))
}

/// Returns what a task is told of the journal of its scenario.
pub fn config(shared: &Shared, plan: JournalPlan) -> JournalConfig {
    JournalConfig {
        journal: Arc::new(Written(shared.clone())),
        interval: Duration::from_nanos(plan.interval),
        max_bytes: plan.max_bytes,
        keeps_input: plan.keeps_input,
    }
}

/// Adds the columns that a journal needs to a batch of new rows.
pub fn with_columns(batch: &RecordBatch, first: i64) -> RecordBatch {
    let rows = (first..).take(batch.num_rows());
    let keys = rows.flat_map(|row| [row.to_le_bytes(), [0; 8]].concat()).collect();
    let keys = FixedSizeBinaryArray::new(KEY_WIDTH, keys, None);
    let known = DataType::Struct(Fields::from(vec![Field::new("kind", DataType::Utf8, true)]));
    let columns: [ArrayRef; 2] = [Arc::new(keys), new_null_array(&known, batch.num_rows())];
    let more = [
        Field::new(KEY, DataType::FixedSizeBinary(KEY_WIDTH), false),
        Field::new(KNOWN, known, true),
    ];
    let schema = batch.schema();
    let fields = schema.fields().iter().cloned().chain(more.map(Arc::new));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let columns = batch.columns().iter().cloned().chain(columns).collect();
    RecordBatch::try_new(schema, columns).expect("the columns fit")
}

impl World {
    /// A row is in the output: what it came to is committed. What a function answers to a timeout is not
    /// entered.
    pub fn check_committed(&mut self, row: i64) {
        let Some(commits) = &self.journal else { return };
        let committed = commits.committed_at(row);
        let is_asked = self.model.sites.iter().any(|it| it.plan.asks_on_timeout);
        if committed.map_or(is_asked, |at| at <= self.now) {
            return;
        }
        let what = format!("row {row} at {}, which is committed at {committed:?}", self.now);
        self.fail("a row leaves when it is committed", what);
    }

    /// A task has ended by itself: each of its rows is in its journal.
    pub fn check_entered(&mut self) {
        let Some(commits) = &self.journal else { return };
        let is_asked = self.model.sites.iter().any(|it| it.plan.asks_on_timeout);
        let (entered, fed) = (commits.rows(), self.model.fed.len());
        let is_done = commits.are_done(self.now);
        if entered > fed || entered < fed && !is_asked || !is_done {
            let what = format!("{entered} rows of {fed}, all of them committed: {is_done}");
            self.fail("each row is in the journal", what);
        }
    }
}
