// SPDX-License-Identifier: Apache-2.0
//! Dates, times and timestamps out of texts, by the rules of Spark's casts.
//!
//! ```text
//!   [+-]yyyy[-m[-d[ h[:m[:s[.fraction][zone]]]]]]      `T` may stand for the space
//!   h:m[:s[.fraction]]                                 a time of day only
//! ```

use super::number::trim;
use crate::zone::Zone;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Reads a date as days since 1970; a time behind it is left out.
pub(crate) fn date(text: &str) -> Option<i32> {
    let mut cursor = Cursor(trim(text).as_bytes());
    let is_negative = cursor.sign();
    let year = cursor.number(4, 7)?;
    let (mut month, mut day) = (1, 1);
    if cursor.take(b'-') {
        month = cursor.number(1, 2)?;
        if cursor.take(b'-') {
            day = cursor.number(1, 2)?;
            if matches!(cursor.0, [b' ' | b'T', ..]) {
                cursor.0 = &[];
            }
        }
    }
    if !cursor.0.is_empty() {
        return None;
    }
    i32::try_from(days(signed(year, is_negative), month, day)?).ok()
}

/// Reads a timestamp as microseconds since 1970; without a zone in the text, it is in `zone`.
///
/// A time of day is refused: which day it belongs to would depend on when it is read.
pub(crate) fn timestamp(text: &str, zone: &Zone) -> Option<i64> {
    let stamp = Stamp::parse(text)?;
    let local = stamp.local()?;
    match stamp.zone {
        None => zone.to_instant(local),
        Some(name) => Zone::parse(name).ok()?.to_instant(local),
    }
}

/// Reads what clocks and calendars show, as microseconds since 1970.
///
/// As Spark's cast does, a zone in the text is left out, where that `has_zone` allows it.
pub(crate) fn timestamp_ntz(text: &str, may_have_zone: bool) -> Option<i64> {
    let stamp = Stamp::parse(text)?;
    if let Some(name) = stamp.zone {
        Zone::parse(name).ok().filter(|_| may_have_zone)?;
    }
    stamp.local()
}

/// Reads a time of day as microseconds.
pub(crate) fn time(text: &str) -> Option<i64> {
    let stamp = Stamp::parse(text)?;
    if stamp.date.is_some() || stamp.zone.is_some() {
        return None;
    }
    Some(stamp.seconds * MICROS_PER_SECOND + stamp.micros)
}

/// The parts of a timestamp.
struct Stamp<'a> {
    /// Days since 1970; `None` in a time of day.
    date: Option<i64>,
    /// Seconds and microseconds of the day.
    seconds: i64,
    micros: i64,
    zone: Option<&'a str>,
}

impl<'a> Stamp<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let is_time = text.starts_with('T');
        let text = trim(text);
        let mut cursor = Cursor(text.as_bytes());
        if is_time {
            cursor.take(b'T');
            return Self::with_time(None, cursor);
        }
        let has_sign = matches!(cursor.0, [b'+' | b'-', ..]);
        let is_negative = cursor.sign();
        let start = cursor;
        if !has_sign && cursor.number(1, 2).is_some() && matches!(cursor.0, [b':', ..]) {
            return Self::with_time(None, start);
        }
        cursor = start;
        let year = signed(cursor.number(4, 6)?, is_negative);
        let (mut month, mut day) = (1, 1);
        if cursor.take(b'-') {
            month = cursor.number(1, 2)?;
            if cursor.take(b'-') {
                day = cursor.number(1, 2)?;
                if cursor.take(b' ') || cursor.take(b'T') {
                    return Self::with_time(Some(days(year, month, day)?), cursor);
                }
            }
        }
        let date = Some(days(year, month, day)?);
        cursor.0.is_empty().then_some(Self { date, seconds: 0, micros: 0, zone: None })
    }

    /// Reads a time, and the zone behind it.
    fn with_time(date: Option<i64>, mut cursor: Cursor<'a>) -> Option<Self> {
        let hour = cursor.number(1, 2)?;
        let (mut minute, mut second, mut micros) = (0, 0, 0);
        let mut has_seconds = false;
        if cursor.take(b':') {
            minute = cursor.number(1, 2)?;
            if cursor.take(b':') {
                second = cursor.number(1, 2)?;
                has_seconds = true;
                if cursor.take(b'.') {
                    micros = cursor.fraction();
                }
            }
        }
        let rest = std::str::from_utf8(cursor.0).ok()?;
        let zone = (!rest.is_empty()).then(|| rest.trim_matches(|it: char| it <= ' '));
        if hour > 23 || minute > 59 || second > 59 || (zone.is_some() && !has_seconds) {
            return None;
        }
        Some(Self { date, seconds: hour * 3600 + minute * 60 + second, micros, zone })
    }

    /// Returns microseconds since 1970 of a clock; `None` for a time of day, or out of range.
    fn local(&self) -> Option<i64> {
        let seconds = self.date?.checked_mul(SECONDS_PER_DAY)? + self.seconds;
        let micros = i128::from(seconds) * i128::from(MICROS_PER_SECOND) + i128::from(self.micros);
        i64::try_from(micros).ok()
    }
}

