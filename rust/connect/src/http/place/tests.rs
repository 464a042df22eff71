// SPDX-License-Identifier: Apache-2.0
//! Tests of servers and their connections, without connections.

use super::*;

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
    assert_eq!(longest(&state, now), [2_700; 2]);
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
