// SPDX-License-Identifier: Apache-2.0
//! Bytes out of base64, as Spark's JSON has them.

/// Appends the bytes that `text` stands for; returns whether it is base64.
///
/// Groups of four may have white space between them; the last one is padded.
pub(super) fn decode(text: &str, bytes: &mut Vec<u8>) -> bool {
    let mut rest = text.trim_ascii_start().as_bytes();
    bytes.reserve(rest.len() / 4 * 3);
    while !rest.is_empty() {
        let Some((group, behind)) = rest.split_first_chunk::<4>() else { return false };
        rest = behind.trim_ascii_start();
        let padding = group.iter().rev().take_while(|it| **it == b'=').count();
        if padding > 2 || (padding > 0 && !rest.is_empty()) {
            return false;
        }
        let mut value = 0_u32;
        for character in &group[..4 - padding] {
            let Some(six) = six_bits(*character) else { return false };
            value = value << 6 | u32::from(six);
        }
        let [_, first, second, third] = (value << (6 * padding)).to_be_bytes();
        bytes.extend_from_slice(&[first, second, third][..3 - padding]);
    }
    true
}

fn six_bits(character: u8) -> Option<u8> {
    Some(match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
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
