// SPDX-License-Identifier: Apache-2.0
//! Where output is taken: one place between the thread that drives a task and its consumer.
//!
//! Shared by two threads, as the inbox is by many: one puts, one takes. No user code runs under the
//! lock, and wakers are called after its release.

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

/// What the consumer of a task finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken<T> {
    /// What was put.
    Output(T),
    /// Nothing yet: the consumer is woken when there is.
    Nothing,
    /// Nothing any more: all that was put was taken before.
    End,
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
/// The driver says when it has put all: the consumer sees that [behind](Taken::End) what it takes.
///
/// Each wake-up must be remembered until the next wait, as `std::thread::unpark` does.
pub struct Outlet<T> {
    place: Mutex<Place<T>>,
    /// A [`Demand`]. Written under the lock; the driver looks without it, once in each of its steps,
    /// and is woken after each change.
    demand: AtomicU8,
    /// Called when the consumer wants something else than before.
    driver: Waker,
    /// Called when there is something to take.
    consumer: Waker,
}

/// What the two threads share. Under one lock, or a consumer that found no output and then saw the
/// end would miss what was put in between: the failure of the task.
struct Place<T> {
    output: Option<T>,
    has_ended: bool,
}

impl<T> Outlet<T> {
    /// Makes one that is empty, and whose consumer has not asked yet.
    pub fn new(driver: Waker, consumer: Waker) -> Self {
        let demand = AtomicU8::new(Demand::Whole as u8);
        let place = Mutex::new(Place { output: None, has_ended: false });
        Self { place, demand, driver, consumer }
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
        place.output = Some(output);
        self.demand.store(Demand::None as u8, Ordering::Release);
        drop(place);
        self.consumer.wake_by_ref();
        Ok(())
    }

    /// Says that nothing is put any more. For the driver.
    pub fn end(&self) {
        sync::lock(&self.place).has_ended = true;
        self.consumer.wake_by_ref();
    }

    /// Takes what is there. If there is nothing, its waker is called when there is. For the consumer.
    pub fn take(&self) -> Taken<T> {
        let mut place = sync::lock(&self.place);
        let before = self.demand();
        let (taken, demand) = match place.output.take() {
            Some(output) => (Taken::Output(output), Demand::Whole),
            None if place.has_ended => (Taken::End, before),
            None => (Taken::Nothing, Demand::Any),
        };
        let demand = if before == Demand::Closed { before } else { demand };
        self.demand.store(demand as u8, Ordering::Release);
        drop(place);
        if demand != before {
            self.driver.wake_by_ref();
        }
        taken
    }

    /// Wants nothing any more; what waits is dropped. For the consumer.
    pub fn close(&self) {
        let mut place = sync::lock(&self.place);
        let left = place.output.take();
        self.demand.store(Demand::Closed as u8, Ordering::Release);
        drop(place);
        self.driver.wake_by_ref();
        drop(left);
    }
}

crate::opaque_debug!([T] Outlet<T>, demand: demand());

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::counting_waker::CountingWaker;
    use super::Taken::{End, Nothing, Output};
    use super::*;

    /// An outlet, and the wake-ups of its driver and of its consumer.
    fn outlet() -> (Outlet<u32>, impl Fn() -> (usize, usize)) {
        let (driver, consumer) = (Arc::<CountingWaker>::default(), Arc::<CountingWaker>::default());
        let outlet = Outlet::new(Arc::clone(&driver).into(), Arc::clone(&consumer).into());
        (outlet, move || (driver.count(), consumer.count()))
    }

    #[test]
    fn a_busy_consumer_wants_a_whole_batch_and_a_waiting_one_whatever_there_is() {
        let (outlet, wakes) = outlet();
        assert_eq!(outlet.demand(), Demand::Whole);

        assert_eq!((outlet.take(), outlet.demand(), wakes()), (Nothing, Demand::Any, (1, 0)));
        outlet.put(7).unwrap();
        assert_eq!((outlet.demand(), wakes()), (Demand::None, (1, 1)));
        assert_eq!((outlet.take(), outlet.demand(), wakes()), (Output(7), Demand::Whole, (2, 1)));
    }

    #[test]
    fn a_consumer_that_asks_twice_wakes_the_driver_once() {
        let (outlet, wakes) = outlet();

        assert_eq!((outlet.take(), outlet.take()), (Nothing, Nothing));

        assert_eq!(wakes(), (1, 0));
    }

    #[test]
    fn a_batch_that_nobody_wants_is_given_back() {
        let (outlet, wakes) = outlet();
        outlet.put(7).unwrap();

        assert_eq!(outlet.put(13), Err(13));
        assert_eq!((outlet.take(), wakes()), (Output(7), (1, 1)));
        outlet.close();
        assert_eq!((outlet.put(17), outlet.take()), (Err(17), Nothing));

        assert_eq!(outlet.demand(), Demand::Closed);
    }

    #[test]
    fn what_waits_when_the_consumer_goes_is_dropped_and_the_driver_is_told() {
        let (outlet, wakes) = outlet();
        outlet.put(7).unwrap();

        outlet.close();

        assert_eq!((outlet.take(), outlet.demand(), wakes()), (Nothing, Demand::Closed, (1, 1)));
    }

    #[test]
    fn an_end_is_seen_behind_all_that_was_put() {
        let (outlet, wakes) = outlet();
        outlet.put(7).unwrap();
        outlet.end();

        assert_eq!((outlet.take(), outlet.take(), outlet.take()), (Output(7), End, End));
        assert_eq!(wakes(), (1, 2), "nobody waits for the driver any more");
    }
}
