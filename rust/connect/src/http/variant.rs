// SPDX-License-Identifier: Apache-2.0
//! Variants as JSON: values of any type in the binary form that Spark and Parquet share.
//!
//! ```text
//!   value     header, what its two low bits say: a plain value, a short text,
//!             an object (names by their numbers, offsets, values), an array
//!   metadata  header, the number of names, their offsets, the names
//! ```

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::json_text::{write_items, write_text};
use crate::template::numbers::{write_decimal, write_double, write_float, write_integer};
use crate::template::times::{Fraction, Moment, write_date, write_date_time};

/// Deepest nesting that is read; Spark's parser stops at the same depth.
const MOST_LEVELS: usize = 1000;

const MICROS_PER_SECOND: i64 = 1_000_000;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Appends a variant as JSON; `None` if its bytes are not a variant, or one of a later version.
pub(super) fn write_variant(metadata: &[u8], value: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let names = Names::read(metadata)?;
    write_value(&names, value, MOST_LEVELS, out)
}

/// The names of all members of all objects.
struct Names<'a> {
    offsets: Numbers<'a>,
    text: &'a [u8],
}

impl<'a> Names<'a> {
    fn read(metadata: &'a [u8]) -> Option<Self> {
        let (header, rest) = metadata.split_first()?;
        if header & 0b1111 != 1 {
            return None;
        }
        let size = usize::from(header >> 6) + 1;
        let (count, rest) = split_number(rest, size)?;
        let (offsets, text) = Numbers::split(rest, size, count.checked_add(1)?)?;
        Some(Self { offsets, text })
    }

    fn get(&self, index: usize) -> Option<&'a str> {
        let range = self.offsets.get(index)?..self.offsets.get(index.checked_add(1)?)?;
        std::str::from_utf8(self.text.get(range)?).ok()
    }
}

/// Numbers of one to four bytes each.
struct Numbers<'a> {
    bytes: &'a [u8],
    size: usize,
}

impl<'a> Numbers<'a> {
    fn split(bytes: &'a [u8], size: usize, count: usize) -> Option<(Self, &'a [u8])> {
        let (bytes, rest) = bytes.split_at_checked(size.checked_mul(count)?)?;
        Some((Self { bytes, size }, rest))
    }

    fn get(&self, index: usize) -> Option<usize> {
        let rest = self.bytes.get(index.checked_mul(self.size)?..)?;
        split_number(rest, self.size).map(|(number, _)| number)
    }
}

/// Splits a number of `size` bytes off.
fn split_number(bytes: &[u8], size: usize) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_at_checked(size)?;
    let number = number.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
    Some((number as usize, rest))
}

fn write_value(names: &Names<'_>, value: &[u8], levels: usize, out: &mut Vec<u8>) -> Option<()> {
    let levels = levels.checked_sub(1)?;
    let (header, rest) = value.split_first()?;
    let info = header >> 2;
    match header & 0b11 {
        0 => write_plain(info, rest, out),
        1 => write_utf8(rest.get(..usize::from(info))?, out),
        2 => {
            let size_of = |shift: u8| usize::from(info >> shift & 0b11) + 1;
            let (count, rest) = split_number(rest, if info & 0b1_0000 == 0 { 1 } else { 4 })?;
            let (ids, rest) = Numbers::split(rest, size_of(2), count)?;
            let (offsets, values) = Numbers::split(rest, size_of(0), count.checked_add(1)?)?;
            write_items([b'{', b'}'], 0..count, out, |index, out| {
                write_text(names.get(ids.get(index)?)?, out);
                out.push(b':');
                write_value(names, values.get(offsets.get(index)?..)?, levels, out)
            })
        }
        _ => {
            let size = usize::from(info & 0b11) + 1;
            let (count, rest) = split_number(rest, if info & 0b100 == 0 { 1 } else { 4 })?;
            let (offsets, values) = Numbers::split(rest, size, count.checked_add(1)?)?;
            write_items([b'[', b']'], 0..count, out, |index, out| {
                write_value(names, values.get(offsets.get(index)?..)?, levels, out)
            })
        }
    }
}

fn write_plain(kind: u8, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match kind {
        0 => out.extend_from_slice(b"null"),
        1 => out.extend_from_slice(b"true"),
        2 => out.extend_from_slice(b"false"),
        3 => write_integer(i8::from_le_bytes(first(bytes)?), out),
        4 => write_integer(i16::from_le_bytes(first(bytes)?), out),
        5 => write_integer(i32::from_le_bytes(first(bytes)?), out),
        6 => write_integer(i64::from_le_bytes(first(bytes)?), out),
        7 => {
            let value = f64::from_le_bytes(first(bytes)?);
            write_number(value.is_finite(), out, |out| write_double(value, out));
        }
        8..=10 => {
            let (scale, digits) = bytes.split_first()?;
            let unscaled = match kind {
                8 => i32::from_le_bytes(first(digits)?).into(),
                9 => i64::from_le_bytes(first(digits)?).into(),
                _ => i128::from_le_bytes(first(digits)?),
            };
            write_shortest_decimal(unscaled, i8::try_from(*scale).ok()?, out);
        }
        11 => {
            let days = i32::from_le_bytes(first(bytes)?);
            out.push(b'"');
            write_date(days.into(), out);
            out.push(b'"');
        }
        // In UTC: the zone of the session is not in the type of a variant.
        12 => write_moment(bytes, MICROS_PER_SECOND, "+00:00", out)?,
        13 => write_moment(bytes, MICROS_PER_SECOND, "", out)?,
        14 => {
            let value = f32::from_le_bytes(first(bytes)?);
            write_number(value.is_finite(), out, |out| write_float(value, out));
        }
        15 => {
            let text = BASE64_STANDARD.encode(sized(bytes)?);
            write_text(&text, out);
        }
        16 => write_utf8(sized(bytes)?, out)?,
        18 => write_moment(bytes, NANOS_PER_SECOND, "+00:00", out)?,
        19 => write_moment(bytes, NANOS_PER_SECOND, "", out)?,
        20 => {
            let digits = format!("{:032x}", u128::from_be_bytes(first(bytes)?));
            let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20]];
            write_text(&format!("{}-{}", parts.join("-"), &digits[20..]), out);
        }
        _ => return None,
    }
    Some(())
}

