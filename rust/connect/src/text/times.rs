// SPDX-License-Identifier: Apache-2.0
//! Texts of dates, times and intervals, put into columns of their types.

use super::{date_time, interval};
use crate::column::{Micros, Values};

/// Appends a text to times of any type; `None` if it does not parse, or the values are not times.
///
/// A zone behind a time that has none is dropped, as a cast does, or refused, as `from_json` does.
pub(crate) fn push_time(values: &mut Values, text: &str, drops_zone: bool) -> Option<()> {
    match values {
        Values::Date(values) => values.push(date_time::date(text)?),
        Values::Micros { values, unit, of } => {
            let micros = match of {
                Micros::Timestamp(Some(zone)) => date_time::timestamp(text, zone),
                Micros::Timestamp(None) => date_time::timestamp_ntz(text, drops_zone),
                Micros::Interval => interval::day_to_second(text),
                Micros::Time => date_time::time(text),
            };
            values.push(micros.filter(|it| unit.holds(*it))?);
        }
        _ => return None,
    }
    Some(())
}
