// SPDX-License-Identifier: Apache-2.0
//! What a server counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
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
        }
    };
}

counters! {
    /// Requests received, batched lookups counting as one.
    requests,
    /// Keys found.
    hits,
    /// Keys not found.
    misses,
    /// Requests answered with status 500.
    errors,
    /// Requests answered with status 429.
    rejected,
    /// Requests left without an answer.
    stalled,
    /// Connections reset.
    reset,
    /// Requests received and not answered yet.
    in_flight,
    /// The most requests that were in flight at once.
    max_in_flight,
}

impl Counters {
    /// Counts a request, which is in flight until the guard is dropped.
    pub(super) fn enter(&self) -> InFlight<'_> {
        increment(&self.requests);
        let in_flight = self.in_flight.fetch_add(1, Relaxed) + 1;
        self.max_in_flight.fetch_max(in_flight, Relaxed);
        InFlight(self)
    }
}

/// Adds one to a counter.
pub(super) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

/// A request in flight: answered or given up when this is dropped.
#[derive(Debug)]
pub(super) struct InFlight<'a>(&'a Counters);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_requests_in_flight_are_remembered() {
        let counters = Counters::default();

        drop((counters.enter(), counters.enter()));
        drop(counters.enter());

        let stats = counters.read();
        assert_eq!((stats.requests, stats.in_flight, stats.max_in_flight), (3, 0, 2));
    }

    #[test]
    fn fields_carry_the_names_of_the_counters() {
        let stats = Stats { hits: 7, ..Stats::default() };

        let names: Vec<_> = stats.fields().map(|(name, _)| name).collect();

        assert_eq!(names[..3], ["requests", "hits", "misses"]);
        assert!(stats.fields().any(|field| field == ("hits", 7)));
    }
}
