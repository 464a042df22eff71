// SPDX-License-Identifier: Apache-2.0
//! Tests of servers and their connections, without connections.

use h2::server::handshake;
use sparkawait_task::supervision::spawn_aside;
use tokio::io::{DuplexStream, duplex};
use tokio::runtime::Handle;

use super::*;
use crate::http::http2::Pings;
use crate::http::wire::{Open, Wire};

const LONG: Duration = Duration::from_secs(3600);

fn state(speaks: Option<Protocol>, streams: usize) -> State {
    State::new(speaks, streams)
}

/// What a call does, as a word.
fn next(state: &mut State, now: Instant) -> &'static str {
    match state.next(now, true, false, false) {
        Next::Take(_) => "take",
        Next::Share(_) => "share",
        Next::Make(None) => "make",
        Next::Make(Some(_)) => "seek",
        Next::Wait(_) => "wait",
    }
}

#[test]
fn the_time_that_a_server_keeps_connections_is_read() {
    let read = |text: &'static str| announced(&HeaderValue::from_static(text));
    assert_eq!(read("timeout=5, max=100"), Some(Duration::from_secs(5)));
    assert_eq!(read("max=7 , Timeout = 17"), Some(Duration::from_secs(17)));
    for text in ["", "max=3", "timeout", "timeout=x", "timeout=-1"] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn a_connection_is_closed_before_its_server_does_so() {
    let now = Instant::now();
    let mut state = state(None, 1);
    let longest = |state: &State, now| {
        [false, true].map(|careful| state.longest_idle(now, careful).as_millis())
    };
    assert_eq!(longest(&state, now), [60_000, 4_000], "nobody has said anything");

    state.seen = Some((Duration::from_millis(2_700), now));
    assert_eq!(longest(&state, now), [1_700; 2], "a request takes a while to get there");
    state.seen = Some((Duration::from_millis(7_700), now));
    assert_eq!(longest(&state, now), [6_700, 4_000], "the next one may be closed earlier");
    state.announced = Some(Duration::from_secs(2));
    assert_eq!(longest(&state, now), [1_000; 2], "the smaller one");
    assert_eq!(longest(&state, now + LONG), [1_000; 2]);

    state.announced = None;
    assert_eq!(longest(&state, now + LONG), [60_000, 4_000], "what was seen long ago is forgotten");
    state.announced = Some(Duration::from_secs(1));
    assert_eq!(longest(&state, now), [500; 2]);
    state.announced = Some(Duration::from_secs(17));
    assert_eq!(longest(&state, now + LONG), [16_000; 2], "it may be longer too");
    state.announced = Some(LONG);
    assert_eq!(longest(&state, now + LONG), [60_000; 2]);
}

/// A connection without a server, and what keeps it open.
fn wire() -> (Wire, DuplexStream) {
    let (ours, theirs) = duplex(1 << 16);
    (Wire::new(Box::new(ours), Open::new(&Arc::default())), theirs)
}

/// Has calls come that must not be sent twice, all at a time; returns how many connections stay.
async fn calls(state: &mut State, now: Instant, open: &mut Vec<DuplexStream>) -> usize {
    let mut lines = Vec::new();
    for _ in 0..13 {
        lines.push(if let Next::Take(line) = state.next(now, false, false, true) {
            line
        } else {
            let (ours, theirs) = wire();
            open.push(theirs);
            Line::new(ours, false).await.unwrap()
        });
    }
    for line in lines {
        state.keep(line, now);
    }
    state.idle.len()
}

#[tokio::test]
async fn calls_that_must_not_be_sent_twice_do_not_gather_connections() {
    let (mut state, mut open) = (state(Some(Protocol::Http1), 1), Vec::new());
    let start = Instant::now();
    let every = Duration::from_millis(4_700);
    for round in 0..10 {
        let now = start + every * round;
        assert_eq!(calls(&mut state, now, &mut open).await, 13, "round {round}");
    }
    let now = start + every * 9;
    let _made = state.next(now, false, false, false);
    let kept = calls(&mut state, now + every, &mut open).await;
    assert_eq!(kept, 13 + 12, "others may use the old ones, and have used one");

    assert!(state.sweep(now + every * 2));
    assert_eq!(state.idle.len(), 25);
    let later = now + ONLY_CAREFUL;
    assert_eq!(calls(&mut state, later, &mut open).await, 13);
    assert!(!state.sweep(later + CAREFUL_IDLE));
}

#[tokio::test]
async fn a_connection_of_http2_is_idle_as_one_of_http1_is() {
    let (ours, theirs) = wire();
    spawn_aside(&Handle::current(), "server", async move {
        let mut streams = handshake(theirs).await.unwrap();
        while streams.accept().await.is_some() {}
    });
    let pings = Pings { every: LONG, patience: LONG };
    let line = SharedLine::new(ours, 7, pings).await.unwrap();
    let mut state = state(Some(Protocol::Http2), 7);
    state.share(&line);
    let soon = line.made + CAREFUL_IDLE - Duration::from_millis(1);
    let take = |state: &mut State, now, careful| {
        let mut stream = state.take_stream(now, careful);
        stream.iter_mut().for_each(Stream::is_answered);
        stream
    };
    assert!(take(&mut state, soon, true).is_some());

    let late = line.idle_since().unwrap() + CAREFUL_IDLE;
    assert!(take(&mut state, late, true).is_none());
    let under_way = take(&mut state, late, false);
    assert!(under_way.is_some());
    assert!(take(&mut state, late, true).is_some(), "it is not idle");
    drop(under_way);

    state.carefree_at = Some(late);
    assert!(state.sweep(late));
    assert!(!state.sweep(late + HIGHEST_IDLE + LONG));
}

#[test]
fn one_call_makes_the_first_connection_and_the_others_wait() {
    let now = Instant::now();
    let mut state = state(None, 100);
    assert_eq!([(); 3].map(|()| next(&mut state, now)), ["seek", "wait", "wait"]);

    state.sought(Some(1), Some(Protocol::Http1));
    assert_eq!(next(&mut state, now), "make", "over HTTP/1.1 each has its own");
}

#[test]
fn as_many_connections_are_made_at_a_time_as_the_waiting_calls_need() {
    let now = Instant::now();
    let mut state = state(Some(Protocol::Http2), 7);
    let mut seeks = 0;
    for _ in 0..23 {
        seeks += usize::from(next(&mut state, now) == "seek");
        state.lacking += 1;
    }
    assert_eq!(seeks, 4);
}

#[test]
fn a_server_that_takes_no_request_for_the_moment_gets_few_connections() {
    let start = Instant::now();
    let mut made: Vec<Instant> = Vec::new();
    for millisecond in 0..63_000 {
        let now = start + Duration::from_millis(millisecond);
        if next_beside(made.iter().copied()).is_none_or(|it| it <= now) {
            made.push(now);
        }
    }
    let seconds: Vec<u64> = made.iter().map(|it| (*it - start).as_secs()).collect();
    assert_eq!(seconds, [0, 1, 3, 7, 15, 31]);
}

#[test]
fn after_connections_that_stall_or_fail_more_are_made_at_a_time() {
    let mut now = Instant::now();
    let mut state = state(None, 100);
    let seeks =
        |state: &mut State, now| (0..100).take_while(|_| next(state, now) == "seek").count();
    for expected in [1, 2, 4, 8] {
        assert_eq!(seeks(&mut state, now), expected);
        now += PATIENCE;
    }
    state.seeks.clear();
    state.sought(Some(99), None);
    assert_eq!(seeks(&mut state, now), 16);
    state.sought(Some(16), Some(Protocol::Http2));
    state.seeks.clear();
    assert_eq!(seeks(&mut state, now), 1, "one that was made ends that");
}

#[test]
fn without_http2_nobody_waits_for_anybody() {
    let mut state = state(None, 1);
    for _ in 0..3 {
        assert!(matches!(state.next(Instant::now(), false, false, false), Next::Make(None)));
    }
}

#[tokio::test]
async fn what_is_made_for_calls_that_gave_up_is_bounded_and_the_first_is_taken_first() {
    let mut state = state(Some(Protocol::Http1), 1);
    let (ours, _theirs) = wire();
    let made = Line::new(ours, false).await.unwrap();
    state.leave(Dial::start(std::future::pending()));
    state.leave(Dial::start(async { Ok(Some(made)) }));
    state.leave(Dial::start(async { Ok(None) }));
    tokio::task::yield_now().await;

    assert!(matches!(state.next(Instant::now(), false, false, false), Next::Take(_)));
    assert_eq!((state.left.len(), state.idle.len()), (1, 0), "one is under way");
    assert!(!state.is_empty() && state.adopt().is_some() && state.is_empty());

    for _ in 0..MOST_LEFT + 3 {
        state.leave(Dial::start(std::future::pending()));
    }
    assert_eq!(state.left.len(), MOST_LEFT);
}
