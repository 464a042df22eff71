// SPDX-License-Identifier: Apache-2.0
//! Limits of the host that become others while processes take from them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use sparkawait_core::ProcessingTime;
use sparkawait_core::policy::{Answer, Gcra, Ledgers, MAX_LIMITS, Rate};
use sparkawait_runtime::clock::Clock;
use sparkawait_runtime::host_limit::{HostClock, HostLimit, HostLimits, SharedTerms, page_of};
use sparkawait_runtime::shared_page::{PageError, SharedPage};

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("sparkawait-test-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn page(&self) -> PathBuf {
        page_of(&self.0.join("own"), "application-1")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn limit(permits: u64, burst: u64) -> Gcra {
    let rate = Rate::new(NonZeroU64::new(permits).unwrap(), Duration::from_secs(1)).unwrap();
    Gcra::new(rate, NonZeroU64::new(burst).unwrap())
}

fn open(path: &Path, name: &str, gcra: Gcra) -> HostLimit {
    HostLimit::new(Arc::new(SharedPage::open(path).unwrap()), name, gcra).unwrap()
}

#[test]
fn a_limit_that_is_set_holds_in_all_processes_at_once() {
    let directory = Directory::new("set");
    // Each is a process's: they share the page alone.
    let shares: Vec<_> = (0..3).map(|_| open(&directory.page(), "a", limit(600, 600))).collect();
    let mut now = ProcessingTime::ZERO + Duration::from_secs(97);
    let take = |now: ProcessingTime, time: Duration| {
        let (mut at, mut count) = (now, 0);
        while at < now + time {
            for share in &shares {
                while share.reserve(1, at, Duration::ZERO).is_ok() {
                    count += 1;
                }
            }
            at = at + Duration::from_millis(7);
        }
        count
    };
    assert!((1_797..=1_803).contains(&take(now, Duration::from_secs(2))), "and what was saved");
    now = now + Duration::from_secs(2);
    for (permits, burst) in [(13, 3), (997, 997), (61, 61), (7, 1)] {
        shares[0].set(limit(permits, burst), now).unwrap();
        let count = take(now, Duration::from_secs(10));
        let most = 10 * permits + 3;
        assert!((10 * permits - 8..=most).contains(&count), "{count}: {permits}, {burst}");
        now = now + Duration::from_secs(10);
        assert!(shares.iter().all(|it| it.terms() == limit(permits, burst)));
    }
    // Who comes later says the terms that it had first.
    let late = open(&directory.page(), "a", limit(600, 600));
    assert_eq!(late.terms(), limit(7, 1));
    assert_eq!(open(&directory.page(), "b", limit(600, 600)).terms(), limit(600, 600));
}

#[test]
fn a_rate_that_is_set_is_for_any_time() {
    let directory = Directory::new("times");
    let share = open(&directory.page(), "a", limit(600, 600));
    let gcra = |permits: u64, period| {
        let rate = Rate::new(NonZeroU64::new(permits).unwrap(), period).unwrap();
        Gcra::new(rate, NonZeroU64::MIN)
    };
    for (permits, period) in [
        (3, Duration::from_secs(60)),
        (5_000, Duration::from_secs(3_600)),
        (100_000, Duration::from_secs(86_400)),
        (10, Duration::from_secs(86_400)),
        (7, Duration::from_secs(100 * 86_400)),
        (1, Duration::from_secs(100 * 86_400)),
        (3, Duration::from_millis(31_000_001)),
        (1_000_000_000, Duration::from_secs(1)),
        (7, Duration::from_nanos(1_333)),
    ] {
        share.set(gcra(permits, period), HostClock.now()).unwrap();
        let found = share.terms().rate();
        let (left, right) = (found.permits().get(), permits);
        let (over, under) = (period.as_nanos(), u128::from(found.period().get()));
        assert_eq!(u128::from(left) * over, u128::from(right) * under);
    }
    let odd = gcra(1_000_003, Duration::from_nanos(86_413_000_000_001));
    assert!(matches!(share.set(odd, HostClock.now()), Err(PageError::OddRate)));
}

#[test]
fn a_call_that_waits_for_a_slow_limit_begins_soon_after_it_was_raised() {
    let directory = Directory::new("raised");
    let rate = Rate::new(NonZeroU64::MIN, Duration::from_secs(60)).unwrap();
    let slow = Gcra::new(rate, NonZeroU64::MIN);
    let terms = SharedTerms { name: "a".to_owned(), limit: slow, holder: None };
    let mut all = [const { None }; MAX_LIMITS];
    all[0] = Some(terms);
    let limits = HostLimits::open(&directory.page(), all).unwrap();
    let ledger = limits.open(0, None).unwrap();
    let now = ProcessingTime::ZERO + Duration::from_secs(7);
    assert!(matches!(ledger.ask(1, now), Answer::Ticket(at) if at == now));
    for _ in 0..3 {
        let Answer::At(again) = ledger.ask(1, now) else { panic!("the line is long") };
        assert!(again <= now + Duration::from_millis(250), "it looks whether it still is");
    }
    open(&directory.page(), "a", slow).set(limit(997, 997), HostClock.now()).unwrap();
    let Answer::Ticket(at) = ledger.ask(1, now) else { panic!("there are enough") };
    assert!(at <= now + Duration::from_millis(250));
}
