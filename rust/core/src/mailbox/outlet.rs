// SPDX-License-Identifier: Apache-2.0
//! Where output is taken: one place between the thread that drives a task and its consumer.
//!
//! Shared by two threads, as the inbox is by many: one puts, one takes. No user code runs under the
//! lock, and wakers are called after its release. The end of a task has a place of its own, so that
//! it is never refused because a batch waits.

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
pub enum Taken<T, E> {
    /// What was put.
    Output(T),
    /// Nothing yet: the consumer is woken when there is.
    Nothing,
    /// Nothing any more: all that was put was taken before. Says how the driver has ended; an error is
    /// told once.
    End(Result<(), E>),
    /// Nothing any more: the driver has failed, and the consumer was told why before.
    Failed,
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
///
///   end:   accepted in each of these states, since it needs no demand
///   take:  the batch that waits, if there is one; then how the driver has ended
/// ```
///
/// A driver says [how it has ended](Self::end) whatever the consumer wants at that moment: a failure
/// that had to wait for demand could be lost. The consumer is told [behind](Taken::End) what it takes.
///
/// Each wake-up must be remembered until the next wait, as `std::thread::unpark` does.
pub struct Outlet<T, E> {
    place: Mutex<Place<T, E>>,
    /// A [`Demand`]. Written under the lock; the driver looks without it, once in each of its steps,
    /// and is woken after each change.
    demand: AtomicU8,
    /// Called when the consumer wants something else than before.
    driver: Waker,
    /// Called when there is something to take.
    consumer: Waker,
}

/// What the two threads share. Under one lock, or a consumer that found no output and then saw the
/// end would miss what was put in between.
struct Place<T, E> {
    output: Option<T>,
    end: End<E>,
}

/// What the driver has said of its end.
enum End<E> {
    /// Nothing: it goes on.
    Open,
    /// How it ended.
    Said(Result<(), E>),
    /// That it failed, and the consumer knows why.
    FailureTold,
}

impl<E> End<E> {
    /// Tells the consumer; `None` as long as the driver goes on.
    fn tell<T>(&mut self) -> Option<Taken<T, E>> {
        match std::mem::replace(self, Self::FailureTold) {
            Self::Open => {
                *self = Self::Open;
                None
            }
            Self::Said(Ok(())) => {
                *self = Self::Said(Ok(()));
                Some(Taken::End(Ok(())))
            }
            Self::Said(Err(error)) => Some(Taken::End(Err(error))),
            Self::FailureTold => Some(Taken::Failed),
        }
    }
}

impl<T, E> Outlet<T, E> {
    /// Makes one that is empty, and whose consumer has not asked yet.
    pub fn new(driver: Waker, consumer: Waker) -> Self {
        let demand = AtomicU8::new(Demand::Whole as u8);
        let place = Mutex::new(Place { output: None, end: End::Open });
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

    /// Says that nothing is put any more, and how the driver has ended. What it has said first
    /// stands. For the driver.
    pub fn end(&self, end: Result<(), E>) {
        let mut place = sync::lock(&self.place);
        let late = match place.end {
            End::Open => {
                place.end = End::Said(end);
                None
            }
            End::Said(_) | End::FailureTold => Some(end),
        };
        drop(place);
        self.consumer.wake_by_ref();
        // Its drop may run code of others, which does not belong under the lock.
        drop(late);
    }

    /// Takes what is there. If there is nothing, its waker is called when there is. For the consumer.
    pub fn take(&self) -> Taken<T, E> {
        let mut place = sync::lock(&self.place);
        let before = self.demand();
        let (taken, demand) = match place.output.take() {
            Some(output) => (Taken::Output(output), Demand::Whole),
            None => match place.end.tell() {
                Some(end) => (end, before),
                None => (Taken::Nothing, Demand::Any),
            },
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

crate::opaque_debug!([T, E] Outlet<T, E>, demand: demand());

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::counting_waker::CountingWaker;
    use super::Taken::{End, Failed, Nothing, Output};
    use super::*;

    /// An outlet, and the wake-ups of its driver and of its consumer.
    fn outlet() -> (Outlet<u32, &'static str>, impl Fn() -> (usize, usize)) {
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
    fn an_end_is_told_behind_all_that_was_put() {
        let (outlet, wakes) = outlet();
        outlet.put(7).unwrap();
        outlet.end(Ok(()));

        let taken = [outlet.take(), outlet.take(), outlet.take()];
        assert_eq!(taken, [Output(7), End(Ok(())), End(Ok(()))]);
        assert_eq!(wakes(), (1, 2), "nobody waits for the driver any more");
    }

    #[test]
    fn a_failure_is_told_behind_the_batch_that_waits_and_never_becomes_a_success() {
        let (outlet, _) = outlet();
        outlet.put(7).unwrap();
        assert_eq!(outlet.demand(), Demand::None);
        outlet.end(Err("down"));

        let taken = [outlet.take(), outlet.take(), outlet.take(), outlet.take()];
        assert_eq!(taken, [Output(7), End(Err("down")), Failed, Failed]);
    }

    #[test]
    fn an_end_is_accepted_whatever_the_consumer_wants() {
        for (asks, closes) in [(false, false), (true, false), (false, true)] {
            let (outlet, _) = outlet();
            if asks {
                assert_eq!(outlet.take(), Nothing);
            }
            if closes {
                outlet.close();
            }
            outlet.end(Err("down"));

            assert_eq!(outlet.take(), End(Err("down")), "{asks} {closes}");
        }
    }

    #[test]
    fn what_was_said_of_the_end_first_stands() {
        let (outlet, _) = outlet();
        outlet.end(Err("down"));
        outlet.end(Ok(()));
        assert_eq!(outlet.take(), End(Err("down")));

        outlet.end(Ok(()));
        assert_eq!(outlet.take(), Failed);
    }
}
