// SPDX-License-Identifier: Apache-2.0
//! Bytes out of base64, as Spark's JSON has them.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

/// Padded; Java does not look at the bits of the last character that stand for nothing.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Appends the bytes that `text` stands for; returns whether it is base64.
///
/// Groups of four may have white space between them; the last one is padded.
pub(super) fn decode(text: &str, bytes: &mut Vec<u8>) -> bool {
    let mut pieces = text.split_ascii_whitespace().peekable();
    while let Some(piece) = pieces.next() {
        let goes_on = piece.ends_with('=') && pieces.peek().is_some();
        if goes_on || ENGINE.decode_vec(piece, bytes).is_err() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        decode(text, &mut bytes).then_some(bytes)
    }

    #[test]
    fn groups_of_four_stand_for_three_bytes() {
        assert_eq!(read("AP9B").unwrap(), [0, 255, 65]);
        assert_eq!(read("AP8=").unwrap(), [0, 255]);
        assert_eq!(read("/w==\n").unwrap(), [255]);
        assert_eq!(read("+/+/\r\n AP9B").unwrap(), [0xfb, 0xff, 0xbf, 0, 255, 65]);
        assert!(read("").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in
            ["AP8", "A", "AP9B==", "zz zz", "-_-_", "!!!!", "A===", "====", "AP8=AP9B", "AP=B"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
