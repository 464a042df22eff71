// SPDX-License-Identifier: Apache-2.0
//! What a server counts.

use crate::counters::counters;

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
