// SPDX-License-Identifier: Apache-2.0
//! The tasks of the tokio runtime, and what happens to those who wait for one that panics.
//!
//! | started by | lives as long as | after a panic |
//! |---|---|---|
//! | [`spawn`] | the function of a Spark task | that task fails, and Spark runs it again |
//! | [`keep_running`] | the process, shared by its Spark tasks | it fails what it owes, and runs again after a pause |
//! | [`spawn_aside`] | a connection or a request | the log says so; who waits sees that it ended |
//!
//! Everything that a task owes to rows is failed, too, by whatever it is kept in when that is
//! dropped, as `sparkawait_connect` does. No task is started anywhere else; `clippy.toml` sees to that.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures_util::FutureExt;
use sparkawait_runtime::panic_message;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::error::TaskError;
use crate::function::Replies;

/// Pause after the first failure; doubled by each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Returns how long to wait after so many failures in a row.
fn pause(failures: u32) -> Duration {
    match failures.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => (FIRST_PAUSE * (1 << doublings.min(10))).min(LONGEST_PAUSE),
    }
}

/// Something that is tried again after a pause, which grows with each failure in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
    resume: Option<Instant>,
}

impl Backoff {
    /// Notes whether it failed just now.
    pub fn note(&mut self, is_failed: bool, now: Instant) {
        self.failures = if is_failed { self.failures.saturating_add(1) } else { 0 };
        self.resume = is_failed.then(|| now + pause(self.failures));
    }

    /// Returns how much of the pause is left; nothing if it may be tried.
    pub fn rest(&self, now: Instant) -> Option<Duration> {
        self.resume?.checked_duration_since(now).filter(|it| !it.is_zero())
    }

    /// Waits until it may be tried.
    pub async fn wait(self) {
        if let Some(resume) = self.resume {
            sleep_until(resume).await;
        }
    }
}

/// Runs the tokio task of a function; its panic fails the Spark task instead of hanging it.
pub fn spawn(
    runtime: &Handle,
    name: &'static str,
    replies: Replies,
    work: impl Future<Output = ()> + Send + 'static,
) {
    start(runtime, async move {
        if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
            let reason = panic_message(panic.as_ref());
            replies.fail(TaskError::Internal(format!("`{name}` panicked: {reason}")));
        }
    });
}

/// Runs a tokio task that nobody's rows depend on alone, such as one that serves a connection.
pub fn spawn_aside(
    runtime: &Handle,
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) -> AbortHandle {
    start(runtime, async move {
        if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
            let reason = panic_message(panic.as_ref());
            tracing::error!(task = name, reason, "a task panicked");
        }
    })
}

/// Something that all tasks of the process share, and that runs on a tokio task of its own.
pub trait Service: Send + 'static {
    /// Serves until nobody needs it any more.
    fn run(&mut self) -> impl Future<Output = ()> + Send;

    /// Fails what it had under way when it panicked for `reason`; it will run again.
    fn fail(&mut self, reason: &str);
}

/// Runs a service to its end; after a panic, it fails what it owes and runs again after a pause.
pub fn keep_running(runtime: &Handle, name: &'static str, mut service: impl Service) {
    start(runtime, async move {
        let mut panics = 0;
        loop {
            let started = Instant::now();
            let Err(panic) = AssertUnwindSafe(service.run()).catch_unwind().await else { return };
            let reason = panic_message(panic.as_ref());
            tracing::error!(task = name, reason, "a task panicked; it is started again");
            // A panic of this leaves no more behind than what it is about.
            drop(catch_unwind(AssertUnwindSafe(|| service.fail(reason))));
            let has_lasted = started.elapsed() > LONGEST_PAUSE;
            panics = if has_lasted { 1 } else { panics + 1 };
            sleep(pause(panics)).await;
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "its callers are what all others are to use")]
fn start(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    runtime.spawn(task).abort_handle()
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;

    /// What a service is told, and what it tells.
    struct Told {
        orders: UnboundedReceiver<&'static str>,
        news: UnboundedSender<String>,
    }

    impl Service for Told {
        async fn run(&mut self) {
            #[expect(
                clippy::let_underscore_must_use,
                reason = "a test that has ended wants no news"
            )]
            let _ = self.news.send("runs".to_owned());
            while let Some(order) = self.orders.recv().await {
                assert_eq!(order, "go on");
                #[expect(
                    clippy::let_underscore_must_use,
                    reason = "a test that has ended wants no news"
                )]
                let _ = self.news.send(order.to_owned());
            }
        }

        fn fail(&mut self, reason: &str) {
            let is_named = reason.contains("assertion");
            #[expect(
                clippy::let_underscore_must_use,
                reason = "a test that has ended wants no news"
            )]
            let _ = self.news.send(format!("failed {is_named}"));
            assert!(self.news.is_closed(), "this panics, too");
        }
    }

    #[tokio::test]
    async fn a_service_that_panics_fails_what_it_owes_and_runs_again() {
        let (orders, taken) = unbounded_channel();
        let (news, mut told) = unbounded_channel();
        keep_running(&Handle::current(), "told", Told { orders: taken, news });
        for order in ["go on", "panic", "panic", "go on"] {
            orders.send(order).unwrap();
        }
        drop(orders);

        let mut all = Vec::new();
        while let Some(news) = told.recv().await {
            all.push(news);
        }

        let expected = ["runs", "go on", "failed true", "runs", "failed true", "runs", "go on"];
        assert_eq!(all, expected);
    }

    #[tokio::test]
    async fn a_task_aside_that_panics_ends_alone() {
        let (ended, told) = tokio::sync::oneshot::channel::<()>();
        spawn_aside(&Handle::current(), "aside", async move {
            let _ended = ended;
            unreachable!("out of luck");
        });

        assert!(told.await.is_err());
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses: Vec<_> = [0, 1, 2, 3, 7, u32::MAX].map(pause).into();

        let milliseconds = [0, 50, 100, 200, 2000, 2000].map(Duration::from_millis);
        assert_eq!(pauses, milliseconds);
    }

    #[test]
    fn the_pause_begins_with_a_failure_and_ends_with_what_does_not_fail() {
        let (mut backoff, start) = (Backoff::default(), Instant::now());
        let milliseconds = Duration::from_millis;
        assert_eq!(backoff.rest(start), None);

        backoff.note(true, start);
        assert_eq!(backoff.rest(start + milliseconds(43)), Some(milliseconds(7)));
        assert_eq!(backoff.rest(start + milliseconds(50)), None);
        backoff.note(true, start + milliseconds(61));
        assert_eq!(backoff.rest(start + milliseconds(61)), Some(milliseconds(100)));
        backoff.note(false, start + milliseconds(67));
        assert_eq!(backoff.rest(start + milliseconds(67)), None);
        backoff.note(true, start + milliseconds(71));
        assert_eq!(backoff.rest(start + milliseconds(71)), Some(milliseconds(50)));
    }
}