/// What is left of a text.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl Cursor<'_> {
    /// Takes a sign, if there is one; returns whether it is a minus.
    pub(super) fn sign(&mut self) -> bool {
        let is_negative = self.take(b'-');
        if !is_negative {
            self.take(b'+');
        }
        is_negative
    }

    pub(super) fn take(&mut self, byte: u8) -> bool {
        match self.0 {
            [first, rest @ ..] if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes all digits that follow, if there are so many.
    pub(super) fn number(&mut self, least: usize, most: usize) -> Option<i64> {
        let count = self.0.iter().take_while(|it| it.is_ascii_digit()).count();
        if count < least || count > most {
            return None;
        }
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        Some(digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
    }

    /// Takes the digits behind a point as microseconds; those behind the sixth are left out.
    pub(super) fn fraction(&mut self) -> i64 {
        let count = self.0.iter().take_while(|it| it.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        let digit = |index: usize| digits.get(index).map_or(0, |it| i64::from(it - b'0'));
        (0..6).fold(0, |value, index| value * 10 + digit(index))
    }
}

fn signed(value: i64, is_negative: bool) -> i64 {
    if is_negative { -value } else { value }
}

/// Returns the days since 1970 of a date; `None` if there is no such day.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    // Years begin in March here, so that a leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // Days before a month that begins in March: 31, 30, 31, 30, 31 five months after five months.
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    // The first of March of year 0 is 719 468 days before 1970.
    Some(year * 365 + leap_days + day_of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_york() -> Zone {
        Zone::parse("America/New_York").unwrap()
    }

    #[test]
    fn days_are_counted_as_the_calendar_does() {
        assert_eq!(days(1970, 1, 1), Some(0));
        assert_eq!(days(1969, 12, 31), Some(-1));
        assert_eq!(days(2000, 3, 1), Some(11_017));
        assert_eq!(days(1, 1, 1), Some(-719_162));
        assert_eq!(days(9999, 12, 31), Some(2_932_896));
        let all = (-5..3000).flat_map(|year| (1..=12).map(move |month| (year, month)));
        let all =
            all.flat_map(|(year, month)| (1..=31).filter_map(move |day| days(year, month, day)));
        assert!(all.collect::<Vec<_>>().windows(2).all(|pair| pair[1] == pair[0] + 1));
    }

    #[test]
    fn a_date_is_that_of_the_text_whatever_its_zone() {
        let day = days(2024, 1, 31).and_then(|it| i32::try_from(it).ok());
        for text in [
            "2024-01-31",
            " 2024-1-31\n",
            "2024-01-31T23:00:00-05:00",
            "2024-01-31 x",
            "+2024-01-31T",
        ] {
            assert_eq!(date(text), day, "{text:?}");
        }
        assert_eq!(date("2024"), days(2024, 1, 1).map(|it| i32::try_from(it).unwrap()));
        for text in
            ["", "2024-", "2024-02-30", "20240131", "100", "2024 x", "12:00:00", "2024-001-01"]
        {
            assert_eq!(date(text), None, "{text:?}");
        }
    }

    #[test]
    fn timestamps_are_in_the_zone_of_the_text_or_else_of_the_session() {
        let noon = timestamp("2024-07-01 12:00:00", &Zone::UTC).unwrap();
        for text in [
            "2024-07-01 08:00:00",
            "2024-07-01T8:0",
            "2024-07-01 8",
            "2024-07-01T12:00:00Z",
            "2024-07-01T12:00:00.000000999 UTC",
            "2024-07-01 14:00:00 Europe/Paris",
            "2024-07-01T17:30:00+5:30",
            "2024-07-01T05:00:00.-0700",
        ] {
            assert_eq!(timestamp(text, &new_york()), Some(noon), "{text:?}");
        }
        assert_eq!(timestamp("2024-07-01 08:00:00.1", &new_york()), Some(noon + 100_000));
    }

    #[test]
    fn what_is_no_timestamp_is_refused() {
        for text in [
            "",
            "12:34:56",
            "T12:34:56",
            "1706745600",
            "2024-01-31T",
            "2024-01-31T23:",
            "2024-01-31 23:00Z",
            "2024-01-31T24:00:00",
            "2024-01-31T23:60:00",
            "2024-01-31T23:00:60",
            "2024-01-31t23:00:00",
            "2024-01-31  23:00:00",
            "2024-01-31T23:00:00z",
            "2024-01-31T23:00:00 Mars/X",
            "2024-02-30 00:00:00",
            "999-01-01 00:00:00",
            "999999-01-01 00:00:00",
        ] {
            assert_eq!(timestamp(text, &Zone::UTC), None, "{text:?}");
        }
    }

    #[test]
    fn a_zone_is_left_out_of_a_timestamp_without_one() {
        let local = timestamp_ntz("2024-01-31 23:00:00", false);
        assert_eq!(timestamp_ntz("2024-01-31T23:00:00-05:00", true), local);
        assert_eq!(timestamp_ntz("2024-01-31T23:00:00-05:00", false), None);
        assert_eq!(timestamp_ntz("2024-01-31T23:00:00 Mars/X", true), None);
    }

    #[test]
    fn a_time_of_day_has_no_date() {
        assert_eq!(time("12:34:56.000001"), Some(45_296_000_001));
        assert_eq!(time("T12:34"), Some(45_240_000_000));
        assert_eq!(time("2024-01-31 12:34:56"), None);
        assert_eq!(time("12:34:56Z"), None);
    }
}
