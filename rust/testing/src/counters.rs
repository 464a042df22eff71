// SPDX-License-Identifier: Apache-2.0
//! Counters of a server, for any thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Makes `Stats` and the `Counters` that they are read from, which have `requests`, `in_flight` and
/// `max_in_flight`.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

        use crate::counters::{InFlight, increment};

        /// The counters of a server, read one after the other.
        ///
        /// Requests for the counters themselves are not counted.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Stats {
            /// Returns each counter with its name.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }

        /// The counters themselves, for any thread.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)+
        }

        impl Counters {
            /// Reads all counters.
            pub(super) fn read(&self) -> Stats {
                Stats { $($name: self.$name.load(Relaxed),)+ }
            }

            /// Counts a request, which is in flight until the guard is dropped.
            pub(super) fn enter(&self) -> InFlight<'_> {
                increment(&self.requests);
                let in_flight = self.in_flight.fetch_add(1, Relaxed) + 1;
                self.max_in_flight.fetch_max(in_flight, Relaxed);
                InFlight(&self.in_flight)
            }
        }
    };
}

pub(crate) use counters;

/// Adds one to a counter.
pub(crate) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// A request in flight: answered or given up when this is dropped.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(pub(crate) &'a AtomicU64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
