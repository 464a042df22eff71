// SPDX-License-Identifier: Apache-2.0
//! Places in line at a limit that others take from, too.

use std::sync::Arc;
use std::time::Duration;

use super::permit_source::PermitSource;
use crate::time::ProcessingTime;

/// How long a turn that has come may wait for its call. A task that waits for something else, such as
/// its next record, would call beside those whose turn it is by then.
const LATEST: Duration = Duration::from_millis(100);

/// Who waits for a shared limit: each line has a place of its own, which the other does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The records that are called next.
    Records,
    /// Calls that are slow, for a second one beside them.
    Hedges,
}

/// A place in line: what was reserved, and for when.
#[derive(Clone, Copy, Debug)]
struct Place {
    cost: u64,
    ready_at: ProcessingTime,
}

#[derive(Clone, Copy, Debug)]
struct Front {
    place: Option<Place>,
    /// When to ask again for what was refused.
    again_at: ProcessingTime,
}

/// Permits of others that are asked for one call ahead, since their turn comes later.
///
/// A place belongs to the line that asked for it, and not to one call or to what that costs. Another
/// call may come to the front, at another cost: then the place is kept, and what is missing is asked for
/// beside it. So nobody who waits goes back to the end of the line.
#[derive(Debug)]
pub(super) struct Booking {
    source: Arc<dyn PermitSource>,
    fronts: [Front; 2],
    /// When it was asked for last.
    asked_at: ProcessingTime,
}

impl Booking {
    pub(super) const fn new(source: Arc<dyn PermitSource>) -> Self {
        let nobody = Front { place: None, again_at: ProcessingTime::ZERO };
        Self { source, fronts: [nobody; 2], asked_at: ProcessingTime::ZERO }
    }

    /// Returns the limit that it is a part of.
    pub(super) fn source(&self) -> &dyn PermitSource {
        &*self.source
    }

    const fn front(&self, line: Line) -> &Front {
        &self.fronts[line as usize]
    }

    /// Reserves what the next call of a line costs, again if its turn is long over.
    pub(super) fn book(&mut self, line: Line, cost: u64, now: ProcessingTime) {
        self.asked_at = now;
        let front = &mut self.fronts[line as usize];
        // What was not used in time has come again by now, unless others have taken it: it would be
        // there twice if it were given back.
        front.place.take_if(|it| now >= it.ready_at + LATEST);
        let known = front.place.unwrap_or(Place { cost: 0, ready_at: ProcessingTime::ZERO });
        if known.cost >= cost || now < front.again_at {
            return;
        }
        match self.source.reserve(cost - known.cost, now) {
            Ok(at) => front.place = Some(Place { cost, ready_at: known.ready_at.max(at) }),
            Err(again_at) => front.again_at = again_at,
        }
    }

    /// Returns when a call of a line may start that costs as much; a point before now: at once.
    pub(super) fn ready_at(&self, line: Line, cost: u64) -> ProcessingTime {
        let front = self.front(line);
        match front.place {
            _ if cost == 0 => ProcessingTime::ZERO,
            Some(place) if place.cost >= cost => place.ready_at,
            _ => front.again_at,
        }
    }

    /// Takes the place of a call that starts, and settles what it costs.
    pub(super) fn take(&mut self, line: Line, cost: u64) {
        if cost > 0 {
            let booked = self.fronts[line as usize].place.take().map_or(0, |it| it.cost);
            self.settle(booked, cost);
        }
    }

    /// Corrects what a call was charged.
    pub(super) fn settle(&self, taken: u64, actual: u64) {
        if taken != actual {
            self.source.settle(taken, actual);
        }
    }
}

impl Drop for Booking {
    /// Gives back turns that have not come yet. Of one that has come nobody knows here whether it is
    /// over by now.
    fn drop(&mut self) {
        let places = self.fronts.iter().filter_map(|it| it.place);
        places.filter(|it| it.ready_at > self.asked_at).for_each(|it| self.settle(it.cost, 0));
    }
}
