// SPDX-License-Identifier: Apache-2.0
//! What the calls of a row were, and the column that tells of them.

use std::{sync::Arc, time::Duration};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int32Array, StructArray},
    datatypes::{DataType, Field, Fields, Float64Type, Int32Type},
};

/// What the calls of a row were.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallInfo {
    /// Calls that were made for it; second ones beside slow ones do not count.
    pub attempts: u32,
    /// From the first call to the end of the last one; `None`: it was not called.
    pub seconds: Option<Duration>,
    /// From when its task took it until the first call.
    pub waited: Option<Duration>,
    /// Whether its answer was known, or was that to the call of another row.
    pub cached: bool,
    /// Whether a second call was made beside one that was slow.
    pub hedged: bool,
    /// What the service answered last, as a status of HTTP.
    pub status: Option<u16>,
    /// What the calls have cost, in permits of a limit in time; `None` without one that has prices.
    pub cost: Option<f64>,
}

/// Tells what the calls of a row were, by its position in the input of its task, and notes whether
/// it is asked for the last time.
pub type TellCalls<'a> = &'a mut dyn FnMut(u64, bool) -> CallInfo;

fn fields() -> Fields {
    Fields::from(vec![
        Field::new("attempts", DataType::Int32, true),
        Field::new("seconds", DataType::Float64, true),
        Field::new("waited", DataType::Float64, true),
        Field::new("cached", DataType::Boolean, true),
        Field::new("hedged", DataType::Boolean, true),
        Field::new("status", DataType::Int32, true),
        Field::new("cost", DataType::Float64, true),
    ])
}

impl CallInfo {
    /// The type of the column.
    pub fn data_type() -> DataType {
        DataType::Struct(fields())
    }

    /// Builds the column, in times of seconds.
    pub fn column(infos: &[Self]) -> StructArray {
        let times = |of: fn(&Self) -> Option<Duration>| -> ArrayRef {
            let seconds = infos.iter().map(|it| of(it).map(|time| time.as_secs_f64()));
            Arc::new(seconds.collect::<Float64Array>())
        };
        let flags = |of: fn(&Self) -> bool| -> ArrayRef {
            Arc::new(infos.iter().map(|it| Some(of(it))).collect::<BooleanArray>())
        };
        let attempts = infos.iter().map(|it| i32::try_from(it.attempts).unwrap_or(i32::MAX));
        let statuses = infos.iter().map(|it| it.status.map(i32::from));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from_iter_values(attempts)),
            times(|it| it.seconds),
            times(|it| it.waited),
            flags(|it| it.cached),
            flags(|it| it.hedged),
            Arc::new(statuses.collect::<Int32Array>()),
            Arc::new(infos.iter().map(|it| it.cost).collect::<Float64Array>()),
        ];
        StructArray::new(fields(), columns, None)
    }

    /// Reads a row of this column, whose type was checked.
    pub fn read(column: &StructArray, row: usize) -> Self {
        let integer = |place: usize| {
            let integers = column.column(place).as_primitive::<Int32Type>();
            integers.is_valid(row).then(|| integers.value(row))
        };
        let number = |place: usize| {
            let numbers = column.column(place).as_primitive::<Float64Type>();
            numbers.is_valid(row).then(|| numbers.value(row))
        };
        let time = |place| number(place).and_then(|it| Duration::try_from_secs_f64(it).ok());
        let flag = |place: usize| column.column(place).as_boolean().value(row);
        Self {
            attempts: integer(0).and_then(|it| u32::try_from(it).ok()).unwrap_or_default(),
            seconds: time(1),
            waited: time(2),
            cached: flag(3),
            hedged: flag(4),
            status: integer(5).and_then(|it| u16::try_from(it).ok()),
            cost: number(6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn infos() -> [CallInfo; 3] {
        let called = CallInfo {
            attempts: 3,
            seconds: Some(Duration::from_millis(1017)),
            waited: Some(Duration::ZERO),
            cached: false,
            hedged: true,
            status: Some(503),
            cost: Some(13.0),
        };
        let cached = CallInfo { attempts: 0, cached: true, hedged: false, status: None, ..called };
        [called, CallInfo::default(), cached]
    }

    #[test]
    fn infos_are_read_as_they_were_written() {
        let column = CallInfo::column(&infos());

        assert_eq!(column.data_type(), &CallInfo::data_type());
        assert_eq!([0, 1, 2].map(|row| CallInfo::read(&column, row)), infos());
    }

    #[test]
    fn a_row_that_was_not_called_has_no_times_and_no_status() {
        let column = CallInfo::column(&infos());

        let nulls: Vec<bool> = (0..7).map(|place| column.column(place).is_null(1)).collect();
        assert_eq!(nulls, [false, true, true, false, false, true, true]);
    }
}
