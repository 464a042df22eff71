// SPDX-License-Identifier: Apache-2.0
//! Requests for many records each, as far as limits that count requests have to know of them.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::time::ProcessingTime;

/// How the maker of requests puts records together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestConfig {
    /// Most records of a request.
    pub records: NonZeroU32,
    /// How long its first record waits for others.
    pub linger: Duration,
}

/// The request of a channel that is being filled: its first record has paid for it, the others go
/// along.
///
/// It is a guess at what happens elsewhere, where requests are cut by their bytes too, say: each
/// request is told of when it is made, and what was paid is set right then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenRequest {
    /// Records that may go along.
    places: u32,
    /// Until when.
    until: ProcessingTime,
}

impl OpenRequest {
    /// Returns how many records may go along now.
    pub(crate) fn places(&self, now: ProcessingTime) -> u32 {
        if now <= self.until { self.places } else { 0 }
    }

    /// Takes a record that is called; returns whether it is the first of another request.
    pub(crate) fn on_start(&mut self, config: &RequestConfig, now: ProcessingTime) -> bool {
        if self.places(now) > 0 {
            self.places -= 1;
            return false;
        }
        (self.places, self.until) = (config.records.get() - 1, now + config.linger);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_go_along_until_it_is_full_or_sent() {
        let config = RequestConfig {
            records: NonZeroU32::new(3).unwrap(),
            linger: Duration::from_nanos(10),
        };
        let (at, mut request) = (ProcessingTime::from_nanos, OpenRequest::default());
        let mut opens = |now| request.on_start(&config, at(now));

        let full = [5, 5, 15, 15].map(&mut opens);
        let late = [25, 26, 26].map(&mut opens);

        assert_eq!((full, late), ([true, false, false, true], [false, true, false]));
    }
}
