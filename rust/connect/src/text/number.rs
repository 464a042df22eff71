// SPDX-License-Identifier: Apache-2.0
//! Booleans and numbers out of texts, by the rules of Spark's casts.

use std::ops::Range;

/// Trims what Spark's casts trim: white space and control characters of ASCII.
#[inline]
pub(crate) fn trim(text: &str) -> &str {
    &text[inner(text.as_bytes(), is_blank)]
}

/// Trims what Java's `String.trim` does, which some of the casts use.
#[inline]
fn trim_java(text: &str) -> &str {
    &text[inner(text.as_bytes(), |it| it <= b' ')]
}

#[inline]
const fn is_blank(byte: u8) -> bool {
    byte <= b' ' || byte == b'\x7f'
}

/// Returns where the text is without bytes around it; they are of ASCII, which no other character has
/// any of.
#[inline]
fn inner(text: &[u8], is_trimmed: impl Fn(u8) -> bool) -> Range<usize> {
    let start = text.iter().position(|it| !is_trimmed(*it)).unwrap_or(text.len());
    let end = text.iter().rposition(|it| !is_trimmed(*it)).map_or(start, |last| last + 1);
    start..end
}

/// Reads a boolean in one of Spark's spellings.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    let text = trim(text);
    let is_one_of = |spellings: &[&str]| spellings.iter().any(|it| text.eq_ignore_ascii_case(it));
    if is_one_of(&["true", "t", "yes", "y", "1"]) {
        Some(true)
    } else {
        is_one_of(&["false", "f", "no", "n", "0"]).then_some(false)
    }
}

/// Reads a whole number: digits, which may have a sign.
#[inline]
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    lexical_core::parse(&text[inner(text, is_blank)]).ok()
}

/// Reads a number as Java does, and names such as `NaN` as Spark does.
pub(crate) fn float<T: std::str::FromStr + From<f32>>(text: &str) -> Option<T> {
    let text = trim_java(text);
    let digits = match text.as_bytes() {
        // Java's own literals may say their width.
        [.., b'0'..=b'9' | b'.', b'd' | b'D' | b'f' | b'F'] => &text[..text.len() - 1],
        _ => text,
    };
    // What Rust reads beyond digits are names.
    if digits.bytes().all(|it| matches!(it, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
        return digits.parse().ok();
    }
    let is = |name: &str| text.eq_ignore_ascii_case(name);
    if is("nan") || text == "+NaN" || text == "-NaN" {
        return Some(f32::NAN.into());
    }
    if is("inf") || is("+inf") || is("infinity") || is("+infinity") {
        return Some(f32::INFINITY.into());
    }
    (is("-inf") || is("-infinity")).then_some(f32::NEG_INFINITY.into())
}

/// Reads a decimal as its digits without the point, rounded half up to `scale`.
///
/// `None` if it has more digits than `precision`, or is not a number.
pub(crate) fn decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    plain_decimal(trim_java(text), precision, scale)
}

/// Reads a decimal that has nothing around it.
pub(crate) fn plain_decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let bytes = text.as_bytes();
    let (is_negative, bytes) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, bytes),
    };
    let end = bytes.iter().position(|it| matches!(it, b'e' | b'E')).unwrap_or(bytes.len());
    let exponent: i32 = match bytes.get(end + 1..) {
        Some(exponent) => std::str::from_utf8(exponent).ok()?.parse().ok()?,
        None => 0,
    };
    let point = bytes[..end].iter().position(|it| *it == b'.');
    let (whole, fraction) = match point {
        Some(point) => (&bytes[..point], &bytes[point + 1..end]),
        None => (&bytes[..end], &bytes[..0]),
    };
    let digits = || whole.iter().chain(fraction);
    if digits().next().is_none() || !digits().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = digits().take_while(|digit| **digit == b'0').count();
    let count = whole.len() + fraction.len() - zeros;
    if count == 0 {
        return Some(0);
    }
    // Digits that are kept; those behind them are rounded away.
    let kept = i64::try_from(count).ok()? + i64::from(scale) + i64::from(exponent)
        - i64::try_from(fraction.len()).ok()?;
    if kept < 0 {
        return Some(0);
    }
    let kept = usize::try_from(kept).ok().filter(|kept| *kept <= usize::from(precision))?;
    let mut value: i128 = 0;
    let mut digits = digits().skip(zeros);
    for _ in 0..kept {
        value = value * 10 + digits.next().map_or(0, |digit| i128::from(digit - b'0'));
    }
    value += i128::from(digits.next().is_some_and(|digit| *digit >= b'5'));
    if value >= 10_i128.pow(u32::from(precision)) {
        return None;
    }
    Some(if is_negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn booleans_have_the_spellings_of_spark() {
        for text in ["t", "TRUE", " y ", "yes", "1", "\0true\x7f"] {
            assert_eq!(boolean(text), Some(true), "{text:?}");
        }
        for text in ["f", "False", "n", "no", "0"] {
            assert_eq!(boolean(text), Some(false), "{text:?}");
        }
        for text in ["", "on", "2", "tru e"] {
            assert_eq!(boolean(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn whole_numbers_are_those_of_rust(
            text in prop_oneof!["[-+]?[0-9]{0,21}", "[ \t\\x00\\x7f]?[-+0-9_.eE ]{0,8}\n?", ".{0,4}"],
        ) {
            prop_assert_eq!(integer(text.as_bytes()), trim(&text).parse().ok());
        }
    }

    #[test]
    fn whole_numbers_have_digits_only() {
        assert_eq!(integer(b" +1\n"), Some(1));
        assert_eq!(integer(b"-9223372036854775808"), Some(i64::MIN));
        for text in ["", "+", "1.0", "1.", "1e2", "0x1", "1_0", "- 1", "9223372036854775808"] {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn floats_are_read_as_java_does() {
        let read = |text: &str| float::<f64>(text);
        for (text, value) in [("1.", 1.0), (".5", 0.5), ("1E5", 1e5), ("1.5f", 1.5), (" 1d ", 1.0)]
        {
            assert_eq!(read(text), Some(value), "{text:?}");
        }
        assert_eq!(read("+INF"), Some(f64::INFINITY));
        assert_eq!(read("1e400"), Some(f64::INFINITY));
        assert!(read("-NaN").unwrap().is_nan());
        assert_eq!(float::<f32>("1.00000017881393432617187499"), Some(1.000_000_1));
        for text in ["", ".", "1e", "--1", "1_0", "1 2", "infd", "nand", "d", "e5", "1\u{a0}"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn decimals_are_rounded_half_up_and_never_cut() {
        let read = |text: &str| decimal(text, 10, 2);
        for (text, value) in [
            ("1", 100),
            ("1.005", 101),
            ("-1.005", -101),
            ("1.004", 100),
            ("99999999.994", 9_999_999_999),
            (" +.5 ", 50),
            ("1.", 100),
            ("1e2", 10_000),
            ("1e-2", 1),
            ("0.5e-2", 1),
            ("1e-9", 0),
            ("0e99", 0),
            ("0000000000000001.10", 110),
            ("1e-2147483647", 0),
        ] {
            assert_eq!(read(text), Some(value), "{text:?}");
        }
        for text in
            ["", ".", "+", "1e", "1,5", "abc", "99999999.995", "1e8", "1e99999999999", "--1", "1d"]
        {
            assert_eq!(read(text), None, "{text:?}");
        }
        let largest = "99999999999999999999.999999999999999999";
        assert_eq!(decimal(largest, 38, 18), Some(10_i128.pow(38) - 1));
        assert_eq!(decimal("99999999999999999999.9999999999999999995", 38, 18), None);
    }
}
