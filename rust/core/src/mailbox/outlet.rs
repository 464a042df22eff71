// SPDX-License-Identifier: Apache-2.0
//! Where output is taken: one place between the thread that drives a task and its consumer.
//!
//! Shared by two threads, as the inbox is by many: one puts, one takes. No user code runs under the
//! lock, and wakers are called after its release.

use std::fmt;
use std::mem;
use std::task::Waker;

use crate::sync::{self, AtomicU8, Mutex, Ordering};

/// What the consumer of a task wants at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Demand {
    /// Nothing: it has not taken the last batch.
    None,
    /// A whole batch: it is busy with the one before, and more rows cost it less in one batch.
    Whole,
    /// Whatever there is: it waits.
    Any,
    /// Nothing any more: it has gone.
    Closed,
}

impl Demand {
    const fn of(number: u8) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Whole,
            2 => Self::Any,
            _ => Self::Closed,
        }
    }
}

/// One batch on its way from the thread that drives a task to the one that takes its output.
///
/// Counterpart of Flink's `PipelinedSubpartition`, with a single place: the task goes on while its
/// consumer works on a batch, and stops when the next one waits and another one is full.
///
/// ```text
///             take: nothing there               put
///   +-------+ -------------------> +-----+ ------------> +------+
///   | Whole |                      | Any |               | None |
///   +-------+ <------------------- +-----+  Whole, put   +------+
///       ^                                   ------------>    |
///       +----------------------------------------------------+  take
/// ```
///
/// Each wake-up has to be remembered until the next wait, as `std::thread::unpark` does.
pub struct Outlet<T> {
    place: Mutex<Option<T>>,
    /// A [`Demand`]. Written under the lock; the driver looks without it, once in each of its steps,
    /// and is woken after each change.
    demand: AtomicU8,
    /// Called when the consumer wants something else than before.
    driver: Waker,
    /// Called when there is something to take.
    consumer: Waker,
}

impl<T> Outlet<T> {
    /// Makes one that is empty, and whose consumer has not asked yet.
    pub fn new(driver: Waker, consumer: Waker) -> Self {
        let demand = AtomicU8::new(Demand::Whole as u8);
        Self { place: Mutex::new(None), demand, driver, consumer }
    }

    /// Returns what the consumer wants. For the driver.
    #[inline]
    pub fn demand(&self) -> Demand {
        Demand::of(self.demand.load(Ordering::Acquire))
    }

    /// Puts `output` for the consumer. For the driver.
    ///
    /// # Errors
    ///
    /// Hands `output` back if the consumer wants nothing.
    pub fn put(&self, output: T) -> Result<(), T> {
        let mut place = sync::lock(&self.place);
        if matches!(self.demand(), Demand::None | Demand::Closed) {
            return Err(output);
        }
        *place = Some(output);
        self.demand.store(Demand::None as u8, Ordering::Release);
        drop(place);
        self.consumer.wake_by_ref();
        Ok(())
    }

    /// Takes what is there. If there is nothing, its waker is called when there is. For the consumer.
    pub fn take(&self) -> Option<T> {
        let mut place = sync::lock(&self.place);
        let (output, before) = (place.take(), self.demand());
        let demand = match (before, &output) {
            (Demand::Closed, _) => Demand::Closed,
            (_, Some(_)) => Demand::Whole,
            (_, None) => Demand::Any,
        };
        self.demand.store(demand as u8, Ordering::Release);
        drop(place);
        if demand != before {
            self.driver.wake_by_ref();
        }
        output
    }

    /// Wants nothing any more; what waits is dropped. For the consumer.
    pub fn close(&self) {
        let mut place = sync::lock(&self.place);
        let left = mem::take(&mut *place);
        self.demand.store(Demand::Closed as u8, Ordering::Release);
        drop(place);
        self.driver.wake_by_ref();
        drop(left);
    }
}

impl<T> fmt::Debug for Outlet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").field("demand", &self.demand()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An outlet, and the wake-ups of its driver and of its consumer.
    fn outlet() -> (Outlet<u32>, impl Fn() -> (usize, usize)) {
        let (driver, consumer) = (Arc::<CountingWaker>::default(), Arc::<CountingWaker>::default());
        let outlet = Outlet::new(Arc::clone(&driver).into(), Arc::clone(&consumer).into());
        (outlet, move || (driver.0.load(Ordering::Relaxed), consumer.0.load(Ordering::Relaxed)))
    }

    #[test]
    fn a_busy_consumer_wants_a_whole_batch_and_a_waiting_one_whatever_there_is() {
        let (outlet, wakes) = outlet();
        assert_eq!(outlet.demand(), Demand::Whole);

        assert_eq!((outlet.take(), outlet.demand(), wakes()), (None, Demand::Any, (1, 0)));
        outlet.put(7).unwrap();
        assert_eq!((outlet.demand(), wakes()), (Demand::None, (1, 1)));
        assert_eq!((outlet.take(), outlet.demand(), wakes()), (Some(7), Demand::Whole, (2, 1)));
    }

    #[test]
    fn a_consumer_that_asks_twice_wakes_the_driver_once() {
        let (outlet, wakes) = outlet();

        assert_eq!((outlet.take(), outlet.take()), (None, None));

        assert_eq!(wakes(), (1, 0));
    }

    #[test]
    fn a_batch_that_nobody_wants_is_given_back() {
        let (outlet, wakes) = outlet();
        outlet.put(7).unwrap();

        assert_eq!(outlet.put(13), Err(13));
        assert_eq!((outlet.take(), wakes()), (Some(7), (1, 1)));
        outlet.close();
        assert_eq!((outlet.put(17), outlet.take()), (Err(17), None));

        assert_eq!(outlet.demand(), Demand::Closed);
    }

    #[test]
    fn what_waits_when_the_consumer_goes_is_dropped_and_the_driver_is_told() {
        let (outlet, wakes) = outlet();
        outlet.put(7).unwrap();

        outlet.close();

        assert_eq!((outlet.take(), outlet.demand(), wakes()), (None, Demand::Closed, (1, 1)));
    }
}
