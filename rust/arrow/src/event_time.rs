// SPDX-License-Identifier: Apache-2.0
//! Watermarks from a column that holds the event time.

use std::time::Duration;

use arrow::{
    array::{Array, ArrowPrimitiveType, AsArray, RecordBatch},
    compute::max,
    datatypes::{
        ArrowNumericType, DataType, Date32Type, Date64Type, Int32Type, Int64Type, Schema, TimeUnit,
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
        TimestampSecondType,
    },
};
use sparkawait_core::{Timestamp, Watermark};

use crate::{error::Error, key_columns::column_named};

const MICROS_PER_MILLI: i64 = 1_000;
const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
const NANOS_PER_MICRO: i64 = 1_000;

/// Tracks the largest event time seen, in microseconds.
///
/// Counterpart of Flink's `BoundedOutOfOrdernessWatermarks`; differs in
/// microseconds instead of milliseconds, and in that a [`Watermark`] allows
/// later rows of its own timestamp, so that one is not subtracted.
#[derive(Debug)]
pub struct EventTime {
    /// Position in the input schema.
    column: usize,
    max: Option<Timestamp>,
}

impl EventTime {
    /// Looks the column `name` up in `schema`.
    ///
    /// Timestamps, dates and integers are accepted; integers are microseconds.
    ///
    /// # Errors
    ///
    /// When the column is unknown or ambiguous, or of another type.
    pub fn new(schema: &Schema, name: &str) -> Result<Self, Error> {
        use DataType::{Date32, Date64, Int32, Int64, Timestamp};
        let column = column_named(schema, name)?;
        match schema.field(column).data_type() {
            Timestamp(..) | Date32 | Date64 | Int32 | Int64 => Ok(Self { column, max: None }),
            other => {
                Err(Error::EventTimeType { column: name.to_owned(), data_type: other.clone() })
            }
        }
    }

    /// Returns the largest event time of `batch`, and remembers it.
    ///
    /// Nulls are ignored; `None` when there is nothing else.
    pub fn observe(&mut self, batch: &RecordBatch) -> Option<Timestamp> {
        let seen = max_micros(batch.column(self.column).as_ref()).map(Timestamp);
        self.max = self.max.max(seen);
        seen
    }

    /// The largest event time of all batches.
    pub fn max(&self) -> Option<Timestamp> {
        self.max
    }

    /// The watermark that allows rows to be late by `delay`.
    ///
    /// `None` until an event time has been seen. Never moves back.
    pub fn watermark(&self, delay: Duration) -> Option<Watermark> {
        // Rounded up: a watermark that is too early would cut rows off.
        let delay = i64::try_from(delay.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX);
        self.max.map(|Timestamp(max)| Watermark(Timestamp(max.saturating_sub(delay))))
    }
}

fn max_micros(column: &dyn Array) -> Option<i64> {
    let (largest, scale) = match column.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let nanos = largest::<TimestampNanosecondType>(column)?;
            return Some(nanos.div_euclid(NANOS_PER_MICRO));
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            (largest::<TimestampMicrosecondType>(column), 1)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            (largest::<TimestampMillisecondType>(column), MICROS_PER_MILLI)
        }
        DataType::Timestamp(TimeUnit::Second, _) => {
            (largest::<TimestampSecondType>(column), MICROS_PER_SECOND)
        }
        DataType::Date32 => (largest::<Date32Type>(column), MICROS_PER_DAY),
        DataType::Date64 => (largest::<Date64Type>(column), MICROS_PER_MILLI),
        DataType::Int32 => (largest::<Int32Type>(column), 1),
        DataType::Int64 => (largest::<Int64Type>(column), 1),
        _ => return None, // refused by `new`
    };
    largest.map(|value| value.saturating_mul(scale))
}

fn largest<T>(column: &dyn Array) -> Option<i64>
where
    T: ArrowNumericType + ArrowPrimitiveType,
    T::Native: Into<i64>,
{
    max(column.as_primitive_opt::<T>()?).map(Into::into)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{ArrayRef, Int64Array, NullArray, record_batch},
        compute::cast,
    };

    use super::*;

    fn one_column(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter([("t", column)]).unwrap()
    }

    fn max_as(data_type: &DataType, values: Vec<Option<i64>>) -> Option<i64> {
        let ints: ArrayRef = Arc::new(Int64Array::from(values));
        let narrow = if *data_type == DataType::Date32 { DataType::Int32 } else { DataType::Int64 };
        let batch = one_column(cast(&cast(&ints, &narrow).unwrap(), data_type).unwrap());
        let mut event_time = EventTime::new(batch.schema_ref(), "t").unwrap();
        event_time.observe(&batch).map(|timestamp| timestamp.0)
    }

    #[test]
    fn every_unit_is_read_as_microseconds() {
        let utc = Some(Arc::from("UTC"));
        for (data_type, expected) in [
            (DataType::Timestamp(TimeUnit::Second, None), 7_000_000),
            (DataType::Timestamp(TimeUnit::Millisecond, utc.clone()), 7_000),
            (DataType::Timestamp(TimeUnit::Microsecond, utc), 7),
            (DataType::Timestamp(TimeUnit::Nanosecond, None), 0),
            (DataType::Date32, 7 * MICROS_PER_DAY),
            (DataType::Date64, 7_000),
            (DataType::Int32, 7),
            (DataType::Int64, 7),
        ] {
            assert_eq!(
                max_as(&data_type, vec![Some(3), None, Some(7)]),
                Some(expected),
                "{data_type}"
            );
        }
    }

    #[test]
    fn time_before_the_epoch_is_rounded_down() {
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);

        assert_eq!(max_as(&nanos, vec![Some(-1)]), Some(-1));
    }

    #[test]
    fn batch_of_nulls_has_no_event_time() {
        assert_eq!(max_as(&DataType::Int64, vec![None, None]), None);
        assert_eq!(max_as(&DataType::Int64, vec![]), None);
    }

    #[test]
    fn watermark_lags_by_the_delay_and_never_moves_back() {
        let mut event_time =
            EventTime::new(record_batch!(("t", Int64, [0])).unwrap().schema_ref(), "t").unwrap();
        assert_eq!(event_time.watermark(Duration::ZERO), None);

        for batch in [record_batch!(("t", Int64, [50, 10])), record_batch!(("t", Int64, [20]))] {
            event_time.observe(&batch.unwrap());
        }

        let watermark = |nanos| event_time.watermark(Duration::from_nanos(nanos));
        assert_eq!(watermark(5_000), Some(Watermark(Timestamp(45))));
        assert_eq!(watermark(5_001), Some(Watermark(Timestamp(44))));
        assert_eq!(event_time.max(), Some(Timestamp(50)));
    }

    #[test]
    fn column_that_is_no_time_is_refused() {
        let batch = one_column(Arc::new(NullArray::new(1)));

        let error = EventTime::new(batch.schema_ref(), "t").unwrap_err();

        assert_eq!(
            error.to_string(),
            "column `t` of type `Null` is not a timestamp, date or integer"
        );
    }
}
