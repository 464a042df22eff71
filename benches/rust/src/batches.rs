// SPDX-License-Identifier: Apache-2.0
//! Record batches as tasks get them, and results as functions return them.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};

fn number(row: usize) -> i64 {
    i64::try_from(row).unwrap()
}

#[expect(clippy::cast_precision_loss, reason = "any float will do")]
fn float(row: usize) -> f64 {
    row as f64
}

fn text(row: usize) -> String {
    format!("value {row}")
}

/// Returns `rows` rows of 4 columns: int64, utf8, float64, timestamp.
///
/// # Panics
///
/// Never: the columns are of one length.
pub fn input(rows: usize) -> RecordBatch {
    let times = TimestampMicrosecondArray::from_iter_values((0..rows).map(number));
    let columns: [(_, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from_iter_values((0..rows).map(number)))),
        ("name", Arc::new(StringArray::from_iter_values((0..rows).map(text)))),
        ("score", Arc::new(Float64Array::from_iter_values((0..rows).map(float)))),
        ("time", Arc::new(times.with_timezone("UTC"))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

/// Returns `rows` rows of 2 columns: utf8, float64.
///
/// # Panics
///
/// Never: the columns are of one length.
pub fn results(rows: usize) -> RecordBatch {
    let columns: [(_, ArrayRef); 2] = [
        ("weather", Arc::new(StringArray::from_iter_values((0..rows).map(text)))),
        ("wind", Arc::new(Float64Array::from_iter_values((0..rows).map(float)))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}