fn first<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}

/// Returns the bytes whose number stands before them.
fn sized(bytes: &[u8]) -> Option<&[u8]> {
    let (size, rest) = split_number(bytes, 4)?;
    rest.get(..size)
}

fn write_utf8(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    write_text(std::str::from_utf8(bytes).ok()?, out);
    Some(())
}

/// Appends a number, or as a text what JSON has no number for.
fn write_number(is_finite: bool, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    if is_finite {
        write(out);
    } else {
        out.push(b'"');
        write(out);
        out.push(b'"');
    }
}

/// Appends a decimal without the zeros at its end, as Spark does.
fn write_shortest_decimal(mut unscaled: i128, mut scale: i8, out: &mut Vec<u8>) {
    while scale > 0 && unscaled % 10 == 0 {
        (unscaled, scale) = (unscaled / 10, scale - 1);
    }
    write_decimal(itoa::Buffer::new().format(unscaled), scale, out);
}

fn write_moment(bytes: &[u8], per_second: i64, offset: &str, out: &mut Vec<u8>) -> Option<()> {
    let moment = Moment::new(i64::from_le_bytes(first(bytes)?), per_second);
    out.push(b'"');
    write_date_time(moment, b' ', Fraction::Shortest, out);
    out.extend_from_slice(offset.as_bytes());
    out.push(b'"');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_NAMES: [u8; 3] = [1, 0, 0];

    fn json(metadata: &[u8], value: &[u8]) -> Option<String> {
        let mut out = Vec::new();
        write_variant(metadata, value, &mut out)?;
        Some(String::from_utf8(out).unwrap())
    }

    /// A plain value of a kind.
    fn plain(kind: u8, bytes: &[u8]) -> String {
        json(&NO_NAMES, &[&[kind << 2], bytes].concat()).unwrap()
    }

    #[test]
    fn plain_values_are_written_as_spark_does() {
        assert_eq!(plain(0, b""), "null");
        assert_eq!(plain(1, b""), "true");
        assert_eq!(plain(3, &[0xff]), "-1");
        assert_eq!(plain(6, &i64::MIN.to_le_bytes()), "-9223372036854775808");
        assert_eq!(plain(7, &1e7_f64.to_le_bytes()), "1.0E7");
        assert_eq!(plain(7, &f64::NAN.to_le_bytes()), "\"NaN\"");
        assert_eq!(plain(8, &[2, 0xfa, 0, 0, 0]), "2.5");
        assert_eq!(plain(8, &[2, 0, 0, 0, 0]), "0");
        assert_eq!(plain(11, &19_782_i32.to_le_bytes()), "\"2024-02-29\"");
        assert_eq!(plain(12, &1_500_000_i64.to_le_bytes()), "\"1970-01-01 00:00:01.5+00:00\"");
        assert_eq!(plain(13, &0_i64.to_le_bytes()), "\"1970-01-01 00:00:00\"");
        assert_eq!(plain(14, &0.1_f32.to_le_bytes()), "0.1");
        assert_eq!(plain(15, &[1, 0, 0, 0, 0xff]), "\"/w==\"");
        assert_eq!(plain(16, &[2, 0, 0, 0, b'a', b'"']), "\"a\\\"\"");
        let uuid = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes();
        assert_eq!(plain(20, &uuid), "\"00112233-4455-6677-8899-aabbccddeeff\"");
        assert_eq!(json(&NO_NAMES, &[2 << 2 | 1, b'a', b'b']).unwrap(), "\"ab\"");
    }

    #[test]
    fn objects_and_arrays_are_written_through() {
        // {"a": [1, null], "b": "x"}
        let metadata = [1, 2, 0, 1, 2, b'a', b'b'];
        let array = [3, 2, 0, 2, 3, 3 << 2, 1, 0];
        let text = [1 << 2 | 1, b'x'];
        let object = [&[2, 2, 0, 1, 0, 8, 10][..], &array, &text].concat();
        assert_eq!(json(&metadata, &object).unwrap(), r#"{"a":[1,null],"b":"x"}"#);
    }

    #[test]
    fn bytes_that_are_no_variant_are_told() {
        for value in
            [&b""[..], &[3 << 2], &[2, 1, 5, 0, 1, 0], &[3, 9, 0], &[63 << 2], &[1 << 2 | 1]]
        {
            assert_eq!(json(&NO_NAMES, value), None, "{value:?}");
        }
        assert_eq!(json(&[2, 0, 0], &[0]), None);
        assert_eq!(json(b"", &[0]), None);
    }

    #[test]
    fn a_nesting_without_an_end_is_refused() {
        // Arrays of one element each.
        let mut value = vec![0];
        for _ in 0..MOST_LEVELS {
            let size = u8::try_from(value.len()).ok();
            let head = match size {
                Some(size) => vec![3, 1, 0, size],
                None => [
                    &[3 | 3 << 2, 1, 0, 0, 0, 0][..],
                    &u32::try_from(value.len()).unwrap().to_le_bytes(),
                ]
                .concat(),
            };
            value = [head, value].concat();
        }
        assert_eq!(json(&NO_NAMES, &value), None);
    }
}
