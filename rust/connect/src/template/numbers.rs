// SPDX-License-Identifier: Apache-2.0
//! Numbers as texts, in the form that Spark's `cast(.. as string)` gives them.

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
        _ if is_tiny(value.abs(), 1e-320) => write_shortest(&format!("{value:.1e}"), out),
        _ => write_shortest(zmij::Buffer::new().format_finite(value), out),
    }
}

/// As [`write_double`]; a `float` needs fewer digits.
pub(crate) fn write_float(value: f32, out: &mut Vec<u8>) {
    if !value.is_finite() {
        write_double(value.into(), out);
    } else if is_tiny(value.abs().into(), 1e-42) {
        write_shortest(&format!("{value:.1e}"), out);
    } else {
        write_shortest(zmij::Buffer::new().format_finite(value), out);
    }
}

/// Whether one digit may be enough for a number: Java then takes the nearest with two, which is
/// another one where numbers are so far apart; 4.9E-324 and not 5E-324.
fn is_tiny(value: f64, bound: f64) -> bool {
    value < bound && value > 0.0
}

/// Appends a number whose shortest digits are in `text`, such as `12.5`, `1e16` or `1.25e-7`.
fn write_shortest(text: &str, out: &mut Vec<u8>) {
    let text = match text.strip_prefix('-') {
        Some(positive) => {
            out.push(b'-');
            positive
        }
        None => text,
    };
    let (mantissa, power) = text.split_once('e').unwrap_or((text, "0"));
    let power: i32 = power.parse().unwrap_or_default();
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut buffer = [0; MOST_BYTES];
    let length = whole.len() + fraction.len();
    buffer[..whole.len()].copy_from_slice(whole.as_bytes());
    buffer[whole.len()..length].copy_from_slice(fraction.as_bytes());
    let digits = &buffer[..length];
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    if zeros == length {
        out.extend_from_slice(b"0.0");
        return;
    }
    let end = digits.iter().rposition(|digit| *digit != b'0').map_or(length, |last| last + 1);
    // Neither count is above that of the bytes.
    let position = |count| i32::try_from(count).unwrap_or_default();
    write_digits(&digits[zeros..end], position(whole.len()) - 1 - position(zeros) + power, out);
}

/// Appends `d.ddd` times ten to the power of `exponent`.
fn write_digits(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    if !PLAIN.contains(&exponent) {
        out.push(digits[0]);
        write_fraction(&digits[1..], out);
        out.push(b'E');
        write_integer(exponent, out);
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + exponent.unsigned_abs() as usize - 1, b'0');
        out.extend_from_slice(digits);
    } else {
        let whole = exponent.unsigned_abs() as usize + 1;
        if digits.len() > whole {
            out.extend_from_slice(&digits[..whole]);
            write_fraction(&digits[whole..], out);
        } else {
            out.extend_from_slice(digits);
            out.resize(out.len() + whole - digits.len(), b'0');
            write_fraction(b"", out);
        }
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
            (1_234_567.0, "1234567.0"),
            (1e16, "1.0E16"),
            (1e-5, "1.0E-5"),
            (5e-320, "5.0E-320"),
            (-4.9e-324, "-4.9E-324"),
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
