// SPDX-License-Identifier: Apache-2.0
//! Tests of packed bodies. Those of brotli and zstd were packed by the reference implementations of
//! Node 20 (brotli, quality 11) and of python-zstandard 0.25 (level 3).

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// "abc", 1 234 times.
const BROTLI: &[u8] = b"\x1b\x75\x0e\xf8\x25\xc3\xc4\xc6\xe2\xb3\x20\xa0\xc5\x00\x40\x03";
/// The same with its length and a checksum, something for others, and a frame of "!" without either.
const ZSTD: [&[u8]; 3] = [
    b"\x28\xb5\x2f\xfd\x64\x76\x0d\x55\x00\x00\x18\x61\x62\x63\x01\x00\x70\xd6\x77\x43\x60\x37\xac\x88",
    b"\x53\x2a\x4d\x18\x05\x00\x00\x00hello",
    b"\x28\xb5\x2f\xfd\x00\x00\x09\x00\x00\x21",
];
/// "abc" in zlib, in gzip, in brotli.
const BROTLI_OF_GZIP_OF_ZLIB: &[u8] =
    b"\x0b\x0f\x80\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x98\xe3\xed\xe3\xc5\xc6\xc0\xe4\
      \xcb\xa8\x0e\x00\x5d\xbb\x7c\x8e\x0b\x00\x00\x00\x03";
/// A mebibyte of zeros.
const BROTLI_ZEROS: &[u8] = b"\x5b\xff\xff\x8f\x7f\x02\x20\x1e\x0b\x04\x72\xef\x1f\x00";
/// The same without its length.
const ZSTD_ZEROS: &[u8] =
    b"\x28\xb5\x2f\xfd\x00\x50\x54\x00\x00\x10\x00\x00\x01\x00\xfb\xff\x39\xc0\x02\x02\x00\x10\x00\
      \x02\x00\x10\x00\x02\x00\x10\x00\x02\x00\x10\x00\x02\x00\x10\x00\x02\x00\x10\x00\x03\x00\x10\x00";
/// The start of a frame that says it has a mebibyte.
const ZSTD_LONG: &[u8] = b"\x28\xb5\x2f\xfd\xa4\x00\x00\x10\x00";
/// The start of a frame with a window of 16 MiB.
const ZSTD_WIDE: &[u8] = b"\x28\xb5\x2f\xfd\x00\x70";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn raw(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn text() -> Vec<u8> {
    b"abc".repeat(1234)
}

/// Each coding, a body in it, and what that comes to.
fn bodies() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let behind = [text(), b"!".to_vec()].concat();
    vec![
        ("gzip", [gzip(&text()), gzip(b"!")].concat(), behind.clone()),
        ("deflate", zlib(&text()), text()),
        ("Deflate", raw(&text()), text()),
        ("gzip, gzip", gzip(&gzip(&text())), text()),
        ("identity, deflate ,x-gzip, br,", BROTLI_OF_GZIP_OF_ZLIB.to_vec(), b"abc".to_vec()),
        ("br", BROTLI.to_vec(), text()),
        ("zstd", ZSTD.concat(), behind),
    ]
}

fn unpacker(coding: &'static str, most: usize) -> Unpacker {
    let coding = HeaderValue::from_static(coding);
    let mut headers = HeaderMap::from_iter([(CONTENT_ENCODING, coding)]);
    let unpacker = Unpacker::of(&mut headers, most).unwrap();
    assert!(headers.is_empty());
    unpacker
}

#[test]
fn a_body_is_unpacked_piece_by_piece() {
    for (coding, packed, expected) in bodies() {
        for size in [1, 7, packed.len()] {
            let mut unpacker = unpacker(coding, expected.len());
            let mut all = Vec::new();
            for piece in packed.chunks(size) {
                all.extend(unpacker.unpack(piece).unwrap());
            }
            all.extend(unpacker.finish().unwrap());
            assert_eq!(all, expected, "{coding} in pieces of {size}");
        }
    }
}

#[test]
fn no_more_is_unpacked_than_allowed() {
    let zeros = gzip(&vec![0; 1 << 20]);
    for (coding, packed) in [("gzip", zeros.as_slice()), ("br", BROTLI_ZEROS), ("zstd", ZSTD_ZEROS)]
    {
        assert!(packed.len() < 2048);
        let unpack = |most| {
            let mut unpacker = unpacker(coding, most);
            let mut bytes = unpacker.unpack(packed)?;
            bytes.extend(unpacker.finish()?);
            Ok(bytes.len())
        };
        assert!(matches!(unpack((1 << 20) - 1), Err(Unpacked::TooLarge)), "{coding}");
        assert_eq!(unpack(1 << 20).unwrap(), 1 << 20, "{coding}");
    }
}

