// SPDX-License-Identifier: Apache-2.0
//! Record batches as bytes: Arrow IPC streams of one batch each.

use std::io::Cursor;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;

/// Writes a batch.
///
/// # Errors
///
/// A type that Arrow does not write.
pub fn write(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut bytes = Vec::with_capacity(batch.get_array_memory_size().min(1 << 24) + 1024);
    let mut writer = StreamWriter::try_new(&mut bytes, batch.schema_ref())?;
    writer.write(batch)?;
    writer.finish()?;
    drop(writer);
    Ok(bytes)
}

/// Reads the batches of a stream.
///
/// # Errors
///
/// The bytes are no stream, or are cut off.
pub fn read(bytes: &[u8]) -> Result<Vec<RecordBatch>, ArrowError> {
    StreamReader::try_new(Cursor::new(bytes), None)?.collect()
}

/// Reads a stream of one batch.
///
/// # Errors
///
/// As [`read`].
pub fn read_one(bytes: &[u8]) -> Result<RecordBatch, ArrowError> {
    let mut batches = read(bytes)?.into_iter();
    match (batches.next(), batches.next()) {
        (Some(batch), None) => Ok(batch),
        _ => Err(ArrowError::IpcError("a stream has not exactly one batch".to_owned())),
    }
}
