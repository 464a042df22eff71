// SPDX-License-Identifier: Apache-2.0
//! Amounts out of a column of numbers: whole, from nothing to more than is ever needed.

use std::fmt;

use arrow::array::{Array, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

/// The largest amount.
pub const MOST_AMOUNT: u64 = 1 << 53;

/// Why a value is not an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAmount {
    /// It is null.
    Null,
    /// It is below zero.
    Negative,
    /// It is NaN.
    NotANumber,
    /// It is above [`MOST_AMOUNT`].
    TooLarge,
}

impl fmt::Display for NoAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "is null",
            Self::Negative => "is negative",
            Self::NotANumber => "is not a number",
            Self::TooLarge => "is above 2 to the power of 53",
        })
    }
}

/// Returns so many times a value as an amount; part of one counts as one, unless it is what the sum of
/// decimal fractions is wrong by: 0.1 and 0.2 are 0.3 of a budget.
///
/// # Errors
///
/// [`NoAmount`] if it is not one.
pub fn amount_of(value: f64, times: u64) -> Result<u64, NoAmount> {
    #[expect(clippy::cast_precision_loss, reason = "a power of two")]
    let (most, value) = (MOST_AMOUNT as f64, value * times as f64);
    match value {
        _ if value.is_nan() => Err(NoAmount::NotANumber),
        _ if value < 0.0 => Err(NoAmount::Negative),
        _ if value > most => Err(NoAmount::TooLarge),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        _ if times > 1 => Ok(((value * 1e3).round() / 1e3).ceil() as u64),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        _ => Ok(value.ceil() as u64),
    }
}

/// Returns so many times a whole number as an amount.
///
/// # Errors
///
/// As [`amount_of`].
pub fn amount_of_whole(value: i128, times: u64) -> Result<u64, NoAmount> {
    match u64::try_from(value.saturating_mul(times.into())) {
        Ok(amount) if amount <= MOST_AMOUNT => Ok(amount),
        _ if value < 0 => Err(NoAmount::Negative),
        _ => Err(NoAmount::TooLarge),
    }
}

/// Returns so many times each value of a column as an amount; `None` if the column does not hold numbers.
pub fn amounts(column: &dyn Array, times: u64) -> Option<Vec<Result<u64, NoAmount>>> {
    let amounts = match column.data_type() {
        DataType::Int8 => each::<Int8Type>(column, |it| amount_of_whole(it.into(), times)),
        DataType::Int16 => each::<Int16Type>(column, |it| amount_of_whole(it.into(), times)),
        DataType::Int32 => each::<Int32Type>(column, |it| amount_of_whole(it.into(), times)),
        DataType::Int64 => each::<Int64Type>(column, |it| amount_of_whole(it.into(), times)),
        DataType::UInt8 => each::<UInt8Type>(column, |it| amount_of_whole(it.into(), times)),
        DataType::UInt16 => each::<UInt16Type>(column, |it| amount_of_whole(it.into(), times)),
        DataType::UInt32 => each::<UInt32Type>(column, |it| amount_of_whole(it.into(), times)),
        DataType::UInt64 => each::<UInt64Type>(column, |it| amount_of_whole(it.into(), times)),
        DataType::Float32 => each::<Float32Type>(column, |it| amount_of(it.into(), times)),
        DataType::Float64 => each::<Float64Type>(column, |it| amount_of(it, times)),
        DataType::Decimal32(_, scale) => {
            each::<Decimal32Type>(column, |it| amount_of_decimal(it.into(), *scale, times))
        }
        DataType::Decimal64(_, scale) => {
            each::<Decimal64Type>(column, |it| amount_of_decimal(it.into(), *scale, times))
        }
        DataType::Decimal128(_, scale) => {
            each::<Decimal128Type>(column, |it| amount_of_decimal(it, *scale, times))
        }
        DataType::Null => vec![Err(NoAmount::Null); column.len()],
        _ => return None,
    };
    Some(amounts)
}

