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
/// The bytes are not a stream, or are cut off.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::new_null_array;
    use arrow::datatypes::{
        DataType, Field, FieldRef, IntervalUnit, Schema, TimeUnit, UnionFields, UnionMode,
    };

    use super::*;

    fn field(name: &str, data_type: DataType) -> FieldRef {
        Arc::new(Field::new(name, data_type, true))
    }

    /// Types that nest others.
    fn nested() -> Vec<DataType> {
        let item = || field("item", DataType::Utf8);
        let entries = vec![
            Field::new("keys", DataType::Utf8, false),
            Field::new("values", DataType::Int64, true),
        ];
        let entries = Arc::new(Field::new("entries", DataType::Struct(entries.into()), false));
        let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
        let children = [(0, field("a", DataType::Int64)), (3, field("b", DataType::Utf8))];
        vec![
            DataType::List(item()),
            DataType::LargeList(item()),
            DataType::ListView(item()),
            DataType::LargeListView(item()),
            DataType::FixedSizeList(item(), 2),
            DataType::Struct(vec![item(), field("other", DataType::Boolean)].into()),
            DataType::Struct(Vec::<FieldRef>::new().into()),
            DataType::Map(entries, false),
            DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)),
            DataType::RunEndEncoded(ends, field("values", DataType::Utf8)),
            DataType::Union(children.into_iter().collect::<UnionFields>(), UnionMode::Sparse),
        ]
    }

    fn plain() -> Vec<DataType> {
        let zone = Some("Europe/Berlin".into());
        vec![
            DataType::Null,
            DataType::Boolean,
            DataType::Int8,
            DataType::UInt64,
            DataType::Float16,
            DataType::Float64,
            DataType::Utf8,
            DataType::LargeUtf8,
            DataType::Utf8View,
            DataType::Binary,
            DataType::LargeBinary,
            DataType::BinaryView,
            DataType::FixedSizeBinary(7),
            DataType::Decimal32(7, 2),
            DataType::Decimal128(38, 10),
            DataType::Decimal256(76, 11),
            DataType::Date32,
            DataType::Date64,
            DataType::Time32(TimeUnit::Second),
            DataType::Time64(TimeUnit::Nanosecond),
            DataType::Timestamp(TimeUnit::Microsecond, zone),
            DataType::Duration(TimeUnit::Millisecond),
            DataType::Interval(IntervalUnit::YearMonth),
            DataType::Interval(IntervalUnit::MonthDayNano),
        ]
    }

    #[test]
    fn rows_of_every_type_are_written_and_read_also_inside_of_lists() {
        for data_type in plain().into_iter().chain(nested()) {
            let list = DataType::List(field("item", data_type.clone()));
            for data_type in [data_type, list] {
                let schema = Arc::new(Schema::new(vec![field("x", data_type.clone())]));
                let column = new_null_array(&data_type, 3);
                let batch = RecordBatch::try_new(schema, vec![column]).unwrap();

                let read = read_one(&write(&batch).unwrap());

                assert_eq!(read.unwrap(), batch, "{data_type}");
            }
        }
    }
}
