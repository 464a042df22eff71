// SPDX-License-Identifier: Apache-2.0
//! Two ends of a connection, in whatever order things happen.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use sparkawait_wire::event::FIRST_CODE;
use sparkawait_wire::{ChannelKey, Event};

#[path = "support/pair.rs"]
mod support;

use support::{CONFIG, Pair};

#[derive(Clone, Copy, Debug)]
enum Op {
    Open,
    /// Bytes on some channel, from the server or the client.
    Push(usize, usize),
    End(usize),
    Reset(usize),
    Cancel(usize),
    Work(usize),
    Step,
    /// The connection is lost, and another one is made.
    Lose,
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Open),
        12 => (any::<usize>(), 0..200_000_usize).prop_map(|(at, bytes)| Op::Push(at, bytes)),
        2 => any::<usize>().prop_map(Op::End),
        1 => any::<usize>().prop_map(Op::Reset),
        1 => any::<usize>().prop_map(Op::Cancel),
        8 => any::<usize>().prop_map(Op::Work),
        8 => Just(Op::Step),
        1 => Just(Op::Lose),
    ]
}

/// What is known of a channel at its two ends.
#[derive(Default)]
struct Told {
    pushed: Vec<usize>,
    received: Vec<usize>,
    working: Vec<u32>,
    has_ended: bool,
    is_over: bool,
}

struct Model {
    pair: Pair,
    channels: BTreeMap<ChannelKey, Told>,
}

impl Model {
    fn run(&mut self, op: Op) {
        let keys: Vec<ChannelKey> = self.channels.keys().copied().collect();
        let at = |index: usize| keys.get(index % keys.len().max(1)).copied();
        match op {
            Op::Open => drop(self.pair.client.connection.open(Bytes::new())),
            Op::Push(index, bytes) => {
                let Some(key) = at(index) else { return };
                let server = &mut self.pair.server.connection;
                let told = self.channels.get_mut(&key).unwrap();
                if server.is_available(key) {
                    assert!(server.push(key, Bytes::from(vec![0; bytes])).is_ok());
                    told.pushed.push(bytes);
                }
            }
            Op::End(index) => {
                let Some(key) = at(index) else { return };
                self.pair.server.connection.end(key);
            }
            Op::Reset(index) => {
                let Some(key) = at(index) else { return };
                self.pair.server.connection.reset(key, FIRST_CODE, Bytes::new());
            }
            Op::Cancel(index) => {
                let Some(key) = at(index) else { return };
                self.pair.client.connection.cancel(key);
                self.channels.get_mut(&key).unwrap().is_over = true;
            }
            Op::Work(index) => {
                let Some(key) = at(index) else { return };
                self.work(key);
            }
            Op::Step => self.step(),
            Op::Lose => {
                let pair = Pair::new(CONFIG, self.pair.latency, self.pair.piece);
                *self = Self { pair, channels: BTreeMap::new() };
            }
        }
    }

    fn work(&mut self, key: ChannelKey) {
        if let Some(cost) = self.channels.get_mut(&key).unwrap().working.pop() {
            self.pair.client.connection.recycle(key, cost);
        }
    }

    fn step(&mut self) {
        self.pair.step().unwrap();
        for event in self.pair.server.happened() {
            match event {
                Event::Opened { channel, .. } => drop(self.channels.entry(channel).or_default()),
                event => assert!(matches!(event, Event::Cancelled { .. }), "{event:?}"),
            }
        }
        for event in self.pair.client.happened() {
            let (channel, told) = match &event {
                Event::Data { channel, .. }
                | Event::Ended { channel }
                | Event::Reset { channel, .. } => {
                    (*channel, self.channels.get_mut(channel).unwrap())
                }
                event => panic!("{event:?}"),
            };
            assert!(!told.has_ended && !told.is_over, "{channel}: {event:?} behind its end");
            match event {
                Event::Data { cost, payload, .. } => {
                    told.received.push(payload.len());
                    told.working.push(cost);
                }
                Event::Ended { .. } => {
                    assert_eq!(told.received, told.pushed, "all of it comes before the end");
                    told.has_ended = true;
                }
                _ => told.is_over = true,
            }
        }
    }

    fn check(&self) {
        for told in self.channels.values() {
            assert!(told.pushed.starts_with(&told.received), "in order, nothing lost or twice");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_of_a_channel_arrives_in_order_whatever_happens_to_others(
        latency in 1_u64..9,
        piece in prop_oneof![7_usize..100, 1_000_usize..100_000],
        sequence in prop::collection::vec(ops(), 0..60),
    ) {
        let pair = Pair::new(CONFIG, latency, piece);
        let mut model = Model { pair, channels: BTreeMap::new() };
        for op in sequence {
            model.run(op);
            model.check();
        }
        let keys = |model: &Model| model.channels.keys().copied().collect::<Vec<_>>();
        for _ in 0..200 {
            model.step();
            for key in keys(&model) {
                (0..100).for_each(|_| model.work(key));
                model.pair.server.connection.end(key);
            }
        }
        model.check();
        prop_assert!(model.channels.values().all(|it| it.has_ended || it.is_over));
        prop_assert_eq!(model.pair.client.connection.gate().pool().lent(), 0);
        prop_assert_eq!(model.pair.client.connection.receiving(), 0);
    }

    /// What a peer sends that knows the token costs it the connection, and nothing else.
    #[test]
    fn any_bytes_behind_the_greeting_are_an_error_or_do_nothing(
        bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..14_u8, length in 0..40_u8,
    ) {
        let mut pair = Pair::new(CONFIG, 1, 1000);
        pair.open();
        let mut sent = BytesMut::from(&[length, 0, 0, 0, kind][..]);
        sent.extend_from_slice(&bytes);
        pair.client.incoming.send(sent.freeze(), 0);
        if pair.client.read().is_ok() {
            let mut chunks = Vec::new();
            pair.client.connection.poll_write(usize::MAX, &mut chunks).unwrap();
            prop_assert!(chunks.iter().map(Bytes::len).sum::<usize>() < 10_000);
        }
    }
}
