// SPDX-License-Identifier: Apache-2.0
//! Columns out of JSON texts, as connectors read them.

use arrow::array::{Array, RecordBatch, StringArray};
use arrow::datatypes::{Schema, SchemaRef};
use arrow_pyarrow::ToPyArrow;
use pyo3::prelude::*;
use sparkawait_connect::json::JsonRows;
use sparkawait_core::ErrorKind;
use sparkawait_macros::guarded;

use crate::error::{configuration_error, internal_error};
use crate::guard::FromArrow;

/// What a text is not, by its row.
type Wrong = Vec<(usize, String)>;

/// Reads each text of the first column as a row of `schema`. A null text has nulls. One that does not fit
/// has them, too, and is told of.
#[guarded]
#[pyfunction]
pub(crate) fn read_json<'py>(
    py: Python<'py>,
    texts: FromArrow<RecordBatch>,
    schema: FromArrow<Schema>,
    paths: Vec<(String, String)>,
) -> PyResult<(Bound<'py, PyAny>, Wrong)> {
    let (batch, wrong) = py.detach(|| read(&texts.0, schema.0.into(), &paths))?;
    Ok((batch.to_pyarrow(py)?, wrong))
}

fn read(
    texts: &RecordBatch,
    schema: SchemaRef,
    paths: &[(String, String)],
) -> PyResult<(RecordBatch, Wrong)> {
    let internal = |error: &dyn std::fmt::Display| internal_error(&error.to_string());
    let texts = texts.columns().first().and_then(|it| it.as_any().downcast_ref::<StringArray>());
    let texts =
        texts.ok_or_else(|| internal_error("what is read as JSON has another type than text"))?;
    let rows = JsonRows::new(schema, None, paths)
        .map_err(|error| configuration_error(&error.message, ErrorKind::SchemaInvalid))?;
    let documents: Vec<&[u8]> = texts.iter().flatten().map(str::as_bytes).collect();
    let decoded = rows.one_each().decode(&documents).map_err(|error| internal(&error))?;
    let (mut wrong, mut next, mut taken) = (Wrong::new(), 0, Vec::with_capacity(texts.len()));
    let mut read = decoded.documents.into_iter();
    for (row, text) in texts.iter().enumerate() {
        let found = text.and_then(|_| read.next());
        taken.push(match found {
            Some(Ok(count)) if count > 0 => {
                next += count;
                Some(next - 1)
            }
            Some(Err(message)) => {
                wrong.push((row, message));
                None
            }
            Some(Ok(_)) | None => None,
        });
    }
    let taken = arrow::array::UInt32Array::from(taken);
    let columns = decoded.batch.columns().iter();
    let columns = columns
        .map(|it| arrow::compute::take(it, &taken, None))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| internal(&error))?;
    let fields = decoded.batch.schema();
    let fields = fields.fields().iter().map(|it| it.as_ref().clone().with_nullable(true));
    let schema = SchemaRef::new(Schema::new(fields.collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(schema, columns).map_err(|error| internal(&error))?;
    Ok((batch, wrong))
}
