// SPDX-License-Identifier: Apache-2.0
//! A limit in time against what it promises: in any time `t`, `burst + rate * t` at most, and as
//! much as that for whoever always takes what there is.

#![expect(clippy::unwrap_used, reason = "numbers of the tests")]

use std::num::NonZeroU64;
use std::time::Duration;

use proptest::prelude::*;
use sparkawait_core::ProcessingTime;
use sparkawait_core::policy::{Gcra, Rate, RateLimit, RateLimitConfig};

/// A call: nanoseconds after the one before when it is wanted, and what it costs.
type Wish = (u64, u64);

fn limit(permits: u64, period: u64, burst: u64) -> RateLimit {
    let rate = Rate::new(NonZeroU64::new(permits).unwrap(), Duration::from_nanos(period));
    let limit = Gcra::new(rate.unwrap(), NonZeroU64::new(burst).unwrap());
    let config = RateLimitConfig {
        limit,
        cost: 1,
        is_per_channel: false,
        counted: None,
        is_per_request: false,
    };
    RateLimit::new(&config, None)
}

/// Starts each call as soon as it is wanted and may; returns when, and what it cost.
fn starts(limit: &mut RateLimit, wishes: &[Wish]) -> Vec<(u64, u64)> {
    let mut now = ProcessingTime::ZERO;
    let mut starts = Vec::new();
    for (pause, cost) in wishes {
        now = ProcessingTime::from_nanos(now.as_nanos() + pause);
        now = now.max(limit.ready_at(now, *cost));
        limit.on_start(now, *cost);
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
        permits in 1_u64..1000, period in 1_u64..1_000_000, burst in 1_u64..50,
        costs in prop::collection::vec(1_u64..50, 10..60),
    ) {
        let wishes: Vec<Wish> = costs.iter().map(|cost| (0, (*cost).min(burst))).collect();
        let starts = starts(&mut limit(permits, period, burst), &wishes);
        let (end, last) = *starts.last().unwrap();
        let taken: u64 = starts.iter().map(|it| it.1).sum();
        // All but what is free at once was paid with time; each start rounds up by two
        // nanoseconds at most.
        let owed = u128::from((taken - last).saturating_sub(burst - last)) * u128::from(period);
        let most = owed.div_ceil(u128::from(permits)) + 2 * starts.len() as u128;
        prop_assert!(u128::from(end) <= most, "{end} ns, {most} are enough");
    }

    #[test]
    fn the_count_of_what_is_left_is_true(
        permits in 1_u64..1000, period in 1_u64..1_000_000, burst in 1_u64..50,
        wishes in prop::collection::vec((0_u64..100_000, 1_u64..50), 1..60),
    ) {
        let mut limit = limit(permits, period, burst);
        let mut now = ProcessingTime::ZERO;
        for (pause, cost) in wishes {
            now = ProcessingTime::from_nanos(now.as_nanos() + pause);
            let left = limit.available(now);
            prop_assert!(left == 0 || limit.ready_at(now, left) <= now);
            prop_assert!(left >= burst || limit.ready_at(now, left + 1) > now);
            now = now.max(limit.ready_at(now, cost));
            limit.on_start(now, cost);
        }
    }
}
