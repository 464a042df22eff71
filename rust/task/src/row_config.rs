// SPDX-License-Identifier: Apache-2.0
//! What the rows of a task look like.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use sparkawait_arrow::{OnError, OutputColumns, WatermarkStrategy};

use crate::channel_finder::ChannelFinder;
use crate::journal::JournalConfig;
use crate::row_prices::PriceSettings;

/// The column that says what happened to a row in a branch.
pub(crate) const OUTCOME: &str = "__sparkawait_outcome";

/// The kind of an outcome without a result.
pub(crate) const NO_RESULT: &str = "no-result";

/// What the rows of a task look like, and whose they are.
#[derive(Clone, Debug)]
pub struct RowConfig {
    /// Schema of the input.
    pub input: SchemaRef,
    /// Columns that come behind those of the input and are in no row: what options, such as a key,
    /// are computed into.
    pub hidden: SchemaRef,
    /// Columns that come behind those, for operators behind this one: they are put out behind all
    /// others.
    pub carried: SchemaRef,
    /// Schema of the function's results.
    pub results: SchemaRef,
    /// Which columns an output row has.
    pub output: OutputColumns,
    /// What the final failure of a row does.
    pub on_error: OnError,
    /// The column that failures are captured in.
    pub error_column: String,
    /// The column that tells of the calls of each row; `None`: nobody asks, and nothing is noted.
    pub info_column: Option<String>,
    /// Whether the task keeps what was raised for a failure of its own: it fails with rows, or with
    /// too many of them.
    pub keeps_causes: bool,
    /// Columns that a native function reads.
    pub reads: Vec<String>,
    /// Columns of the key, in key-ordered mode.
    pub key: Option<Vec<String>>,
    /// What says where a row goes, with channels.
    pub channel: Option<ChannelSettings>,
    /// What rows cost of limits in time.
    pub prices: PriceSettings,
    /// Where watermarks come from.
    pub watermark: Option<WatermarkStrategy>,
    /// Names the function in errors.
    pub function: String,
    /// Names the task in errors.
    pub partition: u32,
    /// Columns whose values name a row in the error of its task, beside its place.
    pub names_of_rows: Vec<String>,
    /// Where what rows come to is kept. The batches have two more columns then: the last hidden one is
    /// [`KEY`](crate::journal::KEY), and behind all others is [`KNOWN`](crate::journal::KNOWN).
    pub journal: Option<JournalConfig>,
    /// Whether each row is put out once, beside what happened to it, for the operator that calls
    /// several functions: see [`fan_out`](crate::fan_out).
    pub is_branch: bool,
    /// Named in the error of a row whose time has passed.
    pub timeout: Duration,
    /// Named in the error of a row whose last attempt took longer.
    pub attempt_timeout: Duration,
    /// Why a call that may have been carried out is not made again, where there are retries: for
    /// that error, and for those that carry a reason themselves.
    pub not_repeated: Option<Arc<str>>,
}

impl RowConfig {
    /// Returns whether it is noted what the calls of rows were.
    pub(crate) const fn tells_calls(&self) -> bool {
        self.info_column.is_some() || self.journal.is_some()
    }

    /// Returns the columns of the batches that come: those of the input, and the hidden ones.
    pub(crate) fn columns(&self) -> Schema {
        let all = [&self.input, &self.hidden, &self.carried];
        Schema::new(
            all.into_iter().flat_map(|it| it.fields()).map(FieldRef::clone).collect::<Vec<_>>(),
        )
    }
}

/// Where the channel of a row is found.
#[derive(Clone, Debug)]
pub enum ChannelSettings {
    /// In columns of the input, or hidden ones.
    Columns(Vec<String>),
    /// The function knows it.
    Function(Arc<dyn ChannelFinder>),
}
