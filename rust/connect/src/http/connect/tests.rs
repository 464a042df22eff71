// SPDX-License-Identifier: Apache-2.0
//! Tests of connections as a pool sees them.

use h2::server::handshake;
use sparkawait_task::supervision::spawn_aside;
use tokio::io::duplex;
use tokio::runtime::Handle;

use super::*;

const LONG: Duration = Duration::from_secs(3600);

fn open(io: impl Duplex + 'static) -> Wire {
    Wire::new(Box::new(io), Open::new(&Arc::default()))
}

#[tokio::test]
async fn a_connection_of_http2_is_idle_while_no_call_has_a_part_of_it() {
    let (ours, theirs) = duplex(1 << 16);
    spawn_aside(&Handle::current(), "server", async move {
        let mut streams = handshake(theirs).await.unwrap();
        while streams.accept().await.is_some() {}
    });
    let pings = Pings { every: LONG, patience: LONG };
    let shared = SharedLine::new(open(ours), 2, pings).await.unwrap();
    let mut made = Made::Shared(Arc::clone(&shared));
    let (kept, start) = (shared.made + LONG, shared.made);
    assert_eq!((made.room(), made.idle_since(kept)), (2, Some(start)));

    let mut streams: Vec<_> = std::iter::from_fn(|| made.enter()).collect();
    assert_eq!((streams.len(), made.idle_since(kept)), (2, None));
    streams.iter_mut().for_each(Stream::is_answered);
    drop(streams);
    assert!(made.idle_since(kept).is_some_and(|since| since > start && since < kept));
    assert_eq!(made.condition(), Condition::Good);
}

#[tokio::test]
async fn a_connection_of_http1_is_closed_when_its_server_has_closed_it() {
    let (ours, theirs) = duplex(1 << 16);
    let mut made = Made::Line(Line::new(open(ours), false).await.unwrap());
    let kept = Instant::now();
    assert_eq!((made.room(), made.idle_since(kept)), (1, Some(kept)));
    assert_eq!((made.is_shared(), made.condition()), (false, Condition::Good));

    drop(theirs);
    assert_eq!(made.condition(), Condition::Closed);
}
