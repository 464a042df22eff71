// SPDX-License-Identifier: Apache-2.0
//! Texts as values of columns, each for itself, and numbers against how they are written.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Field, Int32Type, TimeUnit};
use arrow::util::display::array_value_to_string;

use crate::text::{ParsedColumn, TextColumn};

/// Every text is a value or is refused, whatever stands beside it, and a value's text is the value.
///
/// The first byte chooses the type to read.
pub fn text(data: &[u8]) {
    let [kind, text @ ..] = data else { return };
    let zone = || Some(Arc::from("Europe/Berlin"));
    let list = || DataType::List(Arc::new(Field::new("element", DataType::Int8, true)));
    let types = [
        DataType::Int32,
        DataType::Decimal128(9, 3),
        DataType::Decimal128(38, 38),
        DataType::Float32,
        DataType::Float64,
        DataType::Boolean,
        DataType::Date32,
        DataType::Timestamp(TimeUnit::Microsecond, zone()),
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Duration(TimeUnit::Microsecond),
        DataType::Utf8,
        DataType::Binary,
        DataType::UInt64,
        list(),
    ];
    let data_type = &types[usize::from(*kind) % types.len()];
    let alone = read(data_type, &[text]);
    let together = read(data_type, &[b"\xFF", text, b"1"]);
    let is_refused = !alone.bad.is_empty();
    assert_eq!(together.bad.iter().any(|(row, _)| *row == 1), is_refused);
    assert_eq!(&together.array.slice(1, 1), &alone.array, "{text:?}");
    assert!(!is_refused || alone.array.is_null(0) && alone.bad[0].0 == 0);
    assert!(is_refused || list() == *data_type || alone.array.is_valid(0));
    if let Ok(text) = str::from_utf8(text) {
        check_number(text, &alone.array);
    } else {
        assert_eq!(is_refused, *data_type != DataType::Binary);
    }
    let is_written_as_it_is_read = matches!(
        data_type,
        DataType::Int32 | DataType::Decimal128(..) | DataType::Date32 | DataType::Boolean
    );
    if is_written_as_it_is_read && !is_refused {
        let written = array_value_to_string(&alone.array, 0).unwrap();
        // Years beyond those that Arrow can write are read.
        if written.starts_with("ERROR") {
            return;
        }
        assert_eq!(&read(data_type, &[written.as_bytes()]).array, &alone.array, "{written}");
    }
}

fn read(data_type: &DataType, texts: &[&[u8]]) -> ParsedColumn {
    let field = Arc::new(Field::new("value", data_type.clone(), true));
    let mut column = TextColumn::new(&field, texts.len());
    for text in texts {
        column.push(text);
    }
    column.finish().unwrap()
}

/// Compares a number with the digits of its text.
fn check_number(text: &str, value: &ArrayRef) {
    match value.data_type() {
        DataType::Int32 => {
            let text = text.trim_matches(|it: char| it.is_ascii_control() || it == ' ');
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
            let magnitude = digits.trim_start_matches('0').parse::<i128>();
            let magnitude =
                if digits.trim_start_matches('0').is_empty() { Ok(0) } else { magnitude };
            let signed = magnitude.map(|it| if text.starts_with('-') { -it } else { it });
            let expected = signed.ok().and_then(|it| i32::try_from(it).ok()).filter(|_| is_number);
            assert_eq!(value.as_primitive::<Int32Type>().iter().next(), Some(expected), "{text:?}");
        }
        DataType::Decimal128(precision, scale) => {
            let expected = decimal(text, *precision, usize::from(scale.unsigned_abs()));
            let value = value.as_primitive::<Decimal128Type>().iter().next();
            assert_eq!(value, Some(expected), "{text:?}");
        }
        _ => {}
    }
}

/// Reads a decimal by moving its point in the text.
fn decimal(text: &str, precision: u8, scale: usize) -> Option<i128> {
    let text = text.trim_matches(|it: char| it <= ' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => {
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|it| it.is_ascii_digit()) {
                return None;
            }
            (mantissa, exponent.parse::<i32>().ok()?)
        }
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    if digits.bytes().all(|it| it == b'0') {
        return Some(0);
    }
    // Far enough that all digits are zeros, or that there is one too many.
    let far = 1000 + i64::try_from(digits.len()).ok()?;
    let shift = i64::from(exponent).clamp(-far, far) + i64::try_from(scale).ok()?
        - i64::try_from(fraction.len()).ok()?;
    let (whole, next) = if shift >= 0 {
        (digits + &"0".repeat(usize::try_from(shift).ok()?), '0')
    } else {
        let cut = usize::try_from(-shift).ok()?;
        let digits = "0".repeat(cut + 1) + &digits;
        let at = digits.len() - cut;
        (digits[..at].to_owned(), digits[at..].chars().next()?)
    };
    let whole = whole.trim_start_matches('0');
    if whole.len() > 38 {
        return None;
    }
    let value = whole.parse().unwrap_or(0_i128) + i128::from(next >= '5');
    let value = Some(value).filter(|it| *it < 10_i128.pow(precision.into()))?;
    Some(if text.starts_with('-') { -value } else { value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_what_their_texts_say(
            kind in 0..3_u8,
            text in "[ \\t]?[+-]?[0-9]{0,12}\\.?[0-9]{0,40}([eE][+-]?[0-9]{0,3})?[ x]?",
        ) {
            super::text(&[&[kind], text.as_bytes()].concat());
        }

        #[test]
        fn every_text_is_a_value_or_is_refused(
            kind in any::<u8>(),
            text in prop_oneof![
                "[0-9]{1,7}-[0-9]{1,2}-[0-9]{1,2}([ T][0-9:.]{0,16})?( ?[A-Z][A-Za-z/+:0-9-]{0,12})?",
                "(interval )?[+-]?'?[0-9]{1,9} [0-9:.]{0,16}'?( day to second)?",
                "[\\[\\]0-9,. nul\"-]{0,12}",
                any::<String>(),
            ],
        ) {
            super::text(&[&[kind], text.as_bytes()].concat());
        }

        #[test]
        fn bytes_that_are_no_text_are_refused_alone(
            kind in any::<u8>(),
            text in prop::collection::vec(any::<u8>(), 0..12),
        ) {
            super::text(&[&[kind], text.as_slice()].concat());
        }
    }
}
