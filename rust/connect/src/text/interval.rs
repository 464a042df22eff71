// SPDX-License-Identifier: Apache-2.0
//! Intervals from days to seconds out of texts, by the rules of Spark's casts.

use super::number::trim;

const MOST_DAYS: i128 = 106_751_991;

/// Reads `1 02:03:04.000005` or `INTERVAL '1 02:03:04.000005' DAY TO SECOND` as microseconds.
pub(crate) fn day_to_second(text: &str) -> Option<i64> {
    let text = trim(text);
    match literal(text) {
        Some((is_negative, inside)) => {
            let micros = day_time(inside)?;
            i64::try_from(if is_negative { -micros } else { micros }).ok()
        }
        None => i64::try_from(day_time(text)?).ok(),
    }
}

/// Returns what is between the quotes of a literal, and whether there is a minus before them.
fn literal(text: &str) -> Option<(bool, &str)> {
    let rest = strip_word(text, "interval")?;
    let (is_negative, spaced) = match rest.trim_start().as_bytes() {
        [b'-', ..] => (true, true),
        [b'+', ..] => (false, true),
        _ => (false, false),
    };
    let rest = rest.trim_start();
    let rest = if spaced { &rest[1..] } else { rest };
    let (inside, unit) = rest.strip_prefix('\'')?.split_once('\'')?;
    let mut words = unit.split_ascii_whitespace();
    let is_unit = unit.starts_with(|it: char| it.is_ascii_whitespace())
        && ["day", "to", "second"]
            .iter()
            .all(|word| words.next().is_some_and(|it| it.eq_ignore_ascii_case(word)))
        && words.next().is_none();
    is_unit.then_some((is_negative, inside))
}

/// Strips a word, in any case, and the white space that must follow it.
fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(word.len())?;
    let is_word = start.eq_ignore_ascii_case(word);
    (is_word && rest.starts_with(|it: char| it.is_ascii_whitespace())).then_some(rest)
}

/// Reads `[+-]d h:m:s[.fraction]`.
fn day_time(text: &str) -> Option<i128> {
    let (is_negative, text) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let (days, time) = text.split_once(' ')?;
    let mut parts = time.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let (seconds, fraction) = match seconds.split_once('.') {
        Some((seconds, fraction)) if (1..=9).contains(&fraction.len()) => (seconds, fraction),
        Some(_) => return None,
        None => (seconds, ""),
    };
    if parts.next().is_some() || !fraction.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    if [hours, minutes, seconds].iter().any(|part| part.len() > 2) {
        return None;
    }
    // What is behind the microseconds is left out, as Spark does.
    let micros = fraction.bytes().chain(std::iter::repeat(b'0')).take(6);
    let micros = micros.fold(0, |value, digit| value * 10 + i128::from(digit - b'0'));
    let seconds =
        ((number(days, MOST_DAYS)? * 24 + number(hours, 23)?) * 60 + number(minutes, 59)?) * 60
            + number(seconds, 59)?;
    let micros = seconds * 1_000_000 + micros;
    Some(if is_negative { -micros } else { micros })
}

fn number(text: &str, most: i128) -> Option<i128> {
    let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    text.parse().ok().filter(|value| is_number && *value <= most)
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
