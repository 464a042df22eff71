// SPDX-License-Identifier: Apache-2.0
//! A task that one thread drives, and whose output another one takes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use sparkawait_core::mailbox::{Demand, Outlet, Taken};

use crate::async_function::AsyncFunction;
use crate::batch_codec::BatchCodec;
use crate::clock::{Clock, MonotonicClock};
use crate::driver::{Driver, Handed, Turn};
use crate::parker::Parker;

/// A task with two threads: one [drives](Self::drive) it, the other [takes](Self::take) its batches.
///
/// So calls begin and end while the consumer works on a batch. If the thread that took a batch drove
/// the task as well, no permit that came free meanwhile would be used. Beside the batch that the
/// consumer works on there is one that waits, and one that is being filled.
///
/// ```text
///   drive:  mail, calls, deadlines --> batch --> +--------+ --> take: conversion, IPC, Spark
///           (the mailbox loop)                   | outlet |
///           waits only for mail <-- demand ----- +--------+
/// ```
///
/// As long as a task makes few calls, because nobody may want more than its first rows, it goes on
/// only while its consumer waits.
pub struct DrivenTask<X: BatchCodec, F, C = MonotonicClock> {
    progress: Mutex<Progress<X, F, C>>,
    ended: Condvar,
    outlet: Arc<Outlet<Handed<X>>>,
    /// Where the consumer waits.
    consumer: Arc<Parker>,
    is_open: AtomicBool,
}

/// Where the driver is.
enum Progress<X: BatchCodec, F, C> {
    /// No thread drives it yet.
    Idle(Box<Driver<X, F, C>>),
    /// A thread does.
    Driven,
    /// It is closed.
    Ended,
}

impl<X, F, C> DrivenTask<X, F, C>
where
    X: BatchCodec,
    F: AsyncFunction<X::Calls>,
    C: Clock,
{
    /// Makes a task of `driver`, which waits for [`drive`](Self::drive).
    pub fn new(mut driver: Driver<X, F, C>) -> Self {
        let consumer = Arc::<Parker>::default();
        let outlet = driver.connect(Waker::from(Arc::clone(&consumer)));
        let is_open = AtomicBool::new(driver.is_open());
        let progress = Mutex::new(Progress::Idle(Box::new(driver)));
        Self { progress, ended: Condvar::new(), outlet, consumer, is_open }
    }

    /// Drives the task until it has ended or was closed. On a thread that does nothing else; returns
    /// at once if another one has done so.
    pub fn drive(&self) {
        let idle = {
            let mut progress = self.lock();
            match &*progress {
                Progress::Idle(_) => std::mem::replace(&mut *progress, Progress::Driven),
                Progress::Driven | Progress::Ended => return,
            }
        };
        let Progress::Idle(mut driver) = idle else { return };
        let outcome = catch_unwind(AssertUnwindSafe(|| self.turns(&mut driver)));
        // What panicked may do so again.
        let closed = catch_unwind(AssertUnwindSafe(|| {
            driver.close();
            drop(driver);
        }));
        let end = match outcome.and_then(|end| closed.map(|()| end)) {
            Ok(end) => end,
            Err(panic) => Some(Err(X::broken(format!(
                "the thread of the task panicked: {}; please report this",
                panic_message(panic.as_ref())
            )))),
        };
        if let Some(end) = end {
            self.hand_over(end);
        }
        self.outlet.end();
        *self.lock() = Progress::Ended;
        self.ended.notify_all();
    }

    /// Takes turns; returns how the task ended, or `None` if it was closed.
    fn turns(&self, driver: &mut Driver<X, F, C>) -> Option<Handed<X>> {
        loop {
            match self.outlet.demand() {
                Demand::Closed => return None,
                Demand::None | Demand::Whole if !driver.is_open() => {
                    driver.wait_for_demand();
                    continue;
                }
                Demand::None | Demand::Whole | Demand::Any => {}
            }
            let turn = driver.take_turn();
            self.is_open.store(driver.is_open(), Ordering::Relaxed);
            match turn {
                Ok(Turn::Output(batch)) => self.hand_over(Ok(Some(batch))),
                Ok(Turn::Paused) => {}
                Ok(Turn::Finished) => return Some(Ok(None)),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Puts what the consumer has asked for; only one that has gone does not take it.
    fn hand_over(&self, output: Handed<X>) {
        drop(self.outlet.put(output));
    }

    /// Takes a batch, after waiting for it for `timeout` at most: then it returns
    /// [`Turn::Paused`]. For one thread at a time. Without a thread that drives the task there is none.
    ///
    /// # Errors
    ///
    /// The task's failure, after all batches before it.
    pub fn take(&self, timeout: Duration) -> Result<Turn<X::Output>, X::Error> {
        let mut taken = self.outlet.take();
        if matches!(taken, Taken::Nothing) {
            self.consumer.park(timeout);
            taken = self.outlet.take();
        }
        match taken {
            Taken::Output(Ok(Some(batch))) => Ok(Turn::Output(batch)),
            Taken::Output(Err(error)) => Err(error),
            Taken::Output(Ok(None)) | Taken::End => Ok(Turn::Finished),
            Taken::Nothing => Ok(Turn::Paused),
        }
    }

    /// Cancels all calls in flight, and waits for the thread that drives the task. Idempotent.
    pub fn close(&self) {
        self.outlet.close();
        let mut progress = self.lock();
        if let Progress::Idle(driver) = &mut *progress {
            driver.close();
            self.outlet.end();
            *progress = Progress::Ended;
        }
        let ended =
            self.ended.wait_while(progress, |progress| matches!(progress, Progress::Driven));
        drop(ended);
    }

    /// Returns whether all calls may be made: the task has begun and its rows are wanted.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Progress<X, F, C>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the text that a panic was raised with.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

sparkawait_core::opaque_debug!([X: BatchCodec, F, C] DrivenTask<X, F, C>, outlet: outlet);
