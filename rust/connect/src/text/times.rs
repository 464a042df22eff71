// SPDX-License-Identifier: Apache-2.0
//! Texts of dates, times and intervals, put into columns of their types.

use super::{date_time, interval};
use crate::column::Values;

/// Appends a text to times of any type; `None` if it does not parse, or the values are not times.
///
/// A zone behind a time that has none is dropped, as a cast does, or refused, as `from_json` does.
pub(crate) fn push_time(values: &mut Values, text: &str, drops_zone: bool) -> Option<()> {
    match values {
        Values::Date(values) => date_time::date(text).map(|value| values.push(value)),
        Values::Timestamp { values, unit, zone } => match zone {
            Some(zone) => date_time::timestamp(text, zone),
            None => date_time::timestamp_ntz(text, drops_zone),
        }
        .filter(|micros| unit.holds(*micros))
        .map(|micros| values.push(micros)),
        Values::Interval { values, unit } => interval::day_to_second(text)
            .filter(|micros| unit.holds(*micros))
            .map(|micros| values.push(micros)),
        Values::Time { values, unit } => date_time::time(text)
            .filter(|micros| unit.holds(*micros))
            .map(|micros| values.push(micros)),
        _ => None,
    }
}
