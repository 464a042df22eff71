// SPDX-License-Identifier: Apache-2.0
//! Tests of packed bodies.

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

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
        ("gzip", [gzip(&text()), gzip(b"!")].concat(), behind),
        ("deflate", zlib(&text()), text()),
        ("Deflate", raw(&text()), text()),
        ("gzip, gzip", gzip(&gzip(&text())), text()),
        ("identity, deflate ,x-gzip,", gzip(&zlib(&text())), text()),
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
    let zeros = vec![0; 1 << 20];
    for (coding, packed) in [("gzip", gzip(&zeros)), ("deflate", zlib(&zeros))] {
        assert!(packed.len() < 2048);
        let unpack = |most| {
            let mut unpacker = unpacker(coding, most);
            let mut bytes = unpacker.unpack(&packed)?;
            bytes.extend(unpacker.finish()?);
            Ok(bytes.len())
        };
        assert!(matches!(unpack((1 << 20) - 1), Err(Unpacked::TooLarge)), "{coding}");
        assert_eq!(unpack(1 << 20).unwrap(), 1 << 20, "{coding}");
    }
}

#[test]
fn zeros_behind_a_body_in_gzip_are_padding() {
    for size in [1, 7, 4096] {
        let padded = [gzip(b"7"), vec![0; 13], gzip(b"11"), vec![0; 4099]].concat();
        let mut unpacker = unpacker("gzip", 3);
        let mut all = Vec::new();
        for piece in padded.chunks(size) {
            all.extend(unpacker.unpack(piece).unwrap());
        }
        all.extend(unpacker.finish().unwrap());
        assert_eq!(all, b"711", "in pieces of {size}");
    }
    let mut followed = unpacker("gzip", 9);
    let unpacked = followed.unpack(&[gzip(b"7"), b"\0no member".to_vec()].concat());
    assert!(unpacked.and_then(|_| followed.finish()).is_err());
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
    let mut packed = gzip(b"abc");
    *packed.last_mut().unwrap() ^= 1;
    let mut unpacker = unpacker("gzip", 9999);
    let text = unpacker.unpack(&packed).and_then(|_| unpacker.finish());
    let Err(Unpacked::Broken(error)) = text else { panic!("it is broken") };
    assert!(error.to_string().contains("checksum"), "{error}");
}

#[test]
fn a_body_in_another_coding_is_refused_by_its_name() {
    for (codings, named) in [
        ("compress", "compress"),
        ("br", "br"),
        ("gzip, zstd", "zstd"),
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
