// SPDX-License-Identifier: Apache-2.0
//! What nodes of a Redis cluster say of each other, and the slots of keys.

use crate::redis::resp::{Reply, parse};
use crate::redis::slots::{SLOTS, is_of_one_slot, slot_of, slot_of_command};
use crate::redis::topology::{Redirection, host_and_port, shards};

/// What is believed of an answer is what it says, and commands go to the slots of their keys.
pub fn cluster(data: &[u8]) {
    check_redirection(data);
    check_slot(data);
    if let Ok(Some((reply, _))) = parse(data) {
        check_shards(reply);
        check_command(data, reply);
    }
}

/// A redirection is one if it is written as the server writes it.
fn check_redirection(words: &[u8]) {
    let Some(Redirection { slot, address, is_asking }) = Redirection::parse(words) else { return };
    assert!(slot < SLOTS);
    let code = if is_asking { "ASK" } else { "MOVED" };
    let words = str::from_utf8(words).unwrap();
    let mut written = words.splitn(4, ' ');
    assert_eq!(written.next(), Some(code));
    assert_eq!(written.next().map(str::parse), Some(Ok(slot)));
    assert_eq!(written.next(), Some(address));
    if let Some((host, port)) = host_and_port(address, "asked:1") {
        assert!(!host.is_empty());
        let named = if address.starts_with(':') && host == "asked" { "" } else { host };
        assert!(address.starts_with(&format!("{named}:")), "{address} {host}");
        assert!(address[named.len() + 1..].parse() == Ok(port));
    }
}

fn check_slot(key: &[u8]) {
    // What is between the first brace and the first one behind it counts, if it is anything.
    let open = key.iter().position(|it| *it == b'{');
    let tag = open.map(|open| &key[open + 1..]).and_then(|rest| {
        let mut parts = rest.splitn(2, |it| *it == b'}');
        let tag = parts.next().filter(|it| !it.is_empty());
        parts.next().and(tag)
    });
    let mut crc = 0_u32;
    for byte in tag.unwrap_or(key) {
        crc ^= u32::from(*byte) << 8;
        for _ in 0..8 {
            crc = (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
        }
    }
    assert_eq!(u32::from(slot_of(key)), (crc & 0xFFFF) % u32::from(SLOTS));
}

fn check_shards(reply: Reply<'_>) {
    let Some(shards) = shards(reply) else { return };
    let Reply::Array(ranges) = reply else { unreachable!("an answer is an array") };
    assert_eq!(shards.len(), ranges.len());
    for (shard, range) in shards.iter().zip(ranges.elements()) {
        let Reply::Array(range) = range else { unreachable!("a range is an array") };
        assert!(*shard.slots.end() < SLOTS);
        assert_eq!(shard.addresses.len(), range.len() - 2);
        assert!(shard.addresses.iter().all(|address| address.contains(':')));
    }
}

/// The slot of a command is that of its first argument.
fn check_command(command: &[u8], reply: Reply<'_>) {
    let Reply::Array(words) = reply else {
        assert_eq!(slot_of_command(command), None);
        return;
    };
    let texts: Vec<&[u8]> = words
        .elements()
        .filter_map(|it| match it {
            Reply::Text(text) => Some(text),
            _ => None,
        })
        .skip(1)
        .collect();
    assert_eq!(slot_of_command(command), texts.first().map(|it| slot_of(it)));
    let is_one = texts.windows(2).all(|pair| slot_of(pair[0]) == slot_of(pair[1]));
    assert_eq!(is_of_one_slot(command), is_one);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    fn words() -> impl Strategy<Value = String> {
        let host = prop_oneof!["[a-z.]{0,4}", "[0-9a-f:]{1,6}", Just("asked".to_owned())];
        let port = prop_oneof!["[0-9]{1,6}", "[+-]?[0-9]", Just(String::new())];
        ("MOVED|ASK|moved|ERR", " {1,2}", 0..17_000_u32, " ?", host, ":?", port, "( x)?")
            .prop_map(|(a, b, c, d, e, f, g, h)| format!("{a}{b}{c}{d}{e}{f}{g}{h}"))
    }

    fn bulk(text: &str) -> String {
        format!("${}\r\n{text}\r\n", text.len())
    }

    fn array(all: &[String]) -> String {
        format!("*{}\r\n{}", all.len(), all.concat())
    }

    fn answers() -> impl Strategy<Value = String> {
        let host = prop_oneof![
            "[a-z.:?]{0,3}".prop_map(|it| bulk(&it)),
            Just("$-1\r\n".to_owned()),
            Just("*0\r\n".to_owned()),
        ];
        let port = (-1..70_000_i32).prop_map(|it| format!(":{it}\r\n"));
        let node = (host, port, prop::option::of(Just(bulk("id")))).prop_map(|(host, port, id)| {
            array(&[vec![host, port], id.into_iter().collect()].concat())
        });
        let slot = || (-1..16_390_i32).prop_map(|it| format!(":{it}\r\n"));
        let range = (slot(), slot(), prop::collection::vec(node, 0..3))
            .prop_map(|(first, last, nodes)| array(&[vec![first, last], nodes].concat()));
        prop::collection::vec(range, 0..3).prop_map(|ranges| array(&ranges))
    }

    proptest! {
        #[test]
        fn redirections_say_what_is_believed(words in words()) {
            super::cluster(words.as_bytes());
        }

        #[test]
        fn answers_say_what_is_believed(answer in answers()) {
            super::cluster(answer.as_bytes());
        }

        #[test]
        fn commands_go_to_the_slots_of_their_keys(
            words in prop::collection::vec("[ab{}]{0,6}", 0..5),
        ) {
            let packed: Vec<String> = words.iter().map(|it| bulk(it)).collect();
            super::cluster(array(&packed).as_bytes());
            for word in words {
                super::cluster(word.as_bytes());
            }
        }
    }
}
