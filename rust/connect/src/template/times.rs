// SPDX-License-Identifier: Apache-2.0
//! Dates, times and intervals as texts, in the forms that Spark gives them.

use super::numbers::write_integer;

const SECONDS_PER_DAY: i64 = 86_400;

/// A count of a unit of time, such as milliseconds, as whole seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

impl Moment {
    /// Reads `count` units; a second has `per_second` of them.
    #[inline]
    pub(crate) fn new(count: i64, per_second: i64) -> Self {
        let nanos = count.rem_euclid(per_second) * (1_000_000_000 / per_second);
        let nanos = u32::try_from(nanos).unwrap_or_default();
        Self { seconds: count.div_euclid(per_second), nanos }
    }

    /// Returns it in microseconds, as near as there are.
    #[inline]
    pub(crate) fn micros(self) -> i64 {
        self.seconds.saturating_mul(1_000_000).saturating_add(i64::from(self.nanos / 1000))
    }
}

/// Digits of a fraction of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fraction {
    /// As many as it has; none without a point.
    Shortest,
    /// Three, or as many more as it has.
    Millis,
}

/// Appends a date, given in days since 1970.
pub(crate) fn write_date(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = civil(days);
    match year {
        0..=9999 => {}
        10_000.. => out.push(b'+'),
        ..0 => out.push(b'-'),
    }
    let year = year.unsigned_abs();
    let missing = [1000, 100, 10].iter().filter(|bound| year < **bound).count();
    out.resize(out.len() + missing, b'0');
    write_integer(year, out);
    out.push(b'-');
    write_two(month, out);
    out.push(b'-');
    write_two(day, out);
}

/// Appends the date, `separator` and the time of what clocks show, given as if in UTC.
pub(crate) fn write_date_time(shown: Moment, separator: u8, fraction: Fraction, out: &mut Vec<u8>) {
    write_date(shown.seconds.div_euclid(SECONDS_PER_DAY), out);
    out.push(separator);
    let seconds = shown.seconds.rem_euclid(SECONDS_PER_DAY);
    write_time(Moment { seconds, nanos: shown.nanos }, fraction, out);
}

/// Appends the time of a day.
pub(crate) fn write_time(of_day: Moment, fraction: Fraction, out: &mut Vec<u8>) {
    let seconds = of_day.seconds;
    write_two(seconds / 3600, out);
    out.push(b':');
    write_two(seconds / 60 % 60, out);
    out.push(b':');
    write_two(seconds % 60, out);
    write_fraction(of_day.nanos, fraction, out);
}

/// Appends the offset of a zone as `+hh:mm`, or `Z` for none; false if it has seconds.
pub(crate) fn write_offset(seconds: i32, out: &mut Vec<u8>) -> bool {
    if seconds % 60 != 0 {
        return false;
    }
    if seconds == 0 {
        out.push(b'Z');
        return true;
    }
    out.push(if seconds < 0 { b'-' } else { b'+' });
    let minutes = i64::from(seconds.unsigned_abs() / 60);
    write_two(minutes / 60, out);
    out.push(b':');
    write_two(minutes % 60, out);
    true
}

/// Appends an interval of days and times, as a literal of SQL.
pub(crate) fn write_day_time_interval(length: Moment, out: &mut Vec<u8>) {
    // Seconds and their fraction have one sign in the text.
    let is_negative = length.seconds < 0;
    let (seconds, nanos) = match (is_negative, length.nanos) {
        (true, 1..) => (length.seconds.unsigned_abs() - 1, 1_000_000_000 - length.nanos),
        (_, nanos) => (length.seconds.unsigned_abs(), nanos),
    };
    out.extend_from_slice(b"INTERVAL '");
    if is_negative {
        out.push(b'-');
    }
    let per_day = SECONDS_PER_DAY.unsigned_abs();
    write_integer(seconds / per_day, out);
    out.push(b' ');
    let seconds = i64::try_from(seconds % per_day).unwrap_or_default();
    write_time(Moment { seconds, nanos }, Fraction::Shortest, out);
    out.extend_from_slice(b"' DAY TO SECOND");
}

