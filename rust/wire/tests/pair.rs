// SPDX-License-Identifier: Apache-2.0
//! Two ends of a connection over a virtual network: bytes take their time and come in any pieces, a
//! connection is lost with what is on its way.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use sparkawait_core::ProcessingTime;
use sparkawait_wire::connection::CREDIT_BYTES;
use sparkawait_wire::event::{BROKEN, FIRST_CODE, REFUSED};
use sparkawait_wire::{
    ChannelKey, Codec, Connection, ConnectionConfig, ConnectionError, Event, Frame, Refused,
};

#[path = "../../core/tests/support/network.rs"]
mod network;

use network::Link;

const TOKEN: [u8; 16] = [7; 16];

const CONFIG: ConnectionConfig = ConnectionConfig {
    max_frame: 1 << 20,
    max_channels: 8,
    exclusive: 2,
    floating: 8,
    limit: 6,
    max_bytes: 4 << 20,
    max_bytes_per_channel: 1 << 20,
    greeting: Duration::from_secs(2),
};

/// One end, and what is on its way to it.
struct End {
    connection: Connection,
    received: BytesMut,
    incoming: Link<Bytes>,
    events: Vec<Event>,
}

impl End {
    fn new(config: ConnectionConfig, token: [u8; 16]) -> Self {
        let connection = Connection::new(config, token, ProcessingTime::from_nanos(0));
        let (received, incoming) = (BytesMut::new(), Link::default());
        Self { connection, received, incoming, events: Vec::new() }
    }

