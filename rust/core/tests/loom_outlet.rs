// SPDX-License-Identifier: Apache-2.0
//! Every interleaving of the outlet, up to a bound on preemptions.
//!
//! A lost wake-up leaves one of the two threads waiting, which loom reports as a deadlock. Run with
//! `make loom`.

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::task::Wake;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sparkawait_core::mailbox::{Demand, Outlet, Taken};

/// How the runtime waits: a wake-up is remembered until somebody waits for it.
struct Parker {
    is_notified: Mutex<bool>,
    condvar: Condvar,
}

impl Parker {
    fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self { is_notified: Mutex::new(false), condvar: Condvar::new() })
    }

    fn park(&self) {
        let mut is_notified = self.is_notified.lock().unwrap();
        while !*is_notified {
            is_notified = self.condvar.wait(is_notified).unwrap();
        }
        *is_notified = false;
    }
}

impl Wake for Parker {
    fn wake(self: std::sync::Arc<Self>) {
        *self.is_notified.lock().unwrap() = true;
        self.condvar.notify_one();
    }
}

/// The outlet of a task, and where its two threads wait.
struct Ends {
    outlet: Outlet<usize>,
    driver: std::sync::Arc<Parker>,
    consumer: std::sync::Arc<Parker>,
}

impl Ends {
    fn new() -> Arc<Self> {
        let (driver, consumer) = (Parker::new(), Parker::new());
        let outlet = Outlet::new(
            std::sync::Arc::clone(&driver).into(),
            std::sync::Arc::clone(&consumer).into(),
        );
        Arc::new(Self { outlet, driver, consumer })
    }

    /// Puts as many batches as the consumer takes of `batches`; returns their number.
    fn drive(&self, batches: usize, wanted: &[Demand]) -> usize {
        let mut put = 0;
        while put < batches {
            match self.outlet.demand() {
                Demand::Closed => break,
                demand if wanted.contains(&demand) => {
                    // The consumer may have gone since.
                    put += usize::from(self.outlet.put(put).is_ok());
                }
                _ => self.driver.park(),
            }
        }
        put
    }

    /// The next batch; `None` at the end.
    fn take(&self) -> Option<usize> {
        loop {
            match self.outlet.take() {
                Taken::Output(batch) => return Some(batch),
                Taken::End => return None,
                Taken::Nothing => self.consumer.park(),
            }
        }
    }
}

#[test]
fn each_batch_is_taken_once_and_in_its_order() {
    for wanted in [&[Demand::Any][..], &[Demand::Any, Demand::Whole]] {
        let wanted: &'static [Demand] = Box::leak(wanted.into());
        loom::model(move || {
            let ends = Ends::new();
            let of_driver = Arc::clone(&ends);
            let driver = thread::spawn(move || of_driver.drive(3, wanted));

            let taken: Vec<Option<usize>> = (0..3).map(|_| ends.take()).collect();

            assert_eq!((taken, driver.join().unwrap()), (vec![Some(0), Some(1), Some(2)], 3));
        });
    }
}

#[test]
fn a_consumer_that_goes_ends_the_wait_of_the_driver() {
    loom::model(|| {
        let ends = Ends::new();
        let of_driver = Arc::clone(&ends);
        let driver = thread::spawn(move || of_driver.drive(3, &[Demand::Any, Demand::Whole]));

        let first = ends.take();
        ends.outlet.close();

        assert_eq!(first, Some(0));
        assert!(driver.join().unwrap() <= 2, "the third one had no place");
        assert_eq!((ends.outlet.take(), ends.outlet.demand()), (Taken::Nothing, Demand::Closed));
    });
}

/// A failure is what is put last.
#[test]
fn whoever_sees_the_end_has_taken_all_before() {
    loom::model(|| {
        let ends = Ends::new();
        let of_driver = Arc::clone(&ends);
        let driver = thread::spawn(move || {
            of_driver.drive(1, &[Demand::Any, Demand::Whole]);
            of_driver.outlet.end();
        });

        assert_eq!((ends.take(), ends.take(), ends.take()), (Some(0), None, None));

        driver.join().unwrap();
    });
}
