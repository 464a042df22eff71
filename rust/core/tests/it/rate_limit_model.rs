// SPDX-License-Identifier: Apache-2.0
//! A rate limit against what it promises: in any time `t`, `burst + rate * t` at most, and that
//! much for a caller that always takes all there is.

#![expect(clippy::unwrap_used, reason = "numbers of the tests")]

use std::num::NonZeroU64;
use std::time::Duration;

use proptest::prelude::*;
use sparkawait_core::ProcessingTime;
use sparkawait_core::policy::{Counted, Gcra, Limit, LimitConfig, LimitLeft, Line, Rate, Renewal};

/// A call: nanoseconds after the one before when it is wanted, and what it costs.
type Wish = (u64, u64);

fn limit(permits: u64, period: u64, burst: u64) -> Limit {
    let rate = Rate::new(NonZeroU64::new(permits).unwrap(), Duration::from_nanos(period));
    let limit = Gcra::new(rate.unwrap(), NonZeroU64::new(burst).unwrap());
    let counted = Some(Counted::Requests);
    Limit::new(&LimitConfig { counted, ..LimitConfig::new(limit) }, None)
}

/// Starts each call as soon as it is wanted and may; returns when, and what it cost.
fn starts(limit: &mut Limit, wishes: &[Wish]) -> Vec<(u64, u64)> {
    let mut now = ProcessingTime::ZERO;
    let mut starts = Vec::new();
    for (pause, cost) in wishes {
        now = ProcessingTime::from_nanos(now.as_nanos() + pause);
        now = now.max(limit.ready_at(now, *cost, Line::Records));
        limit.on_start(now, *cost, Line::Records);
        limit.settle(*cost, *cost);
        starts.push((now.as_nanos(), *cost));
    }
    starts
}

proptest! {
    #[test]
    fn no_window_has_more_than_the_burst_and_its_share(
        permits in 1_u64..1000, period in 1_u64..1_000_000, burst in 1_u64..50,
        wishes in prop::collection::vec((0_u64..100_000, 1_u64..50), 1..60),
    ) {
        let wishes: Vec<Wish> = wishes.into_iter().map(|it| (it.0, it.1.min(burst))).collect();
        let starts = starts(&mut limit(permits, period, burst), &wishes);
        for from in 0..starts.len() {
            let mut taken = 0;
            for (until, cost) in &starts[from..] {
                taken += cost;
                let time = u128::from(until - starts[from].0);
                // taken <= burst + permits * time / period, without fractions.
                let most = u128::from(burst) * u128::from(period) + u128::from(permits) * time;
                prop_assert!(u128::from(taken) * u128::from(period) <= most);
            }
        }
    }

    #[test]
    fn whoever_takes_all_there_is_has_the_whole_rate(
        permits in 1_u64..1000, interval in 256_u64..10_000, rest in 0_u64..1000,
        burst in 1_u64..50, costs in prop::collection::vec(1_u64..50, 10..60),
    ) {
        let wishes: Vec<Wish> = costs.iter().map(|cost| (0, (*cost).min(burst))).collect();
        // Of the nanoseconds between permits a part is left over, mostly.
        let period = interval * permits + rest % permits;
        let starts = starts(&mut limit(permits, period, burst), &wishes);
        let (end, last) = *starts.last().unwrap();
        let taken: u64 = starts.iter().map(|it| it.1).sum();
        // All but what is free at once was paid with time, in whole nanoseconds for each permit.
        let owed = (taken - last).saturating_sub(burst - last);
        prop_assert!(end <= owed * period.div_ceil(permits), "{end} ns for {owed} permits");
    }

    #[test]
    fn as_many_may_start_as_start_one_after_the_other(
        permits in 1_u64..1000, period in 1_u64..1_000_000, burst in 1_u64..50,
        wishes in prop::collection::vec((0_u64..100_000, 0_u64..50), 1..60),
        told in prop::option::of((0_u64..50, 1_u64..100_000, any::<bool>())),
    ) {
        let mut limit = limit(permits, period, burst);
        let mut now = ProcessingTime::ZERO;
        if let Some((remaining, renewed_in, is_even)) = told {
            let renewal = if is_even { Renewal::Evenly } else { Renewal::AtOnce };
            let renewed_in = Duration::from_nanos(renewed_in);
            let left = LimitLeft { counted: Counted::Requests, remaining, renewed_in, renewal };
            limit.lower_to(&left, now, now);
        }
        for (pause, cost) in wishes {
            now = ProcessingTime::from_nanos(now.as_nanos() + pause);
            let said = limit.calls(now, cost);
            if cost == 0 {
                prop_assert_eq!(said, u64::MAX);
                continue;
            }
            let mut calls = 0;
            while limit.ready_at(now, cost, Line::Records) <= now {
                prop_assert_eq!(limit.calls(now, cost), said - calls);
                limit.on_start(now, cost, Line::Records);
                limit.settle(cost, cost);
                calls += 1;
            }
            prop_assert_eq!(calls, said);
        }
    }
}

/// Rates of each number of permits a second and a minute, with the burst that users get.
fn usual_rates() -> impl Iterator<Item = (u64, u64, u64)> {
    let of_a_second = (1..=1000).map(|permits| (permits, 1_000_000_000, permits));
    of_a_second.chain((1..=1000).map(|permits| (permits, 60_000_000_000, (permits / 60).max(1))))
}

#[test]
fn a_full_limit_lets_its_burst_start_at_once_and_one_more_with_each_permit() {
    for (permits, period, burst) in usual_rates() {
        let mut limit = limit(permits, period, burst);
        let mut now = ProcessingTime::from_nanos(7 * 60_000_000_000);
        assert_eq!(limit.calls(now, 1), burst, "{permits} in {period} ns");
        assert_eq!(limit.calls(now, burst), 1, "{permits} in {period} ns");
        (0..burst).for_each(|_| limit.on_start(now, 1, Line::Records));
        for _ in 0..13 {
            assert_eq!(limit.calls(now, 1), 0, "{permits} in {period} ns");
            let next = limit.ready_at(now, 1, Line::Records);
            let nanos = next.nanos_since(now);
            assert_eq!(nanos, period.div_ceil(permits), "{permits} in {period} ns");
            now = next;
            assert_eq!(limit.calls(now, 1), 1, "{permits} in {period} ns");
            limit.on_start(now, 1, Line::Records);
        }
    }
}

#[test]
fn rates_beyond_a_permit_a_nanosecond_lose_less_than_a_part_in_a_hundred() {
    let second = 1_000_000_000;
    for permits in [999_999, 3_000_001, 7_654_321, 104_857_600, 600_000_007, 30_000_000_000] {
        let mut limit = limit(permits, second, permits);
        // Calls that cost what comes in 29 us: they are as many as a process can make, or more.
        let cost = (permits * 29 / 1_000_000).max(1);
        let wishes = vec![(0, cost); 3 * usize::try_from(permits / cost).unwrap()];
        let (end, _) = *starts(&mut limit, &wishes).last().unwrap();
        // A third of them was free at once.
        let most = 2 * second + 2 * second / 100;
        assert!((2 * second - second / 1000..most).contains(&end), "{permits}/s: {end} ns");
    }
}
