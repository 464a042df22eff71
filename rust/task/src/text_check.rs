// SPDX-License-Identifier: Apache-2.0
//! Rows whose texts are not UTF-8 in a column that is read: they fail and are not called.
//!
//! A native function takes the texts of its columns as they are. What is left of a text that is not
//! UTF-8 is another text, and a service would find another row for it. Python reads cell by cell,
//! and learns it there; keys are compared as bytes.

use sparkawait_arrow::InputBatch;
use sparkawait_core::ErrorKind;

use crate::error::{CallFailure, StartError};
use crate::native::column_index;
use crate::row_config::RowConfig;

/// Says that a row has a text in the column `name` that is not UTF-8, and what to do.
pub fn not_utf8(name: &str) -> String {
    format!(
        "column `{name}` has a text in this row that is not UTF-8; cast it to binary, or repair it: \
         make_valid_utf8(..), before Spark 4 decode(cast(.. as binary), 'UTF-8')"
    )
}

/// Knows the columns that are read.
#[derive(Debug)]
pub(crate) struct TextCheck {
    names: Vec<String>,
    positions: Vec<usize>,
}

impl TextCheck {
    /// Looks them up.
    ///
    /// # Errors
    ///
    /// A column that does not exist.
    pub(crate) fn new(rows: &RowConfig) -> Result<Self, StartError> {
        let position = |name: &String| column_index(&rows.input, name, &rows.function);
        let positions = rows.reads.iter().map(position).collect::<Result<_, _>>()?;
        Ok(Self { names: rows.reads.clone(), positions })
    }

    /// Returns the failure of a row that cannot be read.
    pub(crate) fn misfit(&self, input: &InputBatch, row: u32) -> Option<CallFailure> {
        let texts = input.invalid_texts.as_deref()?;
        let column = texts.column_in_row(&self.positions, row as usize)?;
        let place = self.positions.iter().position(|it| *it == column).unwrap_or_default();
        Some(CallFailure::new(ErrorKind::TextInvalid, not_utf8(&self.names[place])))
    }
}
