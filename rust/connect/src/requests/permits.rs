// SPDX-License-Identifier: Apache-2.0
//! Whose request is next: functions that share connections stand in one line for them.

use std::future::pending;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The right to one request at a time, given back when it is dropped.
pub(crate) type Permit = OwnedSemaphorePermit;

/// The place of one function in the line for connections.
pub(crate) struct Permits {
    /// One for each connection; those that wait get them in the order in which they came.
    connections: Arc<Semaphore>,
    /// The place in the line, while there is one.
    place: Option<BoxFuture<'static, Result<Permit, AcquireError>>>,
}

impl Permits {
    /// Stands in no line yet.
    pub(crate) fn new(connections: Arc<Semaphore>) -> Self {
        Self { connections, place: None }
    }

    /// Returns how many requests could be sent at once.
    pub(crate) fn free(&self) -> usize {
        self.connections.available_permits()
    }

    /// Returns a permit, or stands in line for one.
    pub(crate) fn take(&mut self) -> Option<Permit> {
        if self.place.is_none() {
            match Arc::clone(&self.connections).try_acquire_owned() {
                Ok(permit) => return Some(permit),
                Err(_) => {
                    self.place = Some(Arc::clone(&self.connections).acquire_owned().boxed());
                }
            }
        }
        None
    }

    /// Waits for a permit; for ever if nobody stands in line.
    ///
    /// # Cancel safety
    ///
    /// The place in the line is kept.
    pub(crate) async fn next(&mut self) -> Permit {
        if let Some(place) = &mut self.place {
            let permit = place.await;
            self.place = None;
            // The line is never closed.
            if let Ok(permit) = permit {
                return permit;
            }
        }
        pending().await
    }

    /// Gives up the place in the line.
    pub(crate) fn leave(&mut self) {
        self.place = None;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => Some(ready),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_permit_that_is_given_back_goes_to_whoever_stands_in_line() {
        let connections = Arc::new(Semaphore::new(1));
        let mut one = Permits::new(Arc::clone(&connections));
        let mut other = Permits::new(connections);
        let permit = one.take();
        assert!(permit.is_some() && one.free() == 0);

        assert!(other.take().is_none() && poll(other.next()).is_none());
        drop(permit);

        // Not to one who comes later, even if that asks first.
        assert!(one.take().is_none());
        assert!(poll(other.next()).is_some());
    }

    #[test]
    fn who_leaves_the_line_holds_nobody_up() {
        let connections = Arc::new(Semaphore::new(1));
        let mut one = Permits::new(Arc::clone(&connections));
        let mut other = Permits::new(connections);
        let permit = one.take();
        assert!(other.take().is_none() && poll(other.next()).is_none());

        other.leave();
        drop(permit);

        assert!(one.take().is_some() && poll(other.next()).is_none());
    }
}
