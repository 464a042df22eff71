// SPDX-License-Identifier: Apache-2.0
//! `Retry-After` against readers of the forms of RFC 9110 that share nothing with it.

use std::time::{Duration, SystemTime};

use jiff::civil::DateTime;

use crate::limit_headers::{self, LimitHeaders};

/// Seconds are waited, dates are waited for, whatever form they have, and nothing else is a delay.
pub fn retry_after(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    for now in [0, 784_111_777, 1_795_000_000] {
        let told =
            limit_headers::retry_after(text, SystemTime::UNIX_EPOCH + Duration::from_secs(now));
        assert_eq!(told, reference(text.trim(), now), "{text:?}");
        // All headers have the same text, whatever they are for.
        let limits = LimitHeaders::read(
            |_| Some(text.into()),
            SystemTime::UNIX_EPOCH + Duration::from_secs(now),
        );
        assert!(limits.left.iter().all(|it| !it.renewed_in.is_zero()), "{text:?}");
        assert!(told.is_none() || limits.retry_after.is_some(), "{text:?}");
    }
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

fn reference(text: &str, now: u64) -> Option<Duration> {
    if text.starts_with(|it: char| it.is_ascii_digit())
        && text.bytes().all(|it| it.is_ascii_digit() || it == b'.')
        && text.matches('.').count() <= 1
    {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digit =
            |place: usize| fraction.as_bytes().get(place).map_or(0, |it| u32::from(it - b'0'));
        let nanos = (0..9).fold(0, |sum, place| sum * 10 + digit(place));
        return Some(Duration::new(whole.parse().unwrap_or(u64::MAX), nanos));
    }
    let date = u64::try_from(date(text)?).ok()?;
    Some(Duration::from_secs(date.saturating_sub(now)))
}

/// Reads a date in any of the three forms, as seconds since 1970.
fn date(text: &str) -> Option<i64> {
    let words: Vec<&str> = text.split(' ').collect();
    let (day_name, day, month, year, time) = match words.as_slice() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        [name, day, month, year, time, "GMT"] => {
            let name = name.strip_suffix(',').filter(|it| it.len() == 3)?;
            (name, digits(day, 2)?, *month, digits(year, 4)?, *time)
        }
        // Sunday, 06-Nov-94 08:49:37 GMT
        [name, date, time, "GMT"] => {
            let name = name.strip_suffix(',').filter(|it| DAYS.contains(it))?;
            let [day, month, year] = *date.split('-').collect::<Vec<_>>() else { return None };
            let year = digits(year, 2)?;
            let year = if year < 70 { 2000 + year } else { 1900 + year };
            (name, digits(day, 2)?, month, year, *time)
        }
        // Sun Nov  6 08:49:37 1994
        [name, month, "", day, time, year] if name.len() == 3 => {
            (*name, digits(day, 1)?, *month, digits(year, 4)?, *time)
        }
        [name, month, day, time, year] if name.len() == 3 => {
            (*name, digits(day, 2)?, *month, digits(year, 4)?, *time)
        }
        _ => return None,
    };
    let month = MONTHS.iter().position(|it| *it == month)? + 1;
    let [hour, minute, second] = *time.split(':').collect::<Vec<_>>() else { return None };
    let [hour, minute, second] = [hour, minute, second].map(|it| digits(it, 2));
    let date = DateTime::new(
        i16::try_from(year).ok()?,
        i8::try_from(month).ok()?,
        i8::try_from(day).ok()?,
        i8::try_from(hour?).ok()?,
        i8::try_from(minute?).ok()?,
        i8::try_from(second?).ok()?,
        0,
    );
    let date = date.ok().filter(|it| it.year() >= 1970)?;
    let index = usize::try_from(date.weekday().to_monday_zero_offset()).ok()?;
    if !DAYS[index].starts_with(day_name) {
        return None;
    }
    date.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|it| it.timestamp().as_second())
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let is_number = text.len() == count && text.bytes().all(|it| it.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{DAYS, MONTHS};

    fn times() -> impl Strategy<Value = String> {
        (0..25_u8, 0..61_u8, 0..61_u8).prop_map(|(h, m, s)| format!("{h:02}:{m:02}:{s:02}"))
    }

    /// A day with the name that it has, mostly, and its month.
    fn days() -> impl Strategy<Value = (String, i8, &'static str, i16)> {
        let day = (1960..2200_i16, 1..=12_i8, 1..=31_i8, any::<prop::sample::Index>());
        day.prop_map(|(year, month, day, other)| {
            let named = jiff::civil::Date::new(year, month, day)
                .ok()
                .filter(|_| other.index(8) > 0)
                .map_or(other.index(7), |it| {
                    it.weekday().to_monday_zero_offset().unsigned_abs().into()
                });
            (DAYS[named].to_owned(), day, MONTHS[usize::from(month.unsigned_abs()) - 1], year)
        })
    }

    proptest! {
        #[test]
        fn seconds_are_digits(text in "[ +-]{0,2}[0-9]{0,22}[.s ]?") {
            super::retry_after(text.as_bytes());
        }

        #[test]
        fn dates_have_three_forms((name, day, month, year) in days(), time in times()) {
            let (short, century) = (&name[..3], year % 100);
            for text in [
                format!("{short}, {day:02} {month} {year} {time} GMT"),
                format!("{name}, {day:02}-{month}-{century:02} {time} GMT"),
                format!("{short} {month} {day:2} {time} {year}"),
                format!("{short}, {day} {month} {year} {time} UTC"),
            ] {
                super::retry_after(text.as_bytes());
            }
        }
    }
}
