// SPDX-License-Identifier: Apache-2.0
//! Two ends of a connection, in all that is to happen between them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use sparkawait_wire::connection::CREDIT_BYTES;
use sparkawait_wire::event::{BROKEN, FIRST_CODE, REFUSED};
use sparkawait_wire::{
    ChannelKey, Codec, ConnectionConfig, ConnectionError, Event, Frame, Refused,
};

#[path = "support/pair.rs"]
mod support;

use support::{CONFIG, End, Pair, TOKEN};

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
fn no_room_is_made_for_a_long_frame_of_somebody_who_has_not_said_the_token() {
    let mut end = End::new(CONFIG, TOKEN);
    let mut bytes = BytesMut::new();
    let frame = Frame::Reset {
        channel: ChannelKey { index: 0, generation: 0 },
        code: FIRST_CODE,
        reason: Bytes::new(),
    };
    Codec::new(CONFIG.max_frame).encode(frame, &mut bytes).unwrap();
    let length = u32::try_from(CONFIG.max_frame).unwrap();
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let room = bytes.capacity();

    let read = end.connection.handle_read(&mut bytes);

    assert!(matches!(read, Err(ConnectionError::Frame(_))), "{read:?}");
    assert_eq!(bytes.capacity(), room);
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
        Frame::End { channel: never, sequence: 0 },
        Frame::Data { channel: never, sequence: 0, cost: 1, backlog: 0, payload: Bytes::new() },
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
