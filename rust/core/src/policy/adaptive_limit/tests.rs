// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;

use super::*;
use crate::policy::Costs;

const CONFIG: AdaptiveLimitConfig =
    AdaptiveLimitConfig { initial: 1, min: 1, max: 100, max_latency: None };

fn at(nanos: u64) -> ProcessingTime {
    ProcessingTime::from_nanos(nanos)
}

fn ended(started: u64, ended: u64, in_flight: u32, sign: CallSign) -> EndedCall {
    EndedCall {
        started: at(started),
        ended: at(ended),
        in_flight,
        sign,
        charged: Costs::NONE,
        cost: Costs::NONE,
    }
}

/// Tells of a call; returns whether the limit changed.
fn observe(limit: &mut AdaptiveLimit, call: EndedCall) -> bool {
    let before = limit.limit();
    limit.on_end(&call);
    limit.limit() != before
}

/// A call from 0 to `ended_at` beside as many others as are allowed.
fn call(limit: &AdaptiveLimit, ended_at: u64, sign: CallSign) -> EndedCall {
    ended(0, ended_at, limit.limit(), sign)
}

fn limit_of(initial: u32) -> AdaptiveLimit {
    AdaptiveLimit::new(AdaptiveLimitConfig { initial, ..CONFIG })
}

/// Ends all calls of a round trip that starts at `start`; returns the limit then.
fn round_trip(limit: &mut AdaptiveLimit, start: u64, sign: CallSign) -> u32 {
    let in_flight = limit.limit();
    for _ in 0..in_flight {
        limit.on_end(&ended(start, start + 1, in_flight, sign));
    }
    limit.limit()
}

#[test]
fn the_limit_doubles_in_a_round_trip_until_a_call_is_dropped() {
    let mut limit = limit_of(1);

    let limits: Vec<u32> = (0..8).map(|_| round_trip(&mut limit, 0, CallSign::Good)).collect();

    assert_eq!(limits, [2, 4, 8, 16, 32, 64, 100, 100]);
}

#[test]
fn calls_that_are_dropped_together_take_a_tenth_once() {
    let mut limit = limit_of(50);

    assert_eq!(round_trip(&mut limit, 0, CallSign::Overloaded), 45);
    assert_eq!(round_trip(&mut limit, 1, CallSign::Overloaded), 40);
}

#[test]
fn the_limit_grows_by_one_in_a_round_trip_after_a_drop() {
    let mut limit = limit_of(10);
    round_trip(&mut limit, 0, CallSign::Overloaded);

    let limits: Vec<u32> = (1..4).map(|it| round_trip(&mut limit, it, CallSign::Good)).collect();

    assert_eq!(limits, [10, 11, 12]);
}

#[test]
fn a_limit_that_is_not_used_does_not_grow() {
    let mut limit = limit_of(11);

    for (in_flight, grows) in [(5, false), (6, true)] {
        let call = EndedCall { in_flight, ..call(&limit, 1, CallSign::Good) };
        assert_eq!(observe(&mut limit, call), grows);
    }
}

#[test]
fn a_slow_call_counts_as_dropped_whatever_it_came_to() {
    let max_latency = Some(Duration::from_nanos(5));
    let config = AdaptiveLimitConfig { initial: 10, max_latency, ..CONFIG };

    for sign in [CallSign::Good, CallSign::Neutral, CallSign::Overloaded] {
        let mut limit = AdaptiveLimit::new(config);
        limit.on_end(&call(&limit, 6, sign));
        assert_eq!(limit.limit(), 9);
    }
    let mut limit = AdaptiveLimit::new(config);
    limit.on_end(&call(&limit, 5, CallSign::Good));
    assert_eq!(limit.limit(), 11);
}

#[test]
fn a_failure_of_one_row_says_nothing() {
    let mut limit = limit_of(10);
    let call = call(&limit, 1, CallSign::Neutral);

    assert!(!observe(&mut limit, call));
}

#[test]
fn bounds_that_contradict_each_other_are_set_right() {
    let config = AdaptiveLimitConfig { initial: 9, min: 7, max: 50, max_latency: None };

    let sound = config.sound(5);

    assert_eq!((sound.initial, sound.min, sound.max), (5, 5, 5));
}

fn signs() -> impl Strategy<Value = CallSign> {
    prop_oneof![3 => Just(CallSign::Good), 1 => Just(CallSign::Overloaded), 1 => Just(CallSign::Neutral)]
}

proptest! {
    #[test]
    fn the_limit_stays_within_its_bounds_and_moves_with_the_sign(
        (min, more, initial) in (1_u32..20, 0_u32..50, 0_u32..80),
        calls in prop::collection::vec((0_u64..30, 0_u64..30, 1_u32..80, signs()), 0..200),
    ) {
        let config = AdaptiveLimitConfig { initial, min, max: min + more, max_latency: None };
        let config = config.sound(u32::MAX);
        let mut limit = AdaptiveLimit::new(config);
        let mut lowered_at = 0;
        for (started, took, in_flight, sign) in calls {
            let before = limit.limit();
            let call = ended(started, started + took, in_flight, sign);

            let is_changed = observe(&mut limit, call);

            let now = limit.limit();
            prop_assert!((config.min..=config.max).contains(&now));
            prop_assert_eq!(is_changed, now != before);
            if started < lowered_at {
                prop_assert_eq!(now, before);
            }
            match sign {
                CallSign::Good => prop_assert!(now == before || now == before + 1),
                sign if sign.is_drop() => prop_assert!(now <= before),
                _ => prop_assert_eq!(now, before),
            }
            if sign == CallSign::Overloaded && started >= lowered_at {
                lowered_at = started + took;
            }
        }
    }

    #[test]
    fn the_limit_settles_near_what_the_destination_bears(
        bears in 5_u32..90,
        initial in 1_u32..100,
    ) {
        let mut limit = limit_of(initial);
        // A drop takes a round trip to be seen; it lowers the limit below what is borne at last.
        for round in 0..200 {
            let in_flight = limit.limit();
            for number in 0..in_flight {
                let sign = if number < bears { CallSign::Good } else { CallSign::Overloaded };
                limit.on_end(&ended(round, round + 1, in_flight, sign));
            }
            if round > 50 {
                let least = (bears - bears.div_ceil(10)).saturating_sub(1);
                prop_assert!((least..=bears + 2).contains(&limit.limit()), "{}", limit.limit());
            }
        }
    }
}
