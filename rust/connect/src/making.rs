// SPDX-License-Identifier: Apache-2.0
//! What callers share and wait for, such as a connection or a token, is made by a task of its own.
//!
//! A call may end at any moment: its row has run out of time, or its attempt has. What is made within
//! it would end with it, and the next call would begin from the start: something that takes longer
//! than an attempt would never be there.

use std::task::Poll;

use futures_util::FutureExt;
use futures_util::future::Shared;
use sparkawait_task::supervision::spawn_aside;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Something that is being made, for all who wait for it.
#[derive(Clone)]
pub(crate) struct Making<T: Clone>(Shared<oneshot::Receiver<T>>);

impl<T: Clone + Send + Sync + 'static> Making<T> {
    /// Starts a task that makes it; `name` is for the log.
    pub(crate) fn start(
        runtime: &Handle,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        let (tell, made) = oneshot::channel();
        spawn_aside(runtime, name, async move {
            // Those who have waited may have given up.
            drop(tell.send(work.await));
        });
        Self(made.shared())
    }

    /// Whether it came to an end.
    pub(crate) fn is_over(&self) -> bool {
        self.0.clone().now_or_never().is_some()
    }

    /// Returns what it came to, if it has; `None` if that was a panic.
    pub(crate) fn outcome(&self) -> Poll<Option<T>> {
        self.0.clone().now_or_never().map_or(Poll::Pending, |made| Poll::Ready(made.ok()))
    }

    /// Waits for what it comes to; `None` if that was a panic, which the log tells of.
    ///
    /// # Cancel safety
    ///
    /// If that is dropped, it is made all the same.
    pub(crate) async fn made(self) -> Option<T> {
        self.0.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use tokio::sync::Notify;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn it_is_made_though_the_one_who_came_first_has_given_up() {
        let go = Arc::new(Notify::new());
        let gone = Arc::clone(&go);
        let making = Making::start(&Handle::current(), "test", async move {
            gone.notified().await;
            7
        });
        let mut first = Box::pin(making.clone().made());
        assert_eq!((&mut first).now_or_never(), None);
        drop(first);
        assert!(!making.is_over());

        go.notify_one();
        assert_eq!(making.clone().made().await, Some(7));
        assert!(making.is_over());
        assert_eq!(making.outcome(), Poll::Ready(Some(7)));
    }

    #[tokio::test]
    async fn a_panic_ends_the_wait() {
        let making = Making::start(&Handle::current(), "test", async {
            yield_now().await;
            assert!(std::hint::black_box(false), "out of luck");
        });

        assert_eq!(making.clone().made().await, None);
        assert_eq!(making.outcome(), Poll::Ready(None));
    }

    #[tokio::test]
    async fn what_is_under_way_is_not_over() {
        let making = Making::start(&Handle::current(), "test", pending::<()>());
        yield_now().await;
        assert!(!making.is_over() && making.outcome().is_pending());
    }
}