    fn write(&mut self, to: &mut Self, latency: u64, piece: usize) -> Result<(), ConnectionError> {
        let mut chunks = Vec::new();
        self.connection.poll_write(256 << 10, &mut chunks)?;
        let written = chunks.into_iter().flatten().collect::<BytesMut>().freeze();
        for start in (0..written.len()).step_by(piece) {
            let end = written.len().min(start + piece);
            to.incoming.send(written.slice(start..end), latency);
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), ConnectionError> {
        while let Some(bytes) = self.incoming.receive() {
            self.received.extend_from_slice(&bytes);
            self.connection.handle_read(&mut self.received)?;
            self.events.extend(std::iter::from_fn(|| self.connection.poll_event()));
        }
        Ok(())
    }

    /// Takes what has happened.
    fn happened(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

struct Pair {
    client: End,
    server: End,
    latency: u64,
    /// Bytes that come at once.
    piece: usize,
}

impl Pair {
    fn new(config: ConnectionConfig, latency: u64, piece: usize) -> Self {
        let (client, server) = (End::new(config, TOKEN), End::new(config, TOKEN));
        let mut pair = Self { client, server, latency, piece };
        pair.settle().unwrap();
        assert_eq!(pair.client.happened(), [Event::Greeted]);
        assert_eq!(pair.server.happened(), [Event::Greeted]);
        pair
    }

    /// Writes what there is, and lets it arrive.
    fn step(&mut self) -> Result<(), ConnectionError> {
        let Self { client, server, latency, piece } = self;
        client.write(server, *latency, *piece)?;
        server.write(client, *latency, *piece)?;
        for end in [client, server] {
            end.incoming.pass(*latency);
            end.read()?;
        }
        Ok(())
    }

    /// Lets everything happen that nobody waits for.
    fn settle(&mut self) -> Result<(), ConnectionError> {
        self.step()?;
        while self.client.connection.has_output() || self.server.connection.has_output() {
            self.step()?;
        }
        Ok(())
    }

    /// Has the client ask for something that the server sends; it has the same name at both ends.
    fn open(&mut self) -> ChannelKey {
        let channel = self.client.connection.open(Bytes::from_static(b"what")).unwrap();
        self.settle().unwrap();
        let subject = Bytes::from_static(b"what");
        assert_eq!(self.server.happened(), [Event::Opened { channel, subject }]);
        channel
    }

    /// Has the client work off what it received, but for one channel; returns how many of each.
    fn work(&mut self, stalled: Option<ChannelKey>) -> BTreeMap<ChannelKey, usize> {
        let mut counts = BTreeMap::new();
        for event in self.client.happened() {
            let Event::Data { channel, cost, .. } = event else { continue };
            if Some(channel) != stalled {
                *counts.entry(channel).or_default() += 1;
                self.client.connection.recycle(channel, cost);
            }
        }
        counts
    }
}

fn piece(number: usize) -> Bytes {
    Bytes::from(vec![u8::try_from(number % 251).unwrap(); CREDIT_BYTES])
}

#[test]
fn all_that_is_sent_arrives_in_order_and_then_the_end() {
    let mut pair = Pair::new(CONFIG, 5, 1000);
    let channel = pair.open();
    let (mut sent, mut received) = (0, Vec::new());
    let mut has_ended = false;
    while !has_ended {
        while sent < 40 && pair.server.connection.is_available(channel) {
            pair.server.connection.push(channel, piece(sent)).unwrap();
            sent += 1;
        }
        if sent == 40 {
            pair.server.connection.end(channel);
        }
        pair.step().unwrap();
        for event in pair.client.happened() {
            match event {
                Event::Data { channel, cost, payload } => {
                    received.push(payload);
                    pair.client.connection.recycle(channel, cost);
                }
                event => {
                    assert_eq!(event, Event::Ended { channel });
                    has_ended = true;
                }
            }
        }
    }
    assert_eq!(received, (0..40).map(piece).collect::<Vec<_>>());
    assert_eq!(pair.client.connection.gate().pool().lent(), 0);
    assert_eq!(pair.client.connection.receiving(), 0);
}

/// Messages of each channel that get through in so many rounds.
fn throughput(channels: usize, stalls: bool) -> Vec<usize> {
    let mut pair = Pair::new(CONFIG, 5, 64 << 10);
    let opened: Vec<_> = (0..channels).map(|_| pair.open()).collect();
    let stalled = stalls.then(|| opened[0]);
    let mut counts: BTreeMap<ChannelKey, usize> = opened.iter().map(|it| (*it, 0)).collect();
    for _ in 0..200 {
        for channel in &opened {
            if pair.server.connection.is_available(*channel) {
                pair.server.connection.push(*channel, piece(0)).unwrap();
            }
        }
        pair.step().unwrap();
        for (channel, count) in pair.work(stalled) {
            *counts.get_mut(&channel).unwrap() += count;
        }
    }
    opened.iter().map(|it| counts[it]).collect()
}

#[test]
fn a_stalled_shard_does_not_hold_the_others() {
    let (undisturbed, beside) = (throughput(4, false), throughput(4, true));

    assert_eq!(beside[0], 0);
    let others = |counts: &[usize]| counts[1..].iter().sum::<usize>();
    let share = (others(&beside) * 100).div_ceil(others(&undisturbed));
    assert!(share >= 95, "{share} % of {undisturbed:?}: {beside:?}");
    assert!(others(&undisturbed) >= 3 * 190, "{undisturbed:?}");
}

#[test]
fn what_a_stalled_shard_holds_has_a_bound() {
    let mut pair = Pair::new(CONFIG, 5, 64 << 10);
    let channel = pair.open();
    let mut pushed = 0;
    while pair.server.connection.push(channel, piece(0)).is_ok() {
        pushed += 1;
        pair.step().unwrap();
    }
    let held = pair.client.happened().len();
    assert_eq!(held, CONFIG.limit as usize);
    assert_eq!(pushed - held, CONFIG.max_bytes / CREDIT_BYTES);
    assert!(!pair.server.connection.is_available(channel));
}

#[test]
fn a_message_larger_than_all_credits_gets_through() {
    let mut pair = Pair::new(CONFIG, 5, 64 << 10);
    let channel = pair.open();
    let large = Bytes::from(vec![1; 12 * CREDIT_BYTES]);
    for _ in 0..3 {
        pair.server.connection.push(channel, large.clone()).unwrap();
    }
    let mut count = 0;
    for _ in 0..10 {
        pair.settle().unwrap();
        count += pair.work(None).values().sum::<usize>();
    }
    assert_eq!(count, 3);
}

#[test]
fn who_wants_no_more_gets_no_more_and_the_place_is_used_again() {
    let mut pair = Pair::new(CONFIG, 5, 1000);
    let first = pair.open();
    pair.server.connection.push(first, piece(0)).unwrap();
    pair.server.connection.push(first, piece(1)).unwrap();

    pair.client.connection.cancel(first);
    let second = pair.client.connection.open(Bytes::new()).unwrap();
    pair.settle().unwrap();

    let opened = Event::Opened { channel: second, subject: Bytes::new() };
    assert_eq!(pair.server.happened(), [Event::Cancelled { channel: first }, opened]);
    assert_eq!(second, ChannelKey { index: first.index, generation: first.generation + 1 });
    assert_eq!(pair.client.happened(), [], "what was on its way is of nobody's interest");
    assert_eq!(pair.server.connection.push(first, piece(2)), Err(piece(2)));
    pair.server.connection.push(second, piece(3)).unwrap();
    pair.settle().unwrap();
    assert_eq!(pair.work(None), BTreeMap::from([(second, 1)]));
}

#[test]
fn a_reset_tells_why_and_costs_the_others_nothing() {
    let mut pair = Pair::new(CONFIG, 5, 1000);
    let (bad, good) = (pair.open(), pair.open());
    pair.server.connection.push(bad, piece(0)).unwrap();
    pair.server.connection.push(good, piece(0)).unwrap();

    pair.server.connection.reset(bad, FIRST_CODE, Bytes::from_static(b"down"));
    pair.settle().unwrap();

    let reset =
        Event::Reset { channel: bad, code: FIRST_CODE, reason: Bytes::from_static(b"down") };
    let data = Event::Data { channel: good, cost: 1, payload: piece(0) };
    let happened = pair.client.happened();
    assert_eq!(happened.len(), 2);
    assert!(happened.contains(&reset) && happened.contains(&data), "{happened:?}");
}

#[test]
fn who_goes_away_finishes_what_is_open() {
    let mut pair = Pair::new(CONFIG, 5, 1000);
    let open = pair.open();
    // It is asked for before it is known that nothing is given any more.
    pair.server.connection.go_away(FIRST_CODE, Bytes::new());
    let late = pair.client.connection.open(Bytes::new()).unwrap();
    pair.settle().unwrap();

    let happened = pair.client.happened();
    assert_eq!(happened[0], Event::GoneAway { code: FIRST_CODE, reason: Bytes::new() });
    let reason = Bytes::from_static(b"going away");
    assert_eq!(happened[1..], [Event::Reset { channel: late, code: REFUSED, reason }]);
    assert_eq!(pair.client.connection.open(Bytes::new()), Err(Refused::GoingAway));
    assert_eq!(pair.server.happened(), []);
    pair.server.connection.push(open, piece(0)).unwrap();
    pair.settle().unwrap();
    assert_eq!(pair.work(None).len(), 1);
}

#[test]
fn no_more_channels_are_open_than_may_be() {
    let mut pair = Pair::new(CONFIG, 5, 1000);
    for _ in 0..CONFIG.max_channels {
        pair.open();
    }
    assert_eq!(pair.client.connection.open(Bytes::new()), Err(Refused::TooMany(8)));

    let mut few = Pair::new(CONFIG, 5, 1000);
    few.server = End::new(ConnectionConfig { max_channels: 1, ..CONFIG }, TOKEN);
    few.client = End::new(CONFIG, TOKEN);
    let [_, refused] = [(); 2].map(|()| few.client.connection.open(Bytes::new()).unwrap());
    few.settle().unwrap();
    let reason = Bytes::from_static(b"channel `1.0` is beyond the 1 that may be open");
    let reset = Event::Reset { channel: refused, code: REFUSED, reason };
    assert_eq!(few.client.happened(), [Event::Greeted, reset]);
    few.client.connection.cancel(refused);
    few.settle().unwrap();
}

#[test]
fn the_place_of_a_channel_is_free_when_all_that_came_on_it_is_recycled() {
    let mut pair = Pair::new(CONFIG, 5, 1000);
    let opened: Vec<_> = (0..CONFIG.max_channels).map(|_| pair.open()).collect();
    pair.server.connection.push(opened[3], piece(0)).unwrap();
    pair.settle().unwrap();
    let data = Event::Data { channel: opened[3], cost: 1, payload: piece(0) };
    assert_eq!(pair.client.happened(), [data]);

    pair.client.connection.cancel(opened[3]);
    assert_eq!(pair.client.connection.open(Bytes::new()), Err(Refused::TooMany(8)));

    pair.client.connection.recycle(opened[3], 1);
    let channel = pair.client.connection.open(Bytes::new()).unwrap();
    pair.settle().unwrap();
    let opened = Event::Opened { channel, subject: Bytes::new() };
    assert_eq!(pair.server.happened().pop(), Some(opened));
    assert_eq!(pair.client.happened(), []);
}

#[test]
fn nobody_hears_more_than_a_greeting_who_does_not_know_the_token() {
    let mut pair = Pair::new(CONFIG, 5, 1000);
    pair.client = End::new(CONFIG, [8; 16]);
    pair.server = End::new(CONFIG, TOKEN);
    pair.client.connection.open(Bytes::from_static(b"secret")).unwrap();

    assert_eq!(pair.step(), Err(ConnectionError::NotGreeted));

    let mut chunks = Vec::new();
    pair.client.connection.poll_write(usize::MAX, &mut chunks).unwrap();
    assert_eq!(chunks, Vec::<Bytes>::new());
    assert_eq!(pair.server.happened(), []);
}

#[test]
fn who_says_nothing_is_not_waited_for() {
    let mut end = End::new(CONFIG, TOKEN);
    let until = end.connection.next_deadline().unwrap();

    assert_eq!(end.connection.handle_timeout(ProcessingTime::from_nanos(1)), Ok(()));
    let error = end.connection.handle_timeout(until).unwrap_err();

    assert_eq!(error, ConnectionError::Silent(CONFIG.greeting));
}

/// Has the server say something that it should not.
fn say(pair: &mut Pair, frame: Frame) -> Result<(), ConnectionError> {
    let mut bytes = BytesMut::new();
    let payload = Codec::new(CONFIG.max_frame).encode(frame, &mut bytes).unwrap();
    bytes.extend_from_slice(&payload);
    pair.client.incoming.send(bytes.freeze(), 0);
    pair.client.read()
}

#[test]
fn who_breaks_a_channel_loses_it_and_no_other() {
    let data = |channel, sequence, cost| {
        let payload = piece(0);
        Frame::Data { channel, sequence, cost, backlog: 0, payload }
    };
    for (sequence, cost) in [(7, 1), (0, 2)] {
        let mut pair = Pair::new(CONFIG, 5, 1000);
        let (bad, good) = (pair.open(), pair.open());

        say(&mut pair, data(bad, sequence, cost)).unwrap();
        say(&mut pair, data(bad, sequence, cost)).unwrap();
        say(&mut pair, data(good, 0, 1)).unwrap();

        let happened = pair.client.happened();
        let is_broken = |it: &Event| matches!(it, Event::Reset { channel, code: BROKEN, .. } if *channel == bad);
        assert!(is_broken(&happened[0]), "{happened:?}");
        assert_eq!(happened[1..], [Event::Data { channel: good, cost: 1, payload: piece(0) }]);
        pair.settle().unwrap();
        assert_eq!(pair.server.happened(), [Event::Cancelled { channel: bad }]);
    }
}

#[test]
fn who_names_a_channel_that_never_was_is_not_listened_to() {
    let never = ChannelKey { index: 3, generation: 9 };
    for frame in [
        Frame::AddCredit { channel: never, credit: 1 },
        Frame::Backlog { channel: never, backlog: 1 },
        Frame::End { channel: never, sequence: 0 },
        Frame::Resume { channel: never },
    ] {
        let mut pair = Pair::new(CONFIG, 5, 1000);
        let open = pair.open();
        let error = say(&mut pair, frame).unwrap_err();
        assert!(error.to_string().contains("channel `3.9` was never"), "{error}");

        // It is told why, and nothing else.
        pair.client.connection.cancel(open);
        pair.client.connection.push(open, piece(0)).unwrap_err();
        let Pair { client, server, .. } = &mut pair;
        client.write(server, 1, 7).unwrap();
        server.incoming.pass(1);
        server.read().unwrap();
        let reason = Bytes::from(error.to_string());
        assert_eq!(server.happened()[0], Event::GoneAway { code: BROKEN, reason });
        assert_eq!(server.connection.open(Bytes::new()), Err(Refused::GoingAway));
    }
}

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
