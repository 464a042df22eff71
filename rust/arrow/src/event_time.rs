// SPDX-License-Identifier: Apache-2.0
//! Watermarks from a column that holds the event time.

use std::{collections::VecDeque, num::NonZeroUsize, time::Duration};

use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Int64Array, RecordBatch},
    datatypes::{
        DataType, Date32Type, Date64Type, Int32Type, Int64Type, Schema, TimeUnit,
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

/// Where event time comes from, and how it advances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatermarkStrategy {
    /// The column with the event time.
    pub column: String,
    /// How late a row may be.
    pub delay: Duration,
    /// Rows between watermarks; `None`: those of an input batch.
    pub every: Option<NonZeroUsize>,
}

/// Makes watermarks behind the largest event time seen, in microseconds.
///
/// Counterpart of Flink's `BoundedOutOfOrdernessWatermarks`; differs in
/// microseconds instead of milliseconds, and in that a [`Watermark`] allows
/// later rows of its own timestamp, so that one is not subtracted.
#[derive(Debug)]
pub struct WatermarkGenerator {
    /// Position in the input schema.
    column: usize,
    /// Microseconds that a row may be late.
    delay: i64,
    /// Rows between watermarks; `None`: those of a batch.
    every: Option<NonZeroUsize>,
    max: Option<i64>,
}

/// A watermark, and how many rows come between it and the one before it, or the batch's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatermarkAfter {
    /// The rows before it.
    pub rows: usize,
    /// The watermark.
    pub watermark: Watermark,
}

impl WatermarkGenerator {
    /// Looks the column of `strategy` up in `schema`.
    ///
    /// Timestamps, dates and integers are accepted; integers are microseconds.
    ///
    /// # Errors
    ///
    /// When the column is unknown or ambiguous, or of another type.
    pub fn new(schema: &Schema, strategy: &WatermarkStrategy) -> Result<Self, Error> {
        use DataType::{Date32, Date64, Int32, Int64, Timestamp};
        let column = column_named(schema, &strategy.column)?;
        // Rounded up: a watermark that is too early would cut rows off.
        let delay = i64::try_from(strategy.delay.as_nanos().div_ceil(1_000));
        let delay = delay.unwrap_or(i64::MAX);
        match schema.field(column).data_type() {
            Timestamp(..) | Date32 | Date64 | Int32 | Int64 => {
                Ok(Self { column, delay, every: strategy.every, max: None })
            }
            other => {
                let column = strategy.column.clone();
                Err(Error::EventTimeType { column, data_type: other.clone() })
            }
        }
    }

    /// Appends the watermarks of `batch` to `watermarks`, in their order.
    ///
    /// One follows each run of rows that raised the largest event time. Nulls are
    /// ignored.
    pub fn observe(&mut self, batch: &RecordBatch, watermarks: &mut VecDeque<WatermarkAfter>) {
        let times = micros(batch.column(self.column));
        let every = self.every.map_or(usize::MAX, NonZeroUsize::get);
        let mut start = 0;
        let mut marked = 0;
        while start < times.len() {
            let end = start.saturating_add(every).min(times.len());
            let seen = largest(&times, start, end);
            if seen > self.max {
                self.max = seen;
                let at = seen.unwrap_or(i64::MIN).saturating_sub(self.delay);
                let watermark = Watermark(Timestamp(at));
                watermarks.push_back(WatermarkAfter { rows: end - marked, watermark });
                marked = end;
            }
            start = end;
        }
    }
}

/// Returns the largest value of some rows that are not null.
fn largest(times: &Int64Array, start: usize, end: usize) -> Option<i64> {
    if times.null_count() == 0 {
        return times.values()[start..end].iter().copied().max();
    }
    (start..end).filter(|row| times.is_valid(*row)).map(|row| times.value(row)).max()
}