/// Appends an interval of years and months, as a literal of SQL.
pub(crate) fn write_year_month_interval(months: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"INTERVAL '");
    if months < 0 {
        out.push(b'-');
    }
    let months = months.unsigned_abs();
    write_integer(months / 12, out);
    out.push(b'-');
    write_integer(months % 12, out);
    out.extend_from_slice(b"' YEAR TO MONTH");
}

fn write_fraction(nanos: u32, fraction: Fraction, out: &mut Vec<u8>) {
    let least = match fraction {
        Fraction::Shortest if nanos == 0 => return,
        Fraction::Shortest => 1,
        Fraction::Millis => 3,
    };
    out.push(b'.');
    let start = out.len();
    let mut unit = 100_000_000;
    while unit > 0 {
        // A remainder of 10 is a digit.
        out.push(b'0' + u8::try_from(nanos / unit % 10).unwrap_or_default());
        unit /= 10;
    }
    while out.len() - start > least && out.last() == Some(&b'0') {
        out.pop();
    }
}

/// Appends a number from 0 to 99 with two digits.
fn write_two(value: i64, out: &mut Vec<u8>) {
    if value < 10 {
        out.push(b'0');
    }
    write_integer(value, out);
}

/// Returns year, month and day of the proleptic Gregorian calendar, of days since 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    // Years begin in March, so that the day that leap years have is their last.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn dates_have_four_digits_of_a_year_and_a_sign_beyond() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (19_782, "2024-02-29"),
            (-719_162, "0001-01-01"),
            (-719_528, "0000-01-01"),
            (-719_529, "-0001-12-31"),
            (2_932_896, "9999-12-31"),
            (2_932_897, "+10000-01-01"),
        ] {
            assert_eq!(text(|out| write_date(days, out)), expected);
        }
    }

    #[test]
    fn a_time_has_the_fraction_that_it_needs() {
        let at = |micros| Moment::new(micros, 1_000_000);
        for (micros, shortest, millis) in [
            (0, "1970-01-01 00:00:00", "1970-01-01 00:00:00.000"),
            (-1, "1969-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999"),
            (1_500_000, "1970-01-01 00:00:01.5", "1970-01-01 00:00:01.500"),
            (10, "1970-01-01 00:00:00.00001", "1970-01-01 00:00:00.00001"),
        ] {
            assert_eq!(
                text(|out| write_date_time(at(micros), b' ', Fraction::Shortest, out)),
                shortest
            );
            assert_eq!(
                text(|out| write_date_time(at(micros), b' ', Fraction::Millis, out)),
                millis
            );
        }
    }

    #[test]
    fn an_offset_with_seconds_is_none_that_others_read() {
        let text = |seconds| {
            let mut out = Vec::new();
            write_offset(seconds, &mut out).then(|| String::from_utf8(out).unwrap())
        };
        assert_eq!(text(0).unwrap(), "Z");
        assert_eq!(text(19_800).unwrap(), "+05:30");
        assert_eq!(text(-14_400).unwrap(), "-04:00");
        assert_eq!(text(-17_762), None);
    }

    #[test]
    fn intervals_have_one_sign() {
        let interval =
            |micros| text(|out| write_day_time_interval(Moment::new(micros, 1_000_000), out));
        assert_eq!(interval(0), "INTERVAL '0 00:00:00' DAY TO SECOND");
        assert_eq!(interval(93_784_000_005), "INTERVAL '1 02:03:04.000005' DAY TO SECOND");
        assert_eq!(interval(-93_784_000_005), "INTERVAL '-1 02:03:04.000005' DAY TO SECOND");
        assert_eq!(interval(i64::MIN), "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND");
        assert_eq!(text(|out| write_year_month_interval(14, out)), "INTERVAL '1-2' YEAR TO MONTH");
        assert_eq!(
            text(|out| write_year_month_interval(-14, out)),
            "INTERVAL '-1-2' YEAR TO MONTH"
        );
    }
}
