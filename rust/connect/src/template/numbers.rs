// SPDX-License-Identifier: Apache-2.0
//! Numbers as texts, in the form that Spark's `cast(.. as string)` gives them.

use std::fmt::LowerExp;
use std::io::Write as _;

/// Bytes that the shortest form of any floating-point number has at most.
const MOST_BYTES: usize = 32;

/// Exponents of the numbers that are written without one.
const PLAIN: std::ops::Range<i32> = -3..7;

/// Appends a whole number.
#[inline]
pub(crate) fn write_integer(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a floating-point number as Java writes it since version 19: by the shortest digits that
/// are read as the same number.
pub(crate) fn write_double(value: f64, out: &mut Vec<u8>) {
    match value {
        _ if value.is_nan() => out.extend_from_slice(b"NaN"),
        f64::INFINITY => out.extend_from_slice(b"Infinity"),
        f64::NEG_INFINITY => out.extend_from_slice(b"-Infinity"),
        _ => write_finite(value, out),
    }
}

/// As [`write_double`]; a `float` needs fewer digits.
pub(crate) fn write_float(value: f32, out: &mut Vec<u8>) {
    if value.is_finite() { write_finite(value, out) } else { write_double(value.into(), out) }
}

fn write_finite(value: impl LowerExp + Copy, out: &mut Vec<u8>) {
    let mut buffer = [0; MOST_BYTES];
    // "-1.25e-7": a digit, the others behind a point, the exponent.
    let mut text = printed(&mut buffer, format_args!("{value:e}"));
    let mut other = [0; MOST_BYTES];
    if !text.contains('.') {
        // Java asks for two digits, and takes the nearest such number: 4.9E-324 and not 5E-324.
        text = printed(&mut other, format_args!("{value:.1e}"));
    }
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if let Some(positive) = mantissa.strip_prefix('-') {
        out.push(b'-');
        write_digits(positive, exponent, out);
    } else {
        write_digits(mantissa, exponent, out);
    }
}

/// Appends `d.ddd` times ten to the power of `exponent`.
fn write_digits(mantissa: &str, exponent: i32, out: &mut Vec<u8>) {
    let (first, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let rest = rest.trim_end_matches('0').as_bytes();
    if !PLAIN.contains(&exponent) {
        out.extend_from_slice(first.as_bytes());
        write_fraction(rest, out);
        out.push(b'E');
        write_integer(exponent, out);
        return;
    }
    let whole = usize::try_from(exponent).unwrap_or_default();
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + exponent.unsigned_abs() as usize - 1, b'0');
        out.extend_from_slice(first.as_bytes());
        out.extend_from_slice(rest);
    } else if rest.len() <= whole {
        out.extend_from_slice(first.as_bytes());
        out.extend_from_slice(rest);
        out.resize(out.len() + whole - rest.len(), b'0');
        write_fraction(b"", out);
    } else {
        out.extend_from_slice(first.as_bytes());
        out.extend_from_slice(&rest[..whole]);
        write_fraction(&rest[whole..], out);
    }
}

/// Appends a point and digits, at least one.
fn write_fraction(digits: &[u8], out: &mut Vec<u8>) {
    out.push(b'.');
    out.extend_from_slice(if digits.is_empty() { b"0" } else { digits });
}

/// Appends a decimal number, whose digits are `unscaled`, with all digits of its scale.
pub(crate) fn write_decimal(unscaled: &str, scale: i8, out: &mut Vec<u8>) {
    let digits = unscaled.strip_prefix('-').unwrap_or(unscaled);
    if digits.len() < unscaled.len() {
        out.push(b'-');
    }
    let fraction = usize::try_from(scale).unwrap_or_default();
    if fraction == 0 {
        out.extend_from_slice(digits.as_bytes());
        if digits != "0" {
            out.resize(out.len() + usize::from(scale.unsigned_abs()), b'0');
        }
    } else if digits.len() > fraction {
        let (whole, fraction) = digits.split_at(digits.len() - fraction);
        out.extend_from_slice(whole.as_bytes());
        out.push(b'.');
        out.extend_from_slice(fraction.as_bytes());
    } else {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + fraction - digits.len(), b'0');
        out.extend_from_slice(digits.as_bytes());
    }
}

/// Writes into `buffer`, which is large enough, and returns what was written.
fn printed<'a>(buffer: &'a mut [u8; MOST_BYTES], text: std::fmt::Arguments<'_>) -> &'a str {
    let mut rest = &mut buffer[..];
    let _ = rest.write_fmt(text);
    let length = MOST_BYTES - rest.len();
    std::str::from_utf8(&buffer[..length]).unwrap_or_default()
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
    fn doubles_are_written_as_java_does() {
        // What `Double.toString` of JDK 25 says.
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-12.5, "-12.5"),
            (100.0, "100.0"),
            (123_456.789, "123456.789"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (12_345_678.9, "1.23456789E7"),
            (0.1, "0.1"),
            (0.001, "0.001"),
            (0.001_25, "0.00125"),
            (0.000_999, "9.99E-4"),
            (2e23, "2.0E23"),
            (9_007_199_254_740_993.0, "9.007199254740992E15"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (4.9e-324, "4.9E-324"),
            (9.9e-324, "9.9E-324"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text(|out| write_double(value, out)), expected);
        }
    }

    #[test]
    fn floats_have_the_digits_that_a_float_needs() {
        for (value, expected) in [
            (0.1, "0.1"),
            (16_777_216.0, "1.6777216E7"),
            (f32::MAX, "3.4028235E38"),
            (1.4e-45, "1.4E-45"),
            (f32::NAN, "NaN"),
            (f32::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(text(|out| write_float(value, out)), expected);
        }
    }

    #[test]
    fn decimals_have_all_digits_of_their_scale_and_no_exponent() {
        for (unscaled, scale, expected) in [
            ("120", 2, "1.20"),
            ("-5", 2, "-0.05"),
            ("0", 3, "0.000"),
            ("-12", 0, "-12"),
            ("1", 18, "0.000000000000000001"),
            ("7", -2, "700"),
            ("0", -2, "0"),
        ] {
            assert_eq!(text(|out| write_decimal(unscaled, scale, out)), expected);
        }
    }
}