fn micros(column: &ArrayRef) -> Int64Array {
    match column.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => column
            .as_primitive::<TimestampNanosecondType>()
            .unary(|nanos| nanos.div_euclid(NANOS_PER_MICRO)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            column.as_primitive::<TimestampMicrosecondType>().reinterpret_cast()
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            scaled::<TimestampMillisecondType>(column, MICROS_PER_MILLI)
        }
        DataType::Timestamp(TimeUnit::Second, _) => {
            scaled::<TimestampSecondType>(column, MICROS_PER_SECOND)
        }
        DataType::Date32 => scaled::<Date32Type>(column, MICROS_PER_DAY),
        DataType::Date64 => scaled::<Date64Type>(column, MICROS_PER_MILLI),
        DataType::Int32 => scaled::<Int32Type>(column, 1),
        DataType::Int64 => column.as_primitive::<Int64Type>().clone(),
        _ => Int64Array::new_null(column.len()), // refused by `new`
    }
}

fn scaled<T: ArrowPrimitiveType>(column: &ArrayRef, scale: i64) -> Int64Array
where
    T::Native: Into<i64>,
{
    column.as_primitive::<T>().unary(|value| value.into().saturating_mul(scale))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{NullArray, record_batch},
        compute::cast,
    };

    use super::*;

    fn one_column(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter([("t", column)]).unwrap()
    }

    fn generator(batch: &RecordBatch, delay: u64, every: usize) -> WatermarkGenerator {
        WatermarkGenerator::new(batch.schema_ref(), &strategy(delay, every)).unwrap()
    }

    fn strategy(delay: u64, every: usize) -> WatermarkStrategy {
        let every = NonZeroUsize::new(every);
        WatermarkStrategy { column: "t".to_owned(), delay: Duration::from_nanos(delay), every }
    }

    fn observed(generator: &mut WatermarkGenerator, batch: &RecordBatch) -> Vec<(usize, i64)> {
        let mut watermarks = VecDeque::new();
        generator.observe(batch, &mut watermarks);
        watermarks.iter().map(|it| (it.rows, it.watermark.0.0)).collect()
    }

    fn max_as(data_type: &DataType, values: Vec<Option<i64>>) -> Option<i64> {
        let ints: ArrayRef = Arc::new(Int64Array::from(values));
        let narrow = if *data_type == DataType::Date32 { DataType::Int32 } else { DataType::Int64 };
        let batch = one_column(cast(&cast(&ints, &narrow).unwrap(), data_type).unwrap());
        observed(&mut generator(&batch, 0, 0), &batch).first().map(|(_, watermark)| *watermark)
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
        let first = record_batch!(("t", Int64, [50, 10])).unwrap();
        let later = record_batch!(("t", Int64, [20, 60])).unwrap();
        let earlier = record_batch!(("t", Int64, [60])).unwrap();

        for (delay, watermarks) in [(5_000, [45, 55]), (5_001, [44, 54])] {
            let mut generator = generator(&first, delay, 0);
            assert_eq!(observed(&mut generator, &first), [(2, watermarks[0])]);
            assert_eq!(observed(&mut generator, &later), [(2, watermarks[1])]);
            assert_eq!(observed(&mut generator, &earlier), []);
        }
    }

    #[test]
    fn watermarks_follow_every_so_many_rows_that_raised_the_time() {
        let times = [Some(1), Some(3), Some(2), None, Some(7), Some(5), Some(9)];
        let batch = one_column(Arc::new(Int64Array::from(times.to_vec())));

        let by = |every| observed(&mut generator(&batch, 0, every), &batch);

        assert_eq!(by(1), [(1, 1), (1, 3), (3, 7), (2, 9)]);
        assert_eq!(by(2), [(2, 3), (4, 7), (1, 9)]);
        assert_eq!(by(100), [(7, 9)]);
    }

    #[test]
    fn column_that_is_no_time_is_refused() {
        let batch = one_column(Arc::new(NullArray::new(1)));

        let error = WatermarkGenerator::new(batch.schema_ref(), &strategy(0, 0)).unwrap_err();

        assert_eq!(
            error.to_string(),
            "column `t` of type `Null` is not a timestamp, date or integer"
        );
    }
}
