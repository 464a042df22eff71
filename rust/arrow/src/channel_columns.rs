// SPDX-License-Identifier: Apache-2.0
//! The columns that say where each row goes.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::Schema;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use foldhash::fast::FixedState;
use sparkawait_core::Key;

use crate::error::Error;
use crate::input_rows::InputBatch;
use crate::key_columns::{KeyColumns, Keys, column_named};

/// The longest name of a channel, in characters.
const MAX_LABEL: usize = 80;

/// Rows of a batch whose channels are remembered by name, and names that are remembered.
///
/// Looking at every row would cost as much as finding its channel.
const LOOKED_AT: usize = 256;

/// Finds the channel of each row in one or several columns.
#[derive(Debug)]
pub struct ChannelColumns {
    keys: KeyColumns,
    /// Positions in the batches that come in, hidden columns included.
    positions: Vec<usize>,
    /// Names of channels at the head of the batches, for those that have no rows any more.
    names: HashMap<Key, String, FixedState>,
}

impl ChannelColumns {
    /// Looks the columns `names` up in `schema`, which has the hidden ones, too.
    ///
    /// # Errors
    ///
    /// As [`KeyColumns::new`].
    pub fn new<S: AsRef<str>>(schema: &Schema, names: &[S]) -> Result<Self, Error> {
        let keys = KeyColumns::new(schema, names)?;
        let positions = names.iter().map(|name| column_named(schema, name.as_ref()));
        let positions = positions.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { keys, positions, names: HashMap::default() })
    }

    /// Returns the channel of each row of `batch`; `None` where a column is null.
    ///
    /// # Errors
    ///
    /// When `batch` does not have the schema that the columns were looked up in.
    pub fn find(&mut self, batch: &RecordBatch) -> Result<Keys, Error> {
        let keys = self.keys.keys(batch)?;
        self.learn_names(&keys, batch);
        Ok(keys)
    }

    /// Remembers what some of the channels are called.
    fn learn_names(&mut self, keys: &[Option<Key>], batch: &RecordBatch) {
        let mut last = None;
        for (row, key) in keys.iter().enumerate().take(LOOKED_AT) {
            if self.names.len() == LOOKED_AT {
                return;
            }
            let Some(key) = key.filter(|_| std::mem::replace(&mut last, *key) != *key) else {
                continue;
            };
            let columns = self.positions.iter().map(|&it| batch.column(it));
            self.names.entry(key).or_insert_with(|| label_of(columns, row));
        }
    }

    /// Returns the name of a channel, if it stood at the head of a batch.
    pub fn name(&self, channel: Key) -> Option<String> {
        self.names.get(&channel).cloned()
    }

    /// Names the channel of a row of a batch that came through here.
    pub fn label(&self, input: &InputBatch, row: usize) -> String {
        label_of(self.positions.iter().map(|&it| input.column(it)), row)
    }
}

/// Joins the cells of a row.
fn label_of<'a>(columns: impl Iterator<Item = &'a ArrayRef>, row: usize) -> String {
    let cells: Vec<String> = columns.map(|column| cell(column, row)).collect();
    cells.join(", ").chars().take(MAX_LABEL).collect()
}

/// Writes one cell; a type that cannot be written is told by its name.
fn cell(column: &ArrayRef, row: usize) -> String {
    // A column of texts, too, if not all of them are UTF-8.
    if let Some(bytes) = column.as_binary_opt::<i32>().filter(|it| it.is_valid(row))
        && let Ok(text) = std::str::from_utf8(bytes.value(row))
    {
        return text.to_owned();
    }
    let options = FormatOptions::default().with_null("null");
    match ArrayFormatter::try_new(column.as_ref(), &options) {
        Ok(formatter) => formatter.value(row).to_string(),
        Err(_) => column.data_type().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::record_batch;

    use super::*;
    use crate::input_rows::InputRows;

    fn batch() -> RecordBatch {
        record_batch!(
            ("x", Int64, [1, 2, 3]),
            ("host", Utf8, [Some("a"), None, Some("a")]),
            ("shard", Int32, [7, 7, 7])
        )
        .unwrap()
    }

    #[test]
    fn hidden_columns_name_the_channel_too() {
        let mut columns = ChannelColumns::new(&batch().schema(), &["host", "shard"]).unwrap();

        let keys = columns.find(&batch()).unwrap();

        assert_eq!(keys[0], keys[2]);
        assert_eq!(keys[1], None);
        let (visible, hidden) = (batch().project(&[0]).unwrap(), batch().project(&[1, 2]).unwrap());
        let mut input = InputRows::new(visible.schema());
        let rows = input.accept_with(visible, hidden, keys, 0).unwrap();
        let held = Arc::clone(input.batch(rows.batch()));
        assert_eq!(columns.label(&held, 0), "a, 7");
        assert_eq!(columns.label(&held, 1), "null, 7");
    }

    #[test]
    fn channels_have_the_names_of_their_rows() {
        let mut columns = ChannelColumns::new(&batch().schema(), &["host"]).unwrap();

        let keys = columns.find(&batch()).unwrap();

        assert_eq!(columns.name(keys[0].unwrap()).as_deref(), Some("a"));
        let mut input = InputRows::new(batch().schema());
        let rows = input.accept(batch()).unwrap();
        assert_eq!(columns.label(input.batch(rows.batch()), 2), "a");
    }
}
