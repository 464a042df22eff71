// SPDX-License-Identifier: Apache-2.0
//! A task that one thread drives, and whose output another one takes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use sparkawait_core::mailbox::{Demand, Outlet, Taken};

use crate::account::Settled;
use crate::async_function::AsyncFunction;
use crate::batch_codec::BatchCodec;
use crate::clock::{Clock, MonotonicClock};
use crate::drive::drive;
use crate::driver::{Driver, Turn};
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
    outlet: Arc<Outlet<X::Output, X::Error>>,
    /// Where the consumer waits.
    consumer: Arc<Parker>,
    is_open: AtomicBool,
    /// Of a task that has ended by itself.
    settled: OnceLock<Settled>,
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
        Self {
            progress,
            ended: Condvar::new(),
            outlet,
            consumer,
            is_open,
            settled: OnceLock::new(),
        }
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
        let Progress::Idle(driver) = idle else { return };
        let tell = |end| {
            self.outlet.end(end);
            *self.lock() = Progress::Ended;
            self.ended.notify_all();
        };
        drive(*driver, |driver| self.turns(driver), tell);
    }

    /// Takes turns until the task has ended, or was closed.
    fn turns(&self, driver: &mut Driver<X, F, C>) -> Result<(), X::Error> {
        loop {
            match self.outlet.demand() {
                Demand::Closed => return Ok(()),
                Demand::None | Demand::Whole if !driver.is_open() => {
                    driver.wait_for_demand();
                    continue;
                }
                Demand::None | Demand::Whole | Demand::Any => {}
            }
            let turn = driver.take_turn();
            self.is_open.store(driver.is_open(), Ordering::Relaxed);
            match turn? {
                Turn::Output(batch) => self.put(batch)?,
                Turn::Paused => {}
                Turn::Finished => {
                    self.settled.get_or_init(|| driver.settled());
                    return Ok(());
                }
            }
        }
    }

    /// Puts a batch, which the consumer has asked for; one that has gone since does not take it.
    fn put(&self, batch: X::Output) -> Result<(), X::Error> {
        match self.outlet.put(batch) {
            Err(_) if self.outlet.demand() != Demand::Closed => {
                let what = "a batch was made while another one waits, and would get lost";
                Err(X::broken(what.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Takes a batch, after waiting for it for `timeout` at most: then it returns
    /// [`Turn::Paused`]. For one thread at a time. Without a thread that drives the task there is none.
    ///
    /// # Errors
    ///
    /// The task's failure, after all batches before it. It is told once; later calls return an error
    /// that says so.
    pub fn take(&self, timeout: Duration) -> Result<Turn<X::Output>, X::Error> {
        let mut taken = self.outlet.take();
        if matches!(taken, Taken::Nothing) {
            self.consumer.park(timeout);
            taken = self.outlet.take();
        }
        match taken {
            Taken::Output(batch) => Ok(Turn::Output(batch)),
            Taken::Nothing => Ok(Turn::Paused),
            Taken::End(end) => end.map(|()| Turn::Finished),
            Taken::Failed => {
                let what = "the task has failed, and its error was returned before".to_owned();
                Err(X::broken(what))
            }
        }
    }

    /// Cancels all calls in flight, and waits for the thread that drives the task. Idempotent.
    pub fn close(&self) {
        self.outlet.close();
        let mut progress = self.lock();
        if let Progress::Idle(driver) = &mut *progress {
            driver.close();
            self.outlet.end(Ok(()));
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

    /// Returns what happened to the rows of a task that has [`Finished`](Turn::Finished); `None` of
    /// one that was closed before, or has failed. To be compared with the batches that came and left:
    /// see [`Settled::mismatch`].
    pub fn settled(&self) -> Option<Settled> {
        self.settled.get().copied()
    }

    fn lock(&self) -> MutexGuard<'_, Progress<X, F, C>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

sparkawait_core::opaque_debug!([X: BatchCodec, F, C] DrivenTask<X, F, C>, outlet: outlet);
