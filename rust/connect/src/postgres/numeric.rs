// SPDX-License-Identifier: Apache-2.0
//! Numbers of type `numeric`, as PostgreSQL sends them: digits of base 10 000.

use std::str::FromStr;

/// Decimal digits of one digit that is sent.
const DIGITS: i32 = 4;

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
const INFINITY: u16 = 0xd000;
const NEGATIVE_INFINITY: u16 = 0xf000;

/// A number that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numeric<'a> {
    sign: u16,
    /// The power of 10 000 of the first digit.
    weight: i32,
    /// Two bytes for each digit.
    digits: &'a [u8],
}

impl<'a> Numeric<'a> {
    /// Reads a value; `None` if it is not valid.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let (head, digits) = bytes.split_first_chunk::<8>()?;
        let [count, count_, weight, weight_, sign, sign_, _, _] = *head;
        let count = usize::from(u16::from_be_bytes([count, count_]));
        let weight = i32::from(i16::from_be_bytes([weight, weight_]));
        let sign = u16::from_be_bytes([sign, sign_]);
        (digits.len() == 2 * count).then_some(Self { sign, weight, digits })
    }

    /// Returns the number times ten to the power of `scale`; `None` if that is not a whole number
    /// of at most `precision` digits.
    pub(super) fn to_decimal(self, precision: u8, scale: i8) -> Option<i128> {
        if !matches!(self.sign, 0 | NEGATIVE) {
            return None;
        }
        let mut sum: i128 = 0;
        for (digit, power) in self.digits() {
            let power = power + i32::from(scale);
            let part = if let Ok(power) = u32::try_from(power) {
                if digit == 0 { 0 } else { 10_i128.checked_pow(power)?.checked_mul(digit)? }
            } else {
                let below = 10_i128.pow(power.unsigned_abs().min(DIGITS.unsigned_abs()));
                (digit % below == 0).then_some(digit / below)?
            };
            sum = sum.checked_add(part)?;
        }
        let is_in_range = sum < 10_i128.checked_pow(u32::from(precision)).unwrap_or(i128::MAX);
        is_in_range.then_some(if self.sign == NEGATIVE { -sum } else { sum })
    }

    /// Returns the floating number that is nearest; `None` if it is too large or too small for one.
    pub(super) fn to_float<T: FromStr + Into<f64> + Copy>(self) -> Option<T> {
        let mut text = String::with_capacity(8 + 2 * self.digits.len());
        match self.sign {
            NAN => text.push_str("NaN"),
            INFINITY => text.push_str("inf"),
            NEGATIVE_INFINITY => text.push_str("-inf"),
            sign => {
                text.push_str(if sign == NEGATIVE { "-0" } else { "0" });
                let mut last = 0;
                for (digit, power) in self.digits() {
                    // With four digits: those behind the first of five.
                    text.push_str(&itoa::Buffer::new().format(10_000 + digit)[1..]);
                    last = power;
                }
                text.push('e');
                text.push_str(itoa::Buffer::new().format(last));
            }
        }
        let number: T = text.parse().ok()?;
        let value: f64 = number.into();
        let is_finite = matches!(self.sign, 0 | NEGATIVE);
        let is_zero = self.digits().all(|(digit, _)| digit == 0);
        (!is_finite || value.is_finite() && (value == 0.0) == is_zero).then_some(number)
    }

    /// Returns each digit with the power of ten that it is multiplied by.
    fn digits(self) -> impl Iterator<Item = (i128, i32)> {
        let pairs = self.digits.chunks_exact(2).enumerate();
        pairs.map(move |(index, pair)| {
            let digit = i128::from(u16::from_be_bytes([pair[0], pair[1]]));
            let index = i32::try_from(index).unwrap_or(i32::MAX);
            (digit, DIGITS.saturating_mul(self.weight.saturating_sub(index)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(sign: u16, weight: i16, digits: &[u16]) -> Vec<u8> {
        let count = u16::try_from(digits.len()).unwrap();
        let mut bytes =
            [count.to_be_bytes(), weight.to_be_bytes(), sign.to_be_bytes(), [0, 0]].concat();
        bytes.extend(digits.iter().flat_map(|digit| digit.to_be_bytes()));
        bytes
    }

    fn decimal(bytes: &[u8], precision: u8, scale: i8) -> Option<i128> {
        Numeric::read(bytes).unwrap().to_decimal(precision, scale)
    }

    #[test]
    fn a_number_is_a_decimal_if_no_digit_is_lost() {
        // -12345.678
        let number = sent(NEGATIVE, 1, &[1, 2345, 6780]);

        assert_eq!(decimal(&number, 10, 3), Some(-12_345_678));
        assert_eq!(decimal(&number, 38, 18), Some(-12_345_678_000_000_000_000_000));
        assert_eq!(decimal(&number, 10, 2), None);
        assert_eq!(decimal(&number, 7, 3), None);
        assert_eq!(decimal(&sent(0, 0, &[]), 1, 0), Some(0));
        assert_eq!(decimal(&sent(0, 9, &[9999; 10]), 38, 0), None);
        assert_eq!(decimal(&sent(0, 9, &[99]), 38, 0), Some(99 * 10_i128.pow(36)));
        assert_eq!(decimal(&sent(0, -5, &[1]), 38, 19), None);
        assert_eq!(decimal(&sent(0, -5, &[1]), 38, 20), Some(1));
        assert_eq!(decimal(&sent(NAN, 0, &[]), 38, 0), None);
    }

    #[test]
    fn a_floating_number_is_the_nearest() {
        let float = |bytes: &[u8]| Numeric::read(bytes).unwrap().to_float::<f64>();

        assert_eq!(float(&sent(0, -1, &[1000])), Some(0.1));
        assert_eq!(float(&sent(NEGATIVE, 1, &[1, 2345, 6780])), Some(-12_345.678));
        assert_eq!(float(&sent(0, 0, &[])), Some(0.0));
        assert_eq!(float(&sent(0, 100, &[1])), None);
        assert_eq!(float(&sent(0, -100, &[1])), None);
        assert!(float(&sent(NAN, 0, &[])).unwrap().is_nan());
        assert_eq!(float(&sent(NEGATIVE_INFINITY, 0, &[])), Some(f64::NEG_INFINITY));
        assert_eq!(Numeric::read(&sent(0, 10, &[1])).unwrap().to_float::<f32>(), None);
    }

    #[test]
    fn what_is_cut_off_is_no_number() {
        assert!(Numeric::read(&sent(0, 0, &[1])[..9]).is_none());
        assert!(Numeric::read(b"").is_none());
    }
}
