// SPDX-License-Identifier: Apache-2.0
//! Requests for many records each, as far as limits that count requests have to know of them.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Line;
use crate::time::ProcessingTime;

/// The record of a call, by the number of its entry, and whether it is the second one.
pub(crate) type Payer = (u64, Line);

/// How the maker of requests puts records together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestConfig {
    /// Most records of a request.
    pub records: NonZeroU32,
    /// How long its first record waits for others.
    pub linger: Duration,
}

/// Whether the next call of a record is one of a part of a request that has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum InPart {
    /// It is not.
    #[default]
    No,
    /// The part begins with it, and has so many records.
    Begins(NonZeroU32),
    /// It goes along with records before it.
    GoesAlong,
}

/// Places of a request that its first record has paid for.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    count: u32,
    /// Until when.
    until: ProcessingTime,
    /// The call that pays, if its record has a place.
    payer: Option<Payer>,
    /// The first one that goes along, which pays if the payer ends before the request is made.
    heir: Option<Payer>,
}

impl Places {
    fn left(&self, now: ProcessingTime) -> u32 {
        if now <= self.until { self.count } else { 0 }
    }

    fn take(&mut self, call: Option<Payer>, now: ProcessingTime) -> bool {
        let is_there = self.left(now) > 0;
        if is_there {
            self.count -= 1;
            self.heir = self.heir.or(call);
        }
        is_there
    }

    fn on_end(&mut self, call: Payer, is_unmade: bool) -> Option<Payer> {
        if self.heir == Some(call) {
            self.heir = None;
        }
        if self.payer != Some(call) || !is_unmade {
            return None;
        }
        let heir = self.heir.take();
        *self = match heir {
            Some(_) => Self { count: self.count + 1, payer: heir, ..*self },
            None => Self::default(),
        };
        heir
    }
}

/// The requests of a channel that are being filled: the first record of each has paid for it, the
/// others go along.
///
/// It is a guess at what happens elsewhere, where requests are cut by their bytes too, say: each
/// request is told of when it is made, and what was paid is set right then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenRequest {
    of_any: Places,
    /// For the records of parts, which no others go along with.
    of_parts: Places,
}

impl OpenRequest {
    /// Returns how many records of no part may go along now.
    pub(crate) fn places(&self, now: ProcessingTime) -> u32 {
        self.of_any.left(now)
    }

    /// Returns whether any record may go along now.
    pub(crate) fn has_places(&self, now: ProcessingTime) -> bool {
        self.of_any.left(now) > 0 || self.of_parts.left(now) > 0
    }

    /// Returns whether a record that is called now may go along.
    pub(crate) fn admits(&self, part: InPart, now: ProcessingTime) -> bool {
        match part {
            InPart::No => self.of_any.left(now) > 0,
            InPart::Begins(_) => false,
            InPart::GoesAlong => self.of_parts.left(now) > 0,
        }
    }

    /// Takes a record that is called; returns whether it is the first of another request.
    pub(crate) fn on_start(
        &mut self,
        config: &RequestConfig,
        part: InPart,
        call: Option<Payer>,
        now: ProcessingTime,
    ) -> bool {
        let (until, payer, heir) = (now + config.linger, call, None);
        let (places, records) = match part {
            InPart::No => (&mut self.of_any, config.records),
            InPart::Begins(records) => {
                // Those of parts that began before may still come.
                let count = self.of_parts.left(now).saturating_add(records.get() - 1);
                self.of_parts = Places { count, until, payer, heir };
                return true;
            }
            InPart::GoesAlong => (&mut self.of_parts, config.records),
        };
        if places.take(call, now) {
            return false;
        }
        *places = Places { count: records.get() - 1, until, payer, heir };
        true
    }

    /// Takes a call that has ended; `is_unmade` if it has paid for a request that nobody was told of.
    ///
    /// Such is a second call whose record is answered at this moment. What it has paid comes back, so the first
    /// one that goes along pays instead, which is returned; without one there is nothing to go along with.
    pub(crate) fn on_end(&mut self, call: Payer, is_unmade: bool) -> Option<Payer> {
        let of_any = self.of_any.on_end(call, is_unmade);
        of_any.or(self.of_parts.on_end(call, is_unmade))
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
        let mut opens = |now| request.on_start(&config, InPart::No, None, at(now));

        let full = [5, 5, 15, 15].map(&mut opens);
        let late = [25, 26, 26].map(&mut opens);

        assert_eq!((full, late), ([true, false, false, true], [false, true, false]));
    }

    #[test]
    fn what_goes_along_with_a_request_whose_payer_ends_pays_for_it() {
        let config = RequestConfig { records: NonZeroU32::new(3).unwrap(), linger: Duration::ZERO };
        let (now, mut request) = (ProcessingTime::from_nanos(7), OpenRequest::default());
        let [first, second, third, fourth] = [17, 18, 21, 22].map(|entry| (entry, Line::Hedges));
        let mut opens = |call| request.on_start(&config, InPart::No, Some(call), now);

        assert_eq!([first, second].map(&mut opens), [true, false]);
        assert_eq!(request.on_end(second, false), None);
        assert_eq!(request.on_end(first, true), None, "nobody goes along any more");

        let mut opens = |call| request.on_start(&config, InPart::No, Some(call), now);
        assert_eq!([first, second].map(&mut opens), [true, false]);
        assert_eq!(request.on_end(first, true), Some(second));
        let mut opens = |call| request.on_start(&config, InPart::No, Some(call), now);
        assert_eq!([third, fourth, first].map(&mut opens), [false, false, true]);
        assert_eq!(request.on_end(second, true), None, "its request is full");
    }

    #[test]
    fn a_part_is_a_request_of_its_own_and_only_its_records_go_along() {
        let config = RequestConfig {
            records: NonZeroU32::new(7).unwrap(),
            linger: Duration::from_nanos(10),
        };
        let (at, mut request) = (ProcessingTime::from_nanos, OpenRequest::default());
        let begins = |records| InPart::Begins(NonZeroU32::new(records).unwrap());
        let calls = [
            (InPart::No, true),
            (begins(2), true),
            (InPart::No, false),
            (begins(1), true),
            (InPart::GoesAlong, false),
            (InPart::No, false),
            // One that comes late, as those behind it may.
            (InPart::GoesAlong, true),
            (InPart::GoesAlong, false),
        ];

        for (part, opens) in calls {
            assert_eq!(request.admits(part, at(5)), !opens, "{part:?}");
            assert_eq!(request.on_start(&config, part, None, at(5)), opens, "{part:?}");
        }
        assert!(request.has_places(at(15)) && !request.has_places(at(16)));
    }
}
