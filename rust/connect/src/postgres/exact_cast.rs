// SPDX-License-Identifier: Apache-2.0
//! Casts that change no value: what would not come back as it was becomes null.

use std::fmt::LowerExp;
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::kernels::boolean::not;
use arrow::compute::kernels::cmp::not_distinct;
use arrow::compute::{CastOptions, cast_with_options, nullif};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Decimal128Type, Float32Type, Float64Type};
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;

/// What does not fit becomes null.
const CAST: CastOptions<'static> = CastOptions { safe: true, format_options: FormatOptions::new() };

/// Casts a column; null where it is, and where the value does not fit the type.
///
/// A decimal is a floating number if that is written with the same digits.
pub(super) fn cast(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    let from = column.data_type();
    match (from, to) {
        (DataType::Decimal128(_, scale), DataType::Float32) => {
            return Ok(floats::<Float32Type>(column, *scale));
        }
        (DataType::Decimal128(_, scale), DataType::Float64) => {
            return Ok(floats::<Float64Type>(column, *scale));
        }
        _ => {}
    }
    let there = cast_with_options(column, to, &CAST)?;
    if !may_round(from, to) {
        return Ok(there);
    }
    let back = cast_with_options(&there, from, &CAST)?;
    nullif(&there, &not(&not_distinct(column, &back)?)?)
}

/// Tells whether a value may come out as another one that is near.
fn may_round(from: &DataType, to: &DataType) -> bool {
    let is_wider = *from == DataType::Float32 && *to == DataType::Float64;
    let is_rounded = to.is_floating() || from.is_floating() || from.is_decimal();
    (is_rounded && !is_wider || from.is_temporal()) && *to != DataType::Utf8
}

fn floats<T>(column: &ArrayRef, scale: i8) -> ArrayRef
where
    T: ArrowPrimitiveType,
    T::Native: FromStr + LowerExp,
{
    let decimals = column.as_primitive::<Decimal128Type>().iter();
    let floats = decimals.map(|value| float::<T::Native>(value?, scale));
    Arc::new(floats.collect::<PrimitiveArray<T>>())
}

fn float<T: FromStr + LowerExp>(value: i128, scale: i8) -> Option<T> {
    let digits = value.unsigned_abs().to_string();
    let number: T = format!("{value}e{}", -i32::from(scale)).parse().ok()?;
    let written = format!("{number:e}");
    let (mantissa, exponent) = written.split_once('e')?;
    let mantissa = mantissa.trim_start_matches('-').replace('.', "");
    let power = i32::try_from(digits.len()).ok()? - 1 - i32::from(scale);
    let is_same = mantissa == digits.trim_end_matches('0') && exponent.parse() == Ok(power);
    (value == 0 || is_same).then_some(number)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Decimal128Array, Float32Array, Float64Array, Int64Array, TimestampNanosecondArray,
    };
    use arrow::datatypes::TimeUnit;

    use super::*;

    /// Tells which values are there after the cast.
    fn kept(column: impl Array + 'static, to: &DataType) -> Vec<bool> {
        let column: ArrayRef = Arc::new(column);
        let cast = cast(&column, to).unwrap();
        assert_eq!(cast.data_type(), to);
        (0..cast.len()).map(|row| cast.is_valid(row)).collect()
    }

    #[test]
    fn whole_numbers_keep_all_digits() {
        let values = Int64Array::from(vec![Some(1 << 53), Some((1 << 53) + 1), None, Some(300)]);
        assert_eq!(kept(values.clone(), &DataType::Float64), [true, false, false, true]);
        assert_eq!(kept(values.clone(), &DataType::Int8), [false; 4]);
        assert_eq!(kept(values, &DataType::Decimal128(5, 2)), [false, false, false, true]);
        assert_eq!(kept(Int64Array::from(vec![i64::MAX]), &DataType::Float32), [false]);
    }

    #[test]
    fn floating_numbers_stay_what_they_are() {
        let values = Float64Array::from(vec![0.1, 0.5, f64::NAN, -0.0, f64::INFINITY, 1e300]);
        let is_kept = [false, true, true, true, true, false];
        assert_eq!(kept(values, &DataType::Float32), is_kept);
        assert_eq!(kept(Float32Array::from(vec![0.1]), &DataType::Float64), [true]);
    }

    #[test]
    fn decimals_keep_all_digits() {
        let decimals = |values: Vec<i128>, precision, scale| {
            Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap()
        };
        let prices = || decimals(vec![100, 199, -300, 0], 10, 2);
        assert_eq!(kept(prices(), &DataType::Int64), [true, false, true, true]);
        assert_eq!(kept(prices(), &DataType::Float64), [true; 4]);
        assert_eq!(kept(prices(), &DataType::Float32), [true; 4]);
        let long = || decimals(vec![10_i128.pow(37) + 1, 10_i128.pow(37), -12_345_678_901], 38, 18);
        assert_eq!(kept(long(), &DataType::Float64), [false, true, true]);
        assert_eq!(kept(long(), &DataType::Float32), [false, true, false]);
        let digits = || decimals(vec![9_007_199_254_740_993, 123_456_789_123_456_789], 38, 9);
        assert_eq!(kept(digits(), &DataType::Float64), [true, false]);
    }

    #[test]
    fn a_moment_is_not_cut() {
        let values = TimestampNanosecondArray::from(vec![1_000, 1_001]);
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert_eq!(kept(values, &micros), [true, false]);
    }
}
