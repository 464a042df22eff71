// SPDX-License-Identifier: Apache-2.0
//! What does a permit of a limit cost that the processes of a host share, the clock included?
//!
//! Goal: at most 150 ns (median), with another process that does nothing else.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::hint::black_box;
use std::num::NonZeroU64;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use criterion::Criterion;
use sparkawait_core::policy::{Gcra, Rate};
use sparkawait_runtime::clock::Clock;
use sparkawait_runtime::host_limit::{HostClock, HostLimit, page_of};
use sparkawait_runtime::shared_page::SharedPage;

/// Tells a child where the page is.
const PATH: &str = "SPARKAWAIT_BENCH_PAGE";

/// Permits that never run out: what they cost is the question.
fn open(path: &std::path::Path) -> HostLimit {
    let rate = Rate::new(NonZeroU64::new(1_000_000_000).unwrap(), Duration::from_secs(1)).unwrap();
    let page = Arc::new(SharedPage::open(path).unwrap());
    HostLimit::new(page, "bench", Gcra::new(rate, NonZeroU64::new(1 << 40).unwrap())).unwrap()
}

fn main() {
    if let Some(path) = env::var_os(PATH) {
        let limit = open(path.as_ref());
        loop {
            black_box(limit.reserve(1, HostClock.now(), Duration::ZERO).is_ok());
        }
    }
    let directory = env::temp_dir().join(format!("sparkawait-bench-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let path = page_of(&directory, "bench");
    let limit = open(&path);
    let mut criterion = Criterion::default().configure_from_args();
    let mut measure = |name: &str| {
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| limit.reserve(1, HostClock.now(), Duration::ZERO));
        });
    };
    measure("host_limit/alone");
    let mut child = Command::new(env::current_exe().unwrap()).env(PATH, &path).spawn().unwrap();
    measure("host_limit/beside_another_process");
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_dir_all(&directory).unwrap();
    criterion.final_summary();
}
