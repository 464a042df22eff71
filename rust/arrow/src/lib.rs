// SPDX-License-Identifier: Apache-2.0
//! Record batches to elements, and results back to record batches.
//!
//! The operator of `sparkawait_core` handles one row at a time; Arrow is fast only on whole
//! columns. This crate stands between them. A row is a [`RowRef`] of eight bytes into a batch that
//! this crate holds, and its results are a [`ResultRows`] into a chunk that it holds. It touches
//! columns once per output batch, with kernels over runs of rows.
//!
//! ```text
//!  input batch ─► InputRows ──RowRef──► operator ──RowRef─┐
//!                     ▲                                   ▼
//!                     │ releases rows              OutputAssembler ─► output batch
//!                     ▼                                   ▲
//!  result chunk ─► ResultChunks ───────ResultRows─────────┘
//! ```
//!
//! [`RowStore`] owns the three. Everything is `&mut self` and belongs to the
//! task thread; batches leave as `Arc<InputBatch>` for other threads to read.

mod amounts;
mod call_info;
mod channel_columns;
pub mod conform;
mod content_keys;
mod error;
mod event_time;
mod gather;
mod held_values;
mod input_rows;
mod invalid_texts;
mod key_columns;
mod key_table;
pub mod key_values;
mod leaves;
mod output_assembler;
mod output_schema;
mod own_memory;
mod refused_rows;
mod result_chunks;
mod row_bytes;
mod row_failure;
mod row_store;
mod run_list;
pub mod simple_string;
mod tally;

pub use amounts::{MOST_AMOUNT, NoAmount, amount_of, amount_of_whole, amounts};
pub use call_info::{CallInfo, TellCalls};
pub use channel_columns::ChannelColumns;
pub use content_keys::content_keys;
pub use error::{Error, Side};
pub use event_time::{WatermarkAfter, WatermarkGenerator, WatermarkStrategy};
pub use gather::rows_of;
pub use input_rows::{BatchRows, InputBatch, InputRows, RowRef};
pub use invalid_texts::{InvalidTexts, has_bytes_for_texts};
pub use key_columns::{KeyColumns, Keys};
pub use key_table::KeyTable;
pub use output_assembler::{OutputAssembler, RowsLeft};
pub use output_schema::{ERROR_COLUMN, OnError, OutputColumns, output_schema};
pub use own_memory::with_own_memory;
pub use refused_rows::{RefusedRow, RefusedRows};
pub use result_chunks::{ResultChunks, ResultRows};
pub use row_bytes::{MOST_COLUMN_BYTES, bytes_of_rows, bytes_of_values};
pub use row_failure::RowFailure;
pub use row_store::RowStore;