fn each<T: ArrowPrimitiveType>(
    column: &dyn Array,
    amount: impl Fn(T::Native) -> Result<u64, NoAmount>,
) -> Vec<Result<u64, NoAmount>> {
    let column: &PrimitiveArray<T> = column.as_primitive();
    if column.null_count() == 0 {
        return column.values().iter().map(|value| amount(*value)).collect();
    }
    column.iter().map(|value| value.map_or(Err(NoAmount::Null), &amount)).collect()
}

fn amount_of_decimal(digits: i128, scale: i8, times: u64) -> Result<u64, NoAmount> {
    let power = 10_i128.checked_pow(u32::from(scale.unsigned_abs()));
    let digits = digits.saturating_mul(times.into());
    match power {
        _ if digits < 0 => Err(NoAmount::Negative),
        Some(power) if scale >= 0 => {
            amount_of_whole(digits / power + i128::from(digits % power > 0), 1)
        }
        Some(power) => amount_of_whole(digits.saturating_mul(power), 1),
        // More digits behind the point than there are.
        None => amount_of_whole(i128::from(digits > 0), 1),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, Decimal128Array, Float32Array, Float64Array, Int8Array, Int64Array, NullArray,
        StringArray, UInt64Array,
    };

    use super::NoAmount::{Negative, NotANumber, Null, TooLarge};
    use super::*;

    #[test]
    fn numbers_of_all_types_are_amounts_and_parts_count_as_one() {
        let decimals = Decimal128Array::from(vec![1_234, 1_200, 0, -50])
            .with_precision_and_scale(9, 2)
            .unwrap();
        let cases: [(ArrayRef, Vec<Result<u64, NoAmount>>); 7] = [
            (Arc::new(Int8Array::from(vec![7, -1])), vec![Ok(7), Err(Negative)]),
            (
                Arc::new(Int64Array::from(vec![Some(0), None, Some(i64::MAX)])),
                vec![Ok(0), Err(Null), Err(TooLarge)],
            ),
            (Arc::new(UInt64Array::from(vec![u64::MAX])), vec![Err(TooLarge)]),
            (
                Arc::new(Float64Array::from(vec![2.1, -0.0, f64::NAN, f64::INFINITY, -0.5])),
                vec![Ok(3), Ok(0), Err(NotANumber), Err(TooLarge), Err(Negative)],
            ),
            (
                Arc::new(Float32Array::from(vec![0.25, f32::NEG_INFINITY])),
                vec![Ok(1), Err(Negative)],
            ),
            (Arc::new(decimals), vec![Ok(13), Ok(12), Ok(0), Err(Negative)]),
            (Arc::new(NullArray::new(1)), vec![Err(Null)]),
        ];
        for (column, expected) in cases {
            assert_eq!(amounts(&column, 1), Some(expected), "{}", column.data_type());
        }
        assert_eq!(amounts(&StringArray::from(vec!["7"]), 1), None);
    }

    #[test]
    fn decimals_of_any_scale_are_read() {
        assert_eq!(amount_of_decimal(12, -2, 1), Ok(1_200));
        assert_eq!(amount_of_decimal(i128::MAX, -38, 1), Err(TooLarge));
        assert_eq!(amount_of_decimal(1, 127, 1), Ok(1));
        assert_eq!(amount_of_decimal(-100, 2, 1), Err(Negative));
    }

    #[test]
    fn parts_of_a_cost_are_whole_amounts_of_a_finer_unit() {
        assert_eq!(amount_of(0.15, 1_000_000), Ok(150_000));
        assert_eq!(amount_of(1e-9, 1_000_000), Ok(1));
        // What sums of fractions are wrong by is nothing; of a count it may be a part.
        assert_eq!(amount_of(0.1 + 0.2, 1_000_000), Ok(300_000));
        assert_eq!(amount_of(0.012_400_000_000_000_001, 1_000_000), Ok(12_400));
        assert_eq!(amount_of(0.1 + 0.2 + 12.7, 1), Ok(13));
        assert_eq!(amount_of(13.000_1, 1), Ok(14));
        assert_eq!(amount_of_whole(7, 1_000_000), Ok(7_000_000));
        assert_eq!(amount_of_whole(i128::MAX, 1_000_000), Err(TooLarge));
        assert_eq!(amount_of_decimal(15, 2, 1_000_000), Ok(150_000));
    }
}