#[test]
fn a_bomb_is_found_before_it_goes_off() {
    // A thousand blocks of four bytes each stand for 128 MiB.
    let blocks = b"\x02\x00\x10x".repeat(1024);
    let bomb = [&ZSTD_ZEROS[..6], &blocks].concat();
    let mut unpacker = unpacker("zstd", 200_003);
    assert!(matches!(unpacker.unpack(&bomb), Err(Unpacked::TooLarge)));
    let [Coding::Zstd(parts)] = unpacker.codings.as_slice() else { unreachable!("it is zstd") };
    // A window of a mebibyte is kept until blocks come behind it.
    assert!(parts.1.bytes.len() <= 200_003);

    assert!(matches!(self::unpacker("zstd", 1000).unpack(ZSTD_LONG), Err(Unpacked::TooLarge)));
    let wide = self::unpacker("zstd", usize::MAX).unpack(ZSTD_WIDE);
    assert!(matches!(wide, Err(Unpacked::Broken(_))));
}

#[test]
fn a_body_that_ends_early_or_is_none_is_broken() {
    for (coding, packed, expected) in bodies() {
        let mut cut = unpacker(coding, expected.len());
        let unpacked = cut.unpack(&packed[..packed.len() - 3]);
        assert!(unpacked.and_then(|_| cut.finish()).is_err(), "{coding}");
        let mut wrong = unpacker(coding, 100);
        let unpacked = wrong.unpack(b"\xff not packed at all");
        let Err(Unpacked::Broken(error)) = unpacked.and_then(|_| wrong.finish()) else {
            panic!("{coding} is broken");
        };
        assert!(error.to_string().starts_with("the body cannot be unpacked as "), "{error}");
    }
}

#[test]
fn a_checksum_that_does_not_fit_is_found() {
    let mut packed = ZSTD[0].to_vec();
    *packed.last_mut().unwrap() ^= 1;
    let Err(Unpacked::Broken(error)) = unpacker("zstd", 9999).unpack(&packed) else {
        panic!("it is broken");
    };
    assert!(error.to_string().contains("checksum"));
}

#[test]
fn a_body_in_another_coding_is_refused_by_its_name() {
    for (codings, named) in [
        ("compress", "compress"),
        ("gzip, aes\"é", "aes\""),
        ("gzip,gzip,gzip,gzip,gzip", "more than 4 codings"),
    ] {
        let coding = HeaderValue::from_bytes(codings.as_bytes()).unwrap();
        let mut headers = HeaderMap::from_iter([(CONTENT_ENCODING, coding)]);
        let mut unpacker = Unpacker::of(&mut headers, 1).unwrap();
        let Err(Unpacked::Unknown(name)) = unpacker.unpack(b"x") else { panic!("{codings}") };
        assert_eq!(name, named);
    }
}

#[test]
fn codings_of_several_headers_are_one_list() {
    let values = ["identity", "gzip", "gzip"].map(HeaderValue::from_static);
    let mut headers = HeaderMap::from_iter(values.map(|value| (CONTENT_ENCODING, value)));
    let mut unpacker = Unpacker::of(&mut headers, 10).unwrap();
    let mut all = unpacker.unpack(&gzip(&gzip(b"abc"))).unwrap();
    all.extend(unpacker.finish().unwrap());
    assert_eq!(all, b"abc");

    let as_it_is = HeaderValue::from_static("identity, UTF-8, none, aws-chunked");
    let mut headers = HeaderMap::from_iter([(CONTENT_ENCODING, as_it_is)]);
    assert!(Unpacker::of(&mut headers, 1).is_none() && headers.is_empty());
}

proptest! {
    #[test]
    fn whatever_a_server_sends_is_unpacked_within_the_bound_or_refused(
        which in 0..bodies().len(),
        (noise, is_noise) in (vec(any::<u8>(), 0..97), any::<bool>()),
        changes in vec((any::<Index>(), any::<u8>()), 0..5),
        (size, most) in (1..41_usize, 0..5000_usize),
    ) {
        let (coding, mut packed, _) = bodies().swap_remove(which);
        for (index, byte) in changes {
            let index = index.index(packed.len());
            packed[index] = byte;
        }
        let packed = if is_noise { noise } else { packed };
        let mut unpacker = unpacker(coding, most);
        let mut pieces = packed.chunks(size).map(|piece| unpacker.unpack(piece));
        let mut found = 0;
        let ended = loop {
            match pieces.next() {
                Some(Ok(bytes)) => found += bytes.len(),
                Some(Err(_)) => break false,
                None => break true,
            }
        };
        drop(pieces);
        if ended && let Ok(bytes) = unpacker.finish() {
            found += bytes.len();
        }
        prop_assert!(found <= most);
    }
}
