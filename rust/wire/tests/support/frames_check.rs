// SPDX-License-Identifier: Apache-2.0
//! What reading frames keeps to, whatever bytes it is given.

use bytes::{Bytes, BytesMut};
use sparkawait_wire::{Codec, Connection, ConnectionConfig, Event, Frame, Hello, VERSION};

const CONFIG: ConnectionConfig = ConnectionConfig {
    max_frame: 1 << 16,
    max_channels: 4,
    exclusive: 1,
    floating: 2,
    limit: 2,
    max_bytes: 1 << 16,
    max_bytes_per_channel: 1 << 16,
};

const TOKEN: [u8; 16] = [7; 16];

/// What is read is what would be written, and an end that is told anything says little.
pub(crate) fn read(data: &[u8]) {
    round_trip(data);
    converse(data);
}

fn round_trip(data: &[u8]) {
    let codec = Codec::new(CONFIG.max_frame);
    let mut bytes = BytesMut::from(data);
    while let Ok(Some(frame)) = codec.decode(&mut bytes) {
        let mut again = written(frame.clone());
        assert_eq!(codec.decode(&mut again), Ok(Some(frame)));
        assert!(again.is_empty());
    }
    assert!(bytes.capacity() <= data.len() + 2 * CONFIG.max_frame, "no more room than for a frame");
}

fn written(frame: Frame) -> BytesMut {
    let mut bytes = BytesMut::new();
    let payload = Codec::new(CONFIG.max_frame).encode(frame, &mut bytes);
    bytes.extend_from_slice(&payload.expect("it was read, so it is not too long"));
    bytes
}

/// A connection with two channels, whose other end says anything behind its greeting.
fn converse(data: &[u8]) {
    let mut connection = Connection::new(CONFIG, TOKEN);
    let mut bytes = written(Frame::Hello(Hello { version: VERSION, token: TOKEN }));
    connection.handle_read(&mut bytes).expect("it knows the token");
    for _ in 0..2 {
        connection.open(Bytes::new()).expect("four may be open");
    }
    let mut chunks = Vec::new();
    for piece in data.chunks(data.len().div_ceil(3).max(1)) {
        bytes.extend_from_slice(piece);
        let is_over = connection.handle_read(&mut bytes).is_err();
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Data { channel, cost, .. } => connection.recycle(channel, cost),
                Event::Opened { channel, .. } => {
                    #[expect(
                        clippy::let_underscore_must_use,
                        reason = "the one that asks may be told, or have changed its mind"
                    )]
                    let _ = connection.push(channel, Bytes::from_static(b"rows"));
                    connection.end(channel);
                }
                _ => {}
            }
        }
        connection.poll_write(usize::MAX, &mut chunks).expect("all of it is short");
        assert!(is_over || !connection.has_output());
        if is_over {
            break;
        }
    }
    let told = chunks.iter().map(Bytes::len).sum::<usize>();
    assert!(told <= 200 + 10 * data.len(), "{told} bytes for {}", data.len());
    assert!(connection.gate().pool().lent() <= CONFIG.floating);
}
