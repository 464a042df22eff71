// SPDX-License-Identifier: Apache-2.0
//! Intervals from days to seconds out of texts, by the rules of Spark's casts.

use super::date_time::Cursor;
use super::number::trim;

const MOST_DAYS: i64 = 106_751_991;

/// Reads `1 02:03:04.000005` or `INTERVAL '1 02:03:04.000005' DAY TO SECOND` as microseconds.
pub(crate) fn day_to_second(text: &str) -> Option<i64> {
    let text = trim(text);
    let (is_negative, inside) = literal(text).unwrap_or((false, text));
    let micros = day_time(inside)?;
    i64::try_from(if is_negative { -micros } else { micros }).ok()
}

/// Returns what is between the quotes of a literal, and whether there is a minus before them.
fn literal(text: &str) -> Option<(bool, &str)> {
    let is_space = |it: char| it.is_ascii_whitespace();
    let (word, rest) = text.split_at_checked("interval".len())?;
    let value = rest.trim_start();
    let (inside, unit) =
        value.strip_prefix(['-', '+']).unwrap_or(value).strip_prefix('\'')?.split_once('\'')?;
    let is_literal = word.eq_ignore_ascii_case("interval")
        && rest.starts_with(is_space)
        && unit.starts_with(is_space)
        && unit.split_ascii_whitespace().map(str::to_ascii_lowercase).eq(["day", "to", "second"]);
    is_literal.then_some((value.starts_with('-'), inside))
}

/// Reads `[+-]d h:m:s[.fraction]`.
fn day_time(text: &str) -> Option<i128> {
    let mut cursor = Cursor(text.as_bytes());
    let is_negative = cursor.sign();
    while let [b'0', b'0'..=b'9', ..] = cursor.0 {
        cursor.take(b'0');
    }
    let days = cursor.number(1, 9).filter(|it| *it <= MOST_DAYS)?;
    let mut behind = |separator, most| {
        let number = cursor.take(separator).then(|| cursor.number(1, 2)).flatten();
        number.filter(|it| *it <= most)
    };
    let seconds =
        ((days * 24 + behind(b' ', 23)?) * 60 + behind(b':', 59)?) * 60 + behind(b':', 59)?;
    let mut micros = 0;
    if cursor.take(b'.') {
        if !(1..=9).contains(&cursor.0.len()) {
            return None;
        }
        micros = cursor.fraction();
    }
    let micros = i128::from(seconds) * 1_000_000 + i128::from(micros);
    cursor.0.is_empty().then_some(if is_negative { -micros } else { micros })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_written_in_two_forms() {
        let micros = 93_784_000_005;
        for (text, value) in [
            ("1 02:03:04.000005", micros),
            (" +1 2:3:4.000005 ", micros),
            ("-1 02:03:04.000005", -micros),
            ("INTERVAL '1 02:03:04.000005' DAY TO SECOND", micros),
            ("interval -'1 02:03:04.000005'  day  to second", -micros),
            ("INTERVAL -'-1 02:03:04.0000059' DAY TO SECOND", micros),
            ("106751991 04:00:54.775807", i64::MAX),
            ("-106751991 04:00:54.775808", i64::MIN),
        ] {
            assert_eq!(day_to_second(text), Some(value), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_such_interval_is_refused() {
        for text in [
            "",
            "1",
            "1 02:03",
            "1 24:00:00",
            "1 23:59:60",
            "1 02:03:04.",
            "1 02:03:04.1234567890",
            "1  02:03:04",
            "106751991 04:00:54.775808",
            "106751992 00:00:00",
            "INTERVAL '1' DAY",
            "INTERVAL '1 02:03:04' DAY TO MINUTE",
            "INTERVAL '1 02:03:04'",
            "P1D",
            "1 -2:03:04",
            "1 002:03:04",
            "é 1:2:3",
        ] {
            assert_eq!(day_to_second(text), None, "{text:?}");
        }
    }
}
