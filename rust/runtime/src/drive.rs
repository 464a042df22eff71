// SPDX-License-Identifier: Apache-2.0
//! The one way in which a thread drives a task to its end.
//!
//! ```text
//!   turns --> how they ended --+
//!     | panic --> its text ----+--> close --> drop --> tell, once
//!                                     | panic: told if nothing else was to be told
//! ```
//!
//! Runs on the thread of the task. If anything panics on it, the consumer is told of a failure, never
//! of a success, even if it wants nothing at that moment.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::async_function::AsyncFunction;
use crate::batch_codec::BatchCodec;
use crate::clock::Clock;
use crate::driver::Driver;

/// Drives a task on this thread: lets `turns` take its turns and closes it. Then `tell` is called,
/// once, with what `turns` returned, or else with the error of what panicked.
///
/// Returns when the thread has nothing left to do.
pub fn drive<X, F, C>(
    mut driver: Driver<X, F, C>,
    turns: impl FnOnce(&mut Driver<X, F, C>) -> Result<(), X::Error>,
    tell: impl FnOnce(Result<(), X::Error>),
) where
    X: BatchCodec,
    F: AsyncFunction<X::Calls>,
    C: Clock,
{
    let end = Untold::<X, _>(Some(tell), PhantomData);
    let turned = caught::<X>(|| turns(&mut driver));
    // What panicked may do so again; and a function that panics when it is closed is dropped.
    let closed = caught::<X>(|| {
        driver.close();
        Ok(())
    });
    let dropped = caught::<X>(move || {
        drop(driver);
        Ok(())
    });
    end.tell(turned.and(closed).and(dropped));
}

/// Does something that may panic, which is an error then.
fn caught<X: BatchCodec>(act: impl FnOnce() -> Result<(), X::Error>) -> Result<(), X::Error> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        Err(X::broken(format!(
            "the thread of the task panicked: {}; please report this",
            panic_message(panic.as_ref())
        )))
    })
}

/// Tells the consumer how the thread has ended: that it failed, if the thread is gone before it has
/// said so.
struct Untold<X: BatchCodec, T: FnOnce(Result<(), X::Error>)>(Option<T>, PhantomData<fn() -> X>);

impl<X: BatchCodec, T: FnOnce(Result<(), X::Error>)> Untold<X, T> {
    fn tell(mut self, end: Result<(), X::Error>) {
        if let Some(tell) = self.0.take() {
            tell(end);
        }
    }
}

impl<X: BatchCodec, T: FnOnce(Result<(), X::Error>)> Drop for Untold<X, T> {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            let what = "the thread of the task has ended without saying how; please report this";
            tell(Err(X::broken(what.to_owned())));
        }
    }
}

/// Returns the text that a panic was raised with.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
